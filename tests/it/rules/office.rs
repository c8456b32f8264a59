//! R3: a node that has seen a newer master refuses the older one, whose jobs end with its office.

use std::time::Duration;

use crate::cluster::{Cluster, wait_until};

#[test]
fn r3_a_master_that_lost_its_office_changes_nothing_and_ends() {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.ok("instance add -t diskless -n node3 -m 64M -o none --no-start web1");
    cluster.gnt_at(2, "cluster master-failover -f").exits(0);
    cluster.gnt_at(2, "instance modify -m 96M web1").exits(0);
    cluster.devcluster(&["kill", "master"]).exits(0);

    // The old master's store is behind what the nodes have seen: it must be told to go on with that.
    cluster.devcluster(&["start", "master", "--", "--resume"]).exits(1);
    assert!(cluster.log("master").contains("--accept-loss"), "{}", cluster.log("master"));
    cluster.devcluster(&["start", "master", "--", "--resume", "--accept-loss"]).exits(0);
    assert_eq!(cluster.instance("web1").memory_mib, 64, "this is the older state, as was asked for");

    // The second master hears of it at its next call, changes nothing, and ends.
    let refused = cluster.gnt_at(2, "instance modify -m 128M web1");
    assert_ne!(refused.status.code(), Some(0), "{refused}");
    let ended = || cluster.gnt_at(2, "cluster getmaster").status.code() == Some(3);
    assert!(wait_until(Duration::from_secs(20), ended), "{}", cluster.log("master2"));
    assert!(cluster.log("master2").contains("no longer in office"), "{}", cluster.log("master2"));
    assert_eq!(cluster.instance("web1").memory_mib, 64);
    cluster.ok("instance modify -m 80M web1");
    assert_eq!(cluster.instance("web1").memory_mib, 80);
}

#[test]
fn a_takeover_that_dies_half_way_is_taken_back() {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.ok("instance add -t diskless -n node3 -m 64M -o none --no-start web1");
    // The successor has the state, asks its own scripts, and dies.
    cluster.script(2, "master-failover-pre.d", "10-wait", "sleep 60");
    let mut failover = cluster.gnt_command(&["cluster", "master-failover", "-f", "--submit"]);
    failover.env("MUSTER_SOCKET", cluster.node_dir(2).join("run/master.sock"));
    crate::cluster::run(failover).exits(0);
    cluster.gnt("cluster getmaster").exits(3).says(&["node2"]);
    cluster.devcluster(&["kill", "master2"]).exits(0);
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master", "--", "--resume"]).exits(0);
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");
    cluster.ok("instance modify -m 96M web1");
    // The other one must not go on with the state that it had; as a standby it forgets it.
    cluster.devcluster(&["start", "master2"]).exits(1).says(&["--accept-loss"]);
    cluster.devcluster(&["start", "master2", "--", "--standby"]).exits(0);
    cluster.gnt_at(2, "cluster getmaster").exits(3).says(&["waits to become master"]);
    cluster.unscript(2, "master-failover-pre.d", "10-wait");
    cluster.gnt_at(2, "cluster master-failover -f").exits(0);
    cluster.gnt_at(2, "instance list -o name,memory").exits(0).says(&["web1", "96M"]);
}
