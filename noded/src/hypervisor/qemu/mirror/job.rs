//! One mirror within QEMU: its credentials, its connection to the peer, its job, and where it stands above its disk.
//!
//! All names come from the copy's uuid, so that what an earlier daemon or a broken attempt left is found. Two jobs can't use
//! the same node, so a second mirror of a disk stands on a root of its own above the first one's filter; roots that nobody
//! stands on any more are taken away from the top down.

use std::{net::IpAddr, path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::super::{super::HypervisorError, argv::disk_node, ask, guest::Guest};
use crate::qmp::Qmp;

/// Between two looks at a job that is ending.
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// How long a mirror that is in sync may take to end; then its peer is taken to hang.
const END_LIMIT: Duration = Duration::from_secs(4);
/// How long a job may take to end once its connection was cut.
const CUT_LIMIT: Duration = Duration::from_secs(4);
/// A node's name has at most 31 characters; so many of a uuid, the last ones, tell copies apart.
const NAME_DIGITS: usize = 24;

/// The names of a mirror's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) job: String,
    node: String,
    filter: String,
    credentials: String,
    root: String,
    group: String,
}

impl Names {
    pub(super) fn of(copy: Uuid) -> Self {
        let digits = copy.simple().to_string();
        let short = &digits[digits.len() - NAME_DIGITS..];
        let name = |prefix: &str| format!("{prefix}-{short}");
        Names {
            job: name("m"),
            node: name("n"),
            filter: name("f"),
            credentials: name("t"),
            root: name("r"),
            group: name("g"),
        }
    }
}

/// Where a copy is served.
pub(super) struct Peer<'a> {
    pub(super) name: &'a str,
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// The directory with this node's certificate.
    pub(super) certificates: &'a Path,
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    None,
    Copying {
        done: u64,
        total: u64,
    },
    /// All is there; what the guest writes is done and under way there, too.
    Ready {
        done: u64,
        total: u64,
    },
    /// It is over; why, where it failed.
    Over(Option<String>),
}

/// What the jobs of these names do.
pub(super) async fn look(guest: &Guest, client: &Qmp, names: &[&Names]) -> Result<Vec<Job>, HypervisorError> {
    let jobs = ask(guest, client, "query-jobs", Value::Null).await?;
    Ok(names.iter().map(|names| parse(&jobs, &names.job)).collect())
}

fn parse(jobs: &Value, id: &str) -> Job {
    let Some(job) = items(jobs).find(|job| job["id"] == id) else { return Job::None };
    let number = |name: &str| job[name].as_u64().unwrap_or_default();
    let (done, total) = (number("current-progress"), number("total-progress"));
    match job["status"].as_str().unwrap_or_default() {
        "ready" => Job::Ready { done, total },
        "aborting" | "concluded" | "null" => Job::Over(job["error"].as_str().map(str::to_owned)),
        _ => Job::Copying { done, total },
    }
}

fn drive(index: usize) -> Value {
    json!({ "path": format!("/machine/peripheral/vd-disk{index}"), "property": "drive" })
}

async fn top(guest: &Guest, client: &Qmp, index: usize) -> Result<String, HypervisorError> {
    let top = ask(guest, client, "qom-get", drive(index)).await?;
    Ok(top.as_str().unwrap_or_default().to_owned())
}

async fn set_top(guest: &Guest, client: &Qmp, index: usize, node: &str) -> Result<(), HypervisorError> {
    let mut arguments = drive(index);
    arguments["value"] = json!(node);
    ask(guest, client, "qom-set", arguments).await.map(drop)
}

