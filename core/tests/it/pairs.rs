//! A law of locks: two operations that may hold theirs at once, both prepared before either is committed, leave a
//! configuration that keeps the rules of groups and networks, whichever is committed first.

#![expect(
    clippy::unwrap_used,
    reason = "all of this file is test code, helpers outside of test functions too"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use muster_core::{
    groups::AllocPolicy,
    model::{Cluster, DiskName, DiskTemplate},
    names::{GroupName, InstanceName, NetworkName, NodeName},
    networks::{Connection, LinkMode, Subnet},
    ops::{
        Fresh, Given, GroupAdd, GroupAssignNodes, GroupRemove, GroupRename, InstanceAdd, InstanceModify,
        InstanceRemove, IpChange, JobFacts, MirrorAdd, NetworkAdd, NetworkChange, NetworkConnect,
        NetworkDisconnect, NetworkModify, NetworkRemove, NodeAdd, NodeModify, NodeRemove, Op, Prepared,
        examples,
    },
};
use uuid::Uuid;

fn node(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

fn group(text: &str) -> GroupName {
    GroupName::parse(text).unwrap()
}

fn network(text: &str) -> NetworkName {
    NetworkName::parse(text).unwrap()
}

fn lan(last: u8) -> IpAddr {
    IpAddr::from([198, 51, 100, last])
}

/// The networked example; `lab` is connected to the groups with nodes, and nobody is in it.
fn cluster() -> Cluster {
    let mut cluster = examples::networked();
    let connected: Vec<Uuid> = cluster.nodes.values().map(|node| node.group).collect();
    let lab = cluster.networks.values_mut().find(|it| it.name.as_str() == "lab").unwrap();
    for group in connected {
        lab.groups.insert(group, Connection { mode: LinkMode::Bridged, link: "lab0".to_owned() });
    }
    cluster
}

/// An addition on node2, whose fields may be changed.
fn add(name: &str, in_network: Option<&str>, ip: Option<IpAddr>, ip_pool: bool) -> Op {
    Op::InstanceAdd(InstanceAdd {
        name: InstanceName::parse(name).unwrap(),
        disk_size_mib: 0,
        network: in_network.map(network),
        ip,
        ip_pool,
        ..examples::instance_add(DiskTemplate::Diskless, None)
    })
}

fn modify(name: &str, in_network: &str, ip: IpChange) -> Op {
    Op::InstanceModify(InstanceModify {
        instance: InstanceName::parse(name).unwrap(),
        memory_mib: None,
        vcpus: None,
        ip: Some(ip),
        network: Some(NetworkChange::Set(network(in_network))),
    })
}

fn reserve(name: &str, ip: Ipv4Addr) -> Op {
    Op::NetworkModify(NetworkModify {
        name: network(name),
        gateway: None,
        subnet6: None,
        gateway6: None,
        mac_prefix: None,
        reserve: vec![ip],
        release: Vec::new(),
    })
}

fn node_add(name: &str, ip: IpAddr, into: &str) -> Op {
    let group = Some(group(into));
    Op::NodeAdd(NodeAdd { name: node(name), primary_ip: Some(ip), secondary_ip: None, readd: false, group })
}

fn operations() -> Vec<Op> {
    let instance = |name: &str| InstanceName::parse(name).unwrap();
    let range = |text: &str| {
        Op::NetworkAdd(NetworkAdd {
            name: network("new"),
            subnet: Subnet::parse(text).unwrap(),
            gateway: None,
            subnet6: None,
            gateway6: None,
            mac_prefix: None,
            reserved: Vec::new(),
            tags: Default::default(),
        })
    };
    let address = Op::NodeModify(NodeModify {
        name: node("node2"),
        offline: None,
        drained: None,
        master_candidate: None,
        primary_ip: Some(lan(3)),
        secondary_ip: None,
    });
    let assign = |into: &str, name: &str| {
        Op::GroupAssignNodes(GroupAssignNodes { group: group(into), nodes: vec![node(name)] })
    };
    let disconnect = |name: &str, from: &str| {
        Op::NetworkDisconnect(NetworkDisconnect { network: network(name), group: group(from) })
    };
    vec![
        add("new1", Some("lan"), None, true),
        add("new2", Some("lan"), None, true),
        add("new3", Some("lan"), Some(lan(3)), false),
        add("new4", Some("lab"), None, true),
        add("new5", None, Some(IpAddr::from([203, 0, 114, 5])), false),
        modify("null1", "lab", IpChange::Pool),
        modify("db1", "lan", IpChange::Pool),
        modify("db1", "lab", IpChange::Set(IpAddr::from([203, 0, 113, 1]))),
        Op::InstanceRemove(InstanceRemove { instance: instance("web1") }),
        Op::MirrorAdd(MirrorAdd { instance: instance("web1"), disk: DiskName::Sda, node: node("node3") }),
        reserve("lan", Ipv4Addr::from([198, 51, 100, 3])),
        reserve("lab", Ipv4Addr::from([203, 0, 113, 1])),
        range("203.0.114.0/24"),
        range("198.18.0.0/16"),
        Op::NetworkRemove(NetworkRemove { name: network("lab") }),
        Op::NetworkConnect(NetworkConnect {
            network: network("lan"),
            group: group("spare"),
            mode: LinkMode::Bridged,
            link: "br9".to_owned(),
        }),
        disconnect("lab", "default"),
        disconnect("lab", "rack2"),
        assign("rack2", "node1"),
        assign("default", "node3"),
        Op::GroupAdd(GroupAdd { name: group("new"), alloc_policy: AllocPolicy::Preferred }),
        Op::GroupAdd(GroupAdd { name: group("room7"), alloc_policy: AllocPolicy::Preferred }),
        Op::GroupRename(GroupRename { name: group("spare"), new_name: group("room7") }),
        Op::GroupRemove(GroupRemove { name: group("spare") }),
        node_add("node4", lan(3), "spare"),
        node_add("node5", IpAddr::from([192, 0, 2, 5]), "rack2"),
        Op::NodeRemove(NodeRemove { name: node("node3") }),
        address,
    ]
}

/// Prepares an operation; `number` keeps what is drawn for one apart from what is drawn for another.
fn prepare(op: &Op, cluster: &Cluster, number: u128) -> Option<Prepared> {
    let plain = examples::fresh_pending("node4");
    let uuids = plain.uuids.iter().map(|uuid| Uuid::from_u128(uuid.as_u128() - (number << 32))).collect();
    let fresh = Fresh { uuids, mac: format!("aa:00:00:ff:fe:{number:02x}"), ..plain };
    let given = Given { cluster, fresh: &fresh, local: &cluster.master, undone: &[] };
    op.prepare(given, &JobFacts { id: 17, user: "root", reason: "", dry_run: false }).ok()
}

/// The rules of groups and networks.
fn check(cluster: &Cluster) -> Result<(), String> {
    let names: BTreeSet<&GroupName> = cluster.groups.values().map(|group| &group.name).collect();
    if names.is_empty() || names.len() != cluster.groups.len() {
        return Err("groups have one name each".to_owned());
    }
    let mut owners: BTreeMap<IpAddr, String> = BTreeMap::new();
    for node in cluster.nodes.values() {
        if !cluster.groups.contains_key(&node.group) {
            return Err(format!("node {} is in no group", node.name));
        }
        owners.insert(node.primary_ip, format!("node {}", node.name));
    }
    for network in cluster.networks.values() {
        if let Some(group) = network.groups.keys().find(|group| !cluster.groups.contains_key(group)) {
            return Err(format!("network {} is connected to {group}, which is none", network.name));
        }
        let overlaps = cluster.networks.values().filter(|it| it.subnet.overlaps(network.subnet)).count();
        if overlaps > 1 {
            return Err(format!("network {} shares addresses", network.name));
        }
    }
    for instance in cluster.instances.values() {
        let name = &instance.name;
        if let Some(ip) = instance.ip {
            if let Some(owner) = owners.insert(ip, format!("instance {name}")) {
                return Err(format!("{owner} and instance {name} have the address {ip}"));
            }
            let of = cluster.networks.values().find(|network| network.contains(ip));
            if of.map(|network| network.uuid) != instance.network {
                return Err(format!("instance {name} has {ip}, which is not of its network"));
            }
        }
        let Some(uuid) = instance.network else { continue };
        let network = cluster.networks.get(&uuid).ok_or(format!("the network of {name} is gone"))?;
        if let Some(ip) = instance.ip.filter(|ip| network.withheld(*ip).is_some()) {
            return Err(format!("instance {name} has {ip}, which is withheld"));
        }
        for place in instance.secondaries().iter().chain([&instance.primary]) {
            let group = cluster.nodes.get(place).map(|node| node.group).unwrap_or_default();
            if !network.groups.contains_key(&group) {
                return Err(format!("instance {name} has no network on {place}"));
            }
        }
    }
    Ok(())
}

#[test]
fn what_may_go_on_at_once_keeps_the_rules_in_either_order() {
    let before = cluster();
    check(&before).unwrap();
    let (operations, mut pairs) = (operations(), 0);
    let prepared: Vec<Option<Prepared>> =
        operations.iter().zip(0..).map(|(op, number)| prepare(op, &before, number)).collect();
    for (first, one) in operations.iter().zip(&prepared) {
        for (second, other) in operations.iter().zip(&prepared) {
            let (Some(one), Some(other)) = (one, other) else { continue };
            if first == second || first.locks().conflicts(&second.locks()) {
                continue;
            }
            pairs += 1;
            let mut slot = Some(before.clone());
            for edit in one.plan.edits.iter().chain(&other.plan.edits) {
                edit.clone().apply(&mut slot);
            }
            if let Err(why) = check(&slot.unwrap()) {
                panic!("{first:?}\nand\n{second:?}:\n{why}");
            }
        }
    }
    assert!(pairs > 200, "only {pairs} pairs may go on at once");
}
