//! What all disks of a running guest hold at one moment, copied into other files while the guest goes on.
//!
//! A disk that is mirrored is in use by the mirror's job, and so is the mirror's filter above it. So a root of our own is put
//! on top of all, and taken away afterwards. The guest's device then goes back to the node that was on top before: were it
//! given the disk's own node, its writes would pass the filters by, and the copies would not follow.
//!
//! Everything has a name that tells it from a mirror's, so that what a broken attempt left in a guest is found and cleared.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{super::HypervisorError, Qemu, argv::disk_node, ask, guest::Guest};
use crate::{
    progress::{Progress, Tell, copied},
    qmp::Qmp,
};

/// Between two looks at jobs.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// Between two reports of progress.
const TELL_PERIOD: Duration = Duration::from_millis(500);
/// How long a job that is cancelled may take to end: a write to a busy disk.
const CANCEL_LIMIT: Duration = Duration::from_secs(30);

/// How names begin.
const JOB: &str = "snap-job";
const FILE: &str = "snap-file";
const TARGET: &str = "snap-raw";
const ROOT: &str = "snap-root";
const GROUP: &str = "snap-group";

/// A disk of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskNode {
    /// Its place in the guest.
    pub(super) index: usize,
    pub(super) path: PathBuf,
}

/// The disks that a guest has.
pub(super) async fn disks(guest: &Guest, client: &Qmp) -> Result<Vec<DiskNode>, HypervisorError> {
    Ok(parse_disks(&nodes(guest, client).await?))
}

async fn nodes(guest: &Guest, client: &Qmp) -> Result<Value, HypervisorError> {
    ask(guest, client, "query-named-block-nodes", json!({ "flat": true })).await
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn parse_disks(nodes: &Value) -> Vec<DiskNode> {
    let disk = |node: &Value| {
        let name = node["node-name"].as_str()?.strip_prefix("disk")?.strip_suffix("-file")?;
        Some(DiskNode { index: name.parse().ok()?, path: node["file"].as_str()?.into() })
    };
    let mut disks: Vec<DiskNode> = items(nodes).filter_map(disk).collect();
    disks.sort_by_key(|disk| disk.index);
    disks
}

/// Which of a listing's names begin like this, by what follows.
fn numbered(list: &Value, key: &str, prefix: &str) -> Vec<String> {
    let rest = |item: &Value| Some(item[key].as_str()?.strip_prefix(prefix)?.to_owned());
    items(list).filter_map(rest).collect()
}

fn device(index: &str) -> String {
    format!("/machine/peripheral/vd-disk{index}")
}

impl Qemu {
    /// Fills files with what a guest's disks hold now. What it leaves in the guest, [`clear`] removes.
    pub(super) async fn fill(
        &self,
        guest: &Guest,
        disks: &[(Uuid, Uuid)],
        tell: Tell<'_>,
    ) -> Result<(), HypervisorError> {
        let client = Self::control(guest).await?;
        clear(guest, &client).await?;
        let instance = guest.record.instance;
        let path =
            |disk: Uuid| self.disks.path(disk).map_err(|source| HypervisorError::Disk { instance, source });
        let own = self::disks(guest, &client).await?;
        let mut actions = Vec::new();
        for (disk, snapshot) in disks {
            let (from, to) = (path(*disk)?, path(*snapshot)?);
            let Some(DiskNode { index, .. }) = own.iter().find(|own| own.path == from) else {
                let why = format!("it runs without disk {disk}");
                return Err(HypervisorError::Move { instance, why });
            };
            let index = index.to_string();
            let source = raise(guest, &client, &index).await?;
            let (file, target) = (format!("{FILE}{index}"), format!("{TARGET}{index}"));
            let node = json!({ "driver": "file", "node-name": file, "filename": to, "discard": "unmap" });
            ask(guest, &client, "blockdev-add", node).await?;
            // What reads as zeros stays a hole.
            let node = json!({ "driver": "raw", "node-name": target, "file": file, "detect-zeroes": "unmap", "discard": "unmap" });
            ask(guest, &client, "blockdev-add", node).await?;
            actions.push(json!({ "type": "blockdev-backup", "data": {
                "job-id": format!("{JOB}{index}"), "device": source, "target": target, "sync": "full",
                "on-source-error": "report", "on-target-error": "report", "auto-dismiss": false,
            }}));
        }
        ask(guest, &client, "transaction", json!({ "actions": actions })).await?;
        wait(guest, &client, tell).await
    }

    /// Makes durable what was filled.
    pub(super) fn sync_filled(&self, instance: Uuid, disks: &[(Uuid, Uuid)]) -> Result<(), HypervisorError> {
        for (_, snapshot) in disks {
            let failed = |source| HypervisorError::Disk { instance, source };
            let path = self.disks.path(*snapshot).map_err(failed)?;
            let file = self.disks.open_write(*snapshot).map_err(failed)?;
            file.sync_all().map_err(|source| super::file_error("sync", &path, source))?;
        }
        Ok(())
    }
}

/// Waits until all copies are made.
async fn wait(guest: &Guest, client: &Qmp, tell: Tell<'_>) -> Result<(), HypervisorError> {
    let begun = Instant::now();
    let mut told: Option<Instant> = None;
    loop {
        let jobs = ask(guest, client, "query-jobs", Value::Null).await?;
        let now = Copying::parse(&jobs);
        if let Some(words) = now.failed {
            return Err(HypervisorError::Control { instance: guest.record.instance, words });
        }
        if now.is_done {
            tell(Progress { text: "copied".to_owned(), percent: Some(100) });
            return Ok(());
        }
        if told.is_none_or(|told| told.elapsed() > TELL_PERIOD) {
            told = Some(Instant::now());
            tell(copied(now.done, now.total, now.done / begun.elapsed().as_secs().max(1)));
        }
        sleep(LOOK_PERIOD).await;
    }
}

/// How far the jobs are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copying {
    done: u64,
    total: u64,
    is_done: bool,
    failed: Option<String>,
}

