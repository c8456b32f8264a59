//! A job: what was submitted, where it stands, what became of it. Kept as one record of the store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    INTERRUPTIONS_MAX,
    queue::{Dependency, Ending, Priority},
};
use crate::{
    calls::{Call, Output},
    edit::Edit,
    hooks::{self, Env, HookPolicy, NodeReport, Objection},
    locks::Locks,
    names::NodeName,
    ops::{Fresh, Op, Prepared},
};

/// Longest log of a job in lines; later ones are dropped, and the last line says so.
pub const LOG_LINES_MAX: usize = 2_000;

/// What the driver hands over with an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The job's number.
    pub id: u64,
    /// The job's uuid.
    pub uuid: Uuid,
    /// What is to be done.
    pub op: Op,
    /// Who asks.
    pub user: String,
    /// Why, at most 1 KiB.
    pub reason: String,
    /// Locks, checks and pre scripts only.
    pub dry_run: bool,
    /// The client's own id for the request; empty for none.
    pub request_id: String,
    /// Drawn for this job.
    pub fresh: Fresh,
    /// Jobs that must be over before this one starts.
    #[serde(default)]
    pub depends: Vec<Dependency>,
    /// Its place among those that wait.
    #[serde(default)]
    pub priority: Priority,
    /// The job whose script asks for this one.
    #[serde(default)]
    pub parent: Option<u64>,
}

impl Submission {
    /// The names that the job locks.
    pub fn locks(&self) -> Locks {
        match &self.fresh.repair {
            Some(repair) => repair.locks.clone(),
            None => self.op.locks(),
        }
    }
}

/// The outcome's kind, stable for callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Checks said no; nothing was begun.
    Refused,
    /// A pre script said no; nothing was changed.
    Denied,
    /// Something failed; what was done is undone.
    Failed,
    /// Interrupted too often; what was done is undone.
    Interrupted,
}

impl ErrorKind {
    /// As JSON shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Refused => "refused",
            ErrorKind::Denied => "denied",
            ErrorKind::Failed => "failed",
            ErrorKind::Interrupted => "interrupted",
        }
    }
}

/// Why a job did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobError {
    /// For callers.
    pub kind: ErrorKind,
    /// For people.
    pub message: String,
    /// Everything that denied (HOOKS.md R1).
    pub objections: Vec<Objection>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Done and committed (or checked, in a dry run).
    Success,
    /// Ended on request; what was done is undone.
    Canceled,
    /// Not done; what was done is undone.
    Error(JobError),
}

/// Where a job stands; each phase owns what exists in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// For locks, or for a slot.
    Waiting,
    /// Scripts are asked.
    PreHooks {
        /// Computed once.
        prepared: Box<Prepared>,
    },
    /// Step `step` is going.
    Running {
        /// Computed once.
        prepared: Box<Prepared>,
        /// Index into the plan.
        step: usize,
        /// Of the steps before.
        outputs: Vec<Output>,
    },
    /// The commit is recorded; cleanup `index` is going.
    Cleaning {
        /// Computed once.
        prepared: Box<Prepared>,
        /// Index into the plan's cleanups.
        index: usize,
    },
    /// Scripts are told.
    PostHooks {
        /// Computed once.
        prepared: Box<Prepared>,
    },
    /// The undo of step `step` is going; the earlier steps' follow.
    Undoing {
        /// Computed once.
        prepared: Box<Prepared>,
        /// Index into the plan.
        step: usize,
        /// What the job then ends with.
        outcome: Outcome,
    },
    /// Killed in step `step`, whose end the node has not confirmed: over for those who wait for it, but its locks are
    /// held until the node answers, and its steps are undone then.
    Blocked {
        /// Computed once.
        prepared: Box<Prepared>,
        /// Index into the plan.
        step: usize,
    },
    /// The locks are free, and scripts are told of the job's end.
    Ending {
        /// How it ends.
        outcome: Outcome,
        /// `None` when the job was over before its check passed.
        prepared: Option<Box<Prepared>>,
        /// Drawn up once, but for the phase and the path of the directory.
        env: Env,
        /// Contents of files that nodes make for their scripts, by variable.
        files: BTreeMap<String, String>,
        /// The nodes that hear of the operation's failure.
        failed_on: Vec<NodeName>,
        /// The cluster's hook parameters when the job began; when it ended, if it never did.
        policy: HookPolicy,
    },
    /// Over.
    Done {
        /// How.
        outcome: Outcome,
        /// `None` when the job was over before its check passed.
        prepared: Option<Box<Prepared>>,
    },
}

