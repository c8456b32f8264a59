//! OP_NETWORK_ADD: makes a network, still without groups.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::NetworkName,
    networks::{MacPrefix, Network, RESERVED_MAX, Subnet, Subnet6},
    tags::Tags,
};

/// Makes a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkAdd {
    /// Its name.
    pub name: NetworkName,
    /// Its addresses.
    pub subnet: Subnet,
    /// The router among them.
    pub gateway: Option<Ipv4Addr>,
    /// Its IPv6 addresses.
    pub subnet6: Option<Subnet6>,
    /// The router among those.
    pub gateway6: Option<Ipv6Addr>,
    /// What its instances' MAC addresses begin with.
    pub mac_prefix: Option<MacPrefix>,
    /// Addresses that no instance gets.
    pub reserved: Vec<Ipv4Addr>,
    /// The site's words.
    pub tags: Tags,
}

/// Refuses what a network can't be by itself: routers and reserved addresses that are not its own.
pub(super) fn check_itself(network: &Network) -> Result<(), Refusal> {
    let (name, subnet) = (&network.name, network.subnet);
    let host = |ip: Ipv4Addr| subnet.contains(ip) && ip != subnet.first() && ip != subnet.last();
    if let Some(gateway) = network.gateway.filter(|gateway| !host(*gateway)) {
        return Err(Refusal(format!(
            "the gateway {gateway} is no host's address in network {name} ({subnet})"
        )));
    }
    match (network.gateway6, network.subnet6) {
        (Some(gateway), None) => {
            return Err(Refusal(format!("network {name} has no IPv6 addresses for the gateway {gateway}")));
        }
        (Some(gateway), Some(range)) if !range.contains(gateway) || range.first() == gateway => {
            return Err(Refusal(format!(
                "the gateway {gateway} is no host's address in network {name} ({range})"
            )));
        }
        (Some(_), Some(_)) | (None, _) => {}
    }
    if let Some(ip) = network.reserved.iter().find(|ip| !subnet.contains(**ip)) {
        return Err(Refusal(format!("the reserved address {ip} is not in network {name} ({subnet})")));
    }
    if network.reserved.len() > RESERVED_MAX {
        return Err(Refusal(format!(
            "network {name} would have {} reserved addresses, and {RESERVED_MAX} are the most",
            network.reserved.len()
        )));
    }
    Ok(())
}

/// Refuses addresses that another network has.
pub(super) fn check_others(cluster: &Cluster, network: &Network) -> Result<(), Refusal> {
    for other in cluster.networks.values().filter(|other| other.uuid != network.uuid) {
        if other.subnet.overlaps(network.subnet) {
            let (ours, theirs) = (network.subnet, other.subnet);
            return Err(Refusal(format!(
                "{ours} and {theirs} of network {} have addresses in common",
                other.name
            )));
        }
        if let (Some(ours), Some(theirs)) = (network.subnet6, other.subnet6)
            && ours.overlaps(theirs)
        {
            return Err(Refusal(format!(
                "{ours} and {theirs} of network {} have addresses in common",
                other.name
            )));
        }
    }
    Ok(())
}

/// Refuses a router whose address an instance has. (A node may be the router.)
pub(super) fn check_gateways(cluster: &Cluster, network: &Network) -> Result<(), Refusal> {
    let gateways = [network.gateway.map(IpAddr::from), network.gateway6.map(IpAddr::from)];
    let has_one = |instance: &&Instance| instance.ip.is_some_and(|ip| gateways.contains(&Some(ip)));
    match cluster.instances.values().find(has_one) {
        Some(Instance { name, ip: Some(ip), .. }) => {
            Err(Refusal(format!("instance {name} has the address {ip} already: it can't be the gateway's")))
        }
        Some(_) | None => Ok(()),
    }
}

