//! Ways to break the promises, each at an edge of the real code: they show that a checker is able to fail.

use super::check::Checker;

/// What is wrong in a mutated simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The master answers its scripts' calls itself, without asking a node.
    AnswersForNodes,
    /// The master takes every step for done, without asking a node.
    SkipsSteps,
    /// A repeated run gets another environment.
    ChangesEnvironment,
    /// Every twentieth answer is lost inside of the master.
    DropsAnswers,
    /// A restarted master forgets one of the jobs that were going.
    ForgetsHolder,
    /// A restarted master begins a finished job again.
    RevivesJob,
    /// A restarted master forgets which requests it has seen.
    ForgetsRequests,
    /// The store answers before it has synchronised.
    AnswersUnsynced,
    /// The store leaves out some records of finished jobs.
    LosesResults,
    /// The store leaves out some records of new jobs.
    LosesSubmissions,
    /// The store changes the configuration when a job has failed.
    WritesForFailed,
    /// The store leaves out the records of nodes.
    LosesRecords,
    /// The store commits whatever the epoch.
    IgnoresEpoch,
    /// Ids are drawn twice.
    RepeatsIds,
    /// A node carries out each request that it gets.
    KeepsNoJournal,
    /// A restarted node lets the scripts of its predecessor run.
    LeavesRemains,
    /// A node ends no script when it is greeted or told to.
    EndsNothing,
    /// A node says that it stopped a guest and did not.
    StopsNoGuest,
    /// A node says that it removed a file and did not.
    RemovesNoFile,
    /// The master asks nobody to end a killed job's call.
    StopsNothing,
    /// The master never learns that a blocked job's call has ended.
    NeverConfirms,
    /// A node lets calls begin that it was told to withdraw.
    WithdrawsNothing,
    /// A restarted master forgets the jobs that are blocked.
    ForgetsBlocked,
    /// The master is not told on what a job depends.
    DropsDependencies,
    /// The master is told priorities with the wrong sign.
    TurnsPriorities,
    /// A restarted master forgets that the queue is drained or paused.
    ForgetsQueue,
    /// The archive leaves out some jobs.
    LosesArchived,
    /// The store does not keep that an undo was made good.
    LosesRepairs,
}

/// Every mutation, with the checker that must see it.
pub const MUTATIONS: [(Mutation, Checker); 29] = [
    (Mutation::AnswersForNodes, Checker::CommitFollowsVerdict),
    (Mutation::SkipsSteps, Checker::CommitFollowsSteps),
    (Mutation::ChangesEnvironment, Checker::RepeatHasSameEnvironment),
    (Mutation::DropsAnswers, Checker::EveryJobEnds),
    (Mutation::ForgetsHolder, Checker::ExclusiveLockHasOneHolder),
    (Mutation::RevivesJob, Checker::FinishedJobHoldsNoLock),
    (Mutation::ForgetsRequests, Checker::RequestMakesOneJob),
    (Mutation::AnswersUnsynced, Checker::PostFollowsDurableCommit),
    (Mutation::LosesResults, Checker::ResultSurvives),
    (Mutation::LosesSubmissions, Checker::SubmissionSurvives),
    (Mutation::WritesForFailed, Checker::FailureChangesNothing),
    (Mutation::LosesRecords, Checker::StoreHoldsWhatIsPublished),
    (Mutation::IgnoresEpoch, Checker::EpochHasOneMaster),
    (Mutation::RepeatsIds, Checker::ConfigurationHolds),
    (Mutation::KeepsNoJournal, Checker::CallTakesEffectOnce),
    (Mutation::LeavesRemains, Checker::SecondRunWaitsForFirst),
    (Mutation::EndsNothing, Checker::NoScriptUnderFinishedJob),
    (Mutation::StopsNoGuest, Checker::GuestRunsOnce),
    (Mutation::RemovesNoFile, Checker::NodesHoldWhatIsConfigured),
    (Mutation::StopsNothing, Checker::KilledJobStops),
    (Mutation::NeverConfirms, Checker::BlockedJobEnds),
    (Mutation::WithdrawsNothing, Checker::NoScriptBeginsAfterEnd),
    (Mutation::ForgetsBlocked, Checker::BlockedJobHoldsItsLocks),
    (Mutation::DropsDependencies, Checker::DependenciesWereOver),
    (Mutation::TurnsPriorities, Checker::PriorityGoesFirst),
    (Mutation::ForgetsQueue, Checker::DrainedQueueTakesNothing),
    (Mutation::ForgetsQueue, Checker::PausedQueueStartsNothing),
    (Mutation::LosesArchived, Checker::ArchiveKeepsResult),
    (Mutation::LosesRepairs, Checker::RepairLeavesNothing),
];
