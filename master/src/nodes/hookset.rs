//! Brings the cluster's own hook set to a node, and asks it what of the set in use has changed.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use muster_core::hooks::{Digest, Env, HookPolicy, HookSet};
use muster_proto::{
    convert::hookset::entry,
    hookset::HookStore,
    v1::{self, sync_hooks_event::Event, sync_hooks_input::Input},
};
use tokio::{
    sync::{OwnedMutexGuard, mpsc, oneshot},
    time::{sleep_until, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::{
    client::{NodeClient, Tries},
    limits::words,
    trouble::CallError,
};

/// A whole sync of a node: the node's own scripts may be asked, each of which may take 5 min by default.
const SYNC_LIMIT: Duration = Duration::from_secs(15 * 60);
/// A node that works says so every 5 s.
const SILENT_LIMIT: Duration = Duration::from_secs(20);
/// Comparing a set of 64 MiB takes a second or two.
const CHECK_LIMIT: Duration = Duration::from_secs(30);
/// Messages that wait for the node.
const INPUTS_WAITING_MAX: usize = 4;
/// Entries in a message.
const ENTRIES_AT_ONCE: usize = 500;
/// Bytes of a file in a message.
const PIECE_BYTES_MAX: usize = 256 * 1024;

/// Called with a node that is about to run hooks: whether it has the newest set may be looked at then.
pub type BeforeHooks = Arc<dyn Fn(NodeClient) -> BoxFuture<'static, ()> + Send + Sync>;

/// A set, and where its files are.
#[derive(Debug, Clone)]
pub struct SetOffer {
    /// Of its list.
    pub digest: Digest,
    /// Its list.
    pub set: Arc<HookSet>,
    /// Its files.
    pub store: HookStore,
}

/// How a set is brought.
#[derive(Debug, Clone)]
pub struct SetAsk {
    /// All files are sent, also those that the node has.
    pub full: bool,
    /// The cluster's parameters on hooks.
    pub policy: HookPolicy,
    /// What the scripts get that may refuse the set.
    pub env: Env,
}

/// What became of a set on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// It uses another set than before.
    pub switched: bool,
    /// Files that travelled.
    pub files: u32,
    /// Their bytes.
    pub bytes: u64,
    /// Why it keeps what it had.
    pub refused: Option<String>,
    /// What is shown.
    pub warnings: Vec<String>,
}

/// What a node said that it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedSet {
    /// None where it has no set.
    pub digest: Option<String>,
}

/// What is remembered of bringing a set to a node.
#[derive(Debug, Clone)]
pub struct SetAttempt {
    /// The set.
    pub tried: Digest,
    /// The connection on which it was tried, by its number.
    pub connection: u64,
    /// When it is tried or compared again without a new connection.
    pub next: Instant,
    /// Why the node did not take it.
    pub refused: Option<String>,
}

/// What was sent.
#[derive(Default)]
struct Sent {
    files: AtomicU32,
    bytes: AtomicU64,
}

impl NodeClient {
    /// What the node uses, as it last said.
    pub fn used_set(&self) -> Option<UsedSet> {
        self.seen().hook_set.clone()
    }

    /// What is remembered of the last set that was brought.
    pub fn set_attempt(&self) -> Option<SetAttempt> {
        self.seen().set_attempt.clone()
    }

    /// Remembers an attempt.
    pub fn set_attempted(&self, attempt: SetAttempt) {
        self.seen().set_attempt = Some(attempt);
    }

    /// Notes what the node uses.
    pub(crate) fn uses_set(&self, used: UsedSet) {
        self.seen().hook_set = Some(used);
    }

    /// To be held while a set is chosen and brought: of two that bring sets to a node the later one chooses later.
    pub async fn set_turn(&self) -> OwnedMutexGuard<()> {
        self.inner.set_gate.clone().lock_owned().await
    }

