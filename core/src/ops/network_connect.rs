//! OP_NETWORK_CONNECT: instances on a group's nodes can be in a network.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples, groups, networks,
};
use crate::{
    edit::Edit,
    groups::Group,
    hooks::Env,
    hypervisor,
    locks::Locks,
    model::Cluster,
    names::{GroupName, NetworkName},
    networks::{Connection, LinkMode, Network},
};

/// Connects a network to a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConnect {
    /// The network.
    pub network: NetworkName,
    /// The group.
    pub group: GroupName,
    /// How instances are connected.
    pub mode: LinkMode,
    /// An interface of each node of the group.
    pub link: String,
}

/// The network as it was, and the group.
#[derive(Debug)]
pub struct Checked {
    network: Network,
    group: Group,
}

/// The part in version 2 that connecting and its opposite share: both run on the group's nodes.
pub(super) fn hooks2(given: Given<'_>, network: &Network, group: &Group, connection: &Connection) -> Hooks2 {
    let nodes = given.cluster.nodes_in(group.uuid).map(|node| node.name.clone()).collect();
    let own = Env::new()
        .set("GROUP_NAME", group.name.as_str())
        .set("GROUP_NETWORK_MODE", connection.mode.as_str())
        .set("GROUP_NETWORK_LINK", connection.link.as_str())
        // There are none here.
        .set("GROUP_NETWORK_VLAN", "");
    Hooks2::on_master(given, HookObject::Network(Box::new(network.clone())))
        .on(HookNodes::both(nodes))
        .with(own)
}

impl Operation for NetworkConnect {
    const ROW: Row = Row {
        op_id: "OP_NETWORK_CONNECT",
        object: ObjectKind::Network,
        hooks: None,
        hooks2: Some(HookRow2::both("network-connect", "OP_NETWORK_CONNECT")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.network.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("network", &self.network).shared("group", &self.group)
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let network = networks::network(given.cluster, &self.network)?;
        let group = groups::group(given.cluster, &self.group)?;
        if network.groups.contains_key(&group.uuid) {
            return Err(Refusal(format!(
                "network {} is connected to group {} already",
                self.network, self.group
            )));
        }
        if !hypervisor::is_interface(&self.link) {
            return Err(Refusal(format!("the link {:?} is no name of an interface", self.link)));
        }
        Ok(Checked { network: network.clone(), group: group.clone() })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let connection = Connection { mode: self.mode, link: self.link.clone() };
        hooks2(given, &checked.network, &checked.group, &connection)
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        let mut network = checked.network.clone();
        network.groups.insert(checked.group.uuid, Connection { mode: self.mode, link: self.link.clone() });
        Plan::new().edit(Edit::NetworkPut { network: Box::new(network) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let op = NetworkConnect {
            network: examples::network_name("lab"),
            group: examples::group_name("default"),
            mode: LinkMode::Routed,
            link: "lab0".to_owned(),
        };
        vec![(examples::networked(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |network: &str, group: &str, link: &str, text: &str| {
            let (cluster, fresh, op) = NetworkConnect::examples().remove(0);
            let (network, group) = (examples::network_name(network), examples::group_name(group));
            let op = NetworkConnect { network, group, link: link.to_owned(), ..op };
            examples::refused(&op, &cluster, &fresh, &cluster.master, text);
        };
        check("lan", "rack2", "br0", "network lan is connected to group rack2 already");
        check("lam", "rack2", "br0", "there is no network lam; the nearest name is la");
        check("lab", "rack3", "br0", "there is no group rack3; the nearest name is rack2");
        check("lab", "rack2", "br 0", "the link \"br 0\" is no name of an interface");
        check("lab", "rack2", "", "the link \"\" is no name of an interface");
    }
}
