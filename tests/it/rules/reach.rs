//! R3, R5, R6: nodes that can't be asked.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use muster_proto::v1;
use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};

use super::{PRE, cluster_with_web1, modify, runs, waiting_script};
use crate::ask::warnings;
use crate::cluster::{Cluster, wait_until};

/// All waits of the design for one silent node (connect, ping, keep-alive, reconnect, probe) with much slack for a busy machine.
const GIVEN_UP_LIMIT: Duration = Duration::from_secs(60);

/// The operation goes on within the limit and warns of node3, which denies nothing.
#[track_caller]
fn goes_on_without_node3(cluster: &Cluster, memory: u64) {
    cluster.take_dumps();
    let began = Instant::now();
    modify(cluster, memory).exits(0).says(&["node3"]);
    assert!(began.elapsed() < GIVEN_UP_LIMIT, "{:?}", began.elapsed());
    assert_eq!(cluster.instance("web1").memory_mib, memory);
    let told = warnings(&cluster.last_job());
    assert!(told.iter().any(|text| text.contains("node3")), "no warning names node3: {told:?}");
    let ran: Vec<_> = cluster.take_dumps().into_iter().map(|dump| (dump.directory, dump.node)).collect();
    let expected = ["post", "pre"].into_iter().flat_map(|phase| {
        ["node1", "node2"].map(|node| (format!("instance-modify-{phase}.d"), node.to_owned()))
    });
    assert_eq!(ran, expected.collect::<Vec<_>>(), "the other nodes are asked as ever");
}

#[test]
fn r3_a_killed_daemon_denies_nothing() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify"]);
    cluster.script(3, PRE, "10-no", "exit 1");
    cluster.devcluster(&["kill", "node3"]).exits(0);
    goes_on_without_node3(&cluster, 96);
    cluster.devcluster(&["start", "node3"]).exits(0);
    modify(&cluster, 128).exits(1).says(&["node3", "10-no"]);
}

#[test]
fn r3_a_stopped_daemon_denies_nothing() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify"]);
    cluster.devcluster(&["pause", "node3"]).exits(0);
    goes_on_without_node3(&cluster, 96);
    cluster.devcluster(&["resume", "node3"]).exits(0);
}

/// A listener that completes no connection: its queue of length 0 is full.
fn full_listener(address: SocketAddr) -> (OwnedFd, Vec<TcpStream>) {
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&listener, true).unwrap();
    bind(&listener, &address).unwrap();
    listen(&listener, 0).unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) {
        queued.push(stream);
        assert!(queued.len() < 100, "the queue is never full");
    }
    (listener, queued)
}

#[test]
fn r3_a_connection_that_never_completes_denies_nothing() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify"]);
    cluster.devcluster(&["kill", "node3"]).exits(0);
    let address = format!("{}:1811", cluster.address(3)).parse().unwrap();
    let full = full_listener(address);
    goes_on_without_node3(&cluster, 96);
    drop(full);
}

#[test]
fn r3_a_daemon_frozen_in_the_middle_of_a_script_is_given_up() {
    let cluster = cluster_with_web1();
    cluster.script(3, PRE, "10-wait", &waiting_script(&cluster, "frozen"));
    let operation = cluster.begin("instance modify -m 96 web1");
    runs(&cluster, "frozen");
    cluster.devcluster(&["pause", "node3"]).exits(0);
    operation.finish().exits(0).says(&["node3"]);
    let told = warnings(&cluster.last_job());
    assert!(told.iter().any(|text| text.contains("node3")), "{told:?}");
    cluster.devcluster(&["resume", "node3"]).exits(0);
}

#[test]
fn r3_a_failure_received_before_the_loss_denies() {
    let cluster = cluster_with_web1();
    cluster.script(3, PRE, "10-no", "echo heard in time; exit 5");
    cluster.script(3, PRE, "20-wait", &waiting_script(&cluster, "loss"));
    let before = cluster.snapshot();
    let operation = cluster.begin("instance modify -m 96 web1");
    runs(&cluster, "loss");
    let heard =
        || cluster.last_job().pre.iter().any(|report| report.node == "node3" && report.result.is_some());
    // The result of 10-no travels while 20-wait runs; the job may show it only at the end of the phase, so this is no condition.
    let _ = wait_until(Duration::from_secs(1), heard);
    cluster.devcluster(&["kill", "node3"]).exits(0);
    operation.finish().exits(1).says(&["node3", "10-no", "heard in time"]);
    assert_eq!(cluster.snapshot(), before);
}

