//! One script of a job run again: with the environment that the job's record holds, as its own call would have had it.

use std::collections::BTreeMap;

use super::{Job, Outcome, Phase, ending::status};
use crate::{
    history::phase_of,
    hooks::{self, Class, Env, HookPolicy, ScriptOutcome},
    names::NodeName,
    ops::{GLOBAL_PREFIX, Prepared},
};

/// What a directory of a job is run with.
#[derive(Debug, Clone, PartialEq)]
pub struct Again {
    /// Of the directory.
    pub phase: hooks::Phase,
    /// Of the directory.
    pub prefix: String,
    /// Complete but for what the node adds.
    pub env: Env,
    /// Files that the node makes for the run: variable and content.
    pub files: BTreeMap<String, String>,
    /// What held there for the job.
    pub policy: HookPolicy,
    /// The nodes that the job asked, or would have.
    pub nodes: Vec<NodeName>,
}

/// Why a directory can't be run again for a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgainError {
    /// The job never got so far.
    #[error(
        "job {0} has no environment: it was over, or is not begun, before its checks passed, which is when one is made"
    )]
    NoEnvironment(u64),
    /// Another operation's directory, or none.
    #[error("job {job} ({summary}) has nothing to do with {directory}; its directories are {known}{near}")]
    OtherDirectory {
        /// The job.
        job: u64,
        /// What it is.
        summary: String,
        /// What was asked for.
        directory: String,
        /// What there is.
        known: String,
        /// The nearest right name, in words; may be empty.
        near: String,
    },
    /// What scripts after the operation are told is not there yet.
    #[error("job {0} is not over yet: what scripts of {1} are told is known at its end")]
    NotOver(u64, String),
    /// Scripts that hear of failures have nothing to hear.
    #[error("job {0} did not fail: scripts of {1} would have nothing to be told")]
    NotFailed(u64, String),
}

/// What a script's outcome would have meant: its class, and that in words.
pub fn meaning(phase: hooks::Phase, policy: &HookPolicy, outcome: &ScriptOutcome) -> (Class, String) {
    let class = policy.class(outcome);
    let words = match (phase, class) {
        (hooks::Phase::Pre, Class::Success) => "it would have allowed the operation",
        (hooks::Phase::Pre, Class::Warning) => "it would have been a warning and denied nothing",
        (hooks::Phase::Pre, Class::Error) => "it would have denied the operation",
        (hooks::Phase::Post | hooks::Phase::Failed, Class::Success) => {
            "it would have been logged as a success"
        }
        (hooks::Phase::Post | hooks::Phase::Failed, Class::Warning | Class::Error) => {
            "it would have been a warning in the job's log and changed nothing"
        }
    };
    let remark = policy.remark(outcome).map(|remark| format!("; {remark}")).unwrap_or_default();
    (class, format!("{words}{remark}"))
}

