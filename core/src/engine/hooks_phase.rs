//! A phase of hooks: all nodes at once, folded when the last has answered.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Awaited, CallId, Effect, Engine, ErrorKind, GlobalRun, HooksCall, JobError, Level, LogEntry, Now,
    Outcome, PRE_ATTEMPTS_MAX, Phase, ending::END_STEP, recover::interrupted,
};
use crate::{
    hooks::{self, Class, ExitCodes, NodeAnswer, NodeReport, Rules, bound_output, fold_post, fold_pre},
    names::NodeName,
    ops::{GLOBAL_PREFIX, Op, Prepared},
};

impl Engine {
    /// Begins a phase on all of its nodes; one without nodes or hooks is over at once.
    pub(super) fn start_hooks(&mut self, id: u64, prepared: Box<Prepared>, phase: hooks::Phase, now: Now) {
        let nodes = self.hook_nodes(id, &prepared, phase);
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
            hooks::Phase::Post | hooks::Phase::Failed => Phase::PostHooks { prepared },
        };
        if nodes.is_empty() {
            self.hooks_done(id, now);
        }
    }

    /// The phase's nodes. In pre the master's own is one of them, where the operation can be denied: it runs the global
    /// directory.
    pub(super) fn hook_nodes(&self, id: u64, prepared: &Prepared, phase: hooks::Phase) -> Vec<NodeName> {
        let mut nodes = self.own_nodes(prepared, phase);
        let is_asked = phase == hooks::Phase::Pre && self.jobs[&id].submission.op.asks_global_scripts();
        if is_asked && !nodes.contains(&self.local) {
            nodes.push(self.local.clone());
            nodes.sort();
        }
        nodes
    }

    /// The nodes that run the operation's own directory; one marked offline since the sets were computed is left out
    /// (HOOKS.md R6).
    pub(super) fn own_nodes(&self, prepared: &Prepared, phase: hooks::Phase) -> Vec<NodeName> {
        if prepared.hook_prefix.is_none() {
            return Vec::new();
        }
        let set = match phase {
            hooks::Phase::Pre => &prepared.nodes.pre,
            hooks::Phase::Post | hooks::Phase::Failed => &prepared.nodes.post,
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
        let job = &self.jobs[&id];
        let is_pre = phase == hooks::Phase::Pre;
        let own = prepared.hook_prefix.as_ref().filter(|_| !is_pre || prepared.nodes.pre.contains(node));
        let prefix = own.cloned().unwrap_or_default();
        let env = match &job.global_env {
            Some(env) => env.clone().set("HOOKS_PHASE", prepared.policy.version.phase(phase)),
            None => prepared.env_in(phase),
        };
        let is_told = prepared.policy.version.tells_of_job(phase);
        let (after, files) = if is_told { job.facts_after(Some(prepared)) } else { Default::default() };
        HooksCall {
            id: CallId { job: id, step: step_name(phase).to_owned(), attempt },
            node: node.clone(),
            phase,
            env: env.with(after),
            policy: prepared.policy.of(&phase.directory(&prefix)),
            prefix,
            probe: !is_pre && silent(&job.pre),
            global: (is_pre && *node == self.local).then(|| GlobalRun::new(phase, &prepared.policy)),
            files,
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
        if let (true, NodeAnswer::Answered(result)) = (report.node == self.local, &report.answer)
            && call.step == step_name(hooks::Phase::Pre)
        {
            let is_absent = result.global_post_absent;
            self.job_mut(call.job).global_post_absent = is_absent;
        }
        let awaited = self.awaited.get_mut(&call.job).expect("just seen");
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
                let verdict =
                    fold_pre(&rules(&prepared, hooks::Phase::Pre, &local), &local, &awaited.reports);
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
                let own = hooks::Phase::Post.directory(prepared.hook_prefix.as_deref().unwrap_or_default());
                for (class, text) in
                    fold_post(&rules(&prepared, hooks::Phase::Post, &local), &awaited.reports)
                {
                    let level = match (class, prepared.policy.of(&own).exit_codes) {
                        (Class::Success, ExitCodes::Strict) => Level::Info,
                        (Class::Success, ExitCodes::Graded) => Level::Debug,
                        (Class::Warning | Class::Error, _) => Level::Warning,
                    };
                    job.log(now.wall_ms, level, LogEntry::Text(text));
                }
                let outcome = post_outcome(&job.submission.op, &prepared, &local, &awaited.reports);
                job.post = awaited.reports;
                self.finish(id, outcome, Some(prepared), now);
            }
            phase @ Phase::Ending { .. } => {
                job.phase = phase;
                self.end_told(id, awaited.reports, duration_ms, now);
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
            self.tell_follow_ups(id, &prepared, now);
            let text = "dry run: the operation would go ahead; nothing was changed".to_owned();
            self.job_mut(id).log(now.wall_ms, Level::Info, LogEntry::Text(text));
            return self.finish(id, Outcome::Success, Some(prepared), now);
        } else {
            return self.run_step(id, prepared, 0, Vec::new(), now);
        };
        self.finish(id, Outcome::Error(error), Some(prepared), now);
    }
}

/// What post scripts make of an operation: nothing, but for a verification, of which they are a part (HOOKS.md R7). A node
/// out of reach is a warning there too.
fn post_outcome(op: &Op, prepared: &Prepared, local: &NodeName, reports: &[NodeReport]) -> Outcome {
    let is_part = matches!(op, Op::ClusterVerify(_));
    let objections = match is_part {
        true => fold_pre(&rules(prepared, hooks::Phase::Post, local), local, reports).objections,
        false => Vec::new(),
    };
    let nodes: BTreeSet<&str> = objections.iter().map(|objection| objection.node.as_str()).collect();
    if nodes.is_empty() {
        return Outcome::Success;
    }
    let message = format!("the site's own checks failed on {}", Vec::from_iter(nodes).join(", "));
    Outcome::Error(JobError { kind: ErrorKind::Failed, message, objections })
}

pub(super) fn step_name(phase: hooks::Phase) -> &'static str {
    match phase {
        hooks::Phase::Pre => "pre",
        hooks::Phase::Post => "post",
        hooks::Phase::Failed => END_STEP,
    }
}

/// What results mean in a phase of an operation. Where the master's node is not in the set it is asked for its global scripts
/// alone: where it is silent the operation goes on, with a warning, since R5 speaks of nodes that are in the set, and since
/// nothing could be repaired or changed otherwise while that node's daemon is down.
fn rules(prepared: &Prepared, phase: hooks::Phase, local: &NodeName) -> Rules {
    let global = phase.directory(GLOBAL_PREFIX);
    let is_outside = phase == hooks::Phase::Pre && !prepared.nodes.pre.contains(local);
    match &prepared.hook_prefix {
        Some(own) if is_outside => {
            Rules::new(&prepared.policy, &phase.directory(own), &global).without_master()
        }
        Some(own) => Rules::new(&prepared.policy, &phase.directory(own), &global),
        None => Rules::global_alone(&prepared.policy, &global),
    }
}

pub(super) fn log_phase(
    job: &mut super::Job,
    phase: hooks::Phase,
    reports: &[NodeReport],
    duration_ms: u64,
    now: Now,
) {
    if reports.is_empty() {
        return;
    }
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let scripts = reports.iter().map(|report| report.scripts().len()).sum();
    let entry = LogEntry::Hooks { phase, nodes: count(reports.len()), scripts: count(scripts), duration_ms };
    job.log(now.wall_ms, Level::Info, entry);
}
