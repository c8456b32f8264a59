//! OP_ADD_NODE: a pending host becomes a node, or takes the place of one that is in the cluster already.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    addresses, examples, groups, parts,
};
use crate::{
    calls::{Call, MasterCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Node},
    names::{GroupName, NodeName},
};

/// Signs a pending host's certificate and adds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAdd {
    /// The pending host's name.
    pub name: NodeName,
    /// Default: what the host advertised, else its source address.
    pub primary_ip: Option<IpAddr>,
    /// Default: the primary address.
    pub secondary_ip: Option<IpAddr>,
    /// Takes the place of a known node.
    pub readd: bool,
    /// The group that it is in; default: the only one.
    #[serde(default)]
    pub group: Option<GroupName>,
}

impl NodeAdd {
    /// The uuid: a new one, or on a re-addition that of the node whose place is taken.
    fn check_known(&self, given: Given<'_>) -> Result<uuid::Uuid, Refusal> {
        let known = given.cluster.nodes.get(&self.name);
        match (known, self.readd) {
            (Some(_), false) => Err(Refusal(format!(
                "node {} is in the cluster already (--readd gives it a new certificate)",
                self.name
            ))),
            (None, true) => {
                Err(Refusal(format!("node {} is not in the cluster: add it without --readd", self.name)))
            }
            (Some(node), true) if node.name == given.cluster.master || node.name == *given.local => {
                Err(Refusal(format!("node {} is the master, which can't be added again", self.name)))
            }
            (Some(node), true) => Ok(node.uuid),
            (None, false) => Ok(parts::fresh_uuid(given, parts::OBJECT)),
        }
    }

    /// The group: a known node's own, else the one that is named, else the only one.
    fn check_group(&self, cluster: &Cluster) -> Result<uuid::Uuid, Refusal> {
        let (name, known) = (&self.name, cluster.nodes.get(&self.name));
        match (known, &self.group) {
            (Some(_), Some(group)) => Err(Refusal(format!(
                "node {name} keeps its group when it is added again: gnt-group assign-nodes {group} {name} moves it"
            ))),
            (Some(node), None) => Ok(node.group),
            (None, Some(group)) => Ok(groups::group(cluster, group)?.uuid),
            (None, None) => match &cluster.groups.values().collect::<Vec<_>>()[..] {
                [only] => Ok(only.uuid),
                several => {
                    let mut names: Vec<&str> = several.iter().map(|group| group.name.as_str()).collect();
                    names.sort_unstable();
                    let words = "there are several groups: name the node's one (--node-group)";
                    Err(Refusal(format!("{words}, of {}", names.join(", "))))
                }
            },
        }
    }
}

