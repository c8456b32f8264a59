//! What nodes say of their hosts: the last word of each, kept durably, so that a restarted master shows it with its age.
//!
//! A node's state brings facts; what is new goes to memory at once and to the store soon after, in the order of arrival. The
//! record goes with the node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_core::{
    edit::Touched,
    facts::{NodeFacts, facts_env},
    hooks::Env,
    model::Cluster,
    names::NodeName,
    ops::{ObjectKind, Op},
};
use muster_proto::{convert::host, v1};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::{
    events::Event,
    master::Master,
    store::{Batch, RecordWriter, Records, ValueError, decode, encode, keys, with_prefix},
};

/// A node's facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFacts {
    /// Whose: a node of the same name that comes later is another one.
    pub node: Uuid,
    /// What it said.
    pub facts: NodeFacts,
    /// When its daemon looked, by the node's own clock: names the look.
    pub collected_ms: u64,
    /// The same moment by this master's clock, for the age.
    pub at_ms: u64,
}

/// A node's facts became others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactsChange {
    /// The node.
    pub node: NodeName,
    /// What they are now.
    pub facts: NodeFacts,
}

#[derive(Default)]
struct State {
    kept: BTreeMap<NodeName, KeptFacts>,
    /// Nodes whose record is to be written.
    unwritten: BTreeSet<NodeName>,
    /// Of each node the newest change that nobody was told of.
    changes: BTreeMap<NodeName, NodeFacts>,
}

/// All nodes' facts.
#[derive(Default)]
pub struct HostFactsKeeper {
    state: Mutex<State>,
    news: Notify,
}

impl HostFactsKeeper {
    /// Takes over what the records say, replacing everything. Gives the keys of records that serve no more.
    ///
    /// # Errors
    /// When a record can't be read.
    pub fn load(&self, cluster: &Cluster, records: &Records) -> Result<Vec<String>, ValueError> {
        let mut state = State::default();
        let mut stale = Vec::new();
        for (key, text) in with_prefix(records, keys::HOST_FACTS) {
            let kept: KeptFacts = decode(key, text)?;
            let name = NodeName::parse(&key[keys::HOST_FACTS.len()..]).ok();
            match name.filter(|name| cluster.nodes.get(name).is_some_and(|node| node.uuid == kept.node)) {
                Some(name) => drop(state.kept.insert(name, kept)),
                None => stale.push(key.clone()),
            }
        }
        *self.state() = state;
        Ok(stale)
    }

    /// Forgets everything: the cluster is gone, or has another master.
    pub fn clear(&self) {
        *self.state() = State::default();
    }

    /// A node's facts.
    pub fn get(&self, name: &NodeName) -> Option<KeptFacts> {
        self.state().kept.get(name).cloned()
    }

    /// Takes in what a member said. Does not wait.
    pub fn told(&self, name: &NodeName, node: Uuid, said: &v1::NodeState, now_ms: u64) {
        let Some(host) = &said.host else { return };
        let mut state = self.state();
        let known = state.kept.get(name).filter(|known| known.node == node);
        if known.is_some_and(|known| known.collected_ms == host.collected_ms) {
            return;
        }
        let facts = host::node_facts(host.clone());
        // The first facts of a node are no change.
        if known.is_some_and(|known| known.facts != facts) {
            state.changes.insert(name.clone(), facts.clone());
        }
        // Both moments are of the node's clock, which may be another than this one's.
        let age_ms = said.now_ms.saturating_sub(host.collected_ms);
        let (collected_ms, at_ms) = (host.collected_ms, now_ms.saturating_sub(age_ms));
        state.kept.insert(name.clone(), KeptFacts { node, facts, collected_ms, at_ms });
        state.unwritten.insert(name.clone());
        drop(state);
        self.news.notify_one();
    }

