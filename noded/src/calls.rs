//! The calls of the node service: parsed from the wire, carried out by the backends.
//!
//! Every call may come twice and is carried out again after a crash in the middle of it, so each must lead to the same
//! state from whatever a broken attempt left (the traits in `hypervisor` and `storage` say how).

use std::{error::Error, path::PathBuf, time::Duration};

use muster_core::{calls::Guest, hypervisor, names::InstanceName};
use muster_hooksrv::agent::words;
use muster_proto::v1::{self, node_call};
use tonic::Status;
use uuid::Uuid;

use crate::{
    cancel::Cancel,
    faults::FaultPoint,
    hypervisor::{Accel, GuestSpec, Hypervisors},
    os::{OsError, Oses},
    storage::{DiskStore, ExportStore},
};

/// The longest manifest: a message has 4 MiB.
const MANIFEST_BYTES_MAX: usize = 1024 * 1024;

/// A call that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeCall {
    DiskCreate { disk: Uuid, size_mib: u64 },
    DiskRemove { disk: Uuid },
    GuestStart { guest: Guest, force: bool },
    GuestStop { instance: Uuid, limit: Duration },
    GuestReboot { instance: Uuid, limit: Duration },
    OsCreate { guest: Guest, reinstall: bool },
    OsRename { guest: Guest, old_name: InstanceName },
    DiskResize { disk: Uuid, size_mib: u64 },
    ExportStage { export: Uuid },
    ExportPublish { export: Uuid, manifest: String },
    ExportRemove { export: Uuid },
}

/// What a call may need.
pub(crate) struct Backends<'a> {
    pub(crate) hypervisors: &'a Hypervisors,
    pub(crate) oses: &'a Oses,
    pub(crate) disks: &'a dyn DiskStore,
    pub(crate) exports: &'a dyn ExportStore,
}

fn invalid(text: impl Into<String>) -> Status {
    Status::invalid_argument(text)
}

/// Parses a uuid, in the one spelling that also names files.
pub(crate) fn uuid(what: &str, text: &str) -> Result<Uuid, Status> {
    crate::storage::file_uuid(text).ok_or_else(|| invalid(format!("{what} {text:?} is no uuid")))
}

impl NodeCall {
    /// Checks a call from the wire.
    pub(crate) fn parse(wire: Option<v1::NodeCall>) -> Result<Self, Status> {
        use node_call::Call;
        Ok(match wire.and_then(|wire| wire.call).ok_or_else(|| invalid("the call is missing"))? {
            Call::DiskCreate(call) => {
                NodeCall::DiskCreate { disk: uuid("disk", &call.disk_uuid)?, size_mib: call.size_mib }
            }
            Call::DiskRemove(call) => NodeCall::DiskRemove { disk: uuid("disk", &call.disk_uuid)? },
            Call::GuestStart(call) => NodeCall::GuestStart { guest: guest(call.guest)?, force: call.force },
            Call::GuestStop(call) => NodeCall::GuestStop {
                instance: uuid("instance", &call.instance_uuid)?,
                limit: Duration::from_millis(call.timeout_ms),
            },
            Call::GuestReboot(call) => NodeCall::GuestReboot {
                instance: uuid("instance", &call.instance_uuid)?,
                limit: Duration::from_millis(call.timeout_ms),
            },
            Call::OsCreate(call) => {
                NodeCall::OsCreate { guest: guest(call.guest)?, reinstall: call.reinstall }
            }
            Call::OsRename(call) => {
                let old_name = InstanceName::parse(&call.old_name);
                let old_name = old_name.map_err(|error| invalid(error.to_string()))?;
                NodeCall::OsRename { guest: guest(call.guest)?, old_name }
            }
            Call::DiskResize(call) => {
                NodeCall::DiskResize { disk: uuid("disk", &call.disk_uuid)?, size_mib: call.size_mib }
            }
            Call::ExportStage(call) => NodeCall::ExportStage { export: uuid("export", &call.export_uuid)? },
            Call::ExportPublish(call) => NodeCall::ExportPublish {
                export: uuid("export", &call.export_uuid)?,
                manifest: manifest(call.manifest)?,
            },
            Call::ExportRemove(call) => NodeCall::ExportRemove { export: uuid("export", &call.export_uuid)? },
        })
    }

    /// Where a fault can be injected.
    pub(crate) fn fault_point(&self) -> FaultPoint {
        match self {
            NodeCall::DiskCreate { .. } => FaultPoint::DiskCreate,
            NodeCall::DiskRemove { .. } => FaultPoint::DiskRemove,
            NodeCall::GuestStart { .. } => FaultPoint::GuestStart,
            NodeCall::GuestStop { .. } => FaultPoint::GuestStop,
            NodeCall::GuestReboot { .. } => FaultPoint::GuestReboot,
            NodeCall::OsCreate { .. } => FaultPoint::OsCreate,
            NodeCall::OsRename { .. } => FaultPoint::OsRename,
            NodeCall::DiskResize { .. } => FaultPoint::DiskResize,
            NodeCall::ExportStage { .. } => FaultPoint::ExportStage,
            NodeCall::ExportPublish { .. } => FaultPoint::ExportPublish,
            NodeCall::ExportRemove { .. } => FaultPoint::ExportRemove,
        }
    }

