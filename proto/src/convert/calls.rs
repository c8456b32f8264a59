//! Calls to nodes between wire and core.

use muster_core::{
    calls::{CallAnswer, Guest, Image, MirrorStatus, NodeCall, Output},
    hypervisor::HypervisorParams,
    model::DiskName,
};

use uuid::Uuid;

use super::{WireError, fields, mirror};
use crate::v1;

impl From<Guest> for v1::Guest {
    fn from(guest: Guest) -> Self {
        let disk = |(name, uuid, size_mib): (DiskName, Uuid, u64)| v1::GuestDisk {
            name: name.as_str().to_owned(),
            disk_uuid: uuid.to_string(),
            size_mib,
        };
        v1::Guest {
            instance_uuid: guest.uuid.to_string(),
            name: guest.name.into(),
            memory_mib: guest.memory_mib,
            vcpus: guest.vcpus,
            disks: guest.disks.into_iter().map(disk).collect(),
            ip: guest.ip.map(|ip| ip.to_string()),
            mac: guest.mac,
            os: guest.os.into(),
            hypervisor: guest.hypervisor.kind.as_str().to_owned(),
            accel: guest.hypervisor.accel.as_str().to_owned(),
            nic: guest.hypervisor.nic.to_text(),
            generation: guest.generation,
        }
    }
}

impl TryFrom<v1::Guest> for Guest {
    type Error = WireError;

    fn try_from(wire: v1::Guest) -> Result<Self, WireError> {
        let disk = |disk: &v1::GuestDisk| -> Result<(DiskName, Uuid, u64), WireError> {
            let name = fields::disk("guest.disks.name", &disk.name)?;
            Ok((name, fields::uuid("guest.disks.disk_uuid", &disk.disk_uuid)?, disk.size_mib))
        };
        Ok(Guest {
            uuid: fields::uuid("guest.instance_uuid", &wire.instance_uuid)?,
            name: fields::instance("guest.name", &wire.name)?,
            memory_mib: wire.memory_mib,
            vcpus: wire.vcpus,
            disks: wire.disks.iter().map(disk).collect::<Result<_, _>>()?,
            ip: wire.ip.map(|ip| fields::ip("guest.ip", &ip)).transpose()?,
            mac: fields::text("guest.mac", wire.mac, 17, "aa:bb:cc:dd:ee:ff is expected")?,
            os: fields::os("guest.os", &wire.os)?,
            hypervisor: HypervisorParams {
                kind: fields::hypervisor("guest.hypervisor", &wire.hypervisor)?,
                accel: fields::accel("guest.accel", &wire.accel)?,
                nic: fields::nic("guest.nic", &wire.nic)?,
            },
            generation: wire.generation,
        })
    }
}

