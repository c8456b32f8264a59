//! The gRPC service that runs hook directories.

mod script;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_core::{
    hooks::{Env, HookResult, Phase, ScriptResult, VARIABLE_PREFIX},
    ops::GLOBAL_PREFIX,
};
use muster_proto::{
    convert,
    transport::Peer,
    v1::{self, hook_service_server::HookService, run_hooks_event::Event},
};
use prost::Message;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    CallId, CallItem, CallRegistry, DirectoryName, Extras, GlobalRequest, HookKeepers, HookRequest,
    ListedDirectory, RequestDigest,
    agent::{Agent, Context, Events, Purpose, call_status, forward, words},
    hookset::{HookSets, SetSessions, check_set, open_session},
    run_hooks,
};

/// Bytes of output in one result: with all else it must fit into a message of 4 MiB.
const RESULT_OUTPUT_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Files that a run may have.
const FILES_MAX: usize = 8;

/// A script's result on its way to the caller.
#[derive(Debug, Clone)]
pub(crate) struct HookEvent(v1::ScriptResult);

impl From<ScriptResult> for HookEvent {
    fn from(result: ScriptResult) -> Self {
        HookEvent(result.into())
    }
}

/// A run's whole result, journaled as the bytes of its message, so that a repeat gets the very same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HookAnswer(v1::HookResult);

impl HookAnswer {
    /// The result.
    pub(crate) fn into_result(self) -> Result<HookResult, convert::hooks::HookWireError> {
        self.0.try_into()
    }
}

impl From<HookResult> for HookAnswer {
    fn from(result: HookResult) -> Self {
        let mut wire = v1::HookResult::from(result);
        shorten(&mut wire);
        HookAnswer(wire)
    }
}

/// Shortens output where a directory has so many talkative scripts that the result would be no message any more. The
/// caller has had each script's result before; the whole is on the node.
fn shorten(result: &mut v1::HookResult) {
    let streams = |result: &mut v1::HookResult, change: &mut dyn FnMut(&mut v1::Captured)| {
        for script in &mut result.scripts {
            script.stdout.iter_mut().chain(&mut script.stderr).for_each(&mut *change);
        }
    };
    let mut bytes = 0;
    let mut ends = 0;
    streams(result, &mut |captured| {
        bytes += captured.head.len() + captured.tail.len();
        ends += 2;
    });
    if bytes <= RESULT_OUTPUT_BYTES_MAX {
        return;
    }
    let share = RESULT_OUTPUT_BYTES_MAX / ends;
    streams(result, &mut |captured| {
        captured.head.truncate(share);
        let surplus = captured.tail.len().saturating_sub(share);
        captured.tail.drain(..surplus);
    });
}

impl Serialize for HookAnswer {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let text: String = self.0.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
        out.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for HookAnswer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let text = String::deserialize(from)?;
        let byte = |pair: &[u8]| {
            let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or_else(|| D::Error::custom("not hexadecimal"))?;
        v1::HookResult::decode(bytes.as_slice()).map(HookAnswer).map_err(D::Error::custom)
    }
}

/// The calls of hook runs.
pub(crate) type HookCalls = CallRegistry<HookEvent, HookAnswer>;

/// What the hook service works with.
#[derive(Clone)]
pub(crate) struct HookParts {
    pub(crate) agent: Arc<Agent>,
    pub(crate) keepers: Arc<HookKeepers>,
    pub(crate) calls: HookCalls,
    pub(crate) sessions: Arc<SetSessions>,
}

impl HookParts {
    /// Adds what only the node knows; `HOOK_KILL_TIMEOUT_S` is each script's own and set where it is started.
    pub(crate) fn complete(&self, env: Env) -> Env {
        env.on_node(self.agent.node_name().as_str(), Some(&self.data_dir()))
    }

    fn data_dir(&self) -> String {
        self.agent.facts().data_dir().display().to_string()
    }

    /// The cluster's own sets.
    pub(crate) fn sets(&self) -> Result<&Arc<HookSets>, Status> {
        let sets = self.keepers.runner().sets();
        sets.ok_or_else(|| Status::unimplemented("this daemon keeps no hook sets"))
    }
}

/// Serves a node's hooks.
pub struct HookGrpc(HookParts);

/// A request that was checked.
struct Parsed {
    context: Context,
    id: CallId,
    digest: RequestDigest,
    job: u64,
    request: HookRequest,
}

