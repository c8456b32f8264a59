//! `gnt-instance`.

use muster_proto::v1::{
    DiskGrow, DisksRecreate, DisksReplace, ImportSource, InstanceAdd, InstanceFailover, InstanceMigrate,
    InstanceModify, InstanceMove, InstanceReboot, InstanceReinstall, InstanceRemove, InstanceRename,
    InstanceShutdown, InstanceStart, ListInstancesRequest, MirrorAdd, MirrorRemove, MirrorsSync,
    operation::Operation,
};

use super::{
    console,
    operation::{self, Asked},
    tags,
};
use crate::{
    args::{ConnectionFlags, DiskVerb, Hardware, ImportedHardware, InstanceVerb, IpChange, NewInstance},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, instances as render, one_or_array, print, print_json},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: InstanceVerb) -> Result<(), Failure> {
    match verb {
        InstanceVerb::List { names, live, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let request = ListInstancesRequest { names, live };
            print(&selection.render(&answer(master.queries().list_instances(request)).await?.instances)?)
        }
        InstanceVerb::Info { names, live, json } => info(connection, names, live, json.json).await,
        InstanceVerb::Console { name } => console::run(connection, name).await,
        InstanceVerb::Tags(verb) => tags::run(connection, "instance", verb).await,
        operation @ (InstanceVerb::Add { .. }
        | InstanceVerb::Start { .. }
        | InstanceVerb::Shutdown { .. }
        | InstanceVerb::Reboot { .. }
        | InstanceVerb::Reinstall { .. }
        | InstanceVerb::Rename { .. }
        | InstanceVerb::Modify { .. }
        | InstanceVerb::Failover { .. }
        | InstanceVerb::Migrate { .. }
        | InstanceVerb::Move { .. }
        | InstanceVerb::Remove { .. }
        | InstanceVerb::OnDisk(_)) => {
            let asked = asked(operation).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operations that a verb asks for; `None` for one that shows something.
pub(super) fn asked(verb: InstanceVerb) -> Option<Asked> {
    Some(match verb {
        InstanceVerb::List { .. } | InstanceVerb::Info { .. } | InstanceVerb::Console { .. } => return None,
        InstanceVerb::Tags(verb) => return tags::asked("instance", verb),
        InstanceVerb::Add { new, hardware, operation } => {
            Asked::one(Operation::InstanceAdd(add(new, hardware)), operation)
        }
        InstanceVerb::Start { names, force, operation } => {
            let start = |instance| Operation::InstanceStart(InstanceStart { instance, force });
            Asked::all(names.into_iter().map(start).collect(), operation)
        }
        InstanceVerb::Shutdown { names, timeout, fenced, operation } => {
            let stop = |instance| {
                Operation::InstanceShutdown(InstanceShutdown { instance, timeout_s: timeout, fenced })
            };
            Asked::all(names.into_iter().map(stop).collect(), operation)
        }
        InstanceVerb::Migrate { name, force, operation } => {
            let question = format!("This moves instance {name} to its secondary node while it runs.");
            let migrate = Operation::InstanceMigrate(InstanceMigrate { instance: name });
            Asked::one(migrate, operation).after(question, force)
        }
        InstanceVerb::Failover { name, force, ignore_consistency, fenced, operation } => {
            let question =
                format!("This moves instance {name} to its secondary node; if it runs, it is restarted.");
            let failover = InstanceFailover { instance: name, ignore_consistency, fenced };
            Asked::one(Operation::InstanceFailover(failover), operation).after(question, force)
        }
        InstanceVerb::Move { name, node, force, operation } => {
            let question =
                format!("This moves instance {name} to node {node}; it is down while its disks are copied.");
            let relocate = Operation::InstanceMove(InstanceMove { instance: name, node });
            Asked::one(relocate, operation).after(question, force)
        }
        InstanceVerb::Remove { name, force, operation } => {
            let question = format!("This removes instance {name} and its disks.");
            let remove = Operation::InstanceRemove(InstanceRemove { instance: name });
            Asked::one(remove, operation).after(question, force)
        }
        InstanceVerb::Reinstall { name, os, force, operation } => {
            let question = format!("This installs instance {name} again; what its disks hold is lost.");
            let reinstall = Operation::InstanceReinstall(InstanceReinstall { instance: name, os });
            Asked::one(reinstall, operation).after(question, force)
        }
        InstanceVerb::Reboot { names, kind, operation } => {
            let kind = kind.map(|kind| kind.word().to_owned()).unwrap_or_default();
            let reboot =
                |instance| Operation::InstanceReboot(InstanceReboot { instance, kind: kind.clone() });
            Asked::all(names.into_iter().map(reboot).collect(), operation)
        }
        InstanceVerb::Modify { name, memory, vcpus, ip, network, operation } => {
            let ip = ip.map(|ip| ip_text(ip).unwrap_or_else(|| "none".to_owned()));
            let change = InstanceModify { instance: name, memory_mib: memory, vcpus, ip, network };
            Asked::one(Operation::InstanceModify(change), operation)
        }
        InstanceVerb::Rename { name, new_name, operation } => {
            Asked::one(Operation::InstanceRename(InstanceRename { instance: name, new_name }), operation)
        }
        InstanceVerb::OnDisk(verb) => on_disk(verb),
    })
}

/// The operation of a verb on a disk.
fn on_disk(verb: DiskVerb) -> Asked {
    let (change, flags) = match verb {
        DiskVerb::GrowDisk { name, disk, by, operation } => {
            let grow = DiskGrow { instance: name, disk: disk.word().to_owned(), by_mib: by };
            (Operation::DiskGrow(grow), operation)
        }
        DiskVerb::AddMirror { name, disk, node, operation } => {
            let add = MirrorAdd { instance: name, disk: disk.word().to_owned(), node };
            (Operation::MirrorAdd(add), operation)
        }
        DiskVerb::RemoveMirror { name, disk, disk_id, operation } => {
            let remove = MirrorRemove { instance: name, disk: disk.word().to_owned(), disk_id };
            (Operation::MirrorRemove(remove), operation)
        }
        DiskVerb::SyncMirrors { name, operation } => {
            (Operation::MirrorsSync(MirrorsSync { instance: name }), operation)
        }
        DiskVerb::RecreateDisks { name, disks, node, operation } => {
            let disks = disks.into_iter().map(|disk| disk.word().to_owned()).collect();
            let nodes = node.map(|place| std::iter::once(place.primary).chain(place.secondary).collect());
            let recreate = DisksRecreate { instance: name, disks, nodes: nodes.unwrap_or_default() };
            (Operation::DisksRecreate(recreate), operation)
        }
        // The secondary is the default.
        DiskVerb::ReplaceDisks { name, new_secondary, on_secondary: _, on_primary, operation } => {
            let replace = DisksReplace { instance: name, new_secondary, on_primary };
            (Operation::DisksReplace(replace), operation)
        }
    };
    Asked::one(change, flags)
}

/// The message for an instance made from nothing.
fn add(new: NewInstance, hardware: Hardware) -> InstanceAdd {
    InstanceAdd {
        disk_size_mib: hardware.disk_size.unwrap_or(0),
        swap_size_mib: hardware.swap_size.unwrap_or(0),
        memory_mib: hardware.memory,
        vcpus: hardware.vcpus,
        os: hardware.os,
        ..base(new)
    }
}

/// The message for an instance made from an export: 0 and the empty name mean "as exported".
pub(super) fn import(new: NewInstance, hardware: ImportedHardware, source: ImportSource) -> InstanceAdd {
    InstanceAdd {
        disk_size_mib: hardware.disk_size.unwrap_or(0),
        swap_size_mib: hardware.swap_size.unwrap_or(0),
        memory_mib: hardware.memory.unwrap_or(0),
        vcpus: hardware.vcpus.unwrap_or(0),
        os: hardware.os.unwrap_or_default(),
        source: Some(source),
        ..base(new)
    }
}

fn base(new: NewInstance) -> InstanceAdd {
    InstanceAdd {
        name: new.name,
        primary: new.node.primary,
        secondary: new.node.secondary,
        disk_template: new.disk_template.word().to_owned(),
        ip: new.ip.and_then(ip_text),
        network: new.network,
        tags: new.tags,
        no_start: new.no_start,
        no_wait_for_sync: new.no_wait_for_sync,
        ..InstanceAdd::default()
    }
}

fn ip_text(ip: IpChange) -> Option<String> {
    match ip {
        IpChange::None => None,
        IpChange::Address(address) => Some(address.to_string()),
        IpChange::Pool => Some("pool".to_owned()),
    }
}

async fn info(
    connection: &ConnectionFlags,
    names: Vec<String>,
    live: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let named = names.len();
    let request = ListInstancesRequest { names, live };
    let instances = answer(master.queries().list_instances(request)).await?.instances;
    if as_json {
        print_json(&one_or_array(instances.iter().map(render::instance_json).collect(), named))
    } else {
        print(&instances.iter().map(render::instance_text).collect::<Vec<_>>().join("\n"))
    }
}
