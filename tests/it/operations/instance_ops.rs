//! T6 to T11: what is done with an instance that exists.

use super::case::{Case, PREFIXES, Row, own};
use crate::cluster::Cluster;

/// Four nodes and web1, mirrored, on node2 with node3 as secondary; dumps everywhere.
fn cluster_with_web1(start: &str) -> Cluster {
    let cluster = Cluster::up(4);
    cluster.ok(&format!(
        "instance add -t mirror -n node2:node3 -s 64M --swap-size 8M -m 128M -p 2 -i 10.1.2.3 -o none {start} web1"
    ));
    cluster.install_dumps(4, &PREFIXES);
    cluster
}

/// What every instance operation gets, with `more`.
fn web1_and(more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let mut all = own(&[
        ("INSTANCE_NAME", "web1"),
        ("INSTANCE_PRIMARY", "node2"),
        ("INSTANCE_SECONDARIES", "node3"),
        ("INSTANCE_DISK_TYPE", "mirror"),
        ("INSTANCE_DISK_SIZE", "64"),
        ("INSTANCE_OS", "none"),
    ]);
    all.extend(own(more));
    all
}

/// An operation on web1 with the usual sets: master, primary, secondary.
fn on_web1<'a>(row: &'a Row, command: &'a str, more: &[(&'static str, &str)]) -> Case<'a> {
    Case { row, command, target: "web1", pre: &[1, 2, 3], post: &[1, 2, 3], own: web1_and(more) }
}

#[test]
fn t6_op_backup_export() {
    let row = Row {
        op_id: "OP_BACKUP_EXPORT",
        op_code: "OP_BACKUP_EXPORT",
        prefix: "instance-export",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1("");
    let case = on_web1(
        &row,
        "backup export -n node4 web1",
        &[("EXPORT_NODE", "node4"), ("EXPORT_DO_SHUTDOWN", "True")],
    );
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    assert_eq!(cluster.exports().len(), 1);
    cluster.ok("instance list --live").says(&["running"]);
    let live = [("EXPORT_NODE", "node3"), ("EXPORT_DO_SHUTDOWN", "False")];
    on_web1(&row, "backup export -n node3 --noshutdown web1", &live).allowed(&cluster);
    cluster.ok("instance shutdown web1");
    let down = [("EXPORT_NODE", "node4"), ("EXPORT_DO_SHUTDOWN", "True")];
    on_web1(&row, "backup export -n node4 --noshutdown web1", &down).allowed(&cluster);
}

#[test]
fn t7_op_instance_start() {
    let row = Row {
        op_id: "OP_INSTANCE_START",
        op_code: "OP_INSTANCE_STARTUP",
        prefix: "instance-start",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1("--no-start");
    let case = on_web1(&row, "instance start web1", &[]);
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    cluster.ok("instance list --live").says(&["running"]);
    cluster.ok("instance stop web1");
    on_web1(&row, "instance startup --force web1", &[("FORCE", "True")]).allowed(&cluster);
}

#[test]
fn t8_op_instance_shutdown() {
    let row = Row {
        op_id: "OP_INSTANCE_SHUTDOWN",
        op_code: "OP_INSTANCE_SHUTDOWN",
        prefix: "instance-shutdown",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1("");
    let case = on_web1(&row, "instance shutdown web1", &[]);
    case.denied_on_each_node(&cluster);
    cluster.ok("instance list --live").says(&["running"]);
    case.allowed(&cluster);
    cluster.ok("instance list --live").says(&["ADMIN_down"]);
}

#[test]
fn t9_op_instance_modify() {
    let row = Row {
        op_id: "OP_INSTANCE_MODIFY",
        op_code: "OP_INSTANCE_SET_PARMS",
        prefix: "instance-modify",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1("");
    let memory = [("MEM_SIZE", "256"), ("VCPUS", "2"), ("INSTANCE_IP", "10.1.2.3")];
    let case = on_web1(&row, "instance modify -m 256M web1", &memory);
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    let address = [("MEM_SIZE", "256"), ("VCPUS", "4"), ("INSTANCE_IP", "10.1.2.9")];
    on_web1(&row, "instance set -p 4 -i 10.1.2.9 web1", &address).allowed(&cluster);
    on_web1(&row, "instance modify -i none web1", &[("MEM_SIZE", "256"), ("VCPUS", "4")]).allowed(&cluster);
    let web1 = cluster.instance("web1");
    assert_eq!((web1.memory_mib, web1.vcpus, web1.ip), (256, 4, None));
}

#[test]
fn t10_op_instance_failover() {
    let row = Row {
        op_id: "OP_INSTANCE_FAILOVER",
        op_code: "OP_INSTANCE_FAILOVER",
        prefix: "instance-failover",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1("--no-start");
    let there = [("OLD_PRIMARY", "node2"), ("NEW_PRIMARY", "node3")];
    let case = on_web1(&row, "instance failover -f web1", &there);
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    let web1 = cluster.instance("web1");
    assert_eq!((web1.primary.as_str(), web1.secondaries), ("node3", vec!["node2".to_owned()]));
    assert_eq!(
        cluster.instance("web1").status,
        "ADMIN_down",
        "one that is down fails over without being started"
    );
    // A copy that was made anew holds the data.
    cluster.ok("instance start web1");
    cluster.ok("instance replace-disks web1");
    cluster.take_dumps();
    let mut back = on_web1(&row, "instance failover -f --ignore-consistency web1", &[]);
    back.own = own(&[
        ("INSTANCE_NAME", "web1"),
        ("INSTANCE_PRIMARY", "node3"),
        ("INSTANCE_SECONDARIES", "node2"),
        ("INSTANCE_DISK_TYPE", "mirror"),
        ("INSTANCE_DISK_SIZE", "64"),
        ("INSTANCE_OS", "none"),
        ("OLD_PRIMARY", "node3"),
        ("NEW_PRIMARY", "node2"),
        ("IGNORE_CONSISTENCY", "True"),
    ]);
    back.allowed(&cluster);
}

#[test]
fn t11_op_instance_remove() {
    let row = Row {
        op_id: "OP_INSTANCE_REMOVE",
        op_code: "OP_INSTANCE_REMOVE",
        prefix: "instance-remove",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1("--no-start");
    let mut case = on_web1(&row, "instance remove -f web1", &[]);
    (case.pre, case.post) = (&[1], &[1]);
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    assert_eq!(cluster.instances().len(), 0);
    let disks: Vec<_> = cluster.files().into_keys().filter(|path| path.contains("storage")).collect();
    assert_eq!(disks, Vec::<String>::new(), "disks go with their instance");
}
