//! What the engine asks of nodes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Guest, Machine, MigrationCall, MirrorCall, Output, Sync};
use crate::names::InstanceName;

/// A call that a node carries out; each may come twice and then gives the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "call")]
pub enum NodeCall {
    /// Makes a sparse raw file.
    DiskCreate {
        /// Names the file.
        disk: Uuid,
        /// Size in MiB.
        size_mib: u64,
    },
    /// Removes a disk's file.
    DiskRemove {
        /// Names the file.
        disk: Uuid,
    },
    /// Makes sure that there is no file of a disk, before another takes its place.
    DiskAbsent {
        /// Names the file.
        disk: Uuid,
    },
    /// Starts a guest.
    GuestStart {
        /// All that the hypervisor must know.
        guest: Guest,
        /// `--force`.
        force: bool,
        /// It does not compute until [`NodeCall::GuestResume`]: its mirrors come first.
        #[serde(default)]
        paused: bool,
    },
    /// Makes a guest that was started paused compute; one that does is fine.
    GuestResume {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
    },
    /// Stops a guest.
    GuestStop {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// Limit of a clean shutdown in milliseconds, then it is forced.
        timeout_ms: u64,
    },
    /// Makes a guest go through its firmware again; one that is down is not started.
    GuestReboot {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// Limit of a clean shutdown in milliseconds, then the guest is reset; 0 resets it at once.
        timeout_ms: u64,
    },
    /// Installs an OS definition on a guest's disks; the guest is down.
    OsCreate {
        /// The guest, with its disks and OS.
        guest: Guest,
        /// The disks hold an older system.
        reinstall: bool,
    },
    /// Tells an OS definition that its instance has another name; the guest is down.
    OsRename {
        /// The guest, with its new name.
        guest: Guest,
        /// The old name.
        old_name: InstanceName,
    },
    /// Gives a disk's file another size; nothing uses it, and what is cut off holds no data.
    DiskResize {
        /// Names the file.
        disk: Uuid,
        /// The size afterwards, in MiB.
        size_mib: u64,
    },
    /// Makes an export's staging directory.
    ExportStage {
        /// Names the directory.
        export: Uuid,
    },
    /// Writes the manifest and renames the staged export into place.
    ExportPublish {
        /// Names the directory.
        export: Uuid,
        /// JSON text.
        manifest: String,
    },
    /// Removes an export, staged or published.
    ExportRemove {
        /// Names the directory.
        export: Uuid,
    },
    /// Checks the images of a published export against the checksums that were written with it.
    ExportCheck {
        /// Names the directory.
        export: Uuid,
    },
    /// Copies what all disks of a running guest hold at one moment into new files.
    DisksSnapshot {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// Each disk's file, and the new one's.
        disks: Vec<(Uuid, Uuid)>,
    },
    /// About copies that follow their disks.
    Mirror(MirrorCall),
    /// About a guest that moves while it runs.
    Migration(MigrationCall),
}

impl NodeCall {
    pub(super) fn text(&self) -> String {
        match self {
            NodeCall::DiskCreate { disk, size_mib } => format!("create disk {disk} of {size_mib} MiB"),
            NodeCall::DiskRemove { disk } => format!("remove disk {disk}"),
            NodeCall::DiskAbsent { disk } => format!("see that disk {disk} is gone"),
            NodeCall::GuestStart { guest, .. } => format!("start {}", guest.name),
            NodeCall::GuestResume { name, .. } => format!("resume {name}"),
            NodeCall::GuestStop { name, .. } => format!("stop {name}"),
            NodeCall::GuestReboot { name, .. } => format!("reboot {name}"),
            NodeCall::OsCreate { guest, reinstall: false } => {
                format!("install {} on {}", guest.os, guest.name)
            }
            NodeCall::OsCreate { guest, reinstall: true } => {
                format!("install {} again on {}", guest.os, guest.name)
            }
            NodeCall::OsRename { guest, old_name } => {
                format!("rename {old_name} to {} on its disks", guest.name)
            }
            NodeCall::DiskResize { disk, size_mib } => format!("resize disk {disk} to {size_mib} MiB"),
            NodeCall::ExportStage { export } => format!("prepare export {export}"),
            NodeCall::ExportPublish { export, .. } => format!("publish export {export}"),
            NodeCall::ExportRemove { export } => format!("remove export {export}"),
            NodeCall::ExportCheck { export } => format!("check export {export}"),
            NodeCall::DisksSnapshot { name, .. } => format!("copy the disks of {name} as they are now"),
            NodeCall::Mirror(call) => call.text(),
            NodeCall::Migration(call) => call.text(),
        }
    }

