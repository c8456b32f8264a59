//! The queue's manners: priorities, jobs that wait for jobs, a pause, and who would wait for ever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Engine, ErrorKind, JobError, Level, LogEntry, Now, Outcome, Phase, Status};
use crate::locks::{Blocked, Locks};

/// Most jobs that one job may depend on.
pub const DEPENDS_MAX: usize = 100;

/// A job's place among those that wait: a lower one goes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Priority(i8);

/// A number is no priority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("priority {0} is not between {min} (first) and {max} (last)", min = Priority::FIRST.0, max = Priority::LAST.0)]
pub struct PriorityError(i64);

impl Priority {
    /// Before all others.
    pub const FIRST: Priority = Priority(-20);
    /// What `--priority high` means.
    pub const HIGH: Priority = Priority(-10);
    /// What `--priority low` means.
    pub const LOW: Priority = Priority(10);
    /// After all others.
    pub const LAST: Priority = Priority(19);

    /// As a number.
    pub fn value(self) -> i8 {
        self.0
    }
}

impl TryFrom<i64> for Priority {
    type Error = PriorityError;

    fn try_from(number: i64) -> Result<Self, PriorityError> {
        let priority = i8::try_from(number).map(Priority).map_err(|_| PriorityError(number))?;
        if (Priority::FIRST..=Priority::LAST).contains(&priority) {
            Ok(priority)
        } else {
            Err(PriorityError(number))
        }
    }
}

impl From<Priority> for i64 {
    fn from(priority: Priority) -> i64 {
        i64::from(priority.0)
    }
}

/// How a job can be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Done.
    Success,
    /// Not done.
    Error,
    /// Ended on request.
    Canceled,
}

impl Ending {
    /// As the status of a job that is over.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Success => Status::Success.as_str(),
            Ending::Error => Status::Error.as_str(),
            Ending::Canceled => Status::Canceled.as_str(),
        }
    }
}

/// A job that must be over before another may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    /// That job.
    pub job: u64,
    /// In one of these ways; else the dependent job ends too.
    pub endings: BTreeSet<Ending>,
}

impl Dependency {
    /// The endings wanted, in words.
    pub fn wanted(&self) -> String {
        let names: Vec<&str> = self.endings.iter().map(|ending| ending.as_str()).collect();
        names.join(" or ")
    }
}

/// What a waiting job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitReason {
    /// Another job to be over.
    Job(Dependency),
    /// A lock.
    Lock(Blocked),
    /// The queue to be resumed.
    Paused,
}

/// Jobs that wait for jobs.
#[derive(Debug, Clone, Default)]
pub(super) struct Dependents {
    by_job: BTreeMap<u64, BTreeSet<u64>>,
    /// Over, and their dependents not looked at yet.
    over: VecDeque<u64>,
}

impl Dependents {
    pub(super) fn job_is_over(&mut self, id: u64) {
        if self.by_job.contains_key(&id) {
            self.over.push_back(id);
        }
    }
}

