//! A job that is killed in a step whose node says nothing: blocked until the node answers, or an operator gives it up.

use std::fs;
use std::time::Instant;

use muster_proto::v1::JobStatus;
use serde_json::{Value, json};

use super::{cluster_with_webs, info, succeeds, waits_for};
use crate::cluster::{Cluster, wait_for};

fn json_of(cluster: &Cluster, line: &str) -> Value {
    serde_json::from_str(&cluster.ok(line).stdout).unwrap()
}

/// Whether node2 has begun the step of a job.
fn has_begun(cluster: &Cluster, id: u64) -> bool {
    let calls = fs::read_dir(cluster.node_dir(2).join("state/node/calls/node"));
    let mut names =
        calls.into_iter().flatten().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.any(|name| name.starts_with(&format!("{id}-")))
}

/// A job that starts web1 on node2, which stands still: it was killed, and is blocked.
#[expect(clippy::print_stderr, reason = "what was measured is part of the result")]
fn blocked_job(cluster: &Cluster) -> u64 {
    cluster.faults(2, "[guest_start]\ndelay_ms = 600000\n");
    let id = cluster.submit("instance start web1");
    wait_for("node2 has begun the step", || has_begun(cluster, id));
    cluster.devcluster(&["pause", "node2"]).exits(0);
    let began = Instant::now();
    cluster.ok(&format!("job cancel --kill {id}")).says(&[&format!("job {id} is being killed")]);
    let wait = cluster.begin(&format!("job wait {id}"));
    wait.finish().exits(1).says(&[
        "killed",
        "blocked",
        "instance:web1",
        "until node2 answers",
        "gnt-job repair",
    ]);
    eprintln!("a job on a silent node is over {:?} after the kill was asked for", began.elapsed());
    let job = cluster.job(id);
    assert_eq!((job.status(), job.killed, job.committed), (JobStatus::Canceled, true, false), "{job:#?}");
    assert_eq!(job.blocked.expect("it is blocked").node, "node2");
    id
}

/// What lists, info and verify say of a blocked job.
fn is_shown(cluster: &Cluster, id: u64) {
    let shown = info(cluster, id);
    assert_eq!(shown["phase"], json!("blocked"));
    assert_eq!(shown["blocked"]["node"], json!("node2"));
    let locks = shown["blocked"]["locks"].as_array().unwrap();
    assert!(locks.contains(&json!("instance:web1")), "{locks:?}");
    cluster.ok(&format!("job info {id}")).says(&["killed:      Y", "on node2", "holds:", "instance:web1"]);
    let listed = json_of(cluster, &format!("job list {id} --json"));
    assert_eq!((&listed[0]["killed"], &listed[0]["blocked"]["node"]), (&json!(true), &json!("node2")));
    assert_eq!(json_of(cluster, "instance list --json web1")[0]["blocked"], json!(id));
    assert_eq!(json_of(cluster, "instance info --json web2")["blocked"], json!(null));
    let text = cluster.ok("instance list --no-headers -o name,blocked").stdout;
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!(words, ["web1", &id.to_string(), "web2", "-"]);
    cluster.gnt("cluster verify").exits(1).says(&["EBLOCKED", &format!("job {id}"), "gnt-job repair"]);
    let queue = json_of(cluster, "cluster queue info --json");
    assert_eq!((&queue["blocked"], &queue["running"]), (&json!(1), &json!(0)));
    cluster.gnt(&format!("job archive {id}")).exits(1).says(&["holds its locks still", "gnt-job repair"]);
    cluster.gnt(&format!("job cancel --kill {id}")).exits(1).says(&["gnt-job repair"]);
}

#[test]
fn a_blocked_job_is_unblocked_by_its_node() {
    let cluster = cluster_with_webs(2);
    let id = blocked_job(&cluster);
    is_shown(&cluster, id);
    let next = cluster.submit("instance modify -m 96 web1");
    let waits = waits_for(&cluster, next);
    assert!(waits.contains(&format!("held by job {id}")), "{waits}");
    cluster.faults(2, "");
    cluster.devcluster(&["resume", "node2"]).exits(0);
    wait_for("the job is not blocked any more", || cluster.job(id).blocked.is_none());
    succeeds(&cluster, next);
    let job = cluster.job(id);
    assert_eq!((job.status(), job.phase.as_str()), (JobStatus::Canceled, "done"), "{job:#?}");
    assert_eq!(job.failed_undos, []);
    let web1 = cluster.instance("web1");
    assert_eq!((web1.admin_up, web1.blocked_by, web1.memory_mib), (false, None, 96));
    cluster.ok("cluster verify");
    cluster.ok(&format!("job archive {id}"));
}

#[test]
fn a_blocked_job_is_given_up_and_made_good_later() {
    let cluster = cluster_with_webs(2);
    let id = blocked_job(&cluster);
    cluster.gnt(&format!("job repair {id}")).exits(1).says(&[&format!("left of job {id}:"), "node2"]);
    let job = cluster.job(id);
    assert_eq!((job.blocked, job.phase.as_str()), (None, "done"));
    let shown = info(&cluster, id);
    assert_eq!((&shown["status"], &shown["killed"]), (&json!("canceled"), &json!(true)));
    assert_eq!(shown["failed_undos"][0]["made_good"], json!(false));
    cluster.ok(&format!("job info {id}")).says(&["failed undo:", "(not undone)", "node2"]);
    cluster.gnt("cluster verify").exits(1).says(&["EUNDO", "node2"]).does_not_say("EBLOCKED");
    cluster.gnt(&format!("job archive {id}")).exits(1).says(&["left something undone"]);
    // The locks are free.
    cluster.ok("instance modify -m 96 web1");

    cluster.faults(2, "");
    cluster.devcluster(&["resume", "node2"]).exits(0);
    wait_for("node2 answers", || {
        cluster.ok("node info --live --json node2").stdout.contains("\"epoch_seen\"")
    });
    cluster.ok(&format!("job repair {id}"));
    assert_eq!(info(&cluster, id)["failed_undos"][0]["made_good"], json!(true));
    cluster.ok("cluster verify").does_not_say("EUNDO");
    cluster.ok(&format!("job archive {id}"));
    cluster.gnt(&format!("job repair {id}")).exits(1).says(&["has left nothing undone"]);
}