    /// The same, unless another is about it.
    pub fn try_set_turn(&self) -> Option<OwnedMutexGuard<()>> {
        self.inner.set_gate.clone().try_lock_owned().ok()
    }

    /// Brings a set. A node that has it answers at once.
    ///
    /// # Errors
    /// When the node is not reached, or the sync fails there; it uses what it used, or the new one.
    pub async fn bring_set(
        &self,
        _turn: &OwnedMutexGuard<()>,
        offer: &SetOffer,
        ask: &SetAsk,
    ) -> Result<Brought, CallError> {
        let silent =
            |_| CallError::NotReached(format!("the hook set was not taken within {}", words(SYNC_LIMIT)));
        let brought = timeout(SYNC_LIMIT, self.bring_set_tries(offer, ask)).await.map_err(silent)??;
        if brought.refused.is_none() {
            self.uses_set(UsedSet { digest: Some(offer.digest.to_string()) });
        }
        Ok(brought)
    }

    /// What comes again is small: a node keeps the files that it has got.
    async fn bring_set_tries(&self, offer: &SetOffer, ask: &SetAsk) -> Result<Brought, CallError> {
        let mut tries = Tries::new(false);
        loop {
            let link = self.ready(&mut tries).await?;
            let sent = Sent::default();
            let (inputs, waiting) = mpsc::channel(INPUTS_WAITING_MAX);
            let (wants, wanted) = oneshot::channel();
            let mut hooks = link.hooks();
            let opened = async {
                let begin = self.begin(offer, ask);
                inputs
                    .try_send(input(Input::Begin(begin)))
                    .expect("the channel is empty and its receiver lives");
                hooks.sync_hooks(ReceiverStream::new(waiting)).await
            };
            let result = async {
                let error = |status| self.inner.shared.error_after(link.idle(), &status);
                let silent = |_| CallError::NotReached(format!("no answer within {}", words(SILENT_LIMIT)));
                let events =
                    timeout(SILENT_LIMIT, opened).await.map_err(silent)?.map_err(error)?.into_inner();
                tokio::select! {
                    end = self.hear(&link, events, wants) => end,
                    failed = feed(offer, &inputs, wanted, &sent) => match failed {
                        Err(error) => Err(error),
                        Ok(never) => match never {},
                    },
                }
            };
            match result.await {
                Ok(brought) => {
                    let (files, bytes) = (sent.files.into_inner(), sent.bytes.into_inner());
                    return Ok(Brought { files, bytes, ..brought });
                }
                Err(CallError::NotReached(reason)) => {
                    self.lost(&link, &reason);
                    tries.lost(&link, reason)?;
                }
                Err(error @ (CallError::Refused { .. } | CallError::OfficeLost(_))) => return Err(error),
            }
        }
    }

    fn begin(&self, offer: &SetOffer, ask: &SetAsk) -> v1::SyncHooksBegin {
        let variable = |(name, value): (&str, &str)| v1::HookSetVariable {
            name: format!("GANETI_{name}"),
            value: value.to_owned(),
        };
        v1::SyncHooksBegin {
            context: Some(self.inner.shared.context()),
            digest: offer.digest.to_string(),
            full: ask.full,
            policy: Some(ask.policy.clone().into()),
            env: ask.env.iter().map(variable).collect(),
        }
    }

