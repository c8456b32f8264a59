//! The loop around the engine: plain synchronous code, generic over store, clock and ids.
//!
//! Commands are handled in the order they come; all that wait are made durable in one transaction (group commit); then
//! their replies and effects are released in order. A store error is returned and ends the process: the memory is ahead
//! of the disk then, and a restart from the disk is the way back.

mod follow_up;
mod queue;
mod submit;

pub use queue::{ArchiveWhich, Archived, QueueChange, QueueFacts, QueueState};
pub use submit::{Request, SubmitRefusal};

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    edit::{Edit, Touched},
    engine::{Effect, Engine, Input, Job, Now, WaitReason},
    model::Cluster,
    names::NodeName,
};
use uuid::Uuid;

use crate::{
    failpoint::{Failpoints, place},
    office::OfficeRecord,
    store::{Batch, Records, Store, StoreError, encode, keys, records_of},
};

/// The epoch of a new cluster's first master.
pub const EPOCH_FIRST: u64 = 1;

/// Where the driver gets the time.
pub trait Clock {
    /// Wall and monotonic clock.
    fn now(&self) -> Now;
}

/// Where the driver gets values that nobody may guess or share.
pub trait Ids {
    /// A new uuid.
    fn uuid(&mut self) -> Uuid;
    /// A new unicast, locally administered MAC address.
    fn mac(&mut self) -> String;
}

/// Called with a submission's job id once it is durable, or with why it is not taken.
pub type SubmitReply = Box<dyn FnOnce(Result<u64, SubmitRefusal>) + Send>;
/// Called with what a cancel did, or why it did nothing.
pub type CancelReply = Box<dyn FnOnce(Result<String, String>) + Send>;
/// Called when a write is durable.
pub type WriteReply = Box<dyn FnOnce() + Send>;
/// Called with what each waiting job waits for.
pub type WaitingReply = Box<dyn FnOnce(Waiting) + Send>;
/// What each waiting job waits for; `None` for one that waits for a free slot only.
pub type Waiting = BTreeMap<u64, Option<WaitReason>>;
/// Called when a job may be followed, or with why its script would wait for ever.
pub type FollowReply = Box<dyn FnOnce(Result<(), String>) + Send>;
/// Called with how the queue is, once that is durable.
pub type QueueReply = Box<dyn FnOnce(QueueFacts) + Send>;
/// Called with what was archived, once that is durable.
pub type ArchiveReply = Box<dyn FnOnce(Archived) + Send>;
/// Called with an archived job, if there is one, or with why it can't be read.
pub type ArchivedReply = Box<dyn FnOnce(Result<Option<Box<Job>>, String>) + Send>;

/// Called with the whole state once "retired" is durable, or with why the office is kept.
pub type HandOverReply = Box<dyn FnOnce(Result<Records, String>) + Send>;

/// Everything that the driver can be asked.
pub enum Command {
    /// Something happened.
    Input(Input),
    /// A client asks for an operation.
    Submit(Box<Request>, SubmitReply),
    /// A client wants a job to stop, or (`true`) to be killed.
    Cancel(u64, bool, CancelReply),
    /// A job's script wants to wait for a job's end.
    Follow {
        /// The script's job.
        parent: u64,
        /// The other.
        job: u64,
        /// The answer.
        reply: FollowReply,
    },
    /// An operator handles the queue.
    Queue(QueueChange, QueueReply),
    /// Jobs that are over leave the list.
    Archive(ArchiveWhich, ArchiveReply),
    /// A job is looked for in the archive.
    Archived(u64, ArchivedReply),
    /// Records outside of the engine (tokens, pending hosts, signed certificates).
    Write(Batch, WriteReply),
    /// What waiting jobs wait for.
    Waiting(WaitingReply),
    /// Another node's daemon is to execute jobs from now on.
    HandOver(String, HandOverReply),
}

/// A driver's end: it gave the office away.
pub struct Retired {
    /// To this node.
    pub successor: String,
    /// To be told when the state is laid aside.
    pub reply: HandOverReply,
}

/// What the shell does after a flush, in order.
#[derive(Default)]
pub struct Released {
    /// Jobs as they are now on disk.
    pub jobs: Vec<Job>,
    /// Edits as they are now on disk.
    pub edits: Vec<Edit>,
    /// The parts of the configuration that they touched.
    pub touched: BTreeSet<Touched>,
    /// The configuration's serial after them.
    pub serial: Option<u64>,
    /// To be performed.
    pub effects: Vec<Effect>,
    /// Jobs that are in the archive now.
    pub archived: Vec<u64>,
    replies: Vec<Box<dyn FnOnce() + Send>>,
}

impl Released {
    /// Tells the clients; after the jobs and edits were published, so that they can read what they were told of.
    pub fn reply(&mut self) {
        for reply in self.replies.drain(..) {
            reply();
        }
    }
}

