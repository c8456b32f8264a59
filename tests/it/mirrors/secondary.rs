//! The secondary hangs or dies: the guest goes on, and the copy is brought in sync when it is back.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::with_writer;
use crate::cluster::Cluster;
use crate::guests::{copies_are_identical, has_status, in_sync, last_ack, processes_on, said, writes_past};

/// A guest's writes resume within this.
const RESUME_LIMIT: Duration = Duration::from_secs(6);
/// The guest's processor is a thread on a machine that others use too: one freeze of these must keep the limit.
const FREEZES: usize = 3;

/// Freezes all of node2, and tells what was frozen and how long the guest's writes were held up.
#[expect(clippy::print_stdout, reason = "the gap is part of the result")]
fn freeze(cluster: &Cluster) -> (Vec<Pid>, Duration) {
    cluster.devcluster(&["pause", "node2"]).exits(0);
    let frozen = processes_on(cluster, 2);
    for process in &frozen {
        kill_process(*process, Signal::STOP).unwrap();
    }
    let began = Instant::now();
    // What was under way may still have been acknowledged.
    let wrote = last_ack(cluster, 1, "web1") + 2;
    writes_past(cluster, 1, "web1", wrote);
    let resumed = began.elapsed();
    println!("writes resumed {resumed:?} after the secondary was frozen");
    (frozen, resumed)
}

fn thaw(cluster: &Cluster, frozen: &[Pid]) {
    for process in frozen {
        let _gone_is_fine = kill_process(*process, Signal::CONT);
    }
    cluster.devcluster(&["resume", "node2"]).exits(0);
    in_sync(cluster, "web1");
}

#[test]
fn a_secondary_that_hangs_is_cut_off_and_comes_back() {
    let cluster = with_writer();
    let (mut frozen, mut resumed) = freeze(&cluster);
    for _ in 1..FREEZES {
        if resumed < RESUME_LIMIT {
            break;
        }
        thaw(&cluster, &frozen);
        (frozen, resumed) = freeze(&cluster);
    }
    assert!(resumed < RESUME_LIMIT, "{resumed:?}: {}", said(&cluster, 1, "web1"));
    let degraded = || cluster.ok("instance info web1").stdout.contains("stale");
    crate::cluster::wait_for("the copy is stale", degraded);
    cluster.gnt("cluster verify").says(&["web1", "stale"]);
    cluster.gnt("instance failover -f web1").exits(1).says(&["the copy of sda on node2 is stale"]);

    thaw(&cluster, &frozen);
    cluster.ok("cluster verify");
    cluster.ok("instance shutdown web1");
    copies_are_identical(&cluster, "web1");
}

#[test]
fn a_secondary_that_died_gets_what_it_missed() {
    let cluster = with_writer();
    cluster.devcluster(&["kill", "node2"]).exits(0);
    for process in processes_on(&cluster, 2) {
        kill_process(process, Signal::KILL).unwrap();
    }
    let wrote = last_ack(&cluster, 1, "web1");
    writes_past(&cluster, 1, "web1", wrote + 5);
    let degraded = || cluster.ok("instance info web1").stdout.contains("stale");
    crate::cluster::wait_for("the copy is stale", degraded);
    cluster.devcluster(&["start", "node2"]).exits(0);
    in_sync(&cluster, "web1");
    // It is no worse than before: down and up again without a copy of everything.
    cluster.ok("instance shutdown web1");
    copies_are_identical(&cluster, "web1");
    cluster.ok("instance start web1");
    has_status(&cluster, "web1", "running");
    in_sync(&cluster, "web1");
    writes_past(&cluster, 1, "web1", wrote + 5);
}
