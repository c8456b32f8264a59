//! The nodes against the configuration: disk files, exports and guests are those that it names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use muster_proto::v1;

use crate::cluster::Cluster;

/// What, node, uuid.
type Item = (&'static str, String, String);

/// Something that is on a node and should not be, or the other way round.
pub(super) struct Difference {
    why: &'static str,
    item: Item,
}

impl Difference {
    /// Whether it is what a failed undo would have put right.
    pub(super) fn is_of_undo(&self, undo: &v1::FailedUndo) -> bool {
        let (what, node, uuid) = &self.item;
        // A guest's step names the instance.
        undo.node == *node && (*what == "guest" || undo.step.contains(uuid))
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, node, uuid) = &self.item;
        write!(f, "{}: {what} {uuid} on {node}", self.why)
    }
}

/// What differs.
pub(super) fn differences(cluster: &Cluster, nodes: u32) -> Vec<Difference> {
    let wanted = configured(&cluster.instances(), &cluster.exports());
    let real = real(cluster, nodes);
    let difference = |why: &'static str, item: &Item| Difference { why, item: item.clone() };
    let missing = wanted.difference(&real).map(|item| difference("missing", item));
    let left = real.difference(&wanted).map(|item| difference("left behind", item));
    missing.chain(left).collect()
}

fn configured(instances: &[v1::InstanceInfo], exports: &[v1::ExportInfo]) -> BTreeSet<Item> {
    let mut items = BTreeSet::new();
    for instance in instances {
        for disk in &instance.disks {
            items.insert(("disk", instance.primary.clone(), disk.uuid.clone()));
            let copies = disk.mirrors.iter();
            items.extend(copies.map(|copy| ("disk", copy.node.clone(), copy.uuid.clone())));
        }
        if instance.admin_up {
            items.insert(("guest", instance.primary.clone(), instance.uuid.clone()));
        }
    }
    items.extend(exports.iter().map(|export| ("export", export.node.clone(), export.uuid.clone())));
    items
}

fn real(cluster: &Cluster, nodes: u32) -> BTreeSet<Item> {
    let mut items = BTreeSet::new();
    for node in 1..=nodes {
        let dir = cluster.node_dir(node);
        let places = [("disk", "storage"), ("guest", "state/node/guests"), ("export", "export")];
        for (what, place) in places {
            let names = entries(&dir.join(place)).into_iter();
            // A disk's and a guest's file has an extension.
            let uuid = |name: String| name.split('.').next().unwrap_or_default().to_owned();
            items.extend(names.map(|name| (what, format!("node{node}"), uuid(name))));
        }
    }
    items
}

/// Names in a directory; none where nothing was ever put.
fn entries(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
