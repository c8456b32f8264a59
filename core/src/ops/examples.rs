//! Example clusters: every operation's `examples` start from these, and so do the laws that run on all of them.

use std::{collections::BTreeMap, net::IpAddr};

use uuid::Uuid;

use super::{FRESH_UUIDS, Fresh, InstanceAdd, Op, PendingNode};
use crate::{
    allowed::Allowed,
    engine::{Priority, Submission},
    facts::NodeFacts,
    groups::{AllocPolicy, Group},
    hooks::HookPolicy,
    hypervisor::{HypervisorKind, HypervisorParams, NicMode},
    model::{
        Client, ClientRole, Cluster, CopyState, Disk, DiskName, DiskTemplate, Export, Instance, Mirror, Node,
    },
    names::{ClientName, ClusterName, GroupName, InstanceName, NetworkName, NodeName, OsName},
    networks::{Connection, LinkMode, MacPrefix, Network, Subnet},
    tags::{Tag, TagObject, Tagged, Tags},
};

/// A node's name from a literal.
pub(crate) fn node_name(text: &str) -> NodeName {
    NodeName::parse(text).expect("examples use good names")
}

/// A group's name from a literal.
pub(crate) fn group_name(text: &str) -> GroupName {
    GroupName::parse(text).expect("examples use good names")
}

/// A network's name from a literal.
pub(crate) fn network_name(text: &str) -> NetworkName {
    NetworkName::parse(text).expect("examples use good names")
}

/// A range from a literal.
pub(crate) fn subnet(text: &str) -> Subnet {
    Subnet::parse(text).expect("examples use good ranges")
}

/// Tags from literals.
pub(crate) fn tags(words: &[&str]) -> Tags {
    words.iter().map(|word| Tag::parse(word).expect("examples use good tags")).collect()
}

/// An instance's name from a literal.
pub(crate) fn instance_name(text: &str) -> InstanceName {
    InstanceName::parse(text).expect("examples use good names")
}

/// Existing things have small uuids, fresh ones large ones.
fn uuid(number: u32) -> Uuid {
    Uuid::from_u128(u128::from(number))
}

fn node(number: u8) -> Node {
    let ip = IpAddr::from([192, 0, 2, number]);
    Node {
        uuid: uuid(u32::from(number)),
        name: node_name(&format!("node{number}")),
        primary_ip: ip,
        secondary_ip: ip,
        port: 1811,
        offline: false,
        drained: false,
        hooks_only: false,
        master_candidate: false,
        group: Group::first(uuid(1000)).uuid,
        tags: Tags::default(),
        fingerprints: vec![format!("{number:064x}")],
    }
}

/// A disk with its file's uuid and, where there is a copy, that copy on node3.
fn disk(name: DiskName, file: u32, size_mib: u64, copy: Option<(u32, CopyState)>) -> Disk {
    let mirror =
        |(id, state): (u32, CopyState)| Mirror { id, node: node_name("node3"), uuid: uuid(file + 1), state };
    Disk { name, uuid: uuid(file), size_mib, mirrors: copy.map(mirror).into_iter().collect() }
}

fn instance(
    name: &str,
    number: u8,
    primary: &str,
    template: DiskTemplate,
    disks: Vec<Disk>,
    up: bool,
) -> Instance {
    let copies = disks.iter().map(|disk| disk.mirrors.len()).sum::<usize>();
    Instance {
        uuid: uuid(100 + u32::from(number)),
        name: instance_name(name),
        primary: node_name(primary),
        template,
        disks,
        memory_mib: 256,
        vcpus: 1,
        ip: None,
        mac: format!("aa:00:00:00:00:{number:02x}"),
        network: None,
        tags: Tags::default(),
        os: OsName::parse("none").expect("examples use good names"),
        up,
        created_ms: 1_700_000_000_000,
        next_mirror_id: 1 + u32::try_from(copies).expect("a handful"),
        generation: 0,
    }
}

