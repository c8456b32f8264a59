//! `gnt-job cancel --kill` in every phase of a job: its scripts are gone, its locks free, and the next job goes on.

use std::fs;
use std::time::Instant;

use muster_proto::v1::JobStatus;
use serde_json::json;

use super::{
    POST, PRE, cluster_with_webs, ends_as, file, gate_is_reached, gated, info, open_gate, path, starts,
    succeeds, waits_for,
};
use crate::cluster::{Cluster, wait_for};

/// A script that only the first job has to wait for; it notes its processes.
fn for_the_first(cluster: &Cluster, body: &str) -> String {
    let (first, pids) = (file(cluster, "first"), file(cluster, "pids"));
    format!("mkdir {first} 2>/dev/null || exit 0\nnote() {{ echo $1 >> {pids}; }}\n{body}")
}

const SLEEPS: &str = "note $$; sleep 60";
/// Neither it nor its child ends at a TERM.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & note $!; note $$; while :; do sleep 0.1; done";

/// The processes that the script has noted, once there are as many.
#[track_caller]
fn processes(cluster: &Cluster, count: usize) -> Vec<String> {
    let read = || fs::read_to_string(path(cluster, "pids")).unwrap_or_default();
    wait_for("the script runs", || read().matches('\n').count() >= count);
    read().lines().map(str::to_owned).collect()
}

/// Whether a process exists and is no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Kills a job that holds web1; gives the next job on web1, which waited for it and starts.
#[track_caller]
#[expect(clippy::print_stderr, reason = "what was measured is part of the result")]
fn kill(cluster: &Cluster, what: &str, id: u64) -> u64 {
    let next = cluster.submit("instance modify -p 2 web1");
    assert!(waits_for(cluster, next).contains(&format!("held by job {id}")));
    let began = Instant::now();
    cluster.ok(&format!("job cancel --kill {id}")).says(&[&format!("job {id} is"), "killed"]);
    starts(cluster, next);
    eprintln!("{what}: the next job has its locks {:?} after the kill was asked for", began.elapsed());
    next
}

/// The job's end, as everybody who asks is told.
#[track_caller]
fn is_killed(cluster: &Cluster, id: u64, committed: bool) {
    ends_as(cluster, id, JobStatus::Canceled);
    let shown = info(cluster, id);
    assert_eq!(shown["status"], json!("canceled"));
    assert_eq!((&shown["killed"], &shown["committed"]), (&json!(true), &json!(committed)));
    assert_eq!((&shown["blocked"], &shown["failed_undos"]), (&json!(null), &json!([])));
    let stays = "what the operation did stays";
    for line in ["watch", "wait"] {
        let end = cluster.gnt(&format!("job {line} {id}")).exits(1).says(&["killed"]);
        if committed {
            end.says(&[stays])
        } else {
            end.does_not_say(stays)
        };
    }
    let list = cluster.ok(&format!("job list {id} --no-headers -o id,status,killed,committed")).stdout;
    let yes_no = if committed { "Y" } else { "N" };
    assert_eq!(list.split_whitespace().collect::<Vec<_>>(), [&id.to_string(), "canceled", "Y", yes_no]);
    cluster.gnt(&format!("job cancel --kill {id}")).exits(1).says(&["is over already"]);
}

#[track_caller]
fn killed_in_hooks(directory: &str, body: &str, count: usize, committed: bool) {
    let cluster = cluster_with_webs(2);
    cluster.script(2, directory, "10-first", &for_the_first(&cluster, body));
    let id = cluster.submit("instance modify -m 96 web1");
    let pids = processes(&cluster, count);
    let next = kill(&cluster, directory, id);
    wait_for("the scripts are gone", || !pids.iter().any(|pid| is_alive(pid)));
    is_killed(&cluster, id, committed);
    succeeds(&cluster, next);
    let web1 = cluster.instance("web1");
    assert_eq!((web1.memory_mib, web1.vcpus), (if committed { 96 } else { 64 }, 2));
}

#[test]
fn a_job_whose_pre_script_sleeps_is_over_at_once() {
    killed_in_hooks(PRE, SLEEPS, 1, false);
}

#[test]
fn x8_a_script_that_ignores_term_is_ended_with_its_children_and_not_waited_for() {
    killed_in_hooks(PRE, STUBBORN, 2, false);
}

#[test]
fn what_a_job_did_that_is_killed_in_its_post_phase_stays() {
    killed_in_hooks(POST, SLEEPS, 1, true);
}

#[test]
fn a_job_in_a_step_is_over_when_its_node_confirms_the_end() {
    let cluster = cluster_with_webs(2);
    cluster.faults(2, "[guest_start]\ndelay_ms = 600000\n");
    let id = cluster.submit("instance start web1");
    wait_for("the step is going", || cluster.job(id).phase == "steps");
    let next = kill(&cluster, "a step", id);
    is_killed(&cluster, id, false);
    succeeds(&cluster, next);
    assert!(!cluster.instance("web1").admin_up);
    cluster.faults(2, "");
    cluster.ok("instance start web1");
    cluster.ok("cluster verify");
}

#[test]
fn a_job_that_waits_is_over_at_once_and_the_one_it_waited_for_goes_on() {
    let cluster = cluster_with_webs(1);
    cluster.script(1, PRE, "10-wait", &gated(&cluster));
    let first = cluster.submit("instance modify -m 96 web1");
    gate_is_reached(&cluster);
    let id = cluster.submit("instance modify -m 128 web1");
    waits_for(&cluster, id);
    cluster.ok(&format!("job cancel --kill {id}")).says(&[&format!("job {id} is killed")]);
    is_killed(&cluster, id, false);
    assert_eq!(cluster.job(first).status(), JobStatus::Running);
    open_gate(&cluster);
    succeeds(&cluster, first);
    assert_eq!(cluster.instance("web1").memory_mib, 96);
    cluster.gnt("job cancel --kill 4711").exits(1).says(&["there is no job 4711"]);
}

#[test]
fn who_follows_a_job_that_is_killed_is_told() {
    let cluster = cluster_with_webs(1);
    cluster.script(1, PRE, "10-wait", &gated(&cluster));
    let operation = cluster.begin("instance modify -m 96 web1");
    gate_is_reached(&cluster);
    let id = cluster.last_job().id;
    let wait = cluster.begin(&format!("job wait {id} --json"));
    cluster.ok(&format!("job cancel --kill {id}"));
    operation.finish().exits(1).says(&[&format!("job {id} was killed")]);
    let waited: serde_json::Value = serde_json::from_str(&wait.finish().exits(1).stdout).unwrap();
    assert_eq!((&waited["status"], &waited["killed"]), (&json!("canceled"), &json!(true)));
}
