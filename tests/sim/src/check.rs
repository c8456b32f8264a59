//! The promises by name, and the first one that was broken.

/// A promise that is checked after every event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checker {
    /// No two jobs that have begun hold the same name, one of them alone.
    ExclusiveLockHasOneHolder,
    /// A job is committed only after every node of its pre phase allowed it or was not reached.
    CommitFollowsVerdict,
    /// A job is committed only after all of its steps were carried out.
    CommitFollowsSteps,
    /// A post script starts only when the commit is on the disk.
    PostFollowsDurableCommit,
    /// What a finished job ended with stays, whatever crashes.
    ResultSurvives,
    /// A job whose number was told to a client stays, whatever crashes.
    SubmissionSurvives,
    /// A request id stands for one job.
    RequestMakesOneJob,
    /// A call is carried out once by a node.
    CallTakesEffectOnce,
    /// A run that is repeated begins after the one before it is gone.
    SecondRunWaitsForFirst,
    /// A run that is repeated has the environment of the first (HOOKS.md R8).
    RepeatHasSameEnvironment,
    /// Only a committed job changes the configuration; one that did not succeed is none, unless it was killed after it.
    FailureChangesNothing,
    /// Names, uuids, addresses, mirrors and references are as the rules want them.
    ConfigurationHolds,
    /// What is published is what is stored.
    StoreHoldsWhatIsPublished,
    /// Of all masters, one commits in an epoch.
    EpochHasOneMaster,
    /// No script runs on a reachable node under a job that is over.
    NoScriptUnderFinishedJob,
    /// A job that is over has no lock and waits for none.
    FinishedJobHoldsNoLock,
    /// No guest runs on two nodes.
    GuestRunsOnce,
    /// When all is well again every job ends.
    EveryJobEnds,
    /// A killed job's call has ended, or the job is blocked, when the limit for that is over.
    KilledJobStops,
    /// A blocked job is over, and holds its locks.
    BlockedJobHoldsItsLocks,
    /// When all is well again every blocked job is unblocked.
    BlockedJobEnds,
    /// No script of a job begins when the job is over and the word of it has had its time, nor after a node confirmed it.
    NoScriptBeginsAfterEnd,
    /// A job begins only when all that it depends on was over as wanted.
    DependenciesWereOver,
    /// Of two jobs that wait for a lock the one with the lower priority does not begin first.
    PriorityGoesFirst,
    /// A drained queue takes no job.
    DrainedQueueTakesNothing,
    /// No job begins while the queue is paused.
    PausedQueueStartsNothing,
    /// An archived job is as it was when it ended.
    ArchiveKeepsResult,
    /// What a repair has done is not left undone any more.
    RepairLeavesNothing,
    /// In the end nodes hold what the configuration says, but for what failed undos and cleanups name.
    NodesHoldWhatIsConfigured,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub checker: Checker,
    /// What was seen.
    pub what: String,
}
