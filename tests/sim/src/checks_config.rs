//! The checkers on the configuration and on what nodes hold.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    calls::{Call, NodeCall},
    model::{Cluster, Node},
    names::NodeName,
};
use muster_master::store::cluster_from;
use uuid::Uuid;

use super::{check::Checker, holdings::Holdings, process::node_id, world::Simulation};

impl Simulation {
    /// A commit is published: it is what is stored and what the engine has, and it keeps the rules.
    pub(crate) fn see_published(&mut self) {
        let Some(process) = &self.process else { return };
        let stored = self.disk.borrow().with_records(cluster_from);
        let engine = process.driver.engine().cluster();
        let published = process.cluster.clone();
        let is_stored = stored.as_ref().is_ok_and(|stored| *stored == published);
        let is_known = engine == published.as_ref();
        if !is_stored || !is_known {
            let what = format!("published {published:?}, stored {stored:?}, engine {engine:?}");
            self.context.violate(Checker::StoreHoldsWhatIsPublished, what);
        }
        if let Some(cluster) = published {
            self.check_configuration(&cluster);
            self.switch_marked_off(&cluster);
            self.see_offline(&cluster);
            self.seen = cluster;
        }
    }

    /// Whoever has a node marked offline keeps it switched off until it is marked: where all healed while the job still
    /// waited, and guests were started there since, that is made good here.
    fn switch_marked_off(&mut self, cluster: &Cluster) {
        let was_offline = |node: &Node| self.seen.nodes.get(&node.name).is_some_and(|seen| seen.offline);
        let marked = cluster.nodes.values().filter(|node| node.offline && !was_offline(node));
        let marked: Vec<_> = marked.map(|node| node_id(&node.name)).collect();
        for node in marked {
            if !self.nodes[node].fenced {
                self.take_power(node);
                self.give_power(node);
            }
        }
    }

    /// Remembers when a node was marked offline, last.
    pub(crate) fn see_offline(&mut self, cluster: &Cluster) {
        let now = self.context.now();
        for node in self.seen.nodes.values().chain(cluster.nodes.values()).filter(|node| node.offline) {
            self.tracks.offline_ms.insert(node.name.clone(), now);
        }
    }

    pub(crate) fn check_configuration(&mut self, cluster: &Cluster) {
        if let Err(what) = check(cluster) {
            self.context.violate(Checker::ConfigurationHolds, what);
        }
    }

    pub(crate) fn check_guest_runs_once(&mut self) {
        let mut twice = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let both = node.holdings.guests.intersection(&other.holdings.guests);
                twice.extend(both.map(|guest| (*guest, node.name.clone(), other.name.clone())));
            }
        }
        for (guest, one, other) in twice {
            let what = format!("guest {guest} runs on {one} and on {other}");
            self.context.violate(Checker::GuestRunsOnce, what);
        }
    }

    /// What failed undos that were not made good and recorded cleanups name.
    fn undone(&self) -> Vec<Call> {
        let failed = self.tracks.failed_undos.values().flatten();
        failed.chain(self.seen.cleanups.values().map(|cleanup| &cleanup.call)).cloned().collect()
    }

    /// In the end: no file, guest or export that nobody knows of, and none missing.
    pub(crate) fn check_rest(&mut self) {
        let Some(process) = &self.process else { return };
        let Some(cluster) = process.cluster.clone() else { return };
        let undone = self.undone();
        for member in cluster.nodes.values().filter(|node| !node.offline) {
            if let Err(what) = self.check_node(&cluster, &member.name, &undone) {
                self.context.violate(Checker::NodesHoldWhatIsConfigured, what);
            }
        }
    }

    fn check_node(&self, cluster: &Cluster, name: &NodeName, undone: &[Call]) -> Result<(), String> {
        let (known, found) = (Holdings::of(cluster, name), &self.nodes[node_id(name)].holdings);
        let mut named = BTreeSet::new();
        for call in undone {
            if let Call::Node(node, call) = call
                && node == name
            {
                named.insert(subject(call));
            }
        }
        let differ = |what: &str, known: BTreeSet<Uuid>, found: BTreeSet<Uuid>, excused: &BTreeSet<Uuid>| {
            let odd: Vec<&Uuid> =
                known.symmetric_difference(&found).filter(|uuid| !excused.contains(uuid)).collect();
            let is_known = |uuid: &&Uuid| known.contains(*uuid);
            match odd.first() {
                None => Ok(()),
                Some(uuid) if is_known(uuid) => {
                    Err(format!("{name} has no {what} {uuid}, which is configured"))
                }
                Some(uuid) => Err(format!("{name} has {what} {uuid}, which nobody knows of")),
            }
        };
        differ("file", known.disks.keys().copied().collect(), found.disks.keys().copied().collect(), &named)?;
        differ(
            "export",
            known.exports.keys().copied().collect(),
            found.exports.keys().copied().collect(),
            &named,
        )?;
        for (uuid, file) in known.disks.iter().filter(|(uuid, _)| !named.contains(uuid)) {
            if found.disks.get(uuid).is_some_and(|found| found.size_mib != file.size_mib) {
                return Err(format!("{name}: file {uuid} has another size"));
            }
        }
        named.extend(&self.guests_lost);
        differ("guest", known.guests, found.guests.clone(), &named)?;
        let is_published = |uuid: &Uuid| found.exports.get(uuid).is_none_or(|directory| directory.published);
        match known.exports.keys().find(|uuid| !is_published(uuid)) {
            Some(uuid) => Err(format!("{name}: export {uuid} is not published")),
            None => Ok(()),
        }
    }
}

