//! T5: new instances, empty ones and imported ones.

use super::case::{Case, PREFIXES, Row, own};
use crate::cluster::Cluster;

const ROW: Row = Row {
    op_id: "OP_INSTANCE_ADD",
    op_code: "OP_INSTANCE_CREATE",
    prefix: "instance-add",
    object: "INSTANCE",
};

#[test]
fn t5_op_instance_add() {
    let cluster = Cluster::up(4);
    cluster.install_dumps(4, &PREFIXES);
    let case = Case {
        row: &ROW,
        command: "instance add -t mirror -n node2:node3 -s 64M --swap-size 32M -m 128M -p 2 -i 10.1.2.3 -o none web1",
        target: "web1",
        pre: &[1, 2, 3],
        post: &[1, 2, 3],
        own: own(&[
            ("INSTANCE_NAME", "web1"),
            ("INSTANCE_PRIMARY", "node2"),
            ("INSTANCE_SECONDARIES", "node3"),
            ("DISK_TEMPLATE", "mirror"),
            ("MEM_SIZE", "128"),
            ("DISK_SIZE", "64"),
            ("SWAP_SIZE", "32"),
            ("VCPUS", "2"),
            ("INSTANCE_IP", "10.1.2.3"),
            ("INSTANCE_ADD_MODE", "create"),
            ("INSTANCE_DISK_TYPE", "mirror"),
            ("INSTANCE_DISK_SIZE", "64"),
            ("INSTANCE_OS", "none"),
        ]),
    };
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
    cluster.ok("instance list --live").says(&["web1", "running"]);
}

#[test]
fn t5_other_templates() {
    // Arguments, template as scripts see it, secondary, sda, sdb, nodes.
    let table = [
        ("-t diskless -n node2", "diskless", "", "0", "0", vec![1, 2]),
        ("-t file -n node2 -s 1G", "file", "", "1024", "0", vec![1, 2]),
        ("-t remote_raid1 -n node2:node3 -s 64", "mirror", "node3", "64", "0", vec![1, 2, 3]),
        // The master is the primary too: its scripts run once.
        ("-t drbd -n node1:node3 -s 64 --swap-size 8", "mirror", "node3", "64", "8", vec![1, 3]),
    ];
    let cluster = Cluster::up(4);
    cluster.install_dumps(4, &PREFIXES);
    for (at, (args, template, secondary, disk, swap, nodes)) in table.into_iter().enumerate() {
        let name = format!("web{at}");
        let primary = if args.contains("node1") { "node1" } else { "node2" };
        let case = Case {
            row: &ROW,
            command: &format!("instance add {args} -m 64 -p 1 -o none --no-start {name}"),
            target: &name,
            pre: &nodes,
            post: &nodes,
            own: own(&[
                ("INSTANCE_NAME", &name),
                ("INSTANCE_PRIMARY", primary),
                ("INSTANCE_SECONDARIES", secondary),
                ("DISK_TEMPLATE", template),
                ("MEM_SIZE", "64"),
                ("DISK_SIZE", disk),
                ("SWAP_SIZE", swap),
                ("VCPUS", "1"),
                ("INSTANCE_ADD_MODE", "create"),
                ("INSTANCE_DISK_TYPE", template),
                ("INSTANCE_DISK_SIZE", disk),
                ("INSTANCE_OS", "none"),
            ]),
        };
        case.allowed(&cluster);
    }
}

#[test]
fn t5_import() {
    let cluster = Cluster::up(4);
    cluster.ok("instance add -t file -n node2 -s 64M --swap-size 8M -m 64M -p 1 -o none --no-start web1");
    cluster.ok("backup export -n node4 web1");
    let export = cluster.exports().remove(0);
    cluster.install_dumps(4, &PREFIXES);
    let case = Case {
        row: &ROW,
        command: "backup import -t file -n node3 --src-node node4 --src-dir web1 -s 64M --swap-size 8M -m 64M -p 1 -o none --no-start web2",
        target: "web2",
        pre: &[1, 3],
        post: &[1, 3],
        own: own(&[
            ("INSTANCE_NAME", "web2"),
            ("INSTANCE_PRIMARY", "node3"),
            ("INSTANCE_SECONDARIES", ""),
            ("DISK_TEMPLATE", "file"),
            ("MEM_SIZE", "64"),
            ("DISK_SIZE", "64"),
            ("SWAP_SIZE", "8"),
            ("VCPUS", "1"),
            ("INSTANCE_ADD_MODE", "import"),
            ("SRC_NODE", "node4"),
            ("SRC_PATH", &export.path),
            ("SRC_IMAGE", "sda.raw"),
            ("INSTANCE_DISK_TYPE", "file"),
            ("INSTANCE_DISK_SIZE", "64"),
            ("INSTANCE_OS", "none"),
        ]),
    };
    case.denied_on_each_node(&cluster);
    case.allowed(&cluster);
}