/// What a store holds for a driver.
pub struct Loaded {
    /// The configuration.
    pub cluster: Option<Cluster>,
    /// All jobs.
    pub jobs: Vec<Job>,
    /// The epoch that this master took; none without a cluster.
    pub epoch: Option<u64>,
    /// What an operator said of the queue.
    pub queue: QueueState,
    /// The number that the next job gets at least.
    pub next_job: u64,
}

/// The driver.
pub struct Driver<S, C, I> {
    engine: Engine,
    store: S,
    clock: C,
    ids: I,
    failpoints: Failpoints,
    next_job: u64,
    queue: QueueState,
    requests: BTreeMap<String, u64>,
    followed: submit::Followed,
    /// The epoch that the store must have for a commit; `None` until there is a cluster.
    epoch: Option<u64>,
    retired: Option<Retired>,
    /// Whether a submission waits for the flush.
    submitted: bool,
    changed_jobs: BTreeSet<u64>,
    changed_config: BTreeSet<Touched>,
    writes: Batch,
    /// Jobs on their way to the archive, until the flush.
    archiving: BTreeMap<u64, Job>,
    released: Released,
}

impl<S: Store, C: Clock, I: Ids> Driver<S, C, I> {
    /// A driver over what the store holds; what was going goes on with the first flush.
    pub fn new(local: NodeName, loaded: Loaded, store: S, clock: C, ids: I, failpoints: Failpoints) -> Self {
        let Loaded { cluster, jobs, epoch, queue, next_job } = loaded;
        let next_job = next_job.max(jobs.iter().map(Job::id).max().unwrap_or(0) + 1);
        let named = jobs.iter().filter(|job| !job.submission.request_id.is_empty());
        let requests = named.map(|job| (job.submission.request_id.clone(), job.id())).collect();
        let (engine, output) = Engine::recover(local, cluster, jobs, queue.paused, clock.now());
        let mut driver = Driver {
            engine,
            store,
            clock,
            ids,
            failpoints,
            next_job,
            queue,
            requests,
            followed: submit::Followed::new(),
            epoch,
            retired: None,
            submitted: false,
            changed_jobs: BTreeSet::new(),
            changed_config: BTreeSet::new(),
            writes: Batch::default(),
            archiving: BTreeMap::new(),
            released: Released::default(),
        };
        driver.take(output);
        driver
    }

    /// The engine, for looking at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Handles one command in memory; [`Driver::flush`] makes it durable and releases what follows from it.
    pub fn handle(&mut self, command: Command) {
        if self.retired.is_some() {
            // Dropped with its reply: the caller learns that this master stops.
            return;
        }
        match command {
            Command::Input(input) => self.input(input),
            Command::Submit(request, reply) => self.submit(*request, reply),
            Command::Cancel(job, kill, reply) => self.cancel(job, kill, reply),
            Command::Follow { parent, job, reply } => {
                let answer = self.follow(parent, job);
                self.released.replies.push(Box::new(move || reply(answer)));
            }
            Command::Queue(change, reply) => {
                let facts = self.change_queue(change);
                self.released.replies.push(Box::new(move || reply(facts)));
            }
            Command::Archive(which, reply) => {
                let answer = self.archive(&which);
                self.released.replies.push(Box::new(move || reply(answer)));
            }
            Command::Archived(id, reply) => {
                let job = self.archived_job(id).map(|job| job.map(Box::new)).map_err(|why| why.to_string());
                self.released.replies.push(Box::new(move || reply(job)));
            }
            Command::Write(batch, reply) => {
                self.writes.extend(batch);
                self.released.replies.push(reply);
            }
            Command::Waiting(reply) => {
                let waiting = self.engine.jobs().filter(|job| !job.over() && job.started_ms.is_none());
                let waiting = waiting.map(|job| (job.id(), self.engine.wait_reason(job.id()))).collect();
                self.released.replies.push(Box::new(move || reply(waiting)));
            }
            Command::HandOver(successor, reply) => self.hand_over(successor, reply),
        }
    }

    /// Gives the office away, unless jobs are going.
    fn hand_over(&mut self, successor: String, reply: HandOverReply) {
        // Back to its old holder it goes with jobs at their end, which never began here: nobody waits for them.
        let goes_back = self.engine.cluster().is_some_and(|cluster| cluster.master.as_str() == successor);
        let alive = self.engine.jobs().filter(|job| job.alive() && !(goes_back && job.is_ending()));
        let alive: Vec<String> = alive.map(|job| job.id().to_string()).collect();
        if !alive.is_empty() {
            let why = format!("jobs are not over yet: {}", alive.join(", "));
            return self.released.replies.push(Box::new(move || reply(Err(why))));
        }
        let record = encode(&OfficeRecord::Retired { successor: successor.clone() });
        self.writes.puts.push((keys::OFFICE.to_owned(), record));
        self.retired = Some(Retired { successor, reply });
    }

