//! R8: an execution that was interrupted and goes on after a restart.

use muster_proto::v1;

use super::{PRE, cluster_with_web1, open_gate, runs, waiting_script};
use crate::{dumps::dump_body, keeper::kill_keeper};

#[test]
fn r8_a_lost_pre_run_is_repeated_with_the_same_environment() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "00-dump", &dump_body(&cluster.dumps()));
    cluster.script(2, PRE, "10-wait", &waiting_script(&cluster, "lost"));
    let id = cluster.submit("instance modify -m 96 web1 --reason before-the-crash");
    runs(&cluster, "lost");
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["kill", "node2"]).exits(0);
    // Else the run would outlive its daemon.
    kill_keeper(&cluster, 2);
    cluster.devcluster(&["start", "node2"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    open_gate(&cluster, "lost");
    let job = cluster.job_end(id);
    assert_eq!(job.status(), v1::JobStatus::Success, "{job:#?}");
    assert_eq!(cluster.instance("web1").memory_mib, 96);
    let dumps = cluster.take_dumps();
    assert_eq!(dumps.len(), 2, "the run whose end is unknown was repeated: {dumps:?}");
    assert_eq!(dumps[0], dumps[1]);
    assert_eq!(dumps[0].env["GANETI_JOB_ID"], id.to_string());
    assert_eq!(dumps[0].env["GANETI_JOB_REASON"], "before-the-crash");
}

#[test]
fn r8_a_run_that_outlives_the_master_is_joined_not_repeated() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "00-dump", &dump_body(&cluster.dumps()));
    cluster.script(2, PRE, "10-wait", &waiting_script(&cluster, "joined"));
    let id = cluster.submit("instance modify -m 96 web1");
    runs(&cluster, "joined");
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    open_gate(&cluster, "joined");
    assert_eq!(cluster.job_end(id).status(), v1::JobStatus::Success);
    assert_eq!(cluster.take_dumps().len(), 1, "a run belongs to its call id");
}
