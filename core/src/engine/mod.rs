//! The job engine: a state machine without I/O, clock or randomness.
//!
//! ```text
//!            granted            allowed              last step done, commit recorded
//! Waiting ------------> PreHooks -------> Running(i) -------> Cleaning(i) ----> PostHooks ----> Done(success)
//!    | cancel   | refused  | denied, R5      | failed, canceled     (final steps: forward only)
//!    v          v          v canceled        v
//!  Done(canceled|error) <--+----------- Undoing(i) ----> Done(error|canceled)
//!                                           ^ the node answers, or an operator gives it up
//!                       Running(i) --> Blocked(i)   killed, and the node confirms nothing within 20 s
//! ```
//!
//! - Before each Done stands Ending: the job's locks are free, and the scripts that hear of every end are told. It is left
//!   out of the picture, and skipped where nobody is to be told.
//!
//! - Waiting: holds nothing. Granted its locks (first come first served by name, at most [`RUNNING_MAX`] jobs at once), it
//!   checks and plans in the same input; from there to Done it holds them.
//! - A commit is not a phase: the last step's answer changes the configuration and the job's phase in one transaction.
//! - Every answer carries the id of the call that it answers; stale ones are counted and dropped before the match.
//! - One input is handled at a time: [`Engine::handle`] changes the state in memory and says which records must be made
//!   durable ([`Changes`]) and which effects may be performed once they are ([`Effect`]).

mod advance;
mod again;
mod ending;
mod follow_up;
mod hooks_phase;
mod job;
mod kill;
mod queue;
mod recover;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

pub use again::{Again, AgainError, meaning};
pub use ending::{END_STEP, ENDING_MAX};
pub use follow_up::FollowUps;
pub use job::{
    ErrorKind, FailedUndo, Job, JobError, LOG_LINES_MAX, Level, LogEntry, LogLine, Outcome, Phase, Status,
    Submission, Timings,
};

pub use queue::{DEPENDS_MAX, Dependency, Ending, Priority, PriorityError, WaitReason};

use crate::{
    calls::{Call, CallAnswer},
    edit::{Edit, Touched},
    hooks::{self, Env, HookPolicy, NodeReport},
    locks::LockTable,
    model::{CleanupId, Cluster},
    names::NodeName,
    ops::GLOBAL_PREFIX,
};

/// Jobs that may hold locks at once.
pub const RUNNING_MAX: usize = 20;
/// Jobs that are not over; more are refused.
pub const QUEUED_MAX: usize = 10_000;
/// A job interrupted this often in one place ends as failed, undone.
pub const INTERRUPTIONS_MAX: u32 = 3;
/// A pre run that a node lost track of is repeated this often.
const PRE_ATTEMPTS_MAX: u32 = 3;

/// The name of a call: a repeat under it gets the first answer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    /// The job.
    pub job: u64,
    /// `pre`, `post`, a step's index, `undo-3`, `clean-0`.
    pub step: String,
    /// From 1.
    pub attempt: u32,
}

impl CallId {
    /// Whether the call takes a step back.
    pub fn is_undo(&self) -> bool {
        self.step.starts_with("undo-")
    }
}

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.job, self.step, self.attempt)
    }
}

/// The time, from outside.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    /// Wall clock in ms since 1970, for people.
    pub wall_ms: u64,
    /// Monotonic clock in ms, for durations.
    pub mono_ms: u64,
}

/// Everything that can happen to the engine.
#[derive(Debug, Clone)]
pub enum Input {
    /// An operation is asked for; the driver drew what had to be drawn.
    Submit(Box<Submission>),
    /// The jobs that this one's commit asked for.
    FollowUps(u64, Vec<Submission>),
    /// A job is to stop.
    Cancel(u64),
    /// A job is to stop now: its scripts and calls are ended on all nodes.
    Kill(u64),
    /// A blocked job's locks are given up: what it left undone is recorded, to be repaired.
    GiveUp(u64),
    /// A node's part in a phase of hooks.
    HooksAnswered(CallId, NodeReport),
    /// A step's, an undo's or a job's cleanup's end.
    CallAnswered(CallId, CallAnswer),
    /// Leftover cleanups are to be tried again, and nodes that did not confirm the end of a call are to be asked again.
    Retry,
}

