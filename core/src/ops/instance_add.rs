//! OP_INSTANCE_ADD: makes an instance with empty disks, or from an export.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ImportSource, ObjectKind, Operation, Plan, Refusal, Row,
    Submitter, bounds, common, examples,
    mirroring::{self, Starting},
    networks::{self, Wanted},
    parts,
};
use crate::{
    calls::{Call, Image, NodeCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, Disk, DiskName, DiskTemplate, Export, Instance},
    names::{InstanceName, NetworkName, NodeName, OsName},
    tags::Tags,
};

/// Adds an instance. In an import, what is 0 or absent is taken from the export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceAdd {
    /// The new instance's name.
    pub name: InstanceName,
    /// The node that it runs on.
    pub primary: NodeName,
    /// The node that has the copies; for the template `mirror` alone.
    pub secondary: Option<NodeName>,
    /// How its disks are kept.
    pub template: DiskTemplate,
    /// Size of `sda` in MiB.
    pub disk_size_mib: u64,
    /// Size of `sdb` in MiB; 0 for none.
    pub swap_size_mib: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
    /// Its address, where one is defined.
    pub ip: Option<IpAddr>,
    /// The network that it is in.
    #[serde(default)]
    pub network: Option<NetworkName>,
    /// Its address is the first of its network that nobody has.
    #[serde(default)]
    pub ip_pool: bool,
    /// The OS definition; `none` makes empty disks.
    pub os: Option<OsName>,
    /// Leaves it down.
    pub no_start: bool,
    /// Its copies are brought in sync later, while the guest computes.
    pub no_wait_for_sync: bool,
    /// Its tags.
    #[serde(default)]
    pub tags: Tags,
    /// The export to take the disks from.
    pub source: Option<ImportSource>,
}

/// What check proved: the instance as it will be (not started yet), and the export of an import.
#[derive(Debug)]
pub struct Checked {
    instance: Instance,
    export: Option<Export>,
}

/// Memory, processors and OS, the export's own where an import names none.
fn check_hardware(op: &InstanceAdd, export: Option<&Export>) -> Result<(u64, u32, OsName), Refusal> {
    let memory_mib = match (op.memory_mib, export) {
        (0, Some(export)) => export.memory_mib,
        (given, _) => given,
    };
    let vcpus = match (op.vcpus, export) {
        (0, Some(export)) => export.vcpus,
        (given, _) => given,
    };
    bounds::memory(memory_mib)?;
    bounds::vcpus(vcpus)?;
    let os = op.os.clone().or_else(|| export.map(|export| export.os.clone()));
    let os =
        os.ok_or_else(|| Refusal("an OS definition must be named (`none` makes empty disks)".to_owned()))?;
    Ok((memory_mib, vcpus, os))
}

/// A disk's size: as asked, the export's own where an import asks for none, never smaller than the image.
fn check_size(disk: DiskName, asked_mib: u64, export: Option<&Export>) -> Result<u64, Refusal> {
    let saved = export.and_then(|export| export.disks.iter().find(|(name, _)| *name == disk));
    match saved {
        Some((_, saved_mib)) if asked_mib == 0 => Ok(*saved_mib),
        Some((_, saved_mib)) if asked_mib < *saved_mib => Err(Refusal(format!(
            "{} of {asked_mib} MiB is too small for the export's image of {saved_mib} MiB",
            disk.as_str()
        ))),
        Some(_) | None => Ok(asked_mib),
    }
}

/// The disks' sizes, as the template allows them.
fn check_disks(op: &InstanceAdd, export: Option<&Export>) -> Result<Vec<(DiskName, u64)>, Refusal> {
    let sda_mib = check_size(DiskName::Sda, op.disk_size_mib, export)?;
    let sdb_mib = check_size(DiskName::Sdb, op.swap_size_mib, export)?;
    match op.template {
        DiskTemplate::Diskless => {
            if sda_mib > 0 || sdb_mib > 0 {
                return Err(Refusal("the template diskless has no disks: no sizes can be given".to_owned()));
            }
            return Ok(Vec::new());
        }
        DiskTemplate::File | DiskTemplate::Mirror => {}
    }
    bounds::disk("sda", sda_mib)?;
    let mut disks = vec![(DiskName::Sda, sda_mib)];
    if sdb_mib > 0 {
        bounds::disk("sdb", sdb_mib)?;
        disks.push((DiskName::Sdb, sdb_mib));
    }
    Ok(disks)
}

