//! Interface version 2: what an operation is about, and the variables that are made of it.
//!
//! The variables of an object are made in one place by one function, before the operation (`GANETI_NAME`) and once more
//! of the object as the plan's edits leave it (`GANETI_POST_NAME`). A new kind of object is a variant of [`HookObject`]
//! and a file beside this one; the compiler asks for the rest.

mod instance;
mod network;
mod node;

use super::{Given, HookNodes, Plan, common};
use crate::{
    edit::Edit,
    groups::Group,
    hooks::{Env, Phase},
    model::{Cluster, Instance, Node},
    names::{InstanceName, NodeName},
    networks::Network,
};

/// In which phases an operation runs hooks in version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPhases {
    /// Before and after.
    Both,
    /// After alone.
    PostOnly,
}

/// What an operation has of interface version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookRow2 {
    /// `node-add` means `node-add-pre.d` and `node-add-post.d`.
    pub prefix: &'static str,
    /// `GANETI_OP_CODE`.
    pub op_code: &'static str,
    /// When it runs hooks.
    pub phases: HookPhases,
}

impl HookRow2 {
    /// A row with hooks before and after.
    pub const fn both(prefix: &'static str, op_code: &'static str) -> Self {
        HookRow2 { prefix, op_code, phases: HookPhases::Both }
    }

    /// A row with hooks after the operation alone.
    pub const fn post_only(prefix: &'static str, op_code: &'static str) -> Self {
        HookRow2 { prefix, op_code, phases: HookPhases::PostOnly }
    }

    /// Whether it runs hooks in a phase.
    pub fn runs_in(&self, phase: Phase) -> bool {
        match (self.phases, phase) {
            (HookPhases::Both, Phase::Pre | Phase::Post | Phase::Failed)
            | (HookPhases::PostOnly, Phase::Post | Phase::Failed) => true,
            (HookPhases::PostOnly, Phase::Pre) => false,
        }
    }
}

/// What an operation is about, as it is before (what an addition makes: as it will be).
#[derive(Debug, Clone, PartialEq)]
pub enum HookObject {
    /// The cluster, which has no variables beside the common ones.
    Cluster,
    /// A node.
    Node(Box<Node>),
    /// An instance.
    Instance(Box<Instance>),
    /// A group of nodes.
    Group(Box<Group>),
    /// A network.
    Network(Box<Network>),
}

/// An operation's part in interface version 2.
#[derive(Debug, Clone, PartialEq)]
pub struct Hooks2 {
    /// Both node sets; that of a phase without hooks counts for nothing.
    pub nodes: HookNodes,
    /// Whose variables are set.
    pub object: HookObject,
    /// The operation's own variables: what was asked for.
    pub own: Env,
}

impl Hooks2 {
    /// Of an operation without hooks in version 2.
    pub fn none() -> Self {
        Hooks2 { nodes: HookNodes::default(), object: HookObject::Cluster, own: Env::new() }
    }

    /// Of an operation on the cluster: on the master.
    pub fn cluster(given: Given<'_>) -> Self {
        Hooks2::on_master(given, HookObject::Cluster)
    }

    /// Of an operation whose scripts run on the master alone.
    pub fn on_master(given: Given<'_>, object: HookObject) -> Self {
        let nodes = HookNodes::both(vec![given.cluster.master.clone()]);
        Hooks2 { nodes, object, own: Env::new() }
    }

    /// Of an operation on an instance: on the master, the primary and the secondaries.
    pub fn instance(given: Given<'_>, instance: &Instance) -> Self {
        let nodes = HookNodes::both(common::master_primary_secondaries(given.cluster, instance));
        Hooks2 { nodes, object: HookObject::Instance(Box::new(instance.clone())), own: Env::new() }
    }

    /// Of an operation on a node: on the master and on that node.
    pub fn node(given: Given<'_>, node: &Node) -> Self {
        let nodes = HookNodes::both(vec![given.cluster.master.clone(), node.name.clone()]);
        Hooks2 { nodes, object: HookObject::Node(Box::new(node.clone())), own: Env::new() }
    }