/// Begins to mirror a disk; nothing of the kind is there.
pub(super) async fn begin(
    guest: &Guest,
    client: &Qmp,
    index: usize,
    copy: Uuid,
    peer: &Peer<'_>,
    full: bool,
) -> Result<(), HypervisorError> {
    let names = Names::of(copy);
    let credentials = json!({
        "qom-type": "tls-creds-x509", "id": names.credentials, "dir": peer.certificates, "endpoint": "client",
        "verify-peer": true,
    });
    ask(guest, client, "object-add", credentials).await?;
    let node = json!({
        "driver": "nbd", "node-name": names.node, "export": copy.to_string(),
        "server": { "type": "inet", "host": peer.address.to_string(), "port": peer.port.to_string() },
        "tls-creds": names.credentials, "tls-hostname": peer.name,
    });
    ask(guest, client, "blockdev-add", node).await?;
    let below = top(guest, client, index).await?;
    let device = if below == disk_node(index) {
        below
    } else {
        let group = json!({ "qom-type": "throttle-group", "id": names.group });
        ask(guest, client, "object-add", group).await?;
        let root = json!({
            "driver": "throttle", "node-name": names.root, "throttle-group": names.group, "file": below,
        });
        ask(guest, client, "blockdev-add", root).await?;
        set_top(guest, client, index, &names.root).await?;
        names.root.clone()
    };
    let mirror = json!({
        "job-id": names.job, "device": device, "target": names.node, "filter-node-name": names.filter,
        "sync": if full { "full" } else { "none" }, "copy-mode": "write-blocking",
        "on-source-error": "report", "on-target-error": "report", "auto-dismiss": false,
    });
    ask(guest, client, "blockdev-mirror", mirror).await.map(drop)
}

/// Cuts a mirror's connection, also where all else hangs: the guest's writes go on at once.
pub(super) async fn cut(client: &Qmp, copy: Uuid) {
    let instance = json!({ "type": "block-node", "node-name": Names::of(copy).node });
    // One that has no connection any more is refused, and is cut off already.
    let _refused = client.execute_out_of_band("yank", json!({ "instances": [instance] })).await;
}

/// Ends a mirror and takes away all of it; whether its copy was complete at the end.
pub(super) async fn end(
    guest: &Guest,
    client: &Qmp,
    index: usize,
    copy: Uuid,
) -> Result<bool, HypervisorError> {
    let names = Names::of(copy);
    let state = look(guest, client, &[&names]).await?.remove(0);
    let mut complete = false;
    match state {
        Job::None => {}
        Job::Over(_) => dismiss(guest, client, &names).await?,
        Job::Ready { .. } => {
            let ending = async {
                ask(guest, client, "block-job-cancel", json!({ "device": names.job })).await?;
                over(guest, client, &names, END_LIMIT).await
            };
            // With a write on its way to a peer that hangs, QEMU answers nothing more until that peer is cut off.
            complete = matches!(timeout(END_LIMIT, ending).await, Ok(Ok(true)));
            if !complete {
                cut(client, copy).await;
                over(guest, client, &names, CUT_LIMIT).await?;
            }
            dismiss(guest, client, &names).await?;
        }
        Job::Copying { .. } => {
            // One whose peer hangs would hold everything up if it were canceled first.
            cut(client, copy).await;
            let cancel = json!({ "device": names.job, "force": true });
            let _over_already = client.execute("block-job-cancel", cancel).await;
            over(guest, client, &names, CUT_LIMIT).await?;
            dismiss(guest, client, &names).await?;
        }
    }
    remove_parts(guest, client, index, &names).await?;
    Ok(complete)
}

/// Waits until a job is over; whether it ended well, and in time.
async fn over(guest: &Guest, client: &Qmp, names: &Names, limit: Duration) -> Result<bool, HypervisorError> {
    let deadline = Instant::now() + limit;
    loop {
        match look(guest, client, &[names]).await?.remove(0) {
            Job::None => return Ok(true),
            Job::Over(error) => return Ok(error.is_none()),
            Job::Copying { .. } | Job::Ready { .. } if Instant::now() > deadline => return Ok(false),
            Job::Copying { .. } | Job::Ready { .. } => sleep(LOOK_PERIOD).await,
        }
    }
}

