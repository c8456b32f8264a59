//! Steps, the commit, cleanups and undo.

use super::{
    Awaited, CallId, Effect, Engine, ErrorKind, FailedUndo, JobError, Level, LogEntry, Now, Outcome, Phase,
    recover::interrupted,
};
use crate::{
    calls::{self, CallAnswer, Cleanup},
    edit::Edit,
    hooks,
    model::CleanupId,
    ops::{JobRepair, Op, Prepared, Step, StepKind},
};

/// Whether a final step, or one whose effect stays, is done or going: the job only goes forward.
pub(super) fn past_final(prepared: &Prepared, step: usize) -> bool {
    prepared
        .plan
        .steps
        .iter()
        .take(step + 1)
        .any(|step| matches!(step.kind, StepKind::Final | StepKind::Kept))
}

impl Engine {
    /// Begins step `step`, or commits when it was the last.
    pub(super) fn run_step(
        &mut self,
        id: u64,
        mut prepared: Box<Prepared>,
        step: usize,
        outputs: Vec<calls::Output>,
        now: Now,
    ) {
        let Some(next) = prepared.plan.steps.get_mut(step) else {
            return self.commit(id, prepared, &outputs, now);
        };
        // Recorded with the job: whoever sends the call again sends the same.
        next.call.fill(&outputs);
        let call = next.call.clone();
        let entry = LogEntry::Step { text: call.text(), node: call.node().cloned() };
        self.job_mut(id).log(now.wall_ms, Level::Info, entry);
        self.job_mut(id).interruptions = 0;
        self.job_mut(id).steps_begun = step + 1;
        self.job_mut(id).phase = Phase::Running { prepared, step, outputs };
        self.execute(CallId { job: id, step: step.to_string(), attempt: 1 }, call, now);
    }

    /// Sends a call and awaits its answer; the time of the phase goes on from the first step.
    pub(super) fn execute(&mut self, call_id: CallId, call: calls::Call, now: Now) {
        let since_ms = self.awaited.get(&call_id.job).map_or(now.mono_ms, |awaited| awaited.since_ms);
        self.awaited.insert(
            call_id.job,
            Awaited { call: call_id.clone(), nodes: Default::default(), reports: Vec::new(), since_ms },
        );
        let effect = match self.left_going(call_id.job, &call) {
            Some((job, calls)) => Effect::ExecuteAfter { id: call_id, call, job, calls },
            None => Effect::Execute { id: call_id, call },
        };
        self.output.effects.push(effect);
    }

    /// A repair's call comes after all that the repaired job asked the same node for: a step whose end nobody confirmed
    /// may be going there still, and would undo the repair.
    fn left_going(&self, id: u64, call: &calls::Call) -> Option<(u64, Vec<CallId>)> {
        let (Op::JobRepair(JobRepair { job }), calls::Call::Node(..)) = (&self.jobs[&id].submission.op, call)
        else {
            return None;
        };
        let steps = self.jobs.get(job)?.prepared()?.plan.steps.iter().enumerate();
        let is_undone = |step: &Step| matches!(&step.kind, StepKind::Undoable { undo } if undo == call);
        let of = |step: String| CallId { job: *job, step, attempt: 1 };
        let calls = steps
            .filter(|(_, step)| is_undone(step))
            .flat_map(|(index, _)| [of(index.to_string()), of(format!("undo-{index}"))]);
        Some((*job, calls.collect()))
    }

    pub(super) fn call_answered(&mut self, call: &CallId, answer: CallAnswer, now: Now) {
        if let Some(cleanup) = retried_cleanup(call)
            && self.retrying.remove(&cleanup)
        {
            return self.cleanup_answered(cleanup, answer);
        }
        if self.awaited.get(&call.job).is_none_or(|awaited| awaited.call != *call) {
            self.stale_answers += 1;
            return;
        }
        let job = self.job_mut(call.job);
        match std::mem::replace(&mut job.phase, Phase::Waiting) {
            Phase::Running { prepared, step, outputs } => {
                self.step_answered(call.job, prepared, step, outputs, answer, now);
            }
            Phase::Cleaning { prepared, index } => {
                let id = CleanupId { job: call.job, index: u32::try_from(index).unwrap_or(u32::MAX) };
                self.cleanup_answered(id, answer);
                self.run_cleanup(call.job, prepared, index + 1, now);
            }
            Phase::Undoing { prepared, step, outcome } => {
                self.undo_answered(call.job, prepared, step, outcome, answer, now);
            }
            Phase::Blocked { prepared, step } => self.blocked_answered(call.job, prepared, step, answer, now),
            other @ (Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::PostHooks { .. }
            | Phase::Ending { .. }
            | Phase::Done { .. }) => {
                unreachable!("job {} awaits call {call} in {other:?}", call.job)
            }
        }
    }

