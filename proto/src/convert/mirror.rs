//! Calls about mirrors and migrations between wire and core.

use std::collections::BTreeMap;

use muster_core::calls::{Machine, MigrationCall, MirrorCall, MirrorLink, MirrorStatus, Sync};
use uuid::Uuid;

use super::{WireError, fields};
use crate::v1;

fn texts(uuids: &[Uuid]) -> Vec<String> {
    uuids.iter().map(Uuid::to_string).collect()
}

fn copies(wire: &[String]) -> Result<Vec<Uuid>, WireError> {
    wire.iter().map(|text| fields::uuid("copy_uuids", text)).collect()
}

fn disks(wire: &[String]) -> Result<Vec<Uuid>, WireError> {
    wire.iter().map(|text| fields::uuid("disk_uuids", text)).collect()
}

/// A port, 0 where nobody said one.
fn port(wire: u32) -> Result<Option<u16>, WireError> {
    let port = u16::try_from(wire);
    let port = port.map_err(|_| {
        WireError::wrong("port", &wire.to_string(), "a TCP port from 1 to 65535, or 0 for none is expected")
    })?;
    Ok(Some(port).filter(|port| *port != 0))
}

impl From<MirrorStatus> for v1::MirrorStatus {
    fn from(status: MirrorStatus) -> Self {
        match status {
            MirrorStatus::Syncing => v1::MirrorStatus::Syncing,
            MirrorStatus::Ready => v1::MirrorStatus::Ready,
            MirrorStatus::Broken => v1::MirrorStatus::Broken,
        }
    }
}

/// Reads a mirror's status.
///
/// # Errors
/// When the number is none, or the status is left out.
pub fn mirror_status(field: &'static str, wire: i32) -> Result<MirrorStatus, WireError> {
    match v1::MirrorStatus::try_from(wire) {
        Ok(v1::MirrorStatus::Syncing) => Ok(MirrorStatus::Syncing),
        Ok(v1::MirrorStatus::Ready) => Ok(MirrorStatus::Ready),
        Ok(v1::MirrorStatus::Broken) => Ok(MirrorStatus::Broken),
        Ok(v1::MirrorStatus::Unspecified) | Err(_) => Err(WireError::wrong(
            field,
            &wire.to_string(),
            "1 (syncing), 2 (ready) or 3 (broken) is expected",
        )),
    }
}

/// Reads what an output says by uuid.
pub(super) fn by_uuid<T, W: Clone>(
    field: &'static str,
    wire: &std::collections::HashMap<String, W>,
    read: impl Fn(W) -> Result<T, WireError>,
) -> Result<BTreeMap<Uuid, T>, WireError> {
    wire.iter().map(|(uuid, value)| Ok((fields::uuid(field, uuid)?, read(value.clone())?))).collect()
}

/// Reads the port of an output.
pub(super) fn output_port(wire: u32) -> Result<u16, WireError> {
    port(wire)?.ok_or(WireError::Missing { field: "ports" })
}

pub(super) fn machine_to_wire(machine: Machine) -> v1::Machine {
    v1::Machine {
        memory_mib: machine.memory_mib,
        vcpus: machine.vcpus,
        accel: machine.accel.map(|accel| accel.as_str().to_owned()).unwrap_or_default(),
        nic: machine.nic.map(|nic| nic.to_text()).unwrap_or_default(),
    }
}

pub(super) fn machine_from_wire(wire: v1::Machine) -> Result<Machine, WireError> {
    let said = |text: String| Some(text).filter(|text| !text.is_empty());
    let accel = said(wire.accel).map(|text| fields::accel("accel", &text)).transpose()?;
    let nic = said(wire.nic).map(|text| fields::nic("nic", &text)).transpose()?;
    Ok(Machine { memory_mib: wire.memory_mib, vcpus: wire.vcpus, accel, nic })
}

fn sync_to_wire(sync: Sync) -> v1::MirrorSync {
    match sync {
        Sync::Same => v1::MirrorSync::Same,
        Sync::Unproven => v1::MirrorSync::Unproven,
        Sync::Full => v1::MirrorSync::Full,
    }
}

