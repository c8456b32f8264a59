//! The end of a job: its locks are free, and the scripts that hear of every end are told.
//!
//! An operation that was denied or failed runs `PREFIX-failed.d` on the nodes that were asked before; every job runs
//! `global-post.d` on the master. What these scripts are told is drawn up once and recorded with the phase, so a restarted
//! master makes the same calls under the same ids, and the nodes answer them with the first answer.
//!
//! Those who wait for the job are told when this is over, as with post scripts. They are told before it where the job was
//! killed, or never began, or where the master's own node is silent: nobody should wait for that.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Awaited, CallId, Effect, Engine, ErrorKind, GlobalRun, HooksCall, Job, JobError, Level, LogEntry, Now,
    Outcome, Phase, hooks_phase::log_phase,
};
use crate::{
    calls::{Call, MasterCall},
    hooks::{
        self, Class, Env, HookPolicy, NodeAnswer, NodeReport, Objection, Rules, bound_output, fold_post,
        moment_text,
    },
    names::NodeName,
    ops::{GLOBAL_PREFIX, JobFacts, Op, Prepared, job_env},
};

/// Jobs that may be at their end at once, those aside that are over already for whoever waits for them: while there are so
/// many no other begins. They hold no locks, so this bounds nothing but the scripts that run.
pub const ENDING_MAX: usize = 100;
/// The step of a call at a job's end.
pub const END_STEP: &str = "end";
/// Most that scripts are told of an error, in bytes.
const ERROR_BYTES_MAX: usize = 256 * 1024;

/// How a job ended, as global scripts see it.
pub(super) fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Canceled => "canceled",
        Outcome::Error(error) => match error.kind {
            ErrorKind::Refused | ErrorKind::Denied | ErrorKind::Failed => "error",
            // Its master died too often to carry it on.
            ErrorKind::Interrupted => "disappeared",
        },
    }
}

/// The nodes on which calls were made.
fn nodes_of<'a>(calls: impl Iterator<Item = &'a Call>) -> BTreeSet<NodeName> {
    let mut nodes = BTreeSet::new();
    for call in calls {
        nodes.extend(call.node().cloned());
        if let Call::Master(MasterCall::CopyImage { to_node, .. }) = call {
            nodes.insert(to_node.clone());
        }
    }
    nodes
}

impl Job {
    /// What scripts after the operation are told of the job: variables, and the contents of files that each node makes.
    pub(super) fn facts_after(&self, prepared: Option<&Prepared>) -> (Env, BTreeMap<String, String>) {
        let steps =
            prepared.into_iter().flat_map(|prepared| prepared.plan.steps.iter().take(self.steps_begun));
        let nodes = nodes_of(steps.map(|step| &step.call));
        let env = Env::new()
            .optional("JOB_STARTED", self.started_ms.map(moment_text))
            .optional("JOB_ENDED", self.worked_ms.map(moment_text))
            .set("POST_NODES_COUNT", nodes.len().to_string());
        let names: String = nodes.iter().map(|node| format!("{node}\n")).collect();
        (env, [("POST_NODES_PATH".to_owned(), names)].into())
    }

    /// What scripts at the job's end see of the operation: the state afterwards where it was committed, also when the job
    /// was killed after that.
    pub(super) fn env_at_end(&self, prepared: &Prepared) -> Env {
        match (&self.global_env, self.committed) {
            (Some(env), true) => env.clone().set("MASTER", prepared.master_post.as_str()),
            (Some(env), false) => env.clone(),
            (None, true) => prepared.env_in(hooks::Phase::Post),
            (None, false) => prepared.env_in(hooks::Phase::Pre),
        }
    }

    /// The nodes on which the operation made calls.
    pub fn nodes_worked_on(&self) -> BTreeSet<NodeName> {
        let prepared = self.prepared();
        let steps =
            prepared.into_iter().flat_map(|prepared| prepared.plan.steps.iter().take(self.steps_begun));
        nodes_of(steps.map(|step| &step.call))
    }

    /// The job's facts for environments.
    pub(super) fn facts(&self) -> JobFacts<'_> {
        let submission = &self.submission;
        JobFacts {
            id: submission.id,
            user: &submission.user,
            reason: &submission.reason,
            dry_run: submission.dry_run,
        }
    }
}

