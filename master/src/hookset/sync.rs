//! `gnt-hooks sync`: makes what is in `hooks_source` the cluster's set, or that of some nodes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use muster_core::{
    hooks::{HookSet, HooksVersion, lint},
    model::Cluster,
    names::{NodeName, nearest},
    ops::sync_env,
};
use muster_proto::{hookset::set_digest, v1};
use tokio::{
    sync::{OwnedMutexGuard, mpsc},
    time::timeout,
};
use tonic::Status;

use super::{
    follow,
    keeper::HookSetRecord,
    source::{SourceError, read_source},
};
use crate::{
    master::Master,
    nodes::{Brought, CallError, NodeClient, SetAsk, SetOffer},
};

/// Reading and checking the directory: 64 MiB at most, but perhaps from another host.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    /// None for all.
    pub(crate) nodes: Option<BTreeSet<NodeName>>,
    /// All files are sent.
    pub(crate) full: bool,
    /// Only what is not the cluster's set already.
    pub(crate) only_new: bool,
    /// Who asks.
    pub(crate) user: String,
}

/// Why a sync did not go on to the nodes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SyncFailure {
    /// This master has none.
    #[error(
        "hooks_source is not set in masterd.toml on this host: it names the directory that is distributed"
    )]
    NoSource,
    /// Another one goes on.
    #[error("another sync of hooks goes on: try again when it has ended")]
    Another,
    /// A node that nobody knows, or that can't be asked.
    #[error("{0}")]
    Node(String),
    /// The directory.
    #[error("{dir} can't be distributed")]
    Source {
        /// The directory.
        dir: String,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// The directory did not come.
    #[error("{0} could not be read within 60 s")]
    Slow(String),
    /// Scripts that would not run.
    #[error("{dir} has errors: {errors}")]
    Lint {
        /// The directory.
        dir: String,
        /// Each with its place.
        errors: String,
    },
    /// The node on the master's own host speaks for the whole cluster.
    #[error("the node on the master's own host refuses the set, so no node gets it: {0}")]
    Refused(String),
    /// It could not be asked.
    #[error("could not ask the node on the master's own host, so no node gets the set: {0}")]
    Unasked(String),
    /// The daemon.
    #[error("{0}")]
    Stopping(String),
}

impl SyncFailure {
    /// Whether the same may succeed later with the same files.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            SyncFailure::Another
            | SyncFailure::Slow(_)
            | SyncFailure::Unasked(_)
            | SyncFailure::Stopping(_)
            | SyncFailure::Source { source: SourceError::Read { .. } | SourceError::Store(_), .. } => true,
            SyncFailure::NoSource
            | SyncFailure::Node(_)
            | SyncFailure::Source { .. }
            | SyncFailure::Lint { .. }
            | SyncFailure::Refused(_) => false,
        }
    }
}

impl From<SyncFailure> for Status {
    fn from(failure: SyncFailure) -> Status {
        let text = crate::chain(&failure);
        match failure {
            SyncFailure::Another => Status::aborted(text),
            SyncFailure::Node(_) => Status::not_found(text),
            SyncFailure::Slow(_) | SyncFailure::Stopping(_) => Status::unavailable(text),
            SyncFailure::NoSource
            | SyncFailure::Source { .. }
            | SyncFailure::Lint { .. }
            | SyncFailure::Refused(_)
            | SyncFailure::Unasked(_) => Status::failed_precondition(text),
        }
    }
}

/// Events for who asked; it may be gone.
type Told = mpsc::Sender<v1::sync_hook_set_event::Event>;

