//! Which set each node is to have, and where its files are.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use muster_core::{
    hooks::{Digest, HookSet},
    model::{Cluster, Node},
    names::NodeName,
};
use muster_proto::hookset::{HookStore, HookStoreError, sync_all_below};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::{
    nodes::SetOffer,
    store::{Batch, RecordWriter, Records, ValueError, WriteError, decode, encode, keys},
};

/// Nodes that get a set at the same time: for each of them a whole file is in memory.
const BROUGHT_AT_ONCE_MAX: usize = 16;
/// A lock here is held for copies only.
const A_LOCK: &str = "no holder of this lock panics";

/// Which set the nodes are to have, as the store keeps it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HookSetRecord {
    /// The cluster's; none before the first sync.
    #[serde(default)]
    pub(crate) cluster: Option<Digest>,
    /// Of nodes that were named in a sync since. By what does not change, nor come again with another node of the name.
    #[serde(default)]
    pub(crate) own: BTreeMap<Uuid, Digest>,
}

impl HookSetRecord {
    /// What a node is to have.
    pub(crate) fn wanted(&self, node: &Node) -> Option<Digest> {
        self.own.get(&node.uuid).copied().or(self.cluster)
    }

    /// This, after a sync of these nodes, or of all; without what was a node's that is gone.
    #[must_use]
    pub(crate) fn after(
        &self,
        digest: Digest,
        cluster: &Cluster,
        nodes: Option<&BTreeSet<NodeName>>,
    ) -> Self {
        let Some(named) = nodes else { return HookSetRecord { cluster: Some(digest), own: BTreeMap::new() } };
        let mut after = self.clone();
        after.own.retain(|uuid, _| cluster.nodes.values().any(|node| node.uuid == *uuid));
        for node in named.iter().filter_map(|name| cluster.nodes.get(name)) {
            if after.cluster == Some(digest) {
                after.own.remove(&node.uuid);
            } else {
                after.own.insert(node.uuid, digest);
            }
        }
        after
    }

    fn digests(&self) -> BTreeSet<Digest> {
        self.own.values().copied().chain(self.cluster).collect()
    }
}

/// Keeps the cluster's set.
pub(crate) struct HookSetKeeper {
    store: HookStore,
    /// The store of the node daemon on this host, which has the same form.
    node_store: HookStore,
    record: Mutex<HookSetRecord>,
    /// Held by a sync.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    /// Shared by a sync that brings nodes what it has read.
    spreading: Arc<()>,
    /// Held while files come from the node's store, and while files are removed.
    fetching: Mutex<()>,
    /// Held for each node that gets a set.
    pub(super) bringing: Semaphore,
}

impl HookSetKeeper {
    /// A keeper of the set below a master's state directory.
    pub(crate) fn new(state_dir: &Path) -> Self {
        let below = |daemon: &str| -> PathBuf { state_dir.join(daemon).join("hooks") };
        HookSetKeeper {
            store: HookStore::new(below("master")),
            node_store: HookStore::new(below("node")),
            record: Mutex::default(),
            turn: Arc::default(),
            spreading: Arc::default(),
            fetching: Mutex::default(),
            bringing: Semaphore::new(BROUGHT_AT_ONCE_MAX),
        }
    }

    /// Contents and lists.
    pub(super) fn store(&self) -> &HookStore {
        &self.store
    }

    /// Takes in what the store of records says.
    ///
    /// # Errors
    /// When the record can't be understood.
    pub(crate) fn load(&self, records: &Records) -> Result<(), ValueError> {
        let record = records.get(keys::HOOK_SET).map(|text| decode(keys::HOOK_SET, text)).transpose()?;
        *self.record.lock().expect(A_LOCK) = record.unwrap_or_default();
        Ok(())
    }

    /// The cluster is gone.
    pub(crate) fn clear(&self) {
        *self.record.lock().expect(A_LOCK) = HookSetRecord::default();
    }

    /// Says that nodes are brought a set by a sync, until the value is dropped.
    pub(super) fn spread(&self) -> Arc<()> {
        self.spreading.clone()
    }

    /// Whether a sync brings a set to nodes. One that still reads the directory, maybe for ever, changes nothing there.
    pub(super) fn is_spreading(&self) -> bool {
        Arc::strong_count(&self.spreading) > 1
    }

    /// Which set each node is to have.
    pub(crate) fn record(&self) -> HookSetRecord {
        self.record.lock().expect(A_LOCK).clone()
    }

    /// Makes a record durable and goes by it from then on.
    ///
    /// # Errors
    /// When the driver is gone: this daemon is stopping, or not the master any more.
    pub(super) async fn set_record(
        &self,
        writer: &impl RecordWriter,
        record: HookSetRecord,
    ) -> Result<(), WriteError> {
        let puts = vec![(keys::HOOK_SET.to_owned(), encode(&record))];
        writer.write(Batch { puts, ..Batch::default() }).await?;
        *self.record.lock().expect(A_LOCK) = record;
        Ok(())
    }

