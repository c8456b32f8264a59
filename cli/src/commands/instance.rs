//! `gnt-instance`.

use muster_proto::v1::{
    DiskGrow, DisksReplace, ImportSource, InstanceAdd, InstanceFailover, InstanceModify, InstanceReboot,
    InstanceReinstall, InstanceRemove, InstanceRename, InstanceShutdown, InstanceStart, ListInstancesRequest,
    MirrorAdd, MirrorRemove, operation::Operation,
};

use super::{confirm::confirm, console, operation};
use crate::{
    args::{
        ConnectionFlags, DiskVerb, Hardware, ImportedHardware, InstanceVerb, IpChange, NewInstance,
        OperationFlags,
    },
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, instances as render, one_or_array, print, print_json},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: InstanceVerb) -> Result<(), Failure> {
    let (operations, flags) = match verb {
        InstanceVerb::List { names, live, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let request = ListInstancesRequest { names, live };
            return print(
                &selection.render(&answer(master.queries().list_instances(request)).await?.instances),
            );
        }
        InstanceVerb::Info { names, live, json } => return info(connection, names, live, json.json).await,
        InstanceVerb::Console { name } => return console::run(connection, name).await,
        InstanceVerb::Add { new, hardware, operation } => {
            (vec![Operation::InstanceAdd(add(new, hardware))], operation)
        }
        InstanceVerb::Start { names, force, operation } => {
            let start = |instance| Operation::InstanceStart(InstanceStart { instance, force });
            (names.into_iter().map(start).collect(), operation)
        }
        InstanceVerb::Shutdown { names, timeout, operation } => {
            let stop =
                |instance| Operation::InstanceShutdown(InstanceShutdown { instance, timeout_s: timeout });
            (names.into_iter().map(stop).collect(), operation)
        }
        InstanceVerb::Failover { name, force, ignore_consistency, operation } => {
            let question =
                format!("This moves instance {name} to its secondary node; if it runs, it is restarted.");
            confirm(&question, force, &operation)?;
            let failover = InstanceFailover { instance: name, ignore_consistency };
            (vec![Operation::InstanceFailover(failover)], operation)
        }
        InstanceVerb::Remove { name, force, operation } => {
            confirm(&format!("This removes instance {name} and its disks."), force, &operation)?;
            (vec![Operation::InstanceRemove(InstanceRemove { instance: name })], operation)
        }
        InstanceVerb::Reinstall { name, os, force, operation } => {
            let question = format!("This installs instance {name} again; what its disks hold is lost.");
            confirm(&question, force, &operation)?;
            (vec![Operation::InstanceReinstall(InstanceReinstall { instance: name, os })], operation)
        }
        InstanceVerb::Reboot { names, kind, operation } => {
            let kind = kind.map(|kind| kind.word().to_owned()).unwrap_or_default();
            let reboot =
                |instance| Operation::InstanceReboot(InstanceReboot { instance, kind: kind.clone() });
            (names.into_iter().map(reboot).collect(), operation)
        }
        InstanceVerb::Modify { name, memory, vcpus, ip, operation } => {
            let ip = ip.map(|ip| ip_text(ip).unwrap_or_else(|| "none".to_owned()));
            let change = InstanceModify { instance: name, memory_mib: memory, vcpus, ip };
            (vec![Operation::InstanceModify(change)], operation)
        }
        InstanceVerb::Rename { name, new_name, operation } => {
            (vec![Operation::InstanceRename(InstanceRename { instance: name, new_name })], operation)
        }
        InstanceVerb::OnDisk(verb) => on_disk(verb),
    };
    let master = Master::connect(connection).await?;
    operation::run_all(&master, operations, &flags).await
}

/// The operation of a verb on a disk.
fn on_disk(verb: DiskVerb) -> (Vec<Operation>, OperationFlags) {
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
        DiskVerb::ReplaceDisks { name, new_secondary, operation } => {
            let replace = DisksReplace { instance: name, new_secondary };
            (Operation::DisksReplace(replace), operation)
        }
    };
    (vec![change], flags)
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
        no_start: new.no_start,
        ..InstanceAdd::default()
    }
}

fn ip_text(ip: IpChange) -> Option<String> {
    match ip {
        IpChange::None => None,
        IpChange::Address(address) => Some(address.to_string()),
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