fn sync_from_wire(wire: i32) -> Result<Sync, WireError> {
    match v1::MirrorSync::try_from(wire) {
        Ok(v1::MirrorSync::Same) => Ok(Sync::Same),
        Ok(v1::MirrorSync::Unproven) => Ok(Sync::Unproven),
        Ok(v1::MirrorSync::Full) => Ok(Sync::Full),
        Ok(v1::MirrorSync::Unspecified) | Err(_) => {
            Err(WireError::wrong("sync", &wire.to_string(), "1 (same), 2 (unproven) or 3 (full) is expected"))
        }
    }
}

impl From<MirrorLink> for v1::MirrorLink {
    fn from(link: MirrorLink) -> Self {
        v1::MirrorLink {
            disk_uuid: link.disk.to_string(),
            copy_uuid: link.copy.to_string(),
            port: link.port.map(u32::from).unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::MirrorLink> for MirrorLink {
    type Error = WireError;

    fn try_from(wire: v1::MirrorLink) -> Result<Self, WireError> {
        Ok(MirrorLink {
            disk: fields::uuid("mirrors.disk_uuid", &wire.disk_uuid)?,
            copy: fields::uuid("mirrors.copy_uuid", &wire.copy_uuid)?,
            port: port(wire.port)?,
        })
    }
}

impl From<MirrorCall> for v1::MirrorCall {
    fn from(call: MirrorCall) -> Self {
        use v1::mirror_call::Call as Wire;
        let call = match call {
            MirrorCall::Serve { copies, peer, listen } => {
                let copy =
                    |(copy, size_mib): (Uuid, u64)| v1::ServedCopy { copy_uuid: copy.to_string(), size_mib };
                let copies = copies.into_iter().map(copy).collect();
                Wire::Serve(v1::CopiesServe { copies, peer: peer.into(), listen_ip: listen.to_string() })
            }
            MirrorCall::Release { copies } => Wire::Release(v1::CopiesRelease { copy_uuids: texts(&copies) }),
            MirrorCall::Clean { instance, copies } => Wire::Clean(v1::MirrorsClean {
                instance_uuid: instance.to_string(),
                copy_uuids: texts(&copies),
            }),
            MirrorCall::Trust { instance, copies, disks } => Wire::Trust(v1::MirrorsTrust {
                instance_uuid: instance.to_string(),
                copy_uuids: texts(&copies),
                disk_uuids: texts(&disks),
            }),
            MirrorCall::Start { instance, name, peer, address, mirrors, sync, wait } => {
                Wire::Start(v1::MirrorsStart {
                    instance_uuid: instance.to_string(),
                    name: name.into(),
                    peer: peer.into(),
                    ip: address.to_string(),
                    mirrors: mirrors.into_iter().map(Into::into).collect(),
                    sync: sync_to_wire(sync).into(),
                    wait,
                })
            }
            MirrorCall::Stop { instance, copies } => Wire::Stop(v1::MirrorsStop {
                instance_uuid: instance.to_string(),
                copy_uuids: texts(&copies),
            }),
            MirrorCall::Check { instance, copies } => Wire::Check(v1::MirrorsCheck {
                instance_uuid: instance.to_string(),
                copy_uuids: texts(&copies),
            }),
            MirrorCall::Served { copies, peer } => {
                Wire::Served(v1::CopiesServed { copy_uuids: texts(&copies), peer: peer.into() })
            }
        };
        v1::MirrorCall { call: Some(call) }
    }
}

impl TryFrom<v1::MirrorCall> for MirrorCall {
    type Error = WireError;

    fn try_from(wire: v1::MirrorCall) -> Result<Self, WireError> {
        use v1::mirror_call::Call as Wire;
        let instance = |text: &str| fields::uuid("instance_uuid", text);
        Ok(match wire.call.ok_or(WireError::Missing { field: "mirror.call" })? {
            Wire::Serve(w) => {
                let copy = |copy: &v1::ServedCopy| {
                    Ok((fields::uuid("copies.copy_uuid", &copy.copy_uuid)?, copy.size_mib))
                };
                MirrorCall::Serve {
                    copies: w.copies.iter().map(copy).collect::<Result<_, WireError>>()?,
                    peer: fields::node("peer", &w.peer)?,
                    listen: fields::ip("listen_ip", &w.listen_ip)?,
                }
            }
            Wire::Release(w) => MirrorCall::Release { copies: copies(&w.copy_uuids)? },
            Wire::Clean(w) => {
                MirrorCall::Clean { instance: instance(&w.instance_uuid)?, copies: copies(&w.copy_uuids)? }
            }
            Wire::Trust(w) => MirrorCall::Trust {
                instance: instance(&w.instance_uuid)?,
                copies: copies(&w.copy_uuids)?,
                disks: disks(&w.disk_uuids)?,
            },
            Wire::Start(w) => MirrorCall::Start {
                instance: instance(&w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
                peer: fields::node("peer", &w.peer)?,
                address: fields::ip("ip", &w.ip)?,
                mirrors: w.mirrors.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
                sync: sync_from_wire(w.sync)?,
                wait: w.wait,
            },
            Wire::Stop(w) => {
                MirrorCall::Stop { instance: instance(&w.instance_uuid)?, copies: copies(&w.copy_uuids)? }
            }
            Wire::Check(w) => {
                MirrorCall::Check { instance: instance(&w.instance_uuid)?, copies: copies(&w.copy_uuids)? }
            }
            Wire::Served(w) => {
                MirrorCall::Served { copies: copies(&w.copy_uuids)?, peer: fields::node("peer", &w.peer)? }
            }
        })
    }
}

impl From<MigrationCall> for v1::MigrationCall {
    fn from(call: MigrationCall) -> Self {
        use v1::migration_call::Call as Wire;
        let call = match call {
            MigrationCall::Machine { instance, name } => {
                Wire::Machine(v1::MigrateMachine { instance_uuid: instance.to_string(), name: name.into() })
            }
            MigrationCall::Receive { guest, peer, listen } => Wire::Receive(v1::MigrateReceive {
                guest: Some(guest.into()),
                peer: peer.into(),
                listen_ip: listen.to_string(),
            }),
            MigrationCall::Send { instance, name, peer, address, port } => Wire::Send(v1::MigrateSend {
                instance_uuid: instance.to_string(),
                name: name.into(),
                peer: peer.into(),
                ip: address.to_string(),
                port: port.map(u32::from).unwrap_or_default(),
            }),
            MigrationCall::Finish { instance, name } => {
                Wire::Finish(v1::MigrateFinish { instance_uuid: instance.to_string(), name: name.into() })
            }
            MigrationCall::Cancel { instance, name } => {
                Wire::Cancel(v1::MigrateCancel { instance_uuid: instance.to_string(), name: name.into() })
            }
        };
        v1::MigrationCall { call: Some(call) }
    }
}

impl TryFrom<v1::MigrationCall> for MigrationCall {
    type Error = WireError;

    fn try_from(wire: v1::MigrationCall) -> Result<Self, WireError> {
        use v1::migration_call::Call as Wire;
        let instance = |text: &str| fields::uuid("instance_uuid", text);
        Ok(match wire.call.ok_or(WireError::Missing { field: "migration.call" })? {
            Wire::Machine(w) => MigrationCall::Machine {
                instance: instance(&w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
            },
            Wire::Receive(w) => MigrationCall::Receive {
                guest: w.guest.ok_or(WireError::Missing { field: "guest" })?.try_into()?,
                peer: fields::node("peer", &w.peer)?,
                listen: fields::ip("listen_ip", &w.listen_ip)?,
            },
            Wire::Send(w) => MigrationCall::Send {
                instance: instance(&w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
                peer: fields::node("peer", &w.peer)?,
                address: fields::ip("ip", &w.ip)?,
                port: port(w.port)?,
            },
            Wire::Finish(w) => MigrationCall::Finish {
                instance: instance(&w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
            },
            Wire::Cancel(w) => MigrationCall::Cancel {
                instance: instance(&w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
            },
        })
    }
}
