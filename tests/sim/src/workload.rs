//! What clients ask for: operations on few names and addresses, so that they meet.

use std::net::IpAddr;

use muster_core::{
    hooks::{ExitCodes, OnTimeout, OnUnreachable},
    hypervisor::Accel,
    model::{Cluster, DiskName, DiskTemplate, Instance, Node},
    names::{InstanceName, NodeName, OsName},
    ops::{
        BackupExport, ClusterModify, DiskGrow, DisksReplace, Evacuated, ImportSource, InstanceAdd,
        InstanceFailover, InstanceModify, InstanceMove, InstanceReboot, InstanceReinstall, InstanceRemove,
        InstanceRename, InstanceShutdown, InstanceStart, IpChange, MirrorAdd, MirrorRemove, NodeAdd,
        NodeEvacuate, NodeModify, NodeRemove, Op, PendingNode, RebootKind,
    },
    tags::Tags,
};

use super::{process::node_id, world::Simulation};

/// Names that new instances have.
const NAMES: [&str; 5] = ["a1", "a2", "a3", "a4", "a5"];

fn address(last: u64) -> IpAddr {
    IpAddr::from([198, 51, 100, u8::try_from(last).expect("below 256")])
}

fn os(name: &str) -> OsName {
    OsName::parse(name).expect("this name is good")
}

impl Simulation {
    /// An operation, with the pending host that it names.
    pub(crate) fn any_operation(&mut self) -> (Op, Option<PendingNode>) {
        let cluster = self.seen.clone();
        let draw = self.context.random.below(100);
        match draw {
            0..20 => (Op::InstanceAdd(self.instance_add(&cluster)), None),
            20..30 => (Op::NodeModify(self.node_modify(&cluster)), None),
            30..33 => (Op::ClusterModify(self.cluster_modify()), None),
            33..38 => self.node_add(&cluster),
            38 => (Op::NodeEvacuate(self.node_evacuate(&cluster)), None),
            39..41 => {
                // The last is most likely to hold nothing.
                let last = cluster.nodes.keys().next_back().cloned();
                let name = last.unwrap_or_else(|| self.any_node(&cluster));
                (Op::NodeRemove(NodeRemove { name }), None)
            }
            _ => (self.on_instance(&cluster, draw), None),
        }
    }

    fn on_instance(&mut self, cluster: &Cluster, draw: u64) -> Op {
        let Some(found) = self.any_instance(cluster) else {
            return Op::InstanceAdd(self.instance_add(cluster));
        };
        let instance = found.name.clone();
        let random = &mut self.context.random;
        match draw {
            41..48 => Op::InstanceStart(InstanceStart { instance, force: random.permille(100) }),
            48..54 => Op::InstanceShutdown(InstanceShutdown { instance, timeout_s: None, fenced: false }),
            54..57 => {
                let kind = *random.pick(&[RebootKind::Soft, RebootKind::Hard, RebootKind::Full]);
                Op::InstanceReboot(InstanceReboot { instance, kind })
            }
            57..60 => {
                let new_name =
                    InstanceName::parse(random.pick::<&str>(&NAMES)).expect("these names are good");
                Op::InstanceRename(InstanceRename { instance, new_name })
            }
            60..63 => {
                let disk = *random.pick(&[DiskName::Sda, DiskName::Sdb]);
                Op::DiskGrow(DiskGrow { instance, disk, by_mib: 64 })
            }
            63..65 => Op::InstanceReinstall(InstanceReinstall { instance, os: Some(os("debian")) }),
            65..72 => {
                let ip = match random.below(4) {
                    0 => Some(IpChange::Clear),
                    1 => Some(IpChange::Set(address(random.range(1, 6)))),
                    _ => None,
                };
                let memory_mib = random.permille(700).then(|| random.range(64, 1024));
                Op::InstanceModify(InstanceModify { instance, memory_mib, vcpus: None, ip, network: None })
            }
            72..78 => Op::InstanceFailover(InstanceFailover {
                instance,
                ignore_consistency: random.permille(700),
                fenced: false,
            }),
            78..83 => Op::InstanceRemove(InstanceRemove { instance }),
            83..88 => {
                let disk = *random.pick(&[DiskName::Sda, DiskName::Sdb]);
                let node = self.any_node(cluster);
                Op::MirrorAdd(MirrorAdd { instance, disk, node })
            }
            88..91 => {
                let disk = *random.pick(&[DiskName::Sda, DiskName::Sdb]);
                let ids: Vec<u32> = found
                    .disk(disk)
                    .iter()
                    .flat_map(|disk| disk.mirrors.iter().map(|copy| copy.id))
                    .collect();
                let disk_id = if ids.is_empty() { 1 } else { *random.pick(&ids) };
                Op::MirrorRemove(MirrorRemove { instance, disk, disk_id })
            }
            91..95 => {
                let change = random.permille(500);
                let node = self.any_node(cluster);
                Op::DisksReplace(DisksReplace {
                    instance,
                    new_secondary: change.then_some(node),
                    on_primary: false,
                })
            }
            95..97 => Op::InstanceMove(InstanceMove { instance, node: self.any_node(cluster) }),
            _ => {
                let no_shutdown = random.permille(500);
                let node = self.any_node(cluster);
                Op::BackupExport(BackupExport { instance, node, no_shutdown })
            }
        }
    }