fn invalid(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

impl Parsed {
    fn new(mut request: v1::RunHooksRequest) -> Result<Self, Status> {
        let context = Context::parse(request.context.take())?;
        let phase: Phase = convert::hooks::phase(request.phase).map_err(invalid)?;
        // Without the context, which differs when the call is repeated after a restart of the master.
        let digest = RequestDigest::of(&request.encode_to_vec());
        let extras = parse_extras(&mut request)?;
        let directory = match &extras.global {
            Some(global) if extras.only_global => global.directory.clone(),
            Some(_) | None => DirectoryName::new(&request.prefix, phase).map_err(invalid)?,
        };
        let env = parse_env(&request.env)?;
        let policy = request.policy.unwrap_or_default().try_into().map_err(invalid)?;
        Ok(Parsed {
            context,
            id: CallId::parse(&request.call_id).map_err(invalid)?,
            digest,
            job: request.job_id,
            request: HookRequest { directory, env, policy, extras },
        })
    }
}

/// Reads what runs and is there beside the operation's own directory.
fn parse_extras(request: &mut v1::RunHooksRequest) -> Result<Extras, Status> {
    let global = match request.global.take() {
        None => None,
        Some(global) => {
            let phase = convert::hooks::phase(global.phase).map_err(invalid)?;
            Some(GlobalRequest {
                directory: DirectoryName::new(GLOBAL_PREFIX, phase).map_err(invalid)?,
                phase,
                env: parse_env(&global.env)?,
                policy: global.policy.unwrap_or_default().try_into().map_err(invalid)?,
            })
        }
    };
    if request.files.len() > FILES_MAX {
        return Err(invalid(format!("at most {FILES_MAX} files are expected")));
    }
    let mut files = BTreeMap::new();
    for file in std::mem::take(&mut request.files) {
        files.insert(variable_name(&file.variable)?.to_owned(), file.content);
    }
    Ok(Extras { only_global: global.is_some() && request.prefix.is_empty(), global, files })
}

/// A variable's name without its prefix. In version 2 some end with a parameter's or a node's name.
fn variable_name(name: &str) -> Result<&str, Status> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let bare = name.strip_prefix(VARIABLE_PREFIX);
    let bare = bare.filter(|name| !name.is_empty() && name.bytes().all(fine));
    bare.ok_or_else(|| invalid(format!("{name:?} is no name of a hook variable")))
}

/// Reads the variables, each of which must have the prefix, once.
pub(crate) fn parse_env(variables: &[v1::EnvVariable]) -> Result<Env, Status> {
    let mut names = BTreeSet::new();
    let mut env = Env::new();
    for variable in variables {
        let name = variable_name(&variable.name)?;
        if !names.insert(name) {
            return Err(invalid(format!("{} is given twice", variable.name)));
        }
        env = env.set(name, variable.value.clone());
    }
    env.validate().map_err(invalid)?;
    Ok(env)
}

impl HookGrpc {
    pub(crate) fn new(agent: Arc<Agent>, keepers: Arc<HookKeepers>, calls: HookCalls) -> Self {
        HookGrpc(HookParts { agent, keepers, calls, sessions: Arc::default() })
    }
}

fn run_event(item: CallItem<HookEvent, HookAnswer>) -> v1::RunHooksEvent {
    let event = match item {
        CallItem::Event(HookEvent(result)) => Event::Script(result),
        CallItem::Answer(HookAnswer(result)) => Event::Result(result),
        CallItem::Lost => Event::Lost(v1::RunLost {}),
    };
    v1::RunHooksEvent { event: Some(event) }
}

fn going() -> v1::RunHooksEvent {
    v1::RunHooksEvent { event: Some(Event::Going(v1::RunGoing {})) }
}

fn listed(directory: ListedDirectory) -> v1::HookDirectory {
    let script = |script: crate::ListedScript| v1::HookScript {
        name: script.name,
        r#unsafe: script.writable_by_others,
        warn_timeout_ms: script.limits.warn_ms,
        kill_timeout_ms: script.limits.kill_ms,
        from_cluster: script.from_cluster,
        own_limits: Some(v1::OwnLimits {
            warn_timeout_ms: script.limits.own.warn_ms,
            kill_timeout_ms: script.limits.own.kill_ms,
        }),
    };
    v1::HookDirectory {
        name: directory.name,
        scripts: directory.scripts.into_iter().map(script).collect(),
        skipped: directory.skipped.into_iter().map(Into::into).collect(),
        r#unsafe: directory.writable_by_others,
        failure: directory.failure,
    }
}

#[tonic::async_trait]
impl HookService for HookGrpc {
    type RunHooksStream = Events<v1::RunHooksEvent>;