    fn step_answered(
        &mut self,
        id: u64,
        prepared: Box<Prepared>,
        step: usize,
        mut outputs: Vec<calls::Output>,
        answer: CallAnswer,
        now: Now,
    ) {
        if self.jobs[&id].killed {
            return self.killed_step_answered(id, prepared, step, answer, now);
        }
        if self.jobs[&id].interrupted_too_often() && !past_final(&prepared, step) {
            return self.start_undo(id, prepared, step, interrupted(), now);
        }
        let going = &prepared.plan.steps[step];
        let text = going.call.text();
        let place = going.call.node().map(|node| format!(" on {node}")).unwrap_or_default();
        if let (CallAnswer::Done(output), StepKind::Relies { on }) = (&answer, &going.kind)
            && let Some((message, settled)) = on.refuses(output)
        {
            // Whatever becomes of the job: nobody may rely on them from now on.
            self.apply(vec![settled]);
            return self.step_failed(id, prepared, step, message, now);
        }
        match (answer, &going.kind) {
            (CallAnswer::Done(output), _) => {
                self.make_good(&going.call.clone());
                self.job_mut(id).result.extend(output.result.clone());
                outputs.push(output);
            }
            (
                CallAnswer::Failed(why) | CallAnswer::NotReached(why),
                kind @ (StepKind::Optional { .. } | StepKind::Kept),
            ) => {
                let node = going.call.node().map(ToString::to_string);
                let job = self.job_mut(id);
                job.result.extend(node.map(|node| (node, format!("left out: {why}"))));
                job.log(
                    now.wall_ms,
                    Level::Warning,
                    LogEntry::Text(format!("{text}{place} was left out: {why}")),
                );
                if let StepKind::Optional { edits } = kind {
                    job.extra_edits.extend(edits.iter().cloned());
                }
                outputs.push(calls::Output::default());
            }
            (
                CallAnswer::Failed(why),
                StepKind::Undoable { .. } | StepKind::Harmless | StepKind::Relies { .. } | StepKind::Final,
            ) => {
                return self.step_failed(id, prepared, step, format!("could not {text}{place}: {why}"), now);
            }
            (
                CallAnswer::NotReached(why),
                StepKind::Undoable { .. } | StepKind::Harmless | StepKind::Relies { .. } | StepKind::Final,
            ) => {
                let message = format!("could not {text}{place}: node not reached: {why}");
                return self.step_failed(id, prepared, step, message, now);
            }
        }
        if self.jobs[&id].canceling && !past_final(&prepared, step) {
            return self.start_undo(id, prepared, step, Outcome::Canceled, now);
        }
        self.run_step(id, prepared, step + 1, outputs, now);
    }

    fn step_failed(&mut self, id: u64, prepared: Box<Prepared>, step: usize, message: String, now: Now) {
        let error = JobError { kind: ErrorKind::Failed, message, objections: Vec::new() };
        self.start_undo(id, prepared, step, Outcome::Error(error), now);
    }