impl Copying {
    fn parse(jobs: &Value) -> Self {
        let mut copying = Copying { done: 0, total: 0, is_done: true, failed: None };
        for job in items(jobs).filter(|job| job["id"].as_str().is_some_and(|id| id.starts_with(JOB))) {
            let number = |name: &str| job[name].as_u64().unwrap_or_default();
            copying.done += number("current-progress");
            copying.total += number("total-progress");
            copying.is_done &= job["status"] == "concluded";
            if let Some(words) = job["error"].as_str() {
                copying.failed.get_or_insert(format!("a copy of its disks failed: {words}"));
            }
        }
        copying
    }
}

/// The node from which a disk can be copied; where jobs use it, a new root above them.
async fn raise(guest: &Guest, client: &Qmp, index: &str) -> Result<String, HypervisorError> {
    let drive = json!({ "path": device(index), "property": "drive" });
    let top = ask(guest, client, "qom-get", drive).await?;
    let top = top.as_str().unwrap_or_default().to_owned();
    if index.parse().is_ok_and(|index| top == disk_node(index)) {
        return Ok(top);
    }
    // Its name says what was on top before.
    let group = format!("{GROUP}{index}.{top}");
    ask(guest, client, "object-add", json!({ "qom-type": "throttle-group", "id": group })).await?;
    let root = format!("{ROOT}{index}");
    let node = json!({ "driver": "throttle", "node-name": root, "throttle-group": group, "file": top });
    ask(guest, client, "blockdev-add", node).await?;
    let drive = json!({ "path": device(index), "property": "drive", "value": root });
    ask(guest, client, "qom-set", drive).await?;
    Ok(root)
}

/// Takes a root away.
async fn lower(guest: &Guest, client: &Qmp, index: &str) -> Result<(), HypervisorError> {
    let root = format!("{ROOT}{index}");
    let drive = json!({ "path": device(index), "property": "drive" });
    if ask(guest, client, "qom-get", drive).await? == json!(root) {
        // A mirror that failed meanwhile has taken its filter with it: so what is below now is asked for.
        let graph = ask(guest, client, "x-debug-query-block-graph", Value::Null).await?;
        let Some(below) = below(&graph, &root) else {
            let words = format!("what is below {root} is not known: it stays");
            return Err(HypervisorError::Control { instance: guest.record.instance, words });
        };
        let drive = json!({ "path": device(index), "property": "drive", "value": below });
        ask(guest, client, "qom-set", drive).await?;
    }
    ask(guest, client, "blockdev-del", json!({ "node-name": root })).await.map(drop)
}