    async fn run_hooks(
        &self,
        request: Request<v1::RunHooksRequest>,
    ) -> Result<Response<Self::RunHooksStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let parsed = Parsed::new(request.into_inner())?;
        let parts = &self.0;
        let _turn = parts.agent.admit(&peer, parsed.context, Purpose::Act).await?;
        let Parsed { id, digest, job, mut request, .. } = parsed;
        request.env = parts.complete(request.env);
        let stream = run_hooks(&parts.keepers, &parts.calls, id, digest, job, request).await;
        let stream = stream.map_err(|error| call_status(&error))?;
        Ok(Response::new(forward(stream, parts.agent.stopping().clone(), going, run_event)))
    }

    type RunScriptStream = Events<v1::RunHooksEvent>;

    async fn run_script(
        &self,
        request: Request<v1::RunScriptRequest>,
    ) -> Result<Response<Self::RunScriptStream>, Status> {
        script::serve(&self.0, request).await
    }

    async fn list_hooks(
        &self,
        request: Request<v1::ListHooksRequest>,
    ) -> Result<Response<v1::ListHooksResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let context = Context::parse(request.into_inner().context)?;
        let parts = &self.0;
        drop(parts.agent.admit(&peer, context, Purpose::Ask).await?);
        let runner = Arc::clone(parts.keepers.runner());
        let found = tokio::task::spawn_blocking(move || {
            let set = runner.sets().and_then(|sets| sets.current().ok().flatten());
            (runner.list(), set)
        })
        .await;
        let (listed_directories, set) = found.map_err(|error| Status::internal(error.to_string()))?;
        let (directories, failure) = match listed_directories {
            Ok(directories) => (directories.into_iter().map(listed).collect(), None),
            Err(error) => (Vec::new(), Some(words(&error))),
        };
        Ok(Response::new(v1::ListHooksResponse {
            hooks_dir: parts.keepers.runner().hooks_dir().display().to_string(),
            directories,
            failure,
            data_dir: Some(parts.data_dir()),
            set_dir: set.as_ref().map(|set| set.path.display().to_string()),
            set_digest: set.map(|set| set.digest.to_string()),
        }))
    }

    type SyncHooksStream = Events<v1::SyncHooksEvent>;

    async fn sync_hooks(
        &self,
        request: Request<Streaming<v1::SyncHooksInput>>,
    ) -> Result<Response<Self::SyncHooksStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        Ok(Response::new(open_session(self.0.clone(), peer, request.into_inner()).await?))
    }

    async fn check_hook_set(
        &self,
        request: Request<v1::CheckHookSetRequest>,
    ) -> Result<Response<v1::CheckHookSetResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let context = Context::parse(request.into_inner().context)?;
        drop(self.0.agent.admit(&peer, context, Purpose::Ask).await?);
        Ok(Response::new(check_set(&self.0).await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, value: &str) -> v1::EnvVariable {
        v1::EnvVariable { name: name.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn e3_values_pass_unharmed_and_names_are_checked() {
        let value = "a=b \"c\"\n$(d) \u{e9}";
        assert_eq!(parse_env(&[variable("GANETI_OP_ID", value)]).unwrap().get("OP_ID"), Some(value));
        for wrong in [
            vec![variable("OP_ID", "")],
            vec![variable("GANETI_", "")],
            vec![variable("GANETI_A B", "")],
            vec![variable("GANETI_A=B", "")],
            vec![variable("GANETI_A", "\0")],
            vec![variable("GANETI_A", "1"), variable("GANETI_A", "2")],
        ] {
            assert!(parse_env(&wrong).is_err(), "{wrong:?}");
        }
    }

    fn result(scripts: usize, bytes: usize) -> v1::HookResult {
        let captured =
            || Some(v1::Captured { head: vec![b'h'; bytes], tail: vec![b't'; bytes], ..Default::default() });
        let script = |_| v1::ScriptResult { stdout: captured(), stderr: captured(), ..Default::default() };
        v1::HookResult { scripts: (0..scripts).map(script).collect(), ..Default::default() }
    }

    #[test]
    fn a_result_always_fits_into_a_message() {
        let mut small = result(3, 32 * 1024);
        shorten(&mut small);
        assert_eq!(small, result(3, 32 * 1024));
        let mut large = result(200, 32 * 1024);
        shorten(&mut large);
        assert_eq!(large.scripts.len(), 200);
        assert!(large.encoded_len() < 4 * 1024 * 1024, "{}", large.encoded_len());
    }

    #[test]
    fn a_journaled_answer_is_the_same_to_the_byte() {
        let mut wire = result(1, 0);
        wire.scripts[0].stdout = Some(v1::Captured { head: vec![0, 0x1b, 0xff, b'a'], ..Default::default() });
        let answer = HookAnswer(wire);
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<HookAnswer>(&text).unwrap(), answer);
        for wrong in ["\"0\"", "\"zz\"", "1", "\"ff\""] {
            assert!(serde_json::from_str::<HookAnswer>(wrong).is_err(), "{wrong}");
        }
    }
}
