//! T12 to T14: an instance's copies on secondary nodes.

use super::case::{Case, PREFIXES, Row, own};
use crate::cluster::Cluster;

/// Four nodes and web1 with one disk, on node2, mirrored to node3.
fn cluster_with_web1() -> Cluster {
    let cluster = Cluster::up(4);
    cluster.ok("instance add -t mirror -n node2:node3 -s 64M -m 64M -p 1 -o none --no-start web1");
    cluster.install_dumps(4, &PREFIXES);
    cluster
}

/// What every instance operation gets, with `more`.
fn web1_and(secondaries: &str, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let mut all = own(&[
        ("INSTANCE_NAME", "web1"),
        ("INSTANCE_PRIMARY", "node2"),
        ("INSTANCE_SECONDARIES", secondaries),
        ("INSTANCE_DISK_TYPE", "mirror"),
        ("INSTANCE_DISK_SIZE", "64"),
        ("INSTANCE_OS", "none"),
    ]);
    all.extend(own(more));
    all
}

/// The id that `remove-mirror -p` takes.
fn disk_id(cluster: &Cluster) -> u32 {
    let web1 = cluster.instance("web1");
    let [mirror] = web1.disks[0].mirrors.as_slice() else { panic!("sda has one mirror: {web1:?}") };
    cluster.ok("instance info web1").says(&[&mirror.disk_id.to_string()]);
    mirror.disk_id
}

#[test]
fn t12_op_instance_add_mddrbd() {
    let row = Row {
        op_id: "OP_INSTANCE_ADD_MDDRBD",
        op_code: "OP_INSTANCE_ADD_MDDRBD",
        prefix: "mirror-add",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1();
    cluster.ok(&format!("instance remove-mirror -b sda -p {} web1", disk_id(&cluster)));
    cluster.take_dumps();
    let case = Case {
        row: &row,
        command: "instance add-mirror -b sda -n node4 web1",
        target: "web1",
        pre: &[1, 2, 4],
        post: &[1, 2, 4],
        own: web1_and("", &[("NEW_SECONDARY", "node4"), ("DISK_NAME", "sda")]),
    };
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    assert_eq!(cluster.instance("web1").disks[0].mirrors[0].node, "node4");
}

#[test]
fn t12_the_new_secondary_may_be_the_current_one() {
    let row = Row {
        op_id: "OP_INSTANCE_ADD_MDDRBD",
        op_code: "OP_INSTANCE_ADD_MDDRBD",
        prefix: "mirror-add",
        object: "INSTANCE",
    };
    let cluster = Cluster::up(4);
    cluster.ok(
        "instance add -t mirror -n node2:node3 -s 64M --swap-size 8M -m 64M -p 1 -o none --no-start web1",
    );
    cluster.install_dumps(4, &PREFIXES);
    cluster.ok(&format!("instance remove-mirror -b sda -p {} web1", disk_id(&cluster)));
    let case = Case {
        row: &row,
        command: "instance add-mirror -b sda -n node3 web1",
        target: "web1",
        pre: &[1, 2, 3],
        post: &[1, 2, 3],
        own: web1_and("node3", &[("NEW_SECONDARY", "node3"), ("DISK_NAME", "sda")]),
    };
    case.allowed(&cluster);
}

#[test]
fn t13_op_instance_remove_mddrbd() {
    let row = Row {
        op_id: "OP_INSTANCE_REMOVE_MDDRBD",
        op_code: "OP_INSTANCE_REMOVE_MDDRBD",
        prefix: "mirror-remove",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1();
    let id = disk_id(&cluster).to_string();
    let case = Case {
        row: &row,
        command: &format!("instance remove-mirror -b sda -p {id} web1"),
        target: "web1",
        pre: &[1, 2, 3],
        post: &[1, 2, 3],
        own: web1_and("node3", &[("OLD_SECONDARY", "node3"), ("DISK_NAME", "sda"), ("DISK_ID", &id)]),
    };
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    assert_eq!(cluster.instance("web1").disks[0].mirrors.len(), 0);
}

#[test]
fn t14_op_instance_replace_disks() {
    let row = Row {
        op_id: "OP_INSTANCE_REPLACE_DISKS",
        op_code: "OP_INSTANCE_REPLACE_DISKS",
        prefix: "mirror-replace",
        object: "INSTANCE",
    };
    let cluster = cluster_with_web1();
    let same = Case {
        row: &row,
        command: "instance replace-disks web1",
        target: "web1",
        pre: &[1, 2, 3],
        post: &[1, 2, 3],
        own: web1_and("node3", &[("OLD_SECONDARY", "node3"), ("NEW_SECONDARY", "node3")]),
    };
    same.allowed(&cluster);
    let other = Case {
        row: &row,
        command: "instance replace-disks -n node4 web1",
        target: "web1",
        pre: &[1, 2, 3, 4],
        post: &[1, 2, 3, 4],
        own: web1_and("node3", &[("OLD_SECONDARY", "node3"), ("NEW_SECONDARY", "node4")]),
    };
    other.denied_on_each_node(&cluster);
    other.allowed(&cluster);
    assert_eq!(cluster.instance("web1").secondaries, ["node4"]);
}
