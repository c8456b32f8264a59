//! A phase of hooks: all nodes at once, folded when the last has answered.

use std::collections::BTreeMap;

use super::{
    Awaited, CallId, Effect, Engine, ErrorKind, HooksCall, JobError, Level, LogEntry, Now, Outcome,
    PRE_ATTEMPTS_MAX, Phase, recover::interrupted,
};
use crate::{
    hooks::{self, Class, ExitCodes, NodeAnswer, NodeReport, bound_output, fold_post, fold_pre},
    names::NodeName,
    ops::Prepared,
};

impl Engine {
    /// Begins a phase on all of its nodes; one without nodes or hooks is over at once.
    pub(super) fn start_hooks(&mut self, id: u64, prepared: Box<Prepared>, phase: hooks::Phase, now: Now) {
        let nodes = self.hook_nodes(&prepared, phase);
        let attempts: BTreeMap<NodeName, u32> = nodes.iter().map(|node| (node.clone(), 1)).collect();
        for node in &nodes {
            let call = self.hooks_call(id, &prepared, phase, node, 1);
            self.output.effects.push(Effect::RunHooks(Box::new(call)));
        }
        let step = step_name(phase).to_owned();
        let call = CallId { job: id, step, attempt: 1 };
        self.awaited
            .insert(id, Awaited { call, nodes: attempts, reports: Vec::new(), since_ms: now.mono_ms });
        let job = self.job_mut(id);
        job.interruptions = 0;
        job.phase = match phase {
            hooks::Phase::Pre => Phase::PreHooks { prepared },
            hooks::Phase::Post => Phase::PostHooks { prepared },
        };
        if nodes.is_empty() {
            self.hooks_done(id, now);
        }
    }

    /// The phase's nodes; one marked offline since the sets were computed is left out (HOOKS.md R6).
    pub(super) fn hook_nodes(&self, prepared: &Prepared, phase: hooks::Phase) -> Vec<NodeName> {
        if prepared.hook_prefix.is_none() {
            return Vec::new();
        }
        let set = match phase {
            hooks::Phase::Pre => &prepared.nodes.pre,
            hooks::Phase::Post => &prepared.nodes.post,
        };
        let offline = |name: &NodeName| {
            self.cluster.as_ref().and_then(|c| c.nodes.get(name)).is_some_and(|node| node.offline)
        };
        set.iter().filter(|name| !offline(name)).cloned().collect()
    }

    /// One node's call.
    pub(super) fn hooks_call(
        &self,
        id: u64,
        prepared: &Prepared,
        phase: hooks::Phase,
        node: &NodeName,
        attempt: u32,
    ) -> HooksCall {
        let silent = |reports: &[NodeReport]| {
            reports.iter().any(|r| r.node == *node && matches!(r.answer, NodeAnswer::NotReached { .. }))
        };
        HooksCall {
            id: CallId { job: id, step: step_name(phase).to_owned(), attempt },
            node: node.clone(),
            phase,
            prefix: prepared.hook_prefix.clone().expect("only operations with hooks call them"),
            env: prepared.env_in(phase),
            policy: prepared.policy.clone(),
            probe: phase == hooks::Phase::Post && silent(&self.jobs[&id].pre),
        }
    }

    pub(super) fn hooks_answered(&mut self, call: &CallId, report: NodeReport, now: Now) {
        if !self.awaits(call) {
            self.stale_answers += 1;
            return;
        }
        let awaited = self.awaited.get_mut(&call.job).expect("just seen");
        match awaited.nodes.get_mut(&report.node) {
            Some(attempt) if *attempt == call.attempt => {
                // R8: a run that its node lost track of is repeated, with the same environment.
                let is_wanted = self.jobs.get(&call.job).is_some_and(|job| !job.interrupted_too_often());
                let repeats = is_wanted && *attempt < PRE_ATTEMPTS_MAX && call.step == "pre";
                if report.answer == NodeAnswer::Lost && repeats {
                    *attempt += 1;
                    let attempt = *attempt;
                    self.repeat_pre(call.job, &report.node, attempt);
                    return;
                }
                awaited.nodes.remove(&report.node);
            }
            Some(_) | None => {
                self.stale_answers += 1;
                return;
            }
        }
        awaited.reports.push(report);
        if awaited.nodes.is_empty() {
            self.hooks_done(call.job, now);
        }
    }

