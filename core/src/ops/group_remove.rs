//! OP_GROUP_REMOVE: a group without nodes is gone; the last one stays.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples, groups,
};
use crate::{edit::Edit, groups::Group, hooks::Env, locks::Locks, model::Cluster, names::GroupName};

/// Removes a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRemove {
    /// The group.
    pub name: GroupName,
}

impl Operation for GroupRemove {
    const ROW: Row = Row {
        op_id: "OP_GROUP_REMOVE",
        object: ObjectKind::Group,
        hooks: None,
        hooks2: Some(HookRow2::both("group-remove", "OP_GROUP_REMOVE")),
        submitter: Submitter::Operator,
    };
    type Checked = Group;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        // A node that is added without naming a group goes to the only one: which that is must not change.
        Locks::part().exclusive("group", &self.name).exclusive("groups", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Group, Refusal> {
        let group = groups::group(given.cluster, &self.name)?;
        let name = &group.name;
        let nodes = groups::names(given.cluster.nodes_in(group.uuid).map(|node| &node.name));
        if !nodes.is_empty() {
            let advice = "assign them to another group first";
            return Err(Refusal(format!("group {name} has the nodes {nodes}: {advice}")));
        }
        if given.cluster.groups.len() == 1 {
            return Err(Refusal(format!("group {name} is the last one: a cluster has at least one")));
        }
        let connected =
            given.cluster.networks.values().filter(|network| network.groups.contains_key(&group.uuid));
        let connected: Vec<&str> = connected.map(|network| network.name.as_str()).collect();
        if !connected.is_empty() {
            let networks = connected.join(", ");
            return Err(Refusal(format!("group {name} is connected to networks: {networks}")));
        }
        Ok(group.clone())
    }

    fn hook_nodes(&self, _given: Given<'_>, _group: &Group) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _group: &Group) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, group: &Group) -> Hooks2 {
        Hooks2::on_master(given, HookObject::Group(Box::new(group.clone())))
    }

    fn plan(&self, _given: Given<'_>, group: &Group) -> Plan {
        Plan::new().edit(Edit::GroupRemove { group: group.uuid })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let op = GroupRemove { name: examples::group_name("spare") };
        vec![(examples::networked(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = GroupRemove { name: examples::group_name(name) };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let mut cluster = examples::networked();
        check(&cluster, "rack2", "group rack2 has the nodes node3: assign them to another group first");
        check(&cluster, "spar", "there is no group spar; the nearest name is spare");
        let (first, second) = (cluster.nodes[&cluster.master].group, examples::node_name("node3"));
        cluster.nodes.get_mut(&second).unwrap().group = first;
        check(&cluster, "rack2", "group rack2 is connected to networks: lan");
        let mut empty = examples::cluster();
        empty.nodes.clear();
        check(&empty, "default", "group default is the last one");
    }
}