/// The examples' cluster with virtual machines, and all copies of an instance hold what its disks hold.
pub fn in_sync(name: &str) -> Cluster {
    let mut cluster = cluster();
    cluster.hypervisor.kind = HypervisorKind::Qemu;
    let instance = cluster.instances.get_mut(&instance_name(name)).expect("it is an example");
    for copy in instance.disks.iter_mut().flat_map(|disk| &mut disk.mirrors) {
        copy.state = CopyState::Consistent;
    }
    cluster
}

/// The same, but the instance's primary is marked offline and a command can fence it.
pub fn fenced(name: &str) -> Cluster {
    let mut cluster = in_sync(name);
    let primary = cluster.instances[&instance_name(name)].primary.clone();
    cluster.nodes.get_mut(&primary).expect("it is an example").offline = true;
    cluster.fence_command = Some("/usr/local/sbin/fence".to_owned());
    cluster
}

/// An export with a disk of 128 MiB and one of 64 MiB.
pub(crate) fn export(instance: &str, node: &str) -> Export {
    Export {
        uuid: uuid(300),
        instance: instance_name(instance),
        node: node_name(node),
        path: format!("/srv/exports/{instance}"),
        disks: vec![(DiskName::Sda, 128), (DiskName::Sdb, 64)],
        memory_mib: 512,
        vcpus: 2,
        os: OsName::parse("debian").expect("examples use good names"),
        created_ms: 1_700_000_000_000,
        did_shutdown: true,
    }
}

/// A cluster of one node without instances.
pub fn new_cluster() -> Cluster {
    Cluster {
        uuid: uuid(1000),
        name: ClusterName::parse("dev").expect("examples use good names"),
        serial: 7,
        master: node_name("node1"),
        hooks: HookPolicy::default(),
        hypervisor: HypervisorParams::default(),
        fence_command: None,
        allowed: Allowed::default(),
        tags: Tags::default(),
        groups: BTreeMap::from([(Group::first(uuid(1000)).uuid, Group::first(uuid(1000)))]),
        networks: BTreeMap::new(),
        nodes: BTreeMap::from([(node_name("node1"), node(1))]),
        instances: BTreeMap::new(),
        exports: BTreeMap::new(),
        clients: BTreeMap::new(),
        cleanups: BTreeMap::new(),
    }
}

/// Three nodes, the first being master. `web1`: files on node1, up, exported to node2. `mail1`: mirrored from node2 to
/// node3, up. `db1`: mirrored from node1 to node3, down. `null1`: no disks, on node1, up. And a client, `ci`.
pub fn cluster() -> Cluster {
    let mut cluster = new_cluster();
    cluster.nodes.extend([2, 3].map(node).map(|node| (node.name.clone(), node)));
    let web_disks = vec![disk(DiskName::Sda, 200, 128, None), disk(DiskName::Sdb, 202, 64, None)];
    let web = Instance {
        memory_mib: 512,
        vcpus: 2,
        ip: Some(IpAddr::from([198, 51, 100, 1])),
        os: OsName::parse("debian").expect("examples use good names"),
        ..instance("web1", 1, "node1", DiskTemplate::File, web_disks, true)
    };
    let mail_disks = vec![
        disk(DiskName::Sda, 210, 256, Some((1, CopyState::Stale))),
        disk(DiskName::Sdb, 212, 32, Some((2, CopyState::Stale))),
    ];
    let mail = instance("mail1", 2, "node2", DiskTemplate::Mirror, mail_disks, true);
    let db_disks = vec![disk(DiskName::Sda, 220, 512, Some((1, CopyState::Consistent)))];
    let db = instance("db1", 3, "node1", DiskTemplate::Mirror, db_disks, false);
    let null = instance("null1", 4, "node1", DiskTemplate::Diskless, Vec::new(), true);
    cluster.instances.extend([web, mail, db, null].map(|instance| (instance.name.clone(), instance)));
    let export = export("web1", "node2");
    cluster.exports.insert(export.uuid, export);
    let client = Client {
        name: ClientName::parse("ci").expect("examples use good names"),
        uuid: uuid(400),
        role: ClientRole::Reader,
        fingerprint: format!("{:064x}", 400),
        created_ms: 1_700_000_000_000,
    };
    cluster.clients.insert(client.name.clone(), client);
    cluster
}

