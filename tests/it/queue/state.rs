//! The queue as a whole: drained it takes no job, paused it starts none, also over a restart of the master.

use muster_proto::v1::JobStatus;
use serde_json::Value;

use super::{PRE, cluster_with_webs, gate_is_reached, gated, open_gate, restart_master, succeeds, waits_for};
use crate::cluster::Cluster;

fn queue(cluster: &Cluster) -> Value {
    serde_json::from_str(&cluster.ok("cluster queue info --json").stdout).unwrap()
}

#[test]
fn a_drained_queue_takes_no_job_and_those_it_has_go_on() {
    let cluster = cluster_with_webs(1);
    cluster.script(1, PRE, "10-wait", &gated(&cluster));
    let running = cluster.submit("instance modify -m 96 web1");
    let waiting = cluster.submit("instance modify -p 2 web1");
    gate_is_reached(&cluster);
    cluster.ok("cluster queue drain").says(&["drained:     Y", "gnt-cluster queue undrain"]);
    let last = cluster.last_job().id;
    let refused =
        |line: &str| cluster.gnt(line).exits(1).says(&["the queue is drained", "gnt-cluster queue undrain"]);
    refused("instance start web2");
    refused("instance start web2 --submit");
    let info = queue(&cluster);
    assert_eq!((&info["drained"], &info["paused"]), (&true.into(), &false.into()));
    assert_eq!((&info["running"], &info["waiting"]), (&1.into(), &1.into()));
    open_gate(&cluster);
    succeeds(&cluster, running);
    succeeds(&cluster, waiting);

    restart_master(&cluster);
    assert_eq!(queue(&cluster)["drained"], Value::from(true));
    refused("instance start web2");
    cluster.ok("instance list").says(&["web1"]);
    assert_eq!(cluster.last_job().id, last, "no job was made");
    cluster.ok("cluster queue undrain").says(&["drained:     N"]);
    cluster.ok("instance start web2");
    restart_master(&cluster);
    assert_eq!(queue(&cluster)["drained"], Value::from(false));
}

#[test]
fn a_paused_queue_starts_no_job_and_those_that_run_go_on() {
    let cluster = cluster_with_webs(1);
    cluster.script(1, PRE, "10-wait", &gated(&cluster));
    let running = cluster.submit("instance modify -m 96 web1");
    gate_is_reached(&cluster);
    cluster.ok("cluster queue pause").says(&["paused:      Y", "gnt-cluster queue resume"]);
    let waiting = cluster.submit("instance start web2");
    let words = "the queue to be resumed (gnt-cluster queue resume)";
    assert_eq!(waits_for(&cluster, waiting), words);
    open_gate(&cluster);
    succeeds(&cluster, running);
    restart_master(&cluster);
    assert_eq!(waits_for(&cluster, waiting), words);
    let info = queue(&cluster);
    assert_eq!((&info["paused"], &info["waiting"], &info["running"]), (&true.into(), &1.into(), &0.into()));
    // What waits can be canceled.
    let canceled = cluster.submit("instance modify -p 2 web1");
    cluster.ok(&format!("job cancel {canceled}"));
    assert_eq!(cluster.job_end(canceled).status(), JobStatus::Canceled);
    cluster.ok("cluster queue resume").says(&["paused:      N"]);
    succeeds(&cluster, waiting);
}