impl Operation for NetworkAdd {
    const ROW: Row = Row {
        op_id: "OP_NETWORK_ADD",
        object: ObjectKind::Network,
        hooks: None,
        hooks2: Some(HookRow2::both("network-add", "OP_NETWORK_ADD")),
        submitter: Submitter::Operator,
    };
    type Checked = Network;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("network", &self.name).exclusive("subnets", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Network, Refusal> {
        if given.cluster.network_named(&self.name).is_some() {
            return Err(Refusal(format!("there is a network {} already", self.name)));
        }
        let tags = Tags::default().with(&self.tags);
        let network = Network {
            uuid: parts::fresh_uuid(given, parts::OBJECT),
            name: self.name.clone(),
            subnet: self.subnet,
            gateway: self.gateway,
            subnet6: self.subnet6,
            gateway6: self.gateway6,
            mac_prefix: self.mac_prefix.clone(),
            reserved: self.reserved.iter().copied().collect(),
            groups: Default::default(),
            tags: tags.map_err(|why| Refusal(format!("network {}: {why}", self.name)))?,
        };
        check_itself(&network)?;
        check_others(given.cluster, &network)?;
        check_gateways(given.cluster, &network)?;
        Ok(network)
    }

    fn hook_nodes(&self, _given: Given<'_>, _network: &Network) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _network: &Network) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, network: &Network) -> Hooks2 {
        Hooks2::on_master(given, HookObject::Network(Box::new(network.clone())))
    }

    fn plan(&self, _given: Given<'_>, network: &Network) -> Plan {
        Plan::new().edit(Edit::NetworkPut { network: Box::new(network.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let op = NetworkAdd {
            name: examples::network_name("dmz"),
            subnet: examples::subnet("203.0.113.128/25"),
            gateway: Some(Ipv4Addr::from([203, 0, 113, 129])),
            subnet6: Some(Subnet6::parse("2001:db8:2::/64").expect("a range")),
            gateway6: Some("2001:db8:2::1".parse().expect("an address")),
            mac_prefix: Some(MacPrefix::parse("aa:00:77").expect("three octets")),
            reserved: vec![Ipv4Addr::from([203, 0, 113, 130])],
            tags: examples::tags(&["outside"]),
        };
        vec![(examples::networked(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |change: &dyn Fn(&mut NetworkAdd), text: &str| {
            let (cluster, fresh, mut op) = NetworkAdd::examples().remove(0);
            change(&mut op);
            examples::refused(&op, &cluster, &fresh, &cluster.master, text);
        };
        check(&|op| op.name = examples::network_name("lan"), "there is a network lan already");
        check(
            &|op| op.subnet = examples::subnet("198.51.0.0/16"),
            "the gateway 203.0.113.129 is no host's address in network dmz (198.51.0.0/16)",
        );
        check(
            &|op| {
                op.subnet = examples::subnet("198.51.0.0/16");
                (op.gateway, op.reserved) = (None, Vec::new());
            },
            "198.51.0.0/16 and 198.51.100.0/24 of network lan have addresses in common",
        );
        check(&|op| op.gateway = Some([203, 0, 113, 255].into()), "the gateway 203.0.113.255 is no host's");
        check(&|op| op.gateway = Some([203, 0, 113, 128].into()), "the gateway 203.0.113.128 is no host's");
        check(&|op| op.gateway6 = Some("2001:db8:3::1".parse().unwrap()), "the gateway 2001:db8:3::1 is no");
        let taken = |op: &mut NetworkAdd| op.gateway = Some([203, 0, 113, 140].into());
        let (mut cluster, fresh, mut op) = NetworkAdd::examples().remove(0);
        cluster.instances.get_mut(&examples::instance_name("null1")).unwrap().ip =
            Some([203, 0, 113, 140].into());
        taken(&mut op);
        let why = "instance null1 has the address 203.0.113.140 already: it can't be the gateway's";
        examples::refused(&op, &cluster, &fresh, &cluster.master, why);
        check(&|op| op.subnet6 = None, "network dmz has no IPv6 addresses for the gateway 2001:db8:2::1");
        check(&|op| op.reserved.push([192, 0, 2, 1].into()), "the reserved address 192.0.2.1 is not in");
    }
}
