//! Groups of nodes: each node is in exactly one.
//!
//! Nodes and networks name a group by its uuid, so that a change of its name changes one record. The first group of a cluster
//! has a uuid that follows from the cluster's own: so a configuration that is older than groups has it too, with all its
//! nodes, though no record says so.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    model::{Cluster, Node},
    names::{GroupName, NodeName},
    tags::Tags,
};

/// The name of a cluster's first group, until somebody gives it another.
const FIRST_GROUP_NAME: &str = "default";

/// Whether new instances are put on a group's nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocPolicy {
    /// They are.
    #[default]
    Preferred,
    /// They are, where there is no better place: for whoever chooses the place.
    LastResort,
    /// They are not.
    Unallocable,
}

impl AllocPolicy {
    /// `preferred`, `last_resort` or `unallocable`.
    pub fn as_str(self) -> &'static str {
        match self {
            AllocPolicy::Preferred => "preferred",
            AllocPolicy::LastResort => "last_resort",
            AllocPolicy::Unallocable => "unallocable",
        }
    }

    /// Parses one of these words.
    pub fn parse(text: &str) -> Option<Self> {
        let all = [AllocPolicy::Preferred, AllocPolicy::LastResort, AllocPolicy::Unallocable];
        all.into_iter().find(|policy| policy.as_str() == text)
    }
}

/// A group of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Stays when the name is a label only.
    pub uuid: Uuid,
    /// The label.
    pub name: GroupName,
    /// Whether its nodes get new instances.
    pub alloc_policy: AllocPolicy,
    /// The site's words.
    #[serde(default)]
    pub tags: Tags,
}

impl Group {
    /// The first group of the cluster with this uuid.
    pub fn first(cluster: Uuid) -> Self {
        Group {
            uuid: first_uuid(cluster),
            name: GroupName::parse(FIRST_GROUP_NAME).expect("it is a label"),
            alloc_policy: AllocPolicy::default(),
            tags: Tags::default(),
        }
    }
}

/// The uuid of a cluster's first group.
pub fn first_uuid(cluster: Uuid) -> Uuid {
    Uuid::from_u128(cluster.as_u128() ^ 1)
}

impl Cluster {
    /// The same, where it is of a time before groups with the first one, in which all nodes are that name none.
    #[must_use]
    pub fn with_first_group(mut self) -> Self {
        if self.groups.is_empty() {
            let first = Group::first(self.uuid);
            self.groups.insert(first.uuid, first);
        }
        for node in self.nodes.values_mut() {
            node.settle_group(self.uuid);
        }
        self
    }

    /// A group by its name.
    pub fn group_named(&self, name: &GroupName) -> Option<&Group> {
        self.groups.values().find(|group| group.name == *name)
    }

    /// The group that a node is in.
    pub fn group_of(&self, node: &NodeName) -> Option<&Group> {
        self.groups.get(&self.nodes.get(node)?.group)
    }

    /// The nodes of a group.
    pub fn nodes_in(&self, group: Uuid) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(move |node| node.group == group)
    }
}

impl Node {
    /// A node that names no group is in the first one.
    pub(crate) fn settle_group(&mut self, cluster: Uuid) {
        if self.group.is_nil() {
            self.group = first_uuid(cluster);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::examples;

    #[test]
    fn a_cluster_older_than_groups_has_the_first_with_all_its_nodes() {
        let mut older = examples::cluster();
        older.groups.clear();
        for node in older.nodes.values_mut() {
            node.group = Uuid::nil();
        }
        let cluster = older.with_first_group();
        let [group] = &cluster.groups.values().collect::<Vec<_>>()[..] else { panic!("one group") };
        assert_eq!((group.name.as_str(), group.alloc_policy), ("default", AllocPolicy::Preferred));
        assert_eq!(cluster.nodes_in(group.uuid).count(), 3);
        assert_eq!(cluster.group_of(&examples::node_name("node2")), Some(*group));
        assert_ne!(group.uuid, cluster.uuid);
        assert_eq!(cluster.clone().with_first_group(), cluster, "and stays as it is then");
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for policy in [AllocPolicy::Preferred, AllocPolicy::LastResort, AllocPolicy::Unallocable] {
            assert_eq!(AllocPolicy::parse(policy.as_str()), Some(policy));
        }
        assert_eq!(AllocPolicy::parse("last-resort"), None);
    }
}
