//! The calls of the node service: parsed from the wire, carried out by the backends.
//!
//! Every call may come twice and is carried out again after a crash in the middle of it, so each must lead to the same
//! state from whatever a broken attempt left (the traits in `hypervisor` and `storage` say how).

use std::{error::Error, time::Duration};

use muster_core::{
    calls::{Guest, Machine, MigrationCall, MirrorCall, NodeCall, Output},
    hypervisor,
};
use muster_hooksrv::agent::words;
use muster_proto::v1;
use tonic::Status;
use uuid::Uuid;

use crate::{
    cancel::Cancel,
    faults::FaultPoint,
    hypervisor::{
        Accel, Boot, Destination, GuestReport, GuestSpec, HypervisorError, Hypervisors, MirrorTarget,
    },
    os::{OsError, Oses},
    progress::Tell,
    serving::Serving,
    storage::{DiskStore, ExportStore},
};

/// The longest manifest: a message has 4 MiB.
const MANIFEST_BYTES_MAX: usize = 1024 * 1024;

/// What a call may need.
pub(crate) struct Backends<'a> {
    pub(crate) hypervisors: &'a Hypervisors,
    pub(crate) oses: &'a Oses,
    pub(crate) disks: &'a dyn DiskStore,
    pub(crate) exports: &'a dyn ExportStore,
    pub(crate) serving: &'a Serving,
}

fn invalid(text: impl Into<String>) -> Status {
    Status::invalid_argument(text)
}

/// Parses a uuid, in the one spelling that also names files.
pub(crate) fn uuid(what: &str, text: &str) -> Result<Uuid, Status> {
    crate::storage::file_uuid(text).ok_or_else(|| invalid(format!("{what} {text:?} is no uuid")))
}

/// Checks a call from the wire.
pub(crate) fn parse(wire: Option<v1::NodeCall>) -> Result<NodeCall, Status> {
    let call = NodeCall::try_from(wire.ok_or_else(|| invalid("the call is missing"))?)?;
    match &call {
        NodeCall::GuestStart { guest, .. }
        | NodeCall::OsCreate { guest, .. }
        | NodeCall::OsRename { guest, .. }
        | NodeCall::Migration(MigrationCall::Receive { guest, .. }) => check_guest(guest)?,
        NodeCall::ExportPublish { manifest, .. } => check_manifest(manifest)?,
        NodeCall::DiskCreate { .. }
        | NodeCall::DiskRemove { .. }
        | NodeCall::DiskAbsent { .. }
        | NodeCall::DiskResize { .. }
        | NodeCall::GuestResume { .. }
        | NodeCall::GuestStop { .. }
        | NodeCall::GuestReboot { .. }
        | NodeCall::ExportStage { .. }
        | NodeCall::ExportRemove { .. }
        | NodeCall::ExportCheck { .. }
        | NodeCall::DisksSnapshot { .. }
        | NodeCall::Mirror(_)
        | NodeCall::Migration(_) => {}
    }
    Ok(call)
}

/// Where a fault can be injected.
pub(crate) fn fault_point(call: &NodeCall) -> FaultPoint {
    match call {
        NodeCall::DiskCreate { .. } => FaultPoint::DiskCreate,
        NodeCall::DiskRemove { .. } => FaultPoint::DiskRemove,
        NodeCall::DiskAbsent { .. } => FaultPoint::DiskAbsent,
        NodeCall::GuestStart { .. } => FaultPoint::GuestStart,
        NodeCall::GuestResume { .. } => FaultPoint::GuestResume,
        NodeCall::GuestStop { .. } => FaultPoint::GuestStop,
        NodeCall::GuestReboot { .. } => FaultPoint::GuestReboot,
        NodeCall::OsCreate { .. } => FaultPoint::OsCreate,
        NodeCall::OsRename { .. } => FaultPoint::OsRename,
        NodeCall::DiskResize { .. } => FaultPoint::DiskResize,
        NodeCall::ExportStage { .. } => FaultPoint::ExportStage,
        NodeCall::ExportPublish { .. } => FaultPoint::ExportPublish,
        NodeCall::ExportRemove { .. } => FaultPoint::ExportRemove,
        NodeCall::ExportCheck { .. } => FaultPoint::ExportCheck,
        NodeCall::DisksSnapshot { .. } => FaultPoint::DisksSnapshot,
        NodeCall::Mirror(call) => match call {
            MirrorCall::Serve { .. } | MirrorCall::Release { .. } | MirrorCall::Served { .. } => {
                FaultPoint::Serving
            }
            MirrorCall::Clean { .. }
            | MirrorCall::Trust { .. }
            | MirrorCall::Start { .. }
            | MirrorCall::Stop { .. }
            | MirrorCall::Check { .. } => FaultPoint::Mirror,
        },
        NodeCall::Migration(_) => FaultPoint::Migration,
    }
}