    /// The disk file, export or guest that the call is about; the first where there are several.
    pub(super) fn object(&self) -> Option<Uuid> {
        match self {
            NodeCall::DiskCreate { disk, .. }
            | NodeCall::DiskRemove { disk }
            | NodeCall::DiskAbsent { disk }
            | NodeCall::DiskResize { disk, .. } => Some(*disk),
            NodeCall::GuestStart { guest, .. }
            | NodeCall::OsCreate { guest, .. }
            | NodeCall::OsRename { guest, .. } => Some(guest.uuid),
            NodeCall::GuestStop { instance, .. }
            | NodeCall::GuestResume { instance, .. }
            | NodeCall::GuestReboot { instance, .. }
            | NodeCall::DisksSnapshot { instance, .. } => Some(*instance),
            NodeCall::ExportStage { export }
            | NodeCall::ExportPublish { export, .. }
            | NodeCall::ExportRemove { export }
            | NodeCall::ExportCheck { export } => Some(*export),
            NodeCall::Mirror(call) => call.object(),
            NodeCall::Migration(call) => Some(call.instance()),
        }
    }

    /// Fills in what only an earlier step's output knows: the ports at which copies and guests are awaited, which copies
    /// are the same as their disks, what a guest was started with.
    pub fn fill(&mut self, outputs: &[Output]) {
        let port = |uuid: &Uuid| outputs.iter().rev().find_map(|output| output.ports.get(uuid)).copied();
        match self {
            NodeCall::Mirror(MirrorCall::Start { mirrors, sync, .. }) => {
                for mirror in &mut *mirrors {
                    mirror.port = port(&mirror.copy);
                }
                // Two files are the same the other way round too.
                let is_same = |copy| outputs.iter().any(|output| output.same.contains(copy));
                if *sync == Sync::Unproven
                    && mirrors.iter().all(|link| is_same(&link.copy) || is_same(&link.disk))
                {
                    *sync = Sync::Same;
                }
            }
            NodeCall::Migration(MigrationCall::Send { instance, port: at, .. }) => *at = port(instance),
            NodeCall::Migration(MigrationCall::Receive { guest, .. }) => {
                let running = outputs.iter().rev().find_map(|output| output.machines.get(&guest.uuid));
                if let Some(Machine { memory_mib, vcpus, accel, nic }) = running.cloned() {
                    (guest.memory_mib, guest.vcpus) = (memory_mib, vcpus);
                    guest.hypervisor.accel = accel.unwrap_or(guest.hypervisor.accel);
                    guest.hypervisor.nic = nic.unwrap_or_else(|| guest.hypervisor.nic.clone());
                }
            }
            NodeCall::DiskCreate { .. }
            | NodeCall::DiskRemove { .. }
            | NodeCall::DiskAbsent { .. }
            | NodeCall::GuestStart { .. }
            | NodeCall::GuestResume { .. }
            | NodeCall::GuestStop { .. }
            | NodeCall::GuestReboot { .. }
            | NodeCall::OsCreate { .. }
            | NodeCall::OsRename { .. }
            | NodeCall::DiskResize { .. }
            | NodeCall::ExportStage { .. }
            | NodeCall::ExportPublish { .. }
            | NodeCall::ExportRemove { .. }
            | NodeCall::ExportCheck { .. }
            | NodeCall::DisksSnapshot { .. }
            | NodeCall::Mirror(_)
            | NodeCall::Migration(_) => {}
        }
    }
}
