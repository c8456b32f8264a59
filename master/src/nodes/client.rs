//! One node's client: its connection, made when it is first needed and again when it was lost.
//!
//! States of the connection: down -> dialling -> up -> down. All who need it share one dialling, so that many callers
//! of a silent node wait one limit and not one after another.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use muster_core::names::NodeName;
use muster_proto::v1;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{sleep, timeout},
};

use super::{
    hookset::{SetAttempt, UsedSet},
    limits::words,
    link::{Link, NodeInfo, Target, dial},
    shared::Shared,
    trouble::CallError,
};

/// Pause between attempts while a lost connection is being replaced: what a restarting daemon is given.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);
/// A connection that lasted this long was a good one: its loss may be followed by another reconnect. Shorter, and a
/// daemon that fails at each call would be tried for ever.
const GOOD_CONNECTION: Duration = Duration::from_secs(20);
/// No facts are known to be on the node.
pub(super) const FACTS_UNKNOWN: u64 = u64::MAX;

/// A node as the master reaches it. Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct NodeClient {
    pub(super) inner: Arc<Inner>,
}

/// The shared part of a client.
pub(super) struct Inner {
    pub(super) name: NodeName,
    pub(super) target: Target,
    pub(super) shared: Arc<Shared>,
    connection: Mutex<Connection>,
    /// Counts connections made.
    pub(super) ups: watch::Sender<u64>,
    /// Counts resets.
    pub(super) resets: watch::Sender<u64>,
    pub(super) seen: Mutex<Seen>,
    /// The serial of the facts that the node is known to have.
    pub(super) facts_acked: AtomicU64,
    /// One push of facts at a time.
    pub(super) facts_gate: tokio::sync::Mutex<()>,
    /// One hook set at a time.
    pub(super) set_gate: Arc<tokio::sync::Mutex<()>>,
}

/// What is known of the node.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) state: Option<(Arc<v1::NodeState>, Instant)>,
    pub(super) info: Option<NodeInfo>,
    /// The hook set that it said it uses, and none before it said anything.
    pub(super) hook_set: Option<UsedSet>,
    /// The last attempt to bring it another one.
    pub(super) set_attempt: Option<SetAttempt>,
    /// Why there is no connection, after an attempt or a loss.
    pub(super) trouble: Option<String>,
}

struct Connection {
    /// Grows when all that was made before is to be forgotten.
    generation: u64,
    state: State,
}

enum State {
    Down { lost: Option<Lost> },
    Dialling { end: Dialling, task: AbortHandle },
    Up(Arc<Link>),
}

type Dialling = futures::future::Shared<BoxFuture<'static, Result<Arc<Link>, CallError>>>;

#[derive(Clone)]
struct Lost {
    at: Instant,
    reason: String,
}

/// What a call has been through: whether to probe first, and what it lost.
pub(super) struct Tries {
    probe: bool,
    reconnected: bool,
    lost: Option<Lost>,
}

impl Tries {
    /// With `probe`, the node was silent a moment ago and gets one short chance.
    pub(super) fn new(probe: bool) -> Self {
        Tries { probe, reconnected: false, lost: None }
    }

    /// The connection was lost in the middle of the call: allows the next try, or gives the call's end.
    pub(super) fn lost(&mut self, link: &Link, reason: String) -> Result<(), CallError> {
        if self.reconnected && link.age() < GOOD_CONNECTION {
            return Err(CallError::NotReached(reason));
        }
        self.reconnected = true;
        self.lost = Some(Lost { at: Instant::now(), reason });
        Ok(())
    }
}

/// A connection that may be used, or the one that has just turned out to be lost.
enum Checked {
    Usable(Arc<Link>),
    Lost(Lost),
}

impl std::fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeClient")
            .field("name", &self.inner.name)
            .field("target", &self.inner.target)
            .finish_non_exhaustive()
    }
}

impl NodeClient {
    pub(super) fn new(name: NodeName, target: Target, shared: Arc<Shared>) -> Self {
        let inner = Inner {
            name,
            target,
            shared,
            connection: Mutex::new(Connection { generation: 0, state: State::Down { lost: None } }),
            ups: watch::Sender::new(0),
            resets: watch::Sender::new(0),
            seen: Mutex::default(),
            facts_acked: AtomicU64::new(FACTS_UNKNOWN),
            facts_gate: tokio::sync::Mutex::default(),
            set_gate: Arc::default(),
        };
        NodeClient { inner: Arc::new(inner) }
    }

    /// The node's name.
    pub fn name(&self) -> &NodeName {
        &self.inner.name
    }

    /// Makes later calls use a new connection; calls that run keep theirs. One that is being made is given up: its
    /// greeting must not be heard when the next connection is in use.
    pub fn reset(&self) {
        let mut connection = self.connection();
        connection.generation += 1;
        if let State::Dialling { task, .. } = &connection.state {
            task.abort();
        }
        connection.state = State::Down { lost: None };
        drop(connection);
        self.inner.resets.send_modify(|count| *count += 1);
    }

    /// The connection, if there is one.
    pub(super) fn up(&self) -> Option<Arc<Link>> {
        match &self.connection().state {
            State::Up(link) => Some(link.clone()),
            State::Down { .. } | State::Dialling { .. } => None,
        }
    }