/// Carries a call out; gives its output, or why it failed in words. Blocks; what may take long tells how far it is, and ends
/// soon after it was cancelled.
pub(crate) fn perform(
    call: &NodeCall,
    on: &Backends<'_>,
    tell: Tell<'_>,
    cancel: &Cancel,
) -> Result<Output, String> {
    match call {
        NodeCall::DiskCreate { disk, size_mib } => done(on.disks.create(*disk, *size_mib)),
        NodeCall::DiskRemove { disk } => {
            on.hypervisors.replaced(&[*disk]).map_err(|error| words(&error))?;
            done(on.disks.remove(*disk))
        }
        NodeCall::GuestStart { guest, force, paused } => start(on, guest, *force, *paused, cancel),
        NodeCall::GuestResume { instance, .. } => {
            // Copies that follow by now are not among these.
            on.hypervisors.written(*instance).map_err(|error| words(&error))?;
            done(on.hypervisors.resume(*instance, cancel))
        }
        NodeCall::GuestStop { instance, timeout_ms, .. } => {
            done(on.hypervisors.stop(*instance, Duration::from_millis(*timeout_ms), cancel))
        }
        NodeCall::GuestReboot { instance, timeout_ms, .. } => {
            done(on.hypervisors.reboot(*instance, Duration::from_millis(*timeout_ms), cancel))
        }
        NodeCall::OsCreate { guest, reinstall } => {
            is_down(on, guest)?;
            written(on, guest)?;
            done(on.oses.create(guest, *reinstall, on.disks, tell, cancel))
        }
        NodeCall::OsRename { guest, old_name } => {
            is_down(on, guest)?;
            written(on, guest)?;
            done(on.oses.rename(guest, old_name, on.disks, cancel))
        }
        NodeCall::DiskAbsent { disk } => done(on.disks.absent(*disk)),
        NodeCall::DiskResize { disk, size_mib } => done(on.disks.resize(*disk, *size_mib)),
        NodeCall::ExportStage { export } => done(on.exports.stage(*export)),
        NodeCall::ExportPublish { export, manifest } => {
            let path = on.exports.publish(*export, manifest, cancel).map_err(|error| words(&error))?;
            Ok(Output { path: Some(path.display().to_string()), ..Output::default() })
        }
        NodeCall::ExportRemove { export } => done(on.exports.remove(*export)),
        NodeCall::ExportCheck { export } => done(on.exports.check(*export, cancel)),
        NodeCall::DisksSnapshot { instance, disks, .. } => {
            done(on.hypervisors.snapshot(*instance, disks, tell, cancel))
        }
        NodeCall::Mirror(call) => mirror(on, call, tell, cancel),
        NodeCall::Migration(call) => migrate(on, call, tell, cancel),
    }
}

