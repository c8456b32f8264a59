//! T1 and T2: the cluster's own beginning, and a new master.

use std::fs;

use serde_json::{Value, json};

use super::case::{Case, PREFIXES, Row, own};
use crate::ask;
use crate::cluster::Cluster;

#[test]
fn t1_op_init_cluster() {
    let row = Row {
        op_id: "OP_INIT_CLUSTER",
        op_code: "OP_CLUSTER_INIT",
        prefix: "cluster-init",
        object: "CLUSTER",
    };
    let case =
        Case { row: &row, command: "cluster init dev", target: "dev", pre: &[1], post: &[1], own: own(&[]) };
    let cluster = Cluster::bare(2);
    cluster.install_dumps(2, &PREFIXES);
    let denying = "echo 'no room in this rack'; echo 'ask the planner' >&2; exit 7";
    cluster.script(1, "cluster-init-pre.d", "50-deny", denying);
    cluster.gnt("cluster init dev").exits(1).says(&[
        "node1",
        "50-deny",
        "7",
        "no room in this rack",
        "ask the planner",
    ]);
    let dumps = cluster.take_dumps();
    assert_eq!(dumps.len(), 1, "pre ran once, post never: {dumps:?}");
    let left: Vec<_> = cluster.files().into_keys().collect();
    assert_eq!(left, Vec::<String>::new(), "a denied init leaves nothing on disk");
    for name in ["cluster.db", "ca.key", "ca.pem"] {
        let path = cluster.node_dir(1).join("state/master").join(name);
        assert!(!path.exists(), "{} is left by a denied init", path.display());
    }
    cluster.gnt("cluster info").exits(1);
    cluster.unscript(1, "cluster-init-pre.d", "50-deny");

    case.allowed(&cluster);
    cluster.ok("cluster getmaster").says(&["node1"]);
}

#[test]
fn t2_op_master_failover() {
    let row = Row {
        op_id: "OP_MASTER_FAILOVER",
        op_code: "OP_CLUSTER_MASTERFAILOVER",
        prefix: "master-failover",
        object: "CLUSTER",
    };
    let case = Case {
        row: &row,
        command: "cluster master-failover -f",
        target: "node2",
        pre: &[2],
        post: &[1, 2, 3],
        own: own(&[("OLD_MASTER", "node1"), ("NEW_MASTER", "node2")]),
    };
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.ok("instance add -t diskless -n node3 -m 64M -o none --no-start web1");
    cluster.install_dumps(3, &PREFIXES);
    let socket = cluster.node_dir(2).join("run/master.sock");

    // The office goes to a master candidate only: the certificate authority's key goes with it.
    cluster.ok("node modify --master-candidate no node2");
    cluster.gnt_at(2, "cluster master-failover -f").exits(1).says(&["node2", "--master-candidate yes"]);
    cluster.ok("node modify --master-candidate yes node2");
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");

    // The office goes to a master candidate only: the certificate authority's key goes with it.
    cluster.ok("node modify --master-candidate no node2");
    cluster.gnt_at(2, "cluster master-failover -f").exits(1).says(&["node2", "--master-candidate yes"]);
    cluster.ok("node modify --master-candidate yes node2");
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");

    let denying = "echo 'no room in this rack'; echo 'ask the planner' >&2; exit 7";
    cluster.script(2, "master-failover-pre.d", "50-deny", denying);
    let before = (cluster.nodes().len(), cluster.instance("web1").uuid);
    let denied = cluster.gnt_at(2, case.command).exits(1);
    denied.says(&["node2", "50-deny", "7", "no room in this rack", "ask the planner"]);
    let dumps = cluster.take_dumps();
    assert_eq!(dumps.len(), 1, "pre ran on the new master alone, post nowhere: {dumps:?}");
    // The office is back when the job's end is told, and the job is part of the old master's history.
    assert_eq!(cluster.ok("cluster getmaster").stdout.trim(), "node1");
    cluster.ok("job list").says(&["MASTER_FAILOVER(node2)"]);
    assert_eq!((cluster.nodes().len(), cluster.instance("web1").uuid), before);
    cluster.ok("instance modify -m 96M web1");
    cluster.take_dumps();
    cluster.unscript(2, "master-failover-pre.d", "50-deny");

    cluster.gnt_at(2, &format!("{} --reason ticket-4711", case.command)).exits(0);
    let jobs = ask::jobs(&socket);
    let job = jobs.iter().max_by_key(|job| job.id).unwrap();
    case.check_dumps(&cluster.take_dumps(), job.id, &cluster, "node1", "node2");
    cluster.gnt_at(2, "cluster getmaster").exits(0).says(&["node2"]);
    cluster.gnt_at(2, "instance list").exits(0).says(&["web1"]);
    // The old master says who it is now, and changes nothing any more.
    cluster.gnt("instance modify -m 128M web1").exits(3).says(&["node2"]);
    for node in 1..=3 {
        let fact = fs::read_to_string(cluster.node_dir(node).join("state/data/ssconf_master_node")).unwrap();
        assert_eq!(fact.trim(), "node2", "facts on node{node}");
    }
}

#[test]
fn t2_a_denied_failover_is_told_to_programs() {
    let cluster = Cluster::with(&["--nodes", "2", "--masters", "2"]);
    cluster.script(2, "master-failover-pre.d", "50-deny", "echo 'no room in this rack'; exit 7");
    let output = cluster.gnt_at(2, "cluster master-failover -f --json").exits(1);
    let job: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&job["status"], &job["error"]["kind"]), (&json!("error"), &json!("denied")), "{job}");
    let objection = &job["error"]["objections"][0];
    assert_eq!(
        (&objection["node"], &objection["script"]["name"]),
        (&json!("node2"), &json!("50-deny")),
        "{job}"
    );
    assert_eq!(objection["script"]["outcome"]["code"], json!(7), "{job}");
    assert_eq!(objection["script"]["stdout"]["text"], json!("no room in this rack\n"), "{job}");
}
