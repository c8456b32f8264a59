//! A model of what calls change: disk files, guests and exports on the nodes, certificates, the office.
//!
//! Every call may come twice and then changes nothing more, as the contract of calls wants it.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    calls::{
        Call, CallAnswer, Image, MasterCall, MigrationCall, MirrorCall, MirrorStatus, NodeCall, Output, Sync,
    },
    model::Cluster,
    names::NodeName,
};
use uuid::Uuid;

/// A disk's file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    size_mib: u64,
    /// What was written, in words; empty for a new file.
    content: String,
}

/// An export's directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Directory {
    published: bool,
    images: BTreeMap<String, String>,
}

/// Everything outside of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct World {
    local: Option<NodeName>,
    offline: BTreeSet<NodeName>,
    disks: BTreeMap<(NodeName, Uuid), File>,
    /// Files that were gone from the start.
    lost: BTreeSet<Uuid>,
    guests: BTreeSet<(NodeName, Uuid)>,
    /// Guests that wait for their state on another node than they run on.
    awaited: BTreeSet<(NodeName, Uuid)>,
    exports: BTreeMap<(NodeName, Uuid), Directory>,
    ca: bool,
    /// The certificate that a node's daemon uses.
    certificates: BTreeMap<NodeName, String>,
    /// Certificates signed for pending hosts.
    signed: BTreeMap<NodeName, String>,
}

impl World {
    /// The world that a configuration describes.
    pub(crate) fn of(cluster: Option<&Cluster>, local: &NodeName) -> World {
        let mut world = World { local: Some(local.clone()), ..World::default() };
        let Some(cluster) = cluster else { return world };
        world.ca = true;
        for node in cluster.nodes.values() {
            world.certificates.insert(node.name.clone(), node.fingerprints[0].clone());
            if node.offline {
                world.offline.insert(node.name.clone());
            }
        }
        for instance in cluster.instances.values() {
            let primary = &instance.primary;
            for disk in &instance.disks {
                let file =
                    File { size_mib: disk.size_mib, content: format!("{} {:?}", instance.name, disk.name) };
                world.disks.insert((primary.clone(), disk.uuid), file.clone());
                for copy in &disk.mirrors {
                    world.disks.insert((copy.node.clone(), copy.uuid), file.clone());
                }
            }
            if instance.up && !world.offline.contains(primary) {
                world.guests.insert((primary.clone(), instance.uuid));
            }
        }
        for export in cluster.exports.values() {
            let images = export.disks.iter().map(|(disk, _)| (disk.image(), format!("saved {disk:?}")));
            let directory = Directory { published: true, images: images.collect() };
            world.exports.insert((export.node.clone(), export.uuid), directory);
        }
        world
    }

    /// Files of a disk are gone, though the configuration says that they are there.
    pub(crate) fn lose(&mut self, files: impl Iterator<Item = Uuid>) {
        self.lost = files.collect();
        self.disks.retain(|(_, disk), _| !self.lost.contains(disk));
    }

