//! OP_INSTANCE_MODIFY: other memory, processors or address; the guest has them from its next start.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    bounds, common, examples,
    networks::{self, Wanted},
    parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::{InstanceName, NetworkName},
};

/// What becomes of an instance's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IpChange {
    /// It gets this one.
    Set(IpAddr),
    /// It has none.
    Clear,
    /// It gets the first of its network that nobody has.
    Pool,
}

/// What becomes of an instance's network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkChange {
    /// It is in this one.
    Set(NetworkName),
    /// It is in none, and the address that it has there goes with it unless it gets another.
    Clear,
}

/// Changes an instance; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceModify {
    /// The instance.
    pub instance: InstanceName,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Virtual processors.
    pub vcpus: Option<u32>,
    /// Its address.
    pub ip: Option<IpChange>,
    /// Its network; to be named with each new address of an instance that is in one, since that network is locked.
    #[serde(default)]
    pub network: Option<NetworkChange>,
}

/// What of an instance its network decides: that network's uuid, its address, its MAC address.
type Place = (Option<Uuid>, Option<IpAddr>, String);

impl InstanceModify {
    fn wanted(&self) -> Wanted {
        match self.ip {
            Some(IpChange::Set(ip)) => Wanted::Address(ip),
            Some(IpChange::Pool) => Wanted::Pool,
            Some(IpChange::Clear) | None => Wanted::None,
        }
    }

    /// The network that is named.
    fn network(&self) -> Option<&NetworkName> {
        match &self.network {
            Some(NetworkChange::Set(name)) => Some(name),
            Some(NetworkChange::Clear) | None => None,
        }
    }

    fn check_place(&self, given: Given<'_>, before: &Instance) -> Result<Place, Refusal> {
        let kept = (before.network, before.ip, before.mac.clone());
        match (&self.network, self.wanted(), given.cluster.network_of(before)) {
            (None, Wanted::None, _) | (Some(NetworkChange::Clear), Wanted::None, None) => {
                Ok((before.network, before.ip.filter(|_| self.ip.is_none()), kept.2))
            }
            (None, Wanted::Address(_) | Wanted::Pool, Some(network)) => Err(Refusal(format!(
                "instance {} is in network {}: name it with the address (--network {})",
                self.instance, network.name, network.name
            ))),
            (None | Some(NetworkChange::Clear), wanted, _) => {
                Ok((None, networks::address(given, None, wanted, &self.instance)?, kept.2))
            }
            (Some(NetworkChange::Set(name)), wanted, _) => self.check_network(given, before, name, wanted),
        }
    }

    /// The network can be had on all nodes of the instance, and has the address: a new one, or the one it has.
    fn check_network(
        &self,
        given: Given<'_>,
        before: &Instance,
        name: &NetworkName,
        wanted: Wanted,
    ) -> Result<Place, Refusal> {
        let network = networks::network(given.cluster, name)?;
        for node in before.secondaries().iter().chain([&before.primary]) {
            networks::reaches(given.cluster, network, node)?;
        }
        let ip = match (self.ip, before.ip) {
            (None, Some(ip)) => {
                let advice = "give --ip ADDRESS, --ip pool or --ip none as well";
                networks::fits(network, ip).map_err(|why| Refusal(format!("{why}; {advice}")))?;
                Some(ip)
            }
            (Some(_), _) | (None, None) => networks::address(given, Some(network), wanted, &self.instance)?,
        };
        let is_new = before.network != Some(network.uuid);
        let mac = if is_new {
            networks::mac(given, network, &before.mac, &self.instance)?
        } else {
            before.mac.clone()
        };
        Ok((Some(network.uuid), ip, mac))
    }
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
}

