//! Edits: the only way the configuration changes, all of a job's in one commit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    allowed::Allowed,
    calls::{Cleanup, MirrorStatus, Output},
    groups::Group,
    hooks::HookPolicy,
    hypervisor::HypervisorParams,
    model::{CleanupId, Client, Cluster, CopyState, DiskName, Export, Instance, Node},
    names::{ClientName, ClusterName, InstanceName, NodeName},
    networks::Network,
    tags::{Tagged, Tags},
};

/// One change of the configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "edit")]
pub enum Edit {
    /// The cluster comes to be, with its first node.
    ClusterCreate {
        /// The whole of it.
        cluster: Box<Cluster>,
    },
    /// The cluster ceases to be.
    ClusterDestroy,
    /// Other hook parameters.
    HooksSet {
        /// All of them.
        hooks: HookPolicy,
    },
    /// Other parameters of guests.
    HypervisorSet {
        /// All of them.
        hypervisor: HypervisorParams,
        /// The site's command that makes sure that a node is off.
        fence_command: Option<String>,
    },
    /// Other commands and files are allowed on nodes.
    AllowedSet {
        /// All that is allowed.
        allowed: Allowed,
    },
    /// The cluster has another name.
    ClusterNameSet {
        /// The new name.
        name: ClusterName,
    },
    /// Another node has the office.
    MasterSet {
        /// The new master.
        node: NodeName,
    },
    /// A node is new or changed; all its fields.
    NodePut {
        /// The node.
        node: Node,
    },
    /// A node's certificate was renewed; nothing changes where its step was left out.
    NodePin {
        /// The node.
        node: NodeName,
        /// The new certificate, filled in from the step's output.
        fingerprint: Option<String>,
    },
    /// A node is gone.
    NodeRemove {
        /// Its name.
        node: NodeName,
    },
    /// An instance is new or changed; all its fields.
    InstancePut {
        /// The instance.
        instance: Box<Instance>,
    },
    /// An instance is gone.
    InstanceRemove {
        /// Its name.
        instance: InstanceName,
    },
    /// A copy's state.
    CopySet {
        /// The instance.
        instance: InstanceName,
        /// Its disk.
        disk: DiskName,
        /// DISK_ID.
        mirror: u32,
        /// The new state.
        state: CopyState,
    },
    /// Copies' states follow what their mirrors do: one that is ready is consistent, any other that was is stale.
    CopiesSettle {
        /// The instance.
        instance: InstanceName,
        /// By the copy's uuid; filled in from the step's output, empty where it was left out.
        mirrors: BTreeMap<Uuid, MirrorStatus>,
    },
    /// An export is new.
    ExportPut {
        /// The export.
        export: Box<Export>,
    },
    /// An export is gone.
    ExportRemove {
        /// Names it.
        export: Uuid,
    },
    /// A client certificate is new.
    ClientPut {
        /// The client.
        client: Client,
    },
    /// A client certificate is revoked.
    ClientRemove {
        /// Its name.
        client: ClientName,
    },
    /// A group of nodes is new or changed; all its fields.
    GroupPut {
        /// The group.
        group: Group,
    },
    /// A group's record is written as it is: in a store older than groups the first one stands in none.
    GroupRecord {
        /// Names it.
        group: Uuid,
    },
    /// A group of nodes is gone.
    GroupRemove {
        /// Names it.
        group: Uuid,
    },
    /// A node is in another group.
    NodeGroupSet {
        /// The node.
        node: NodeName,
        /// Its new group.
        group: Uuid,
    },
    /// A network is new or changed; all its fields.
    NetworkPut {
        /// The network.
        network: Box<Network>,
    },
    /// A network is gone.
    NetworkRemove {
        /// Names it.
        network: Uuid,
    },
    /// Something has other tags.
    TagsChange {
        /// What.
        object: Tagged,
        /// New ones.
        add: Tags,
        /// Ones that it has no more.
        remove: Tags,
    },
    /// Something is to be destroyed, or a try of it failed.
    CleanupPut {
        /// Names it.
        id: CleanupId,
        /// What is to be done.
        cleanup: Cleanup,
    },
    /// A cleanup is done.
    CleanupRemove {
        /// Names it.
        id: CleanupId,
    },
}

/// What a commit touches: the records that must be written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// Cluster-wide fields: name, serial, master, hooks.
    Globals,
    /// A node's record.
    Node(NodeName),
    /// An instance's record.
    Instance(InstanceName),
    /// An export's record.
    Export(Uuid),
    /// A client's record.
    Client(ClientName),
    /// A cleanup's record.
    Cleanup(CleanupId),
    /// A group's record.
    Group(Uuid),
    /// A network's record.
    Network(Uuid),
    /// The record of the cluster's tags.
    ClusterTags,
    /// Everything: the cluster came to be.
    All,
    /// The cluster is gone.
    Nothing,
}