/// Both nodes may get instances, and the template agrees with their number.
fn check_nodes(op: &InstanceAdd, cluster: &Cluster) -> Result<(), Refusal> {
    common::node_for_instances(cluster, &op.primary)?;
    match (op.template, &op.secondary) {
        (DiskTemplate::Mirror, None) => Err(Refusal("the template mirror needs a secondary node".to_owned())),
        (DiskTemplate::Mirror, Some(secondary)) if *secondary == op.primary => {
            Err(Refusal(format!("node {secondary} can't be both primary and secondary")))
        }
        (DiskTemplate::Mirror, Some(secondary)) => common::node_for_instances(cluster, secondary).map(|_| ()),
        (DiskTemplate::Diskless | DiskTemplate::File, Some(_)) => {
            Err(Refusal(format!("the template {} has no secondary node", op.template.as_str())))
        }
        (DiskTemplate::Diskless | DiskTemplate::File, None) => Ok(()),
    }
}

/// What of an instance its network decides: that network's uuid, its address, its MAC address.
type Place = (Option<Uuid>, Option<IpAddr>, String);

/// The network can be had on both nodes, and has the address.
fn check_network(op: &InstanceAdd, given: Given<'_>) -> Result<Place, Refusal> {
    if op.ip_pool && op.ip.is_some() {
        return Err(Refusal("give an address or take one from the pool, not both".to_owned()));
    }
    let (cluster, drawn) = (given.cluster, &given.fresh.mac);
    let network = op.network.as_ref().map(|name| networks::network(cluster, name)).transpose()?;
    let mac = match network {
        None => drawn.clone(),
        Some(network) => {
            for node in std::iter::once(&op.primary).chain(&op.secondary) {
                networks::reaches(cluster, network, node)?;
            }
            networks::mac(given, network, drawn, &op.name)?
        }
    };
    if cluster.instances.values().any(|other| other.mac == mac) {
        return Err(Refusal(format!("the drawn address {mac} is taken: submit again")));
    }
    let ip = networks::address(given, network, op.wanted(), &op.name)?;
    Ok((network.map(|network| network.uuid), ip, mac))
}

impl InstanceAdd {
    fn wanted(&self) -> Wanted {
        if self.ip_pool { Wanted::Pool } else { self.ip.map_or(Wanted::None, Wanted::Address) }
    }
}

/// The export that an import names, by uuid or by the exported instance's name.
fn check_export<'a>(source: &ImportSource, cluster: &'a Cluster) -> Result<&'a Export, Refusal> {
    common::node_with_disks(cluster, &source.node)?;
    let on_node = || cluster.exports.values().filter(|export| export.node == source.node);
    let uuid = Uuid::try_parse(&source.export).ok();
    let found = on_node()
        .find(|export| Some(export.uuid) == uuid)
        .or_else(|| on_node().find(|export| export.instance.as_str() == source.export));
    found.ok_or_else(|| {
        let known: Vec<&str> = on_node().map(|export| export.instance.as_str()).collect();
        Refusal(match &known[..] {
            [] => format!("node {} has no exports", source.node),
            _ => format!("node {} has no export {}; it has {}", source.node, source.export, known.join(", ")),
        })
    })
}

/// The disks with their copies, which hold what the disks hold, unless nobody waits for it.
fn check_files(op: &InstanceAdd, given: Given<'_>, sizes: &[(DiskName, u64)], instance: &mut Instance) {
    let state = if op.no_wait_for_sync { CopyState::Inconsistent } else { CopyState::Consistent };
    let mut position = parts::FILES;
    let mut next_uuid = || {
        position += 1;
        parts::fresh_uuid(given, position - 1)
    };
    for (name, size_mib) in sizes {
        let uuid = next_uuid();
        let mirrors = op.secondary.iter().map(|node| {
            let copy_uuid = next_uuid();
            parts::new_mirror(instance, node, copy_uuid, state)
        });
        let mirrors = mirrors.collect();
        instance.disks.push(Disk { name: *name, uuid, size_mib: *size_mib, mirrors });
    }
}

