//! What the checkers know of each job: what was published of it, and when.

use std::collections::BTreeMap;

use muster_core::{
    calls::Call,
    engine::{Dependency, Ending, Job, Outcome, Phase, Priority},
    locks::{LockMode, Locks},
    names::NodeName,
};

/// A job as published.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    pub(crate) locks: Locks,
    /// It has its locks and is not over.
    pub(crate) has_begun: bool,
    /// When that was published first.
    pub(crate) begun_ms: Option<u64>,
    pub(crate) is_committed: bool,
    /// How it ended, as text, and when that was published.
    pub(crate) ended: Option<(String, u64)>,
    /// How it is over for those who wait for it.
    pub(crate) over: Option<Ending>,
    /// It is killed, and holds its locks until a node answers.
    pub(crate) is_blocked: bool,
    /// It is in the archive.
    pub(crate) is_archived: bool,
    /// Where it should stand among those that wait.
    pub(crate) priority: Priority,
    /// What must be over before it begins.
    pub(crate) depends: Vec<Dependency>,
}

impl Track {
    pub(crate) fn waits(&self) -> bool {
        self.begun_ms.is_none() && self.over.is_none()
    }
}

/// All jobs, and the master that committed last.
#[derive(Debug, Default)]
pub(crate) struct Tracks {
    pub(crate) jobs: BTreeMap<u64, Track>,
    pub(crate) last_master: u64,
    /// The undos that failed and were not made good, by job.
    pub(crate) failed_undos: BTreeMap<u64, Vec<Call>>,
    /// What repairs that succeeded have done, by the job that was repaired.
    pub(crate) repaired: BTreeMap<u64, Vec<Call>>,
    /// Killed jobs whose call is to end, since when.
    pub(crate) stopping_ms: BTreeMap<u64, u64>,
    /// When a node was seen to be marked offline, last.
    pub(crate) offline_ms: BTreeMap<NodeName, u64>,
    /// How jobs ended: operation and outcome, with their number.
    pub(crate) outcomes: BTreeMap<String, u64>,
    /// Something was made durable since the last check.
    pub(crate) is_changed: bool,
}

impl Tracks {
    /// Jobs that an operator may repair: blocked, or with something left undone.
    pub(crate) fn broken(&self) -> Vec<u64> {
        let blocked = self.jobs.iter().filter(|(_, track)| track.is_blocked).map(|(id, _)| *id);
        self.failed_undos.keys().copied().chain(blocked).collect()
    }

    pub(crate) fn is_archived(&self, id: u64) -> bool {
        self.jobs.get(&id).is_some_and(|track| track.is_archived)
    }

    /// Whether all that a job depends on is over as wanted.
    pub(crate) fn unmet(&self, track: &Track) -> Option<Dependency> {
        let is_met = |wanted: &Dependency| {
            let over = self.jobs.get(&wanted.job).and_then(|track| track.over);
            over.is_some_and(|ending| wanted.endings.contains(&ending))
        };
        track.depends.iter().find(|wanted| !is_met(wanted)).cloned()
    }

    pub(crate) fn finished_count(&self) -> u64 {
        let finished = self.jobs.values().filter(|track| track.ended.is_some()).count();
        u64::try_from(finished).expect("a simulation has few jobs")
    }

    /// The first two jobs that have begun and conflict, with the name.
    pub(crate) fn conflict(&self) -> Option<(u64, u64, String)> {
        let mut seen: BTreeMap<&str, (u64, LockMode)> = BTreeMap::new();
        for (job, track) in self.jobs.iter().filter(|(_, track)| track.has_begun) {
            for (name, mode) in track.locks.iter() {
                if let Some((other, theirs)) = seen.insert(name, (*job, mode))
                    && (mode == LockMode::Exclusive || theirs == LockMode::Exclusive)
                {
                    return Some((other, *job, name.to_owned()));
                }
            }
        }
        None
    }
}

/// Whether a job's record says that its commit is done.
pub(crate) fn is_committed(job: &Job) -> bool {
    match &job.phase {
        Phase::Done { outcome: Outcome::Canceled, .. } | Phase::Ending { outcome: Outcome::Canceled, .. }
            if job.killed =>
        {
            job.committed
        }
        Phase::Cleaning { .. } | Phase::PostHooks { .. } => true,
        Phase::Done { outcome: Outcome::Success, .. } | Phase::Ending { outcome: Outcome::Success, .. } => {
            !job.submission.dry_run
        }
        Phase::Waiting
        | Phase::PreHooks { .. }
        | Phase::Running { .. }
        | Phase::Undoing { .. }
        | Phase::Blocked { .. }
        | Phase::Ending { outcome: Outcome::Canceled | Outcome::Error(_), .. }
        | Phase::Done { outcome: Outcome::Canceled | Outcome::Error(_), .. } => false,
    }
}

/// How a job ended.
pub(crate) fn outcome(job: &Job) -> Option<&Outcome> {
    match &job.phase {
        Phase::Done { outcome, .. } => Some(outcome),
        Phase::Waiting
        | Phase::PreHooks { .. }
        | Phase::Running { .. }
        | Phase::Cleaning { .. }
        | Phase::PostHooks { .. }
        | Phase::Undoing { .. }
        | Phase::Ending { .. }
        | Phase::Blocked { .. } => None,
    }
}