impl Touched {
    /// The node whose record it is.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Touched::Node(name) => Some(name),
            Touched::Globals
            | Touched::Instance(_)
            | Touched::Export(_)
            | Touched::Client(_)
            | Touched::Cleanup(_)
            | Touched::Group(_)
            | Touched::Network(_)
            | Touched::ClusterTags
            | Touched::All
            | Touched::Nothing => None,
        }
    }
}

impl Edit {
    /// Fills in what only a step's output knows (a fingerprint, a path).
    pub fn fill(&mut self, outputs: &[Output]) {
        match self {
            Edit::ClusterCreate { cluster } => {
                for node in cluster.nodes.values_mut() {
                    fill_node(node, outputs);
                }
            }
            Edit::NodePut { node } => fill_node(node, outputs),
            Edit::NodePin { node, fingerprint } => *fingerprint = signed(outputs, Some(node)),
            Edit::ClientPut { client } => {
                if let Some(fingerprint) = signed(outputs, None) {
                    client.fingerprint = fingerprint;
                }
            }
            Edit::ExportPut { export } => {
                if let Some(path) = outputs.iter().find_map(|output| output.path.clone()) {
                    export.path = path;
                }
            }
            Edit::CopiesSettle { mirrors, .. } => {
                *mirrors = outputs.iter().flat_map(|output| output.mirrors.clone()).collect();
            }
            Edit::ClusterDestroy
            | Edit::HooksSet { .. }
            | Edit::HypervisorSet { .. }
            | Edit::ClusterNameSet { .. }
            | Edit::AllowedSet { .. }
            | Edit::MasterSet { .. }
            | Edit::NodeRemove { .. }
            | Edit::InstancePut { .. }
            | Edit::InstanceRemove { .. }
            | Edit::CopySet { .. }
            | Edit::ExportRemove { .. }
            | Edit::ClientRemove { .. }
            | Edit::GroupPut { .. }
            | Edit::GroupRecord { .. }
            | Edit::GroupRemove { .. }
            | Edit::NodeGroupSet { .. }
            | Edit::NetworkPut { .. }
            | Edit::NetworkRemove { .. }
            | Edit::TagsChange { .. }
            | Edit::CleanupPut { .. }
            | Edit::CleanupRemove { .. } => {}
        }
    }

    /// The record that this edit changes.
    pub fn touched(&self) -> Touched {
        match self {
            Edit::ClusterCreate { .. } => Touched::All,
            Edit::ClusterDestroy => Touched::Nothing,
            Edit::ClusterNameSet { .. }
            | Edit::HooksSet { .. }
            | Edit::HypervisorSet { .. }
            | Edit::AllowedSet { .. }
            | Edit::MasterSet { .. } => Touched::Globals,
            Edit::NodePut { node } => Touched::Node(node.name.clone()),
            Edit::NodePin { node, .. } | Edit::NodeRemove { node } => Touched::Node(node.clone()),
            Edit::InstancePut { instance } => Touched::Instance(instance.name.clone()),
            Edit::InstanceRemove { instance }
            | Edit::CopySet { instance, .. }
            | Edit::CopiesSettle { instance, .. } => Touched::Instance(instance.clone()),
            Edit::ExportPut { export } => Touched::Export(export.uuid),
            Edit::ExportRemove { export } => Touched::Export(*export),
            Edit::ClientPut { client } => Touched::Client(client.name.clone()),
            Edit::ClientRemove { client } => Touched::Client(client.clone()),
            Edit::GroupPut { group } => Touched::Group(group.uuid),
            Edit::GroupRecord { group } | Edit::GroupRemove { group } => Touched::Group(*group),
            Edit::NodeGroupSet { node, .. } => Touched::Node(node.clone()),
            Edit::NetworkPut { network } => Touched::Network(network.uuid),
            Edit::NetworkRemove { network } => Touched::Network(*network),
            Edit::TagsChange { object, .. } => match object {
                Tagged::Cluster => Touched::ClusterTags,
                Tagged::Node(node) => Touched::Node(node.clone()),
                Tagged::Instance(instance) => Touched::Instance(instance.clone()),
                Tagged::Group(group) => Touched::Group(*group),
                Tagged::Network(network) => Touched::Network(*network),
            },
            Edit::CleanupPut { id, .. } | Edit::CleanupRemove { id } => Touched::Cleanup(*id),
        }
    }

    /// Whether it notes no more than what is still to be destroyed, which is tried again and again.
    pub fn is_bookkeeping(&self) -> bool {
        matches!(self, Edit::CleanupPut { .. } | Edit::CleanupRemove { .. })
    }