    /// The same on other nodes.
    #[must_use]
    pub fn on(mut self, nodes: HookNodes) -> Self {
        self.nodes = nodes;
        self
    }

    /// The same with variables of the operation's own.
    #[must_use]
    pub fn with(mut self, own: Env) -> Self {
        self.own = self.own.with(own);
        self
    }

    /// The variables before the operation, beside the common ones.
    pub(super) fn env(&self, cluster: &Cluster) -> Env {
        self.object.env(cluster).with(self.own.clone())
    }

    /// `POST_NAME` of each: the object as the plan leaves it.
    pub(super) fn env_post(&self, cluster: &Cluster, plan: &Plan) -> Env {
        let after = self.object.after(plan).env(cluster).with(self.own.clone());
        after.iter().fold(Env::new(), |env, (name, value)| env.set(&format!("POST_{name}"), value))
    }
}

impl HookObject {
    fn env(&self, cluster: &Cluster) -> Env {
        match self {
            HookObject::Cluster => Env::new(),
            HookObject::Node(node) => node::env(node),
            HookObject::Instance(instance) => instance::env(cluster, instance),
            HookObject::Group(group) => Env::new().set("GROUP_NAME", group.name.as_str()),
            HookObject::Network(network) => network::env("", network),
        }
    }

    /// The object as the plan's edits leave it; one that is gone as it was last.
    fn after(&self, plan: &Plan) -> HookObject {
        match self {
            HookObject::Cluster => HookObject::Cluster,
            HookObject::Node(before) => {
                let puts = plan.edits.iter().rev();
                let mut puts =
                    puts.filter_map(|edit| if let Edit::NodePut { node } = edit { Some(node) } else { None });
                let last = puts.find(|node| node.uuid == before.uuid);
                HookObject::Node(last.map_or_else(|| before.clone(), |node| Box::new(node.clone())))
            }
            HookObject::Instance(before) => HookObject::Instance(Box::new(instance::after(before, plan))),
            HookObject::Group(before) => {
                let mut puts =
                    plan.edits.iter().rev().filter_map(|edit| {
                        if let Edit::GroupPut { group } = edit { Some(group) } else { None }
                    });
                let last = puts.find(|group| group.uuid == before.uuid);
                HookObject::Group(last.map_or_else(|| before.clone(), |group| Box::new(group.clone())))
            }
            HookObject::Network(before) => {
                let mut puts = plan.edits.iter().rev().filter_map(|edit| {
                    if let Edit::NetworkPut { network } = edit { Some(network) } else { None }
                });
                let last = puts.find(|network| network.uuid == before.uuid);
                HookObject::Network(last.unwrap_or(before).clone())
            }
        }
    }
}

/// The instance before the operation, where an operation proved only what it will be.
pub(super) fn instance_before<'a>(given: Given<'a>, name: &InstanceName) -> &'a Instance {
    given.cluster.instances.get(name).expect("check proved that it is there")
}

/// The node before the operation.
pub(super) fn node_before<'a>(given: Given<'a>, name: &NodeName) -> &'a Node {
    given.cluster.nodes.get(name).expect("check proved that it is there")
}

/// The variables of an operation that changes an instance's place: on the master, the old and the new primary.
pub(super) fn turned(given: Given<'_>, before: &Instance, new_primary: &NodeName) -> Hooks2 {
    let old_primary = &before.primary;
    let nodes = vec![given.cluster.master.clone(), old_primary.clone(), new_primary.clone()];
    let own = Env::new()
        .set("OLD_PRIMARY", old_primary.as_str())
        .set("NEW_PRIMARY", new_primary.as_str())
        .set("OLD_SECONDARY", new_primary.as_str())
        .set("NEW_SECONDARY", old_primary.as_str());
    Hooks2::instance(given, before).on(HookNodes::both(nodes)).with(own)
}

/// A change as scripts see it: empty where it was not asked for.
pub(super) fn asked(value: Option<bool>) -> &'static str {
    match value {
        Some(true) => "True",
        Some(false) => "False",
        None => "",
    }
}

/// A limit as scripts see it, in whole seconds.
pub(super) fn seconds(ms: u64) -> String {
    ms.div_ceil(1000).to_string()
}
