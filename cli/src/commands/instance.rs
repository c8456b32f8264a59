//! `gnt-instance`.

use muster_proto::v1::{
    DisksReplace, ImportSource, InstanceAdd, InstanceFailover, InstanceModify, InstanceRemove,
    InstanceShutdown, InstanceStart, ListInstancesRequest, MirrorAdd, MirrorRemove, operation::Operation,
};

use super::{confirm::confirm, operation};
use crate::{
    args::{ConnectionFlags, Hardware, ImportedHardware, InstanceVerb, IpChange, NewInstance},
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
        InstanceVerb::Modify { name, memory, vcpus, ip, operation } => {
            let ip = ip.map(|ip| ip_text(ip).unwrap_or_else(|| "none".to_owned()));
            let change = InstanceModify { instance: name, memory_mib: memory, vcpus, ip };
            (vec![Operation::InstanceModify(change)], operation)
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
        InstanceVerb::AddMirror { name, disk, node, operation } => {
            let add = MirrorAdd { instance: name, disk: disk.word().to_owned(), node };
            (vec![Operation::MirrorAdd(add)], operation)
        }
        InstanceVerb::RemoveMirror { name, disk, disk_id, operation } => {
            let remove = MirrorRemove { instance: name, disk: disk.word().to_owned(), disk_id };
            (vec![Operation::MirrorRemove(remove)], operation)
        }
        InstanceVerb::ReplaceDisks { name, new_secondary, operation } => {
            let replace = DisksReplace { instance: name, new_secondary };
            (vec![Operation::DisksReplace(replace)], operation)
        }
    };
    let master = Master::connect(connection).await?;
    operation::run_all(&master, operations, &flags).await
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