    /// A set with its files; what this host's node has and the master does not is copied first. Blocks.
    ///
    /// # Errors
    /// When a file is in neither place.
    pub(super) fn offer(&self, digest: Digest) -> Result<SetOffer, HookStoreError> {
        let set = match self.store.list(&digest) {
            Ok(set) if self.store.lacking(&set).is_empty() => set,
            Ok(_) | Err(HookStoreError::Missing { .. }) => self.fetch(&digest)?,
            Err(error) => return Err(error),
        };
        Ok(SetOffer { digest, set: Arc::new(set), store: self.store.clone() })
    }

    fn fetch(&self, digest: &Digest) -> Result<HookSet, HookStoreError> {
        let _one_at_a_time = self.fetching.lock().expect(A_LOCK);
        let set = self.store.list(digest).or_else(|_| self.node_store.list(digest))?;
        muster_proto::hookset::make_private_dir(self.store.dir())?;
        for content in self.store.lacking(&set) {
            self.store.insert(&self.node_store.read(&content)?)?;
        }
        self.store.insert_list(&set)?;
        sync_all_below(self.store.dir())?;
        tracing::info!(set = %digest, "the cluster's hook set was taken from this host's node");
        Ok(set)
    }

    /// Removes the files of sets that no node is to have. Blocks.
    pub(super) fn prune(&self) {
        let _nothing_is_fetched = self.fetching.lock().expect(A_LOCK);
        if let Err(error) = self.store.keep_only(&self.record().digests()) {
            tracing::warn!(error = crate::chain(&error), "files of old hook sets could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use muster_core::{hooks::SetEntry, ops::examples};

    use super::*;

    #[test]
    fn a_node_that_was_named_has_a_set_of_its_own_until_the_next_whole_sync() {
        let [one, two] = [1, 2].map(|mark| Digest::new([mark; 32]));
        let mut cluster = examples::cluster();
        let named: BTreeSet<NodeName> = [NodeName::parse("node2").unwrap()].into();
        let node = |cluster: &Cluster, number: usize| cluster.nodes.values().nth(number - 1).unwrap().clone();
        let record = HookSetRecord::default().after(one, &cluster, None);
        assert_eq!(record.wanted(&node(&cluster, 2)), Some(one));
        let trial = record.after(two, &cluster, Some(&named));
        let wanted = |number| trial.wanted(&node(&cluster, number));
        assert_eq!((wanted(1), wanted(2)), (Some(one), Some(two)));
        assert_eq!(trial.digests().len(), 2);
        assert_eq!(
            trial.after(one, &cluster, Some(&named)),
            record,
            "the same as the cluster's is none of its own"
        );
        let whole = HookSetRecord { cluster: Some(two), own: BTreeMap::new() };
        assert_eq!(trial.after(two, &cluster, None), whole);
        let only = HookSetRecord::default().after(one, &cluster, Some(&named));
        assert_eq!(only.wanted(&node(&cluster, 1)), None);
        // Another node of the same name, later, has nothing of this one.
        cluster.nodes.values_mut().nth(1).unwrap().uuid = Uuid::from_u128(77);
        assert_eq!(trial.wanted(&node(&cluster, 2)), Some(one));
        let next = trial.after(two, &cluster, Some(&[NodeName::parse("node3").unwrap()].into()));
        assert_eq!(next.own.len(), 1, "what was a node's that is gone is forgotten");
    }

    #[tokio::test]
    async fn a_sync_is_seen_once_it_brings_something_to_nodes() {
        let keeper = HookSetKeeper::new(Path::new("/nonexistent"));
        let turn = Arc::clone(&keeper.turn).try_lock_owned().unwrap();
        assert!(!keeper.is_spreading(), "it reads");
        let spreading = keeper.spread();
        assert!(keeper.is_spreading());
        drop((spreading, turn));
        assert!(!keeper.is_spreading());
    }

    #[test]
    fn a_new_master_takes_the_files_from_its_own_hosts_node() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = HookSetKeeper::new(folder.path());
        let content = keeper.node_store.insert(b"#!/bin/sh\n").unwrap();
        let entry = SetEntry::File { digest: content, mode: 0o755, size: 10 };
        let set = HookSet::try_from(vec![("a-pre.d/10-x".to_owned(), entry)]).unwrap();
        let digest = keeper.node_store.insert_list(&set).unwrap();
        let offer = keeper.offer(digest).unwrap();
        assert_eq!((offer.set.as_ref(), offer.store.read(&content).unwrap().len()), (&set, 10));
        std::fs::remove_dir_all(keeper.node_store.dir()).unwrap();
        assert!(keeper.offer(digest).is_ok(), "they are its own now");
        keeper.prune();
        assert!(matches!(keeper.offer(digest), Err(HookStoreError::Missing { .. })));
    }
}
