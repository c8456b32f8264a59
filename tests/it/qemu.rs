//! Guests by themselves: how they end, outlive their daemon, are shut down, started, rebooted, moved and removed.

use rustix::process::{Signal, kill_process};

use crate::{
    cluster::wait_for,
    guests::{ask, booted, cluster, has_status, last_words, machines, pid, processes},
};

#[test]
fn a_guest_that_ends_says_how_and_one_outlives_its_daemon() {
    let cluster = cluster(2);
    cluster.ok("instance add -t file -n node2 -s 16M -m 96M -o tiny web1");
    booted(&cluster, 2, "web1", 1);
    has_status(&cluster, "web1", "running");
    ask(&cluster, "web1", "record write 3; record count\n", "RECORDS 3");

    last_words(&cluster, "web1", "poweroff -f\n");
    has_status(&cluster, "web1", "USER_down");
    cluster.ok("cluster verify").says(&["warning: instance web1", "USER_down"]);
    cluster.ok("instance start web1");
    has_status(&cluster, "web1", "running");
    booted(&cluster, 2, "web1", 1);

    kill_process(pid(&cluster, 2, "web1"), Signal::KILL).unwrap();
    has_status(&cluster, "web1", "ERROR_crashed");
    cluster.gnt("cluster verify").exits(1).says(&["error: instance web1", "ERROR_crashed"]);
    cluster.ok("instance start web1");
    booted(&cluster, 2, "web1", 1);

    let before = pid(&cluster, 2, "web1");
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.devcluster(&["start", "node2"]).exits(0);
    has_status(&cluster, "web1", "running");
    assert_eq!(pid(&cluster, 2, "web1"), before);
    ask(&cluster, "web1", "record count\n", "RECORDS 3");
    cluster.ok("cluster verify");

    // A guest ends with its cluster.
    assert_eq!(processes(&cluster).len(), 1);
    cluster.devcluster(&["down"]).exits(0);
    assert_eq!(processes(&cluster), Vec::<i32>::new());
}

#[test]
fn a_guest_is_shut_down_started_rebooted_moved_and_removed() {
    let cluster = cluster(2);
    cluster.ok("instance add -t mirror -n node1:node2 -s 16M -m 96M -o tiny web1");
    booted(&cluster, 1, "web1", 1);
    cluster.ok("instance shutdown web1");
    has_status(&cluster, "web1", "ADMIN_down");
    assert_eq!(processes(&cluster), Vec::<i32>::new());

    cluster.ok("instance modify -m 112M web1");
    cluster.ok("instance start web1");
    booted(&cluster, 1, "web1", 1);
    let began = pid(&cluster, 1, "web1");
    cluster.ok("instance reboot -t hard web1");
    booted(&cluster, 1, "web1", 2);
    cluster.ok("instance reboot web1");
    booted(&cluster, 1, "web1", 3);
    assert_eq!(pid(&cluster, 1, "web1"), began, "it is the same process");
    has_status(&cluster, "web1", "running");

    cluster.ok("instance failover -f web1");
    assert_eq!(cluster.instance("web1").primary, "node2");
    booted(&cluster, 2, "web1", 1);
    wait_for("one guest is left", || machines(&cluster) == 1);
    cluster.ok("instance remove -f web1");
    assert_eq!(processes(&cluster), Vec::<i32>::new());
    cluster.ok("cluster verify");
}