/// Carries one sync to its end; how many nodes do not have the set then.
///
/// # Errors
/// When no node has got it by this, but perhaps the one on the master's own host.
pub(crate) async fn sync(
    master: &Arc<Master>,
    wish: &Wish,
    told: &Told,
) -> Result<v1::HookSetDone, SyncFailure> {
    let Ok(turn) = Arc::clone(&master.hook_sets.turn).try_lock_owned() else {
        return Err(SyncFailure::Another);
    };
    let turn = Arc::new(turn);
    let done = sync_in_turn(master, wish, told, &turn).await;
    if !matches!(done, Err(SyncFailure::Slow(_))) {
        // Whatever the end was: what was read and is nobody's set does not stay.
        let pruned = master.clone();
        if tokio::task::spawn_blocking(move || pruned.hook_sets.prune()).await.is_err() {
            tracing::warn!("files of old hook sets were not looked over");
        }
    }
    done
}

/// Held while a sync goes on, by the thread that reads as well: what hangs there is waited for by the next sync.
type Turn = Arc<OwnedMutexGuard<()>>;

async fn sync_in_turn(
    master: &Arc<Master>,
    wish: &Wish,
    told: &Told,
    turn: &Turn,
) -> Result<v1::HookSetDone, SyncFailure> {
    use v1::sync_hook_set_event::Event;
    let keeper = &master.hook_sets;
    let cluster = master.cluster().map_err(|status| SyncFailure::Stopping(status.message().to_owned()))?;
    let targets = targets(&cluster, wish)?;
    let (offer, warnings) = read(master, turn, cluster.hooks.version).await?;
    if wish.only_new && keeper.record().cluster == Some(offer.digest) {
        return Ok(v1::HookSetDone::default());
    }
    let _spreading = keeper.spread();
    let read = v1::HookSetRead {
        digest: offer.digest.to_string(),
        entries: u32::try_from(offer.set.len()).unwrap_or(u32::MAX),
        bytes: offer.set.bytes(),
        warnings,
    };
    tracing::info!(set = read.digest, entries = read.entries, user = wish.user, "hooks_source was read");
    drop(told.send(Event::Read(read)).await);
    let ask = SetAsk { full: wish.full, policy: cluster.hooks.clone(), env: sync_env(&cluster, &wish.user) };
    let record = keeper.record().after(offer.digest, &cluster, wish.nodes.as_ref());
    let mut done = v1::HookSetDone { nodes: u32::try_from(targets.len()).unwrap_or(u32::MAX), behind: 0 };
    let local = &master.config.name;
    if targets.contains(local) {
        let first = own_node_first(master, &offer, &ask, record).await?;
        drop(told.send(Event::Node(node_event(local, &Ok(first)))).await);
    } else {
        write_record(master, record).await?;
    }
    let others = targets.iter().filter(|name| *name != local);
    let mut ends: FuturesUnordered<_> = others.map(|name| bring(master, name, &offer, &ask)).collect();
    while let Some((name, brought)) = ends.next().await {
        let event = node_event(&name, &brought);
        done.behind += u32::from(event.refused.is_some() || event.not_reached.is_some());
        drop(told.send(Event::Node(event)).await);
    }
    Ok(done)
}

fn targets(cluster: &Cluster, wish: &Wish) -> Result<BTreeSet<NodeName>, SyncFailure> {
    let Some(named) = &wish.nodes else {
        let online = cluster.nodes.values().filter(|node| !node.offline);
        return Ok(online.map(|node| node.name.clone()).collect());
    };
    for name in named {
        match cluster.nodes.get(name) {
            Some(node) if node.offline => {
                return Err(SyncFailure::Node(format!("node {name} is marked offline")));
            }
            Some(_) => {}
            None => {
                let near = nearest(name.as_str(), cluster.nodes.keys().map(NodeName::as_str));
                let near = near.map(|near| format!("; the nearest name is {near}")).unwrap_or_default();
                return Err(SyncFailure::Node(format!("there is no node {name}{near}")));
            }
        }
    }
    Ok(named.clone())
}

