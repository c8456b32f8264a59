//! T3 and T4: nodes come and go.

use super::case::{Case, PREFIXES, Row, own};
use crate::cluster::Cluster;

/// A cluster of node1 to node3, and node4 with a daemon that asks to join.
fn three_and_a_pending_one() -> Cluster {
    let cluster = Cluster::bare(4);
    cluster.ok("cluster init dev");
    for node in 2..=3 {
        cluster.join(node);
        cluster.ok(&format!("node add node{node}"));
    }
    cluster.join(4);
    cluster.install_dumps(4, &PREFIXES);
    cluster
}

const ADD: Row = Row { op_id: "OP_ADD_NODE", op_code: "OP_NODE_ADD", prefix: "node-add", object: "NODE" };

#[test]
fn t3_op_add_node() {
    let cluster = three_and_a_pending_one();
    let (primary, secondary) = (cluster.address(4), cluster.address(204));
    let case = Case {
        row: &ADD,
        command: &format!("node add node4 -s {secondary}"),
        target: "node4",
        pre: &[1, 2, 3],
        post: &[1, 2, 3, 4],
        own: own(&[("NODE_NAME", "node4"), ("NODE_PIP", &primary), ("NODE_SIP", &secondary)]),
    };
    case.denied_on_each_node(&cluster);
    cluster.ok("node pending").says(&["node4"]);
    case.allowed(&cluster);
    cluster.ok("node pending").does_not_say("node4");
    cluster.ok("node list").says(&["node4"]);
}

#[test]
fn t3_without_an_own_secondary_address_both_are_equal() {
    let cluster = three_and_a_pending_one();
    let address = cluster.address(4);
    let case = Case {
        row: &ADD,
        command: "node add node4",
        target: "node4",
        pre: &[1, 2, 3],
        post: &[1, 2, 3, 4],
        own: own(&[("NODE_NAME", "node4"), ("NODE_PIP", &address), ("NODE_SIP", &address)]),
    };
    case.allowed(&cluster);
}

#[test]
fn t4_op_remove_node() {
    let row =
        Row { op_id: "OP_REMOVE_NODE", op_code: "OP_NODE_REMOVE", prefix: "node-remove", object: "NODE" };
    let cluster = Cluster::up(4);
    cluster.install_dumps(4, &PREFIXES);
    let case = Case {
        row: &row,
        command: "node remove node4",
        target: "node4",
        pre: &[1, 2, 3],
        post: &[1, 2, 3],
        own: own(&[("NODE_NAME", "node4")]),
    };
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    cluster.ok("node list").does_not_say("node4");
}

#[test]
fn t3_a_host_that_lost_its_state_is_added_again() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t mirror -n node2:node3 -s 16M -m 64M -o none --no-start web1");
    let uuid =
        |cluster: &Cluster| cluster.nodes().into_iter().find(|node| node.name == "node3").unwrap().uuid;
    let before = uuid(&cluster);
    cluster.devcluster(&["kill", "node3"]).exits(0);
    std::fs::remove_dir_all(cluster.node_dir(3).join("state")).unwrap();
    cluster.devcluster(&["start", "node3"]).exits(0);
    cluster.gnt("node add --readd node3").exits(1).says(&["no host is pending", "muster-noded join"]);
    cluster.join(3);
    cluster.gnt("node add node3").exits(1).says(&["node3", "--readd"]);
    cluster.gnt("node add --readd node1").exits(1).says(&["node1"]);
    cluster.ok("node add --readd node3");
    assert_eq!(uuid(&cluster), before, "it is the same member, with another certificate");
    cluster.ok("cluster verify");
    cluster.ok("instance start web1");
}
