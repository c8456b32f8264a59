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
    pub fn recover(local: NodeName, cluster: Option<Cluster>, jobs: Vec<Job>, now: Now) -> (Self, Output) {
        let mut engine = Engine::new(local, cluster);
        for job in jobs {
            let id = job.id();
            let (waiting, done) = (matches!(job.phase, Phase::Waiting), job.done());
            let locks = job.submission.op.locks();
            if job.failed_undos.iter().any(|failed| !failed.made_good) {
                engine.undone.insert(id);
            }
            engine.jobs.insert(id, job);
            if !done {
                engine.active += 1;
                if !waiting {
                    engine.locks.request(id, locks);
                }
            }
        }
        // Holders first: their locks never conflicted, so all are granted at once.
        engine.locks.grant(usize::MAX);
        let alive: Vec<u64> = engine.alive().collect();
        for id in alive {
            if matches!(engine.jobs[&id].phase, Phase::Waiting) {
                engine.waiting_since.insert(id, now.mono_ms);
                let locks = engine.jobs[&id].submission.op.locks();
                engine.locks.request(id, locks);
            } else {
                engine.resume(id, now);
            }
        }
        engine.start_ready(now);
        let output = std::mem::take(&mut engine.output);
        (engine, output)
    }

    fn resume(&mut self, id: u64, now: Now) {
        let job = self.job_mut(id);
        job.interruptions += 1;
        let count = job.interruptions;
        let text = format!(
            "the master was restarted in phase {} ({count} of {INTERRUPTIONS_MAX})",
            job.phase.as_str()
        );
        job.log(now.wall_ms, Level::Warning, LogEntry::Text(text));
        let too_often = count >= INTERRUPTIONS_MAX;
        match job.phase.clone() {
            Phase::PreHooks { prepared } => {
                if too_often {
                    self.output.effects.push(Effect::EndJob { job: id, nodes: prepared.nodes.pre.clone() });
                    return self.finish(id, interrupted(), Some(prepared), now);
                }
                self.resume_hooks(id, &prepared, hooks::Phase::Pre, now);
            }
            Phase::PostHooks { prepared } => {
                if too_often {
                    let text = "post hooks were interrupted too often: their results are unknown".to_owned();
                    self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(text));
                    self.output.effects.push(Effect::EndJob { job: id, nodes: prepared.nodes.post.clone() });
                    return self.finish(id, Outcome::Success, Some(prepared), now);
                }
                self.resume_hooks(id, &prepared, hooks::Phase::Post, now);
            }
            Phase::Running { prepared, step, .. } => {
                if too_often && !super::steps::past_final(&prepared, step) {
                    return self.start_undo(id, prepared, step, interrupted(), now);
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
            Phase::Waiting | Phase::Done { .. } => {}
        }
    }

    /// Asks all nodes of the phase again by call id; what they had answered before was not recorded.
    fn resume_hooks(&mut self, id: u64, prepared: &crate::ops::Prepared, phase: hooks::Phase, now: Now) {
        let nodes = self.hook_nodes(prepared, phase);
        for node in &nodes {
            let call = self.hooks_call(id, prepared, phase, node, 1);
            self.output.effects.push(Effect::RunHooks(Box::new(call)));
        }
        if self.jobs[&id].canceling {
            self.output.effects.push(Effect::EndJob { job: id, nodes: nodes.clone() });
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

fn interrupted() -> Outcome {
    Outcome::Error(JobError {
        kind: ErrorKind::Interrupted,
        message: format!("the master was restarted {INTERRUPTIONS_MAX} times in the same place"),
        objections: Vec::new(),
    })
}
