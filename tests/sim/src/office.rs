//! The life of the master daemon: it starts from its store, makes durable what it handled, releases it, and dies.

use muster_core::{
    calls::AliveJobs,
    engine::{Input, Job, Phase},
};
use muster_master::{
    driver::{Command, Driver, Loaded, QueueState, Released},
    failpoint::Failpoints,
    shell,
    store::{Batch, Records, Store, cluster_from, decode, encode, keys},
};

use super::{
    check::Checker,
    disk::{CommitFault, SimStore},
    edges::SimClock,
    event::Event,
    mutation::Mutation,
    process::{Process, SimDriver, node_id},
    world::Simulation,
};

/// How often left-over cleanups are tried again, in milliseconds.
pub(crate) const CLEANUP_PERIOD_MS: u64 = 30_000;

/// Where the master dies in a round of handling, committing and releasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// What was handled is in memory only.
    BeforeFlush,
    /// In the commit.
    Commit(CommitFault),
    /// All is durable and nobody knows.
    AfterFlush,
    /// Clients were answered, and this many effects are begun.
    Effects(usize),
}

impl Simulation {
    /// A master daemon starts, as the office does it: epoch, greetings, driver.
    pub(crate) fn start_master(&mut self) {
        if self.process.is_some() {
            return;
        }
        self.incarnations += 1;
        let incarnation = self.incarnations;
        let mut store = SimStore { disk: self.disk.clone(), incarnation };
        let records = store.load().expect("a simulated store is readable");
        let epoch = match records.get(keys::EPOCH) {
            Some(text) => decode::<u64>(keys::EPOCH, text).expect("the epoch is a number") + 1,
            None => 1,
        };
        let fault = self.draw_commit_fault(15);
        self.disk.borrow_mut().set_fault(fault);
        let raised = Batch { puts: vec![(keys::EPOCH.to_owned(), encode(&epoch))], ..Batch::default() };
        if store.commit(&raised).is_err() {
            self.context.log(|| format!("master {incarnation} dies while it starts: {fault:?}"));
            self.disk.borrow_mut().crash();
            return self.context.after(500, Event::MasterStarts);
        }
        let applied = self.disk.borrow_mut().take_applied();
        self.see_commits(&applied);
        self.context.log(|| format!("master {incarnation} starts in epoch {epoch}"));
        self.take_office(store, &records, epoch);
    }

    fn take_office(&mut self, store: SimStore, records: &Records, epoch: u64) {
        let incarnation = self.incarnations;
        let cluster = cluster_from(records).expect("the store holds a configuration");
        let jobs = shell::load_jobs(records).expect("the store holds jobs");
        self.see_loaded(cluster.as_ref(), &jobs);
        let alive = AliveJobs {
            all: jobs.iter().filter(|job| job.alive()).map(Job::id).collect(),
            ending: jobs.iter().filter(|job| job.is_ending()).map(Job::id).collect(),
        };
        let uuids = jobs.iter().map(|job| (job.id(), job.submission.uuid)).collect();
        let clock = SimClock { now: self.context.clock.clone(), started_ms: self.context.now() };
        let local = self.nodes[0].name.clone();
        let jobs = self.mutate_jobs(jobs);
        let is_forgotten = self.context.mutated(Mutation::ForgetsQueue);
        let queue = if is_forgotten { QueueState::default() } else { record(records, keys::QUEUE) };
        let loaded = Loaded {
            cluster: cluster.clone(),
            jobs,
            epoch: Some(epoch),
            queue,
            next_job: record(records, keys::NEXT_JOB),
        };
        let driver: SimDriver =
            Driver::new(local, loaded, store, clock, self.ids.clone(), Failpoints::default());
        let mut process = Process::new(driver, incarnation, epoch, cluster);
        process.alive = alive;
        process.uuids = uuids;
        self.process = Some(process);
        for node in 0..self.nodes.len() {
            self.watch(node);
        }
        if let Some(process) = &mut self.process {
            process.flush_due = true;
        }
        self.context.after(0, Event::Flush(incarnation));
        if !self.context.faults_on {
            self.open_queue();
        }
        self.context.after(CLEANUP_PERIOD_MS, Event::Tick(incarnation));
        if self.zombie.is_some() {
            let delay_ms = self.context.random.range(0, 5_000);
            self.context.after(delay_ms, Event::ZombieActs);
        }
    }

    fn mutate_jobs(&self, mut jobs: Vec<Job>) -> Vec<Job> {
        if self.context.mutated(Mutation::ForgetsHolder)
            && let Some(index) = jobs.iter().position(|job| !job.is_unlocked() && job.started_ms.is_some())
        {
            jobs.remove(index);
        }
        if self.context.mutated(Mutation::ForgetsBlocked) {
            jobs.retain(|job| !matches!(job.phase, Phase::Blocked { .. }));
        }
        if self.context.mutated(Mutation::RevivesJob)
            && let Some(job) = jobs.iter_mut().rfind(|job| job.done())
        {
            job.phase = Phase::Waiting;
        }
        if self.context.mutated(Mutation::ForgetsRequests) {
            jobs.iter_mut().for_each(|job| job.submission.request_id.clear());
        }
        jobs
    }

    fn draw_commit_fault(&mut self, permille: u64) -> Option<CommitFault> {
        if !self.context.fault(permille) {
            return None;
        }
        Some(*self.context.random.pick(&[CommitFault::Crash, CommitFault::CrashAfter, CommitFault::Full]))
    }