fn mirror(on: &Backends<'_>, call: &MirrorCall, tell: Tell<'_>, cancel: &Cancel) -> Result<Output, String> {
    match call {
        MirrorCall::Serve { copies, peer, listen } => {
            let disks: Vec<Uuid> = copies.iter().map(|(copy, _)| *copy).collect();
            on.hypervisors.replaced(&disks).map_err(|error| words(&error))?;
            let ports = on.serving.serve(copies, peer.as_str(), *listen).map_err(|error| words(&error))?;
            Ok(Output { ports, ..Output::default() })
        }
        MirrorCall::Release { copies } => done(on.serving.release(copies)),
        MirrorCall::Clean { instance, copies } => {
            let same = on.hypervisors.clean(*instance, copies).map_err(|error| words(&error))?;
            Ok(Output { same: same.into_keys().collect(), ..Output::default() })
        }
        MirrorCall::Trust { instance, copies, disks } => done(on.hypervisors.trust(*instance, copies, disks)),
        MirrorCall::Start { instance, peer, address, mirrors, sync, wait, .. } => {
            // The guest is this node's for good: that its disks once had all of another one's writes says nothing any more.
            let disks: Vec<Uuid> = mirrors.iter().map(|link| link.disk).collect();
            on.serving.release(&disks).map_err(|error| words(&error))?;
            let target = MirrorTarget {
                peer: peer.to_string(),
                address: *address,
                links: mirrors.clone(),
                sync: *sync,
                wait: *wait,
            };
            done(on.hypervisors.mirror(*instance, &target, tell, cancel))
        }
        MirrorCall::Stop { instance, copies } => done(on.hypervisors.end_mirrors(*instance, copies)),
        MirrorCall::Check { instance, copies } => {
            let mirrors = on.hypervisors.mirrors_of(*instance, copies).map_err(|error| words(&error))?;
            Ok(Output { mirrors, ..Output::default() })
        }
        MirrorCall::Served { copies, peer } => {
            let mirrors = on.serving.serves(copies, peer.as_str());
            Ok(Output { mirrors, ..Output::default() })
        }
    }
}

fn migrate(
    on: &Backends<'_>,
    call: &MigrationCall,
    tell: Tell<'_>,
    cancel: &Cancel,
) -> Result<Output, String> {
    match call {
        MigrationCall::Machine { instance, .. } => {
            let (guests, _) = on.hypervisors.states();
            let found = guests.into_iter().find(|guest| guest.instance == *instance && guest.is_up());
            let GuestReport { memory_mib, vcpus, accel, nic, .. } =
                found.ok_or_else(|| words(&HypervisorError::NotRunning(*instance)))?;
            // Of one whose record was lost nobody knows: the configuration is all that there is.
            if memory_mib == 0 {
                return Ok(Output::default());
            }
            let machine = Machine { memory_mib, vcpus, accel, nic };
            Ok(Output { machines: [(*instance, machine)].into(), ..Output::default() })
        }
        MigrationCall::Receive { guest, peer, listen } => {
            let kind = guest.hypervisor.kind;
            // What it boots has run already: it comes with the guest's state.
            let spec = spec(guest, on.oses.boot(&guest.os, true).map_err(|error| words(&error))?, true);
            let port = on.hypervisors.receive(kind, &spec, peer.as_str(), *listen, cancel);
            let ports = [(guest.uuid, port.map_err(|error| words(&error))?)].into();
            Ok(Output { ports, ..Output::default() })
        }
        MigrationCall::Send { instance, peer, address, port, .. } => {
            let port = port.ok_or_else(|| format!("{peer} did not say where it awaits the guest"))?;
            let to = Destination { peer: peer.to_string(), address: *address, port };
            done(on.hypervisors.send(*instance, &to, tell, cancel))
        }
        MigrationCall::Finish { instance, .. } => done(on.hypervisors.finish(*instance, cancel)),
        MigrationCall::Cancel { instance, .. } => done(on.hypervisors.cancel_move(*instance, cancel)),
    }
}

fn done(result: Result<(), impl Error>) -> Result<Output, String> {
    result.map(|()| Output::default()).map_err(|error| words(&error))
}

