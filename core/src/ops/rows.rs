//! The rows against HOOKS.md's table of operations, written out by hand here: codes, prefixes, node sets, variables.

use super::{Given, JobFacts, ObjectKind, Op, Prepared, ROWS, all_examples};
use crate::{model::Cluster, names::NodeName};

/// HOOKS.md, "Common, for every operation", without what the phase or the node adds.
const COMMON: &str =
    "HOOKS_VERSION CLUSTER MASTER OP_ID OBJECT_TYPE OP_CODE OP_TARGET HOOKS_PATH JOB_ID JOB_USER JOB_REASON";
/// What every instance operation gets.
const INSTANCE: &str =
    "INSTANCE_NAME INSTANCE_PRIMARY INSTANCE_SECONDARIES INSTANCE_DISK_TYPE INSTANCE_DISK_SIZE INSTANCE_OS";

/// What every node operation gets: [+], the node's facts.
const NODE: &str = "NODE_OS_NAME NODE_OS_VERSION NODE_OS_SP NODE_OS_STRING NODE_IPS";

struct Expected {
    op_code: &'static str,
    prefix: &'static str,
    object: ObjectKind,
    target: &'static str,
    /// Of its own; "NAME=value" where the value is checked, "NAME" where it is not.
    variables: &'static str,
    pre: &'static str,
    post: &'static str,
}

fn prepare(cluster: &Cluster, fresh: &super::Fresh, op: &Op) -> Prepared {
    let local: NodeName = match op.row().op_id {
        "OP_MASTER_FAILOVER" => super::examples::node_name("node2"),
        _ => cluster.master.clone(),
    };
    let job = JobFacts { id: 17, user: "root", reason: "", dry_run: false };
    op.prepare(Given { cluster, fresh, local: &local, undone: &[] }, &job).expect("examples are good")
}

fn words(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ")
}

/// Checks the `index`th example of a row.
fn check(op_id: &str, index: usize, expected: &Expected) {
    let mut examples = all_examples().into_iter().filter(|(_, _, op)| op.row().op_id == op_id);
    let (cluster, fresh, op) = examples.nth(index).expect("the row has this example");
    let row = op.row();
    let hooks = row.hooks.expect("the row has hooks");
    assert_eq!(
        (hooks.op_code, hooks.prefix, row.object),
        (expected.op_code, expected.prefix, expected.object)
    );
    let prepared = prepare(&cluster, &fresh, &op);
    assert_eq!(words(&prepared.nodes.pre), expected.pre, "pre");
    assert_eq!(words(&prepared.nodes.post), expected.post, "post");
    for (name, value) in [
        ("HOOKS_VERSION", "1"),
        ("CLUSTER", "dev"),
        ("MASTER", "node1"),
        ("OP_ID", op_id),
        ("OBJECT_TYPE", row.object.as_str()),
        ("OP_CODE", expected.op_code),
        ("OP_TARGET", expected.target),
        ("HOOKS_PATH", expected.prefix),
        ("JOB_ID", "17"),
        ("JOB_USER", "root"),
        ("JOB_REASON", ""),
    ] {
        assert_eq!(prepared.env.get(name), Some(value), "{name}");
    }
    let mut names: Vec<&str> = COMMON.split(' ').collect();
    match row.object {
        ObjectKind::Instance => names.extend(INSTANCE.split(' ')),
        ObjectKind::Node => names.extend(NODE.split(' ')),
        ObjectKind::Cluster | ObjectKind::Group | ObjectKind::Network => {}
    }
    for variable in expected.variables.split(';').filter(|variable| !variable.is_empty()) {
        match variable.split_once('=') {
            Some((name, value)) => {
                assert_eq!(prepared.env.get(name), Some(value), "{name}");
                names.push(name);
            }
            None => names.push(variable),
        }
    }
    names.sort_unstable();
    names.dedup();
    let found: Vec<&str> = prepared.env.iter().map(|(name, _)| name).collect();
    assert_eq!(found, names, "variables");
    for (name, value) in prepared.env.iter() {
        assert!(value != "None" && !value.contains('\0'), "{name}={value}");
    }
}

#[test]
fn row_t1_cluster_init() {
    let expected = Expected {
        op_code: "OP_CLUSTER_INIT",
        prefix: "cluster-init",
        object: ObjectKind::Cluster,
        target: "dev",
        variables: "",
        pre: "node1",
        post: "node1",
    };
    check("OP_INIT_CLUSTER", 0, &expected);
}

#[test]
fn row_t2_master_failover() {
    let expected = Expected {
        op_code: "OP_CLUSTER_MASTERFAILOVER",
        prefix: "master-failover",
        object: ObjectKind::Cluster,
        target: "node2",
        variables: "OLD_MASTER=node1;NEW_MASTER=node2",
        pre: "node2",
        post: "node1 node2 node3",
    };
    check("OP_MASTER_FAILOVER", 0, &expected);
    let (cluster, fresh, op) =
        all_examples().into_iter().find(|(_, _, op)| op.row().op_id == "OP_MASTER_FAILOVER").unwrap();
    assert_eq!(
        prepare(&cluster, &fresh, &op).master_post.as_str(),
        "node2",
        "MASTER in post is the new one (E4)"
    );
}

