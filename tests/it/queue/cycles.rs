//! A script that would wait for a job which waits for the script's own: refused at once, with the cycle's jobs named.

use std::fs;

use muster_proto::v1::JobStatus;
use serde_json::json;

use super::{PRE, cluster_with_webs, ends_as, file, gnt, info, path, succeeds, waits_for};
use crate::cluster::{Cluster, wait_for};

const WORDS: &str = "whose own script asks: that would never end";

/// The number of the job that `instance modify` of web1 just made: its script has written it down.
fn own_job(cluster: &Cluster) -> u64 {
    fs::read_to_string(path(cluster, "own")).unwrap().trim().parse().unwrap()
}

/// Has the script of `instance modify` write down its job and then run a command; its status is the script's.
fn script(cluster: &Cluster, command: &str) {
    cluster.script(1, PRE, "10-calls", &format!("echo $GANETI_JOB_ID > {}\n{command}", file(cluster, "own")));
}

#[test]
fn a_script_that_starts_its_own_instance_and_waits_is_refused() {
    let cluster = cluster_with_webs(1);
    script(&cluster, &format!("{} instance start web1; code=$?; echo code $code; exit $code", gnt()));
    let denied = cluster.gnt("instance modify -m 96 web1").exits(1);
    let own = own_job(&cluster);
    denied.says(&[
        "10-calls: exit code 1",
        "stdout | code 1",
        &format!("OP_INSTANCE_START(web1) would wait for job {own}, {WORDS}"),
        "--submit",
    ]);
    let web1 = cluster.instance("web1");
    assert_eq!((web1.memory_mib, web1.admin_up), (64, false));
    assert_eq!(cluster.last_job().id, own, "no job was made");
}

#[test]
fn what_a_script_submits_without_waiting_runs_after_its_own_job() {
    let cluster = cluster_with_webs(1);
    script(&cluster, &format!("{} instance start web1 --submit", gnt()));
    cluster.ok("instance modify -m 96 web1");
    let own = own_job(&cluster);
    let job = succeeds(&cluster, cluster.last_job().id);
    assert_eq!(job.parent_job, own);
    assert!(job.started_ms >= cluster.job(own).ended_ms, "{job:#?}");
    assert_eq!(info(&cluster, job.id)["parent"], json!(own));
    assert!(cluster.instance("web1").admin_up);
}

#[test]
fn a_cycle_through_a_dependency_is_refused() {
    let cluster = cluster_with_webs(1);
    script(&cluster, &format!("{} instance start web2 --depend $GANETI_JOB_ID", gnt()));
    let denied = cluster.gnt("instance modify -m 96 web1").exits(1);
    let own = own_job(&cluster);
    denied.says(&[&format!("OP_INSTANCE_START(web2) would wait for job {own}, {WORDS}")]);
    assert_eq!(cluster.last_job().id, own, "no job was made");
    // Without waiting it is no cycle, but the job that it depends on must succeed.
    script(&cluster, &format!("{} instance start web2 --depend $GANETI_JOB_ID --submit", gnt()));
    cluster.ok("instance modify -m 96 web1");
    succeeds(&cluster, cluster.last_job().id);
    assert!(cluster.instance("web2").admin_up);
}

#[test]
fn a_script_that_waits_for_a_job_which_waits_for_its_own_is_refused() {
    let cluster = cluster_with_webs(1);
    let (go, other) = (file(&cluster, "go"), file(&cluster, "other"));
    // The other job comes from outside, when this one has its locks.
    script(&cluster, &format!("while [ ! -e {go} ]; do sleep 0.02; done; {} job wait $(cat {other})", gnt()));
    let operation = cluster.begin("instance modify -m 96 web1");
    wait_for("the script runs", || {
        fs::read_to_string(path(&cluster, "own")).is_ok_and(|own| own.ends_with('\n'))
    });
    let own = own_job(&cluster);
    // It waits for one that waits for the script's job.
    let between = cluster.submit("instance start web1");
    let last = cluster.submit(&format!("instance start web2 --depend {between}:success,error"));
    waits_for(&cluster, last);
    fs::write(path(&cluster, "other"), last.to_string()).unwrap();
    fs::write(path(&cluster, "go"), "").unwrap();
    let chain = format!("job {last} would wait for job {between}, which waits for job {own}, {WORDS}");
    operation.finish().exits(1).says(&["10-calls: exit code 1", &chain]);
    succeeds(&cluster, between);
    succeeds(&cluster, last);
}

#[test]
fn a_script_that_waits_for_its_own_job_is_refused() {
    let cluster = cluster_with_webs(1);
    script(&cluster, &format!("{} job wait $GANETI_JOB_ID", gnt()));
    cluster.gnt("instance modify -m 96 web1").exits(1).says(&[WORDS]);
    ends_as(&cluster, own_job(&cluster), JobStatus::Error);
}

#[test]
fn a_script_may_wait_for_a_job_that_does_not_wait_for_its_own() {
    let cluster = cluster_with_webs(1);
    script(&cluster, &format!("{} instance start web2", gnt()));
    cluster.ok("instance modify -m 96 web1");
    let own = own_job(&cluster);
    let job = cluster.last_job();
    assert_eq!((job.parent_job, job.status()), (own, JobStatus::Success));
    assert!(job.ended_ms <= cluster.job(own).ended_ms);
    assert!(cluster.instance("web2").admin_up);
}
