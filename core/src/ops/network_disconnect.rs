//! OP_NETWORK_DISCONNECT: instances on a group's nodes can be in a network no more; none is.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples,
    groups, network_connect, networks,
};
use crate::{
    edit::Edit,
    groups::Group,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::{GroupName, NetworkName, NodeName},
    networks::{Connection, Network},
};

/// Disconnects a network from a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkDisconnect {
    /// The network.
    pub network: NetworkName,
    /// The group.
    pub group: GroupName,
}

/// The network as it was, the group, and how they were connected.
#[derive(Debug)]
pub struct Checked {
    network: Network,
    group: Group,
    connection: Connection,
}

impl Operation for NetworkDisconnect {
    const ROW: Row = Row {
        op_id: "OP_NETWORK_DISCONNECT",
        object: ObjectKind::Network,
        hooks: None,
        hooks2: Some(HookRow2::both("network-disconnect", "OP_NETWORK_DISCONNECT")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.network.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("network", &self.network).shared("group", &self.group);
        locks.exclusive("instance-networks", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let cluster = given.cluster;
        let network = networks::network(cluster, &self.network)?;
        let group = groups::group(cluster, &self.group)?;
        let connection = network.groups.get(&group.uuid).ok_or_else(|| {
            Refusal(format!("network {} is not connected to group {}", self.network, self.group))
        })?;
        let on_group = |name: &NodeName| cluster.nodes.get(name).is_some_and(|node| node.group == group.uuid);
        let users = cluster.instances_in(network.uuid).filter(|instance| {
            let secondaries = instance.secondaries();
            secondaries.iter().chain([&instance.primary]).any(&on_group)
        });
        let users: Vec<&str> = users.map(|instance| instance.name.as_str()).collect();
        if !users.is_empty() {
            return Err(Refusal(format!(
                "network {} is used by instances on nodes of group {}: {}",
                self.network,
                self.group,
                users.join(", ")
            )));
        }
        Ok(Checked { network: network.clone(), group: group.clone(), connection: connection.clone() })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        network_connect::hooks2(given, &checked.network, &checked.group, &checked.connection)
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        let mut network = checked.network.clone();
        network.groups.remove(&checked.group.uuid);
        Plan::new().edit(Edit::NetworkPut { network: Box::new(network) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let network = examples::network_name("lab");
        let op = NetworkDisconnect { network: network.clone(), group: examples::group_name("rack2") };
        let mut cluster = examples::networked();
        let rack = cluster.nodes[&examples::node_name("node3")].group;
        let lab = cluster.networks.values_mut().find(|it| it.name == network).expect("it is an example");
        let link = "lab1".to_owned();
        lab.groups.insert(rack, Connection { mode: crate::networks::LinkMode::Bridged, link });
        vec![(cluster, examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |network: &str, group: &str, text: &str| {
            let cluster = examples::networked();
            let (network, group) = (examples::network_name(network), examples::group_name(group));
            let op = NetworkDisconnect { network, group };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("lab", "rack2", "network lab is not connected to group rack2");
        check("lan", "default", "network lan is used by instances on nodes of group default: mail1, web1");
        check("lan", "rack2", "network lan is used by instances on nodes of group rack2: mail1");
        check("lab", "racks", "there is no group racks");
    }
}