impl JobError {
    /// The whole of it, for people: the message, then each objection with the script's output.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.kind.as_str(), self.message);
        for Objection { node, script, reason } in &self.objections {
            if let Some(script) = script {
                text.push_str(&script.line(node));
                text.push('\n');
                for stream in [&script.stdout, &script.stderr] {
                    let output = stream.visible();
                    text.push_str(&output);
                    text.push_str(if output.is_empty() || output.ends_with('\n') { "" } else { "\n" });
                }
            }
            if let Some(reason) = reason {
                text.push_str(&format!("{node}: {reason}\n"));
            }
            if text.len() > ERROR_BYTES_MAX {
                let end = (0..=ERROR_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
                text.truncate(end.unwrap_or_default());
                text.push_str("\n[cut]\n");
                break;
            }
        }
        text
    }
}

impl Engine {
    /// The job has done what it will do: its locks are free, and who hears of every end is told.
    pub(super) fn finish(&mut self, id: u64, outcome: Outcome, prepared: Option<Box<Prepared>>, now: Now) {
        self.locks.release(id);
        self.awaited.remove(&id);
        self.end_silent(id);
        self.goes_back |= self.gives_back(id);
        let job = self.job_mut(id);
        job.worked_ms.get_or_insert(now.wall_ms);
        let failed_on = self.failed_on(&outcome, prepared.as_deref());
        let env = self.end_env(id, &outcome, prepared.as_deref());
        let (_, mut files) = self.jobs[&id].facts_after(prepared.as_deref());
        if let Outcome::Error(error) = &outcome {
            files.insert("ERROR_MESSAGE_PATH".to_owned(), error.text());
        }
        let told_first = self.is_told_first(id);
        let policy = prepared.as_ref().map(|prepared| &prepared.policy);
        let policy =
            policy.or(self.cluster.as_ref().map(|cluster| &cluster.hooks)).cloned().unwrap_or_default();
        self.job_mut(id).phase = Phase::Ending { outcome, prepared, env, files, failed_on, policy };
        if told_first {
            self.is_over(id, now);
        }
        self.tell_end(id, now);
    }

    /// Whether the job is a failover that did not make this node the master: the office goes back when it is over.
    pub(super) fn gives_back(&self, id: u64) -> bool {
        let job = &self.jobs[&id];
        let is_elsewhere = self.cluster.as_ref().is_some_and(|cluster| cluster.master != self.local);
        matches!(job.submission.op, Op::MasterFailover(_)) && !job.committed && is_elsewhere
    }

    fn is_told_first(&self, id: u64) -> bool {
        let job = &self.jobs[&id];
        let silent = |report: &NodeReport| {
            report.node == self.local && matches!(report.answer, NodeAnswer::NotReached { .. })
        };
        job.killed || job.started_ms.is_none() || job.pre.iter().any(silent)
    }

    /// The nodes that hear of the operation's failure: those that were asked.
    fn failed_on(&self, outcome: &Outcome, prepared: Option<&Prepared>) -> Vec<NodeName> {
        match (outcome, prepared) {
            // Nobody was asked before an operation with hooks after it alone: its failure is told here.
            (Outcome::Error(_), Some(prepared)) if prepared.nodes.pre.is_empty() => {
                prepared.hook_prefix.iter().map(|_| self.local.clone()).collect()
            }
            (Outcome::Error(_), Some(prepared)) => self.own_nodes(prepared, hooks::Phase::Pre),
            (Outcome::Error(_), None) | (Outcome::Success | Outcome::Canceled, _) => Vec::new(),
        }
    }

    /// What scripts at the job's end see, but for the phase and the path of their directory.
    fn end_env(&self, id: u64, outcome: &Outcome, prepared: Option<&Prepared>) -> Env {
        let job = &self.jobs[&id];
        let env = match prepared {
            Some(prepared) if prepared.hook_prefix.is_some() || job.global_env.is_some() => {
                job.env_at_end(prepared)
            }
            Some(_) | None => self.bare_env(id),
        };
        env.with(job.facts_after(prepared).0).set("POST_STATUS", status(outcome))
    }

    /// What global scripts see of an operation without hooks of its own.
    pub(super) fn bare_env(&self, id: u64) -> Env {
        let job = &self.jobs[&id];
        let cluster = self.cluster.as_ref().or(job.submission.fresh.new_cluster.as_deref());
        job_env(&job.submission.op, cluster, &job.facts())
    }

    /// Makes the calls of the job's end; without any it is done.
    pub(super) fn tell_end(&mut self, id: u64, now: Now) {
        let calls = self.end_calls(id);
        if calls.is_empty() {
            return self.done(id, now);
        }
        let nodes: BTreeMap<NodeName, u32> = calls.iter().map(|call| (call.node.clone(), 1)).collect();
        let call = CallId { job: id, step: END_STEP.to_owned(), attempt: 1 };
        self.awaited.insert(id, Awaited { call, nodes, reports: Vec::new(), since_ms: now.mono_ms });
        for call in calls {
            self.output.effects.push(Effect::RunHooks(Box::new(call)));
        }
    }