    async fn hear(
        &self,
        link: &super::link::Link,
        mut events: tonic::Streaming<v1::SyncHooksEvent>,
        wants: oneshot::Sender<Vec<Digest>>,
    ) -> Result<Brought, CallError> {
        let mut wants = Some(wants);
        loop {
            let deadline = tokio::time::Instant::now() + SILENT_LIMIT;
            let event = tokio::select! {
                event = events.message() => event,
                () = sleep_until(deadline) => {
                    return Err(CallError::NotReached(format!("no answer within {}", words(SILENT_LIMIT))));
                }
            };
            let event = event.map_err(|status| self.inner.shared.error_after(link.idle(), &status))?;
            let event = event
                .ok_or_else(|| CallError::NotReached("connection lost: the answer broke off".to_owned()))?;
            link.answered();
            match event.event {
                Some(Event::Wanted(wanted)) => {
                    let digests = wanted.sha256.iter().map(|sha256| Digest::from_slice(sha256));
                    let digests =
                        digests.collect::<Result<Vec<_>, _>>().map_err(|error| broken(&error.to_string()))?;
                    if let Some(wants) = wants.take() {
                        // What feeds the node lives as long as this.
                        drop(wants.send(digests));
                    }
                }
                Some(Event::Used(used)) => {
                    let (switched, warnings) = (used.switched, used.warnings);
                    return Ok(Brought { switched, warnings, ..Brought::default() });
                }
                Some(Event::Refused(refused)) => {
                    let (reason, warnings) = (refused.reason, refused.warnings);
                    return Ok(Brought { refused: Some(reason), warnings, ..Brought::default() });
                }
                // An event of a newer node says at least that it is there.
                Some(Event::Going(_)) | None => {}
            }
        }
    }

    /// Asks what of the set in use is not as in its list.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn check_set(&self) -> Result<v1::CheckHookSetResponse, CallError> {
        let checked = async {
            let link = self.ready(&mut Tries::new(false)).await?;
            let request = v1::CheckHookSetRequest { context: Some(self.inner.shared.context()) };
            let answer = link.hooks().check_hook_set(request).await;
            let answer = answer.map_err(|status| self.inner.shared.error_after(link.idle(), &status))?;
            link.answered();
            Ok(answer.into_inner())
        };
        let silent = |_| CallError::NotReached(format!("no answer within {}", words(CHECK_LIMIT)));
        timeout(CHECK_LIMIT, checked).await.map_err(silent)?
    }
}

fn input(input: Input) -> v1::SyncHooksInput {
    v1::SyncHooksInput { input: Some(input) }
}

fn broken(text: &str) -> CallError {
    CallError::Refused { code: Code::DataLoss, message: format!("the hook set was not brought: {text}") }
}

/// Sends the list, then what is wanted; then waits for ever, since the node has the last word.
async fn feed(
    offer: &SetOffer,
    inputs: &mpsc::Sender<v1::SyncHooksInput>,
    wanted: oneshot::Receiver<Vec<Digest>>,
    sent: &Sent,
) -> Result<Infallible, CallError> {
    // A receiver that is gone has an answer for who listens.
    let send = async |message| {
        if inputs.send(input(message)).await.is_err() {
            pending::<()>().await;
        }
    };
    let entries: Vec<v1::HookSetEntry> = offer.set.entries().map(entry).collect();
    for part in entries.chunks(ENTRIES_AT_ONCE) {
        send(Input::Entries(v1::HookSetEntries { entries: part.to_vec() })).await;
    }
    send(Input::Listed(v1::HookSetListed {})).await;
    let Ok(wanted) = wanted.await else { return pending().await };
    for digest in wanted {
        let store = offer.store.clone();
        let read = tokio::task::spawn_blocking(move || store.read(&digest)).await;
        let bytes = read
            .map_err(|error| broken(&error.to_string()))?
            .map_err(|error| broken(&crate::chain(&error)))?;
        let sha256 = digest.as_bytes().to_vec();
        let (mut pieces, mut rest) = (0_u32, bytes.as_slice());
        while pieces == 0 || !rest.is_empty() {
            let (data, after) = rest.split_at(rest.len().min(PIECE_BYTES_MAX));
            let piece =
                v1::HookFilePiece { sha256: sha256.clone(), data: data.to_vec(), last: after.is_empty() };
            send(Input::Piece(piece)).await;
            (pieces, rest) = (pieces + 1, after);
        }
        sent.files.fetch_add(1, Ordering::Relaxed);
        sent.bytes.fetch_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
    send(Input::Sent(v1::HookFilesSent {})).await;
    pending().await
}
