//! `gnt-job cancel --kill`: a job's scripts and calls are ended where they run, and nothing of it starts any more.
//!
//! In a phase of hooks the job is over at once. In a step it is over when the node confirms the end of the call, or says
//! that it never began; what was done is undone then. A node that confirms nothing within 20 s leaves the job blocked: over
//! for those who wait for it, its locks held, until the node answers or an operator gives it up.

use super::{
    Awaited, CallId, Effect, Engine, FailedUndo, Level, LogEntry, Now, Outcome, Phase,
    hooks_phase::step_name, steps::past_final,
};
use crate::{
    calls::{Call, CallAnswer},
    hooks::{self, bound_output},
    model::CleanupId,
    ops::{Prepared, StepKind},
};

impl Engine {
    /// Why a kill would do nothing, or `None` when it would do something.
    pub fn kill_refused(&self, id: u64) -> Option<String> {
        let job = self.jobs.get(&id)?;
        match &job.phase {
            Phase::Blocked { .. } => Some(format!(
                "job {id} is killed, and blocked until its node confirms it: run `gnt-job repair {id}` to give it up"
            )),
            Phase::Done { .. } => Some(format!("job {id} is over already")),
            Phase::Running { prepared, step, .. } if past_final(prepared, *step) => {
                Some(format!("job {id} is past its final step: it can only go forward"))
            }
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Undoing { .. }
            | Phase::Ending { .. }
                if job.is_being_stopped() =>
            {
                Some(format!("job {id} is being killed already"))
            }
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Undoing { .. }
            | Phase::Ending { .. } => None,
        }
    }

    pub(super) fn kill(&mut self, id: u64, now: Now) {
        if !self.jobs.contains_key(&id) || self.kill_refused(id).is_some() {
            return;
        }
        let job = self.job_mut(id);
        job.log(now.wall_ms, Level::Warning, LogEntry::Text("kill asked for".to_owned()));
        if matches!(job.phase, Phase::Ending { .. }) {
            // How the job ends is settled: only the scripts that are told so are ended.
            return self.kill_end(id, now);
        }
        job.killed = true;
        job.canceling = true;
        match job.phase.clone() {
            Phase::Waiting => self.finish(id, Outcome::Canceled, None, now),
            Phase::PreHooks { prepared } => self.kill_hooks(id, hooks::Phase::Pre, prepared, now),
            Phase::PostHooks { prepared } => self.kill_hooks(id, hooks::Phase::Post, prepared, now),
            Phase::Running { .. } => self.stop_call(id),
            Phase::Undoing { prepared, step, outcome } => {
                if let Outcome::Error(error) = outcome {
                    let text = format!("{}: {}", error.kind.as_str(), error.message);
                    self.job_mut(id).log(now.wall_ms, Level::Error, LogEntry::Text(text));
                }
                self.job_mut(id).killed_undo = Some(step);
                self.job_mut(id).phase = Phase::Undoing { prepared, step, outcome: Outcome::Canceled };
                self.stop_call(id);
            }
            Phase::Cleaning { prepared, index } => self.kill_cleanup(id, prepared, index, now),
            Phase::Blocked { .. } | Phase::Ending { .. } | Phase::Done { .. } => {}
        }
    }