impl Operation for InstanceModify {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_MODIFY",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-modify", op_code: "OP_INSTANCE_SET_PARMS" }),
        hooks2: Some(HookRow2::both("instance-modify", "OP_INSTANCE_SET_PARAMS")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("instance", &self.instance);
        networks::lock(locks, self.network(), self.wanted())
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = common::instance(given.cluster, &self.instance)?.clone();
        let hardware = self.memory_mib.is_some() || self.vcpus.is_some();
        if !hardware && self.ip.is_none() && self.network.is_none() {
            let words = "give memory, virtual processors, an address or a network";
            return Err(Refusal(format!("nothing to change: {words}")));
        }
        let (network, ip, mac) = self.check_place(given, &before)?;
        let memory_mib = self.memory_mib.unwrap_or(before.memory_mib);
        let vcpus = self.vcpus.unwrap_or(before.vcpus);
        bounds::memory(memory_mib)?;
        bounds::vcpus(vcpus)?;
        let after = Instance { memory_mib, vcpus, ip, network, mac, ..before.clone() };
        Ok(Checked { before, after })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.before)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("MEM_SIZE", checked.after.memory_mib.to_string())
            .set("VCPUS", checked.after.vcpus.to_string())
            .optional("INSTANCE_IP", checked.after.ip.map(|ip| ip.to_string()))
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        // What is asked for stands in both phases: a script that limits memory could not see it before otherwise.
        let own = Env::new().set("NEW_DISK_TEMPLATE", "").set("RUNTIME_MEMORY", "");
        Hooks2::instance(given, &checked.after).with(own)
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        Plan::new().edit(Edit::InstancePut { instance: Box::new(checked.after.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let instance = examples::instance_name("web1");
        let memory =
            InstanceModify { instance, memory_mib: Some(1024), vcpus: None, ip: None, network: None };
        let address = InstanceModify {
            instance: examples::instance_name("mail1"),
            memory_mib: None,
            vcpus: Some(4),
            ip: Some(IpChange::Set(IpAddr::from([198, 51, 100, 77]))),
            network: None,
        };
        let cleared = InstanceModify { memory_mib: None, ip: Some(IpChange::Clear), ..memory.clone() };
        let into = InstanceModify {
            instance: examples::instance_name("db1"),
            memory_mib: None,
            ip: Some(IpChange::Pool),
            network: Some(NetworkChange::Set(examples::network_name("lan"))),
            ..memory.clone()
        };
        let out = InstanceModify { memory_mib: None, network: Some(NetworkChange::Clear), ..memory.clone() };
        let mut all: Vec<_> =
            [memory, address, cleared].map(|op| (examples::cluster(), examples::fresh(), op)).into();
        all.extend([into, out].map(|op| (examples::networked(), examples::fresh(), op)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut InstanceModify), text: &str) {
        let cluster = examples::cluster();
        let instance = examples::instance_name("mail1");
        let mut op = InstanceModify { instance, memory_mib: None, vcpus: None, ip: None, network: None };
        change(&mut op);
        examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        check(|_| (), "nothing to change");
        check(|op| op.instance = examples::instance_name("mail11"), "there is no instance mail11");
        check(|op| op.memory_mib = Some(0), "a memory of 0 MiB");
        check(|op| op.vcpus = Some(0), "0 virtual processors");
        check(
            |op| op.ip = Some(IpChange::Set(IpAddr::from([198, 51, 100, 1]))),
            "instance web1 has the address",
        );
    }

    fn networked(name: &str, network: &str, ip: Option<IpChange>) -> InstanceModify {
        let network = Some(NetworkChange::Set(examples::network_name(network)));
        InstanceModify { instance: examples::instance_name(name), memory_mib: None, vcpus: None, ip, network }
    }

    #[test]
    fn refusals_of_networks() {
        let check = |op: InstanceModify, text: &str| {
            let cluster = examples::networked();
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        let ip = |last: u8| Some(IpChange::Set(IpAddr::from([198, 51, 100, last])));
        let outside = Some(IpChange::Set(IpAddr::from([203, 0, 113, 5])));
        let unnamed = |name: &str, ip| InstanceModify { network: None, ..networked(name, "lan", ip) };
        check(networked("null1", "lam", None), "there is no network lam; the nearest name is la");
        check(
            networked("null1", "lab", None),
            "network lab is not connected to group default, which node node1",
        );
        check(
            networked("null1", "lan", outside),
            "the address 203.0.113.5 is not in network lan (198.51.100.0/24)",
        );
        check(networked("null1", "lan", ip(254)), "is for no instance: it is its gateway in network lan");
        check(networked("null1", "lan", ip(255)), "is for no instance: it is its broadcast address");
        check(networked("null1", "lan", ip(2)), "is for no instance: it is reserved in network lan");
        check(networked("null1", "lan", ip(1)), "instance web1 has the address 198.51.100.1 already");
        check(
            unnamed("web1", ip(9)),
            "instance web1 is in network lan: name it with the address (--network lan)",
        );
        check(unnamed("web1", Some(IpChange::Pool)), "instance web1 is in network lan");
        check(unnamed("null1", ip(9)), "the address 198.51.100.9 is one of network lan: name it with");
        check(
            unnamed("null1", Some(IpChange::Pool)),
            "an address from the pool is one of a network: name it",
        );
    }

    #[test]
    fn a_network_gives_address_and_mac_and_takes_its_address_back() {
        let after = |index: usize| {
            let (cluster, fresh, op) = InstanceModify::examples().remove(index);
            let local = &cluster.master;
            let given = Given { cluster: &cluster, fresh: &fresh, local, undone: &[] };
            op.check(given).unwrap().after
        };
        let into = after(3);
        // .1 and .7 are other instances', .2 is reserved.
        assert_eq!(into.ip, Some(IpAddr::from([198, 51, 100, 3])));
        assert_eq!(into.mac, "aa:00:55:00:00:03");
        let out = after(4);
        assert_eq!((out.network, out.ip, out.mac.as_str()), (None, None, "aa:00:00:00:00:01"));
    }

    #[test]
    fn an_instance_in_no_network_keeps_its_address_when_it_is_taken_out_of_none() {
        let cluster = examples::cluster();
        let instance = examples::instance_name("web1");
        let network = Some(NetworkChange::Clear);
        let op = InstanceModify { instance, memory_mib: None, vcpus: None, ip: None, network };
        let (fresh, local) = (examples::fresh(), &cluster.master);
        let checked = op.check(Given { cluster: &cluster, fresh: &fresh, local, undone: &[] }).unwrap();
        assert_eq!((checked.after.ip, checked.before.ip.is_some()), (checked.before.ip, true));
    }

    #[test]
    fn variables_are_those_after_the_change() {
        let expected =
            [("1024", "2", Some("198.51.100.1")), ("256", "4", Some("198.51.100.77")), ("512", "2", None)];
        for ((cluster, fresh, op), (memory, vcpus, ip)) in
            InstanceModify::examples().into_iter().zip(expected)
        {
            let env = examples::prepared(&op, &cluster, &fresh, &cluster.master).env;
            let found = (env.get("MEM_SIZE"), env.get("VCPUS"), env.get("INSTANCE_IP"));
            assert_eq!(found, (Some(memory), Some(vcpus), ip));
        }
    }
}
