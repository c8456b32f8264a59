//! OP_NETWORK_MODIFY: other routers, IPv6 addresses, MAC addresses' beginning or reserved addresses of a network.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples,
    network_add::{check_gateways, check_itself, check_others},
    networks,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::NetworkName,
    networks::{MacPrefix, Network, Subnet6},
};

/// What becomes of something that a network may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change<T> {
    /// It is this.
    Set(T),
    /// There is none.
    Clear,
}

impl<T: Clone> Change<T> {
    fn apply(change: &Option<Change<T>>, before: &Option<T>) -> Option<T> {
        match change {
            None => before.clone(),
            Some(Change::Set(value)) => Some(value.clone()),
            Some(Change::Clear) => None,
        }
    }
}

/// Changes a network; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkModify {
    /// The network.
    pub name: NetworkName,
    /// The router.
    pub gateway: Option<Change<Ipv4Addr>>,
    /// IPv6 addresses.
    pub subnet6: Option<Change<Subnet6>>,
    /// The router among those.
    pub gateway6: Option<Change<Ipv6Addr>>,
    /// What MAC addresses begin with, of instances that come into it from now on.
    pub mac_prefix: Option<Change<MacPrefix>>,
    /// Addresses that no instance gets any more.
    pub reserve: Vec<Ipv4Addr>,
    /// Addresses that instances may get again.
    pub release: Vec<Ipv4Addr>,
}

/// The network before and after.
#[derive(Debug)]
pub struct Checked {
    before: Network,
    after: Network,
}

impl NetworkModify {
    fn is_nothing(&self) -> bool {
        let NetworkModify { name: _, gateway, subnet6, gateway6, mac_prefix, reserve, release } = self;
        let lists = reserve.is_empty() && release.is_empty();
        gateway.is_none() && subnet6.is_none() && gateway6.is_none() && mac_prefix.is_none() && lists
    }

    /// Reserving what is reserved, or releasing what is not, is a mistake.
    fn check_reserved(&self, before: &Network) -> Result<(), Refusal> {
        let name = &before.name;
        if let Some(ip) = self.reserve.iter().find(|ip| before.reserved.contains(ip)) {
            return Err(Refusal(format!("the address {ip} is reserved in network {name} already")));
        }
        if let Some(ip) = self.release.iter().find(|ip| !before.reserved.contains(ip)) {
            return Err(Refusal(format!("the address {ip} is not reserved in network {name}")));
        }
        Ok(())
    }
}

/// Refuses to withhold what an instance has.
fn check_instances(cluster: &Cluster, after: &Network) -> Result<(), Refusal> {
    for instance in cluster.instances_in(after.uuid) {
        let Some(ip) = instance.ip else { continue };
        if let Err(why) = networks::fits(after, ip) {
            return Err(Refusal(format!("instance {} has the address {ip}: {why}", instance.name)));
        }
    }
    Ok(())
}

impl Operation for NetworkModify {
    const ROW: Row = Row {
        op_id: "OP_NETWORK_MODIFY",
        object: ObjectKind::Network,
        hooks: None,
        hooks2: Some(HookRow2::both("network-modify", "OP_NETWORK_SET_PARAMS")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("network", &self.name);
        if self.subnet6.is_some() { locks.exclusive("subnets", "") } else { locks }
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = networks::network(given.cluster, &self.name)?.clone();
        if self.is_nothing() {
            let words = "give a gateway, IPv6 addresses, a MAC prefix or reserved addresses";
            return Err(Refusal(format!("nothing to change: {words}")));
        }
        self.check_reserved(&before)?;
        let mut after = Network {
            gateway: Change::apply(&self.gateway, &before.gateway),
            subnet6: Change::apply(&self.subnet6, &before.subnet6),
            gateway6: Change::apply(&self.gateway6, &before.gateway6),
            mac_prefix: Change::apply(&self.mac_prefix, &before.mac_prefix),
            ..before.clone()
        };
        after.reserved.extend(&self.reserve);
        after.reserved.retain(|ip| !self.release.contains(ip));
        check_itself(&after)?;
        check_others(given.cluster, &after)?;
        check_instances(given.cluster, &after)?;
        if after.gateway != before.gateway || after.gateway6 != before.gateway6 {
            check_gateways(given.cluster, &after)?;
        }
        Ok(Checked { before, after })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        Hooks2::on_master(given, HookObject::Network(Box::new(checked.before.clone())))
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        Plan::new().edit(Edit::NetworkPut { network: Box::new(checked.after.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let gateway = NetworkModify {
            name: examples::network_name("lan"),
            gateway: Some(Change::Set(Ipv4Addr::from([198, 51, 100, 253]))),
            subnet6: None,
            gateway6: None,
            mac_prefix: Some(Change::Clear),
            reserve: vec![Ipv4Addr::from([198, 51, 100, 3])],
            release: vec![Ipv4Addr::from([198, 51, 100, 2])],
        };
        let range = NetworkModify {
            gateway: Some(Change::Clear),
            subnet6: Some(Change::Set(Subnet6::parse("2001:db8:3::/64").expect("a range"))),
            gateway6: Some(Change::Set("2001:db8:3::1".parse().expect("an address"))),
            mac_prefix: None,
            reserve: Vec::new(),
            release: Vec::new(),
            ..gateway.clone()
        };
        [gateway, range].map(|op| (examples::networked(), examples::fresh(), op)).into()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn refusals() {
        let check = |change: &dyn Fn(&mut NetworkModify), text: &str| {
            let (cluster, fresh, op) = NetworkModify::examples().remove(0);
            let mut op = NetworkModify {
                gateway: None,
                mac_prefix: None,
                reserve: Vec::new(),
                release: Vec::new(),
                ..op
            };
            change(&mut op);
            examples::refused(&op, &cluster, &fresh, &cluster.master, text);
        };
        let ip = |last: u8| Ipv4Addr::from([198, 51, 100, last]);
        check(&|_| (), "nothing to change");
        check(
            &|op| op.name = examples::network_name("lann"),
            "there is no network lann; the nearest name is lan",
        );
        check(&|op| op.reserve = vec![ip(2)], "the address 198.51.100.2 is reserved in network lan already");
        check(&|op| op.release = vec![ip(3)], "the address 198.51.100.3 is not reserved in network lan");
        check(&|op| op.reserve = vec![ip(1)], "instance web1 has the address 198.51.100.1");
        check(&|op| op.gateway = Some(Change::Set(ip(1))), "instance web1 has the address 198.51.100.1");
        check(
            &|op| op.gateway = Some(Change::Set([192, 0, 2, 1].into())),
            "the gateway 192.0.2.1 is no host's",
        );
    }

    #[test]
    fn a_range_that_an_instance_has_its_address_of_stays() {
        let (mut cluster, fresh, mut op) = NetworkModify::examples().remove(1);
        let network = cluster.networks.values_mut().find(|network| network.name == op.name).unwrap();
        network.subnet6 = Some(Subnet6::parse("2001:db8:1::/64").unwrap());
        let uuid = network.uuid;
        let web = cluster.instances.get_mut(&examples::instance_name("web1")).unwrap();
        (web.network, web.ip) = (Some(uuid), Some(IpAddr::V6("2001:db8:1::7".parse().unwrap())));
        (op.subnet6, op.gateway6) = (Some(Change::Clear), None);
        let text = "instance web1 has the address 2001:db8:1::7";
        examples::refused(&op, &cluster, &fresh, &cluster.master, text);
    }
}
