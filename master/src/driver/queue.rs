//! The queue as an operator handles it: drained, paused, archived.

use muster_core::engine::{Job, Phase, QUEUED_MAX, RUNNING_MAX};
use serde::{Deserialize, Serialize};

use super::{Clock, Driver, Ids};
use crate::store::{Store, encode, keys};

/// What an operator said of the queue; one record of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueState {
    /// No job is taken.
    pub drained: bool,
    /// No job that waits starts.
    pub paused: bool,
}

/// A change of the queue; what is absent stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueueChange {
    /// No job is taken any more, or is again.
    pub drained: Option<bool>,
    /// No job that waits starts any more, or does again.
    pub paused: Option<bool>,
}

/// The queue at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// What an operator said.
    pub state: QueueState,
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs that have their locks, and something to do.
    pub running: usize,
    /// Jobs that hold locks though they are over.
    pub blocked: usize,
    /// Jobs that are over and not archived.
    pub ended: usize,
    /// Jobs in the archive.
    pub archived: u64,
    /// Bound of jobs that are not over.
    pub waiting_max: usize,
    /// Bound of jobs that run.
    pub running_max: usize,
}

/// Which jobs are to be archived.
#[derive(Debug, Clone)]
pub enum ArchiveWhich {
    /// These.
    Ids(Vec<u64>),
    /// All that were over so many milliseconds ago.
    OlderThan(u64),
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archived {
    /// Moved to the archive.
    pub archived: Vec<u64>,
    /// Kept, with the reason.
    pub kept: Vec<(u64, String)>,
}

impl<S: Store, C: Clock, I: Ids> Driver<S, C, I> {
    /// Changes the queue's state, if anything is to be changed, and tells how it is.
    pub(super) fn change_queue(&mut self, change: QueueChange) -> QueueFacts {
        let state = QueueState {
            drained: change.drained.unwrap_or(self.queue.drained),
            paused: change.paused.unwrap_or(self.queue.paused),
        };
        if state != self.queue {
            self.queue = state;
            self.writes.puts.push((keys::QUEUE.to_owned(), encode(&state)));
            self.engine.set_paused(state.paused);
            self.input(muster_core::engine::Input::Retry);
        }
        self.queue_facts()
    }

    fn queue_facts(&self) -> QueueFacts {
        let mut facts = QueueFacts {
            state: self.queue,
            archived: self.store.archived_count(),
            waiting_max: QUEUED_MAX,
            running_max: RUNNING_MAX,
            ..QueueFacts::default()
        };
        for job in self.engine.jobs() {
            let counter = match &job.phase {
                Phase::Waiting => &mut facts.waiting,
                Phase::PreHooks { .. }
                | Phase::Running { .. }
                | Phase::Cleaning { .. }
                | Phase::PostHooks { .. }
                | Phase::Undoing { .. }
                | Phase::Ending { .. } => &mut facts.running,
                Phase::Blocked { .. } => &mut facts.blocked,
                Phase::Done { .. } => &mut facts.ended,
            };
            *counter += 1;
        }
        facts
    }

    /// Moves jobs that are over to the archive, in one transaction.
    pub(super) fn archive(&mut self, which: &ArchiveWhich) -> Archived {
        let now_ms = self.clock.now().wall_ms;
        let ids: Vec<u64> = match which {
            ArchiveWhich::Ids(ids) => ids.clone(),
            ArchiveWhich::OlderThan(age_ms) => {
                let is_old = |job: &&Job| {
                    job.done() && job.ended_ms.is_some_and(|ended| now_ms.saturating_sub(ended) >= *age_ms)
                };
                self.engine.jobs().filter(is_old).map(Job::id).collect()
            }
        };
        let mut answer = Archived::default();
        for id in ids {
            if self.changed_jobs.contains(&id) {
                // Those who follow it have not seen its end.
                answer.kept.push((id, format!("job {id} has changed this moment: try again")));
                continue;
            }
            match self.engine.forget(id) {
                Ok(job) => {
                    self.requests.remove(&job.submission.request_id);
                    self.writes.archive(keys::job(id));
                    self.archiving.insert(id, job);
                    self.released.archived.push(id);
                    answer.archived.push(id);
                }
                Err(_) if matches!(self.archived_job(id), Ok(Some(_))) => {
                    answer.kept.push((id, format!("job {id} is archived already")));
                }
                Err(why) => answer.kept.push((id, why)),
            }
        }
        if !answer.archived.is_empty() {
            // Numbers are not given twice, though the highest may be in the archive.
            self.writes.puts.push((keys::NEXT_JOB.to_owned(), encode(&self.next_job)));
        }
        answer
    }
}