    /// Carries a call out.
    pub(crate) fn apply(&mut self, call: &Call) -> CallAnswer {
        let done = match call {
            Call::Node(node, _) if self.offline.contains(node) => {
                return CallAnswer::NotReached(format!("{node} is away"));
            }
            Call::Node(node, call) => self.apply_node(node, call),
            Call::Master(call) => self.apply_master(call),
        };
        match done {
            Ok(output) => CallAnswer::Done(output),
            Err(why) => CallAnswer::Failed(why),
        }
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each call")]
    fn apply_node(&mut self, node: &NodeName, call: &NodeCall) -> Result<Output, String> {
        match call {
            NodeCall::DiskCreate { disk, size_mib } => {
                let new = File { size_mib: *size_mib, content: String::new() };
                let file = self.disks.entry((node.clone(), *disk)).or_insert(new);
                if file.size_mib != *size_mib {
                    return Err(format!("disk {disk} has another size"));
                }
            }
            NodeCall::DiskRemove { disk } => drop(self.disks.remove(&(node.clone(), *disk))),
            NodeCall::DiskAbsent { disk } => {
                if self.disks.contains_key(&(node.clone(), *disk)) {
                    return Err(format!("disk {disk} is still there"));
                }
            }
            NodeCall::GuestStart { guest, .. } => {
                if let Some((other, _)) =
                    self.guests.iter().find(|(at, uuid)| *uuid == guest.uuid && at != node)
                {
                    return Err(format!("{} runs on {other}", guest.name));
                }
                for (name, disk, _) in &guest.disks {
                    if !self.disks.contains_key(&(node.clone(), *disk)) {
                        return Err(format!("{} has no file for {name:?} on {node}", guest.name));
                    }
                }
                self.guests.insert((node.clone(), guest.uuid));
            }
            NodeCall::GuestStop { instance, .. } => {
                self.guests.remove(&(node.clone(), *instance));
                self.awaited.remove(&(node.clone(), *instance));
            }
            NodeCall::GuestResume { instance, name } | NodeCall::GuestReboot { instance, name, .. } => {
                if !self.guests.contains(&(node.clone(), *instance)) {
                    return Err(format!("{name} does not run on {node}"));
                }
            }
            // What is on the disks is not part of this world.
            NodeCall::OsCreate { guest, .. } | NodeCall::OsRename { guest, .. } => {
                if self.guests.contains(&(node.clone(), guest.uuid)) {
                    return Err(format!("{} runs on {node}", guest.name));
                }
                if let Some((name, ..)) =
                    guest.disks.iter().find(|(_, disk, _)| !self.disks.contains_key(&(node.clone(), *disk)))
                {
                    return Err(format!("{} has no file for {name:?} on {node}", guest.name));
                }
            }
            NodeCall::DiskResize { disk, size_mib } => {
                let file = self.disks.get_mut(&(node.clone(), *disk)).ok_or("no such disk")?;
                file.size_mib = *size_mib;
            }
            NodeCall::ExportStage { export } => {
                self.exports.entry((node.clone(), *export)).or_default();
            }
            NodeCall::ExportPublish { export, manifest } => {
                assert!(!manifest.is_empty());
                let directory = self.exports.get_mut(&(node.clone(), *export)).ok_or("not staged")?;
                directory.published = true;
                return Ok(Output { path: Some(format!("/srv/{export}")), ..Output::default() });
            }
            NodeCall::ExportRemove { export } => drop(self.exports.remove(&(node.clone(), *export))),
            NodeCall::ExportCheck { export } => {
                let found = self.exports.get(&(node.clone(), *export));
                found.filter(|directory| directory.published).ok_or("no such export")?;
            }
            NodeCall::DisksSnapshot { instance, name, disks } => {
                if !self.guests.contains(&(node.clone(), *instance)) {
                    return Err(format!("{name} does not run on {node}"));
                }
                for (disk, snapshot) in disks {
                    let content = self.read(node, &Image::Disk { disk: *disk })?;
                    self.write(node, &Image::Disk { disk: *snapshot }, content)?;
                }
            }
            NodeCall::Mirror(call) => return self.apply_mirror(node, call),
            NodeCall::Migration(call) => return self.apply_migration(node, call),
        }
        Ok(Output::default())
    }

    fn apply_mirror(&mut self, node: &NodeName, call: &MirrorCall) -> Result<Output, String> {
        let ready = |copies: &[Uuid]| copies.iter().map(|copy| (*copy, MirrorStatus::Ready)).collect();
        match call {
            MirrorCall::Serve { copies, .. } => {
                for (copy, size_mib) in copies {
                    let file = self.disks.get(&(node.clone(), *copy)).ok_or("no such copy")?;
                    assert_eq!(file.size_mib, *size_mib);
                }
                let ports = copies.iter().zip(4001..).map(|((copy, _), port)| (*copy, port)).collect();
                return Ok(Output { ports, ..Output::default() });
            }
            MirrorCall::Clean { copies, .. } => {
                return Ok(Output { same: copies.iter().copied().collect(), ..Output::default() });
            }
            MirrorCall::Check { copies, .. } | MirrorCall::Served { copies, .. } => {
                return Ok(Output { mirrors: ready(copies), ..Output::default() });
            }
            MirrorCall::Start { instance, name, peer, mirrors, sync, .. } => {
                if !self.guests.contains(&(node.clone(), *instance)) {
                    return Err(format!("{name} does not run on {node}"));
                }
                if *sync == Sync::Unproven {
                    return Err("nobody has said that the copies are the same".to_owned());
                }
                for link in mirrors {
                    link.port.ok_or("the copy is not served")?;
                    let content = self.read(node, &Image::Disk { disk: link.disk })?;
                    let copy = Image::Disk { disk: link.copy };
                    match sync {
                        Sync::Full => self.write(peer, &copy, content)?,
                        Sync::Same | Sync::Unproven => {
                            if !self.offline.contains(peer) {
                                assert_eq!(
                                    self.read(peer, &copy)?,
                                    content,
                                    "{name}: the files are the same"
                                );
                            }
                        }
                    }
                }
            }
            MirrorCall::Release { .. } | MirrorCall::Trust { .. } | MirrorCall::Stop { .. } => {}
        }
        Ok(Output::default())
    }

    fn apply_migration(&mut self, node: &NodeName, call: &MigrationCall) -> Result<Output, String> {
        match call {
            MigrationCall::Receive { guest, .. } => {
                self.awaited.insert((node.clone(), guest.uuid));
                return Ok(Output { ports: BTreeMap::from([(guest.uuid, 4444)]), ..Output::default() });
            }
            MigrationCall::Send { instance, name, port, .. } => {
                port.ok_or("nobody awaits it")?;
                if !self.guests.contains(&(node.clone(), *instance)) {
                    return Err(format!("{name} does not run on {node}"));
                }
            }
            MigrationCall::Finish { instance, .. } => {
                if self.guests.remove(&(node.clone(), *instance)) {
                    let arrived = self.awaited.iter().find(|(_, uuid)| uuid == instance).cloned();
                    let arrived = arrived.ok_or("nobody awaits it")?;
                    self.awaited.remove(&arrived);
                    self.guests.insert(arrived);
                }
            }
            MigrationCall::Machine { .. } | MigrationCall::Cancel { .. } => {}
        }
        Ok(Output::default())
    }

    fn read(&self, node: &NodeName, image: &Image) -> Result<String, String> {
        match image {
            Image::Disk { disk } => self.disks.get(&(node.clone(), *disk)).map(|file| file.content.clone()),
            Image::Export { export, name } => {
                self.exports.get(&(node.clone(), *export)).and_then(|dir| dir.images.get(name).cloned())
            }
        }
        .ok_or_else(|| format!("{node} has no {image:?}"))
    }

    fn write(&mut self, node: &NodeName, image: &Image, content: String) -> Result<(), String> {
        match image {
            Image::Disk { disk } => {
                let file = self.disks.get_mut(&(node.clone(), *disk)).ok_or("no such disk")?;
                file.content = content;
            }
            Image::Export { export, name } => {
                let directory = self.exports.get_mut(&(node.clone(), *export)).ok_or("no such export")?;
                directory.images.insert(name.clone(), content);
            }
        }
        Ok(())
    }

    fn apply_master(&mut self, call: &MasterCall) -> Result<Output, String> {
        let signed = |node: &NodeName, fingerprint: String| Output {
            node: Some(node.clone()),
            fingerprint: Some(fingerprint),
            ..Output::default()
        };
        match call {
            MasterCall::CopyImage { from_node, from, to_node, to } => {
                if let Some(away) = [from_node, to_node].into_iter().find(|node| self.offline.contains(*node))
                {
                    return Err(format!("{away} is away"));
                }
                let content = self.read(from_node, from)?;
                self.write(to_node, to, content)?;
            }
            MasterCall::CaCreate { .. } => self.ca = true,
            MasterCall::CaRemove => self.ca = false,
            MasterCall::LocalNodeSign { node, uuid, .. } => {
                if !self.ca {
                    return Err("no CA".to_owned());
                }
                let fingerprint = format!("local {uuid}");
                self.certificates.insert(node.clone(), fingerprint.clone());
                return Ok(signed(node, fingerprint));
            }
            MasterCall::LocalNodeLeave => {
                let local = self.local.as_ref().expect("set at the start");
                self.certificates.remove(local);
            }
            MasterCall::PendingSign { node, uuid, .. } => {
                let fingerprint = format!("signed {uuid}");
                self.signed.insert(node.clone(), fingerprint.clone());
                return Ok(signed(node, fingerprint));
            }
            MasterCall::PendingWithdraw { node } => drop(self.signed.remove(node)),
            MasterCall::PendingDeliver { node, .. } => {
                self.signed.get(node).ok_or("not signed")?;
            }
            MasterCall::Fence { node, .. } => assert!(self.offline.contains(node), "{node} is asked first"),
            MasterCall::CertificateRenew { node } => {
                let fingerprint = format!("renewed {node}");
                self.certificates.insert(node.clone(), fingerprint.clone());
                return Ok(signed(node, fingerprint));
            }
            MasterCall::ClientSign { uuid, .. } => {
                return Ok(Output {
                    fingerprint: Some(format!("client {uuid}")),
                    result: BTreeMap::from([("certificate".to_owned(), "PEM".to_owned())]),
                    ..Output::default()
                });
            }
            MasterCall::NodeLeave { node, .. } => drop(self.certificates.remove(node)),
        }
        Ok(Output::default())
    }

    /// Invariant: the world holds what the configuration says, and nothing else but what is still to be destroyed.
    pub(crate) fn check(&self, cluster: Option<&Cluster>) {
        let Some(cluster) = cluster else {
            assert!(!self.ca && self.certificates.is_empty() && self.disks.is_empty(), "{self:?}");
            return;
        };
        assert!(self.ca);
        for node in cluster.nodes.values().filter(|node| !node.offline) {
            let used = [self.certificates.get(&node.name), self.signed.get(&node.name)];
            let pinned = used.into_iter().flatten().any(|used| node.fingerprints.contains(used));
            assert!(pinned, "{}: {used:?} are not among {:?}", node.name, node.fingerprints);
        }
        assert!(cluster.clients.values().all(|client| !client.fingerprint.is_empty()));
        self.check_disks(cluster);
        let away = |node: &NodeName| self.offline.contains(node);
        let up = cluster.instances.values().filter(|instance| instance.up && !away(&instance.primary));
        let guests: BTreeSet<_> = up.map(|instance| (instance.primary.clone(), instance.uuid)).collect();
        assert_eq!(self.guests, guests, "guests");
        let mut exports: BTreeSet<_> = self.exports.keys().cloned().collect();
        for export in cluster.exports.values() {
            assert!(!export.path.is_empty(), "the path is filled in");
            let key = (export.node.clone(), export.uuid);
            assert!(self.exports[&key].published);
            let images: Vec<String> = export.disks.iter().map(|(disk, _)| disk.image()).collect();
            assert!(self.exports[&key].images.keys().eq(&images), "{images:?}");
            exports.remove(&key);
        }
        for cleanup in cluster.cleanups.values() {
            if let Call::Node(node, NodeCall::ExportRemove { export }) = &cleanup.call {
                exports.remove(&(node.clone(), *export));
            }
        }
        assert!(exports.is_empty(), "nobody knows of exports {exports:?}");
    }

    fn check_disks(&self, cluster: &Cluster) {
        let mut unknown: BTreeSet<_> = self.disks.keys().cloned().collect();
        for instance in cluster.instances.values() {
            for disk in &instance.disks {
                let copies = disk.mirrors.iter().map(|copy| (copy.node.clone(), copy.uuid));
                for key in std::iter::once((instance.primary.clone(), disk.uuid)).chain(copies) {
                    let size_mib = self.disks.get(&key).map(|file| file.size_mib);
                    let is_lost = size_mib.is_none() && self.lost.contains(&key.1);
                    assert!(
                        size_mib == Some(disk.size_mib) || is_lost,
                        "{} {key:?} {size_mib:?}",
                        instance.name
                    );
                    unknown.remove(&key);
                }
            }
        }
        for cleanup in cluster.cleanups.values() {
            if let Call::Node(node, NodeCall::DiskRemove { disk }) = &cleanup.call {
                unknown.remove(&(node.clone(), *disk));
            }
        }
        assert!(unknown.is_empty(), "nobody knows of files {unknown:?}");
    }
}
