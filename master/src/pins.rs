//! The certificates that are accepted now, each for one holder: asked at every request, changed with every commit.
//!
//! Accepted are those of the configuration, those of pending hosts that are being added, those of a renewal that is
//! under way, and the master's own. What leaves the set is out at once: its connections are closed. A certificate that
//! is in no group is refused, however well it is signed.
//!
//! With a commit: add [`Pins::settled`] to its deletes, and call [`Pins::apply`] once it is durable.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{PoisonError, RwLock, RwLockReadGuard},
};

use muster_core::{
    edit::Touched,
    model::{Client, Cluster, Node},
    names::{ClientName, NodeName},
};
use muster_proto::transport::{Admission, Connections, Fingerprint, Identity, IdentityKind, Role};
use uuid::Uuid;

use crate::{
    ca::{Issued, wire_role},
    store::{Records, ValueError, decode, keys, with_prefix},
};

/// Why a certificate is accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// A node of the configuration.
    Node(NodeName),
    /// A client of the configuration.
    Client(ClientName),
    /// A node's certificate that was signed and is not in the configuration yet.
    Renewal(NodeName),
    /// A host that is being added.
    Pending(NodeName),
    /// This master.
    Own,
}

#[derive(Debug, Default)]
struct Table {
    groups: BTreeMap<Group, BTreeMap<Fingerprint, Identity>>,
    accepted: BTreeMap<Fingerprint, BTreeMap<Group, Identity>>,
}

impl Table {
    /// Gives a group these certificates and no others; the fingerprints that nobody holds any more are returned.
    fn set(&mut self, group: &Group, certificates: BTreeMap<Fingerprint, Identity>) -> BTreeSet<Fingerprint> {
        let old = match certificates.is_empty() {
            true => self.groups.remove(group),
            false => self.groups.insert(group.clone(), certificates.clone()),
        };
        let mut gone = BTreeSet::new();
        for fingerprint in old.unwrap_or_default().into_keys() {
            let holders = self.accepted.entry(fingerprint).or_default();
            holders.remove(group);
            if holders.is_empty() {
                self.accepted.remove(&fingerprint);
                gone.insert(fingerprint);
            }
        }
        for (fingerprint, identity) in certificates {
            gone.remove(&fingerprint);
            self.accepted.entry(fingerprint).or_default().insert(group.clone(), identity);
        }
        gone
    }

    fn of(&self, group: &Group) -> BTreeMap<Fingerprint, Identity> {
        self.groups.get(group).cloned().unwrap_or_default()
    }
}

/// The accepted certificates.
#[derive(Debug, Default)]
pub struct Pins {
    table: RwLock<Table>,
    connections: Connections,
}

impl Pins {
    /// Nothing is accepted; connections are those of the TLS server.
    pub fn new(connections: Connections) -> Self {
        Self { table: RwLock::default(), connections }
    }

    /// Accepts what the records of a starting master say. `pending` are the certificates of hosts that are being added,
    /// which [`Pins::pin_pending`] has pinned. Gives the keys of records that serve no more, to be deleted.
    pub(crate) fn load(
        &self,
        cluster: &Cluster,
        records: &Records,
        pending: &BTreeSet<Fingerprint>,
    ) -> Result<Vec<String>, ValueError> {
        self.apply(Some(cluster), [&Touched::All]);
        let own = self.read().of(&Group::Own);
        let mut stale = Vec::new();
        for (key, text) in with_prefix(records, keys::ISSUED) {
            let issued: Issued = decode(key, text)?;
            let fingerprint = key[keys::ISSUED.len()..].parse::<Fingerprint>();
            let (Ok(fingerprint), Ok(identity)) = (fingerprint, issued.identity.parse::<Identity>()) else {
                tracing::warn!(key, "a record of a certificate that can't be read is dropped");
                stale.push(key.clone());
                continue;
            };
            match renewed_node(cluster, &identity) {
                Some(node) if !node.fingerprints.contains(&fingerprint.to_string()) => {
                    self.pin_renewal(&node.name, identity, fingerprint);
                }
                Some(_) => stale.push(key.clone()),
                None if pending.contains(&fingerprint) || own.contains_key(&fingerprint) => {}
                None => stale.push(key.clone()),
            }
        }
        Ok(stale)
    }

