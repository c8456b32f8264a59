//! Copies that follow their disks, with real guests that write numbered records and say which are on stable storage.
//!
//! With `MUSTER_TEST_LONG` the rounds are as many as the promise is to be shown for.

mod broken;
mod exports;
mod hung_disk;
mod moves;
mod old_primary;
mod primary;
mod restarts;
mod secondary;

use crate::{
    cluster::Cluster,
    guests::{acknowledged, booted, cluster, in_sync, writes_past},
};

/// Whether promises are shown as often as they say.
fn in_full() -> bool {
    std::env::var_os("MUSTER_TEST_LONG").is_some()
}

/// Rounds of a test: few in the daily run.
fn rounds(short: u32, long: u32) -> u32 {
    if in_full() { long } else { short }
}

/// Three nodes, and an instance from node1 to node2 whose guest writes all the time.
fn with_writer() -> Cluster {
    let cluster = cluster(3);
    writer_on(&cluster);
    cluster
}

/// Such an instance on a cluster that has none.
fn writer_on(cluster: &Cluster) {
    cluster.ok("instance add -t mirror -n node1:node2 -s 16M -m 96M -o tiny web1");
    booted(cluster, 1, "web1", 1);
    in_sync(cluster, "web1");
    crate::guests::ask(cluster, "web1", "record on\n", "ACK 3");
    writes_past(cluster, 1, "web1", 5);
}

/// The number of a node by its name.
fn number(node: &str) -> u32 {
    node.trim_start_matches("node").parse().unwrap()
}

/// The guest, started anew on a node, has gone on: it found at least these records.
#[track_caller]
fn went_on(cluster: &Cluster, node: u32, promised: u64) -> u64 {
    writes_past(cluster, node, "web1", 0);
    let (first, last) = acknowledged(cluster, node, "web1").unwrap();
    assert!(first > promised, "record {promised} was acknowledged, and it found {} only", first - 1);
    last
}