impl From<NodeCall> for v1::NodeCall {
    fn from(call: NodeCall) -> Self {
        use v1::node_call::Call as Wire;
        let call = match call {
            NodeCall::DiskCreate { disk, size_mib } => {
                Wire::DiskCreate(v1::DiskCreate { disk_uuid: disk.to_string(), size_mib })
            }
            NodeCall::DiskRemove { disk } => Wire::DiskRemove(v1::DiskRemove { disk_uuid: disk.to_string() }),
            NodeCall::DiskAbsent { disk } => Wire::DiskAbsent(v1::DiskAbsent { disk_uuid: disk.to_string() }),
            NodeCall::GuestStart { guest, force, paused } => {
                Wire::GuestStart(v1::GuestStart { guest: Some(guest.into()), force, paused })
            }
            NodeCall::GuestResume { instance, name } => {
                Wire::GuestResume(v1::GuestResume { instance_uuid: instance.to_string(), name: name.into() })
            }
            NodeCall::GuestStop { instance, name, timeout_ms } => Wire::GuestStop(v1::GuestStop {
                instance_uuid: instance.to_string(),
                name: name.into(),
                timeout_ms,
            }),
            NodeCall::GuestReboot { instance, name, timeout_ms } => Wire::GuestReboot(v1::GuestReboot {
                instance_uuid: instance.to_string(),
                name: name.into(),
                timeout_ms,
            }),
            NodeCall::OsCreate { guest, reinstall } => {
                Wire::OsCreate(v1::OsCreate { guest: Some(guest.into()), reinstall })
            }
            NodeCall::OsRename { guest, old_name } => {
                Wire::OsRename(v1::OsRename { guest: Some(guest.into()), old_name: old_name.into() })
            }
            NodeCall::DiskResize { disk, size_mib } => {
                Wire::DiskResize(v1::DiskResize { disk_uuid: disk.to_string(), size_mib })
            }
            NodeCall::ExportStage { export } => {
                Wire::ExportStage(v1::ExportStage { export_uuid: export.to_string() })
            }
            NodeCall::ExportPublish { export, manifest } => {
                Wire::ExportPublish(v1::ExportPublish { export_uuid: export.to_string(), manifest })
            }
            NodeCall::ExportRemove { export } => {
                Wire::ExportRemove(v1::ExportRemove { export_uuid: export.to_string() })
            }
            NodeCall::ExportCheck { export } => {
                Wire::ExportCheck(v1::ExportCheck { export_uuid: export.to_string() })
            }
            NodeCall::DisksSnapshot { instance, name, disks } => {
                let disk = |(disk, snapshot): (Uuid, Uuid)| v1::DiskSnapshot {
                    disk_uuid: disk.to_string(),
                    snapshot_uuid: snapshot.to_string(),
                };
                Wire::DisksSnapshot(v1::DisksSnapshot {
                    instance_uuid: instance.to_string(),
                    name: name.into(),
                    disks: disks.into_iter().map(disk).collect(),
                })
            }
            NodeCall::Mirror(call) => Wire::Mirror(call.into()),
            NodeCall::Migration(call) => Wire::Migration(call.into()),
        };
        v1::NodeCall { call: Some(call) }
    }
}

impl TryFrom<v1::NodeCall> for NodeCall {
    type Error = WireError;

