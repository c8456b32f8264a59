//! The job queue as operators and scripts use it: kill, repair, dependencies, priorities, calling back, drain, archive.

mod archive;
mod blocked;
mod callbacks;
mod cycles;
mod depend;
mod kill;
mod many;
mod state;

use std::fs;
use std::path::PathBuf;

use muster_proto::v1;
use serde_json::Value;

use crate::cluster::{Cluster, devcluster_program, wait_for};

const PRE: &str = "instance-modify-pre.d";
const POST: &str = "instance-modify-post.d";

/// Nodes, and web1 and web2 on the last one, down, with nothing but a name and memory.
fn cluster_with_webs(nodes: u32) -> Cluster {
    let cluster = Cluster::up(nodes);
    for name in ["web1", "web2"] {
        cluster.ok(&format!("instance add -t diskless -n node{nodes} -m 64 -o none --no-start {name}"));
    }
    cluster
}

/// `gnt` for scripts, whose PATH does not have it.
fn gnt() -> String {
    devcluster_program().with_file_name("gnt").display().to_string()
}

/// A file in the cluster's directory, in quotes for a shell.
fn file(cluster: &Cluster, name: &str) -> String {
    format!("'{}'", path(cluster, name).display())
}

fn path(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.dir().join(name)
}

/// A script that says that it runs, and waits until the gate is opened; it stays open.
fn gated(cluster: &Cluster) -> String {
    let (runs, gate) = (file(cluster, "runs"), file(cluster, "gate"));
    format!("echo $GANETI_JOB_ID >> {runs}; while [ ! -e {gate} ]; do sleep 0.02; done")
}

/// Waits until the script of [`gated`] runs.
#[track_caller]
fn gate_is_reached(cluster: &Cluster) {
    wait_for("the script runs", || path(cluster, "runs").exists());
}

fn open_gate(cluster: &Cluster) {
    fs::write(path(cluster, "gate"), "").unwrap();
}

/// A job's end as `gnt-job info --json` shows it.
#[track_caller]
fn info(cluster: &Cluster, id: u64) -> Value {
    serde_json::from_str(&cluster.ok(&format!("job info {id} --json")).stdout).unwrap()
}

/// Waits until a job has its locks.
#[track_caller]
fn starts(cluster: &Cluster, id: u64) {
    wait_for("the job starts", || cluster.job(id).started_ms.is_some());
}

/// Waits until a job waits, and gives what for.
#[track_caller]
fn waits_for(cluster: &Cluster, id: u64) -> String {
    let mut job = cluster.job(id);
    wait_for("the job waits", || {
        job = cluster.job(id);
        job.status() == v1::JobStatus::Waiting
    });
    job.waiting_for
}

#[track_caller]
fn ends_as(cluster: &Cluster, id: u64, status: v1::JobStatus) -> v1::Job {
    let job = cluster.job_end(id);
    assert_eq!(job.status(), status, "{job:#?}");
    job
}

#[track_caller]
fn succeeds(cluster: &Cluster, id: u64) -> v1::Job {
    ends_as(cluster, id, v1::JobStatus::Success)
}

fn restart_master(cluster: &Cluster) {
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
}