    /// A restart goes on with a kill where it stood: in a call that was told to end. The undo of a killed job is no such.
    pub(super) fn resume_kill(&mut self, id: u64, now: Now) {
        let (step, blocked) = match &self.jobs[&id].phase {
            Phase::Running { step, .. } => (step.to_string(), false),
            Phase::Undoing { step, .. } => (format!("undo-{step}"), false),
            Phase::Blocked { step, .. } => (step.to_string(), true),
            // A kill ends these phases with the input that asks for it.
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Ending { .. }
            | Phase::Done { .. } => unreachable!("job {id} was killed and did not end"),
        };
        if !blocked {
            let text = "the master was restarted while the job was being killed".to_owned();
            self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(text));
        }
        self.await_stop(id, step, now);
    }

    /// After a restart: asks for the end of a call that an earlier master sent, and awaits it.
    pub(super) fn await_stop(&mut self, id: u64, step: String, now: Now) {
        let call = CallId { job: id, step, attempt: 1 };
        let awaited = Awaited { call, nodes: Default::default(), reports: Vec::new(), since_ms: now.mono_ms };
        self.awaited.insert(id, awaited);
        self.stop_call(id);
    }

    /// Asks for the end of the call that is awaited.
    pub(super) fn stop_call(&mut self, id: u64) {
        let call = match &self.jobs[&id].phase {
            Phase::Running { prepared, step, .. } | Phase::Blocked { prepared, step } => {
                Some(prepared.plan.steps[*step].call.clone())
            }
            Phase::Undoing { prepared, step, .. } => match &prepared.plan.steps[*step].kind {
                StepKind::Undoable { undo } => Some(undo.clone()),
                StepKind::Harmless
                | StepKind::Relies { .. }
                | StepKind::Optional { .. }
                | StepKind::Kept
                | StepKind::Final => None,
            },
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Ending { .. }
            | Phase::Done { .. } => None,
        };
        if let (Some(call), Some(awaited)) = (call, self.awaited.get(&id)) {
            self.output.effects.push(Effect::StopCall { id: awaited.call.clone(), call });
        }
    }

    /// The scripts are told to end, and the job does not wait for it.
    fn kill_hooks(&mut self, id: u64, phase: hooks::Phase, prepared: Box<Prepared>, now: Now) {
        let mut reports = self.awaited.remove(&id).map(|awaited| awaited.reports).unwrap_or_default();
        bound_output(&prepared.policy, &mut reports);
        let nodes = self.hook_nodes(id, &prepared, phase);
        let job = self.job_mut(id);
        match phase {
            hooks::Phase::Pre => job.pre = reports,
            hooks::Phase::Post | hooks::Phase::Failed => {
                job.post = reports;
                let text = "killed in its post phase: what the operation did stays".to_owned();
                job.log(now.wall_ms, Level::Warning, LogEntry::Text(text));
            }
        }
        if !nodes.is_empty() {
            self.end_hooks(id, step_name(phase), nodes);
        }
        self.finish(id, Outcome::Canceled, Some(prepared), now);
    }

    /// What was to be destroyed stays recorded, and is tried again outside of the job.
    fn kill_cleanup(&mut self, id: u64, prepared: Box<Prepared>, index: usize, now: Now) {
        let cleanup = CleanupId { job: id, index: u32::try_from(index).unwrap_or(u32::MAX) };
        self.cleanup_answered(cleanup, CallAnswer::Failed("its job was killed".to_owned()));
        if let Some((Call::Node(node, _), _)) = prepared.plan.cleanups.get(index) {
            let nodes = vec![node.clone()];
            let calls = self.awaited.get(&id).map(|awaited| awaited.call.clone()).into_iter().collect();
            self.output.effects.push(Effect::EndJob { job: id, nodes, calls });
        }
        let text = "killed while it destroyed what it replaced: what the operation did stays".to_owned();
        self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(text));
        self.finish(id, Outcome::Canceled, Some(prepared), now);
    }

    /// The call of a killed job's step has ended, or nobody can tell.
    pub(super) fn killed_step_answered(
        &mut self,
        id: u64,
        prepared: Box<Prepared>,
        step: usize,
        answer: CallAnswer,
        now: Now,
    ) {
        match answer {
            CallAnswer::Done(_) | CallAnswer::Failed(_) => {
                self.start_undo(id, prepared, step, Outcome::Canceled, now);
            }
            CallAnswer::NotReached(why) => {
                let call = &prepared.plan.steps[step].call;
                let place = call.node().map(|node| format!(" on {node}")).unwrap_or_default();
                let text = format!(
                    "blocked: nobody confirms the end of: {}{place}: {why}; its locks are held until the node answers or \
                     `gnt-job repair {id}`",
                    call.text()
                );
                let job = self.job_mut(id);
                job.log(now.wall_ms, Level::Error, LogEntry::Text(text));
                job.phase = Phase::Blocked { prepared, step };
                self.blocked.insert(id);
                // The answer may still come.
                self.awaited.entry(id).or_insert_with(|| Awaited {
                    call: CallId { job: id, step: step.to_string(), attempt: 1 },
                    nodes: Default::default(),
                    reports: Vec::new(),
                    since_ms: now.mono_ms,
                });
                self.is_over(id, now);
            }
        }
    }

    /// A blocked job's node has answered, or not yet.
    pub(super) fn blocked_answered(
        &mut self,
        id: u64,
        prepared: Box<Prepared>,
        step: usize,
        answer: CallAnswer,
        now: Now,
    ) {
        match answer {
            CallAnswer::NotReached(_) => self.job_mut(id).phase = Phase::Blocked { prepared, step },
            CallAnswer::Done(_) | CallAnswer::Failed(_) => {
                self.blocked.remove(&id);
                self.awaited.remove(&id);
                let text = "the node has answered: what was done is undone now".to_owned();
                self.job_mut(id).log(now.wall_ms, Level::Info, LogEntry::Text(text));
                self.start_undo(id, prepared, step, Outcome::Canceled, now);
            }
        }
    }

    /// Frees the locks of a blocked job; what it did and could not undo is recorded as failed undos.
    pub(super) fn give_up(&mut self, id: u64, now: Now) {
        let Some(Phase::Blocked { prepared, step }) = self.jobs.get(&id).map(|job| job.phase.clone()) else {
            return;
        };
        self.blocked.remove(&id);
        let steps = prepared.plan.steps[..=step].iter().rev();
        let undos = steps.filter_map(|step| match &step.kind {
            StepKind::Undoable { undo } => Some(undo.clone()),
            StepKind::Harmless
            | StepKind::Relies { .. }
            | StepKind::Optional { .. }
            | StepKind::Kept
            | StepKind::Final => None,
        });
        let error =
            format!("not tried: nobody confirmed the end of: {}", prepared.plan.steps[step].call.text());
        let failed: Vec<FailedUndo> =
            undos.map(|call| FailedUndo { call, error: error.clone(), made_good: false }).collect();
        let job = self.job_mut(id);
        job.log(now.wall_ms, Level::Warning, LogEntry::Text("given up by an operator".to_owned()));
        if !failed.is_empty() {
            job.failed_undos.extend(failed);
            self.undone.insert(id);
        }
        self.finish(id, Outcome::Canceled, Some(prepared), now);
    }

    /// What a job's failed undos would have done and nothing has done since.
    pub fn undone_by(&self, id: u64) -> Vec<Call> {
        let failed = self.jobs.get(&id).into_iter().flat_map(|job| &job.failed_undos);
        failed.filter(|failed| !failed.made_good).map(|failed| failed.call.clone()).collect()
    }
}

impl super::Job {
    /// Whether a kill has told the present call to end, or ends the present phase.
    pub(super) fn is_being_stopped(&self) -> bool {
        let is_undone = match &self.phase {
            Phase::Undoing { step, .. } => self.killed_undo != Some(*step),
            Phase::Ending { .. } => true,
            Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Blocked { .. }
            | Phase::Done { .. } => false,
        };
        self.killed && !is_undone
    }
}
