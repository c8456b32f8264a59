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
    /// Only a committed job changes the configuration, and one that did not succeed is none.
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