    /// Applies the edit. The serial is the commit's business.
    pub fn apply(self, slot: &mut Option<Cluster>) {
        if let Edit::ClusterCreate { cluster } = self {
            *slot = Some(cluster.with_first_group());
            return;
        }
        let cluster = slot.as_mut().expect("only a cluster's creation is committed without one");
        match self {
            Edit::ClusterCreate { .. } => {}
            Edit::ClusterDestroy => *slot = None,
            Edit::HooksSet { hooks } => cluster.hooks = hooks,
            Edit::HypervisorSet { hypervisor, fence_command } => {
                cluster.hypervisor = hypervisor;
                cluster.fence_command = fence_command;
            }
            Edit::AllowedSet { allowed } => cluster.allowed = allowed,
            Edit::ClusterNameSet { name } => cluster.name = name,
            Edit::MasterSet { node } => cluster.master = node,
            Edit::NodePut { mut node } => {
                node.settle_group(cluster.uuid);
                cluster.nodes.insert(node.name.clone(), node);
            }
            Edit::NodePin { node, fingerprint } => {
                if let (Some(node), Some(fingerprint)) = (cluster.nodes.get_mut(&node), fingerprint) {
                    node.fingerprints = vec![fingerprint];
                }
            }
            Edit::NodeRemove { node } => drop(cluster.nodes.remove(&node)),
            Edit::InstancePut { instance } => {
                cluster.instances.insert(instance.name.clone(), *instance);
            }
            Edit::InstanceRemove { instance } => drop(cluster.instances.remove(&instance)),
            Edit::CopySet { instance, disk, mirror, state } => {
                let copies =
                    cluster.instances.get_mut(&instance).into_iter().flat_map(|i| i.disks.iter_mut());
                let copies = copies.filter(|d| d.name == disk).flat_map(|d| d.mirrors.iter_mut());
                for copy in copies.filter(|m| m.id == mirror) {
                    copy.state = state;
                }
            }
            Edit::CopiesSettle { instance, mirrors } => {
                let copies =
                    cluster.instances.get_mut(&instance).into_iter().flat_map(|i| i.disks.iter_mut());
                for copy in copies.flat_map(|disk| disk.mirrors.iter_mut()) {
                    copy.state = settled(copy.state, mirrors.get(&copy.uuid).copied());
                }
            }
            Edit::ExportPut { export } => drop(cluster.exports.insert(export.uuid, *export)),
            Edit::ExportRemove { export } => drop(cluster.exports.remove(&export)),
            Edit::ClientPut { client } => drop(cluster.clients.insert(client.name.clone(), client)),
            Edit::ClientRemove { client } => drop(cluster.clients.remove(&client)),
            Edit::GroupPut { group } => drop(cluster.groups.insert(group.uuid, group)),
            Edit::GroupRecord { .. } => {}
            Edit::GroupRemove { group } => drop(cluster.groups.remove(&group)),
            Edit::NodeGroupSet { node, group } => {
                if let Some(node) = cluster.nodes.get_mut(&node) {
                    node.group = group;
                }
            }
            Edit::NetworkPut { network } => drop(cluster.networks.insert(network.uuid, *network)),
            Edit::NetworkRemove { network } => drop(cluster.networks.remove(&network)),
            Edit::TagsChange { object, add, remove } => {
                if let Some(tags) = cluster.tags_mut(&object) {
                    tags.change(&add, &remove);
                }
            }
            Edit::CleanupPut { id, cleanup } => drop(cluster.cleanups.insert(id, cleanup)),
            Edit::CleanupRemove { id } => drop(cluster.cleanups.remove(&id)),
        }
    }
}

/// A copy's state once its mirror was asked.
fn settled(state: CopyState, mirror: Option<MirrorStatus>) -> CopyState {
    match (mirror, state) {
        (None, state) => state,
        (Some(MirrorStatus::Ready), _) => CopyState::Consistent,
        // It was copied over a part of what it held.
        (Some(MirrorStatus::Syncing), _) => CopyState::Inconsistent,
        (Some(MirrorStatus::Broken), CopyState::Consistent) => CopyState::Stale,
        (Some(MirrorStatus::Broken), state @ (CopyState::Stale | CopyState::Inconsistent)) => state,
    }
}

/// The fingerprint that was signed for a node, or for a client where no node is named.
fn signed(outputs: &[Output], node: Option<&NodeName>) -> Option<String> {
    outputs.iter().filter(|output| output.node.as_ref() == node).find_map(|output| output.fingerprint.clone())
}

/// A new node has the certificate that was signed for it.
fn fill_node(node: &mut Node, outputs: &[Output]) {
    if let Some(fingerprint) = signed(outputs, Some(&node.name)) {
        node.fingerprints = vec![fingerprint];
    }
}
