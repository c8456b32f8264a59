//! A new engine over the records of an old one: every job that was not over goes on where it stood.

use std::collections::BTreeMap;

use super::{
    Awaited, CallId, Effect, Engine, ErrorKind, INTERRUPTIONS_MAX, Job, JobError, Level, LogEntry, Now,
    Outcome, Output, Phase, hooks_phase,
};
use crate::{hooks, model::Cluster, names::NodeName, ops::StepKind};

impl Engine {
    /// Rebuilds the engine. The calls that were going are sent again under the same ids: nodes answer those with the
    /// first answer, or join the run (HOOKS.md R8).
    pub fn recover(
        local: NodeName,
        cluster: Option<Cluster>,
        jobs: Vec<Job>,
        paused: bool,
        now: Now,
    ) -> (Self, Output) {
        let mut engine = Engine::new(local, cluster);
        engine.paused = paused;
        for job in jobs {
            let id = job.id();
            let (waiting, done, over) = (matches!(job.phase, Phase::Waiting), job.done(), job.over());
            let ending = job.is_ending();
            let (priority, locks) = (job.submission.priority.value(), job.submission.locks());
            if matches!(job.phase, Phase::Blocked { .. }) {
                engine.blocked.insert(id);
            }
            if job.failed_undos.iter().any(|failed| !failed.made_good) {
                engine.undone.insert(id);
            }
            engine.jobs.insert(id, job);
            engine.active += usize::from(!over);
            if !done && !waiting && !ending {
                engine.locks.request(id, priority, locks);
            }
        }
        // Holders first: their locks never conflicted, so all are granted at once.
        engine.locks.grant(usize::MAX);
        let alive: Vec<u64> = engine.jobs.values().filter(|job| !job.done()).map(Job::id).collect();
        for id in alive {
            if matches!(engine.jobs[&id].phase, Phase::Waiting) {
                engine.look_at_dependencies(id, now);
            } else {
                engine.resume(id, now);
            }
        }
        engine.start_ready(now);
        let output = std::mem::take(&mut engine.output);
        (engine, output)
    }

    fn resume(&mut self, id: u64, now: Now) {
        if self.jobs[&id].is_being_stopped() {
            return self.resume_kill(id, now);
        }
        if self.jobs[&id].is_ending() {
            // What still runs of its other phases ends with the greeting of its node. The nodes give their first answer
            // where they were asked before.
            self.goes_back |= self.gives_back(id);
            return self.tell_end(id, now);
        }
        let job = self.job_mut(id);
        job.interruptions += 1;
        let count = job.interruptions;
        let text = format!(
            "the master was restarted in phase {} ({count} of {INTERRUPTIONS_MAX})",
            job.phase.as_str()
        );
        job.log(now.wall_ms, Level::Warning, LogEntry::Text(text));
        let too_often = job.interrupted_too_often();
        match job.phase.clone() {
            Phase::PreHooks { prepared } => self.resume_hooks(id, &prepared, hooks::Phase::Pre, now),
            Phase::PostHooks { prepared } => {
                if too_often {
                    let text = "post hooks were interrupted too often: they are ended".to_owned();
                    self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(text));
                }
                self.resume_hooks(id, &prepared, hooks::Phase::Post, now);
            }
            Phase::Running { prepared, step, .. } => {
                if too_often && !super::steps::past_final(&prepared, step) {
                    // It may be going on still: it ends before anything else is done, also where there is nothing to undo.
                    return self.await_stop(id, step.to_string(), now);
                }
                let call = prepared.plan.steps[step].call.clone();
                self.execute(CallId { job: id, step: step.to_string(), attempt: 1 }, call, now);
            }
            Phase::Cleaning { prepared, index } => {
                let call = prepared.plan.cleanups[index].0.clone();
                self.execute(CallId { job: id, step: format!("clean-{index}"), attempt: 1 }, call, now);
            }
            Phase::Undoing { prepared, step, .. } => {
                if let StepKind::Undoable { undo } = &prepared.plan.steps[step].kind {
                    let undo = undo.clone();
                    self.execute(CallId { job: id, step: format!("undo-{step}"), attempt: 1 }, undo, now);
                }
            }
            Phase::Waiting | Phase::Blocked { .. } | Phase::Ending { .. } | Phase::Done { .. } => {}
        }
    }

    /// Asks all nodes of the phase again by call id; what they had answered before was not recorded. Where the job is
    /// canceled, or was interrupted too often, the scripts are told to end too, and the job holds its locks until they have.
    fn resume_hooks(&mut self, id: u64, prepared: &crate::ops::Prepared, phase: hooks::Phase, now: Now) {
        let nodes = self.hook_nodes(id, prepared, phase);
        for node in &nodes {
            let call = self.hooks_call(id, prepared, phase, node, 1);
            self.output.effects.push(Effect::RunHooks(Box::new(call)));
        }
        if self.jobs[&id].canceling || self.jobs[&id].interrupted_too_often() {
            self.end_hooks(id, hooks_phase::step_name(phase), nodes.clone());
        }
        let call = CallId { job: id, step: hooks_phase::step_name(phase).to_owned(), attempt: 1 };
        let attempts: BTreeMap<NodeName, u32> = nodes.into_iter().map(|node| (node, 1)).collect();
        let over = attempts.is_empty();
        self.awaited
            .insert(id, Awaited { call, nodes: attempts, reports: Vec::new(), since_ms: now.mono_ms });
        if over {
            self.hooks_done(id, now);
        }
    }
}

/// How a job ends that was interrupted too often.
pub(super) fn interrupted() -> Outcome {
    Outcome::Error(JobError {
        kind: ErrorKind::Interrupted,
        message: format!("the master was restarted {INTERRUPTIONS_MAX} times in the same place"),
        objections: Vec::new(),
    })
}
