//! The office comes back to a master that gave it away: said by the successor's daemon, which may be gone a moment later.

use muster_proto::v1;

use super::doors::{Door, Doors, call, outcome_of};
use crate::cluster::{Cluster, run, wait_for};

#[test]
fn an_office_comes_back_whether_or_not_its_successor_waits_and_success_is_said_when_it_is_back() {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    let doors = Doors::new(&cluster);
    let successor = doors.node_certificate(2);
    // The successor has the state, and dies.
    cluster.script(2, "master-failover-pre.d", "10-wait", "sleep 60");
    let mut failover = cluster.gnt_command(&["cluster", "master-failover", "-f", "--submit"]);
    failover.env("MUSTER_SOCKET", cluster.node_dir(2).join("run/master.sock"));
    run(failover).exits(0);
    cluster.devcluster(&["kill", "master2"]).exits(0);
    cluster.gnt("cluster getmaster").exits(3).says(&["the master is node2"]);

    // The old master greets its nodes, of which one is silent, when the call that it works on ends.
    cluster.devcluster(&["pause", "node3"]).exits(0);
    let take_back = v1::TakeBackRequest { cluster_uuid: doors.uuid.to_string(), ..Default::default() };
    let channel = doors.connect(Door::Master, &successor).unwrap();
    let path = "/muster.v1.MasterService/TakeBack";
    let first = doors.runtime.spawn({
        let (channel, take_back) = (channel.clone(), take_back.clone());
        async move { call(&channel, path, take_back).await }
    });
    wait_for("the old master has heard of it", || cluster.log("master").contains("the office comes back"));
    first.abort();
    assert_eq!(outcome_of(&doors.wait(call(&channel, path, take_back))), "answered");
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");
    cluster.devcluster(&["resume", "node3"]).exits(0);
    cluster.ok("instance add -t diskless -n node2 -m 64M -o none --no-start web1");
}
