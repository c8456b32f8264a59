//! From submission to the locks, and from any phase to Done.

use std::collections::BTreeSet;

use super::{
    CallId, ENDING_MAX, Effect, Engine, ErrorKind, Input, Job, JobError, Level, LogEntry, Now, Outcome,
    PRE_ATTEMPTS_MAX, Phase, RUNNING_MAX, Submission, ending::END_STEP, hooks_phase::step_name,
};
use crate::{
    explain::cluster_for,
    hooks::{self, Env, NodeAnswer},
    model::Cluster,
    names::NodeName,
    ops::{Given, JobFacts, Prepared, Refusal},
};

impl Engine {
    pub(super) fn submit(&mut self, submission: Submission, now: Now) {
        let id = submission.id;
        let before = self.jobs.insert(id, Job::new(submission));
        assert!(before.is_none(), "job {id} is submitted twice");
        self.active += 1;
        self.touch(id);
        self.look_at_dependencies(id, now);
    }

    /// Gives locks to those whose turn it is, and begins their jobs; a job that ends at once frees its own again.
    pub(super) fn start_ready(&mut self, now: Now) {
        loop {
            self.settle_dependents(now);
            if self.goes_back {
                return self.refuse_waiting(now);
            }
            if self.paused || self.ending_count() >= ENDING_MAX {
                return;
            }
            // Blocked jobs hold locks, but do nothing.
            let running = self.locks.holders_count() - self.blocked.len();
            let granted = self.locks.grant(RUNNING_MAX.saturating_sub(running));
            if granted.is_empty() {
                return;
            }
            for job in granted {
                self.begin(job, now);
            }
        }
    }

    /// The office goes back to its old holder: what waits here would be lost with this master's records.
    fn refuse_waiting(&mut self, now: Now) {
        let waits = |job: &&Job| matches!(job.phase, Phase::Waiting);
        let waiting: Vec<u64> = self.jobs.values().filter(waits).map(Job::id).collect();
        let master = self.cluster.as_ref().map(|cluster| cluster.master.to_string()).unwrap_or_default();
        for id in waiting {
            let message = format!("the master failover did not succeed: submit it again on {master}");
            let error = JobError { kind: ErrorKind::Refused, message, objections: Vec::new() };
            self.finish(id, Outcome::Error(error), None, now);
        }
    }