    /// Follows a commit that is durable: facts go with their node. Gives the keys of records to be deleted; does not wait.
    pub fn follow<'a>(
        &self,
        cluster: Option<&Cluster>,
        touched: impl IntoIterator<Item = &'a Touched>,
    ) -> Vec<String> {
        let Some(cluster) = cluster else {
            self.clear();
            return Vec::new();
        };
        let gone =
            touched.into_iter().filter_map(Touched::node).filter(|name| !cluster.nodes.contains_key(*name));
        let mut state = self.state();
        let forget = |name: &NodeName| {
            state.unwritten.remove(name);
            state.changes.remove(name);
            state.kept.remove(name).map(|_| keys::host_facts(name))
        };
        gone.filter_map(forget).collect()
    }

    /// The records to be written, and the changes to be told.
    fn take_news(&self) -> (Batch, Vec<FactsChange>) {
        let mut state = self.state();
        let mut batch = Batch::default();
        for name in std::mem::take(&mut state.unwritten) {
            if let Some(kept) = state.kept.get(&name) {
                batch.put(keys::host_facts(&name), encode(kept));
            }
        }
        let changes = std::mem::take(&mut state.changes).into_iter();
        (batch, changes.map(|(node, facts)| FactsChange { node, facts }).collect())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what is new and tells of changes, until the daemon stops.
pub(crate) async fn keep(master: Arc<Master>) {
    loop {
        tokio::select! {
            () = master.host_facts.news.notified() => {}
            () = master.stop.cancelled() => return,
        }
        let (batch, changes) = master.host_facts.take_news();
        if master.commands.write(batch).await.is_err() {
            // Nodes say it again to the next master.
            tracing::debug!("facts of nodes were not written: the driver has ended");
        }
        for change in changes {
            tracing::info!(node = %change.node, "a node's facts have changed");
            master.events.push(change_event(&change));
        }
    }
}

/// `node-facts-post.d` is told of a change; of several that wait, the newest.
fn change_event(change: &FactsChange) -> Event {
    Event::new("node-facts")
        .env(change_env(change))
        .file("FACTS_PATH", change_json(change))
        .key(change.node.to_string())
}

/// What scripts are told of a change, their own variables.
fn change_env(change: &FactsChange) -> Env {
    Env::new().set("NODE_NAME", change.node.as_str()).with(facts_env(Some(&change.facts)))
}

/// The facts as a file for scripts.
fn change_json(change: &FactsChange) -> String {
    let mut whole = json!(change.facts);
    if let Some(object) = whole.as_object_mut() {
        object.insert("node".to_owned(), json!(change.node.as_str()));
    }
    format!("{whole:#}\n")
}

/// What a job's scripts are to know of the host of the node that its operation is about.
pub(crate) fn facts_for(master: &Master, op: &Op) -> Option<NodeFacts> {
    if op.row().object != ObjectKind::Node {
        return None;
    }
    let name = NodeName::parse(&op.target()).ok()?;
    // A host that is added again may have another system than the node had.
    let pending = if let Op::NodeAdd(_) = op { master.enrolment.node_facts(&name) } else { None };
    pending.or_else(|| Some(master.host_facts.get(&name)?.facts))
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    fn said(collected_ms: u64, now_ms: u64, os: &str) -> v1::NodeState {
        let facts = NodeFacts { os_name: os.to_owned(), ..NodeFacts::default() };
        let host = Some(host::host_facts(&facts, collected_ms));
        v1::NodeState { now_ms, host, ..v1::NodeState::default() }
    }

    fn name() -> NodeName {
        NodeName::parse("node2").unwrap()
    }

    #[test]
    fn a_look_is_kept_once_and_a_change_is_told_once() {
        let cluster = examples::cluster();
        let node = cluster.nodes[&name()].uuid;
        let keeper = HostFactsKeeper::default();
        keeper.told(&name(), node, &v1::NodeState::default(), 1_000);
        assert_eq!(keeper.get(&name()), None, "a daemon that has not looked");
        // The node's clock is far ahead of this one's, and it looked 50 ms ago.
        keeper.told(&name(), node, &said(900_000, 900_050, "debian"), 1_000);
        let kept = keeper.get(&name()).unwrap();
        assert_eq!((kept.at_ms, kept.facts.os_name.as_str()), (950, "debian"));
        let (batch, changes) = keeper.take_news();
        assert_eq!((batch.puts.len(), changes.len()), (1, 0), "the first facts are no change");
        keeper.told(&name(), node, &said(900_000, 910_000, "debian"), 11_000);
        assert!(keeper.take_news().0.is_empty());
        keeper.told(&name(), node, &said(920_000, 920_000, "debian"), 21_000);
        assert_eq!(keeper.take_news().1, []);
        keeper.told(&name(), node, &said(930_000, 930_000, "fedora"), 31_000);
        let (batch, changes) = keeper.take_news();
        let facts = NodeFacts { os_name: "fedora".to_owned(), ..NodeFacts::default() };
        assert_eq!(changes, [FactsChange { node: name(), facts }]);
        assert_eq!(change_env(&changes[0]).get("NODE_OS_NAME"), Some("fedora"));
        assert!(change_json(&changes[0]).contains("\"node\": \"node2\""));
        // A restarted master knows them; another node of the same name does not get them.
        let records: Records = batch.puts.into_iter().collect();
        let other = HostFactsKeeper::default();
        assert!(other.load(&cluster, &records).unwrap().is_empty());
        assert_eq!(other.get(&name()), keeper.get(&name()));
        let mut replaced = cluster.clone();
        replaced.nodes.get_mut(&name()).unwrap().uuid = Uuid::from_u128(77);
        assert_eq!(other.load(&replaced, &records).unwrap(), [keys::host_facts(&name())]);
        assert_eq!(other.get(&name()), None);
    }

    #[test]
    fn facts_go_with_their_node_and_with_the_cluster() {
        let mut cluster = examples::cluster();
        let keeper = HostFactsKeeper::default();
        let tell = || keeper.told(&name(), cluster.nodes[&name()].uuid, &said(1, 1, "debian"), 1_000);
        tell();
        assert!(keeper.follow(Some(&cluster), [&Touched::Node(name())]).is_empty());
        keeper.follow(None, [&Touched::Nothing]);
        assert_eq!(keeper.get(&name()), None);
        tell();
        cluster.nodes.remove(&name());
        let touched = [Touched::Node(name())];
        assert_eq!(keeper.follow(Some(&cluster), &touched), [keys::host_facts(&name())]);
        assert_eq!(keeper.get(&name()), None);
        assert!(keeper.take_news().0.is_empty(), "nothing is written of it any more");
    }
}