#[test]
fn row_t3_node_add() {
    let expected = Expected {
        op_code: "OP_NODE_ADD",
        prefix: "node-add",
        object: ObjectKind::Node,
        target: "node4",
        variables: "NODE_NAME=node4;NODE_PIP=192.0.2.4;NODE_SIP=192.0.2.54",
        pre: "node1 node2 node3",
        post: "node1 node2 node3 node4",
    };
    check("OP_ADD_NODE", 0, &expected);
    let readd = Expected {
        target: "node3",
        variables: "NODE_NAME=node3;NODE_PIP=192.0.2.3;NODE_SIP=192.0.2.3",
        pre: "node1 node2",
        post: "node1 node2 node3",
        ..expected
    };
    check("OP_ADD_NODE", 1, &readd);
}

#[test]
fn row_t4_node_remove() {
    let expected = Expected {
        op_code: "OP_NODE_REMOVE",
        prefix: "node-remove",
        object: ObjectKind::Node,
        target: "node3",
        variables: "NODE_NAME=node3;NODE_OS_NAME=sles;NODE_OS_VERSION=15.5;NODE_OS_SP=5;\
                    NODE_OS_STRING=SUSE Linux Enterprise Server 15 SP5;NODE_IPS=192.0.2.3 198.51.100.3",
        pre: "node1 node2",
        post: "node1 node2",
    };
    check("OP_REMOVE_NODE", 0, &expected);
}

#[test]
fn row_t5_instance_add() {
    let expected = Expected {
        op_code: "OP_INSTANCE_CREATE",
        prefix: "instance-add",
        object: ObjectKind::Instance,
        target: "new1",
        variables: "INSTANCE_NAME=new1;INSTANCE_PRIMARY=node2;INSTANCE_SECONDARIES=;DISK_TEMPLATE=file;\
                    INSTANCE_DISK_TYPE=file;MEM_SIZE=128;DISK_SIZE=1024;INSTANCE_DISK_SIZE=1024;SWAP_SIZE=0;VCPUS=1;\
                    INSTANCE_ADD_MODE=create;INSTANCE_OS=none",
        pre: "node1 node2",
        post: "node1 node2",
    };
    check("OP_INSTANCE_ADD", 0, &expected);
    let diskless = Expected {
        variables: "DISK_TEMPLATE=diskless;MEM_SIZE=128;DISK_SIZE=0;SWAP_SIZE=0;VCPUS=1;INSTANCE_IP=198.51.100.9;\
                    INSTANCE_ADD_MODE=create",
        ..expected
    };
    check("OP_INSTANCE_ADD", 1, &diskless);
    let mirror = Expected {
        variables: "INSTANCE_SECONDARIES=node3;DISK_TEMPLATE=mirror;MEM_SIZE=128;DISK_SIZE=1024;SWAP_SIZE=64;VCPUS=1;\
                    INSTANCE_ADD_MODE=create",
        pre: "node1 node2 node3",
        post: "node1 node2 node3",
        ..diskless
    };
    check("OP_INSTANCE_ADD", 2, &mirror);
    let import = Expected {
        variables: "DISK_TEMPLATE=mirror;MEM_SIZE=512;DISK_SIZE=128;SWAP_SIZE=64;VCPUS=2;INSTANCE_ADD_MODE=import;\
                    SRC_NODE=node2;SRC_PATH=/srv/exports/web1;SRC_IMAGE=sda.raw",
        ..mirror
    };
    check("OP_INSTANCE_ADD", 4, &import);
}

#[test]
fn row_t6_backup_export() {
    let expected = Expected {
        op_code: "OP_BACKUP_EXPORT",
        prefix: "instance-export",
        object: ObjectKind::Instance,
        target: "web1",
        variables: "INSTANCE_NAME=web1;EXPORT_NODE=node2;EXPORT_DO_SHUTDOWN=True",
        pre: "node1",
        post: "node1",
    };
    check("OP_BACKUP_EXPORT", 0, &expected);
}

/// An instance operation on M P S.
fn instance_row(
    op_id: &str,
    index: usize,
    op_code: &'static str,
    prefix: &'static str,
    target: &'static str,
    variables: &'static str,
    nodes: &'static str,
) {
    let object = ObjectKind::Instance;
    check(op_id, index, &Expected { op_code, prefix, object, target, variables, pre: nodes, post: nodes });
}

#[test]
fn row_t7_instance_start() {
    let row = |index, target, variables, nodes| {
        instance_row(
            "OP_INSTANCE_START",
            index,
            "OP_INSTANCE_STARTUP",
            "instance-start",
            target,
            variables,
            nodes,
        );
    };
    row(0, "db1", "INSTANCE_PRIMARY=node1;INSTANCE_SECONDARIES=node3", "node1 node3");
    row(1, "web1", "INSTANCE_SECONDARIES=;FORCE=True", "node1");
}