impl Phase {
    /// The phase in a word, for lists and failpoints.
    pub fn as_str(&self) -> &'static str {
        match self {
            Phase::Waiting => "locking",
            Phase::PreHooks { .. } => "pre-hooks",
            Phase::Running { .. } => "steps",
            Phase::Cleaning { .. } => "cleanup",
            Phase::PostHooks { .. } => "post-hooks",
            Phase::Undoing { .. } => "undo",
            Phase::Blocked { .. } => "blocked",
            Phase::Ending { .. } => "end-hooks",
            Phase::Done { .. } => "done",
        }
    }
}

/// How grave a line of a job's log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For authors of scripts.
    Debug,
    /// What happened.
    Info,
    /// Odd, but it goes on.
    Warning,
    /// What was asked did not happen.
    Error,
}

/// A line of a job's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Wall clock, ms since 1970.
    pub time_ms: u64,
    /// How grave.
    pub level: Level,
    /// What.
    pub entry: LogEntry,
}

/// What a line of a job's log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogEntry {
    /// Words.
    Text(String),
    /// A phase of hooks ended.
    Hooks {
        /// Which.
        phase: hooks::Phase,
        /// Nodes asked.
        nodes: u32,
        /// Scripts run.
        scripts: u32,
        /// Time used, in milliseconds.
        duration_ms: u64,
    },
    /// A step began.
    Step {
        /// In words.
        text: String,
        /// Where.
        node: Option<NodeName>,
    },
}

/// Milliseconds spent in each part, by a monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Waiting for locks or a slot.
    pub locks_ms: Option<u64>,
    /// Pre hooks.
    pub pre_ms: Option<u64>,
    /// Steps.
    pub steps_ms: Option<u64>,
    /// From the last step to the durable commit.
    pub commit_ms: Option<u64>,
    /// Post hooks.
    pub post_ms: Option<u64>,
}

/// An undo that did not succeed: something may be left on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedUndo {
    /// What should have been done.
    pub call: Call,
    /// Why it was not.
    pub error: String,
    /// The same was done later, by another job.
    #[serde(default)]
    pub made_good: bool,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// What was submitted.
    pub submission: Submission,
    /// Where it stands.
    pub phase: Phase,
    /// A cancel was asked for and is being followed.
    pub canceling: bool,
    /// When it got its locks, wall clock in ms since 1970.
    pub started_ms: Option<u64>,
    /// When it was over.
    pub ended_ms: Option<u64>,
    /// What happened, oldest first.
    pub log: Vec<LogLine>,
    /// What the nodes said before.
    pub pre: Vec<NodeReport>,
    /// What the nodes said after.
    pub post: Vec<NodeReport>,
    /// What nodes said of the job's end: of a failed operation, and of the global directory.
    #[serde(default)]
    pub end: Vec<NodeReport>,
    /// Time spent.
    pub timings: Timings,
    /// What may be left on nodes.
    pub failed_undos: Vec<FailedUndo>,
    /// Edits of optional steps that were left out.
    pub extra_edits: Vec<Edit>,
    /// What the operation answers.
    pub result: BTreeMap<String, String>,
    /// How often the master was restarted in the present phase and step.
    pub interruptions: u32,
    /// Its scripts and calls were told to end.
    #[serde(default)]
    pub killed: bool,
    /// What it does is in the configuration, whatever became of it after.
    #[serde(default)]
    pub committed: bool,
    /// The step whose undo was told to end by a kill.
    #[serde(default)]
    pub killed_undo: Option<usize>,
    /// Steps whose call was made.
    #[serde(default)]
    pub steps_begun: usize,
    /// When all that the operation does was done or undone; scripts come after.
    #[serde(default)]
    pub worked_ms: Option<u64>,
    /// What global scripts see, where the operation has no hooks of its own.
    #[serde(default)]
    pub global_env: Option<Env>,
    /// The master's node has no `global-post.d`.
    #[serde(default)]
    pub global_post_absent: bool,
    /// Jobs that its commit asked for.
    #[serde(default)]
    pub children: Vec<u64>,
}

/// A job's status, as lists show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Waits for a slot only.
    Queued,
    /// Waits for a lock.
    Waiting,
    /// Has its locks.
    Running,
    /// Stops at the next safe point.
    Canceling,
    /// Over, on request.
    Canceled,
    /// Over, done.
    Success,
    /// Over, not done.
    Error,
}

