//! OP_NETWORK_REMOVE: a network that nothing uses is gone.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples,
    networks,
};
use crate::{edit::Edit, hooks::Env, locks::Locks, model::Cluster, names::NetworkName, networks::Network};

/// Removes a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRemove {
    /// The network.
    pub name: NetworkName,
}

impl Operation for NetworkRemove {
    const ROW: Row = Row {
        op_id: "OP_NETWORK_REMOVE",
        object: ObjectKind::Network,
        hooks: None,
        hooks2: Some(HookRow2::both("network-remove", "OP_NETWORK_REMOVE")),
        submitter: Submitter::Operator,
    };
    type Checked = Network;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("network", &self.name)
    }

    fn check(&self, given: Given<'_>) -> Result<Network, Refusal> {
        let network = networks::network(given.cluster, &self.name)?;
        let users: Vec<&str> =
            given.cluster.instances_in(network.uuid).map(|instance| instance.name.as_str()).collect();
        if !users.is_empty() {
            return Err(Refusal(format!("network {} is used by instances: {}", self.name, users.join(", "))));
        }
        let mut groups: Vec<&str> = given
            .cluster
            .groups
            .values()
            .filter(|group| network.groups.contains_key(&group.uuid))
            .map(|group| group.name.as_str())
            .collect();
        groups.sort_unstable();
        if !groups.is_empty() {
            return Err(Refusal(format!(
                "network {} is connected to groups: {}; disconnect it first",
                self.name,
                groups.join(", ")
            )));
        }
        Ok(network.clone())
    }

    fn hook_nodes(&self, _given: Given<'_>, _network: &Network) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _network: &Network) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, network: &Network) -> Hooks2 {
        Hooks2::cluster(given).with(Env::new().set("NETWORK_NAME", network.name.as_str()))
    }

    fn plan(&self, _given: Given<'_>, network: &Network) -> Plan {
        Plan::new().edit(Edit::NetworkRemove { network: network.uuid })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let op = NetworkRemove { name: examples::network_name("lab") };
        vec![(examples::networked(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = NetworkRemove { name: examples::network_name(name) };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let mut cluster = examples::networked();
        check(&cluster, "lan", "network lan is used by instances: mail1, web1");
        check(&cluster, "lann", "there is no network lann; the nearest name is lan");
        for instance in cluster.instances.values_mut() {
            instance.network = None;
        }
        check(&cluster, "lan", "network lan is connected to groups: default, rack2; disconnect it first");
    }
}
