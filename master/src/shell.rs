//! The asynchronous shell around the driver: one thread owns it; effects are performed as tasks, and their answers come
//! back as commands.

use std::{
    sync::{Arc, RwLock},
    thread,
    time::Instant,
};

use muster_core::{
    edit::Edit,
    engine::{Job, Now},
};
use tokio::{runtime::Handle, sync::mpsc};
use uuid::Uuid;

use crate::{
    driver::{Clock, Command, Driver, Ids, Released, Retired},
    effects::Effects,
    job_log::JobLog,
    master::Master,
    office,
    store::{Batch, MasterStore, RecordWriter, Store, StoreError, WriteError},
    view::View,
};

/// Commands that may wait for the driver; senders wait beyond.
pub const COMMANDS_MAX: usize = 4096;
/// Commands made durable together.
const GROUP_MAX: usize = 512;

/// The machine's clocks.
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock(Instant::now())
    }
}

/// The wall clock, ms since 1970.
pub fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        Now { wall_ms: wall_ms(), mono_ms: u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX) }
    }
}

/// Ids from the system's randomness.
pub struct RandomIds;

impl Ids for RandomIds {
    fn uuid(&mut self) -> Uuid {
        Uuid::new_v4()
    }

    fn mac(&mut self) -> String {
        let random = Uuid::new_v4().into_bytes();
        format!("aa:00:00:{:02x}:{:02x}:{:02x}", random[0], random[1], random[2])
    }
}

/// The daemon's driver.
pub type MasterDriver = Driver<MasterStore, SystemClock, RandomIds>;

/// Where commands to the driver go, as long as there is one. Clones share it.
#[derive(Clone, Default)]
pub struct CommandSlot(Arc<RwLock<Option<mpsc::Sender<Command>>>>);

/// The lock is held for copies only.
const POISON: &str = "no holder of this lock panics";

impl CommandSlot {
    /// The way to the driver, if there is one.
    pub fn get(&self) -> Option<mpsc::Sender<Command>> {
        self.0.read().expect(POISON).clone()
    }

    /// Another driver, or none; the old one ends when it has handled what it was sent.
    pub fn set(&self, commands: Option<mpsc::Sender<Command>>) {
        *self.0.write().expect(POISON) = commands;
    }
}

#[tonic::async_trait]
impl RecordWriter for CommandSlot {
    async fn write(&self, batch: Batch) -> Result<(), WriteError> {
        let (reply, written) = tokio::sync::oneshot::channel();
        // Who asked may be gone by then.
        let reply = Box::new(move || reply.send(()).unwrap_or_default());
        let commands = self.get().ok_or(WriteError)?;
        commands.send(Command::Write(batch, reply)).await.map_err(|_| WriteError)?;
        written.await.map_err(|_| WriteError)
    }
}

/// Runs the driver on a thread of its own until all senders are gone or the store fails.
///
/// # Errors
/// When the thread can't be made.
pub fn start(
    mut driver: MasterDriver,
    mut commands: mpsc::Receiver<Command>,
    master: Arc<Master>,
) -> Result<thread::JoinHandle<()>, std::io::Error> {
    let runtime = Handle::current();
    thread::Builder::new().name("driver".to_owned()).spawn(move || {
        let ended = run(&mut driver, &mut commands, &master, &runtime);
        let ended = ended.and_then(|retired| match retired {
            Some(retired) => lay_aside(driver, retired, &master),
            None => Ok(()),
        });
        if let Err(error) = ended {
            master.fatal(&format!("the store failed: {}", crate::chain(&error)));
        }
    })
}

fn run(
    driver: &mut MasterDriver,
    commands: &mut mpsc::Receiver<Command>,
    master: &Arc<Master>,
    runtime: &Handle,
) -> Result<Option<Retired>, StoreError> {
    let mut group = Vec::with_capacity(GROUP_MAX);
    let effects = Effects::new(master.clone(), runtime.clone());
    loop {
        let released = driver.flush()?;
        release(released, master, runtime, &effects);
        if let Some(retired) = driver.retired() {
            return Ok(Some(retired));
        }
        if commands.blocking_recv_many(&mut group, GROUP_MAX) == 0 {
            return Ok(None);
        }
        for command in group.drain(..) {
            driver.handle(command);
        }
    }
}

