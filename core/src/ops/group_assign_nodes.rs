//! OP_GROUP_ASSIGN_NODES: nodes go to another group.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples, groups,
};
use crate::{
    edit::Edit,
    groups::Group,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::{GroupName, NodeName},
};

/// Puts nodes into a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupAssignNodes {
    /// The group.
    pub group: GroupName,
    /// The nodes.
    pub nodes: Vec<NodeName>,
}

/// Refuses a node with an instance whose network the group has not.
fn check_networks(cluster: &Cluster, group: &Group, node: &NodeName) -> Result<(), Refusal> {
    let instances = cluster.primaries_on(node).chain(cluster.secondaries_on(node));
    for instance in instances {
        let Some(network) = cluster.network_of(instance) else { continue };
        if !network.groups.contains_key(&group.uuid) {
            return Err(Refusal(format!(
                "node {node} has instance {}, whose network {} is not connected to group {}: \
                 gnt-network connect {} {}",
                instance.name, network.name, group.name, network.name, group.name
            )));
        }
    }
    Ok(())
}

impl Operation for GroupAssignNodes {
    const ROW: Row = Row {
        op_id: "OP_GROUP_ASSIGN_NODES",
        object: ObjectKind::Group,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Operator,
    };
    type Checked = Group;

    fn target(&self) -> String {
        self.group.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().shared("group", &self.group).exclusive("instance-networks", "");
        self.nodes.iter().fold(locks, |locks, node| locks.exclusive("node", node))
    }

    fn check(&self, given: Given<'_>) -> Result<Group, Refusal> {
        let group = groups::group(given.cluster, &self.group)?;
        if self.nodes.is_empty() {
            return Err(Refusal("nothing to change: name at least one node".to_owned()));
        }
        for name in &self.nodes {
            common::node(given.cluster, name)?;
            check_networks(given.cluster, group, name)?;
        }
        Ok(group.clone())
    }

    fn hook_nodes(&self, _given: Given<'_>, _group: &Group) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _group: &Group) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _group: &Group) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, group: &Group) -> Plan {
        let moves =
            self.nodes.iter().map(|node| Edit::NodeGroupSet { node: node.clone(), group: group.uuid });
        moves.fold(Plan::new(), Plan::edit)
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let nodes = ["node2", "node3"].map(examples::node_name).into();
        let op = GroupAssignNodes { group: examples::group_name("rack2"), nodes };
        vec![(examples::networked(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |group: &str, nodes: &[&str], text: &str| {
            let nodes = nodes.iter().map(|name| examples::node_name(name)).collect();
            let op = GroupAssignNodes { group: examples::group_name(group), nodes };
            let cluster = examples::networked();
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("rack3", &["node3"], "there is no group rack3; the nearest name is rack2");
        check("rack2", &[], "nothing to change: name at least one node");
        check("rack2", &["node3", "node33"], "there is no node node33; the nearest name is node3");
        check("spare", &["node2"], "node node2 has instance mail1, whose network lan is not connected");
        check("spare", &["node3"], "node node3 has instance mail1, whose network lan is not connected");
    }
}