/// Reads and checks the directory, as the cluster's version of the interface has it; its set and what is to be shown.
async fn read(
    master: &Arc<Master>,
    turn: &Turn,
    version: HooksVersion,
) -> Result<(SetOffer, Vec<String>), SyncFailure> {
    let dir = master.config.hooks_source.clone().ok_or(SyncFailure::NoSource)?;
    let shown = dir.display().to_string();
    let reading = {
        let (master, turn) = (master.clone(), turn.clone());
        tokio::task::spawn_blocking(move || {
            let _held = turn;
            let store = master.hook_sets.store();
            let set = read_source(&dir, store)?;
            let findings = findings(&set, store, version);
            Ok::<_, SourceError>((set, findings))
        })
    };
    let read = timeout(READ_LIMIT, reading).await.map_err(|_| SyncFailure::Slow(shown.clone()))?;
    let read = read.map_err(|error| SyncFailure::Stopping(error.to_string()))?;
    let (set, findings) = read.map_err(|source| SyncFailure::Source { dir: shown.clone(), source })?;
    if !findings.errors.is_empty() {
        return Err(SyncFailure::Lint { dir: shown, errors: findings.errors.join("; ") });
    }
    let offer =
        SetOffer { digest: set_digest(&set), set: Arc::new(set), store: master.hook_sets.store().clone() };
    Ok((offer, findings.warnings))
}

/// What can be said on any host; whether a node has the interpreters is for the node to say.
fn findings(
    set: &HookSet,
    store: &muster_proto::hookset::HookStore,
    version: HooksVersion,
) -> lint::SetFindings {
    let content = |digest: &_| store.read(digest).ok();
    let files =
        lint::SetFiles { content: &content, no_exec_mount: false, is_there: &|_| true, on_master: true };
    lint::set_findings(&lint::Linter::of(version), set, &files)
}

/// The guard that must be sure to run sits on the master's own host: what its node refuses is no set for anybody. It has the
/// set a moment before that is durable here; a master that dies in between brings it back to the one before.
async fn own_node_first(
    master: &Arc<Master>,
    offer: &SetOffer,
    ask: &SetAsk,
    record: HookSetRecord,
) -> Result<Brought, SyncFailure> {
    let local = master.nodes.local();
    let turn = local.set_turn().await;
    match local.bring_set(&turn, offer, ask).await {
        Ok(Brought { refused: Some(reason), .. }) => Err(SyncFailure::Refused(reason)),
        Ok(brought) => {
            write_record(master, record).await?;
            follow::remember(&local, offer.digest, None);
            Ok(brought)
        }
        Err(error @ (CallError::NotReached(_) | CallError::Refused { .. } | CallError::OfficeLost(_))) => {
            Err(SyncFailure::Unasked(error.to_string()))
        }
    }
}

async fn write_record(master: &Arc<Master>, record: HookSetRecord) -> Result<(), SyncFailure> {
    let written = master.hook_sets.set_record(&master.commands, record).await;
    written
        .map_err(|_| SyncFailure::Stopping("this daemon is stopping, or not the master any more".to_owned()))
}

async fn bring(
    master: &Arc<Master>,
    name: &NodeName,
    offer: &SetOffer,
    ask: &SetAsk,
) -> (NodeName, Result<Brought, CallError>) {
    let brought = async {
        let client: NodeClient = master.nodes.node(name)?;
        follow::bring(master, &client, &client.set_turn().await, offer, ask).await
    };
    (name.clone(), brought.await)
}

fn node_event(name: &NodeName, brought: &Result<Brought, CallError>) -> v1::HookSetNode {
    let node = v1::HookSetNode { node: name.to_string(), ..v1::HookSetNode::default() };
    match brought {
        Ok(brought) => v1::HookSetNode {
            switched: brought.switched,
            files_sent: brought.files,
            bytes_sent: brought.bytes,
            refused: brought.refused.clone(),
            warnings: brought.warnings.clone(),
            ..node
        },
        Err(CallError::NotReached(why)) => v1::HookSetNode { not_reached: Some(why.clone()), ..node },
        Err(error @ (CallError::Refused { .. } | CallError::OfficeLost(_))) => {
            v1::HookSetNode { refused: Some(error.to_string()), ..node }
        }
    }
}
