//! R7: what scripts say after the commit.

use muster_proto::v1;

use super::{POST, cluster_with_web1, modify, open_gate, runs, waiting_script};
use crate::ask::warnings;
use crate::cluster::wait_for;
use crate::dumps::dump_body;

#[test]
fn r7_a_failed_post_script_is_only_logged() {
    let cluster = cluster_with_web1();
    cluster.script(2, POST, "10-no", "echo could not tell the inventory; exit 9");
    cluster.script(3, POST, "10-fine", "exit 0");
    modify(&cluster, 96).exits(0);
    let job = cluster.last_job();
    assert_eq!(job.status(), v1::JobStatus::Success);
    let told = warnings(&job);
    let text = told.iter().find(|text| text.contains("10-no")).expect("the failure is a warning");
    assert!(text.contains("node2") && text.contains('9'), "{text}");
    assert!(!told.iter().any(|text| text.contains("10-fine")), "{told:?}");
    let fine = job.log.iter().find(|line| line.text.contains("10-fine")).expect("success is logged too");
    assert_eq!(fine.level(), v1::LogLevel::Info);
}

#[test]
fn r7_the_job_is_a_success_and_gives_its_locks_up_after_post() {
    let cluster = cluster_with_web1();
    cluster.script(2, POST, "10-wait", &waiting_script(&cluster, "post"));
    let first = cluster.submit("instance modify -m 96 web1");
    runs(&cluster, "post");
    assert_eq!(cluster.instance("web1").memory_mib, 96, "post comes after the commit");
    assert_eq!(cluster.job(first).status(), v1::JobStatus::Running);
    let second = cluster.submit("instance modify -m 128 web1");
    wait_for("the second job waits for the lock", || cluster.job(second).status() == v1::JobStatus::Waiting);
    open_gate(&cluster, "post");
    assert_eq!(cluster.job_end(first).status(), v1::JobStatus::Success);
    assert_eq!(cluster.job_end(second).status(), v1::JobStatus::Success);
    assert_eq!(cluster.instance("web1").memory_mib, 128);
}

#[test]
fn r7_a_node_that_was_unreachable_in_pre_is_tried_again() {
    let cluster = cluster_with_web1();
    cluster.script(3, "instance-start-post.d", "00-dump", &dump_body(&cluster.dumps()));
    // The step between the phases is slow enough for node3 to come back in it.
    cluster.faults(2, "[guest_start]\ndelay_ms = 12000\n");
    cluster.devcluster(&["kill", "node3"]).exits(0);
    let id = cluster.submit("instance start web1");
    wait_for("pre is over", || cluster.job(id).phase == "steps");
    cluster.devcluster(&["start", "node3"]).exits(0);
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Success, "{job:#?}");
    assert!(warnings(&job).iter().any(|text| text.contains("node3")), "{job:#?}");
    let dumps = cluster.take_dumps();
    assert_eq!(dumps.len(), 1, "post ran on node3, though pre did not: {dumps:?}");
}

#[test]
fn r7_an_unreachable_node_in_post_is_a_warning() {
    let cluster = cluster_with_web1();
    cluster.script(3, POST, "10-wait", &waiting_script(&cluster, "lost"));
    let operation = cluster.begin("instance modify -m 96 web1");
    runs(&cluster, "lost");
    cluster.devcluster(&["kill", "node3"]).exits(0);
    operation.finish().exits(0);
    let job = cluster.last_job();
    assert_eq!(job.status(), v1::JobStatus::Success);
    let told = warnings(&job);
    assert!(told.iter().any(|text| text.contains("node3")), "{told:?}");
}