    fn try_from(wire: v1::NodeCall) -> Result<Self, WireError> {
        use v1::node_call::Call as Wire;
        Ok(match wire.call.ok_or(WireError::Missing { field: "call" })? {
            Wire::DiskCreate(w) => {
                NodeCall::DiskCreate { disk: fields::uuid("disk_uuid", &w.disk_uuid)?, size_mib: w.size_mib }
            }
            Wire::DiskRemove(w) => NodeCall::DiskRemove { disk: fields::uuid("disk_uuid", &w.disk_uuid)? },
            Wire::DiskAbsent(w) => NodeCall::DiskAbsent { disk: fields::uuid("disk_uuid", &w.disk_uuid)? },
            Wire::GuestStart(w) => NodeCall::GuestStart {
                guest: w.guest.ok_or(WireError::Missing { field: "guest" })?.try_into()?,
                force: w.force,
                paused: w.paused,
            },
            Wire::GuestResume(w) => NodeCall::GuestResume {
                instance: fields::uuid("instance_uuid", &w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
            },
            Wire::GuestStop(w) => NodeCall::GuestStop {
                instance: fields::uuid("instance_uuid", &w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
                timeout_ms: w.timeout_ms,
            },
            Wire::GuestReboot(w) => NodeCall::GuestReboot {
                instance: fields::uuid("instance_uuid", &w.instance_uuid)?,
                name: fields::instance("name", &w.name)?,
                timeout_ms: w.timeout_ms,
            },
            Wire::OsCreate(w) => NodeCall::OsCreate {
                guest: w.guest.ok_or(WireError::Missing { field: "guest" })?.try_into()?,
                reinstall: w.reinstall,
            },
            Wire::OsRename(w) => NodeCall::OsRename {
                guest: w.guest.ok_or(WireError::Missing { field: "guest" })?.try_into()?,
                old_name: fields::instance("old_name", &w.old_name)?,
            },
            Wire::DiskResize(w) => {
                NodeCall::DiskResize { disk: fields::uuid("disk_uuid", &w.disk_uuid)?, size_mib: w.size_mib }
            }
            Wire::ExportStage(w) => {
                NodeCall::ExportStage { export: fields::uuid("export_uuid", &w.export_uuid)? }
            }
            Wire::ExportPublish(w) => NodeCall::ExportPublish {
                export: fields::uuid("export_uuid", &w.export_uuid)?,
                manifest: w.manifest,
            },
            Wire::ExportRemove(w) => {
                NodeCall::ExportRemove { export: fields::uuid("export_uuid", &w.export_uuid)? }
            }
            Wire::ExportCheck(w) => {
                NodeCall::ExportCheck { export: fields::uuid("export_uuid", &w.export_uuid)? }
            }
            Wire::DisksSnapshot(w) => {
                let disk = |disk: &v1::DiskSnapshot| -> Result<(Uuid, Uuid), WireError> {
                    let snapshot = fields::uuid("disks.snapshot_uuid", &disk.snapshot_uuid)?;
                    Ok((fields::uuid("disks.disk_uuid", &disk.disk_uuid)?, snapshot))
                };
                NodeCall::DisksSnapshot {
                    instance: fields::uuid("instance_uuid", &w.instance_uuid)?,
                    name: fields::instance("name", &w.name)?,
                    disks: w.disks.iter().map(disk).collect::<Result<_, _>>()?,
                }
            }
            Wire::Mirror(w) => NodeCall::Mirror(w.try_into()?),
            Wire::Migration(w) => NodeCall::Migration(w.try_into()?),
        })
    }
}

impl From<Image> for v1::ImageRef {
    fn from(image: Image) -> Self {
        use v1::image_ref::Image as Wire;
        let image = match image {
            Image::Disk { disk } => Wire::DiskUuid(disk.to_string()),
            Image::Export { export, name } => {
                Wire::Export(v1::ExportImage { export_uuid: export.to_string(), name })
            }
        };
        v1::ImageRef { image: Some(image) }
    }
}

impl TryFrom<v1::ImageRef> for Image {
    type Error = WireError;

    fn try_from(wire: v1::ImageRef) -> Result<Self, WireError> {
        use v1::image_ref::Image as Wire;
        Ok(match wire.image.ok_or(WireError::Missing { field: "image" })? {
            Wire::DiskUuid(disk) => Image::Disk { disk: fields::uuid("disk_uuid", &disk)? },
            Wire::Export(w) => {
                let export = fields::uuid("export_uuid", &w.export_uuid)?;
                // A file name of ours and nothing else: it becomes part of a path on the node.
                let known = [DiskName::Sda, DiskName::Sdb].iter().any(|disk| disk.image() == w.name);
                if !known {
                    return Err(WireError::wrong("name", &w.name, "sda.raw or sdb.raw is expected"));
                }
                Image::Export { export, name: w.name }
            }
        })
    }
}

impl From<Output> for v1::Output {
    fn from(output: Output) -> Self {
        // All else is made by calls that the master carries out itself.
        let mirror =
            |(copy, status): (Uuid, MirrorStatus)| (copy.to_string(), v1::MirrorStatus::from(status).into());
        v1::Output {
            path: output.path.unwrap_or_default(),
            ports: output.ports.into_iter().map(|(uuid, port)| (uuid.to_string(), port.into())).collect(),
            mirrors: output.mirrors.into_iter().map(mirror).collect(),
            same_uuids: output.same.iter().map(Uuid::to_string).collect(),
            machines: output
                .machines
                .into_iter()
                .map(|(uuid, machine)| (uuid.to_string(), mirror::machine_to_wire(machine)))
                .collect(),
        }
    }
}

impl TryFrom<v1::Output> for Output {
    type Error = WireError;

    fn try_from(wire: v1::Output) -> Result<Self, WireError> {
        Ok(Output {
            path: Some(wire.path).filter(|path| !path.is_empty()),
            ports: mirror::by_uuid("ports", &wire.ports, mirror::output_port)?,
            mirrors: mirror::by_uuid("mirrors", &wire.mirrors, |status| {
                mirror::mirror_status("mirrors", status)
            })?,
            same: wire
                .same_uuids
                .iter()
                .map(|text| fields::uuid("same_uuids", text))
                .collect::<Result<_, _>>()?,
            machines: mirror::by_uuid("machines", &wire.machines, mirror::machine_from_wire)?,
            ..Output::default()
        })
    }
}

impl TryFrom<v1::Answer> for CallAnswer {
    type Error = WireError;

    fn try_from(wire: v1::Answer) -> Result<Self, WireError> {
        use v1::answer::Answer as Wire;
        Ok(match wire.answer.ok_or(WireError::Missing { field: "answer" })? {
            Wire::Done(output) => CallAnswer::Done(output.try_into()?),
            Wire::Failed(why) => CallAnswer::Failed(why),
            // What it may have done is undone: undoing what was not done is fine.
            Wire::Lost(_) => CallAnswer::Failed(
                "the node's daemon was restarted meanwhile: the outcome is unknown".to_owned(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use muster_core::{
        calls::{Call, Machine, MasterCall},
        hypervisor::{Accel, NicMode},
        ops::{Given, JobFacts, Op, StepKind, all_examples},
    };

    use super::*;

    /// All calls that the examples' plans hold.
    fn calls() -> Vec<Call> {
        let mut calls = Vec::new();
        for (cluster, fresh, op) in all_examples() {
            let local =
                if let Op::MasterFailover(op) = &op { op.new_master.clone() } else { cluster.master.clone() };
            let job = JobFacts { id: 1, user: "root", reason: "", dry_run: false };
            let plan = op
                .prepare(Given { cluster: &cluster, fresh: &fresh, local: &local, undone: &[] }, &job)
                .unwrap()
                .plan;
            for step in plan.steps {
                calls.push(step.call);
                if let StepKind::Undoable { undo } = step.kind {
                    calls.push(undo);
                }
            }
            calls.extend(plan.cleanups.into_iter().map(|(call, _)| call));
        }
        calls
    }

    #[test]
    fn every_call_and_image_survives_the_wire() {
        let mut kinds = std::collections::BTreeSet::new();
        for call in calls() {
            match call {
                Call::Node(_, call) => {
                    let wire = v1::NodeCall::from(call.clone());
                    kinds.insert(format!("{wire:?}").split(['(', '{']).nth(2).unwrap().to_owned());
                    assert_eq!(NodeCall::try_from(wire), Ok(call));
                }
                Call::Master(MasterCall::CopyImage { from, to, .. }) => {
                    for image in [from, to] {
                        assert_eq!(Image::try_from(v1::ImageRef::from(image.clone())), Ok(image));
                    }
                }
                Call::Master(_) => {}
            }
        }
        assert_eq!(kinds.len(), 17, "the examples hold every kind: {kinds:?}");
    }

    #[test]
    fn outputs_and_answers() {
        let output = Output {
            path: Some("/srv/export/1".to_owned()),
            ports: [(Uuid::nil(), 4711)].into(),
            mirrors: [(Uuid::nil(), MirrorStatus::Broken), (Uuid::max(), MirrorStatus::Ready)].into(),
            same: [Uuid::max()].into(),
            machines: [
                (Uuid::nil(), Machine { memory_mib: 96, vcpus: 1, accel: None, nic: None }),
                (
                    Uuid::max(),
                    Machine {
                        memory_mib: 512,
                        vcpus: 2,
                        accel: Some(Accel::Kvm),
                        nic: Some(NicMode::Bridge("br0".to_owned())),
                    },
                ),
            ]
            .into(),
            ..Output::default()
        };
        assert_eq!(Output::try_from(v1::Output::from(output.clone())), Ok(output.clone()));
        assert_eq!(Output::try_from(v1::Output::from(Output::default())), Ok(Output::default()));
        let wrong = v1::Output { ports: [("x".to_owned(), 1)].into(), ..v1::Output::default() };
        assert!(Output::try_from(wrong).is_err());
        let wrong = v1::Output { ports: [(Uuid::nil().to_string(), 70_000)].into(), ..v1::Output::default() };
        assert!(Output::try_from(wrong).is_err());
        let answer = |answer| CallAnswer::try_from(v1::Answer { answer });
        assert_eq!(answer(None), Err(WireError::Missing { field: "answer" }));
        let done = answer(Some(v1::answer::Answer::Done(output.clone().into())));
        assert_eq!(done, Ok(CallAnswer::Done(output)));
        let lost = answer(Some(v1::answer::Answer::Lost(v1::ExecuteGoing {})));
        assert!(matches!(lost, Ok(CallAnswer::Failed(_))));
    }

    #[test]
    fn an_image_name_is_no_path() {
        for name in ["", "../sda.raw", "/etc/passwd", "sda.raw/..", "sdc.raw"] {
            let export =
                v1::ExportImage { export_uuid: uuid::Uuid::nil().to_string(), name: name.to_owned() };
            let wire = v1::ImageRef { image: Some(v1::image_ref::Image::Export(export)) };
            assert!(Image::try_from(wire).is_err(), "{name}");
        }
    }
}