    fn begin(&mut self, id: u64, now: Now) {
        let waited = self.waiting_since.remove(&id).map(|since| now.mono_ms.saturating_sub(since));
        let job = self.job_mut(id);
        job.started_ms = Some(now.wall_ms);
        job.timings.locks_ms = waited;
        match self.prepare(id) {
            Err(refusal) => {
                let error = JobError {
                    kind: ErrorKind::Refused,
                    message: refusal.to_string(),
                    objections: Vec::new(),
                };
                self.finish(id, Outcome::Error(error), None, now);
            }
            Ok(prepared) => {
                if prepared.hook_prefix.is_none() {
                    let env: Env = self.bare_env(id);
                    self.job_mut(id).global_env = Some(env);
                }
                for warning in &prepared.plan.warnings {
                    self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(warning.clone()));
                }
                self.start_hooks(id, Box::new(prepared), hooks::Phase::Pre, now);
            }
        }
    }

    fn prepare(&self, id: u64) -> Result<Prepared, Refusal> {
        let submission = &self.jobs[&id].submission;
        let new_cluster: Option<&Cluster> = submission.fresh.new_cluster.as_deref();
        let cluster = cluster_for(self.cluster.as_ref(), new_cluster)?;
        let undone = self.undone_calls();
        let given = Given { cluster, fresh: &submission.fresh, local: &self.local, undone: &undone };
        let facts =
            JobFacts { id, user: &submission.user, reason: &submission.reason, dry_run: submission.dry_run };
        submission.op.prepare(given, &facts)
    }

    /// Stops a job: at once while it waits, at its next safe point later, not any more after a final step.
    pub(super) fn cancel(&mut self, id: u64, now: Now) {
        let Some(job) = self.jobs.get(&id) else { return };
        match &job.phase {
            Phase::Waiting => self.finish(id, Outcome::Canceled, None, now),
            Phase::PreHooks { prepared } => {
                let nodes = self.hook_nodes(id, prepared, hooks::Phase::Pre);
                if !job.canceling {
                    self.mark_canceling(id, now);
                    self.end_hooks(id, step_name(hooks::Phase::Pre), nodes);
                }
            }
            Phase::Running { prepared, step, .. } => {
                if !job.canceling && !super::steps::past_final(prepared, *step) {
                    self.mark_canceling(id, now);
                }
            }
            Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Undoing { .. }
            | Phase::Blocked { .. }
            | Phase::Ending { .. }
            | Phase::Done { .. } => {}
        }
    }

    /// Why a cancel would do nothing, or `None` when it would do something.
    pub fn cancel_refused(&self, id: u64) -> Option<String> {
        let job = self.jobs.get(&id)?;
        match &job.phase {
            Phase::Waiting | Phase::PreHooks { .. } => None,
            Phase::Running { prepared, step, .. } if super::steps::past_final(prepared, *step) => {
                Some(format!("job {id} is past its final step: it can only go forward"))
            }
            Phase::Running { .. } => None,
            Phase::Cleaning { .. } | Phase::PostHooks { .. } => {
                Some(format!("job {id} is committed already: it can't be canceled any more"))
            }
            Phase::Undoing { .. } => Some(format!("job {id} is being undone already")),
            Phase::Ending { .. } => {
                Some(format!("job {id} is over but for the scripts that are told so; --kill ends them"))
            }
            Phase::Blocked { .. } | Phase::Done { .. } => Some(format!("job {id} is over already")),
        }
    }

    /// Ends the scripts of a phase; those that a node has not begun yet never begin.
    pub(super) fn end_hooks(&mut self, id: u64, step: &str, nodes: Vec<NodeName>) {
        let attempts = if step == step_name(hooks::Phase::Pre) { PRE_ATTEMPTS_MAX } else { 1 };
        let calls =
            (1..=attempts).map(|attempt| CallId { job: id, step: step.to_owned(), attempt }).collect();
        self.output.effects.push(Effect::EndJob { job: id, nodes, calls });
    }

    pub(super) fn mark_canceling(&mut self, id: u64, now: Now) {
        let job = self.job_mut(id);
        job.canceling = true;
        job.log(now.wall_ms, Level::Info, LogEntry::Text("cancel asked for".to_owned()));
    }

    /// Ends what may still run on nodes that gave no answer: they may be back by now.
    pub(super) fn end_silent(&mut self, id: u64) {
        for phase in [hooks::Phase::Pre, hooks::Phase::Post] {
            let job = &self.jobs[&id];
            let reports = if phase == hooks::Phase::Pre { &job.pre } else { &job.post };
            let silent =
                reports.iter().filter(|report| matches!(report.answer, NodeAnswer::NotReached { .. }));
            let nodes: BTreeSet<NodeName> = silent.map(|report| report.node.clone()).collect();
            if !nodes.is_empty() {
                self.end_hooks(id, step_name(phase), nodes.into_iter().collect());
            }
        }
    }

    /// Jobs whose end is being told, and waited for. Where the end of many that never began can't be told, because the
    /// master's own node daemon is down, that is nobody's reason to wait.
    fn ending_count(&self) -> usize {
        let is_waited_for = |id: &u64| self.jobs[id].ended_ms.is_none();
        let ends = self.awaited.iter().filter(|(_, awaited)| awaited.call.step == END_STEP);
        ends.filter(|(id, _)| is_waited_for(id)).count()
    }

    /// The job is over for those who wait for it.
    pub(super) fn is_over(&mut self, id: u64, now: Now) {
        self.waiting_since.remove(&id);
        if self.jobs[&id].ended_ms.is_none() {
            self.active -= 1;
            let job = self.job_mut(id);
            job.ended_ms = Some(now.wall_ms);
            if let Phase::Ending { outcome: Outcome::Error(error), .. } = &job.phase {
                let text = format!("{}: {}", error.kind.as_str(), error.message);
                job.log(now.wall_ms, Level::Error, LogEntry::Text(text));
            }
            self.dependents.job_is_over(id);
        }
    }

    /// A job that is to be changed: its record will be written.
    pub(super) fn job_mut(&mut self, id: u64) -> &mut Job {
        self.touch(id);
        self.jobs.get_mut(&id).expect("a job that something happens to exists")
    }

    pub(super) fn touch(&mut self, id: u64) {
        self.output.changes.jobs.insert(id);
    }

    /// Whether an input would be dropped as stale: its job awaits another answer, or none.
    pub(super) fn awaits(&self, call: &super::CallId) -> bool {
        self.awaited.get(&call.job).is_some_and(|awaited| awaited.call.step == call.step)
    }
}

impl From<Submission> for Input {
    fn from(submission: Submission) -> Self {
        Input::Submit(Box::new(submission))
    }
}
