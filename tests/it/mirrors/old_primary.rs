//! An old primary whose guest ran on after a failover, or after its instance was removed: it is stopped as soon as its daemon
//! hears of it.

use std::time::Instant;

use super::{went_on, with_writer};
use crate::{
    cluster::{wait_for, wait_until},
    guests::{self, BOOT_LIMIT, booted, in_sync, last_ack, pid, processes_on, said, writes_past},
};

#[test]
fn an_old_primary_stops_its_guest_when_it_hears_of_the_failover() {
    let cluster = with_writer();
    cluster.ok("instance failover -f web1");
    writes_past(&cluster, 2, "web1", 0);
    in_sync(&cluster, "web1");
    // Its daemon is gone and its guest runs on, whatever anybody says.
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.ok("node modify --offline yes node2");
    let old = pid(&cluster, 2, "web1");
    let promised = last_ack(&cluster, 2, "web1");
    let began = Instant::now();
    cluster.ok("instance failover -f --fenced web1");
    went_on(&cluster, 1, 1);
    let wrote = last_ack(&cluster, 2, "web1");
    assert!(processes_on(&cluster, 2).contains(&old), "nobody could stop it: {}", said(&cluster, 2, "web1"));
    // A lost node is replaced: the instance has nothing on it any more.
    cluster.ok("instance replace-disks -n node3 web1");
    in_sync(&cluster, "web1");

    // Without the master, a daemon that comes back leaves its guests alone.
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "node2"]).exits(0);
    assert!(processes_on(&cluster, 2).contains(&old), "it can ask nobody");
    cluster.devcluster(&["start", "master"]).exits(0);
    cluster.ok("node modify --offline no node2");
    let gone = wait_until(BOOT_LIMIT, || !processes_on(&cluster, 2).contains(&old));
    assert!(gone, "the guest of an earlier generation is stopped");
    println!(
        "two guests for {:?}; the old one acknowledged {} records more, which are lost as --fenced says",
        began.elapsed(),
        wrote - promised
    );
    in_sync(&cluster, "web1");
    wait_for("one guest is left", || cluster.instance("web1").status == "running");
    // The old copy's file goes when the node is back.
    wait_for("nothing is left", || cluster.gnt("cluster verify").status.success());
}

#[test]
fn the_guest_of_an_instance_that_was_removed_while_its_node_was_away_is_stopped() {
    let cluster = guests::cluster(2);
    cluster.ok("instance add -t file -n node2 -s 16M -m 96M -o tiny web1");
    booted(&cluster, 2, "web1", 1);
    let old = pid(&cluster, 2, "web1");
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.ok("node modify --offline yes node2");
    cluster.ok("instance remove -f web1");
    assert!(processes_on(&cluster, 2).contains(&old), "nobody could stop it");
    cluster.devcluster(&["start", "node2"]).exits(0);
    cluster.ok("node modify --offline no node2");
    let gone = wait_until(BOOT_LIMIT, || !processes_on(&cluster, 2).contains(&old));
    assert!(gone, "the guest of an instance that is no more is stopped");
    wait_for("nothing is left", || cluster.gnt("cluster verify").status.success());
}