    /// Set after the flush that made a hand-over durable: nothing is handled any more.
    pub fn retired(&mut self) -> Option<Retired> {
        self.retired.take()
    }

    /// The driver's parts, after its end.
    pub fn into_parts(self) -> (S, Failpoints) {
        (self.store, self.failpoints)
    }

    /// Makes everything handled since the last flush durable in one transaction, then releases it.
    ///
    /// # Errors
    /// When the store could not; the process must end then.
    pub fn flush(&mut self) -> Result<Released, StoreError> {
        // The last first: who hears of a job's end may ask at once for the jobs that it asked for.
        let jobs: Vec<Job> = std::mem::take(&mut self.changed_jobs)
            .into_iter()
            .rev()
            .filter_map(|id| self.engine.job(id).cloned())
            .collect();
        let config = std::mem::take(&mut self.changed_config);
        let mut batch = std::mem::take(&mut self.writes);
        for job in &jobs {
            batch.puts.push((keys::job(job.id()), encode(job)));
        }
        batch.extend(records_of(self.engine.cluster(), &config));
        self.follow_cluster(&config, &mut batch);
        if !batch.is_empty() {
            self.pass(&jobs, !config.is_empty(), "before");
            let began = self.clock.now().mono_ms;
            self.store.commit(&batch)?;
            let took = self.clock.now().mono_ms.saturating_sub(began);
            for job in jobs.iter().filter(|job| job.timings.commit_ms.is_none() && committed(job)) {
                self.engine.note_commit(job.id(), took);
            }
            self.pass(&jobs, !config.is_empty(), "after");
        }
        self.submitted = false;
        self.archiving.clear();
        let mut released = std::mem::take(&mut self.released);
        released.serial = self.engine.cluster().map(|cluster| cluster.serial);
        released.jobs = jobs;
        released.touched = config;
        Ok(released)
    }

    /// The epoch comes with the cluster and goes with it; in between every commit is under its condition.
    fn follow_cluster(&mut self, config: &BTreeSet<Touched>, batch: &mut Batch) {
        if config.contains(&Touched::All) {
            batch.puts.push((keys::EPOCH.to_owned(), encode(&EPOCH_FIRST)));
            self.epoch = Some(EPOCH_FIRST);
            return;
        }
        batch.epoch = self.epoch;
        if config.contains(&Touched::Nothing) {
            self.epoch = None;
        }
    }

    fn pass(&self, jobs: &[Job], config: bool, moment: &str) {
        if self.submitted {
            self.failpoints.pass(&format!("submit.{moment}"));
        }
        if config {
            self.failpoints.pass(&format!("commit.{moment}"));
        }
        for job in jobs {
            if let Some(place) = place(&job.phase, moment) {
                self.failpoints.pass(&place);
            }
        }
    }

    fn input(&mut self, input: Input) {
        if let Input::CallAnswered(..) = &input {
            self.failpoints.pass("step.answered");
        }
        let output = self.engine.handle(input, self.clock.now());
        self.take(output);
    }

    fn take(&mut self, output: muster_core::engine::Output) {
        self.changed_jobs.extend(output.changes.jobs);
        self.changed_config.extend(output.changes.config);
        self.released.edits.extend(output.changes.edits);
        self.released.effects.extend(output.effects);
        for asked in output.follow_ups {
            self.submit_follow_ups(asked);
        }
    }

    fn cancel(&mut self, job: u64, kill: bool, reply: CancelReply) {
        let known = self.engine.job(job).is_some();
        let refused = if kill { self.engine.kill_refused(job) } else { self.engine.cancel_refused(job) };
        let (word, input) =
            if kill { ("killed", Input::Kill(job)) } else { ("canceled", Input::Cancel(job)) };
        let answer = match (known, refused) {
            (false, _) => Err(format!("there is no job {job}")),
            (true, Some(why)) => Err(why),
            (true, None) => {
                let was_ending = self.engine.job(job).is_some_and(Job::is_unlocked);
                self.input(input);
                let over = self.engine.job(job).is_some_and(Job::over);
                Ok(match (was_ending, over) {
                    // How it ends was settled before.
                    (true, _) => format!("the scripts at the end of job {job} are ended"),
                    (false, true) => format!("job {job} is {word}"),
                    (false, false) => format!("job {job} is being {word}"),
                })
            }
        };
        self.released.replies.push(Box::new(move || reply(answer)));
    }
}

/// Whether the job's commit is recorded.
fn committed(job: &Job) -> bool {
    use muster_core::engine::Phase;
    match &job.phase {
        Phase::Cleaning { .. } | Phase::PostHooks { .. } => true,
        Phase::Waiting
        | Phase::PreHooks { .. }
        | Phase::Running { .. }
        | Phase::Undoing { .. }
        | Phase::Blocked { .. }
        | Phase::Ending { .. }
        | Phase::Done { .. } => false,
    }
}