    fn any_instance(&mut self, cluster: &Cluster) -> Option<Instance> {
        let known: Vec<&Instance> = cluster.instances.values().collect();
        if known.is_empty() { None } else { Some((*self.context.random.pick(&known)).clone()) }
    }

    fn any_node(&mut self, cluster: &Cluster) -> NodeName {
        let known: Vec<&NodeName> = cluster.nodes.keys().collect();
        (*self.context.random.pick(&known)).clone()
    }

    fn instance_add(&mut self, cluster: &Cluster) -> InstanceAdd {
        let (primary, secondary) = (self.any_node(cluster), self.any_node(cluster));
        let exports: Vec<ImportSource> = cluster
            .exports
            .values()
            .map(|export| ImportSource { node: export.node.clone(), export: export.instance.to_string() })
            .collect();
        let random = &mut self.context.random;
        let source = (!exports.is_empty() && random.permille(250)).then(|| random.pick(&exports).clone());
        let template = *random.pick(&[DiskTemplate::Diskless, DiskTemplate::File, DiskTemplate::Mirror]);
        let has_disks = template != DiskTemplate::Diskless;
        InstanceAdd {
            name: InstanceName::parse(random.pick::<&str>(&NAMES)).expect("these names are good"),
            primary,
            secondary: (template == DiskTemplate::Mirror).then_some(secondary),
            template,
            disk_size_mib: if has_disks { 256 } else { 0 },
            swap_size_mib: if has_disks && random.permille(300) { 64 } else { 0 },
            memory_mib: 128,
            vcpus: 1,
            ip: random.permille(400).then(|| address(random.range(1, 6))),
            network: None,
            ip_pool: false,
            os: Some(os(random.pick::<&str>(&["none", "debian"]))),
            no_start: random.permille(300),
            no_wait_for_sync: false,
            tags: Tags::default(),
            source,
        }
    }

    fn cluster_modify(&mut self) -> ClusterModify {
        let random = &mut self.context.random;
        match random.below(5) {
            0 => ClusterModify {
                exit_codes: Some(*random.pick(&[ExitCodes::Strict, ExitCodes::Graded])),
                ..ClusterModify::default()
            },
            1 => ClusterModify {
                unreachable: Some(*random.pick(&[OnUnreachable::Allow, OnUnreachable::Deny])),
                ..ClusterModify::default()
            },
            2 => ClusterModify {
                timeout: Some(*random.pick(&[OnTimeout::Allow, OnTimeout::Deny])),
                ..ClusterModify::default()
            },
            3 => ClusterModify {
                accel: Some(*random.pick(&[Accel::Auto, Accel::Tcg])),
                ..ClusterModify::default()
            },
            _ => ClusterModify { master_required: Some(random.permille(500)), ..ClusterModify::default() },
        }
    }

    /// Whoever marks a node offline has taken its power first; whoever takes the mark away gives it back first.
    fn node_modify(&mut self, cluster: &Cluster) -> NodeModify {
        let name = self.any_node(cluster);
        let change = NodeModify {
            name,
            offline: None,
            drained: None,
            master_candidate: None,
            primary_ip: None,
            secondary_ip: None,
        };
        let node = node_id(&change.name);
        let is_offline = cluster.nodes.get(&change.name).is_some_and(|node: &Node| node.offline);
        let is_drained = cluster.nodes.get(&change.name).is_some_and(|node: &Node| node.drained);
        if is_offline {
            self.give_power(node);
            return NodeModify { offline: Some(false), ..change };
        }
        if node != 0 && self.context.faults_on && self.context.random.permille(250) {
            self.take_power(node);
            return NodeModify { offline: Some(true), ..change };
        }
        NodeModify { drained: Some(!is_drained), ..change }
    }

    fn node_evacuate(&mut self, cluster: &Cluster) -> NodeEvacuate {
        let name = self.any_node(cluster);
        let random = &mut self.context.random;
        NodeEvacuate {
            name,
            which: *random.pick(&[Evacuated::All, Evacuated::Primaries, Evacuated::Secondaries]),
            new_secondary: None,
            ignore_consistency: random.permille(700),
            fenced: false,
            ignore_unmovable: random.permille(500),
        }
    }

    fn node_add(&mut self, cluster: &Cluster) -> (Op, Option<PendingNode>) {
        let random = &mut self.context.random;
        let spare = self.nodes.iter().filter(|node| !cluster.nodes.contains_key(&node.name));
        let spare: Vec<NodeName> = spare.map(|node| node.name.clone()).collect();
        if spare.is_empty() {
            return (Op::ClusterModify(self.cluster_modify()), None);
        }
        let name = random.pick(&spare).clone();
        let last = u8::try_from(node_id(&name) + 1).expect("nodes are few");
        let pending = PendingNode { ip: IpAddr::from([192, 0, 2, last]), port: 1811, hooks_only: false };
        (
            Op::NodeAdd(NodeAdd { name, primary_ip: None, secondary_ip: None, readd: false, group: None }),
            Some(pending),
        )
    }
}