    fn draw_death(&mut self) -> Option<Death> {
        if !self.context.fault(self.options.deaths_permille) {
            return None;
        }
        let fault = self.draw_commit_fault(1000)?;
        Some(match self.context.random.below(4) {
            0 => Death::BeforeFlush,
            1 => Death::Commit(fault),
            2 => Death::AfterFlush,
            _ => Death::Effects(self.context.random.index(4)),
        })
    }

    /// The master handles what waits, makes it durable and releases it; it may die at every point of that.
    pub(crate) fn flush(&mut self) {
        let death = self.draw_death();
        let Some(process) = &mut self.process else { return };
        process.flush_due = false;
        for command in std::mem::take(&mut process.inbox) {
            process.driver.handle(command);
        }
        if death == Some(Death::BeforeFlush) {
            return self.kill_master("before the flush");
        }
        if let Some(Death::Commit(fault)) = death {
            self.disk.borrow_mut().set_fault(Some(fault));
        }
        let flushed = process.driver.flush();
        self.disk.borrow_mut().set_fault(None);
        let applied = self.disk.borrow_mut().take_applied();
        self.see_commits(&applied);
        let mut released = match flushed {
            Ok(released) => released,
            Err(error) => return self.kill_master(&error.to_string()),
        };
        self.see_released(&released, &applied);
        if death == Some(Death::AfterFlush) {
            return self.kill_master("after the flush");
        }
        self.publish(&released);
        released.reply();
        self.hear_replies();
        let effects = std::mem::take(&mut released.effects);
        for (index, effect) in effects.into_iter().enumerate() {
            if death == Some(Death::Effects(index)) {
                return self.kill_master("between effects");
            }
            if let Some(process) = &mut self.process {
                process.perform(effect, &mut self.context);
            }
        }
        if matches!(death, Some(Death::Effects(_))) {
            self.kill_master("after the effects");
        }
    }

    /// The view follows what is durable.
    fn publish(&mut self, released: &Released) {
        let Some(process) = &mut self.process else { return };
        for job in &released.jobs {
            process.uuids.insert(job.id(), job.submission.uuid);
            for (set, is_in) in
                [(&mut process.alive.all, job.alive()), (&mut process.alive.ending, job.is_ending())]
            {
                if is_in {
                    set.insert(job.id());
                } else {
                    set.remove(&job.id());
                }
            }
        }
        if released.edits.is_empty() {
            return;
        }
        for edit in &released.edits {
            edit.clone().apply(&mut process.cluster);
        }
        if let (Some(cluster), Some(serial)) = (&mut process.cluster, released.serial) {
            cluster.serial = serial;
        }
        let members: Vec<usize> =
            process.cluster.iter().flat_map(|cluster| cluster.nodes.keys().map(node_id)).collect();
        for node in members {
            if !process.links.contains_key(&node) && process.watched.insert(node) {
                self.context.after(10, Event::Watch(process.incarnation, node));
            }
        }
        self.see_published();
    }

    /// The master daemon dies; its machine's disk shows what was synchronised.
    pub(crate) fn kill_master(&mut self, why: &str) {
        let Some(process) = self.process.take() else { return };
        self.context.log(|| format!("master {} dies: {why}", process.incarnation));
        self.deaths += 1;
        self.disk.borrow_mut().crash();
        self.hear_replies();
        if self.context.fault(150) && self.zombie.is_none() {
            // It was taken for dead only.
            self.zombie = Some(process);
        }
        let delay_ms = self.context.random.range(50, 4_000);
        self.context.after(delay_ms, Event::MasterStarts);
    }

    /// A master that lost its office without knowing it goes on: its store refuses it.
    pub(crate) fn zombie_acts(&mut self) {
        let is_succeeded = |zombie: &mut Process| zombie.incarnation < self.tracks.last_master;
        let Some(mut zombie) = self.zombie.take_if(is_succeeded) else { return };
        let command = self.any_command();
        zombie.driver.handle(command);
        for command in std::mem::take(&mut zombie.inbox) {
            zombie.driver.handle(command);
        }
        // What a master wrote that died while it started is not the zombie's.
        let earlier = self.disk.borrow_mut().take_applied();
        self.see_commits(&earlier);
        let flushed = zombie.driver.flush();
        let applied = self.disk.borrow_mut().take_applied();
        self.see_commits(&applied);
        self.context
            .log(|| format!("master {} was not dead: {:?}", zombie.incarnation, flushed.as_ref().err()));
        if flushed.is_ok() && !applied.is_empty() {
            let what = format!("master {} commits after its office is lost", zombie.incarnation);
            self.context.violate(Checker::EpochHasOneMaster, what);
        }
    }

    /// The background has left-over cleanups tried again.
    pub(crate) fn tick(&mut self) {
        let Some(process) = &mut self.process else { return };
        let incarnation = process.incarnation;
        process.send(Command::Input(Input::Retry), &mut self.context);
        if !self.context.faults_on {
            self.give_up_blocked();
        }
        self.context.after(CLEANUP_PERIOD_MS, Event::Tick(incarnation));
    }
}

/// A record that may not be there.
fn record<T: Default + serde::de::DeserializeOwned>(records: &Records, key: &str) -> T {
    records.get(key).map(|text| decode(key, text).expect("the store's records are whole")).unwrap_or_default()
}
