//! The loop around the engine: plain synchronous code, generic over store, clock and ids.
//!
//! Commands are handled in the order they come; all that wait are made durable in one transaction (group commit); then
//! their replies and effects are released in order. A store error is returned and ends the process: the memory is ahead
//! of the disk then, and a restart from the disk is the way back.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    edit::{Edit, Touched},
    engine::{Effect, Engine, Input, Job, Now, Submission},
    locks::Blocked,
    model::Cluster,
    names::NodeName,
    ops::{FRESH_UUIDS, Fresh, Op, PendingNode},
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

/// A request to do an operation.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub op: Op,
    /// Who.
    pub user: String,
    /// Why.
    pub reason: String,
    /// Checks only.
    pub dry_run: bool,
    /// The client's id for the request; empty for none.
    pub request_id: String,
    /// The host that a node add names.
    pub pending: Option<PendingNode>,
    /// The cluster that an init would make.
    pub new_cluster: Option<Box<Cluster>>,
}

/// Called with a submission's job id once it is durable, or with why it is not taken.
pub type SubmitReply = Box<dyn FnOnce(Result<u64, String>) + Send>;
/// Called with what a cancel did, or why it did nothing.
pub type CancelReply = Box<dyn FnOnce(Result<String, String>) + Send>;
/// Called when a write is durable.
pub type WriteReply = Box<dyn FnOnce() + Send>;
/// Called with what each waiting job waits for.
pub type WaitingReply = Box<dyn FnOnce(BTreeMap<u64, Option<Blocked>>) + Send>;

/// Called with the whole state once "retired" is durable, or with why the office is kept.
pub type HandOverReply = Box<dyn FnOnce(Result<Records, String>) + Send>;

/// Everything that the driver can be asked.
pub enum Command {
    /// Something happened.
    Input(Input),
    /// A client asks for an operation.
    Submit(Box<Request>, SubmitReply),
    /// A client wants a job to stop.
    Cancel(u64, CancelReply),
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
}

/// The driver.
pub struct Driver<S, C, I> {
    engine: Engine,
    store: S,
    clock: C,
    ids: I,
    failpoints: Failpoints,
    next_job: u64,
    requests: BTreeMap<String, u64>,
    /// The epoch that the store must have for a commit; `None` until there is a cluster.
    epoch: Option<u64>,
    retired: Option<Retired>,
    /// Whether a submission waits for the flush.
    submitted: bool,
    changed_jobs: BTreeSet<u64>,
    changed_config: BTreeSet<Touched>,
    writes: Batch,
    released: Released,
}

impl<S: Store, C: Clock, I: Ids> Driver<S, C, I> {
    /// A driver over what the store holds; what was going goes on with the first flush.
    pub fn new(local: NodeName, loaded: Loaded, store: S, clock: C, ids: I, failpoints: Failpoints) -> Self {
        let Loaded { cluster, jobs, epoch } = loaded;
        let next_job = jobs.iter().map(Job::id).max().unwrap_or(0) + 1;
        let named = jobs.iter().filter(|job| !job.submission.request_id.is_empty());
        let requests = named.map(|job| (job.submission.request_id.clone(), job.id())).collect();
        let (engine, output) = Engine::recover(local, cluster, jobs, clock.now());
        let mut driver = Driver {
            engine,
            store,
            clock,
            ids,
            failpoints,
            next_job,
            requests,
            epoch,
            retired: None,
            submitted: false,
            changed_jobs: BTreeSet::new(),
            changed_config: BTreeSet::new(),
            writes: Batch::default(),
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
            Command::Cancel(job, reply) => self.cancel(job, reply),
            Command::Write(batch, reply) => {
                self.writes.extend(batch);
                self.released.replies.push(reply);
            }
            Command::Waiting(reply) => {
                let waiting = self.engine.jobs().filter(|job| !job.done() && job.started_ms.is_none());
                let waiting =
                    waiting.map(|job| (job.id(), self.engine.locks().waits_for(job.id()))).collect();
                self.released.replies.push(Box::new(move || reply(waiting)));
            }
            Command::HandOver(successor, reply) => self.hand_over(successor, reply),
        }
    }

    /// Gives the office away, unless jobs are going.
    fn hand_over(&mut self, successor: String, reply: HandOverReply) {
        let alive: Vec<String> = self.engine.alive().map(|id| id.to_string()).collect();
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
        let jobs: Vec<Job> = std::mem::take(&mut self.changed_jobs)
            .into_iter()
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
    }

    fn submit(&mut self, request: Request, reply: SubmitReply) {
        if let Some(first) = self.requests.get(&request.request_id) {
            let first = *first;
            return self.released.replies.push(Box::new(move || reply(Ok(first))));
        }
        if let Err(error) = self.engine.admit() {
            return self.released.replies.push(Box::new(move || reply(Err(error.to_string()))));
        }
        let id = self.next_job;
        self.next_job += 1;
        if !request.request_id.is_empty() {
            self.requests.insert(request.request_id.clone(), id);
        }
        let fresh = Fresh {
            uuids: (0..FRESH_UUIDS).map(|_| self.ids.uuid()).collect(),
            mac: self.ids.mac(),
            pending: request.pending,
            new_cluster: request.new_cluster,
            now_ms: self.clock.now().wall_ms,
        };
        let submission = Submission {
            id,
            uuid: self.ids.uuid(),
            op: request.op,
            user: request.user,
            reason: request.reason,
            dry_run: request.dry_run,
            request_id: request.request_id,
            fresh,
        };
        self.submitted = true;
        self.input(Input::Submit(Box::new(submission)));
        self.released.replies.push(Box::new(move || reply(Ok(id))));
    }

    fn cancel(&mut self, job: u64, reply: CancelReply) {
        let known = self.engine.job(job).is_some();
        let answer = match (known, self.engine.cancel_refused(job)) {
            (false, _) => Err(format!("there is no job {job}")),
            (true, Some(why)) => Err(why),
            (true, None) => {
                self.input(Input::Cancel(job));
                let done = self.engine.job(job).is_some_and(Job::done);
                Ok(if done {
                    format!("job {job} is canceled")
                } else {
                    format!("job {job} is being canceled")
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
        | Phase::Done { .. } => false,
    }
}