    /// The configuration changes, the cleanups are recorded and the job goes on, all in one transaction.
    fn commit(&mut self, id: u64, mut prepared: Box<Prepared>, outputs: &[calls::Output], now: Now) {
        let since_ms = self.awaited.remove(&id).map_or(now.mono_ms, |awaited| awaited.since_ms);
        let job = self.job_mut(id);
        job.committed = true;
        job.worked_ms = Some(now.wall_ms);
        if !prepared.plan.steps.is_empty() {
            job.timings.steps_ms = Some(now.mono_ms.saturating_sub(since_ms));
        }
        let mut edits = prepared.plan.edits.clone();
        edits.extend(std::mem::take(&mut job.extra_edits));
        for edit in &mut edits {
            edit.fill(outputs);
        }
        for (call, _) in &mut prepared.plan.cleanups {
            call.fill(outputs);
        }
        for (index, (call, once)) in prepared.plan.cleanups.iter().enumerate() {
            let id = CleanupId { job: id, index: u32::try_from(index).unwrap_or(u32::MAX) };
            let cleanup = Cleanup { call: call.clone(), once: *once, attempts: 0, last_error: None };
            edits.push(Edit::CleanupPut { id, cleanup });
        }
        if !edits.is_empty() {
            self.apply(edits);
        }
        for call in &prepared.plan.settled {
            self.settle(|failed| failed == call);
        }
        self.ask_follow_ups(id, &prepared);
        self.run_cleanup(id, prepared, 0, now);
    }

    /// Applies edits as one commit: the serial grows by one.
    fn apply(&mut self, edits: Vec<Edit>) {
        for edit in edits {
            self.output.changes.config.insert(edit.touched());
            self.output.changes.edits.push(edit.clone());
            if let Edit::NodeRemove { node } = &edit {
                // Nobody will do it any more, and nobody needs it.
                self.settle(|failed| failed.node() == Some(node));
            }
            edit.apply(&mut self.cluster);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.serial += 1;
            self.output.changes.config.insert(crate::edit::Touched::Globals);
        }
    }

    /// Begins cleanup `index`, or the post phase after the last. One on a node marked offline stays recorded for later
    /// (HOOKS.md R6).
    pub(super) fn run_cleanup(&mut self, id: u64, prepared: Box<Prepared>, index: usize, now: Now) {
        let Some((call, _)) = prepared.plan.cleanups.get(index) else {
            self.awaited.remove(&id);
            return self.start_hooks(id, prepared, hooks::Phase::Post, now);
        };
        if self.offline(call) {
            return self.run_cleanup(id, prepared, index + 1, now);
        }
        let call = call.clone();
        self.job_mut(id).phase = Phase::Cleaning { prepared, index };
        self.execute(CallId { job: id, step: format!("clean-{index}"), attempt: 1 }, call, now);
    }

    fn offline(&self, call: &calls::Call) -> bool {
        let nodes = self.cluster.as_ref().map(|cluster| &cluster.nodes);
        nodes.zip(call.node()).and_then(|(nodes, name)| nodes.get(name)).is_some_and(|node| node.offline)
    }

    /// A cleanup is done and forgotten, or stays recorded with its error until it is.
    pub(super) fn cleanup_answered(&mut self, id: CleanupId, answer: CallAnswer) {
        let Some(mut cleanup) = self.cluster.as_ref().and_then(|c| c.cleanups.get(&id)).cloned() else {
            return;
        };
        let edit = match answer {
            CallAnswer::Done(_) => Edit::CleanupRemove { id },
            CallAnswer::Failed(_) | CallAnswer::NotReached(_) if cleanup.once => Edit::CleanupRemove { id },
            CallAnswer::Failed(why) | CallAnswer::NotReached(why) => {
                cleanup.attempts = cleanup.attempts.saturating_add(1);
                cleanup.last_error = Some(why);
                Edit::CleanupPut { id, cleanup }
            }
        };
        self.apply(vec![edit]);
    }

    /// Tries again what was left to destroy, outside of the jobs that left it, and asks again how killed calls ended.
    pub(super) fn retry(&mut self) {
        for id in self.blocked.clone() {
            self.stop_call(id);
        }
        let Some(cluster) = &self.cluster else { return };
        for (id, cleanup) in &cluster.cleanups {
            let in_job = self.jobs.get(&id.job).is_some_and(|job| !job.done());
            if !in_job && !self.offline(&cleanup.call) && self.retrying.insert(*id) {
                let attempt = cleanup.attempts.saturating_add(1);
                let id = CallId { job: id.job, step: format!("clean-{}", id.index), attempt };
                self.output.effects.push(Effect::Execute { id, call: cleanup.call.clone() });
            }
        }
    }

