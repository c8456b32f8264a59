//! The checkers on kills, the queue's manners, repairs and the archive.

use std::collections::BTreeSet;

use muster_core::{
    calls::Call,
    engine::{Job, Outcome, Phase},
    ops::{JobRepair, Op},
};
use muster_master::store::{decode, keys};

use super::{check::Checker, stops::STOP_LIMIT_MS, tracks::outcome, world::Simulation};

/// From the limit of a stop to its durable consequence, in milliseconds.
const STOP_SLACK_MS: u64 = 1_000;

/// Which jobs could begin, and which had begun, before a flush.
pub(crate) struct Before {
    begun: BTreeSet<u64>,
    ready: Vec<u64>,
}

impl Simulation {
    /// A blocked job is over for those who wait for it, and nobody gets its locks.
    pub(crate) fn check_blocked_hold_locks(&mut self) {
        let Some(process) = &self.process else { return };
        let locks = process.driver.engine().locks();
        let blocked = self.tracks.jobs.iter().filter(|(_, track)| track.is_blocked);
        let odd = blocked.filter(|(id, track)| !locks.holds(**id) || track.over.is_none()).map(|(id, _)| *id);
        if let Some(id) = odd.collect::<Vec<_>>().first() {
            let what = format!("job {id} is blocked and has no locks, or is not over");
            self.context.violate(Checker::BlockedJobHoldsItsLocks, what);
        }
    }

    /// A killed job has left the step that it was killed in.
    pub(crate) fn check_killed_stop(&mut self) {
        let now = self.context.now();
        let late =
            self.tracks.stopping_ms.iter().find(|(_, since)| now > **since + STOP_LIMIT_MS + STOP_SLACK_MS);
        if let (Some((id, since_ms)), true) = (late, self.process.is_some()) {
            let what = format!("job {id} is killed since {since_ms} and still in its step");
            self.context.violate(Checker::KilledJobStops, what);
        }
    }

    /// Follows what jobs left undone, and killed jobs on their way to the end.
    pub(crate) fn track_undos(&mut self, job: &Job) {
        let (id, now) = (job.id(), self.context.now());
        let open = job.failed_undos.iter().filter(|failed| !failed.made_good);
        let open: Vec<Call> = open.map(|failed| failed.call.clone()).collect();
        let again =
            self.tracks.repaired.get(&id).and_then(|done| open.iter().find(|call| done.contains(call)));
        if let Some(call) = again {
            let what = format!("job {id} was repaired, and this is still undone: {}", call.text());
            self.context.violate(Checker::RepairLeavesNothing, what);
        }
        if open.is_empty() {
            self.tracks.failed_undos.remove(&id);
        } else {
            self.tracks.failed_undos.insert(id, open);
        }
        if job.killed && matches!(job.phase, Phase::Running { .. }) {
            self.tracks.stopping_ms.entry(id).or_insert(now);
        } else {
            self.tracks.stopping_ms.remove(&id);
        }
    }

    /// The jobs that waited for nothing but their locks before these were published, if one of these begins.
    pub(crate) fn those_ready(&self, published: &[Job]) -> Before {
        let has_begun = |job: &Job| {
            job.started_ms.is_some()
                && self.tracks.jobs.get(&job.id()).is_none_or(|track| track.begun_ms.is_none())
        };
        let begun: BTreeSet<u64> = published.iter().filter(|job| has_begun(job)).map(Job::id).collect();
        if begun.is_empty() {
            return Before { begun, ready: Vec::new() };
        }
        let is_ready = |track: &super::tracks::Track| track.waits() && self.tracks.unmet(track).is_none();
        let ready = self.tracks.jobs.iter().filter(|(_, track)| is_ready(track)).map(|(id, _)| *id).collect();
        Before { begun, ready }
    }

    /// What must hold when jobs begin.
    pub(crate) fn check_begun(&mut self, before: &Before) {
        for id in &before.begun {
            let Some(track) = self.tracks.jobs.get(id) else { continue };
            if let Some(wanted) = self.tracks.unmet(track) {
                let over = self.tracks.jobs.get(&wanted.job).map(|track| track.over);
                let what = format!("job {id} begins, and {wanted:?} is {over:?}");
                self.context.violate(Checker::DependenciesWereOver, what);
                continue;
            }
            let goes_before = |other: &u64| {
                self.tracks.jobs.get(other).is_some_and(|other| {
                    other.waits() && other.priority < track.priority && other.locks.conflicts(&track.locks)
                })
            };
            if let Some(other) = before.ready.iter().find(|other| goes_before(other)) {
                let what = format!("job {id} begins before job {other}, which has the higher priority");
                self.context.violate(Checker::PriorityGoesFirst, what);
            }
        }
        if let (Some(id), true) = (before.begun.first(), self.clients.is_paused) {
            let what = format!("job {id} begins while the queue is paused");
            self.context.violate(Checker::PausedQueueStartsNothing, what);
        }
    }

    /// Repairs that succeeded: what they were to do is not undone any more.
    pub(crate) fn check_repairs(&mut self, published: &[Job]) {
        for job in published {
            let Op::JobRepair(JobRepair { job: repaired }) = &job.submission.op else { continue };
            let (Some(repair), Some(Outcome::Success)) = (&job.submission.fresh.repair, outcome(job)) else {
                continue;
            };
            if job.submission.dry_run {
                continue;
            }
            let open = self.tracks.failed_undos.get(repaired);
            let left = open.and_then(|open| open.iter().find(|call| repair.calls.contains(call)));
            if let Some(call) = left {
                let what = format!("job {} repaired job {repaired}, and left {}", job.id(), call.text());
                self.context.violate(Checker::RepairLeavesNothing, what);
            }
            self.tracks.repaired.entry(*repaired).or_default().extend(repair.calls.iter().cloned());
        }
    }

    /// Whether a job is in the archive, also where the master died before it could tell.
    pub(crate) fn is_archived(&self, id: u64) -> bool {
        self.tracks.is_archived(id) || self.disk.borrow().durable_archived(&keys::job(id)).is_some()
    }

    /// An archived job is there, and ended as it did.
    pub(crate) fn check_archived(&mut self, id: u64, text: Option<&str>) {
        let job = text.map(|text| decode::<Job>(&keys::job(id), text));
        match job {
            Some(Ok(job)) => self.check_archived_job(id, Some(&job)),
            Some(Err(_)) | None => self.check_archived_job(id, None),
        }
    }

    pub(crate) fn check_archived_job(&mut self, id: u64, job: Option<&Job>) {
        let ended = self.tracks.jobs.get(&id).and_then(|track| track.ended.as_ref());
        let found = job.and_then(outcome).map(|outcome| format!("{outcome:?}"));
        if found.as_ref() != ended.map(|(text, _)| text) {
            let what = format!("job {id} ended as {ended:?} and is archived as {found:?}");
            self.context.violate(Checker::ArchiveKeepsResult, what);
        }
    }
}
