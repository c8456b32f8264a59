//! Node daemons that stand still for a while, as by SIGSTOP or on a suspended host, and go on.

use std::fs;
use std::process::Command;

use crate::ask::warnings;
use crate::cluster::{Cluster, run, wait_for};

/// A freeze, in seconds, that the daemon notices and the master waits for: it gives a call up after 15 s at the soonest.
const SHORT_S: u32 = 12;
/// One after which the master has given the connection up.
const LONG_S: u32 = 20;
const PRE: &str = "instance-shutdown-pre.d";

/// Two nodes; `web1` runs on node2, which is not the master's.
fn cluster_with_web1() -> Cluster {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t file -n node2 -s 16M -m 64M -o none web1");
    cluster
}

/// The command that stops node2's daemon.
fn stop(cluster: &Cluster) -> String {
    format!("kill -STOP $(cat '{}')", cluster.node_dir(2).join("noded.pid").display())
}

/// The command that stops node2's daemon for a while.
fn freeze(cluster: &Cluster, seconds: u32) -> String {
    let pid = cluster.node_dir(2).join("noded.pid");
    format!("{}; sleep {seconds}; kill -CONT $(cat '{}')", stop(cluster), pid.display())
}

/// Has node2's daemon stand still just when `gnt-instance shutdown` has asked its scripts and sends the step: node2's own
/// script leaves a process behind that does `freeze`, after the time that its answer takes, and the script on node1 ends
/// when that is done. (On a machine so slow that a second passes meanwhile, the master asks first whether the node is
/// there and does not send the step: then less is shown.)
fn freeze_before_the_step(cluster: &Cluster, freeze: &str) {
    let frozen = cluster.dir().join("frozen");
    let frozen = frozen.display();
    let (begin, rest) = freeze.split_once("; ").unwrap_or((freeze, ":"));
    let behind = format!("(sleep 0.3; {begin}; : > '{frozen}'; {rest}) > /dev/null 2>&1 &");
    cluster.script(2, PRE, "10-freeze", &behind);
    cluster.script(1, PRE, "10-wait", &format!("while [ ! -e '{frozen}' ]; do sleep 0.02; done"));
}

fn was_frozen(cluster: &Cluster) -> bool {
    cluster.log("node2").contains("this daemon was frozen")
}

/// What node2 has journaled of the calls of a job that is not a hook run; it is told as well that scripts at the job's end
/// are not to begin.
fn calls_of(cluster: &Cluster, job: u64) -> Vec<String> {
    let folder = cluster.node_dir(2).join("state/node/calls/node");
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(&format!("{job}-")) && !name.contains(".end.")).collect()
}

#[test]
fn a_step_sent_to_a_frozen_node_has_no_effect_when_it_thaws() {
    let cluster = cluster_with_web1();
    freeze_before_the_step(&cluster, &stop(&cluster));
    cluster.gnt("instance shutdown web1").exits(1).says(&["node2"]);
    let job = cluster.last_job().id;
    for (node, name) in [(1, "10-wait"), (2, "10-freeze")] {
        cluster.unscript(node, PRE, name);
    }
    // A newer job makes good what the other one may have left, and starts the guest.
    cluster.devcluster(&["resume", "node2"]).exits(0);
    cluster.ok("instance start web1");
    wait_for("node2 sees that it was frozen", || was_frozen(&cluster));
    assert_eq!(calls_of(&cluster, job), Vec::<String>::new(), "nothing of the job that is over was begun");
    assert_ne!(calls_of(&cluster, cluster.last_job().id), Vec::<String>::new());
    cluster.ok("instance shutdown web1");
}

#[test]
fn a_step_sent_to_a_node_that_is_frozen_for_a_short_time_is_repeated() {
    let cluster = cluster_with_web1();
    freeze_before_the_step(&cluster, &freeze(&cluster, SHORT_S));
    cluster.ok("instance shutdown web1");
    assert!(was_frozen(&cluster));
    let job = cluster.last_job();
    assert_eq!(warnings(&job), Vec::<String>::new());
    assert_eq!(calls_of(&cluster, job.id).iter().filter(|name| name.ends_with(".call")).count(), 1);
}

#[test]
fn r3_a_script_goes_on_while_its_daemon_is_frozen_for_a_short_time() {
    let cluster = cluster_with_web1();
    let ran = cluster.dir().join("ran");
    cluster.script(
        2,
        PRE,
        "10-freeze",
        &format!("{}; echo ran >> '{}'", freeze(&cluster, SHORT_S), ran.display()),
    );
    cluster.ok("instance shutdown web1");
    assert!(was_frozen(&cluster));
    assert_eq!(warnings(&cluster.last_job()), Vec::<String>::new());
    assert_eq!(fs::read_to_string(ran).unwrap(), "ran\n");
}

#[test]
fn a_freeze_while_nothing_is_under_way_does_not_matter() {
    let cluster = cluster_with_web1();
    let mut command = Command::new("sh");
    command.arg("-c").arg(freeze(&cluster, LONG_S));
    run(command).exits(0);
    cluster.ok("instance shutdown web1");
    assert_eq!(warnings(&cluster.last_job()), Vec::<String>::new());
    assert!(was_frozen(&cluster));
    cluster.ok("instance start web1");
}