/// The example cluster, with bridges, in three groups: `default` with node1 and node2, `rack2` with node3, and `spare`. The
/// network `lan` is connected to the first two, and web1 and mail1 are in it; `lab` to none. One of each kind has the tag
/// `old`.
pub fn networked() -> Cluster {
    let mut cluster = cluster();
    cluster.hypervisor.nic = NicMode::Bridge("br0".to_owned());
    let first = Group::first(cluster.uuid).uuid;
    let [rack, spare] = [("rack2", 600), ("spare", 601)].map(|(name, number)| Group {
        uuid: uuid(number),
        name: group_name(name),
        alloc_policy: AllocPolicy::Preferred,
        tags: Tags::default(),
    });
    cluster.nodes.get_mut(&node_name("node3")).expect("it is an example").group = rack.uuid;
    let bridge = |link: &str| Connection { mode: LinkMode::Bridged, link: link.to_owned() };
    let lan = Network {
        uuid: uuid(610),
        name: network_name("lan"),
        subnet: subnet("198.51.100.0/24"),
        gateway: Some([198, 51, 100, 254].into()),
        subnet6: None,
        gateway6: None,
        mac_prefix: Some(MacPrefix::parse("aa:00:55").expect("three octets")),
        reserved: [[198, 51, 100, 2].into()].into(),
        groups: [(first, bridge("br1")), (rack.uuid, bridge("br2"))].into(),
        tags: Tags::default(),
    };
    let lab = Network {
        uuid: uuid(611),
        name: network_name("lab"),
        subnet: subnet("203.0.113.0/28"),
        gateway: None,
        mac_prefix: None,
        reserved: Default::default(),
        groups: Default::default(),
        ..lan.clone()
    };
    for (name, last) in [("web1", 1), ("mail1", 7)] {
        let instance = cluster.instances.get_mut(&instance_name(name)).expect("it is an example");
        instance.network = Some(lan.uuid);
        instance.ip = Some(IpAddr::from([198, 51, 100, last]));
    }
    cluster.groups.extend([rack, spare].map(|group| (group.uuid, group)));
    cluster.networks = [lan, lab].map(|network| (network.uuid, network)).into();
    let objects = [
        Tagged::Cluster,
        Tagged::Node(node_name("node2")),
        Tagged::Instance(instance_name("web1")),
        Tagged::Group(uuid(600)),
        Tagged::Network(uuid(610)),
    ];
    for object in &objects {
        cluster.tags_mut(object).expect("it is an example").change(&tags(&["old"]), &Tags::default());
    }
    cluster
}

/// One object of each kind, with the tag `old` in [`networked`].
pub(crate) fn tag_objects() -> [TagObject; 5] {
    [
        TagObject::Cluster,
        TagObject::Node(node_name("node2")),
        TagObject::Instance(instance_name("web1")),
        TagObject::Group(group_name("rack2")),
        TagObject::Network(network_name("lan")),
    ]
}

/// The example cluster with a node changed.
fn with_node(name: &str, change: impl FnOnce(&mut Node)) -> Cluster {
    let mut cluster = cluster();
    change(cluster.nodes.get_mut(&node_name(name)).expect("the example has node1 to node3"));
    cluster
}

/// The example cluster with a node marked offline.
pub fn offline(name: &str) -> Cluster {
    with_node(name, |node| node.offline = true)
}

/// The example cluster with a node drained.
pub fn drained(name: &str) -> Cluster {
    with_node(name, |node| node.drained = true)
}

/// The cluster with one node that runs hooks only.
pub fn hooks_only(name: &str) -> Cluster {
    with_node(name, |node| node.hooks_only = true)
}

/// The example cluster without the instances that have copies on node3.
pub fn node3_empty() -> Cluster {
    let mut cluster = cluster();
    cluster.instances.retain(|_, instance| instance.secondaries().is_empty());
    cluster
}