impl Job {
    /// What a directory of this job is run with; `master` is the node of the master daemon.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn again(&self, directory: &str, master: &NodeName) -> Result<Again, AgainError> {
        let id = self.id();
        let prepared = self.prepared().ok_or(AgainError::NoEnvironment(id))?;
        let own = prepared.hook_prefix.as_deref();
        let known = phase_of(directory).filter(|(prefix, phase)| {
            Some(*prefix) == own || (*prefix == GLOBAL_PREFIX && *phase != hooks::Phase::Failed)
        });
        let Some((prefix, phase)) = known else { return Err(self.other_directory(own, directory)) };
        if phase != hooks::Phase::Pre && !self.done() {
            return Err(AgainError::NotOver(id, directory.to_owned()));
        }
        let is_global = Some(prefix) != own;
        let (env, files) = match (phase, is_global) {
            (hooks::Phase::Pre, _) => (self.env_of(prepared, hooks::Phase::Pre), BTreeMap::new()),
            (hooks::Phase::Post, false) => {
                let is_told = prepared.policy.version.tells_of_job(hooks::Phase::Post);
                let (after, files) =
                    if is_told { self.facts_after(Some(prepared)) } else { Default::default() };
                (self.env_of(prepared, hooks::Phase::Post).with(after), files)
            }
            (hooks::Phase::Post, true) | (hooks::Phase::Failed, _) => {
                self.at_end(prepared, phase, directory)?
            }
        };
        let env = env.set("HOOKS_PHASE", prepared.policy.version.phase(phase));
        let env = if is_global { env.set("HOOKS_PATH", GLOBAL_PREFIX) } else { env };
        let nodes = match (is_global, phase) {
            (true, _) => vec![master.clone()],
            (false, hooks::Phase::Post) => prepared.nodes.post.clone(),
            (false, hooks::Phase::Failed) if prepared.nodes.pre.is_empty() => vec![master.clone()],
            (false, hooks::Phase::Pre | hooks::Phase::Failed) => prepared.nodes.pre.clone(),
        };
        let policy = prepared.policy.of(directory);
        Ok(Again { phase, prefix: prefix.to_owned(), env, files, policy, nodes })
    }

    fn env_of(&self, prepared: &Prepared, phase: hooks::Phase) -> Env {
        match &self.global_env {
            Some(env) => env.clone(),
            None => prepared.env_in(phase),
        }
    }

    /// What is told at the job's end.
    fn at_end(
        &self,
        prepared: &Prepared,
        phase: hooks::Phase,
        directory: &str,
    ) -> Result<(Env, BTreeMap<String, String>), AgainError> {
        let not_over = || AgainError::NotOver(self.id(), directory.to_owned());
        let Phase::Done { outcome, .. } = &self.phase else { return Err(not_over()) };
        let (after, mut files) = self.facts_after(Some(prepared));
        match outcome {
            Outcome::Error(error) => drop(files.insert("ERROR_MESSAGE_PATH".to_owned(), error.text())),
            Outcome::Success | Outcome::Canceled if phase == hooks::Phase::Failed => {
                return Err(AgainError::NotFailed(self.id(), directory.to_owned()));
            }
            Outcome::Success | Outcome::Canceled => {}
        }
        Ok((self.env_at_end(prepared).with(after).set("POST_STATUS", status(outcome)), files))
    }

    fn other_directory(&self, own: Option<&str>, directory: &str) -> AgainError {
        let all = [hooks::Phase::Pre, hooks::Phase::Post, hooks::Phase::Failed];
        let own = own.into_iter().flat_map(|prefix| all.map(|phase| phase.directory(prefix)));
        let global = [hooks::Phase::Pre, hooks::Phase::Post].map(|phase| phase.directory(GLOBAL_PREFIX));
        let known: Vec<String> = own.chain(global).collect();
        let near = crate::names::nearest(directory, known.iter().map(String::as_str));
        AgainError::OtherDirectory {
            job: self.id(),
            summary: self.summary(),
            directory: directory.to_owned(),
            near: near.map(|near| format!("; did you mean {near}?")).unwrap_or_default(),
            known: known.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Effect, Engine, Input, Now, Submission},
        hooks::{ExitCodes, HookResult, NodeAnswer, NodeReport},
        names::InstanceName,
        ops::{InstanceStart, Op, examples},
    };

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    fn start(instance: &str) -> Submission {
        let instance = InstanceName::parse(instance).unwrap();
        Submission {
            reason: "ticket-7".to_owned(),
            ..examples::submission(4, Op::InstanceStart(InstanceStart { instance, force: false }))
        }
    }

    /// A denied start: the job as it is over, and what each directory was really run with, by node.
    fn denied() -> (Job, Vec<super::super::HooksCall>) {
        let cluster = examples::cluster();
        let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
        let now = Now { wall_ms: 1_900_000_000_000, mono_ms: 1 };
        let mut effects = engine.handle(Input::Submit(Box::new(start("db1"))), now).effects;
        let mut calls = Vec::new();
        while let Some(effect) = effects.pop() {
            let Effect::RunHooks(call) = effect else { continue };
            let failure = (call.id.step == "pre").then(|| "no room".to_owned());
            let answer = NodeAnswer::Answered(HookResult { failure, ..HookResult::default() });
            let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
            effects.extend(engine.handle(Input::HooksAnswered(call.id.clone(), report), now).effects);
            calls.push(*call);
        }
        (engine.job(4).unwrap().clone(), calls)
    }

    #[test]
    fn what_a_directory_is_run_with_again_is_what_its_own_call_had() {
        let (job, calls) = denied();
        assert!(job.done(), "{:?}", job.phase);
        let master = name("node1");
        let mut compared = 0;
        for call in &calls {
            if !call.prefix.is_empty() {
                let directory = call.phase.directory(&call.prefix);
                let again = job.again(&directory, &master).unwrap();
                assert_eq!((&again.env, &again.files), (&call.env, &call.files), "{directory}");
                assert_eq!(again.policy, call.policy, "{directory}");
                assert!(again.nodes.contains(&call.node), "{directory}");
                compared += 1;
            }
            if let Some(global) = &call.global {
                let directory = global.phase.directory(GLOBAL_PREFIX);
                let again = job.again(&directory, &master).unwrap();
                assert_eq!(again.env, call.env.clone().with(global.env.clone()), "{directory}");
                assert_eq!(again.nodes, std::slice::from_ref(&call.node));
                compared += 1;
            }
        }
        assert!(compared >= 5, "{compared} runs of {calls:?}");
    }

    #[test]
    fn what_is_not_known_is_told() {
        let (job, _) = denied();
        let master = name("node1");
        let why = |directory: &str| job.again(directory, &master).unwrap_err().to_string();
        let other = why("instance-strat-pre.d");
        assert!(other.contains("did you mean instance-start-pre.d?"), "{other}");
        assert!(other.contains("its directories are instance-start-pre.d, instance-start-post.d"), "{other}");
        assert!(why("config-update-post.d").contains("has nothing to do with"));
        assert!(why("global-failed.d").contains("has nothing to do with"));
        let waiting = Job::new(start("db1"));
        let why = waiting.again("instance-start-pre.d", &master).unwrap_err();
        assert_eq!(why, AgainError::NoEnvironment(4));
    }

    #[test]
    fn a_result_means_what_it_would_have_meant() {
        let graded = HookPolicy { exit_codes: ExitCodes::Graded, ..HookPolicy::default() };
        let strict = HookPolicy::default();
        let failed = |code| ScriptOutcome::Failed { code };
        for (phase, policy, outcome, class, word) in [
            (hooks::Phase::Pre, &strict, ScriptOutcome::Passed, Class::Success, "allowed"),
            (hooks::Phase::Pre, &strict, failed(40), Class::Error, "denied the operation"),
            (hooks::Phase::Pre, &graded, failed(40), Class::Warning, "denied nothing"),
            (hooks::Phase::Pre, &graded, failed(90), Class::Error, "is reserved"),
            (hooks::Phase::Post, &strict, failed(1), Class::Error, "changed nothing"),
            (hooks::Phase::Failed, &strict, ScriptOutcome::Passed, Class::Success, "logged"),
        ] {
            let (found, words) = meaning(phase, policy, &outcome);
            assert_eq!(found, class, "{words}");
            assert!(words.contains(word), "{words}");
        }
    }
}
