//! All nodes of the cluster, by name, as the committed configuration has them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;
use muster_core::{
    calls::{CallAnswer, Image, NodeCall},
    hooks::{HookResult, NodeAnswer, NodeReport, NotReached},
    model::{self, Cluster},
    names::NodeName,
};
use muster_proto::{
    transport::{Fingerprint, Pins, TlsState},
    v1,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::{
    BeforeHooks, CallError, NodeClient, NodeInfo, Office, OnProgress, OnScript, RunHooks, Settings,
    copy::copy_image, facts::facts_of, link::Target, shared::Shared,
};

/// The nodes that the master calls. Cheap to clone; clones share everything. Must be used within a tokio runtime.
#[derive(Clone)]
pub struct NodeRegistry {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    local: NodeClient,
    members: RwLock<BTreeMap<NodeName, Member>>,
}

/// A node of the configuration, with its background tasks.
struct Member {
    client: NodeClient,
    place: Place,
    pinned: Vec<Fingerprint>,
    pins: Pins,
    _tasks: DropGuard,
}

/// What makes a node another one when it changes.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    Local,
    Remote { address: SocketAddr, node: Uuid },
}

impl NodeRegistry {
    /// A registry that knows the local node only.
    pub fn new(settings: Settings) -> Self {
        let target = Target::Unix(settings.local_socket.clone());
        let name = settings.local.clone();
        let shared = Shared::new(settings);
        let local = NodeClient::new(name, target, shared.clone());
        NodeRegistry { inner: Arc::new(Inner { shared, local, members: RwLock::default() }) }
    }

    /// Sets what every call tells the nodes of this master. With another cluster or epoch all nodes are greeted anew.
    pub fn set_office(&self, office: Office) {
        let old = self.inner.shared.office.swap(Arc::new(office));
        if (old.cluster, old.epoch) != (office.cluster, office.epoch) {
            self.reset_all();
        }
    }

    /// Sets the certificate that this master shows, from the next call on; calls that run keep their connection.
    pub fn set_tls(&self, tls: &TlsState) {
        self.inner.shared.tls.store(Some(Arc::new(tls.clone())));
        self.reset_all();
    }

    /// Follows a commit: nodes, accepted certificates, serial and facts.
    pub fn update(&self, cluster: &Cluster) {
        let old = *self.inner.shared.office.load_full();
        self.set_office(Office { cluster: Some(cluster.uuid), serial: cluster.serial, ..old });
        self.update_members(cluster);
        self.set_facts(facts_of(cluster));
    }

    /// The same, but the nodes are told nothing yet: they can be asked what they have seen, and would forget it with
    /// the first facts of a newer epoch.
    pub fn meet(&self, cluster: &Cluster) {
        let old = *self.inner.shared.office.load_full();
        self.set_office(Office { cluster: Some(cluster.uuid), serial: cluster.serial, ..old });
        self.update_members(cluster);
    }

    /// Forgets the cluster: no node but the local one is known, nothing goes on in the background.
    pub fn clear(&self) {
        self.end_members();
        self.set_office(Office::default());
    }

    /// The same after a cluster was destroyed: the local node is called in its name still, for the post scripts of its
    /// end. The next cluster brings an office of its own.
    pub fn end_members(&self) {
        self.inner.shared.facts.send_replace(None);
        self.members_mut().clear();
        self.reset_all();
    }

    /// Sets the facts that the nodes are to have; sent in the background, the newest only.
    pub fn set_facts(&self, facts: v1::Facts) {
        self.inner.shared.facts.send_replace(Some(Arc::new(facts)));
    }

    /// Sets what is called before hooks run on a node; once.
    pub fn set_before_hooks(&self, before: BeforeHooks) {
        if self.inner.shared.before_hooks.set(before).is_err() {
            tracing::error!("what is done before hooks was set before");
        }
    }

    /// The node on this host, member or not.
    pub fn local(&self) -> NodeClient {
        self.inner.local.clone()
    }