/// The example cluster with a second copy, without data, of each mirrored disk of an instance.
pub fn second_copy(name: &str) -> Cluster {
    let mut cluster = cluster();
    let instance = cluster.instances.get_mut(&instance_name(name)).expect("the example has this instance");
    for disk in &mut instance.disks {
        for copy in disk.mirrors.clone() {
            let id = instance.next_mirror_id;
            instance.next_mirror_id += 1;
            disk.mirrors.push(Mirror { id, uuid: uuid(500 + id), state: CopyState::Inconsistent, ..copy });
        }
    }
    cluster
}

/// What a node says of its host.
pub fn node_facts() -> NodeFacts {
    NodeFacts {
        cpus: Some(8),
        memory_mib: Some(32_768),
        addresses: vec![IpAddr::from([192, 0, 2, 3]), IpAddr::from([198, 51, 100, 3])],
        os_name: "sles".to_owned(),
        os_version: "15.5".to_owned(),
        os_sp: "5".to_owned(),
        os_string: "SUSE Linux Enterprise Server 15 SP5".to_owned(),
        ..NodeFacts::default()
    }
}

/// Fresh values, as a driver draws them at submit.
pub fn fresh() -> Fresh {
    Fresh {
        uuids: (0..FRESH_UUIDS)
            .map(|index| Uuid::from_u128(u128::MAX - u128::try_from(index).expect("small")))
            .collect(),
        mac: "aa:00:00:ff:ff:01".to_owned(),
        pending: None,
        new_cluster: None,
        now_ms: 1_800_000_000_000,
        repair: None,
        node_facts: Some(node_facts()),
    }
}

/// A job as `root` submits it, its uuid made of its number.
pub fn submission(id: u64, op: Op) -> Submission {
    Submission {
        id,
        uuid: Uuid::from_u128(u128::from(id)),
        op,
        user: "root".to_owned(),
        reason: String::new(),
        dry_run: false,
        request_id: String::new(),
        fresh: fresh(),
        depends: Vec::new(),
        priority: Priority::default(),
        parent: None,
    }
}

/// Fresh values of an addition of a pending host, `nodeK`.
pub fn fresh_pending(name: &str) -> Fresh {
    let number = name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(99);
    Fresh {
        pending: Some(PendingNode { ip: IpAddr::from([192, 0, 2, number]), port: 1811, hooks_only: false }),
        ..fresh()
    }
}

/// The addition of `new1` on node2.
pub fn instance_add(template: DiskTemplate, secondary: Option<&str>) -> InstanceAdd {
    InstanceAdd {
        name: instance_name("new1"),
        primary: node_name("node2"),
        secondary: secondary.map(node_name),
        template,
        disk_size_mib: 1024,
        swap_size_mib: 0,
        memory_mib: 128,
        vcpus: 1,
        ip: None,
        network: None,
        ip_pool: false,
        os: Some(OsName::parse("none").expect("examples use good names")),
        no_start: false,
        no_wait_for_sync: false,
        tags: Tags::default(),
        source: None,
    }
}

/// Asserts that a check refuses, in words that hold `text`.
#[cfg(test)]
pub(crate) fn refused<O: super::Operation>(
    op: &O,
    cluster: &Cluster,
    fresh: &Fresh,
    local: &NodeName,
    text: &str,
) {
    match op.check(super::Given { cluster, fresh, local, undone: &[] }) {
        Ok(_) => panic!("{} of {} was not refused with {text:?}", O::ROW.op_id, op.target()),
        Err(refusal) => assert!(refusal.0.contains(text), "{:?} does not hold {text:?}", refusal.0),
    }
}

/// What an operation that is not refused is prepared to.
#[cfg(test)]
pub(crate) fn prepared<O: super::Operation>(
    op: &O,
    cluster: &Cluster,
    fresh: &Fresh,
    local: &NodeName,
) -> super::Prepared {
    let job = super::JobFacts { id: 17, user: "root", reason: "because", dry_run: false };
    super::common::prepare(op, super::Given { cluster, fresh, local, undone: &[] }, &job)
        .expect("the example is good")
}
