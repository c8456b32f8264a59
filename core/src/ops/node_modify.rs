//! OP_NODE_MODIFY: marks a node offline, drained or a master candidate, or changes its addresses.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, addresses,
    common, examples, hooks2,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Node},
    names::NodeName,
};

/// Changes a node; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeModify {
    /// The node.
    pub name: NodeName,
    /// Not contacted any more.
    pub offline: Option<bool>,
    /// Gets no new instances.
    pub drained: Option<bool>,
    /// May take the office of master; for admins, since the certificate authority's key goes with it.
    pub master_candidate: Option<bool>,
    /// Traffic between nodes.
    pub primary_ip: Option<IpAddr>,
    /// Disk replication.
    pub secondary_ip: Option<IpAddr>,
}

/// Whether the node is offline and drained afterwards.
fn check_marks(op: &NodeModify, given: Given<'_>, node: &Node) -> Result<(bool, bool), Refusal> {
    let name = &node.name;
    let is_master = *name == given.cluster.master || name == given.local;
    if is_master && (op.offline == Some(true) || op.drained == Some(true)) {
        return Err(Refusal(format!("node {name} is the master: it can be neither offline nor drained")));
    }
    let offline = op.offline.unwrap_or(node.offline);
    if offline && op.drained == Some(true) {
        return Err(Refusal(format!("node {name} would be both offline and drained: offline is enough")));
    }
    // Offline says all that drained says.
    let drained = !offline && op.drained.unwrap_or(node.drained);
    Ok((offline, drained))
}

impl Operation for NodeModify {
    const ROW: Row = Row {
        op_id: "OP_NODE_MODIFY",
        object: ObjectKind::Node,
        hooks: None,
        hooks2: Some(HookRow2::both("node-modify", "OP_NODE_SET_PARAMS")),
        submitter: Submitter::Operator,
    };
    /// The node after the change.
    type Checked = Node;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("node", &self.name).shared("certificates", "");
        if self.primary_ip.is_some() || self.secondary_ip.is_some() {
            locks.exclusive("node-addresses", "")
        } else {
            locks
        }
    }

    fn check(&self, given: Given<'_>) -> Result<Node, Refusal> {
        let node = common::node(given.cluster, &self.name)?;
        let NodeModify { name: _, offline, drained, master_candidate, primary_ip, secondary_ip } = self;
        let marks = [offline, drained, master_candidate];
        if marks.iter().all(|mark| mark.is_none()) && primary_ip.is_none() && secondary_ip.is_none() {
            return Err(Refusal(
                "nothing to change: give offline, drained, master candidate or an address".to_owned(),
            ));
        }
        if self.name == given.cluster.master && *master_candidate == Some(false) {
            return Err(Refusal(format!("node {} is the master, and so a master candidate", self.name)));
        }
        let (offline, drained) = check_marks(self, given, node)?;
        for ip in [primary_ip, secondary_ip].into_iter().flatten() {
            addresses::node_address_free(given.cluster, *ip, &self.name)?;
        }
        let primary_after = primary_ip.unwrap_or(node.primary_ip);
        // A node with one address keeps having one.
        let secondary_default =
            if node.secondary_ip == node.primary_ip { primary_after } else { node.secondary_ip };
        Ok(Node {
            offline,
            drained,
            master_candidate: master_candidate.unwrap_or(node.master_candidate),
            primary_ip: primary_after,
            secondary_ip: secondary_ip.unwrap_or(secondary_default),
            ..node.clone()
        })
    }

    fn hook_nodes(&self, _given: Given<'_>, _node: &Node) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _node: &Node) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _node: &Node) -> Hooks2 {
        let own = Env::new()
            .set("MASTER_CANDIDATE", hooks2::asked(self.master_candidate))
            .set("OFFLINE", hooks2::asked(self.offline))
            .set("DRAINED", hooks2::asked(self.drained));
        Hooks2::node(given, hooks2::node_before(given, &self.name)).with(own)
    }

    fn plan(&self, _given: Given<'_>, node: &Node) -> Plan {
        Plan::new().edit(Edit::NodePut { node: node.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let offline = NodeModify {
            name: examples::node_name("node2"),
            offline: Some(true),
            drained: None,
            master_candidate: None,
            primary_ip: None,
            secondary_ip: None,
        };
        let address =
            NodeModify { offline: None, primary_ip: Some(IpAddr::from([192, 0, 2, 52])), ..offline.clone() };
        let candidate = NodeModify { offline: None, master_candidate: Some(true), ..offline.clone() };
        [offline, address, candidate].map(|op| (examples::cluster(), examples::fresh(), op)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modify(name: &str) -> NodeModify {
        NodeModify { offline: None, name: examples::node_name(name), ..NodeModify::examples().remove(0).2 }
    }

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, op: NodeModify, text: &str| {
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let cluster = examples::cluster();
        let taken = Some(IpAddr::from([192, 0, 2, 3]));
        check(&cluster, modify("node2"), "nothing to change");
        check(&cluster, NodeModify { offline: Some(true), ..modify("node1") }, "neither offline nor drained");
        check(&cluster, NodeModify { drained: Some(true), ..modify("node1") }, "neither offline nor drained");
        check(&cluster, NodeModify { drained: Some(true), ..modify("nodes") }, "there is no node nodes");
        check(&cluster, NodeModify { secondary_ip: taken, ..modify("node2") }, "node node3 has the address");
        let both = NodeModify { offline: Some(true), drained: Some(true), ..modify("node2") };
        check(&cluster, both, "both offline and drained");
        let drained = NodeModify { drained: Some(true), ..modify("node2") };
        check(&examples::offline("node2"), drained, "both offline and drained");
    }

    #[test]
    fn a_node_with_one_address_keeps_having_one_and_offline_clears_drained() {
        let (cluster, fresh, op) = NodeModify::examples().remove(1);
        let after = op
            .check(Given { cluster: &cluster, fresh: &fresh, local: &cluster.master, undone: &[] })
            .unwrap();
        assert_eq!(after.primary_ip, after.secondary_ip);
        let cluster = examples::drained("node2");
        let op = NodeModify { offline: Some(true), ..modify("node2") };
        let after = op
            .check(Given { cluster: &cluster, fresh: &fresh, local: &cluster.master, undone: &[] })
            .unwrap();
        assert_eq!((after.offline, after.drained), (true, false));
    }
}