    /// The connection, made first if there is none.
    pub(super) async fn link(&self) -> Result<Arc<Link>, CallError> {
        loop {
            let (generation, dialling) = {
                let mut connection = self.connection();
                let generation = connection.generation;
                match &connection.state {
                    State::Up(link) => return Ok(link.clone()),
                    State::Dialling { end, .. } => (generation, end.clone()),
                    State::Down { .. } => {
                        let (end, task) = self.begin_dial(generation);
                        connection.state = State::Dialling { end: end.clone(), task };
                        (generation, end)
                    }
                }
            };
            match dialling.await {
                // Given up by a reset: the next one says how it is.
                Err(_) if self.connection().generation != generation => {}
                ended => return ended,
            }
        }
    }

    /// Dials in a task of its own, so that a caller who stops waiting does not take it from the others.
    fn begin_dial(&self, generation: u64) -> (Dialling, AbortHandle) {
        let client = self.clone();
        let task = tokio::spawn(async move {
            let dialled = dial(&client.inner.shared, client.name(), &client.inner.target).await;
            client.dialled(generation, dialled)
        });
        let handle = task.abort_handle();
        let client = self.clone();
        let end = async move {
            match task.await {
                Ok(result) => result,
                Err(_) => {
                    let ended = CallError::NotReached("the connecting task ended".to_owned());
                    client.dialled(generation, Err(ended)).map(|_| unreachable!("an error stays one"))
                }
            }
        };
        (end.boxed().shared(), handle)
    }

    fn dialled(&self, generation: u64, dialled: Result<Link, CallError>) -> Result<Arc<Link>, CallError> {
        let mut connection = self.connection();
        let current = connection.generation == generation;
        match dialled {
            Ok(link) => {
                let link = Arc::new(link);
                let info = link.info.clone();
                if current {
                    connection.state = State::Up(link.clone());
                    self.inner.facts_acked.store(info.facts_serial, Ordering::Release);
                }
                drop(connection);
                tracing::debug!(node = %self.name(), version = info.version, skew_ms = info.skew_ms, "connected");
                let mut seen = self.seen();
                seen.hook_set = Some(UsedSet { digest: info.hook_set.clone() });
                seen.info = Some(info);
                seen.trouble = None;
                drop(seen);
                self.inner.ups.send_modify(|count| *count += 1);
                Ok(link)
            }
            Err(error) => {
                if current {
                    connection.state = State::Down { lost: None };
                    drop(connection);
                    self.seen().trouble = Some(error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Gives a connection up.
    pub(super) fn lost(&self, link: &Arc<Link>, reason: &str) {
        let mut connection = self.connection();
        if let State::Up(current) = &connection.state
            && Arc::ptr_eq(current, link)
        {
            connection.state =
                State::Down { lost: Some(Lost { at: Instant::now(), reason: reason.to_owned() }) };
            drop(connection);
            tracing::debug!(node = %self.name(), reason, "connection given up");
            self.seen().trouble = Some(reason.to_owned());
        }
    }

    /// A connection for a call's next try.
    pub(super) async fn ready(&self, tries: &mut Tries) -> Result<Arc<Link>, CallError> {
        if std::mem::take(&mut tries.probe) {
            return self.probed().await;
        }
        if let Some(lost) = tries.lost.take() {
            return self.reconnect(lost).await;
        }
        match self.checked().await? {
            Checked::Usable(link) => Ok(link),
            Checked::Lost(lost) => self.reconnect(lost).await,
        }
    }

    /// The connection if it is known to be good, or was found good by a ping, or is new.
    async fn checked(&self) -> Result<Checked, CallError> {
        let link = {
            let connection = self.connection();
            match &connection.state {
                State::Up(link) => Some(link.clone()),
                State::Down { lost: Some(lost) }
                    if lost.at.elapsed() < self.inner.shared.limits().reconnect =>
                {
                    return Ok(Checked::Lost(lost.clone()));
                }
                State::Down { .. } | State::Dialling { .. } => None,
            }
        };
        let Some(link) = link else { return self.link().await.map(Checked::Usable) };
        if link.idle() < self.inner.shared.limits().fresh {
            return Ok(Checked::Usable(link));
        }
        match link.ping(&self.inner.shared).await {
            Ok(()) => Ok(Checked::Usable(link)),
            Err(error) => {
                let reason = error.to_string();
                self.lost(&link, &reason);
                Ok(Checked::Lost(Lost { at: Instant::now(), reason }))
            }
        }
    }

    /// A ping within one limit in all, a new connection included where the old one turns out to be gone.
    async fn probed(&self) -> Result<Arc<Link>, CallError> {
        let limit = self.inner.shared.limits().probe;
        let probe = async {
            match self.checked().await? {
                Checked::Usable(link) => Ok(link),
                Checked::Lost(_) => self.link().await,
            }
        };
        let silent = |_| CallError::NotReached(format!("no answer to a probe within {}", words(limit)));
        timeout(limit, probe).await.map_err(silent)?
    }

    /// Replaces a lost connection. A refusal is not the end within the limit: the daemon may be restarting.
    async fn reconnect(&self, lost: Lost) -> Result<Arc<Link>, CallError> {
        let end = lost.at + self.inner.shared.limits().reconnect;
        loop {
            match self.link().await {
                Err(CallError::NotReached(why)) if Instant::now() + RECONNECT_PAUSE >= end => {
                    return Err(CallError::NotReached(format!("{}; reconnecting: {why}", lost.reason)));
                }
                Err(CallError::NotReached(_)) => sleep(RECONNECT_PAUSE).await,
                Err(error @ (CallError::Refused { .. } | CallError::OfficeLost(_))) => return Err(error),
                Ok(link) => return Ok(link),
            }
        }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.inner.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.inner.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
