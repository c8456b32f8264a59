//! Jobs that wait for jobs, and priorities.

use std::fs;

use muster_proto::v1::{ErrorKind, JobStatus};
use serde_json::json;

use super::{
    PRE, cluster_with_webs, ends_as, gate_is_reached, gated, info, open_gate, path, succeeds, waits_for,
};
use crate::cluster::Cluster;

/// A job on web1 whose script waits.
fn gated_job(cluster: &Cluster) -> u64 {
    cluster.script(1, PRE, "10-wait", &gated(cluster));
    let id = cluster.submit("instance modify -m 96 web1");
    gate_is_reached(cluster);
    id
}

/// A job that was denied.
fn denied_job(cluster: &Cluster) -> u64 {
    cluster.script(1, "instance-start-pre.d", "10-no", "exit 1");
    let id = cluster.submit("instance start web1");
    ends_as(cluster, id, JobStatus::Error);
    cluster.unscript(1, "instance-start-pre.d", "10-no");
    id
}

#[test]
fn jobs_start_in_the_order_of_their_dependencies() {
    let cluster = cluster_with_webs(1);
    let first = gated_job(&cluster);
    // On another object, so that no lock keeps them.
    let second = cluster.submit(&format!("instance start web2 --depend {first}"));
    let third =
        cluster.submit(&format!("cluster modify --hook-timeout allow --depend {second}:success,error"));
    assert_eq!(waits_for(&cluster, second), format!("job {first} to end as success"));
    assert_eq!(waits_for(&cluster, third), format!("job {second} to end as success or error"));
    assert_eq!(info(&cluster, third)["depends"], json!([{"job": second, "states": ["success", "error"]}]));
    cluster.ok(&format!("job info {second}")).says(&[&format!("depends:     {first}:success")]);
    open_gate(&cluster);
    let jobs = [first, second, third].map(|id| succeeds(&cluster, id));
    for pair in jobs.windows(2) {
        assert!(pair[1].started_ms >= pair[0].ended_ms, "{pair:#?}");
    }
    // What is over already is not waited for, in the archive neither.
    cluster.ok(&format!("instance shutdown web2 --depend {first}"));
    cluster.ok(&format!("job archive {first}"));
    cluster.ok(&format!("instance start web2 --depend {first} --depend {second}"));
}

#[test]
fn a_job_ends_when_one_it_depends_on_ended_otherwise() {
    let cluster = cluster_with_webs(1);
    let denied = denied_job(&cluster);
    let words = format!("job {denied}, on which this one depends, ended as error (wanted: success)");
    cluster.gnt(&format!("instance start web2 --depend {denied}")).exits(1).says(&["refused", &words]);
    assert_eq!(cluster.last_job().error.unwrap().kind(), ErrorKind::Refused);
    cluster.ok(&format!("instance start web2 --depend {denied}:error"));
    let before = cluster.last_job().id;

    cluster.ok(&format!("job archive {denied}"));
    let words = format!("job {denied} ended as error (wanted: success or canceled)");
    cluster
        .gnt(&format!("instance shutdown web2 --depend {denied}:success,canceled"))
        .exits(1)
        .says(&[&words]);
    cluster.gnt("instance shutdown web2 --depend 4711").exits(1).says(&["there is no job 4711"]);
    assert_eq!(cluster.last_job().id, before, "no job was made");
    assert!(cluster.instance("web2").admin_up);
}

#[test]
fn a_job_is_canceled_with_the_one_it_depends_on() {
    let cluster = cluster_with_webs(1);
    let first = gated_job(&cluster);
    let canceled = cluster.submit("instance modify -m 128 web1");
    let with_it = cluster.submit(&format!("instance start web2 --depend {canceled}"));
    let after_it =
        cluster.submit(&format!("instance start web2 --depend {canceled}:canceled --depend {first}"));
    waits_for(&cluster, after_it);
    cluster.ok(&format!("job cancel {canceled}"));
    let job = ends_as(&cluster, with_it, JobStatus::Canceled);
    assert!(!job.killed);
    let words = format!("job {canceled}, on which this one depends, was canceled");
    cluster.gnt(&format!("job watch {with_it}")).exits(1).says(&["was canceled", &words]);
    assert_eq!(waits_for(&cluster, after_it), format!("job {first} to end as success"));
    open_gate(&cluster);
    succeeds(&cluster, after_it);
}

#[test]
fn of_the_jobs_that_wait_for_a_lock_the_one_of_high_priority_goes_first() {
    let cluster = cluster_with_webs(1);
    let first = gated_job(&cluster);
    let waiting = ["low", "normal", "high", "-20"].map(|priority| {
        let id = cluster.submit(&format!("instance modify -m 128 web1 --priority {priority}"));
        waits_for(&cluster, id);
        id
    });
    let [low, normal, high, foremost] = waiting;
    assert_eq!(
        (&info(&cluster, low)["priority"], &info(&cluster, foremost)["priority"]),
        (&json!(10), &json!(-20))
    );
    let list = cluster.ok("job list --pending --no-headers -o priority").stdout;
    assert_eq!(list.split_whitespace().collect::<Vec<_>>(), ["10", "0", "-10", "-20"]);
    open_gate(&cluster);
    for id in waiting {
        succeeds(&cluster, id);
    }
    let ran = fs::read_to_string(path(&cluster, "runs")).unwrap();
    let order: Vec<u64> = ran.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(order, [first, foremost, high, normal, low]);
}