/// Writes the export's images to the files that were made before; removing those undoes it.
fn plan_copies(mut plan: Plan, export: &Export, instance: &Instance) -> Plan {
    let saved = |disk: &&Disk| export.disks.iter().any(|(name, _)| *name == disk.name);
    for disk in instance.disks.iter().filter(saved) {
        for (node, uuid) in parts::files(instance, disk) {
            let from = Image::Export { export: export.uuid, name: disk.name.image() };
            plan = plan.harmless(parts::copy((&export.node, from), (node, Image::Disk { disk: uuid })));
        }
    }
    plan
}

impl Operation for InstanceAdd {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_ADD",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-add", op_code: "OP_INSTANCE_CREATE" }),
        hooks2: Some(HookRow2::both("instance-add", "OP_INSTANCE_CREATE")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        let mut locks = Locks::part().exclusive("instance", &self.name).shared("node", &self.primary);
        if let Some(secondary) = &self.secondary {
            locks = locks.shared("node", secondary);
        }
        locks = networks::lock(locks, self.network.as_ref(), self.wanted());
        match &self.source {
            None => locks,
            // An export that is named by its uuid could be replaced under any instance's name.
            Some(source) if Uuid::try_parse(&source.export).is_ok() => {
                locks.shared("node", &source.node).exclusive("exports", &source.node)
            }
            Some(source) => locks
                .shared("node", &source.node)
                .shared("exports", &source.node)
                .shared("export", format!("{}@{}", source.export, source.node)),
        }
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let cluster = given.cluster;
        if cluster.instances.contains_key(&self.name) {
            return Err(Refusal(format!("there is an instance {} already", self.name)));
        }
        check_nodes(self, cluster)?;
        let export = self.source.as_ref().map(|source| check_export(source, cluster)).transpose()?;
        let (memory_mib, vcpus, os) = check_hardware(self, export)?;
        let sizes = check_disks(self, export)?;
        let (network, ip, mac) = check_network(self, given)?;
        let tags = Tags::default().with(&self.tags);
        let mut instance = Instance {
            uuid: parts::fresh_uuid(given, parts::OBJECT),
            name: self.name.clone(),
            primary: self.primary.clone(),
            template: self.template,
            disks: Vec::new(),
            memory_mib,
            vcpus,
            ip,
            mac,
            network,
            tags: tags.map_err(|why| Refusal(format!("instance {}: {why}", self.name)))?,
            os,
            up: false,
            created_ms: given.fresh.now_ms,
            next_mirror_id: parts::MIRROR_ID_FIRST,
            generation: 0,
        };
        check_files(self, given, &sizes, &mut instance);
        Ok(Checked { instance, export: export.cloned() })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.instance)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        let instance = &checked.instance;
        let env = common::instance_env(instance)
            .set("DISK_TEMPLATE", instance.template.as_str())
            .set("MEM_SIZE", instance.memory_mib.to_string())
            .set("DISK_SIZE", instance.disk_size_mib(DiskName::Sda).to_string())
            .set("SWAP_SIZE", instance.disk_size_mib(DiskName::Sdb).to_string())
            .set("VCPUS", instance.vcpus.to_string())
            .optional("INSTANCE_IP", instance.ip.map(|ip| ip.to_string()));
        match &checked.export {
            None => env.set("INSTANCE_ADD_MODE", "create"),
            Some(export) => env
                .set("INSTANCE_ADD_MODE", "import")
                .set("SRC_NODE", export.node.as_str())
                .set("SRC_PATH", export.path.as_str())
                .optional("SRC_IMAGE", export.disks.first().map(|(disk, _)| disk.image())),
        }
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let own = match &checked.export {
            None => Env::new().set("ADD_MODE", "create"),
            Some(export) => {
                let images: Vec<String> = export.disks.iter().map(|(disk, _)| disk.image()).collect();
                Env::new()
                    .set("ADD_MODE", "import")
                    .set("SRC_NODE", export.node.as_str())
                    .set("SRC_PATH", export.path.as_str())
                    .list("SRC_IMAGE", &images)
                    .list("SRC_IMAGES", &images)
            }
        };
        Hooks2::instance(given, &checked.instance).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let instance = &checked.instance;
        let mut plan = Plan::new();
        for disk in &instance.disks {
            for (node, uuid) in parts::files(instance, disk) {
                plan = parts::plan_disk(plan, node, uuid, disk.size_mib);
            }
        }
        if let Some(export) = &checked.export {
            let check = NodeCall::ExportCheck { export: export.uuid };
            plan = plan.harmless(Call::Node(export.node.clone(), check));
            plan = plan_copies(plan, export, instance);
        }
        let installed = checked.export.is_none() && !instance.disks.is_empty() && !instance.os.is_none();
        if installed {
            let guest = common::guest(given.cluster, instance);
            // What it leaves behind goes with the disks.
            let install = NodeCall::OsCreate { guest, reinstall: false };
            plan = plan.harmless(Call::Node(instance.primary.clone(), install));
        }
        let kept = mirroring::followers(given.cluster, instance);
        if installed {
            // New files are empty on both sides, and an export's images are written on both sides.
            plan = mirroring::plan_fill(plan, given.cluster, instance, &kept);
        } else {
            plan = mirroring::plan_trust(plan, given.cluster, instance, &kept);
        }
        let mut after = instance.clone();
        if !self.no_start {
            let how = Starting { force: false, undone: true };
            plan = mirroring::plan_start(plan, given.cluster, None, instance, how);
            after = mirroring::started(given.cluster, None, instance);
        }
        plan.edit(Edit::InstancePut { instance: Box::new(after) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let file = examples::instance_add(DiskTemplate::File, None);
        let diskless = InstanceAdd {
            disk_size_mib: 0,
            ip: Some(IpAddr::from([198, 51, 100, 9])),
            ..examples::instance_add(DiskTemplate::Diskless, None)
        };
        let mirror =
            InstanceAdd { swap_size_mib: 64, ..examples::instance_add(DiskTemplate::Mirror, Some("node3")) };
        let down =
            InstanceAdd { no_start: true, tags: examples::tags(&["prod", "site:north"]), ..mirror.clone() };
        let import = InstanceAdd {
            disk_size_mib: 0,
            memory_mib: 0,
            vcpus: 0,
            os: None,
            source: Some(ImportSource { node: examples::node_name("node2"), export: "web1".to_owned() }),
            ..examples::instance_add(DiskTemplate::Mirror, Some("node3"))
        };
        let installed =
            InstanceAdd { os: Some(OsName::parse("debian").expect("a good name")), ..mirror.clone() };
        let behind = InstanceAdd { no_wait_for_sync: true, ..installed.clone() };
        let real = [mirror.clone(), installed, behind, down.clone(), import.clone()]
            .map(|op| (examples::in_sync("mail1"), examples::fresh(), op));
        let mut all: Vec<_> = [file, diskless, mirror, down, import]
            .map(|op| (examples::cluster(), examples::fresh(), op))
            .into();
        all.extend(real);
        let (lan, mirror) = (
            Some(examples::network_name("lan")),
            examples::instance_add(DiskTemplate::Mirror, Some("node3")),
        );
        let pool = InstanceAdd {
            disk_size_mib: 0,
            network: lan.clone(),
            ip_pool: true,
            ..examples::instance_add(DiskTemplate::Diskless, None)
        };
        let named = InstanceAdd { network: lan, ip: Some(IpAddr::from([198, 51, 100, 20])), ..mirror };
        all.extend([pool, named].map(|op| (examples::networked(), examples::fresh(), op)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut InstanceAdd), text: &str) {
        let cluster = examples::cluster();
        let mut op = examples::instance_add(DiskTemplate::Mirror, Some("node3"));
        change(&mut op);
        examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
    }

    fn source(op: &mut InstanceAdd, node: &str, export: &str) {
        op.source = Some(ImportSource { node: examples::node_name(node), export: export.to_owned() });
    }

    #[test]
    fn refusals_of_names_and_nodes() {
        check(|op| op.name = examples::instance_name("web1"), "there is an instance web1 already");
        check(
            |op| op.primary = examples::node_name("node22"),
            "there is no node node22; the nearest name is node2",
        );
        check(|op| op.secondary = None, "the template mirror needs a secondary node");
        check(|op| op.secondary = Some(op.primary.clone()), "can't be both primary and secondary");
        check(|op| op.template = DiskTemplate::File, "the template file has no secondary node");
        check(|op| op.ip = Some(IpAddr::from([198, 51, 100, 1])), "instance web1 has the address");
        check(|op| op.ip = Some(IpAddr::from([192, 0, 2, 2])), "node node2 has the address");
        for (cluster, text) in [
            (examples::offline("node3"), "node node3 is marked offline"),
            (examples::drained("node3"), "node node3 is drained"),
            (examples::hooks_only("node3"), "node node3 runs hooks only"),
        ] {
            let op = examples::instance_add(DiskTemplate::Mirror, Some("node3"));
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        }
    }

    #[test]
    fn refusals_of_sizes() {
        check(|op| op.memory_mib = 0, "a memory of 0 MiB is not between");
        check(|op| op.memory_mib = u64::MAX, "a memory of 18446744073709551615 MiB is not between");
        check(|op| op.vcpus = 1025, "1025 virtual processors are not between 1 and 1024");
        check(|op| op.disk_size_mib = 0, "a size of 0 MiB for sda is not between");
        check(|op| op.swap_size_mib = u64::MAX, "for sdb is not between");
        check(|op| op.os = None, "an OS definition must be named");
        check(
            |op| {
                op.template = DiskTemplate::Diskless;
                op.secondary = None;
            },
            "the template diskless has no disks",
        );
    }

    #[test]
    fn refusals_of_imports() {
        check(|op| source(op, "node2", "web2"), "node node2 has no export web2; it has web1");
        check(|op| source(op, "node3", "web1"), "node node3 has no exports");
        check(|op| source(op, "node9", "web1"), "there is no node node9");
        check(
            |op| {
                source(op, "node2", "web1");
                op.disk_size_mib = 1;
            },
            "sda of 1 MiB is too small for the export's image of 128 MiB",
        );
    }

    #[test]
    fn an_import_takes_what_is_not_given_from_the_export() {
        let (cluster, fresh, op) = InstanceAdd::examples().remove(4);
        let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
        let expected = [
            ("INSTANCE_ADD_MODE", "import"),
            ("SRC_NODE", "node2"),
            ("SRC_PATH", "/srv/exports/web1"),
            ("SRC_IMAGE", "sda.raw"),
            ("DISK_SIZE", "128"),
            ("SWAP_SIZE", "64"),
            ("MEM_SIZE", "512"),
            ("VCPUS", "2"),
            ("INSTANCE_OS", "debian"),
        ];
        for (name, value) in expected {
            assert_eq!(prepared.env.get(name), Some(value), "{name}");
        }
    }

    #[test]
    fn new_copies_hold_what_the_disks_hold() {
        for (index, up) in [(2, true), (3, false)] {
            let (cluster, fresh, op) = InstanceAdd::examples().remove(index);
            let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
            let [Edit::InstancePut { instance }] = &prepared.plan.edits[..] else { panic!("one edit") };
            let copies: Vec<(u32, CopyState)> = instance
                .disks
                .iter()
                .flat_map(|disk| &disk.mirrors)
                .map(|copy| (copy.id, copy.state))
                .collect();
            assert_eq!(copies, [(1, CopyState::Consistent), (2, CopyState::Consistent)]);
            assert_eq!((instance.up, instance.next_mirror_id), (up, 3));
        }
    }
}