impl Engine {
    /// Stops waiting jobs from starting, or lets them start again with the next input.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Lets a waiting job ask for its locks once all that it depends on is over as wanted; ends it when one is not.
    /// A job that is not known is archived, and was looked at before.
    pub(super) fn look_at_dependencies(&mut self, id: u64, now: Now) {
        let Some(job) = self.jobs.get(&id).filter(|job| matches!(job.phase, Phase::Waiting)) else { return };
        let mut is_open = false;
        let mut wrong = None;
        for dependency in &job.submission.depends {
            match self.jobs.get(&dependency.job).map(super::Job::ending) {
                Some(None) => {
                    self.dependents.by_job.entry(dependency.job).or_default().insert(id);
                    is_open = true;
                }
                Some(Some(ending)) if !dependency.endings.contains(&ending) => {
                    wrong = Some((dependency.clone(), ending));
                }
                Some(Some(_)) | None => {}
            }
        }
        if let Some((dependency, ending)) = wrong {
            if ending == Ending::Canceled {
                let text = format!("job {}, on which this one depends, was canceled", dependency.job);
                self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(text));
            }
            return self.finish(id, unmet(&dependency, ending), None, now);
        }
        if !is_open {
            let (priority, locks) = (job.submission.priority.value(), job.submission.locks());
            self.waiting_since.insert(id, now.mono_ms);
            self.locks.request(id, priority, locks);
        }
    }

    /// Looks at the jobs that waited for those that are over by now.
    pub(super) fn settle_dependents(&mut self, now: Now) {
        while let Some(over) = self.dependents.over.pop_front() {
            for dependent in self.dependents.by_job.remove(&over).unwrap_or_default() {
                // One that depends on more than this may have its locks already.
                if self.waits_for_jobs(dependent) {
                    self.look_at_dependencies(dependent, now);
                }
            }
        }
    }

    /// Whether the job waits, and has not asked for its locks.
    fn waits_for_jobs(&self, id: u64) -> bool {
        let waits = self.jobs.get(&id).is_some_and(|job| matches!(job.phase, Phase::Waiting));
        waits && !self.locks.knows(id)
    }

    /// What a waiting job waits for; `None` for a free slot, or for a job that does not wait.
    pub fn wait_reason(&self, id: u64) -> Option<WaitReason> {
        if self.waits_for_jobs(id) {
            let open = |dependency: &&Dependency| {
                self.jobs.get(&dependency.job).is_some_and(|job| job.ending().is_none())
            };
            return self.jobs[&id].submission.depends.iter().find(open).cloned().map(WaitReason::Job);
        }
        let lock = self.locks.waits_for(id).map(WaitReason::Lock);
        let waits = self.jobs.get(&id).is_some_and(|job| matches!(job.phase, Phase::Waiting));
        lock.or(if waits && self.paused { Some(WaitReason::Paused) } else { None })
    }

    /// What a job that would be submitted now would wait for.
    pub fn would_wait_for(&self, priority: Priority, locks: &Locks, depends: &[Dependency]) -> Vec<u64> {
        let open = |job: &u64| self.jobs.get(job).is_some_and(|job| job.ending().is_none());
        let mut jobs: Vec<u64> = depends.iter().map(|dependency| dependency.job).filter(open).collect();
        jobs.extend(self.locks.would_wait_for(priority.value(), locks));
        jobs
    }

    /// What a job waits for now.
    pub fn waits_for(&self, id: u64) -> Vec<u64> {
        let Some(job) = self.jobs.get(&id).filter(|job| matches!(job.phase, Phase::Waiting)) else {
            return Vec::new();
        };
        if self.waits_for_jobs(id) {
            self.would_wait_for(job.submission.priority, &job.submission.locks(), &job.submission.depends)
        } else {
            self.locks.waits_for_all(id)
        }
    }

    /// A way from any of `first` to `target`, along what jobs wait for and what their scripts wait for (`followed`: job
    /// and the job that its script follows).
    pub fn way(&self, first: &[u64], target: u64, followed: &BTreeSet<(u64, u64)>) -> Option<Vec<u64>> {
        let mut came_from: BTreeMap<u64, Option<u64>> = first.iter().map(|job| (*job, None)).collect();
        let mut next: VecDeque<u64> = first.iter().copied().collect();
        while let Some(job) = next.pop_front() {
            if job == target {
                let mut way = vec![job];
                while let Some(Some(before)) = way.last().and_then(|last| came_from.get(last)) {
                    way.push(*before);
                }
                way.reverse();
                return Some(way);
            }
            let scripts = followed.range((job, 0)..=(job, u64::MAX)).map(|(_, followed)| *followed);
            let alive = self.jobs.get(&job).is_some_and(|job| job.ending().is_none());
            let waits = if alive { self.waits_for(job) } else { Vec::new() };
            for other in waits.into_iter().chain(scripts.filter(|_| alive)) {
                came_from.entry(other).or_insert_with(|| {
                    next.push_back(other);
                    Some(job)
                });
            }
        }
        None
    }
}

fn unmet(dependency: &Dependency, ending: Ending) -> Outcome {
    match ending {
        Ending::Canceled => Outcome::Canceled,
        Ending::Success | Ending::Error => Outcome::Error(JobError {
            kind: ErrorKind::Refused,
            message: format!(
                "job {}, on which this one depends, ended as {} (wanted: {})",
                dependency.job,
                ending.as_str(),
                dependency.wanted()
            ),
            objections: Vec::new(),
        }),
    }
}

impl super::Job {
    /// How the job is over; `None` while it is not.
    pub fn ending(&self) -> Option<Ending> {
        match &self.phase {
            Phase::Done { outcome: Outcome::Success, .. } => Some(Ending::Success),
            Phase::Done { outcome: Outcome::Error(_), .. } => Some(Ending::Error),
            Phase::Done { outcome: Outcome::Canceled, .. } | Phase::Blocked { .. } => Some(Ending::Canceled),
            Phase::Ending { outcome, .. } => self.ended_ms.map(|_| match outcome {
                Outcome::Success => Ending::Success,
                Outcome::Error(_) => Ending::Error,
                Outcome::Canceled => Ending::Canceled,
            }),
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Undoing { .. } => self.ended_ms.map(|_| Ending::Canceled),
        }
    }
}
