//! R3: a node that has seen a newer master refuses the older one, whose jobs end with its office.

use std::process::Stdio;
use std::time::Duration;

use muster_proto::v1;
use muster_proto::v1::operation_service_client::OperationServiceClient;
use muster_tests::rpc;

use crate::ask;
use crate::cluster::{Cluster, wait_for, wait_until};

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

/// With two masters, and node3 silent: a new master greets it in vain for some seconds before it drives.
fn cluster_with_a_silent_node() -> Cluster {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.devcluster(&["pause", "node3"]).exits(0);
    cluster
}

/// Node2 is the master, and the only one.
#[track_caller]
fn node2_drives(cluster: &Cluster) {
    wait_for("node2 is the master", || cluster.gnt_at(2, "cluster getmaster").stdout.trim() == "node2");
    cluster.gnt("cluster getmaster").exits(3).says(&["the master is node2"]);
    cluster.devcluster(&["resume", "node3"]).exits(0);
    let add = "instance add -t diskless -n node3 -m 64M -o none --no-start web1";
    wait_for("the cluster works", || cluster.gnt_at(2, add).status.success());
}

#[test]
fn a_failover_whose_client_goes_away_at_its_beginning_goes_on() {
    let cluster = cluster_with_a_silent_node();
    let mut client = cluster.gnt_command(&["cluster", "master-failover", "-f"]);
    client.env("MUSTER_SOCKET", cluster.node_dir(2).join("run/master.sock"));
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the office is given away", || cluster.gnt("cluster getmaster").status.code() == Some(3));
    client.kill().unwrap();
    client.wait().unwrap();
    node2_drives(&cluster);
}

#[test]
fn a_failover_that_is_asked_for_again_meanwhile_is_the_same() {
    let cluster = cluster_with_a_silent_node();
    let socket = cluster.node_dir(2).join("run/master.sock");
    let failover = v1::operation::Operation::MasterFailover(v1::MasterFailover {});
    let request = v1::SubmitRequest {
        operation: Some(v1::Operation { operation: Some(failover) }),
        request_id: "the-same".to_owned(),
        ..Default::default()
    };
    let submit = |limit| {
        let request = request.clone();
        rpc::call(&socket, limit, |channel| async move {
            OperationServiceClient::new(channel).submit(request).await
        })
    };
    // Whoever gives up and asks again is not told that another takeover is in the way.
    drop(submit(Duration::from_secs(1)));
    let job = submit(Duration::from_secs(30)).unwrap().into_inner().job_id;
    node2_drives(&cluster);
    let failovers: Vec<_> =
        ask::jobs(&socket).into_iter().filter(|job| job.summary.contains("FAILOVER")).collect();
    assert_eq!(failovers.iter().map(|job| job.id).collect::<Vec<_>>(), [job], "{failovers:?}");
}

#[test]
fn a_failover_that_is_not_taken_leaves_the_office_where_it_was() {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.ok("cluster queue drain");
    // The new master has the state by then, and the queue's with it.
    cluster.gnt_at(2, "cluster master-failover -f").exits(1).says(&["the queue is drained"]);
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");
    cluster.gnt_at(2, "cluster getmaster").exits(3).says(&["waits to become master"]);
    cluster.ok("cluster queue undrain");
    cluster.ok("instance add -t diskless -n node3 -m 64M -o none --no-start web1");
    cluster.gnt_at(2, "cluster master-failover -f").exits(0);
    cluster.gnt_at(2, "instance list").exits(0).says(&["web1"]);
}

#[test]
fn an_office_that_was_given_to_a_standby_which_lost_it_comes_back() {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.script(2, "master-failover-pre.d", "10-wait", "sleep 60");
    let mut failover = cluster.gnt_command(&["cluster", "master-failover", "-f", "--submit"]);
    failover.env("MUSTER_SOCKET", cluster.node_dir(2).join("run/master.sock"));
    crate::cluster::run(failover).exits(0);
    cluster.devcluster(&["kill", "master2"]).exits(0);
    cluster.devcluster(&["start", "master2", "--", "--standby"]).exits(0);
    cluster.unscript(2, "master-failover-pre.d", "10-wait");
    // The old master has nothing more to give; it hears that nobody has its office.
    cluster
        .gnt_at(2, "cluster master-failover -f")
        .exits(1)
        .says(&["the master is node2", "the old master has its office still, or again"]);
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");
    cluster.gnt_at(2, "cluster master-failover -f").exits(0);
    assert_eq!(cluster.gnt_at(2, "cluster getmaster").exits(0).stdout.trim(), "node2");
}