/// The driver's end: the state is kept, and told to whom it is given.
fn lay_aside(driver: MasterDriver, retired: Retired, master: &Arc<Master>) -> Result<(), StoreError> {
    let (store, failpoints) = driver.into_parts();
    let records = store.load()?;
    master.retire(retired.successor, store, failpoints);
    (retired.reply)(Ok(records));
    Ok(())
}

/// Shows what is durable now, answers those who wait for it, performs what follows from it.
///
/// The configuration comes first: who sees that a job has ended, reads what it changed.
fn release(mut released: Released, master: &Arc<Master>, runtime: &Handle, effects: &Effects) {
    let edits = std::mem::take(&mut released.edits);
    if !edits.is_empty() {
        let is_news = !edits.iter().all(Edit::is_bookkeeping);
        master.view().publish_edits(edits, released.serial);
        runtime.block_on(office::configuration_changed(master, &released.touched, is_news));
    }
    publish(master.view(), &master.job_log, std::mem::take(&mut released.jobs));
    master.view().forget_jobs(&released.archived);
    released.reply();
    for effect in std::mem::take(&mut released.effects) {
        effects.perform(effect);
    }
}

/// Shows jobs in the order in which clients are to hear of them: the last first. The log has them the other way round, as
/// they were asked for.
fn publish(view: &View, job_log: &JobLog, jobs: Vec<Job>) {
    let mut told = Vec::with_capacity(jobs.len());
    for job in jobs {
        let id = job.id();
        let before = view.job(id);
        view.publish_jobs([job]);
        told.extend(view.job(id).map(|now| (before, now)));
    }
    for (before, now) in told.into_iter().rev() {
        job_log.changed(before.as_ref().map(|view| &*view.job), &now.job);
    }
}

/// The records of a store, for a driver that is to start.
///
/// # Errors
/// When the store can't be read or a record is damaged.
pub fn load_jobs(records: &crate::store::Records) -> Result<Vec<Job>, StoreError> {
    let jobs = records.range(crate::store::keys::JOB.to_owned()..);
    let jobs = jobs.take_while(|(key, _)| key.starts_with(crate::store::keys::JOB));
    jobs.map(|(key, value)| crate::store::decode(key, value).map_err(StoreError::from)).collect()
}

/// Reads everything of a store.
///
/// # Errors
/// When the store can't be read.
pub fn load(store: &MasterStore) -> Result<crate::store::Records, StoreError> {
    store.load()
}

#[cfg(test)]
mod tests {
    use muster_core::{
        engine::{ErrorKind, JobError, Outcome, Phase},
        names::{InstanceName, NodeName},
        ops::{InstanceStart, Op, examples},
    };

    use super::*;

    fn failed(id: u64) -> Job {
        let instance = InstanceName::parse("db1").unwrap();
        let mut job =
            Job::new(examples::submission(id, Op::InstanceStart(InstanceStart { instance, force: false })));
        let message = format!("message of {id}");
        let error = JobError { kind: ErrorKind::Refused, message, objections: Vec::new() };
        job.phase = Phase::Done { outcome: Outcome::Error(error), prepared: None };
        job
    }

    #[test]
    fn of_jobs_that_end_in_one_flush_the_last_has_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let (store, last) = (folder.path().join("cluster.db"), folder.path().join("last"));
        std::fs::write(&store, "").unwrap();
        let log = JobLog::start(store, last.clone(), NodeName::parse("node1").unwrap()).unwrap();
        let view = View::default();
        // As a flush releases them: the last first.
        publish(&view, &log, [3, 2, 1].map(failed).to_vec());
        log.close();
        assert_eq!(view.jobs().len(), 3);
        let text = std::fs::read_to_string(last.join("last-failure-message")).unwrap();
        assert!(text.contains("message of 3"), "{text}");
    }
}