impl Operation for NodeAdd {
    const ROW: Row = Row {
        op_id: "OP_ADD_NODE",
        object: ObjectKind::Node,
        hooks: Some(HookRow { prefix: "node-add", op_code: "OP_NODE_ADD" }),
        hooks2: Some(HookRow2::both("node-add", "OP_NODE_ADD")),
        submitter: Submitter::Operator,
    };
    /// The node as it will be; its certificate is not signed yet.
    type Checked = Node;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        // Addresses that the host advertised are not known yet: whoever gives addresses to nodes does so alone.
        let locks = Locks::part()
            .exclusive("node", &self.name)
            .exclusive("node-addresses", "")
            .shared("certificates", "");
        let locks = locks.shared("groups", "");
        match &self.group {
            Some(group) => locks.shared("group", group),
            None => locks,
        }
    }

    fn check(&self, given: Given<'_>) -> Result<Node, Refusal> {
        let uuid = self.check_known(given)?;
        let pending = given.fresh.pending.as_ref().ok_or_else(|| {
            Refusal(format!("no host is pending under the name {}: run `muster-noded join` there", self.name))
        })?;
        let primary_ip = self.primary_ip.unwrap_or(pending.ip);
        let secondary_ip = self.secondary_ip.unwrap_or(primary_ip);
        for ip in [primary_ip, secondary_ip] {
            addresses::node_address_free(given.cluster, ip, &self.name)?;
        }
        let known = given.cluster.nodes.get(&self.name);
        Ok(Node {
            uuid,
            name: self.name.clone(),
            primary_ip,
            secondary_ip,
            port: pending.port,
            offline: false,
            drained: false,
            hooks_only: pending.hooks_only,
            master_candidate: known.is_some_and(|node| node.master_candidate),
            group: self.check_group(given.cluster)?,
            tags: known.map(|node| node.tags.clone()).unwrap_or_default(),
            fingerprints: Vec::new(),
        })
    }

    fn hook_nodes(&self, given: Given<'_>, _node: &Node) -> HookNodes {
        // A host that is added again is pending, and so not among the existing nodes (HOOKS.md R6).
        let pre: Vec<NodeName> =
            given.cluster.nodes.keys().filter(|name| **name != self.name).cloned().collect();
        let mut post = pre.clone();
        post.push(self.name.clone());
        HookNodes { pre, post }
    }

    fn hook_env(&self, _given: Given<'_>, node: &Node) -> Env {
        Env::new()
            .set("NODE_NAME", node.name.as_str())
            .set("NODE_PIP", node.primary_ip.to_string())
            .set("NODE_SIP", node.secondary_ip.to_string())
    }

    fn hooks2(&self, given: Given<'_>, node: &Node) -> Hooks2 {
        Hooks2::node(given, node).on(self.hook_nodes(given, node))
    }

    fn plan(&self, _given: Given<'_>, node: &Node) -> Plan {
        let address = SocketAddr::new(node.primary_ip, node.port);
        let withdraw = || Call::Master(MasterCall::PendingWithdraw { node: node.name.clone() });
        Plan::new()
            .step(
                Call::Master(MasterCall::PendingSign {
                    node: node.name.clone(),
                    uuid: node.uuid,
                    addresses: node.addresses(),
                }),
                withdraw(),
            )
            .harmless(Call::Master(MasterCall::PendingDeliver { node: node.name.clone(), address }))
            .edit(Edit::NodePut { node: node.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let plain = |name: &str| NodeAdd {
            name: examples::node_name(name),
            primary_ip: None,
            secondary_ip: None,
            readd: false,
            group: None,
        };
        let addresses = NodeAdd { secondary_ip: Some(IpAddr::from([192, 0, 2, 54])), ..plain("node4") };
        let readd = NodeAdd { readd: true, ..plain("node3") };
        let group = NodeAdd { group: Some(examples::group_name("spare")), ..plain("node4") };
        vec![
            (examples::cluster(), examples::fresh_pending("node4"), addresses),
            (examples::offline("node3"), examples::fresh_pending("node3"), readd),
            (examples::networked(), examples::fresh_pending("node4"), group),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, readd: bool, ip: Option<[u8; 4]>, pending: bool, text: &str) {
        let cluster = examples::cluster();
        let fresh = if pending { examples::fresh_pending(name) } else { examples::fresh() };
        let primary_ip = ip.map(IpAddr::from);
        let name = examples::node_name(name);
        let op = NodeAdd { name, primary_ip, secondary_ip: None, readd, group: None };
        examples::refused(&op, &cluster, &fresh, &cluster.master, text);
    }

    #[test]
    fn refusals() {
        check("node2", false, None, true, "node node2 is in the cluster already");
        check("node4", true, None, true, "node node4 is not in the cluster");
        check("node1", true, None, true, "node node1 is the master");
        check(
            "node4",
            false,
            None,
            false,
            "no host is pending under the name node4: run `muster-noded join` there",
        );
        check("node4", false, Some([192, 0, 2, 2]), true, "node node2 has the address 192.0.2.2 already");
        check(
            "node4",
            false,
            Some([198, 51, 100, 1]),
            true,
            "instance web1 has the address 198.51.100.1 already",
        );
        check("node4", false, Some([0, 0, 0, 0]), true, "0.0.0.0 is no address of one host");
    }

    #[test]
    fn a_node_is_in_a_group_from_the_start() {
        let (cluster, fresh, op) = NodeAdd::examples().remove(2);
        let check = |op: NodeAdd, text: &str| examples::refused(&op, &cluster, &fresh, &cluster.master, text);
        check(
            NodeAdd { group: None, ..op.clone() },
            "name the node's one (--node-group), of default, rack2, spare",
        );
        let unknown = Some(examples::group_name("spart"));
        check(NodeAdd { group: unknown, ..op.clone() }, "there is no group spart; the nearest name is spare");
        let again = NodeAdd { name: examples::node_name("node3"), readd: true, ..op.clone() };
        check(again, "keeps its group when it is added again: gnt-group assign-nodes spare node3 moves it");
        let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
        let [Edit::NodePut { node }] = &prepared.plan.edits[..] else { panic!("{:?}", prepared.plan.edits) };
        assert_eq!(cluster.groups[&node.group].name.as_str(), "spare");
    }

    #[test]
    fn a_node_added_again_keeps_its_uuid_and_is_told_though_it_was_offline() {
        let (cluster, fresh, op) = NodeAdd::examples().remove(1);
        let before = cluster.nodes[&op.name].clone();
        let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
        assert!(!prepared.nodes.pre.contains(&op.name));
        assert!(prepared.nodes.post.contains(&op.name));
        let [Edit::NodePut { node }] = &prepared.plan.edits[..] else { panic!("{:?}", prepared.plan.edits) };
        assert_eq!((node.uuid, node.offline), (before.uuid, false));
    }
}