async fn dismiss(guest: &Guest, client: &Qmp, names: &Names) -> Result<(), HypervisorError> {
    let deadline = Instant::now() + CUT_LIMIT;
    loop {
        match client.execute("job-dismiss", json!({ "id": names.job })).await {
            Ok(_) => return Ok(()),
            // It is concluded in a moment.
            Err(_) if look(guest, client, &[names]).await?[0] == Job::None => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                let words = format!("a mirror does not end: {error}");
                return Err(HypervisorError::Control { instance: guest.record.instance, words });
            }
            Err(_) => sleep(LOOK_PERIOD).await,
        }
    }
}

/// Takes away what a mirror's job leaves.
async fn remove_parts(
    guest: &Guest,
    client: &Qmp,
    index: usize,
    names: &Names,
) -> Result<(), HypervisorError> {
    let nodes = ask(guest, client, "query-named-block-nodes", json!({ "flat": true })).await?;
    let known = |name: &str| items(&nodes).any(|node| node["node-name"] == name);
    if known(&names.node) {
        ask(guest, client, "blockdev-del", json!({ "node-name": names.node })).await?;
    }
    let objects = ask(guest, client, "qom-list", json!({ "path": "/objects" })).await?;
    if items(&objects).any(|object| object["name"] == names.credentials.as_str()) {
        ask(guest, client, "object-del", json!({ "id": names.credentials })).await?;
    }
    lower(guest, client, index).await?;
    if known(&names.root) {
        // One that never came to the top is in nobody's way; one that is in the middle is refused, and stays for now.
        let _refused = client.execute("blockdev-del", json!({ "node-name": names.root })).await;
        let _refused = client.execute("object-del", json!({ "id": names.group })).await;
    }
    Ok(())
}

/// Takes roots away on which no mirror stands, from the top down.
async fn lower(guest: &Guest, client: &Qmp, index: usize) -> Result<(), HypervisorError> {
    loop {
        let root = top(guest, client, index).await?;
        let Some(short) = root.strip_prefix("r-") else { return Ok(()) };
        let jobs = ask(guest, client, "query-jobs", Value::Null).await?;
        if parse(&jobs, &format!("m-{short}")) != Job::None {
            return Ok(());
        }
        let graph = ask(guest, client, "x-debug-query-block-graph", Value::Null).await?;
        let Some(below) = below(&graph, &root) else {
            let words = format!("what is below {root} is not known: it stays");
            return Err(HypervisorError::Control { instance: guest.record.instance, words });
        };
        set_top(guest, client, index, &below).await?;
        ask(guest, client, "blockdev-del", json!({ "node-name": root })).await?;
        ask(guest, client, "object-del", json!({ "id": format!("g-{short}") })).await?;
    }
}

/// The node below another.
fn below(graph: &Value, name: &str) -> Option<String> {
    let parent = items(&graph["nodes"]).find(|node| node["name"] == name)?["id"].as_u64()?;
    let edge = items(&graph["edges"]).find(|edge| edge["parent"] == parent && edge["name"] == "file")?;
    let child = items(&graph["nodes"]).find(|node| node["id"] == edge["child"])?;
    child["name"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_tell_copies_apart() {
        let names = Names::of(Uuid::from_u128(u128::MAX));
        assert!([&names.job, &names.node, &names.filter, &names.root].iter().all(|name| name.len() <= 31));
        assert_ne!(Names::of(Uuid::from_u128(1)), Names::of(Uuid::nil()));
    }

    #[test]
    fn a_job_is_read_by_its_state() {
        let jobs = json!([
            { "id": "m-1", "status": "running", "current-progress": 5, "total-progress": 9 },
            { "id": "m-2", "status": "ready", "current-progress": 9, "total-progress": 13 },
            { "id": "m-3", "status": "concluded", "error": "Input/output error" },
            { "id": "m-4", "status": "concluded" },
        ]);
        assert_eq!(parse(&jobs, "m-1"), Job::Copying { done: 5, total: 9 });
        assert_eq!(parse(&jobs, "m-2"), Job::Ready { done: 9, total: 13 });
        assert_eq!(parse(&jobs, "m-3"), Job::Over(Some("Input/output error".to_owned())));
        assert_eq!(parse(&jobs, "m-4"), Job::Over(None));
        assert_eq!(parse(&jobs, "m-5"), Job::None);
    }
}
