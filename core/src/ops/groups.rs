//! Look-ups of groups of nodes.

use super::{Refusal, common};
use crate::{
    groups::{AllocPolicy, Group},
    model::{Cluster, Node},
    names::{GroupName, NodeName},
};

/// A group by its name, or a refusal with the nearest known name.
pub(super) fn group<'a>(cluster: &'a Cluster, name: &GroupName) -> Result<&'a Group, Refusal> {
    let known = || cluster.groups.values().map(|group| group.name.as_str());
    cluster.group_named(name).ok_or_else(|| common::unknown("group", name.as_str(), known()))
}

/// Refuses a name that a group has.
pub(super) fn name_free(cluster: &Cluster, name: &GroupName) -> Result<(), Refusal> {
    match cluster.group_named(name) {
        Some(_) => Err(Refusal(format!("there is a group {name} already"))),
        None => Ok(()),
    }
}

/// Refuses a node whose group gets no new instances.
pub(super) fn allocatable(cluster: &Cluster, node: &Node) -> Result<(), Refusal> {
    match cluster.groups.get(&node.group) {
        Some(Group { name, alloc_policy: AllocPolicy::Unallocable, .. }) => Err(Refusal(format!(
            "node {} is in group {name}, which is unallocable: it gets no new instances",
            node.name
        ))),
        Some(Group { alloc_policy: AllocPolicy::Preferred | AllocPolicy::LastResort, .. }) | None => Ok(()),
    }
}

/// Names of nodes, with commas.
pub(super) fn names<'a>(nodes: impl Iterator<Item = &'a NodeName>) -> String {
    nodes.map(NodeName::as_str).collect::<Vec<_>>().join(", ")
}
