//! One connection to a node, greeted and watched. It is never made again: a lost one is replaced by a new one, so that
//! each connection begins with a greeting.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use muster_core::names::NodeName;
use muster_proto::{
    transport::{
        CONNECT_LIMIT, ClientTls, Expect, PingError, Pins, connect_tls_once, connect_unix_once, ping,
    },
    v1::{
        self, agent_service_client::AgentServiceClient, hook_service_client::HookServiceClient,
        node_command_service_client::NodeCommandServiceClient, node_service_client::NodeServiceClient,
    },
};
use tokio::time::timeout;
use tonic::transport::Channel;
use uuid::Uuid;

use super::{limits::words, shared::Shared, trouble::CallError};

/// The answer to a hook call holds up to 128 KiB of output for each script; this is room for a directory of 500.
const HOOK_MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a node said of itself when it was greeted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its program's version.
    pub version: String,
    /// How far its clock is ahead of this host's, in milliseconds.
    pub skew_ms: i64,
    /// The highest serial it has seen.
    pub serial_seen: u64,
    /// The highest epoch it has seen.
    pub epoch_seen: u64,
    /// The serial of the facts that its scripts see.
    pub facts_serial: u64,
    /// Whether it runs hooks only.
    pub hooks_only: bool,
    /// The cluster's hook set that it uses.
    pub hook_set: Option<String>,
}

/// Where a node's daemon is.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// On this host.
    Unix(PathBuf),
    /// On another one.
    Tls { address: SocketAddr, node: Uuid, accepted: Pins },
}

/// A connection that was greeted.
pub(super) struct Link {
    channel: Channel,
    /// The answer to its greeting.
    pub(super) info: NodeInfo,
    since: Instant,
    answered: Mutex<Instant>,
    /// The highest number of a state that came on it.
    newest_state: AtomicU64,
}

impl Link {
    pub(super) fn agent(&self) -> AgentServiceClient<Channel> {
        AgentServiceClient::new(self.channel.clone())
    }

    pub(super) fn hooks(&self) -> HookServiceClient<Channel> {
        HookServiceClient::new(self.channel.clone()).max_decoding_message_size(HOOK_MESSAGE_BYTES_MAX)
    }

    pub(super) fn node(&self) -> NodeServiceClient<Channel> {
        NodeServiceClient::new(self.channel.clone())
    }

    pub(super) fn commands(&self) -> NodeCommandServiceClient<Channel> {
        NodeCommandServiceClient::new(self.channel.clone())
    }

    /// Notes that the daemon has just answered.
    pub(super) fn answered(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether no newer state has come on this connection.
    pub(super) fn is_newest(&self, state: &v1::NodeState) -> bool {
        self.newest_state.fetch_max(state.number, Ordering::SeqCst) <= state.number
    }

    pub(super) fn idle(&self) -> Duration {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Asks whether the daemon is there; any answer will do.
    pub(super) async fn ping(&self, shared: &Shared) -> Result<(), CallError> {
        let limit = shared.limits().probe;
        let silent = || CallError::NotReached(format!("no answer to a ping within {}", words(limit)));
        let answer = timeout(limit, ping(&self.channel)).await.map_err(|_| silent())?;
        match answer {
            Err(PingError::Failed(status)) => match shared.error(&status) {
                lost @ CallError::NotReached(_) => return Err(lost),
                CallError::Refused { .. } | CallError::OfficeLost(_) => {}
            },
            Err(_) => return Err(silent()),
            Ok(()) => {}
        }
        self.answered();
        Ok(())
    }
}

/// Connects to a node and greets it.
pub(super) async fn dial(shared: &Shared, name: &NodeName, target: &Target) -> Result<Link, CallError> {
    let limit = shared.limits().connect;
    let channel = if limit < CONNECT_LIMIT {
        let silent = |_| CallError::NotReached(format!("no answer within {}", words(limit)));
        timeout(limit, connect(shared, target)).await.map_err(silent)??
    } else {
        // The transport's own limit also tells what was being waited for.
        connect(shared, target).await?
    };
    let since = Instant::now();
    let info = greet(shared, name, &channel).await?;
    let answered = Mutex::new(Instant::now());
    Ok(Link { channel, info, since, answered, newest_state: AtomicU64::new(0) })
}

async fn connect(shared: &Shared, target: &Target) -> Result<Channel, CallError> {
    let keepalive = shared.limits().keepalive;
    let dialled = match target {
        Target::Unix(path) => connect_unix_once(path, keepalive).await,
        Target::Tls { address, node, accepted } => {
            let own = shared.tls.load_full();
            let own = own.ok_or_else(|| {
                CallError::NotReached("this master has no certificate to show to other hosts".to_owned())
            })?;
            let tls = ClientTls::new(&own, Expect::Node { node: *node, accepted: accepted.clone() });
            connect_tls_once(*address, &tls, keepalive).await
        }
    };
    dialled.map_err(|error| CallError::NotReached(error.to_string()))
}

/// The first call on a connection, before anybody else has it, and never again: the node ends what is not among the jobs
/// that are named here, and a job that came meanwhile has its runs on the same connection.
async fn greet(shared: &Shared, name: &NodeName, channel: &Channel) -> Result<NodeInfo, CallError> {
    let limit = shared.limits().hello;
    let sent = Instant::now();
    let sent_ms = now_ms();
    let alive = (shared.settings.alive_jobs)();
    let request = v1::HelloRequest {
        context: Some(shared.context()),
        version: shared.settings.version.clone(),
        alive_jobs: alive.all.into_iter().collect(),
        now_ms: sent_ms,
        node_name: name.as_str().to_owned(),
        guests: (shared.settings.guests)().into_iter().map(generation).collect(),
        ending_jobs: alive.ending.into_iter().collect(),
    };
    let answer = timeout(limit, AgentServiceClient::new(channel.clone()).hello(request)).await;
    let answer = answer
        .map_err(|_| CallError::NotReached(format!("no answer to the greeting within {}", words(limit))))?
        .map_err(|status| shared.error(&status))?
        .into_inner();
    // The node read its clock somewhere between question and answer: the middle is the best guess.
    let middle_ms = sent_ms + u64::try_from(sent.elapsed().as_millis() / 2).unwrap_or(0);
    Ok(NodeInfo {
        version: answer.version,
        skew_ms: difference(answer.now_ms, middle_ms),
        serial_seen: answer.serial_seen,
        epoch_seen: answer.epoch_seen,
        facts_serial: answer.facts_serial,
        hooks_only: answer.hooks_only,
        hook_set: answer.hook_set,
    })
}

fn generation((instance, generation): (Uuid, u64)) -> v1::InstanceGeneration {
    v1::InstanceGeneration { instance_uuid: instance.to_string(), generation }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn difference(one: u64, other: u64) -> i64 {
    let distance = i64::try_from(one.abs_diff(other)).unwrap_or(i64::MAX);
    if one < other { -distance } else { distance }
}
