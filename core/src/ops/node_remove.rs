//! OP_REMOVE_NODE: a node that holds nothing any more leaves the cluster.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples,
};
use crate::{
    calls::{Call, MasterCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance, Node},
    names::NodeName,
};

/// Removes a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRemove {
    /// The node.
    pub name: NodeName,
}

fn names<'a>(instances: impl Iterator<Item = &'a Instance>) -> String {
    let names: Vec<&str> = instances.map(|instance| instance.name.as_str()).collect();
    names.join(", ")
}

impl Operation for NodeRemove {
    const ROW: Row = Row {
        op_id: "OP_REMOVE_NODE",
        object: ObjectKind::Node,
        hooks: Some(HookRow { prefix: "node-remove", op_code: "OP_NODE_REMOVE" }),
        hooks2: Some(HookRow2::both("node-remove", "OP_NODE_REMOVE")),
        submitter: Submitter::Operator,
    };
    type Checked = Node;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("node", &self.name).shared("certificates", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Node, Refusal> {
        let node = common::node(given.cluster, &self.name)?;
        let name = &node.name;
        if *name == given.cluster.master || name == given.local {
            return Err(Refusal(format!("node {name} is the master: another must take the office first")));
        }
        let primaries = names(given.cluster.primaries_on(name));
        if !primaries.is_empty() {
            return Err(Refusal(format!("node {name} is the primary of instances: {primaries}")));
        }
        let secondaries = names(given.cluster.secondaries_on(name));
        if !secondaries.is_empty() {
            return Err(Refusal(format!("node {name} is the secondary of instances: {secondaries}")));
        }
        let exports = given.cluster.exports.values().filter(|export| export.node == *name);
        let exports: Vec<&str> = exports.map(|export| export.instance.as_str()).collect();
        if !exports.is_empty() {
            return Err(Refusal(format!("node {name} holds exports of {}", exports.join(", "))));
        }
        Ok(node.clone())
    }

    fn hook_nodes(&self, given: Given<'_>, _node: &Node) -> HookNodes {
        HookNodes::both(given.cluster.nodes.keys().filter(|name| **name != self.name).cloned().collect())
    }

    fn hook_env(&self, _given: Given<'_>, node: &Node) -> Env {
        Env::new().set("NODE_NAME", node.name.as_str())
    }

    fn hooks2(&self, given: Given<'_>, node: &Node) -> Hooks2 {
        Hooks2::node(given, node).on(self.hook_nodes(given, node))
    }

    fn plan(&self, given: Given<'_>, node: &Node) -> Plan {
        let plan = Plan::new().edit(Edit::NodeRemove { node: node.name.clone() });
        // What was still to be destroyed there goes with the node: nobody could carry it out any more.
        let left =
            given.cluster.cleanups.iter().filter(|(_, cleanup)| cleanup.call.node() == Some(&node.name));
        let plan = left.fold(plan, |plan, (id, _)| plan.edit(Edit::CleanupRemove { id: *id }));
        if node.offline {
            return plan;
        }
        plan.cleanup_once(Call::Master(MasterCall::NodeLeave {
            node: node.name.clone(),
            address: SocketAddr::new(node.primary_ip, node.port),
            uuid: node.uuid,
            fingerprints: node.fingerprints.clone(),
        }))
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let name = examples::node_name("node3");
        let online = examples::node3_empty();
        let mut offline = online.clone();
        offline.nodes.get_mut(&name).expect("the example has node3").offline = true;
        vec![
            (online, examples::fresh(), NodeRemove { name: name.clone() }),
            (offline, examples::fresh(), NodeRemove { name }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        calls::{Cleanup, NodeCall},
        model::CleanupId,
    };

    fn check(name: &str, text: &str) {
        let cluster = examples::cluster();
        let op = NodeRemove { name: examples::node_name(name) };
        examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        check("node1", "node node1 is the master");
        check("node2", "node node2 is the primary of instances: mail1");
        check("nodee3", "there is no node nodee3; the nearest name is node3");
        check("node3", "node node3 is the secondary of instances: db1, mail1");
    }

    #[test]
    fn a_node_with_exports_is_not_removed() {
        let mut cluster = examples::node3_empty();
        let name = examples::node_name("node3");
        let export = examples::export("web1", "node3");
        cluster.exports.insert(export.uuid, export);
        let op = NodeRemove { name };
        examples::refused(
            &op,
            &cluster,
            &examples::fresh(),
            &cluster.master,
            "node node3 holds exports of web1",
        );
    }

    #[test]
    fn what_was_to_be_destroyed_goes_with_the_node() {
        let (mut cluster, fresh, op) = NodeRemove::examples().remove(0);
        let call = |name: &str| {
            Call::Node(examples::node_name(name), NodeCall::DiskRemove { disk: uuid::Uuid::nil() })
        };
        let cleanup = |name: &str| Cleanup { call: call(name), once: false, attempts: 1, last_error: None };
        let (gone, kept) = (CleanupId { job: 1, index: 0 }, CleanupId { job: 1, index: 1 });
        cluster.cleanups = [(gone, cleanup("node3")), (kept, cleanup("node2"))].into();
        let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
        let removed: Vec<&Edit> =
            prepared.plan.edits.iter().filter(|edit| matches!(edit, Edit::CleanupRemove { .. })).collect();
        assert_eq!(removed, [&Edit::CleanupRemove { id: gone }]);
    }
}