    fn repeat_pre(&mut self, id: u64, node: &NodeName, attempt: u32) {
        let Phase::PreHooks { prepared } = &self.jobs[&id].phase else { return };
        let call = self.hooks_call(id, prepared, hooks::Phase::Pre, node, attempt);
        self.output.effects.push(Effect::RunHooks(Box::new(call)));
    }

    /// Every node of the phase has answered.
    pub(super) fn hooks_done(&mut self, id: u64, now: Now) {
        let mut awaited = self.awaited.remove(&id).expect("a phase of hooks awaits its nodes");
        awaited.reports.sort_by(|a, b| a.node.cmp(&b.node));
        let duration_ms = now.mono_ms.saturating_sub(awaited.since_ms);
        let local = self.local.clone();
        let job = self.job_mut(id);
        match std::mem::replace(&mut job.phase, Phase::Waiting) {
            Phase::PreHooks { prepared } => {
                bound_output(&prepared.policy, &mut awaited.reports);
                let verdict = fold_pre(&prepared.policy, &local, &awaited.reports);
                job.timings.pre_ms = Some(duration_ms);
                log_phase(job, hooks::Phase::Pre, &awaited.reports, duration_ms, now);
                for warning in &verdict.warnings {
                    job.log(now.wall_ms, Level::Warning, LogEntry::Text(warning.clone()));
                }
                job.pre = awaited.reports;
                self.pre_done(id, prepared, verdict, now);
            }
            Phase::PostHooks { prepared } => {
                job.timings.post_ms = Some(duration_ms);
                log_phase(job, hooks::Phase::Post, &awaited.reports, duration_ms, now);
                bound_output(&prepared.policy, &mut awaited.reports);
                for (class, text) in fold_post(&prepared.policy, &awaited.reports) {
                    let level = match (class, prepared.policy.exit_codes) {
                        (Class::Success, ExitCodes::Strict) => Level::Info,
                        (Class::Success, ExitCodes::Graded) => Level::Debug,
                        (Class::Warning | Class::Error, _) => Level::Warning,
                    };
                    job.log(now.wall_ms, level, LogEntry::Text(text));
                }
                job.post = awaited.reports;
                self.finish(id, Outcome::Success, Some(prepared), now);
            }
            other @ (Phase::Waiting
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::Undoing { .. }
            | Phase::Blocked { .. }
            | Phase::Done { .. }) => unreachable!("job {id} ends its hooks in {other:?}"),
        }
    }

    fn pre_done(&mut self, id: u64, prepared: Box<Prepared>, verdict: hooks::Verdict, now: Now) {
        let job = &self.jobs[&id];
        let (canceled, dry_run) = (job.canceling, job.submission.dry_run);
        let error = if canceled {
            return self.finish(id, Outcome::Canceled, Some(prepared), now);
        } else if job.interrupted_too_often() {
            return self.finish(id, interrupted(), Some(prepared), now);
        } else if !verdict.objections.is_empty() {
            let nodes: std::collections::BTreeSet<&str> =
                verdict.objections.iter().map(|objection| objection.node.as_str()).collect();
            let nodes: Vec<&str> = nodes.into_iter().collect();
            let message = format!("denied by hooks on {}", nodes.join(", "));
            JobError { kind: ErrorKind::Denied, message, objections: verdict.objections }
        } else if let Some(message) = verdict.master_unasked {
            JobError { kind: ErrorKind::Failed, message, objections: Vec::new() }
        } else if dry_run {
            let text = "dry run: the operation would go ahead; nothing was changed".to_owned();
            self.job_mut(id).log(now.wall_ms, Level::Info, LogEntry::Text(text));
            return self.finish(id, Outcome::Success, Some(prepared), now);
        } else {
            return self.run_step(id, prepared, 0, Vec::new(), now);
        };
        self.finish(id, Outcome::Error(error), Some(prepared), now);
    }
}

pub(super) fn step_name(phase: hooks::Phase) -> &'static str {
    match phase {
        hooks::Phase::Pre => "pre",
        hooks::Phase::Post => "post",
    }
}

fn log_phase(job: &mut super::Job, phase: hooks::Phase, reports: &[NodeReport], duration_ms: u64, now: Now) {
    if reports.is_empty() {
        return;
    }
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let scripts = reports.iter().map(|report| report.scripts().len()).sum();
    let entry = LogEntry::Hooks { phase, nodes: count(reports.len()), scripts: count(scripts), duration_ms };
    job.log(now.wall_ms, Level::Info, entry);
}