#[test]
fn row_t8_instance_shutdown() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_SHUTDOWN";
        instance_row("OP_INSTANCE_SHUTDOWN", index, code, "instance-shutdown", target, variables, nodes);
    };
    row(0, "mail1", "INSTANCE_PRIMARY=node2;INSTANCE_SECONDARIES=node3", "node1 node2 node3");
}

#[test]
fn row_t9_instance_modify() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_SET_PARMS";
        instance_row("OP_INSTANCE_MODIFY", index, code, "instance-modify", target, variables, nodes);
    };
    row(0, "web1", "MEM_SIZE=1024;VCPUS=2;INSTANCE_IP=198.51.100.1", "node1");
    row(1, "mail1", "MEM_SIZE=256;VCPUS=4;INSTANCE_IP=198.51.100.77", "node1 node2 node3");
    row(2, "web1", "MEM_SIZE=512;VCPUS=2", "node1");
}

#[test]
fn row_t10_instance_failover() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_FAILOVER";
        instance_row("OP_INSTANCE_FAILOVER", index, code, "instance-failover", target, variables, nodes);
    };
    let mail = "INSTANCE_PRIMARY=node2;INSTANCE_SECONDARIES=node3;OLD_PRIMARY=node2;NEW_PRIMARY=node3;IGNORE_CONSISTENCY=True";
    row(0, "mail1", mail, "node1 node2 node3");
    row(1, "db1", "OLD_PRIMARY=node1;NEW_PRIMARY=node3", "node1 node3");
    // node2 is marked offline: outside every set (R6).
    row(2, "mail1", mail, "node1 node3");
}

#[test]
fn row_t11_instance_remove() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_REMOVE";
        instance_row("OP_INSTANCE_REMOVE", index, code, "instance-remove", target, variables, nodes);
    };
    row(0, "mail1", "INSTANCE_PRIMARY=node2;INSTANCE_SECONDARIES=node3", "node1");
}

#[test]
fn row_t12_mirror_add() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_ADD_MDDRBD";
        instance_row("OP_INSTANCE_ADD_MDDRBD", index, code, "mirror-add", target, variables, nodes);
    };
    row(0, "web1", "INSTANCE_SECONDARIES=;NEW_SECONDARY=node2;DISK_NAME=sdb", "node1 node2");
    row(1, "mail1", "INSTANCE_SECONDARIES=node3;NEW_SECONDARY=node3;DISK_NAME=sda", "node1 node2 node3");
}

#[test]
fn row_t13_mirror_remove() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_REMOVE_MDDRBD";
        instance_row("OP_INSTANCE_REMOVE_MDDRBD", index, code, "mirror-remove", target, variables, nodes);
    };
    row(0, "mail1", "OLD_SECONDARY=node3;DISK_NAME=sdb;DISK_ID=2", "node1 node2 node3");
}

#[test]
fn row_t14_disks_replace() {
    let row = |index, target, variables, nodes| {
        let code = "OP_INSTANCE_REPLACE_DISKS";
        instance_row("OP_INSTANCE_REPLACE_DISKS", index, code, "mirror-replace", target, variables, nodes);
    };
    row(0, "mail1", "OLD_SECONDARY=node3;NEW_SECONDARY=node1", "node1 node2 node3");
    row(1, "db1", "OLD_SECONDARY=node3;NEW_SECONDARY=node3", "node1 node3");
}

#[test]
fn rows_without_hooks_run_none() {
    let with: Vec<&str> = ROWS.iter().filter(|row| row.hooks.is_some()).map(|row| row.op_id).collect();
    let expected = [
        "OP_INIT_CLUSTER",
        "OP_MASTER_FAILOVER",
        "OP_ADD_NODE",
        "OP_REMOVE_NODE",
        "OP_INSTANCE_ADD",
        "OP_BACKUP_EXPORT",
        "OP_INSTANCE_START",
        "OP_INSTANCE_SHUTDOWN",
        "OP_INSTANCE_MODIFY",
        "OP_INSTANCE_FAILOVER",
        "OP_INSTANCE_REMOVE",
        "OP_INSTANCE_ADD_MDDRBD",
        "OP_INSTANCE_REMOVE_MDDRBD",
        "OP_INSTANCE_REPLACE_DISKS",
    ];
    assert_eq!(with, expected);
    for (cluster, fresh, op) in all_examples() {
        let prepared = prepare(&cluster, &fresh, &op);
        assert_eq!(prepared.hook_prefix.is_some(), op.row().hooks.is_some(), "{op:?}");
        if op.row().hooks.is_none() {
            assert!(prepared.nodes.pre.is_empty() && prepared.nodes.post.is_empty(), "{op:?}");
            assert_eq!(prepared.env.iter().count(), 0, "{op:?}");
        }
    }
}

#[test]
fn every_operation_survives_its_record() {
    for (_, _, op) in all_examples() {
        let text = serde_json::to_string(&op).unwrap();
        assert_eq!(serde_json::from_str::<Op>(&text).unwrap(), op, "{text}");
    }
}