impl Status {
    /// As lists and JSON show it.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::Waiting => "waiting",
            Status::Running => "running",
            Status::Canceling => "canceling",
            Status::Canceled => "canceled",
            Status::Success => "success",
            Status::Error => "error",
        }
    }
}

impl Job {
    /// A job just submitted.
    pub fn new(submission: Submission) -> Self {
        Job {
            submission,
            phase: Phase::Waiting,
            canceling: false,
            started_ms: None,
            ended_ms: None,
            log: Vec::new(),
            pre: Vec::new(),
            post: Vec::new(),
            end: Vec::new(),
            timings: Timings::default(),
            failed_undos: Vec::new(),
            extra_edits: Vec::new(),
            result: BTreeMap::new(),
            interruptions: 0,
            killed: false,
            committed: false,
            killed_undo: None,
            steps_begun: 0,
            worked_ms: None,
            global_env: None,
            global_post_absent: false,
            children: Vec::new(),
        }
    }

    /// The job's number.
    pub fn id(&self) -> u64 {
        self.submission.id
    }

    /// Whether the job is over, with nothing left to do and no lock held.
    pub fn done(&self) -> bool {
        matches!(self.phase, Phase::Done { .. })
    }

    /// Whether the job is over for those who wait for it: it is done, or was killed and is blocked.
    pub fn over(&self) -> bool {
        self.ending().is_some()
    }

    /// Whether the job has something to do: not when it is done, nor while it is blocked.
    pub fn alive(&self) -> bool {
        !matches!(self.phase, Phase::Done { .. } | Phase::Blocked { .. })
    }

    /// Whether the job has done what it will do, and its end is being told.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// Whether the job has no locks any more, and asks for none.
    pub fn is_unlocked(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. } | Phase::Done { .. })
    }

    /// The call whose end a node has not confirmed, where the job is blocked.
    pub fn blocked_call(&self) -> Option<&Call> {
        match &self.phase {
            Phase::Blocked { prepared, step } => prepared.plan.steps.get(*step).map(|step| &step.call),
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Undoing { .. }
            | Phase::Ending { .. }
            | Phase::Done { .. } => None,
        }
    }

    /// The status; `waits` tells whether a waiting job waits for more than a free slot.
    pub fn status(&self, waits: bool) -> Status {
        match self.ending() {
            Some(Ending::Success) => Status::Success,
            Some(Ending::Canceled) => Status::Canceled,
            Some(Ending::Error) => Status::Error,
            None if !matches!(self.phase, Phase::Waiting) => {
                if self.canceling {
                    Status::Canceling
                } else {
                    Status::Running
                }
            }
            None if waits => Status::Waiting,
            None => Status::Queued,
        }
    }

    /// What was computed at the start, where the job got that far.
    pub fn prepared(&self) -> Option<&Prepared> {
        match &self.phase {
            Phase::Waiting => None,
            Phase::PreHooks { prepared }
            | Phase::Running { prepared, .. }
            | Phase::Cleaning { prepared, .. }
            | Phase::PostHooks { prepared }
            | Phase::Undoing { prepared, .. }
            | Phase::Blocked { prepared, .. } => Some(prepared),
            Phase::Ending { prepared, .. } | Phase::Done { prepared, .. } => prepared.as_deref(),
        }
    }

    /// Whether the master was restarted in the job's present place as often as is borne.
    pub(super) fn interrupted_too_often(&self) -> bool {
        self.interruptions >= INTERRUPTIONS_MAX
    }

    /// For example `INSTANCE_START(web1)`.
    pub fn summary(&self) -> String {
        summary(&self.submission.op)
    }

    pub(super) fn log(&mut self, time_ms: u64, level: Level, entry: LogEntry) {
        match self.log.len() {
            n if n < LOG_LINES_MAX => self.log.push(LogLine { time_ms, level, entry }),
            LOG_LINES_MAX => {
                let text = format!("log is full: lines after {LOG_LINES_MAX} are dropped");
                self.log.push(LogLine { time_ms, level: Level::Warning, entry: LogEntry::Text(text) });
            }
            _ => {}
        }
    }
}

/// An operation in a word, and what it is about.
pub(super) fn summary(op: &Op) -> String {
    let op_id = op.row().op_id;
    format!("{}({})", op_id.strip_prefix("OP_").unwrap_or(op_id), op.target())
}