/// What is to be done once the records of the same input are durable.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Run a directory on a node.
    RunHooks(Box<HooksCall>),
    /// Carry a call out.
    Execute {
        /// Names it.
        id: CallId,
        /// What, and where.
        call: Call,
    },
    /// Have a node end what another job left going there, and carry a call out once that is confirmed; without
    /// that the node counts as not reached.
    ExecuteAfter {
        /// Names it.
        id: CallId,
        /// What, and on which node.
        call: Call,
        /// The other job.
        job: u64,
        /// Its calls, which may not begin any more where they have not yet.
        calls: Vec<CallId>,
    },
    /// End what still runs for a job on these nodes.
    EndJob {
        /// The job.
        job: u64,
        /// Where.
        nodes: Vec<NodeName>,
        /// Runs that may not begin any more, where they have not yet.
        calls: Vec<CallId>,
    },
    /// End a call that was sent, and answer how it ended, within 20 s: with its own answer, as failed if it never began,
    /// as not reached if nobody can tell.
    StopCall {
        /// Names it.
        id: CallId,
        /// What was asked for, and where.
        call: Call,
    },
}

/// One node's run of one directory.
#[derive(Debug, Clone, PartialEq)]
pub struct HooksCall {
    /// Names it.
    pub id: CallId,
    /// Where.
    pub node: NodeName,
    /// Before or after.
    pub phase: hooks::Phase,
    /// Directory prefix.
    pub prefix: String,
    /// Complete but for what the node adds.
    pub env: Env,
    /// The cluster's parameters.
    pub policy: HookPolicy,
    /// The node was silent earlier in this job: it is waited for only if a short probe answers.
    pub probe: bool,
    /// The global directory, run before the operation's own in pre and after it else. Without an own one (an empty
    /// prefix) it is all that runs.
    pub global: Option<GlobalRun>,
    /// Files that the node makes for the run: variable and content.
    pub files: BTreeMap<String, String>,
}

/// A run of the global directory beside another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalRun {
    /// `global-pre.d` or `global-post.d`.
    pub phase: hooks::Phase,
    /// Variables that differ from those of the other directory.
    pub env: Env,
    /// What holds there.
    pub policy: HookPolicy,
}

impl GlobalRun {
    fn new(phase: hooks::Phase, policy: &HookPolicy) -> Self {
        let env = Env::new().set("HOOKS_PATH", GLOBAL_PREFIX).set("HOOKS_PHASE", policy.version.phase(phase));
        GlobalRun { phase, env, policy: policy.of(&phase.directory(GLOBAL_PREFIX)) }
    }
}

/// Which records an input changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Jobs by number.
    pub jobs: BTreeSet<u64>,
    /// Parts of the configuration.
    pub config: BTreeSet<Touched>,
    /// Edits in order, for copies of the configuration kept elsewhere; applied after they are durable.
    pub edits: Vec<Edit>,
}

/// What an input leads to.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// To be made durable, in one transaction.
    pub changes: Changes,
    /// To be performed after that, in order.
    pub effects: Vec<Effect>,
    /// To be answered at once by [`Input::FollowUps`], so that both are made durable together.
    pub follow_ups: Vec<FollowUps>,
}

/// Why a submission is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is at its bound.
    #[error("{QUEUED_MAX} jobs are waiting already: try again later")]
    QueueFull,
}

/// A job's volatile part: what is awaited at the moment; lost and rebuilt at a restart.
#[derive(Debug, Clone)]
struct Awaited {
    /// The call whose answer is awaited.
    call: CallId,
    /// In a phase of hooks: the nodes that have not answered, each with its attempt.
    nodes: BTreeMap<NodeName, u32>,
    /// In a phase of hooks: what came so far.
    reports: Vec<NodeReport>,
    /// When the present phase began, monotonic.
    since_ms: u64,
}

