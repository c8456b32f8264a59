//! Node daemons that are killed at every step of an operation: the job ends, and nothing is left behind.

use muster_proto::v1::{JobStatus, LogLevel};

use super::in_full;
use crate::{
    cluster::{Cluster, wait_for},
    guests::{booted, cluster, in_sync, processes},
};

/// The steps at which the daemon of a node is killed, for as long as there are some: each one where the promise is to be
/// shown in full, in the daily run every fourth one, beginning with another for each node.
fn steps(node: usize) -> impl Iterator<Item = usize> {
    let stride = if in_full() { 1 } else { 4 };
    (node % stride..).step_by(stride)
}

/// Kills and restarts a node's daemon when a job begins its step of this number; whether it came to it.
fn at_step(cluster: &Cluster, job: u64, node: &str, step: usize) -> bool {
    let is_step = |line: &&muster_proto::v1::LogLine| {
        line.level() == LogLevel::Info
            && !["pre hooks", "post hooks", "undo"].iter().any(|other| line.text.starts_with(other))
    };
    let began = |job: &muster_proto::v1::Job| job.log.iter().filter(is_step).count();
    let over =
        |status: JobStatus| matches!(status, JobStatus::Success | JobStatus::Error | JobStatus::Canceled);
    let mut came = false;
    wait_for("the step or the end", || {
        let job = cluster.job(job);
        came = began(&job) > step;
        came || over(job.status())
    });
    if came {
        cluster.devcluster(&["kill", node]).exits(0);
        cluster.devcluster(&["start", node]).exits(0);
    }
    wait_for("the job is over", || over(cluster.job(job).status()));
    came
}

/// What an operation left is nothing, or is named and can be repaired.
fn nothing_is_left(cluster: &Cluster, job: u64) {
    if !cluster.job(job).failed_undos.is_empty() {
        cluster.ok(&format!("job repair {job}"));
    }
    wait_for("verify finds nothing", || cluster.gnt("cluster verify").status.success());
}

#[test]
fn a_daemon_killed_at_each_step_of_an_add_leaves_nothing() {
    let cluster = cluster(2);
    for (index, node) in ["node1", "node2"].into_iter().enumerate() {
        for step in steps(index) {
            let job = cluster.submit("instance add -t mirror -n node1:node2 -s 16M -m 96M -o tiny web1");
            let came = at_step(&cluster, job, node, step);
            let status = cluster.job(job).status();
            println!("add, {node} killed at step {step}: {came}, {status:?}");
            nothing_is_left(&cluster, job);
            if status == JobStatus::Success {
                cluster.ok("instance remove -f web1");
            }
            assert_eq!(processes(&cluster), Vec::<i32>::new(), "after step {step} with {node}");
            if !came {
                break;
            }
        }
    }
    cluster.ok("cluster verify");
}

#[test]
fn a_daemon_killed_at_each_step_of_a_failover_leaves_one_guest() {
    let cluster = cluster(2);
    cluster.ok("instance add -t mirror -n node1:node2 -s 16M -m 96M -o tiny web1");
    booted(&cluster, 1, "web1", 1);
    for (index, node) in ["node1", "node2"].into_iter().enumerate() {
        for step in steps(index) {
            cluster.gnt("instance start web1");
            in_sync(&cluster, "web1");
            let job = cluster.submit("instance failover -f web1");
            let came = at_step(&cluster, job, node, step);
            println!("failover, {node} killed at step {step}: {came}, {:?}", cluster.job(job).status());
            nothing_is_left_but_a_guest(&cluster, job);
            if !came {
                break;
            }
        }
    }
}

#[test]
fn a_daemon_killed_at_each_step_of_a_replacement_leaves_both_copies() {
    let cluster = cluster(3);
    cluster.ok("instance add -t mirror -n node1:node2 -s 16M -m 96M -o tiny web1");
    for (index, node) in ["node1", "node2", "node3"].into_iter().enumerate() {
        for step in steps(index) {
            in_sync(&cluster, "web1");
            let target = if cluster.instance("web1").secondaries == ["node2"] { "node3" } else { "node2" };
            let job = cluster.submit(&format!("instance replace-disks -n {target} web1"));
            let came = at_step(&cluster, job, node, step);
            println!("replacement, {node} killed at step {step}: {came}, {:?}", cluster.job(job).status());
            nothing_is_left_but_a_guest(&cluster, job);
            if !came {
                break;
            }
        }
    }
}

fn nothing_is_left_but_a_guest(cluster: &Cluster, job: u64) {
    if !cluster.job(job).failed_undos.is_empty() {
        cluster.ok(&format!("job repair {job}"));
    }
    cluster.gnt("instance start web1");
    in_sync(cluster, "web1");
    wait_for("verify finds nothing", || cluster.gnt("cluster verify").status.success());
}