    /// Undoes step `from` and all before it, in reverse order.
    pub(super) fn start_undo(
        &mut self,
        id: u64,
        prepared: Box<Prepared>,
        from: usize,
        outcome: Outcome,
        now: Now,
    ) {
        let undoable = prepared.plan.steps[..=from]
            .iter()
            .rposition(|step| matches!(step.kind, StepKind::Undoable { .. }));
        let Some(step) = undoable else {
            return self.finish(id, outcome, Some(prepared), now);
        };
        let StepKind::Undoable { undo } = &prepared.plan.steps[step].kind else {
            unreachable!("step {step} was just seen to be undoable")
        };
        let undo = undo.clone();
        let undone = self.undone_calls();
        if let Some(failed) = undone.iter().find(|call| undo.unsafe_after(call) && !self.offline(call)) {
            // The guest would run in two places: leaving it down is the smaller harm.
            let error = format!("not done, because this failed before: {}", failed.text());
            return self.undo_answered(id, prepared, step, outcome, CallAnswer::Failed(error), now);
        }
        let job = self.job_mut(id);
        job.log(now.wall_ms, Level::Info, LogEntry::Text(format!("undo: {}", undo.text())));
        job.interruptions = 0;
        job.phase = Phase::Undoing { prepared, step, outcome };
        self.execute(CallId { job: id, step: format!("undo-{step}"), attempt: 1 }, undo, now);
    }

    /// An undo that fails is recorded and shown, and the undoing goes on.
    fn undo_answered(
        &mut self,
        id: u64,
        prepared: Box<Prepared>,
        step: usize,
        outcome: Outcome,
        answer: CallAnswer,
        now: Now,
    ) {
        match answer {
            CallAnswer::Done(_) => {
                if let StepKind::Undoable { undo } = &prepared.plan.steps[step].kind {
                    self.make_good(&undo.clone());
                }
            }
            CallAnswer::Failed(error) | CallAnswer::NotReached(error) => {
                if let StepKind::Undoable { undo } = &prepared.plan.steps[step].kind {
                    let job = self.job_mut(id);
                    let text = format!("undo failed: {}: {error}", undo.text());
                    job.log(now.wall_ms, Level::Error, LogEntry::Text(text));
                    job.failed_undos.push(FailedUndo { call: undo.clone(), error, made_good: false });
                    self.undone.insert(id);
                }
            }
        }
        match step.checked_sub(1) {
            Some(before) => self.start_undo(id, prepared, before, outcome, now),
            None => self.finish(id, outcome, Some(prepared), now),
        }
    }
}

impl Engine {
    /// Undos that failed and were not made good since.
    pub(super) fn undone_calls(&self) -> Vec<calls::Call> {
        let failed = self.undone.iter().flat_map(|id| &self.jobs[id].failed_undos);
        failed.filter(|failed| !failed.made_good).map(|failed| failed.call.clone()).collect()
    }

    /// A call that succeeded may have done what an earlier job's undo could not.
    fn make_good(&mut self, done: &calls::Call) {
        self.settle(|failed| done.makes_good(failed));
    }

    /// Failed undos of this kind need not be done any more.
    fn settle(&mut self, is_meant: impl Fn(&calls::Call) -> bool) {
        for id in self.undone.clone() {
            let open = |failed: &FailedUndo| !failed.made_good && is_meant(&failed.call);
            if !self.jobs[&id].failed_undos.iter().any(open) {
                continue;
            }
            let job = self.job_mut(id);
            for failed in job.failed_undos.iter_mut().filter(|failed| open(failed)) {
                failed.made_good = true;
            }
            if job.failed_undos.iter().all(|failed| failed.made_good) {
                self.undone.remove(&id);
            }
        }
    }
}

/// The cleanup that a call outside of its job's own phase was for.
fn retried_cleanup(call: &CallId) -> Option<CleanupId> {
    let index = call.step.strip_prefix("clean-")?.parse().ok()?;
    Some(CleanupId { job: call.job, index })
}