#[test]
fn r3_a_daemon_that_can_not_run_its_scripts_denies() {
    let cluster = cluster_with_web1();
    let hooks = cluster.node_dir(2).join("hooks");
    // A link to itself is there and can't be read, for root neither.
    std::os::unix::fs::symlink(PRE, hooks.join(PRE)).unwrap();
    let before = cluster.snapshot();
    modify(&cluster, 96).exits(1).says(&["node2", PRE]);
    assert_eq!(cluster.snapshot(), before);
    assert_eq!(cluster.last_job().error.unwrap().kind(), v1::ErrorKind::Denied);
}

#[test]
fn r5_the_masters_own_node_must_answer() {
    let cluster = cluster_with_web1();
    cluster.devcluster(&["kill", "node1"]).exits(0);
    let before = cluster.snapshot();
    modify(&cluster, 96).exits(1).says(&["could not ask the master's own hooks"]).does_not_say("denied");
    assert_eq!(cluster.snapshot(), before);
    assert_ne!(cluster.last_job().error.unwrap().kind(), v1::ErrorKind::Denied);

    cluster.ok("cluster modify --hook-master-required no");
    modify(&cluster, 96).exits(0).says(&["node1"]);
    cluster.ok("cluster modify --hook-master-required yes");
    modify(&cluster, 128).exits(1).says(&["could not ask the master's own hooks"]);
    cluster.devcluster(&["start", "node1"]).exits(0);
    modify(&cluster, 128).exits(0);
}

#[test]
fn r6_an_offline_node_is_outside_every_set() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify"]);
    cluster.script(3, PRE, "10-no", "exit 1");
    cluster.ok("node modify --offline yes node3");
    cluster.ok("cluster modify --hook-unreachable deny");
    for daemon_runs in [true, false] {
        if !daemon_runs {
            cluster.devcluster(&["kill", "node3"]).exits(0);
        }
        modify(&cluster, if daemon_runs { 96 } else { 128 }).exits(0);
        assert_eq!(warnings(&cluster.last_job()), Vec::<String>::new());
        let nodes: Vec<_> = cluster.take_dumps().into_iter().map(|dump| dump.node).collect();
        assert_eq!(nodes, ["node1", "node2", "node1", "node2"]);
    }
    cluster.gnt("node modify --offline yes node1").exits(1).says(&["node1"]);
}

#[test]
fn r6_a_drained_node_is_an_existing_node() {
    let cluster = cluster_with_web1();
    cluster.script(3, PRE, "10-no", "exit 1");
    cluster.ok("node modify --drained yes node3");
    modify(&cluster, 96).exits(1).says(&["node3", "10-no"]);
}

/// Longer than any silence is waited for (ping, keep-alive, reconnect); with `--long` the whole of a script's own limit.
fn long_script_s() -> u64 {
    if std::env::var_os("MUSTER_TEST_LONG").is_some() { 299 } else { 26 }
}

#[test]
fn r3_a_script_may_run_long_on_a_daemon_that_answers() {
    let cluster = cluster_with_web1();
    let seconds = long_script_s();
    cluster.script(3, PRE, "10-long", &format!("sleep {seconds}; echo done"));
    cluster.submit("instance modify -m 96M web1");
    let over = || cluster.last_job().ended_ms.is_some();
    assert!(wait_until(Duration::from_secs(seconds + 60), over), "{:?}", cluster.last_job());
    let job = cluster.last_job();
    assert_eq!((job.status(), warnings(&job).len()), (v1::JobStatus::Success, 0), "{job:?}");
    let result =
        job.pre.iter().find(|report| report.node == "node3").and_then(|report| report.result.clone());
    let scripts = result.expect("node3 answered").scripts;
    assert_eq!(scripts.len(), 1, "{scripts:?}");
    assert!(scripts[0].duration_ms >= seconds * 1000, "{scripts:?}");
    assert_eq!(cluster.instance("web1").memory_mib, 96);
}