    /// Keys of the records of signatures that a commit settles: they are in the configuration now, or their holder is
    /// gone. To be deleted in the same commit; that one isn't there is no error.
    pub fn settled<'a>(
        &self,
        cluster: Option<&Cluster>,
        touched: impl IntoIterator<Item = &'a Touched>,
    ) -> Vec<String> {
        let Some(cluster) = cluster else { return Vec::new() };
        let table = self.read();
        let mut settled = BTreeSet::new();
        for touched in touched {
            match touched {
                Touched::Node(name) => settled.extend(settled_of_node(&table, cluster.nodes.get(name), name)),
                Touched::Client(name) => {
                    settled.extend(
                        cluster
                            .clients
                            .get(name)
                            .and_then(|client| client.fingerprint.parse::<Fingerprint>().ok()),
                    );
                }
                Touched::All => {
                    let nodes = cluster.nodes.iter();
                    settled.extend(nodes.flat_map(|(name, node)| settled_of_node(&table, Some(node), name)));
                    let clients = cluster.clients.values();
                    settled
                        .extend(clients.filter_map(|client| client.fingerprint.parse::<Fingerprint>().ok()));
                }
                Touched::Globals
                | Touched::Instance(_)
                | Touched::Export(_)
                | Touched::Cleanup(_)
                | Touched::Group(_)
                | Touched::Network(_)
                | Touched::ClusterTags
                | Touched::Nothing => {}
            }
        }
        settled.iter().map(keys::issued).collect()
    }

    /// Follows a commit that is durable. Cost follows what was touched.
    pub fn apply<'a>(&self, cluster: Option<&Cluster>, touched: impl IntoIterator<Item = &'a Touched>) {
        let Some(cluster) = cluster else { return self.clear() };
        self.change(|table| {
            let mut gone = BTreeSet::new();
            for touched in touched {
                match touched {
                    Touched::Node(name) => gone.extend(apply_node(table, cluster, name)),
                    Touched::Client(name) => gone.extend(apply_client(table, cluster, name)),
                    Touched::All => gone.extend(apply_all(table, cluster)),
                    Touched::Globals
                    | Touched::Instance(_)
                    | Touched::Export(_)
                    | Touched::Cleanup(_)
                    | Touched::Group(_)
                    | Touched::Network(_)
                    | Touched::ClusterTags
                    | Touched::Nothing => {}
                }
            }
            gone
        });
    }

    /// Accepts nobody: there is no cluster, or it has another master.
    pub fn clear(&self) {
        self.change(|table| std::mem::take(table).accepted.into_keys().collect());
    }

    /// Accepts the certificate of a host that is being added.
    pub fn pin_pending(&self, name: &NodeName, identity: Identity, fingerprint: Fingerprint) {
        let certificates = BTreeMap::from([(fingerprint, identity)]);
        self.change(|table| table.set(&Group::Pending(name.clone()), certificates));
    }

    /// The host is not being added any more. If it became a node, its certificate is in the configuration.
    pub fn unpin_pending(&self, name: &NodeName) {
        self.change(|table| table.set(&Group::Pending(name.clone()), BTreeMap::new()));
    }

    /// Accepts a node's new certificate beside those of the configuration, until a commit changes these.
    pub fn pin_renewal(&self, name: &NodeName, identity: Identity, fingerprint: Fingerprint) {
        self.change(|table| {
            let group = Group::Renewal(name.clone());
            let mut certificates = table.of(&group);
            certificates.insert(fingerprint, identity);
            table.set(&group, certificates)
        });
    }

    /// Accepts the master's own certificate, and no other one of a master.
    pub fn pin_own(&self, identity: Identity, fingerprint: Fingerprint) {
        self.change(|table| table.set(&Group::Own, BTreeMap::from([(fingerprint, identity)])));
    }

    /// The certificates by which this node is accepted: those of the configuration, one of a renewal, and one signed
    /// for its adding. For whoever dials the node.
    pub fn of_node(&self, name: &NodeName) -> Vec<Fingerprint> {
        let table = self.read();
        let groups = [Group::Node(name.clone()), Group::Renewal(name.clone()), Group::Pending(name.clone())];
        let all: BTreeSet<Fingerprint> =
            groups.iter().flat_map(|group| table.of(group).into_keys()).collect();
        all.into_iter().collect()
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// First the certificates are refused, then their connections closed: one made in between is refused at its first
    /// request.
    fn change(&self, change: impl FnOnce(&mut Table) -> BTreeSet<Fingerprint>) {
        let mut gone = {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            let mut gone = change(&mut table);
            gone.retain(|fingerprint| !table.accepted.contains_key(fingerprint));
            gone
        };
        while let Some(fingerprint) = gone.pop_first() {
            let closed = self.connections.close(&fingerprint);
            tracing::info!(%fingerprint, closed, "a certificate is not accepted any more");
        }
    }
}