/// Starts a guest; what it boots is looked up here, in this node's own OS definitions.
fn start(
    on: &Backends<'_>,
    guest: &Guest,
    force: bool,
    paused: bool,
    cancel: &Cancel,
) -> Result<Output, String> {
    let boot = match guest.hypervisor.kind {
        // It boots nothing.
        hypervisor::HypervisorKind::Fake => None,
        hypervisor::HypervisorKind::Qemu => on.oses.boot(&guest.os, force).map_err(|error| words(&error))?,
    };
    // What were copies for another node's guest are this one's disks now.
    let disks: Vec<Uuid> = guest.disks.iter().map(|(_, disk, _)| *disk).collect();
    on.serving.hand_over(&disks).map_err(|error| words(&error))?;
    if !paused {
        written(on, guest)?;
    }
    done(on.hypervisors.start(guest.hypervisor.kind, &spec(guest, boot, paused), cancel))
}

fn spec(guest: &Guest, boot: Option<Boot>, paused: bool) -> GuestSpec {
    let params = &guest.hypervisor;
    GuestSpec {
        instance: guest.uuid,
        name: guest.name.to_string(),
        memory_mib: guest.memory_mib,
        vcpus: guest.vcpus,
        disks: guest.disks.iter().map(|(_, disk, _)| *disk).collect(),
        ip: guest.ip.map(|ip| ip.to_string()),
        mac: guest.mac.clone(),
        os: guest.os.to_string(),
        boot,
        accel: match params.accel {
            hypervisor::Accel::Auto => None,
            hypervisor::Accel::Kvm => Some(Accel::Kvm),
            hypervisor::Accel::Tcg => Some(Accel::Tcg),
        },
        nic: params.nic.clone(),
        generation: guest.generation,
        paused,
    }
}

/// A guest's disks are about to be written to: they are not the same as their copies any more.
fn written(on: &Backends<'_>, guest: &Guest) -> Result<(), String> {
    on.hypervisors.written(guest.uuid).map_err(|error| words(&error))
}

/// Whoever writes to a guest's disks beside it destroys them.
fn is_down(on: &Backends<'_>, guest: &Guest) -> Result<(), String> {
    if on.hypervisors.is_up(guest.uuid) {
        return Err(OsError::Runs(guest.name.to_string()).to_string());
    }
    Ok(())
}

fn check_guest(guest: &Guest) -> Result<(), Status> {
    if guest.memory_mib == 0 || guest.vcpus == 0 {
        return Err(invalid("a guest has memory and processors"));
    }
    Ok(())
}

fn check_manifest(text: &str) -> Result<(), Status> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(invalid("the manifest is longer than 1 MiB"));
    }
    let checked: Result<serde_json::Value, _> = serde_json::from_str(text);
    checked.map(drop).map_err(|error| invalid(format!("the manifest is no JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_call_is_refused() {
        use v1::node_call::Call;
        let call = |call| parse(Some(v1::NodeCall { call: Some(call) }));
        let some = "00000000-0000-0000-0000-000000000001".to_owned();
        assert!(call(Call::DiskRemove(v1::DiskRemove { disk_uuid: some.clone() })).is_ok());
        for wrong in [
            Call::DiskRemove(v1::DiskRemove { disk_uuid: String::new() }),
            Call::DiskRemove(v1::DiskRemove { disk_uuid: "../x".to_owned() }),
            Call::GuestStart(v1::GuestStart::default()),
            Call::GuestStart(v1::GuestStart {
                guest: Some(v1::Guest { instance_uuid: some.clone(), ..v1::Guest::default() }),
                force: true,
                paused: false,
            }),
            Call::GuestStart(v1::GuestStart {
                guest: Some(v1::Guest {
                    instance_uuid: some.clone(),
                    name: "web1".to_owned(),
                    vcpus: 1,
                    mac: "aa:00:00:00:00:01".to_owned(),
                    os: "../none".to_owned(),
                    hypervisor: "fake".to_owned(),
                    accel: "auto".to_owned(),
                    nic: "user".to_owned(),
                    memory_mib: 1,
                    ..v1::Guest::default()
                }),
                force: true,
                paused: false,
            }),
            Call::ExportPublish(v1::ExportPublish { export_uuid: some, manifest: "{".to_owned() }),
        ] {
            let status = call(wrong.clone()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{wrong:?}");
        }
        assert!(parse(None).is_err());
    }
}
