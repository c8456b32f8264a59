//! All of a cluster that a denied, refused or failed operation must leave as it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::cluster::{Cluster, wait_until};

/// The configuration and the files of nodes, in a form that prints well.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    serial: u64,
    parameters: String,
    nodes: Vec<String>,
    instances: Vec<String>,
    exports: Vec<String>,
    /// Path, then length and content's hash.
    files: BTreeMap<String, (u64, u64)>,
}

/// Facts travel in the background to nodes that an operation did not ask; a node that is down keeps old ones.
const FACTS_LIMIT: Duration = Duration::from_secs(5);
/// Parts of a node's directory that belong to instances and to the cluster's configuration.
const NODE_PARTS: [&str; 5] = ["storage", "export", "os", "state/data", "state/node/guests"];

impl Cluster {
    /// The cluster now, with all facts where they are to be.
    pub(crate) fn snapshot(&self) -> Snapshot {
        wait_until(FACTS_LIMIT, || self.facts_have_arrived());
        let info = self.info();
        let mut nodes = self.nodes();
        for node in &mut nodes {
            // What a node reports about itself moves by itself.
            (node.state, node.state_age_ms, node.not_reached) = (None, None, None);
            (node.host, node.host_age_ms) = (None, None);
        }
        let mut instances = self.instances();
        for instance in &mut instances {
            (instance.state_age_ms, instance.status) = (None, String::new());
        }
        Snapshot {
            serial: info.serial,
            parameters: format!("{} {} {:?} {:?}", info.name, info.master, info.hooks, info.clients),
            nodes: nodes.iter().map(|node| format!("{node:?}")).collect(),
            instances: instances.iter().map(|instance| format!("{instance:?}")).collect(),
            exports: self.exports().iter().map(|export| format!("{export:?}")).collect(),
            files: self.files(),
        }
    }

    fn facts_have_arrived(&self) -> bool {
        let instances: String = self.instances().into_iter().map(|instance| instance.name + "\n").collect();
        self.nodes().iter().filter(|node| !node.offline).all(|node| {
            let list = self.dir().join(&node.name).join("state/data/ssconf_instance_list");
            fs::read_to_string(list).unwrap_or_default() == instances
        })
    }

    /// The files that belong to instances and configuration, on all nodes.
    pub(crate) fn files(&self) -> BTreeMap<String, (u64, u64)> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(self.dir()).unwrap() {
            let node = entry.unwrap().path();
            for part in NODE_PARTS {
                collect(&node.join(part), self.dir(), &mut files);
            }
        }
        files
    }
}

fn collect(path: &Path, base: &Path, files: &mut BTreeMap<String, (u64, u64)>) {
    let Ok(kind) = fs::symlink_metadata(path) else { return };
    if kind.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), base, files);
        }
    // What ends so is about to be renamed.
    } else if kind.is_file() && path.extension().is_none_or(|extension| extension != "new") {
        let name = path.strip_prefix(base).unwrap().display().to_string();
        files.extend(content_hash(path).map(|hash| (name, (kind.len(), hash))));
    }
}

/// `None` where the file has gone meanwhile.
fn content_hash(path: &Path) -> Option<u64> {
    use std::hash::{DefaultHasher, Hasher};
    use std::io::Read;
    let mut hasher = DefaultHasher::new();
    let mut file = fs::File::open(path).ok()?;
    let (mut buffer, zeros) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut buffer).unwrap();
        if read == 0 {
            return Some(hasher.finish());
        }
        // Most of a disk is empty, and comparing is quicker than hashing.
        if buffer[..read] == zeros[..read] {
            hasher.write_usize(read);
        } else {
            hasher.write(&buffer[..read]);
        }
    }
}
