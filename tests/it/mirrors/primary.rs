//! The primary's guest dies, or its node does: every acknowledged record is on the secondary.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};

use super::{number, rounds, went_on, with_writer};
use crate::{
    cluster::{Cluster, wait_for},
    guests::{has_status, in_sync, last_ack, pid, processes_on, writes_past},
};

#[test]
fn what_was_acknowledged_survives_the_primarys_guest() {
    let cluster = with_writer();
    for round in 1..=rounds(2, 20) {
        let instance = cluster.instance("web1");
        let (old, new) = (number(&instance.primary), number(&instance.secondaries[0]));
        kill_process(pid(&cluster, old, "web1"), Signal::KILL).unwrap();
        has_status(&cluster, "web1", "ERROR_crashed");
        let promised = last_ack(&cluster, old, "web1");
        cluster.ok("instance failover -f web1");
        let last = went_on(&cluster, new, promised);
        println!("round {round}: {promised} records on node{old}, and on to {last} on node{new}");
        // The copy on the old primary is brought in sync by itself.
        in_sync(&cluster, "web1");
        writes_past(&cluster, new, "web1", last + 8);
    }
    cluster.ok("cluster verify");
}

/// A fence command that kills all that runs in a node's directory, frozen or not, and notes that it was asked.
fn fence(cluster: &Cluster) -> String {
    let (path, asked) = (cluster.dir().join("fence"), cluster.dir().join("fenced"));
    let body = format!(
        "#!/bin/sh\necho \"$1 $2\" >>{asked}\npkill -9 -f -- \"{dir}/$1/\"\nexit 0\n",
        asked = asked.display(),
        dir = cluster.dir().display()
    );
    fs::write(&path, body).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[test]
fn what_was_acknowledged_survives_a_frozen_primary_that_is_fenced() {
    let cluster = with_writer();
    // The master is on node1: the primary must be another one.
    cluster.ok("instance failover -f web1");
    writes_past(&cluster, 2, "web1", 0);
    in_sync(&cluster, "web1");
    cluster.devcluster(&["pause", "node2"]).exits(0);
    for process in processes_on(&cluster, 2) {
        kill_process(process, Signal::STOP).unwrap();
    }
    let promised = last_ack(&cluster, 2, "web1");

    let words = ["could not ask what the mirrors do on node2", "not reached"];
    cluster.gnt("instance failover -f web1").exits(1).says(&words);
    cluster.ok("node modify --offline yes node2");
    cluster.gnt("instance failover -f web1").exits(1).says(&["node2", "--fence-command", "--fenced"]);
    let command = fence(&cluster);
    cluster.ok(&format!("cluster modify --fence-command {command}"));
    cluster.ok("instance failover -f web1");
    let asked = fs::read_to_string(cluster.dir().join("fenced")).unwrap();
    assert_eq!(asked, format!("node2 {}\n", cluster.address(2)));
    assert_eq!(processes_on(&cluster, 2), []);
    went_on(&cluster, 1, promised);

    // Back again: it is the secondary, and gets what it missed.
    cluster.devcluster(&["kill", "node2"]);
    cluster.devcluster(&["start", "node2"]).exits(0);
    cluster.ok("node modify --offline no node2");
    in_sync(&cluster, "web1");
}

#[test]
fn a_fence_command_that_fails_stops_the_failover() {
    let cluster = with_writer();
    cluster.ok("instance failover -f web1");
    writes_past(&cluster, 2, "web1", 0);
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.ok("node modify --offline yes node2");
    let path = cluster.dir().join("refuses");
    fs::write(&path, "#!/bin/sh\necho 'no such outlet' >&2\nexit 3\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    cluster.ok(&format!("cluster modify --fence-command {}", path.display()));
    cluster.gnt("instance failover -f web1").exits(1).says(&["could not fence node2", "no such outlet"]);
    assert_eq!(cluster.instance("web1").primary, "node2");
    // Its guest goes on all the same.
    let wrote = last_ack(&cluster, 2, "web1");
    writes_past(&cluster, 2, "web1", wrote);
    cluster.devcluster(&["start", "node2"]).exits(0);
    cluster.ok("node modify --offline no node2");
    wait_for("its daemon has found it again", || cluster.instance("web1").status == "running");
}
