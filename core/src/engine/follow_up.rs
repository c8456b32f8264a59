//! Jobs that a job asks for: they come to be with its commit, in one transaction.
//!
//! The engine draws nothing, so it says which operations are wanted ([`FollowUps`]); the driver answers at once with their
//! submissions, before anything of the commit is written.

use std::collections::BTreeSet;

use super::{Dependency, Ending, Engine, Level, LogEntry, Now, Submission};
use crate::ops::{FollowUp, Prepared};

/// What a job's commit asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowUps {
    /// The job that asks.
    pub job: u64,
    /// In order.
    pub operations: Vec<FollowUp>,
}

impl FollowUps {
    /// The submissions, for the asking job's submitter; `draw` gives each its number, its uuid and its fresh values.
    pub fn submissions(
        self,
        parent: &Submission,
        mut draw: impl FnMut() -> (u64, uuid::Uuid, crate::ops::Fresh),
    ) -> Vec<Submission> {
        let mut submissions: Vec<Submission> = Vec::new();
        for FollowUp { op, after } in self.operations {
            let (id, uuid, fresh) = draw();
            let earlier = after.and_then(|index| submissions.get(index));
            let wanted =
                |job: &Submission| Dependency { job: job.id, endings: BTreeSet::from([Ending::Success]) };
            let depends = earlier.map(wanted).into_iter().collect();
            submissions.push(Submission {
                id,
                uuid,
                op,
                user: parent.user.clone(),
                reason: parent.reason.clone(),
                dry_run: false,
                request_id: String::new(),
                fresh,
                depends,
                priority: parent.priority,
                parent: Some(self.job),
            });
        }
        submissions
    }
}

impl Engine {
    /// At the commit: the driver is asked for what the jobs need.
    pub(super) fn ask_follow_ups(&mut self, id: u64, prepared: &Prepared) {
        let operations = prepared.plan.follow_ups.clone();
        if !operations.is_empty() {
            self.output.follow_ups.push(FollowUps { job: id, operations });
        }
    }

    /// Takes the jobs that a job asked for; the bound of the queue is not theirs, as the commit is made already.
    pub(super) fn take_follow_ups(&mut self, id: u64, submissions: Vec<Submission>, now: Now) {
        for submission in submissions {
            let child = submission.id;
            self.submit(submission, now);
            let text = format!("job {child}: {}", self.jobs[&child].summary());
            let parent = self.job_mut(id);
            parent.children.push(child);
            parent.log(now.wall_ms, Level::Info, LogEntry::Text(text));
        }
    }

    /// In a dry run: which jobs would be asked for.
    pub(super) fn tell_follow_ups(&mut self, id: u64, prepared: &Prepared, now: Now) {
        for FollowUp { op, after: _ } in &prepared.plan.follow_ups {
            let text = format!("a job would follow: {}", super::job::summary(op));
            self.job_mut(id).log(now.wall_ms, Level::Info, LogEntry::Text(text));
        }
    }
}
