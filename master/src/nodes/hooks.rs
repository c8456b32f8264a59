//! Runs a hook directory on a node and collects what its scripts did.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use muster_core::{
    engine::GlobalRun,
    hooks::{
        Env, HookPolicy, HookResult, NodeAnswer, NodeReport, NotReached, Phase, ScriptResult, VARIABLE_PREFIX,
    },
};
use muster_proto::{
    convert::hooks::HookWireError,
    v1::{self, run_hooks_event::Event},
};
use tokio::time::timeout;
use tonic::Code;

use super::{
    client::{NodeClient, Tries},
    drain::read_to_end,
    limits::words,
    link::Link,
    trouble::CallError,
};

/// Told of each script once, as it ends.
pub type OnScript = Arc<dyn Fn(&ScriptResult) + Send + Sync>;

/// A hook call; the same for all nodes of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHooks {
    /// `job/step/attempt`.
    pub call_id: String,
    /// The job.
    pub job: u64,
    /// Before or after the operation.
    pub phase: Phase,
    /// The directory's prefix.
    pub prefix: String,
    /// The scripts' environment, without what the node adds.
    pub env: Env,
    /// The cluster's hook parameters.
    pub policy: HookPolicy,
    /// The node was silent earlier in the same job: it is waited for only if a short probe answers.
    pub probe: bool,
    /// The global directory beside it; all that runs where the prefix is empty.
    pub global: Option<GlobalRun>,
    /// Files that the node makes for the run, by variable.
    pub files: BTreeMap<String, String>,
}

fn wire_env(env: &Env) -> Vec<v1::EnvVariable> {
    let variable =
        |(name, value): (&str, &str)| v1::EnvVariable { name: wire_name(name), value: value.to_owned() };
    env.iter().map(variable).collect()
}

fn wire_name(name: &str) -> String {
    format!("{VARIABLE_PREFIX}{name}")
}

impl RunHooks {
    pub(super) fn request(&self) -> v1::RunHooksRequest {
        let global = self.global.as_ref().map(|global| v1::GlobalRun {
            phase: v1::HookPhase::from(global.phase).into(),
            env: wire_env(&global.env),
            policy: Some(global.policy.clone().into()),
        });
        let files = self.files.iter().map(|(variable, content)| v1::HookFile {
            variable: wire_name(variable),
            content: content.clone().into_bytes(),
        });
        v1::RunHooksRequest {
            context: None,
            call_id: self.call_id.clone(),
            job_id: self.job,
            phase: v1::HookPhase::from(self.phase).into(),
            prefix: self.prefix.clone(),
            env: wire_env(&self.env),
            global,
            files: files.collect(),
            policy: Some(self.policy.clone().into()),
        }
    }
}

/// The scripts that have reported, each once: a joined run tells of all of them again.
struct Collected<'a> {
    scripts: Vec<ScriptResult>,
    on_script: Option<&'a OnScript>,
}

impl Collected<'_> {
    fn add(&mut self, script: ScriptResult) {
        if self.scripts.iter().any(|known| known.name == script.name) {
            return;
        }
        if let Some(on_script) = self.on_script {
            on_script(&script);
        }
        self.scripts.push(script);
    }

    /// The whole result; scripts that only the stream told of are kept.
    fn complete(&mut self, result: HookResult) -> HookResult {
        let HookResult { scripts, skipped, failure, global_post_absent } = result;
        for script in scripts {
            self.add(script);
        }
        HookResult { scripts: std::mem::take(&mut self.scripts), skipped, failure, global_post_absent }
    }
}

impl NodeClient {
    /// Runs a directory; always gives a report (HOOKS.md R3).
    ///
    /// A daemon that was reached and answers with an error could not run the scripts: its result is a failure.
    pub async fn run_hooks(&self, run: &RunHooks, on_script: Option<&OnScript>) -> NodeReport {
        let start = Instant::now();
        let mut collected = Collected { scripts: Vec::new(), on_script };
        let answered = self.run_hooks_tries(run, &mut collected).await;
        let received = |failure| HookResult { scripts: collected.scripts, failure, ..HookResult::default() };
        let answer = match answered {
            Ok(answer) => answer,
            Err(CallError::NotReached(reason)) => {
                NodeAnswer::NotReached { why: NotReached { reason }, partial: received(None) }
            }
            Err(error @ (CallError::Refused { .. } | CallError::OfficeLost(_))) => {
                NodeAnswer::Answered(received(Some(error.to_string())))
            }
        };
        let duration_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        NodeReport { node: self.name().clone(), answer, duration_ms }
    }

    async fn run_hooks_tries(
        &self,
        run: &RunHooks,
        collected: &mut Collected<'_>,
    ) -> Result<NodeAnswer, CallError> {
        let request = run.request();
        let mut tries = Tries::new(run.probe);
        loop {
            let link = self.ready(&mut tries).await?;
            match self.run_hooks_once(&link, request.clone(), collected).await {
                Err(CallError::NotReached(reason)) => {
                    self.lost(&link, &reason);
                    tries.lost(&link, reason)?;
                }
                ended => return ended,
            }
        }
    }

    async fn run_hooks_once(
        &self,
        link: &Arc<Link>,
        mut request: v1::RunHooksRequest,
        collected: &mut Collected<'_>,
    ) -> Result<NodeAnswer, CallError> {
        self.before_hooks(link).await?;
        request.context = Some(self.inner.shared.context());
        let error = |status| self.inner.shared.error_after(link.idle(), &status);
        let mut events = link.hooks().run_hooks(request).await.map_err(error)?.into_inner();
        loop {
            let Some(event) = events.message().await.map_err(error)? else {
                return Err(CallError::NotReached("connection lost: the answer broke off".to_owned()));
            };
            link.answered();
            match event.event {
                Some(Event::Script(script)) => collected.add(script.try_into().map_err(unreadable)?),
                Some(Event::Result(result)) => {
                    read_to_end(events);
                    let result = result.try_into().map_err(unreadable)?;
                    return Ok(NodeAnswer::Answered(collected.complete(result)));
                }
                Some(Event::Lost(_)) => {
                    read_to_end(events);
                    return Ok(NodeAnswer::Lost);
                }
                // An event of a newer node says at least that it is there.
                Some(Event::Going(_)) | None => {}
            }
        }
    }

    /// What is seen to before scripts run on the node.
    pub(super) async fn before_hooks(&self, link: &Arc<Link>) -> Result<(), CallError> {
        self.facts_before_hooks(link).await?;
        if let Some(before) = self.inner.shared.before_hooks.get() {
            before(self.clone()).await;
        }
        Ok(())
    }

    /// Scripts read the cluster's facts, so a node that is behind gets them first. Old facts are better than no
    /// verdict: without an answer in time the call goes on.
    async fn facts_before_hooks(&self, link: &Arc<Link>) -> Result<(), CallError> {
        let limit = self.inner.shared.limits().facts;
        let trouble = match timeout(limit, self.bring_facts(link)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error @ CallError::OfficeLost(_))) => return Err(error),
            Ok(Err(error @ (CallError::NotReached(_) | CallError::Refused { .. }))) => error.to_string(),
            Err(_) => format!("no answer within {}", words(limit)),
        };
        tracing::warn!(node = %self.name(), reason = trouble, "hooks run with old facts in DATA_DIR");
        Ok(())
    }
}

pub(super) fn unreadable(error: HookWireError) -> CallError {
    let message = format!("the node's answer can't be read: {error}");
    CallError::Refused { code: Code::Internal, message }
}