/// What a call is about.
fn subject(call: &NodeCall) -> Uuid {
    match call {
        NodeCall::DiskCreate { disk, .. }
        | NodeCall::DiskRemove { disk }
        | NodeCall::DiskAbsent { disk }
        | NodeCall::DiskResize { disk, .. } => *disk,
        NodeCall::GuestStart { guest, .. }
        | NodeCall::OsCreate { guest, .. }
        | NodeCall::OsRename { guest, .. } => guest.uuid,
        NodeCall::GuestStop { instance, .. }
        | NodeCall::GuestReboot { instance, .. }
        | NodeCall::GuestResume { instance, .. }
        | NodeCall::DisksSnapshot { instance, .. } => *instance,
        NodeCall::Migration(call) => call.instance(),
        // Nothing that the checks count is theirs.
        NodeCall::Mirror(_) => Uuid::nil(),
        NodeCall::ExportStage { export }
        | NodeCall::ExportPublish { export, .. }
        | NodeCall::ExportRemove { export }
        | NodeCall::ExportCheck { export } => *export,
    }
}

/// The rules of a configuration.
fn check(cluster: &Cluster) -> Result<(), String> {
    let mut uuids = BTreeSet::new();
    let mut once = |what: &str, uuid: Uuid| {
        if uuids.insert(uuid) { Ok(()) } else { Err(format!("{what} {uuid} has the uuid of something else")) }
    };
    once("cluster", cluster.uuid)?;
    let mut addresses: BTreeMap<std::net::IpAddr, String> = BTreeMap::new();
    let mut take = |ip: std::net::IpAddr, owner: String| match addresses.insert(ip, owner.clone()) {
        Some(other) if other != owner => Err(format!("{owner} and {other} both have the address {ip}")),
        Some(_) | None => Ok(()),
    };
    for (name, node) in &cluster.nodes {
        once("node", node.uuid)?;
        take(node.primary_ip, format!("node {name}"))?;
        take(node.secondary_ip, format!("node {name}"))?;
        if *name != node.name || node.fingerprints.is_empty() || (node.offline && node.drained) {
            return Err(format!("node {name} is odd: {node:?}"));
        }
    }
    if cluster.nodes.get(&cluster.master).is_none_or(|node| node.offline || node.drained) {
        return Err(format!("the master {} is no node that can work", cluster.master));
    }
    let mut macs = BTreeSet::new();
    for (name, instance) in &cluster.instances {
        once("instance", instance.uuid)?;
        if *name != instance.name || !macs.insert(&instance.mac) {
            return Err(format!("instance {name} is odd: {instance:?}"));
        }
        if let Some(ip) = instance.ip {
            take(ip, format!("instance {name}"))?;
        }
        let secondaries = instance.secondaries();
        let mut nodes = secondaries.iter().chain([&instance.primary]);
        if secondaries.len() > 1 || secondaries.contains(&instance.primary) {
            return Err(format!("instance {name} has its copies on {secondaries:?}"));
        }
        if let Some(gone) = nodes.find(|node| !cluster.nodes.contains_key(*node)) {
            return Err(format!("instance {name} is on {gone}, which is no node"));
        }
        let mut copies = BTreeSet::new();
        for disk in &instance.disks {
            once("disk", disk.uuid)?;
            for copy in &disk.mirrors {
                once("copy", copy.uuid)?;
                if !copies.insert(copy.id) || copy.id >= instance.next_mirror_id {
                    return Err(format!("instance {name} has the copy {} twice, or out of turn", copy.id));
                }
            }
        }
    }
    let mut exported = BTreeSet::new();
    for (uuid, export) in &cluster.exports {
        once("export", *uuid)?;
        let is_alone = exported.insert((&export.instance, &export.node));
        if *uuid != export.uuid || !is_alone || !cluster.nodes.contains_key(&export.node) {
            return Err(format!("export {uuid} is odd: {export:?}"));
        }
    }
    Ok(())
}
