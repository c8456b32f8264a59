//! What a node holds: disk files, guests, exports, and what calls make of them. Every call may come twice.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    calls::{CallAnswer, Image, NodeCall, Output},
    model::{Cluster, DiskName},
    names::NodeName,
};
use uuid::Uuid;

/// A disk's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) size_mib: u64,
    content: String,
}

/// An export's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) published: bool,
    images: BTreeMap<String, String>,
}

/// All that a node's backends hold; a daemon's crash takes nothing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) disks: BTreeMap<Uuid, File>,
    pub(crate) guests: BTreeSet<Uuid>,
    pub(crate) exports: BTreeMap<Uuid, Directory>,
}

impl Holdings {
    /// What a configuration says that a node holds.
    pub(crate) fn of(cluster: &Cluster, node: &NodeName) -> Self {
        let mut holdings = Holdings::default();
        for instance in cluster.instances.values() {
            for disk in &instance.disks {
                let file = File { size_mib: disk.size_mib, content: format!("{}", disk.uuid) };
                if instance.primary == *node {
                    holdings.disks.insert(disk.uuid, file.clone());
                }
                for copy in disk.mirrors.iter().filter(|copy| copy.node == *node) {
                    holdings.disks.insert(copy.uuid, file.clone());
                }
            }
            if instance.up && instance.primary == *node {
                holdings.guests.insert(instance.uuid);
            }
        }
        for export in cluster.exports.values().filter(|export| export.node == *node) {
            let image = |(disk, _): &(DiskName, u64)| (disk.image(), "saved".to_owned());
            let images = export.disks.iter().map(image).collect();
            holdings.exports.insert(export.uuid, Directory { published: true, images });
        }
        holdings
    }

    /// Carries a call out.
    pub(crate) fn apply(&mut self, call: &NodeCall) -> CallAnswer {
        match self.try_apply(call) {
            Ok(output) => CallAnswer::Done(output),
            Err(why) => CallAnswer::Failed(why),
        }
    }

    fn try_apply(&mut self, call: &NodeCall) -> Result<Output, String> {
        match call {
            NodeCall::DiskCreate { disk, size_mib } => {
                let new = File { size_mib: *size_mib, content: String::new() };
                let file = self.disks.entry(*disk).or_insert(new);
                if file.size_mib != *size_mib {
                    return Err(format!("disk {disk} has another size"));
                }
            }
            NodeCall::DiskRemove { disk } => drop(self.disks.remove(disk)),
            NodeCall::GuestStart { guest, .. } => {
                if let Some((name, ..)) =
                    guest.disks.iter().find(|(_, disk, _)| !self.disks.contains_key(disk))
                {
                    return Err(format!("{} has no file for {}", guest.name, name.as_str()));
                }
                self.guests.insert(guest.uuid);
            }
            NodeCall::GuestStop { instance, .. } => drop(self.guests.remove(instance)),
            NodeCall::GuestReboot { instance, name, .. } => {
                if !self.guests.contains(instance) {
                    return Err(format!("{name} does not run"));
                }
            }
            NodeCall::OsCreate { guest, .. } | NodeCall::OsRename { guest, .. } => {
                if self.guests.contains(&guest.uuid) {
                    return Err(format!("{} runs", guest.name));
                }
                if let Some((name, ..)) =
                    guest.disks.iter().find(|(_, disk, _)| !self.disks.contains_key(disk))
                {
                    return Err(format!("{} has no file for {}", guest.name, name.as_str()));
                }
            }
            NodeCall::DiskAbsent { disk } => {
                if self.disks.contains_key(disk) {
                    return Err(format!("disk {disk} is still there"));
                }
            }
            NodeCall::DiskResize { disk, size_mib } => {
                let file = self.disks.get_mut(disk).ok_or_else(|| format!("there is no disk {disk}"))?;
                file.size_mib = *size_mib;
            }
            NodeCall::ExportStage { export } => drop(self.exports.entry(*export).or_default()),
            NodeCall::ExportPublish { export, .. } => {
                self.exports.get_mut(export).ok_or("the export is not staged")?.published = true;
                return Ok(Output { path: Some(format!("/srv/{export}")), ..Output::default() });
            }
            NodeCall::ExportRemove { export } => drop(self.exports.remove(export)),
            NodeCall::ExportCheck { export } => {
                self.exports.get(export).filter(|directory| directory.published).ok_or("no such export")?;
            }
            NodeCall::GuestResume { instance, name } => {
                if !self.guests.contains(instance) {
                    return Err(format!("{name} does not run"));
                }
            }
            NodeCall::DisksSnapshot { disks, .. } => {
                for (disk, snapshot) in disks {
                    let content = self.read(&Image::Disk { disk: *disk })?;
                    self.write(&Image::Disk { disk: *snapshot }, content)?;
                }
            }
            // Its clusters have fake guests, which write nothing and do not migrate.
            NodeCall::Mirror(call) => return Err(format!("unexpected: {call:?}")),
            NodeCall::Migration(call) => return Err(format!("unexpected: {call:?}")),
        }
        Ok(Output::default())
    }

    /// Reads an image.
    pub(crate) fn read(&self, image: &Image) -> Result<String, String> {
        let found = match image {
            Image::Disk { disk } => self.disks.get(disk).map(|file| file.content.clone()),
            Image::Export { export, name } => {
                self.exports.get(export).and_then(|directory| directory.images.get(name).cloned())
            }
        };
        found.ok_or_else(|| format!("there is no {image:?}"))
    }

    /// Writes an image.
    pub(crate) fn write(&mut self, image: &Image, content: String) -> Result<(), String> {
        match image {
            Image::Disk { disk } => {
                self.disks.get_mut(disk).ok_or_else(|| format!("there is no {image:?}"))?.content = content;
            }
            Image::Export { export, name } => {
                let directory =
                    self.exports.get_mut(export).ok_or_else(|| format!("there is no {image:?}"))?;
                directory.images.insert(name.clone(), content);
            }
        }
        Ok(())
    }
}
