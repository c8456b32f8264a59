//! R9, R10: the parameters that change what a result means.

use muster_proto::v1;

use super::{PRE, cluster_with_web1, modify};
use crate::ask::warnings;
use crate::dumps::dump_body;

#[test]
fn r9_graded_exit_codes() {
    // Last line of the script, whether the operation goes through, whether the next script runs, whether a warning is shown.
    let table = [
        ("exit 0", true, true, false),
        ("exit 1", false, false, false),
        ("exit 31", false, false, false),
        ("exit 32", true, true, true),
        ("exit 63", true, true, true),
        ("exit 64", false, false, false),
        ("exit 255", false, false, false),
        ("kill -TERM $$", false, false, false),
        ("sleep 600 # HOOK_KILL_TIMEOUT = 100 ms", false, false, false),
    ];
    let cluster = cluster_with_web1();
    cluster.ok("cluster modify --hook-exit-codes graded");
    cluster.script(2, PRE, "20-dump", &dump_body(&cluster.dumps()));
    for (at, (end, allowed, next_runs, warned)) in table.into_iter().enumerate() {
        cluster.script(2, PRE, "10-graded", &format!("echo words of case {at}\n{end}"));
        let output = modify(&cluster, 100 + u64::try_from(at).unwrap());
        let output = output.exits(if allowed { 0 } else { 1 });
        assert_eq!(cluster.take_dumps().len(), usize::from(next_runs), "next script after `{end}`");
        let told = warnings(&cluster.last_job()).iter().any(|text| text.contains("10-graded"));
        assert_eq!(told, warned, "warning after `{end}`: {output}");
        if end == "exit 64" || end == "exit 255" {
            output.says(&["reserved"]);
        }
    }
    cluster.ok("cluster modify --hook-on-error continue");
    cluster.script(2, PRE, "10-graded", "exit 1");
    modify(&cluster, 200).exits(1);
    assert_eq!(cluster.take_dumps().len(), 1, "`continue` runs the next script");
}

#[test]
fn r10_unreachable_and_timeout_can_be_turned_round() {
    let cluster = cluster_with_web1();
    cluster.ok("cluster modify --hook-unreachable deny --hook-timeout allow");
    cluster.script(2, PRE, "10-slow", "sleep 600 # HOOK_KILL_TIMEOUT = 1 s");
    modify(&cluster, 96).exits(0);
    let told = warnings(&cluster.last_job());
    assert!(told.iter().any(|text| text.contains("node2") && text.contains("10-slow")), "{told:?}");

    cluster.unscript(2, PRE, "10-slow");
    cluster.devcluster(&["kill", "node3"]).exits(0);
    let before = cluster.snapshot();
    modify(&cluster, 128).exits(1).says(&["node3"]);
    assert_eq!(cluster.snapshot(), before);
    let error = cluster.last_job().error.unwrap();
    assert_eq!(error.kind(), v1::ErrorKind::Denied);
    assert_eq!(error.objections[0].node, "node3");
}