    /// Carries the call out; gives the path that the answer has, or why it failed in words. Blocks; what may take long
    /// ends soon after it was cancelled.
    pub(crate) fn perform(&self, on: &Backends<'_>, cancel: &Cancel) -> Result<Option<PathBuf>, String> {
        match self {
            NodeCall::DiskCreate { disk, size_mib } => done(on.disks.create(*disk, *size_mib)),
            NodeCall::DiskRemove { disk } => done(on.disks.remove(*disk)),
            NodeCall::GuestStart { guest, force } => start(on, guest, *force, cancel),
            NodeCall::GuestStop { instance, limit } => done(on.hypervisors.stop(*instance, *limit, cancel)),
            NodeCall::GuestReboot { instance, limit } => {
                done(on.hypervisors.reboot(*instance, *limit, cancel))
            }
            NodeCall::OsCreate { guest, reinstall } => {
                is_down(on, guest)?;
                done(on.oses.create(guest, *reinstall, on.disks, cancel))
            }
            NodeCall::OsRename { guest, old_name } => {
                is_down(on, guest)?;
                done(on.oses.rename(guest, old_name, on.disks, cancel))
            }
            NodeCall::DiskResize { disk, size_mib } => done(on.disks.resize(*disk, *size_mib)),
            NodeCall::ExportStage { export } => done(on.exports.stage(*export)),
            NodeCall::ExportPublish { export, manifest } => {
                on.exports.publish(*export, manifest).map(Some).map_err(|error| words(&error))
            }
            NodeCall::ExportRemove { export } => done(on.exports.remove(*export)),
        }
    }
}

fn done(result: Result<(), impl Error>) -> Result<Option<PathBuf>, String> {
    result.map(|()| None).map_err(|error| words(&error))
}

/// Starts a guest; what it boots is looked up here, in this node's own OS definitions.
fn start(on: &Backends<'_>, guest: &Guest, force: bool, cancel: &Cancel) -> Result<Option<PathBuf>, String> {
    let params = &guest.hypervisor;
    let boot = match params.kind {
        // It boots nothing.
        hypervisor::HypervisorKind::Fake => None,
        hypervisor::HypervisorKind::Qemu => on.oses.boot(&guest.os, force).map_err(|error| words(&error))?,
    };
    let spec = GuestSpec {
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
    };
    done(on.hypervisors.start(params.kind, &spec, cancel))
}

/// Whoever writes to a guest's disks beside it destroys them.
fn is_down(on: &Backends<'_>, guest: &Guest) -> Result<(), String> {
    if on.hypervisors.is_up(guest.uuid) {
        return Err(OsError::Runs(guest.name.to_string()).to_string());
    }
    Ok(())
}

fn guest(wire: Option<v1::Guest>) -> Result<Guest, Status> {
    let guest = Guest::try_from(wire.ok_or_else(|| invalid("the guest is missing"))?)?;
    if guest.memory_mib == 0 || guest.vcpus == 0 {
        return Err(invalid("a guest has memory and processors"));
    }
    Ok(guest)
}

fn manifest(text: String) -> Result<String, Status> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(invalid("the manifest is longer than 1 MiB"));
    }
    let checked: Result<serde_json::Value, _> = serde_json::from_str(&text);
    match checked {
        Ok(_) => Ok(text),
        Err(error) => Err(invalid(format!("the manifest is no JSON: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_call_is_refused() {
        use node_call::Call;
        let call = |call| NodeCall::parse(Some(v1::NodeCall { call: Some(call) }));
        let some = "00000000-0000-0000-0000-000000000001".to_owned();
        let upper = "00000000-0000-0000-0000-00000000000A".to_owned();
        assert!(call(Call::DiskRemove(v1::DiskRemove { disk_uuid: some.clone() })).is_ok());
        for wrong in [
            Call::DiskRemove(v1::DiskRemove { disk_uuid: String::new() }),
            Call::DiskRemove(v1::DiskRemove { disk_uuid: "../x".to_owned() }),
            Call::DiskCreate(v1::DiskCreate { disk_uuid: upper, size_mib: 1 }),
            Call::GuestStart(v1::GuestStart::default()),
            Call::GuestStart(v1::GuestStart {
                guest: Some(v1::Guest { instance_uuid: some.clone(), ..v1::Guest::default() }),
                force: true,
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
            }),
            Call::ExportPublish(v1::ExportPublish { export_uuid: some, manifest: "{".to_owned() }),
        ] {
            let status = call(wrong.clone()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{wrong:?}");
        }
        assert!(NodeCall::parse(None).is_err());
    }
}
