//! A mirror that broke off a moment ago: nobody boots from its copy, also where the configuration does not say so yet.

use std::fs;

use muster_proto::v1::JobStatus;
use rustix::process::{Pid, Signal, kill_process};

use super::{went_on, with_writer};
use crate::{
    cluster::{Cluster, wait_for},
    guests::{copies_are_identical, has_status, in_sync, last_ack, machines, pid, processes_on, writes_past},
};

/// A script that says that it runs, and ends when it may.
fn wait_script(begun: &str, may_end: &str) -> String {
    format!("touch {begun}\nfor i in $(seq 600); do [ -e {may_end} ] && exit 0; sleep 0.1; done\nexit 1")
}

/// What serves the instance's copy.
fn server(cluster: &Cluster, node: u32) -> Pid {
    let found = processes_on(cluster, node);
    let [server] = &found[..] else { panic!("{found:?}") };
    *server
}

/// Whether the configuration says that the copy misses writes, or is being made anew because of that.
fn is_stale(cluster: &Cluster) -> bool {
    let said = cluster.ok("instance info web1").stdout;
    said.contains("stale") || said.contains("inconsistent")
}

#[test]
fn a_failover_asks_the_primary_before_it_relies_on_a_copy() {
    let cluster = with_writer();
    let file = |name: &str| cluster.dir().join(name).display().to_string();
    let (begun, may_end) = (file("begun"), file("may-end"));
    cluster.script(1, "instance-failover-pre.d", "10-waits", &wait_script(&begun, &may_end));

    // While a job has the instance, the configuration can't follow: it says that the copy is consistent.
    let job = cluster.submit("instance failover -f web1");
    wait_for("the failover has been checked", || fs::exists(&begun).unwrap());
    let guest = pid(&cluster, 1, "web1");
    let frozen = server(&cluster, 2);
    kill_process(frozen, Signal::STOP).unwrap();
    let wrote = last_ack(&cluster, 1, "web1") + 2;
    writes_past(&cluster, 1, "web1", wrote);
    fs::write(&may_end, "").unwrap();
    wait_for("the failover is over", || cluster.job(job).status() == JobStatus::Error);
    let error = cluster.job(job).error.unwrap().message;
    assert!(error.starts_with("the copy of sda on node2 misses writes"), "{error}");
    assert!(error.contains("--ignore-consistency"), "{error}");
    assert!(is_stale(&cluster), "{}", cluster.ok("instance info web1").stdout);
    assert_eq!(pid(&cluster, 1, "web1"), guest, "it was not stopped in vain");
    cluster.gnt("instance migrate -f web1").exits(1).says(&["the copy of sda on node2 is "]);

    // Its node may have ended it already, to begin anew.
    let _gone_is_fine = kill_process(frozen, Signal::CONT);
    in_sync(&cluster, "web1");
    let promised = last_ack(&cluster, 1, "web1");
    cluster.ok("instance failover -f web1");
    let last = went_on(&cluster, 2, promised);
    in_sync(&cluster, "web1");

    // The guest dies as soon as it has written something that its copy misses.
    kill_process(server(&cluster, 1), Signal::KILL).unwrap();
    let wrote = last_ack(&cluster, 2, "web1").max(last) + 1;
    writes_past(&cluster, 2, "web1", wrote);
    kill_process(pid(&cluster, 2, "web1"), Signal::KILL).unwrap();
    cluster
        .gnt("instance failover -f web1")
        .exits(1)
        .says(&["the copy of sda on node1", "--ignore-consistency"]);
    wait_for("the copy is stale", || is_stale(&cluster));
    has_status(&cluster, "web1", "ERROR_crashed");
    let wrote = last_ack(&cluster, 2, "web1");
    cluster.ok("instance start web1");
    went_on(&cluster, 2, wrote);
    in_sync(&cluster, "web1");

    // One whose copy had everything stays what it is: after a crash, and after the shutdown of what crashed.
    kill_process(pid(&cluster, 2, "web1"), Signal::KILL).unwrap();
    has_status(&cluster, "web1", "ERROR_crashed");
    let promised = last_ack(&cluster, 2, "web1");
    cluster.ok("instance shutdown web1");
    assert!(!is_stale(&cluster), "{}", cluster.ok("instance info web1").stdout);
    cluster.ok("instance failover -f web1");
    cluster.ok("instance start web1");
    went_on(&cluster, 1, promised);
    in_sync(&cluster, "web1");
    cluster.ok("instance shutdown web1");
    copies_are_identical(&cluster, "web1");
    cluster.ok("cluster verify");
}

#[test]
fn a_failover_from_a_lost_node_does_not_go_on_from_a_copy_that_nobody_served() {
    let cluster = with_writer();
    cluster.ok("instance failover -f web1");
    writes_past(&cluster, 2, "web1", 0);
    in_sync(&cluster, "web1");
    let promised = last_ack(&cluster, 2, "web1");

    // Nobody hears that the mirror breaks off, and that the guest goes on alone.
    cluster.devcluster(&["kill", "node2"]).exits(0);
    kill_process(server(&cluster, 1), Signal::KILL).unwrap();
    let wrote = last_ack(&cluster, 2, "web1") + 5;
    writes_past(&cluster, 2, "web1", wrote);
    kill_process(pid(&cluster, 2, "web1"), Signal::KILL).unwrap();
    cluster.ok("node modify --offline yes node2");
    assert!(!is_stale(&cluster), "the configuration can't know: {}", cluster.ok("instance info web1").stdout);

    cluster.gnt("instance failover -f --fenced web1").exits(1).says(&[
        "the copy of sda on node1 may miss writes",
        "what serves it to the old primary has ended",
        "--ignore-consistency",
    ]);
    assert_eq!((machines(&cluster), cluster.instance("web1").primary.as_str()), (0, "node2"));
    assert!(is_stale(&cluster), "{}", cluster.ok("instance info web1").stdout);
    cluster.ok("instance failover -f --fenced --ignore-consistency web1");
    went_on(&cluster, 1, promised);
}