/// The node below another.
fn below(graph: &Value, name: &str) -> Option<String> {
    let parent = items(&graph["nodes"]).find(|node| node["name"] == name)?["id"].as_u64()?;
    let edge = items(&graph["edges"]).find(|edge| edge["parent"] == parent && edge["name"] == "file")?;
    let child = items(&graph["nodes"]).find(|node| node["id"] == edge["child"])?;
    child["name"].as_str().map(str::to_owned)
}

/// Removes all that a snapshot put into a guest; where there is nothing, nothing is done.
pub(super) async fn clear(guest: &Guest, client: &Qmp) -> Result<(), HypervisorError> {
    end_jobs(guest, client).await?;
    let nodes = nodes(guest, client).await?;
    for prefix in [TARGET, FILE] {
        for index in numbered(&nodes, "node-name", prefix) {
            let node = json!({ "node-name": format!("{prefix}{index}") });
            ask(guest, client, "blockdev-del", node).await?;
        }
    }
    for index in numbered(&nodes, "node-name", ROOT) {
        lower(guest, client, &index).await?;
    }
    let objects = ask(guest, client, "qom-list", json!({ "path": "/objects" })).await?;
    for rest in numbered(&objects, "name", GROUP) {
        ask(guest, client, "object-del", json!({ "id": format!("{GROUP}{rest}") })).await?;
    }
    Ok(())
}

async fn end_jobs(guest: &Guest, client: &Qmp) -> Result<(), HypervisorError> {
    let deadline = Instant::now() + CANCEL_LIMIT;
    loop {
        let jobs = ask(guest, client, "query-jobs", Value::Null).await?;
        let own = numbered(&jobs, "id", JOB);
        if own.is_empty() {
            return Ok(());
        }
        for index in own {
            let id = format!("{JOB}{index}");
            let is_over = items(&jobs).any(|job| job["id"] == id.as_str() && job["status"] == "concluded");
            let command = if is_over { "job-dismiss" } else { "job-cancel" };
            // One that ends at this moment is seen in the next round.
            let _refused = client.execute(command, json!({ "id": id })).await;
        }
        if Instant::now() > deadline {
            let words = format!("copying does not end within {} s", CANCEL_LIMIT.as_secs());
            return Err(HypervisorError::Control { instance: guest.record.instance, words });
        }
        sleep(LOOK_PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_found_by_their_nodes() {
        let nodes = json!([
            { "node-name": "snap-file0", "file": "/s/x.raw" },
            { "node-name": "disk1", "file": "/s/b.raw" },
            { "node-name": "disk10-file", "file": "/s/k.raw" },
            { "node-name": "disk1-file", "file": "/s/b.raw" },
        ]);
        let disk = |index, path: &str| DiskNode { index, path: path.into() };
        assert_eq!(parse_disks(&nodes), [disk(1, "/s/b.raw"), disk(10, "/s/k.raw")]);
        assert_eq!(numbered(&nodes, "node-name", FILE), ["0"]);
    }

    #[test]
    fn all_jobs_are_awaited_and_a_failure_is_told() {
        let job = |id: &str, status: &str, done: u64| json!({ "id": id, "status": status, "current-progress": done, "total-progress": 9 });
        let going = Copying::parse(&json!([
            job("snap-job0", "concluded", 9),
            job("snap-job1", "running", 2),
            job("other", "ready", 9)
        ]));
        assert_eq!(going, Copying { done: 11, total: 18, is_done: false, failed: None });
        let mut failed = job("snap-job0", "concluded", 4);
        failed["error"] = json!("No space left on device");
        let failed = Copying::parse(&json!([failed])).failed.unwrap();
        assert!(failed.ends_with("No space left on device"), "{failed}");
    }

    #[test]
    fn what_is_below_a_root() {
        let graph = json!({
            "nodes": [{ "id": 1, "name": "snap-root0" }, { "id": 2, "name": "filter" }, { "id": 3, "name": "disk0" }],
            "edges": [
                { "parent": 2, "child": 3, "name": "file" },
                { "parent": 1, "child": 2, "name": "file" },
                { "parent": 9, "child": 1, "name": "root" },
            ],
        });
        assert_eq!(below(&graph, "snap-root0").as_deref(), Some("filter"));
        assert_eq!(below(&graph, "disk0"), None);
    }
}