    fn end_calls(&self, id: u64) -> Vec<HooksCall> {
        let job = &self.jobs[&id];
        let Phase::Ending { prepared, env, files, failed_on, policy, .. } = &job.phase else {
            return Vec::new();
        };
        let mut nodes: BTreeSet<&NodeName> = failed_on.iter().collect();
        if !job.global_post_absent {
            nodes.insert(&self.local);
        }
        let silent = |node: &NodeName| {
            job.pre.iter().any(|r| r.node == *node && matches!(r.answer, NodeAnswer::NotReached { .. }))
        };
        let call = |node: &NodeName| {
            let is_failed = failed_on.contains(node);
            let phase = if is_failed { hooks::Phase::Failed } else { hooks::Phase::Post };
            let prefix =
                prepared.as_ref().filter(|_| is_failed).and_then(|prepared| prepared.hook_prefix.clone());
            let prefix = prefix.unwrap_or_default();
            let is_global = *node == self.local && !job.global_post_absent;
            HooksCall {
                id: CallId { job: id, step: END_STEP.to_owned(), attempt: 1 },
                node: node.clone(),
                phase,
                env: env.clone().set("HOOKS_PHASE", policy.version.phase(phase)),
                policy: policy.of(&phase.directory(&prefix)),
                prefix,
                probe: silent(node),
                global: is_global.then(|| GlobalRun::new(hooks::Phase::Post, policy)),
                files: files.clone(),
            }
        };
        nodes.into_iter().map(call).collect()
    }

    /// All that were told at the job's end have answered.
    pub(super) fn end_told(&mut self, id: u64, mut reports: Vec<NodeReport>, duration_ms: u64, now: Now) {
        let Phase::Ending { prepared, policy, .. } = &self.jobs[&id].phase else { return };
        let prefix = prepared.as_ref().and_then(|prepared| prepared.hook_prefix.clone()).unwrap_or_default();
        bound_output(policy, &mut reports);
        let rules = end_rules(policy, &prefix);
        let job = self.job_mut(id);
        log_phase(job, hooks::Phase::Failed, &reports, duration_ms, now);
        for (class, text) in fold_post(&rules, &reports) {
            let level = match class {
                Class::Success => Level::Info,
                Class::Warning | Class::Error => Level::Warning,
            };
            job.log(now.wall_ms, level, LogEntry::Text(text));
        }
        job.end = reports;
        self.done(id, now);
    }

    /// Nothing is left to be done for the job.
    fn done(&mut self, id: u64, now: Now) {
        self.awaited.remove(&id);
        self.is_over(id, now);
        let job = self.job_mut(id);
        match std::mem::replace(&mut job.phase, Phase::Waiting) {
            Phase::Ending { outcome, prepared, .. } => job.phase = Phase::Done { outcome, prepared },
            other @ (Phase::Waiting
            | Phase::PreHooks { .. }
            | Phase::Running { .. }
            | Phase::Cleaning { .. }
            | Phase::PostHooks { .. }
            | Phase::Undoing { .. }
            | Phase::Blocked { .. }
            | Phase::Done { .. }) => unreachable!("job {id} is done in {other:?}"),
        }
        let job = &self.jobs[&id];
        let silent = job.end.iter().filter(|report| matches!(report.answer, NodeAnswer::NotReached { .. }));
        let nodes: Vec<NodeName> = silent.map(|report| report.node.clone()).collect();
        if !nodes.is_empty() {
            self.end_hooks(id, END_STEP, nodes);
        }
    }

    /// The scripts at the job's end are told to end, and nobody waits for them.
    pub(super) fn kill_end(&mut self, id: u64, now: Now) {
        let nodes = self.awaited.remove(&id).map(|awaited| awaited.nodes).unwrap_or_default();
        if !nodes.is_empty() {
            self.end_hooks(id, END_STEP, nodes.into_keys().collect());
        }
        let text = "killed at its end: what the operation did stays".to_owned();
        self.job_mut(id).log(now.wall_ms, Level::Warning, LogEntry::Text(text));
        self.done(id, now);
    }
}

fn end_rules(policy: &HookPolicy, prefix: &str) -> Rules {
    Rules::new(policy, &hooks::Phase::Failed.directory(prefix), &hooks::Phase::Post.directory(GLOBAL_PREFIX))
}