    /// A member that is not offline.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn node(&self, name: &NodeName) -> Result<NodeClient, CallError> {
        if *name == self.inner.shared.settings.local {
            return Ok(self.local());
        }
        let members = self.inner.members.read().unwrap_or_else(PoisonError::into_inner);
        let member = members.get(name).map(|member| member.client.clone());
        member.ok_or_else(|| CallError::NotReached(format!("{name} is offline or not a node of the cluster")))
    }

    /// Accepts these certificates of a member from now on, until a commit changes what the configuration says of it.
    pub fn accept(&self, name: &NodeName, fingerprints: Vec<Fingerprint>) {
        if let Some(member) = self.members_mut().get(name) {
            member.pins.replace(fingerprints);
        }
    }

    /// A node that is not, or no longer, in the configuration.
    pub fn provisional(
        &self,
        name: NodeName,
        address: SocketAddr,
        node: Uuid,
        fingerprints: &[model::Fingerprint],
    ) -> NodeClient {
        if name == self.inner.shared.settings.local {
            return self.local();
        }
        let accepted = Pins::new(parse_fingerprints(&name, fingerprints));
        NodeClient::new(name, Target::Tls { address, node, accepted }, self.inner.shared.clone())
    }

    /// Runs a hook directory on a node; see [`NodeClient::run_hooks`].
    pub async fn run_hooks(
        &self,
        node: &NodeName,
        run: &RunHooks,
        on_script: Option<&OnScript>,
    ) -> NodeReport {
        let start = Instant::now();
        match self.node(node) {
            Ok(client) => client.run_hooks(run, on_script).await,
            Err(error) => NodeReport {
                node: node.clone(),
                answer: NodeAnswer::NotReached {
                    why: NotReached { reason: error.to_string() },
                    partial: HookResult::default(),
                },
                duration_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
            },
        }
    }

    /// Has a node carry out a call; see [`NodeClient::execute`].
    pub async fn execute(
        &self,
        node: &NodeName,
        call_id: &str,
        job: u64,
        call: &NodeCall,
        on_progress: Option<&OnProgress>,
    ) -> CallAnswer {
        match self.node(node) {
            Ok(client) => client.execute(call_id, job, call, on_progress).await,
            Err(error) => error.into_answer(),
        }
    }

    /// Copies an image from a node to a node, as part of a job: [`NodeRegistry::end_job`] on either node ends it. The
    /// reason of a failure names the node.
    pub async fn copy_image(
        &self,
        job: u64,
        from_node: &NodeName,
        from: &Image,
        to_node: &NodeName,
        to: &Image,
        on_progress: Option<&OnProgress>,
    ) -> CallAnswer {
        match (self.node(from_node), self.node(to_node)) {
            (Ok(from_client), Ok(to_client)) => {
                copy_image(job, &from_client, from, &to_client, to, on_progress).await
            }
            (Err(error), _) | (_, Err(error)) => error.into_answer(),
        }
    }

    /// Ends all that goes on for a job on a node; see [`NodeClient::end_job`].
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn end_job(&self, node: &NodeName, job: u64, calls: &[String]) -> Result<u32, CallError> {
        self.node(node)?.end_job(job, calls).await
    }

    /// The highest epoch that a node named when it refused this master's; 0 where none did.
    pub fn epoch_above(&self) -> u64 {
        self.inner.shared.epoch_above.load(Ordering::SeqCst)
    }

    /// Sees to it that all members are connected, all at once; a silent one costs one short limit in all. What they say is
    /// of their connection's greeting, which is at most as old as this office.
    pub async fn hello_all(&self) -> BTreeMap<NodeName, Result<NodeInfo, CallError>> {
        let clients = self.clients();
        let asked = clients.into_iter().map(|client| async move {
            let answer = client.hello(true).await;
            (client.name().clone(), answer)
        });
        join_all(asked).await.into_iter().collect()
    }

    /// The last state of a node and its age.
    pub fn state(&self, node: &NodeName) -> Option<(Arc<v1::NodeState>, Duration)> {
        self.node(node).ok()?.state()
    }

    /// What a node said of itself when it was last greeted.
    pub fn info(&self, node: &NodeName) -> Option<NodeInfo> {
        self.node(node).ok()?.info()
    }

    /// How often a node was connected to; none of a node that is not contacted. Another number means that its daemon came back.
    pub fn connections(&self, node: &NodeName) -> Option<u64> {
        self.node(node).ok().map(|client| client.connections())
    }

    /// Waits until a node says something new of mirrors; what it said before anybody waited counts once.
    pub async fn mirrors_changed(&self) {
        self.inner.shared.mirrors_changed.notified().await;
    }

    /// Why a node can't be reached, as of the last attempt.
    pub fn not_reached(&self, node: &NodeName) -> Option<String> {
        match self.node(node) {
            Ok(client) => client.not_reached(),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Asks nodes for their state, all at once with one wait in all (the probe's limit).
    pub async fn refresh_live(
        &self,
        names: &[NodeName],
    ) -> BTreeMap<NodeName, Result<Arc<v1::NodeState>, CallError>> {
        let limit = self.inner.shared.limits().probe;
        let asked = names.iter().map(|name| async move {
            let answer = match self.node(name) {
                Ok(client) => client.fresh_state(limit).await,
                Err(error) => Err(error),
            };
            (name.clone(), answer)
        });
        join_all(asked).await.into_iter().collect()
    }

    fn clients(&self) -> Vec<NodeClient> {
        let members = self.inner.members.read().unwrap_or_else(PoisonError::into_inner);
        members.values().map(|member| member.client.clone()).collect()
    }

    fn members_mut(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<NodeName, Member>> {
        self.inner.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn reset_all(&self) {
        self.inner.local.reset();
        self.clients().iter().for_each(NodeClient::reset);
    }

    fn update_members(&self, cluster: &Cluster) {
        let mut members = self.members_mut();
        let mut old = std::mem::take(&mut *members);
        // Offline nodes are not contacted (HOOKS.md R6).
        for node in cluster.nodes.values().filter(|node| !node.offline) {
            let place = self.place(node);
            let member = match old.remove(&node.name) {
                Some(member) if member.place == place => member.repinned(node),
                Some(_) | None => self.new_member(node, place),
            };
            members.insert(node.name.clone(), member);
        }
        // Those that are left are dropped here, and their tasks with them.
    }

    fn place(&self, node: &model::Node) -> Place {
        if node.name == self.inner.shared.settings.local {
            return Place::Local;
        }
        Place::Remote { address: SocketAddr::new(node.primary_ip, node.port), node: node.uuid }
    }

    fn new_member(&self, node: &model::Node, place: Place) -> Member {
        let pinned = parse_fingerprints(&node.name, &node.fingerprints);
        let pins = Pins::new(pinned.iter().copied());
        let client = match &place {
            Place::Local => self.local(),
            Place::Remote { address, node: uuid } => {
                let target = Target::Tls { address: *address, node: *uuid, accepted: pins.clone() };
                NodeClient::new(node.name.clone(), target, self.inner.shared.clone())
            }
        };
        let stop = CancellationToken::new();
        tokio::spawn(client.clone().watch(stop.clone()));
        tokio::spawn(client.clone().push_facts(stop.clone()));
        Member { client, place, pinned, pins, _tasks: stop.drop_guard() }
    }
}

impl Member {
    fn repinned(mut self, node: &model::Node) -> Self {
        let pinned = parse_fingerprints(&node.name, &node.fingerprints);
        if pinned == self.pinned {
            return self;
        }
        self.pins.replace(pinned.iter().copied());
        if self.pinned.iter().any(|old| !pinned.contains(old)) {
            // The connection may have been made with the certificate that is out now.
            self.client.reset();
        }
        self.pinned = pinned;
        self
    }
}

fn parse_fingerprints(name: &NodeName, texts: &[model::Fingerprint]) -> Vec<Fingerprint> {
    let parsed = texts.iter().filter_map(|text| match text.parse() {
        Ok(fingerprint) => Some(fingerprint),
        Err(error) => {
            tracing::error!(node = %name, %error, "a fingerprint in the configuration is left out");
            None
        }
    });
    parsed.collect()
}
