//! R1, R2, R4: what denies, and what a denial says.

use muster_proto::v1;

use super::{POST, PRE, cluster_with_web1, modify};
use crate::dumps::dump_body;

#[test]
fn r1_every_kind_of_failure_denies_and_all_are_named() {
    let cluster = cluster_with_web1();
    cluster.script(1, PRE, "10-exit", "echo 'master out'; echo 'master err' >&2; exit 3");
    cluster.script(1, PRE, "20-signal", "kill -9 $$");
    cluster.script(2, PRE, "10-limit", "# HOOK_KILL_TIMEOUT = 1 s\nsleep 600");
    cluster.script(3, PRE, "10-interpreter", "");
    let path = cluster.node_dir(3).join("hooks").join(PRE).join("10-interpreter");
    std::fs::write(path, "#!/no/such/interpreter\n").unwrap();
    for node in 1..=3 {
        cluster.script(node, POST, "00-dump", &dump_body(&cluster.dumps()));
    }
    let before = cluster.snapshot();
    modify(&cluster, 96).exits(1).says(&[
        "node1",
        "10-exit",
        "3",
        "master out",
        "master err",
        "20-signal",
        "9",
        "node2",
        "10-limit",
        "time limit",
        "node3",
        "10-interpreter",
        "/no/such/interpreter",
    ]);
    assert_eq!(cluster.snapshot(), before);
    assert_eq!(cluster.take_dumps(), [], "no post script runs after a denial");
    let error = cluster.last_job().error.unwrap();
    assert_eq!(error.kind(), v1::ErrorKind::Denied);
    let named: Vec<_> = error
        .objections
        .iter()
        .map(|objection| (objection.node.as_str(), objection.script.as_ref().unwrap().name.as_str()))
        .collect();
    assert_eq!(
        named,
        [("node1", "10-exit"), ("node1", "20-signal"), ("node2", "10-limit"), ("node3", "10-interpreter")]
    );
}

#[test]
fn r1_exit_zero_allows_whatever_is_printed() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "10-loud", "echo 'ERROR: denied'; printf '\\377\\376 caf\\351' >&2; exit 0");
    modify(&cluster, 96).exits(0);
    assert_eq!(cluster.instance("web1").memory_mib, 96);
}

#[test]
fn r2_later_scripts_run_after_a_failed_one() {
    let cluster = cluster_with_web1();
    cluster.script(2, PRE, "10-no", "echo first words; exit 1");
    cluster.script(2, PRE, "20-dump", &dump_body(&cluster.dumps()));
    cluster.script(2, PRE, "30-no", "echo last words; exit 2");
    modify(&cluster, 96).exits(1).says(&["10-no", "first words", "30-no", "last words"]);
    assert_eq!(cluster.take_dumps().len(), 1);

    cluster.ok("cluster modify --hook-on-error stop");
    modify(&cluster, 96).exits(1).says(&["10-no", "first words"]).does_not_say("last words");
    assert_eq!(cluster.take_dumps(), [], "with `stop` the directory ends at the first failure");
}

#[test]
fn r4_over_the_time_limit_denies() {
    let cluster = cluster_with_web1();
    cluster.script(3, PRE, "10-slow", "sleep 600 # HOOK_KILL_TIMEOUT = 1 s");
    let before = cluster.snapshot();
    modify(&cluster, 96).exits(1).says(&["node3", "10-slow", "time limit"]);
    assert_eq!(cluster.snapshot(), before);
    assert_eq!(cluster.last_job().error.unwrap().kind(), v1::ErrorKind::Denied);
}
