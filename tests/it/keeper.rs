//! Runs of scripts that outlive their node's daemon: R8 and X8 where a node daemon is killed and started again.
//!
//! The master is paused while a daemon is away, so that no time limit of its own decides a test on a busy machine.

use std::fs;
use std::path::Path;

use muster_proto::v1;
use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, wait_for};

const PRE: &str = "instance-modify-pre.d";
const POST: &str = "instance-modify-post.d";

/// Two nodes and web1 on the second one, down: the set of `instance modify` is both.
fn cluster_with_web1() -> Cluster {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t file -n node2 -s 16M -m 64M -p 1 -o none --no-start web1");
    cluster
}

/// A script that notes its process, waits until the gate is opened, and ends with a status.
fn gated(cluster: &Cluster, status: u8) -> String {
    let dir = cluster.dir().display();
    format!(
        "echo $$ >>'{dir}/runs'; while [ ! -e '{dir}/gate' ]; do sleep 0.02; done; echo gate seen; exit {status}"
    )
}

fn open_gate(cluster: &Cluster) {
    fs::write(cluster.dir().join("gate"), "").unwrap();
}

/// The processes of the script's runs, once there are as many.
#[track_caller]
fn runs(cluster: &Cluster, count: usize) -> Vec<Pid> {
    let path = cluster.dir().join("runs");
    // A line without its end is still being written.
    let read = || fs::read_to_string(&path).unwrap_or_default();
    wait_for("the script runs", || read().matches('\n').count() >= count);
    read().lines().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The living keepers of a node's runs.
pub(crate) fn keepers(cluster: &Cluster, node: u32) -> Vec<Pid> {
    let dir = cluster.node_dir(node);
    let is_keeper = |pid: Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let arguments: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        arguments.get(1).is_some_and(|form| form == "hook-keeper")
            && arguments.get(2).is_some_and(|place| Path::new(&**place).starts_with(&dir))
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.unwrap().file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| is_keeper(*pid) && is_alive(*pid)).collect()
}

/// Kills the keeper of a node's only run and waits until it is gone.
pub(crate) fn kill_keeper(cluster: &Cluster, node: u32) {
    let found = keepers(cluster, node);
    assert_eq!(found.len(), 1, "a run has one keeper");
    kill_process(found[0], Signal::KILL).unwrap();
    wait_for("the keeper is gone", || keepers(cluster, node).is_empty());
}

/// Kills node2's daemon while its script runs, does something, and starts it again.
#[track_caller]
fn restart_node2(cluster: &Cluster, meanwhile: impl FnOnce()) {
    cluster.devcluster(&["pause", "master"]).exits(0);
    cluster.devcluster(&["kill", "node2"]).exits(0);
    meanwhile();
    cluster.devcluster(&["start", "node2"]).exits(0);
    cluster.devcluster(&["resume", "master"]).exits(0);
}

#[test]
fn r8_a_pre_run_that_outlives_its_node_daemon_is_joined_not_repeated() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "10-wait", &gated(&cluster, 0));
    let id = cluster.submit("instance modify -m 96 web1");
    let pids = runs(&cluster, 1);
    restart_node2(&cluster, || assert!(is_alive(pids[0])));
    assert!(is_alive(pids[0]), "the daemon that starts lets it go on");
    open_gate(&cluster);
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Success, "{job:#?}");
    assert_eq!(cluster.instance("web1").memory_mib, 96);
    assert_eq!(runs(&cluster, 1), pids, "it ran once");
    wait_for("the keeper ends", || keepers(&cluster, 2).is_empty());
}

#[test]
fn r1_a_pre_script_that_ended_while_its_node_daemon_was_away_denies() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "10-no", &gated(&cluster, 1));
    let id = cluster.submit("instance modify -m 96 web1");
    let pids = runs(&cluster, 1);
    restart_node2(&cluster, || {
        open_gate(&cluster);
        wait_for("the run ends without a daemon", || keepers(&cluster, 2).is_empty());
    });
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Error, "{job:#?}");
    assert_eq!(cluster.instance("web1").memory_mib, 64);
    cluster.ok(&format!("job info {id}")).says(&["node2", "10-no", "gate seen"]);
    assert_eq!(runs(&cluster, 1), pids, "it ran once");
}

#[test]
fn r7_a_post_run_that_outlives_its_node_daemon_is_reported_with_its_exit_code() {
    let cluster = cluster_with_web1();
    cluster.script(2, POST, "10-late", &gated(&cluster, 7));
    let id = cluster.submit("instance modify -m 96 web1");
    let pids = runs(&cluster, 1);
    restart_node2(&cluster, || assert!(is_alive(pids[0])));
    open_gate(&cluster);
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Success, "{job:#?}");
    cluster.ok(&format!("job info {id}")).says(&["10-late", "7"]).does_not_say("unknown");
    assert_eq!(runs(&cluster, 1), pids, "it ran once");
}

#[test]
fn r8_a_pre_run_whose_keeper_died_too_is_repeated_after_the_first_is_gone() {
    let cluster = cluster_with_web1();
    // Says so if a second run begins while the first one goes on; a zombie is an end that nobody has looked at.
    let dir = cluster.dir().display();
    let guard = format!(
        "for p in $(cat '{dir}/runs' 2>/dev/null); do case $(cat /proc/$p/stat 2>/dev/null) in \
         ''|*') Z '*|*') X '*) ;; *) : > '{dir}/both' ;; esac; done"
    );
    cluster.script(2, PRE, "10-wait", &format!("{guard}\n{}", gated(&cluster, 0)));
    let id = cluster.submit("instance modify -m 96 web1");
    let first = runs(&cluster, 1);
    restart_node2(&cluster, || {
        kill_keeper(&cluster, 2);
        assert!(is_alive(first[0]));
    });
    assert!(!is_alive(first[0]), "what is left of a run is ended before the daemon serves");
    assert_eq!(runs(&cluster, 2).len(), 2);
    open_gate(&cluster);
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Success, "{job:#?}");
    assert!(!cluster.dir().join("both").exists());
}

#[test]
fn x8_a_cancel_reaches_a_run_that_outlived_its_node_daemon() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "10-wait", &gated(&cluster, 0));
    let id = cluster.submit("instance modify -m 96 web1");
    let pids = runs(&cluster, 1);
    restart_node2(&cluster, || assert!(is_alive(pids[0])));
    cluster.gnt(&format!("job cancel {id}"));
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Canceled, "{job:#?}");
    wait_for("the script ends", || !is_alive(pids[0]));
    wait_for("the keeper ends", || keepers(&cluster, 2).is_empty());
    assert_eq!(cluster.instance("web1").memory_mib, 64);
}