/// The engine.
#[derive(Debug, Clone)]
pub struct Engine {
    /// The node whose master daemon this is.
    local: NodeName,
    cluster: Option<Cluster>,
    jobs: BTreeMap<u64, Job>,
    locks: LockTable,
    awaited: BTreeMap<u64, Awaited>,
    /// When a waiting job was submitted, monotonic.
    waiting_since: BTreeMap<u64, u64>,
    /// Cleanups being tried outside of their job.
    retrying: BTreeSet<CleanupId>,
    active: usize,
    paused: bool,
    /// A failover to this node ended without a commit: the office goes back, and no job begins here any more.
    goes_back: bool,
    dependents: queue::Dependents,
    /// Jobs that were killed and hold their locks until a node answers.
    blocked: BTreeSet<u64>,
    /// Jobs with an undo that failed and was not made good since.
    undone: BTreeSet<u64>,
    /// Answers that came for calls no longer awaited.
    stale_answers: u64,
    output: Output,
}

impl Engine {
    /// An engine over a configuration, without jobs.
    pub fn new(local: NodeName, cluster: Option<Cluster>) -> Self {
        Engine {
            local,
            cluster,
            jobs: BTreeMap::new(),
            locks: LockTable::default(),
            awaited: BTreeMap::new(),
            waiting_since: BTreeMap::new(),
            retrying: BTreeSet::new(),
            active: 0,
            paused: false,
            goes_back: false,
            dependents: queue::Dependents::default(),
            blocked: BTreeSet::new(),
            undone: BTreeSet::new(),
            stale_answers: 0,
            output: Output::default(),
        }
    }

    /// The configuration, commits of unwritten records included.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// A job by its number.
    pub fn job(&self, id: u64) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// All jobs, by number.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// Jobs that have something to do: nodes end the runs of all others.
    pub fn alive(&self) -> impl Iterator<Item = u64> {
        self.jobs.values().filter(|job| job.alive()).map(Job::id)
    }

    /// Jobs that hold locks until a node confirms the end of a call.
    pub fn blocked(&self) -> impl Iterator<Item = &Job> {
        self.blocked.iter().map(|id| &self.jobs[id])
    }

    /// Forgets a job that is done: its record is archived.
    ///
    /// # Errors
    /// Why it is kept.
    pub fn forget(&mut self, id: u64) -> Result<Job, String> {
        let Some(job) = self.jobs.get(&id) else { return Err(format!("there is no job {id}")) };
        if !job.over() {
            return Err(format!("job {id} is not over"));
        }
        if matches!(job.phase, Phase::Ending { .. }) {
            return Err(format!("job {id} is over but for the scripts that are told so: try again"));
        }
        if !job.done() {
            return Err(format!("job {id} holds its locks still: run `gnt-job repair {id}`"));
        }
        if self.undone.contains(&id) {
            return Err(format!("job {id} left something undone: run `gnt-job repair {id}`"));
        }
        Ok(self.jobs.remove(&id).expect("just seen"))
    }

    /// Who holds and who waits.
    pub fn locks(&self) -> &LockTable {
        &self.locks
    }

    /// Number of answers that nobody waited for any more.
    pub fn stale_answers(&self) -> u64 {
        self.stale_answers
    }

    /// Adds the time that a job's commit took to become durable; written with the job's next record.
    pub fn note_commit(&mut self, id: u64, commit_ms: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.timings.commit_ms.get_or_insert(commit_ms);
        }
    }

    /// Takes a submission's bound into account before it is handled.
    ///
    /// # Errors
    /// When the queue is full.
    pub fn admit(&self) -> Result<(), SubmitError> {
        if self.active >= QUEUED_MAX { Err(SubmitError::QueueFull) } else { Ok(()) }
    }

    /// Handles one input to its end.
    pub fn handle(&mut self, input: Input, now: Now) -> Output {
        match input {
            Input::Submit(submission) => self.submit(*submission, now),
            Input::FollowUps(job, submissions) => self.take_follow_ups(job, submissions, now),
            Input::Cancel(job) => self.cancel(job, now),
            Input::Kill(job) => self.kill(job, now),
            Input::GiveUp(job) => self.give_up(job, now),
            Input::HooksAnswered(call, report) => self.hooks_answered(&call, report, now),
            Input::CallAnswered(call, answer) => self.call_answered(&call, answer, now),
            Input::Retry => self.retry(),
        }
        self.start_ready(now);
        std::mem::take(&mut self.output)
    }
}