impl Admission for Pins {
    fn admit(&self, identity: &Identity, fingerprint: &Fingerprint) -> Result<Role, String> {
        let table = self.read();
        let Some(holders) = table.accepted.get(fingerprint) else {
            return Err("it is not, or no longer, one of the cluster's certificates".to_owned());
        };
        match holders.values().any(|holder| holder == identity) {
            true => Ok(identity.role()),
            false => Err("the cluster knows this certificate as another holder's".to_owned()),
        }
    }
}

/// The node of the configuration that this is a certificate of.
fn renewed_node<'a>(cluster: &'a Cluster, identity: &Identity) -> Option<&'a Node> {
    match identity.kind {
        IdentityKind::Node { node } if identity.cluster == cluster.uuid => {
            cluster.nodes.values().find(|known| known.uuid == node)
        }
        IdentityKind::Node { .. } | IdentityKind::Master { .. } | IdentityKind::Client { .. } => None,
    }
}

fn settled_of_node(table: &Table, node: Option<&Node>, name: &NodeName) -> BTreeSet<Fingerprint> {
    let renewal = table.of(&Group::Renewal(name.clone())).into_keys();
    let Some(node) = node else { return renewal.collect() };
    let new = certificates(node.fingerprints.iter(), || Identity::node(Uuid::nil(), node.uuid));
    match same(&new, &table.of(&Group::Node(name.clone()))) {
        true => BTreeSet::new(),
        false => new.into_keys().chain(renewal).collect(),
    }
}

/// Whether both have the same fingerprints.
fn same(one: &BTreeMap<Fingerprint, Identity>, other: &BTreeMap<Fingerprint, Identity>) -> bool {
    one.keys().eq(other.keys())
}

fn apply_node(table: &mut Table, cluster: &Cluster, name: &NodeName) -> BTreeSet<Fingerprint> {
    let node = cluster.nodes.get(name);
    let new =
        node.map(|node| certificates(node.fingerprints.iter(), || Identity::node(cluster.uuid, node.uuid)));
    let new = new.unwrap_or_default();
    let changed = !same(&new, &table.of(&Group::Node(name.clone())));
    let mut gone = table.set(&Group::Node(name.clone()), new);
    if changed || node.is_none() {
        // What was signed for the node is in the configuration now, or came to nothing.
        gone.extend(table.set(&Group::Renewal(name.clone()), BTreeMap::new()));
    }
    gone
}

fn apply_client(table: &mut Table, cluster: &Cluster, name: &ClientName) -> BTreeSet<Fingerprint> {
    let identity = |client: &Client| Identity::client(cluster.uuid, client.uuid, wire_role(client.role));
    let client = cluster.clients.get(name);
    let new = client.map(|client| certificates([&client.fingerprint], || identity(client)));
    table.set(&Group::Client(name.clone()), new.unwrap_or_default())
}

fn apply_all(table: &mut Table, cluster: &Cluster) -> BTreeSet<Fingerprint> {
    let known = table.groups.keys();
    let known = known.filter_map(|group| match group {
        Group::Node(name) | Group::Renewal(name) => Some(name.clone()),
        Group::Client(_) | Group::Pending(_) | Group::Own => None,
    });
    let nodes: BTreeSet<NodeName> = known.chain(cluster.nodes.keys().cloned()).collect();
    let known = table.groups.keys();
    let known = known.filter_map(|group| match group {
        Group::Client(name) => Some(name.clone()),
        Group::Node(_) | Group::Renewal(_) | Group::Pending(_) | Group::Own => None,
    });
    let clients: BTreeSet<ClientName> = known.chain(cluster.clients.keys().cloned()).collect();
    let mut gone = BTreeSet::new();
    for name in &nodes {
        gone.extend(apply_node(table, cluster, name));
    }
    for name in &clients {
        gone.extend(apply_client(table, cluster, name));
    }
    gone
}

/// The certificates that can be read; others could not be presented either.
fn certificates<'a>(
    fingerprints: impl IntoIterator<Item = &'a String>,
    identity: impl Fn() -> Identity,
) -> BTreeMap<Fingerprint, Identity> {
    let parsed = fingerprints.into_iter().filter_map(|text| text.parse::<Fingerprint>().ok());
    parsed.map(|fingerprint| (fingerprint, identity())).collect()
}

#[cfg(test)]
#[path = "pins_tests.rs"]
mod tests;
