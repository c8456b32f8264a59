//! The rows of interface version 2 against what Ganeti 3 documents of its hooks, written out by hand here: codes,
//! directories, node sets, variables; and what holds of all of them.

use std::collections::BTreeSet;

use super::{Fresh, Given, JobFacts, ObjectKind, Op, Prepared, ROWS, all_examples};
use crate::{
    hooks::{HooksVersion, Phase},
    model::Cluster,
    names::NodeName,
};

/// Of every operation, without what the phase or the node adds.
const COMMON: &str =
    "HOOKS_VERSION CLUSTER MASTER OP_ID OBJECT_TYPE OP_CODE OP_TARGET HOOKS_PATH JOB_ID JOB_USER JOB_REASON";
/// Of every instance operation, without those of disks and cards.
const INSTANCE: &str = "INSTANCE_NAME INSTANCE_PRIMARY INSTANCE_SECONDARY INSTANCE_SECONDARIES INSTANCE_OS_TYPE \
     INSTANCE_STATUS INSTANCE_MINMEM INSTANCE_MAXMEM INSTANCE_MEMORY INSTANCE_VCPUS INSTANCE_DISK_TEMPLATE \
     INSTANCE_DISK_COUNT INSTANCE_DISK_SIZES INSTANCE_NIC_COUNT INSTANCE_HYPERVISOR INSTANCE_TAGS INSTANCE_HV_accel \
     INSTANCE_BE_always_failover INSTANCE_BE_auto_balance INSTANCE_BE_maxmem INSTANCE_BE_memory INSTANCE_BE_minmem \
     INSTANCE_BE_spindle_use INSTANCE_BE_vcpus";
const OF_DISK: &str = "NAME UUID SIZE MODE DEV_TYPE";
const OF_CARD: &str = "IP MAC MODE LINK BRIDGE NETWORK";
/// Of every node operation: what Ganeti has, and the node's facts.
const NODE: &str = "NODE_NAME NODE_PIP NODE_SIP MASTER_CAPABLE VM_CAPABLE";
const FACTS: &str = "NODE_OS_NAME NODE_OS_VERSION NODE_OS_SP NODE_OS_STRING NODE_IPS";
const NETWORK: &str = "NETWORK_NAME NETWORK_SUBNET NETWORK_GATEWAY NETWORK_SUBNET6 NETWORK_GATEWAY6 \
     NETWORK_MAC_PREFIX NETWORK_TAGS NETWORK_UUID";

/// Of which object variables are expected.
#[derive(Clone, Copy)]
enum Object {
    Cluster,
    Node,
    Instance,
    Group,
    Network,
}

struct Row {
    op_id: &'static str,
    example: usize,
    op_code: &'static str,
    prefix: &'static str,
    object: Object,
    target: &'static str,
    /// The operation's own, and others whose value is checked; "POST_NAME=value" is checked after the operation.
    variables: &'static str,
    pre: &'static str,
    post: &'static str,
}

/// The examples of version 2, prepared.
fn prepared() -> Vec<(Op, Prepared)> {
    let prepare = |(mut cluster, fresh, op): (Cluster, Fresh, Op)| {
        cluster.hooks.version = HooksVersion::V2;
        let local: NodeName = match op.row().op_id {
            "OP_MASTER_FAILOVER" => super::examples::node_name("node2"),
            _ => cluster.master.clone(),
        };
        let job = JobFacts { id: 17, user: "root", reason: "", dry_run: false };
        let given = Given { cluster: &cluster, fresh: &fresh, local: &local, undone: &[] };
        let prepared = op.prepare(given, &job).expect("examples are good");
        (op, prepared)
    };
    all_examples().into_iter().map(prepare).collect()
}

fn words(nodes: &[NodeName]) -> String {
    nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(" ")
}

fn numbered(count: &str, stem: &str, of_each: &str) -> Vec<String> {
    let count: usize = count.parse().unwrap();
    (0..count).flat_map(|n| of_each.split(' ').map(move |what| format!("{stem}{n}_{what}"))).collect()
}

/// The names of the object's variables.
fn object_names(object: Object, prepared: &Prepared) -> Vec<String> {
    let split = |names: &str| names.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    match object {
        Object::Cluster => Vec::new(),
        Object::Node => split(NODE),
        Object::Group => split("GROUP_NAME"),
        Object::Network => split(NETWORK),
        Object::Instance => {
            let count = |name: &str| prepared.env.get(name).unwrap();
            let mut names = split(INSTANCE);
            names.extend(numbered(count("INSTANCE_DISK_COUNT"), "INSTANCE_DISK", OF_DISK));
            names.extend(numbered(count("INSTANCE_NIC_COUNT"), "INSTANCE_NIC", OF_CARD));
            names
        }
    }
}

fn check(row: &Row) {
    let at = format!("example {} of {}", row.example, row.op_id);
    let mut of_row = prepared().into_iter().filter(|(op, _)| op.row().op_id == row.op_id);
    let (op, prepared) = of_row.nth(row.example).expect("the row has this example");
    let hooks = op.row().hooks2.expect("the row has hooks in version 2");
    assert_eq!((hooks.op_code, hooks.prefix), (row.op_code, row.prefix), "{at}");
    assert_eq!(
        (words(&prepared.nodes.pre).as_str(), words(&prepared.nodes.post).as_str()),
        (row.pre, row.post),
        "{at}"
    );
    for (name, value) in [
        ("HOOKS_VERSION", "2"),
        ("OP_CODE", row.op_code),
        ("OP_TARGET", row.target),
        ("HOOKS_PATH", row.prefix),
        ("OBJECT_TYPE", op.row().object.as_str()),
    ] {
        assert_eq!(prepared.env.get(name), Some(value), "{name} of {at}");
    }
    let mut names: Vec<String> = COMMON.split(' ').map(str::to_owned).collect();
    let mut restated = object_names(row.object, &prepared);
    if op.row().object == ObjectKind::Node {
        names.extend(FACTS.split(' ').map(str::to_owned));
    }
    for variable in row.variables.split(';').filter(|variable| !variable.is_empty()) {
        let (name, value) = variable.split_once('=').unwrap();
        if let Some(post) = name.strip_prefix("POST_") {
            assert_eq!(prepared.env_post.get(name), Some(value), "{name} of {at}");
            assert!(prepared.env.get(post).is_some(), "{name} of {at}");
        } else {
            assert_eq!(prepared.env.get(name), Some(value), "{name} of {at}");
            restated.push(name.to_owned());
        }
    }
    let post: BTreeSet<String> = restated.iter().map(|name| format!("POST_{name}")).collect();
    let found: BTreeSet<String> = prepared.env_post.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(found, post, "POST_ variables of {at}");
    names.extend(restated);
    let names: BTreeSet<String> = names.into_iter().collect();
    let found: BTreeSet<String> = prepared.env.iter().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(found, names, "variables of {at}");
}

const fn row(op_id: &'static str, op_code: &'static str, prefix: &'static str, object: Object) -> Row {
    Row {
        op_id,
        example: 0,
        op_code,
        prefix,
        object,
        target: "dev",
        variables: "",
        pre: "node1",
        post: "node1",
    }
}

#[test]
fn rows_of_the_cluster() {
    for row in [
        Row { pre: "", ..row("OP_INIT_CLUSTER", "OP_CLUSTER_POST_INIT", "cluster-init", Object::Cluster) },
        Row {
            pre: "",
            ..row("OP_CLUSTER_DESTROY", "OP_CLUSTER_DESTROY", "cluster-destroy", Object::Cluster)
        },
        Row {
            variables: "NEW_VG_NAME=",
            ..row("OP_CLUSTER_MODIFY", "OP_CLUSTER_SET_PARAMS", "cluster-modify", Object::Cluster)
        },
        Row {
            variables: "NEW_NAME=prod",
            ..row("OP_CLUSTER_RENAME", "OP_CLUSTER_RENAME", "cluster-rename", Object::Cluster)
        },
        Row {
            variables: "CLUSTER_TAGS=;NODE_TAGS_node1=;NODE_TAGS_node2=;NODE_TAGS_node3=",
            pre: "",
            post: "node1 node2 node3",
            ..row("OP_CLUSTER_VERIFY", "OP_CLUSTER_VERIFY_GROUP", "cluster-verify", Object::Cluster)
        },
    ] {
        check(&row);
    }
}

#[test]
fn rows_of_nodes() {
    let all = "node1 node2 node3";
    let modify = Row {
        target: "node2",
        pre: "node1 node2",
        post: "node1 node2",
        ..row("OP_NODE_MODIFY", "OP_NODE_SET_PARAMS", "node-modify", Object::Node)
    };
    for row in [
        Row {
            target: "node4",
            variables: "NODE_NAME=node4;NODE_PIP=192.0.2.4;NODE_SIP=192.0.2.54;MASTER_CAPABLE=True;VM_CAPABLE=True",
            pre: all,
            post: "node1 node2 node3 node4",
            ..row("OP_ADD_NODE", "OP_NODE_ADD", "node-add", Object::Node)
        },
        Row {
            target: "node3",
            variables: "NODE_NAME=node3;POST_NODE_NAME=node3",
            pre: "node1 node2",
            post: "node1 node2",
            ..row("OP_REMOVE_NODE", "OP_NODE_REMOVE", "node-remove", Object::Node)
        },
        // A node that is offline afterwards is told nothing any more.
        Row { variables: "OFFLINE=True;DRAINED=;MASTER_CANDIDATE=", post: "node1", ..modify },
        Row {
            example: 1,
            variables: "OFFLINE=;DRAINED=;MASTER_CANDIDATE=;NODE_PIP=192.0.2.2;POST_NODE_PIP=192.0.2.52",
            ..modify
        },
        Row { example: 2, variables: "OFFLINE=;DRAINED=;MASTER_CANDIDATE=True", ..modify },
        Row {
            target: "node2",
            variables: "NODE_NAME=node2",
            ..row("OP_NODE_MIGRATE", "OP_NODE_MIGRATE", "node-migrate", Object::Node)
        },
    ] {
        check(&row);
    }
}

const MAIL: &str = "node1 node2 node3";

#[test]
fn rows_of_instances_that_are_made_and_unmade() {
    let add = row("OP_INSTANCE_ADD", "OP_INSTANCE_CREATE", "instance-add", Object::Instance);
    let add = Row { target: "new1", pre: MAIL, post: MAIL, ..add };
    for row in [
        Row {
            variables: "ADD_MODE=create;INSTANCE_NAME=new1;INSTANCE_PRIMARY=node2;INSTANCE_SECONDARIES=;\
                INSTANCE_SECONDARY=;INSTANCE_OS_TYPE=none;INSTANCE_MEMORY=128;INSTANCE_VCPUS=1;INSTANCE_DISK_COUNT=1;\
                INSTANCE_DISK0_SIZE=1024;INSTANCE_DISK0_MODE=rw;INSTANCE_DISK_SIZES=1024;INSTANCE_STATUS=down;\
                INSTANCE_DISK_TEMPLATE=file;INSTANCE_DISK0_DEV_TYPE=file;INSTANCE_NIC_COUNT=1;INSTANCE_NIC0_IP=;\
                INSTANCE_NIC0_MAC=aa:00:00:ff:ff:01;INSTANCE_NIC0_BRIDGE=;INSTANCE_NIC0_NETWORK=;INSTANCE_TAGS=;\
                INSTANCE_HYPERVISOR=fake;INSTANCE_BE_maxmem=128;INSTANCE_BE_vcpus=1;POST_INSTANCE_STATUS=up",
            pre: "node1 node2",
            post: "node1 node2",
            ..add
        },
        Row {
            example: 1,
            variables: "ADD_MODE=create;INSTANCE_DISK_TEMPLATE=diskless;INSTANCE_DISK_COUNT=0;INSTANCE_DISK_SIZES=;\
                INSTANCE_NIC0_IP=198.51.100.9",
            pre: "node1 node2",
            post: "node1 node2",
            ..add
        },
        Row {
            example: 2,
            variables: "ADD_MODE=create;INSTANCE_SECONDARIES=node3;INSTANCE_SECONDARY=node3;INSTANCE_DISK_COUNT=2;\
                INSTANCE_DISK_TEMPLATE=drbd;INSTANCE_DISK0_DEV_TYPE=drbd;INSTANCE_DISK_SIZES=1024 64;\
                INSTANCE_DISK1_SIZE=64",
            ..add
        },
        Row {
            example: 4,
            variables: "ADD_MODE=import;SRC_NODE=node2;SRC_PATH=/srv/exports/web1;SRC_IMAGE=sda.raw sdb.raw;\
                SRC_IMAGES=sda.raw sdb.raw;INSTANCE_MEMORY=512;INSTANCE_VCPUS=2;INSTANCE_DISK_SIZES=128 64",
            ..add
        },
        Row {
            target: "mail1",
            variables: "SHUTDOWN_TIMEOUT=120;INSTANCE_STATUS=up;POST_INSTANCE_STATUS=down;POST_INSTANCE_NAME=mail1",
            post: MAIL,
            ..row("OP_INSTANCE_REMOVE", "OP_INSTANCE_REMOVE", "instance-remove", Object::Instance)
        },
        Row {
            target: "web1",
            variables: "EXPORT_MODE=local;EXPORT_NODE=node2;EXPORT_DO_SHUTDOWN=True;REMOVE_INSTANCE=False;\
                SHUTDOWN_TIMEOUT=120",
            ..row("OP_BACKUP_EXPORT", "OP_BACKUP_EXPORT", "instance-export", Object::Instance)
        },
        Row {
            target: "db1",
            variables: "INSTANCE_OS_TYPE=none;POST_INSTANCE_OS_TYPE=debian",
            pre: "node1 node3",
            post: "node1 node3",
            ..row("OP_INSTANCE_REINSTALL", "OP_INSTANCE_REINSTALL", "instance-reinstall", Object::Instance)
        },
    ] {
        check(&row);
    }
}

#[test]
fn rows_of_instances_that_run_and_change() {
    let db = |row: Row| Row { target: "db1", pre: "node1 node3", post: "node1 node3", ..row };
    let start = row("OP_INSTANCE_START", "OP_INSTANCE_STARTUP", "instance-start", Object::Instance);
    let shutdown = row("OP_INSTANCE_SHUTDOWN", "OP_INSTANCE_SHUTDOWN", "instance-stop", Object::Instance);
    let modify = row("OP_INSTANCE_MODIFY", "OP_INSTANCE_SET_PARAMS", "instance-modify", Object::Instance);
    let reboot = row("OP_INSTANCE_REBOOT", "OP_INSTANCE_REBOOT", "instance-reboot", Object::Instance);
    for row in [
        db(Row { variables: "FORCE=False;INSTANCE_STATUS=down;POST_INSTANCE_STATUS=up", ..start }),
        Row {
            example: 1,
            target: "web1",
            variables: "FORCE=True;INSTANCE_STATUS=up;INSTANCE_NIC0_IP=198.51.100.1",
            ..start
        },
        Row {
            target: "mail1",
            variables: "TIMEOUT=120;INSTANCE_STATUS=up;POST_INSTANCE_STATUS=down",
            pre: MAIL,
            post: MAIL,
            ..shutdown
        },
        db(Row { example: 1, variables: "TIMEOUT=1", ..shutdown }),
        Row {
            target: "web1",
            variables: "NEW_DISK_TEMPLATE=;RUNTIME_MEMORY=;INSTANCE_MEMORY=1024;INSTANCE_BE_memory=1024;\
                POST_INSTANCE_MEMORY=1024;INSTANCE_VCPUS=2",
            ..modify
        },
        Row {
            target: "web1",
            variables: "IGNORE_SECONDARIES=False;REBOOT_TYPE=soft;SHUTDOWN_TIMEOUT=120",
            ..reboot
        },
        Row {
            example: 2,
            target: "web1",
            variables: "IGNORE_SECONDARIES=False;REBOOT_TYPE=full;SHUTDOWN_TIMEOUT=120",
            ..reboot
        },
        db(Row {
            variables: "INSTANCE_NEW_NAME=db2;INSTANCE_NAME=db1;POST_INSTANCE_NAME=db2;POST_INSTANCE_NEW_NAME=db2",
            ..row("OP_INSTANCE_RENAME", "OP_INSTANCE_RENAME", "instance-rename", Object::Instance)
        }),
        db(Row {
            variables: "DISK=0;AMOUNT=64;INSTANCE_DISK0_SIZE=512;POST_INSTANCE_DISK0_SIZE=576",
            ..row("OP_INSTANCE_GROW_DISK", "OP_INSTANCE_GROW_DISK", "disk-grow", Object::Instance)
        }),
        db(row(
            "OP_INSTANCE_RECREATE_DISKS",
            "OP_INSTANCE_RECREATE_DISKS",
            "instance-recreate-disks",
            Object::Instance,
        )),
    ] {
        check(&row);
    }
}

#[test]
fn rows_of_instances_that_change_nodes() {
    let failover = row("OP_INSTANCE_FAILOVER", "OP_INSTANCE_FAILOVER", "instance-failover", Object::Instance);
    let both = Row { target: "mail1", pre: MAIL, post: MAIL, ..row("", "", "", Object::Instance) };
    for row in [
        Row {
            variables: "IGNORE_CONSISTENCY=True;SHUTDOWN_TIMEOUT=120;OLD_PRIMARY=node2;NEW_PRIMARY=node3;\
                OLD_SECONDARY=node3;NEW_SECONDARY=node2;INSTANCE_PRIMARY=node2;INSTANCE_SECONDARY=node3;\
                POST_INSTANCE_PRIMARY=node3;POST_INSTANCE_SECONDARY=node2;POST_INSTANCE_SECONDARIES=node2",
            target: "mail1",
            pre: MAIL,
            post: MAIL,
            ..failover
        },
        // node2 is marked offline: outside every set (HOOKS.md R6).
        Row {
            example: 2,
            variables: "IGNORE_CONSISTENCY=True;SHUTDOWN_TIMEOUT=120;OLD_PRIMARY=node2;NEW_PRIMARY=node3;\
                OLD_SECONDARY=node3;NEW_SECONDARY=node2",
            target: "mail1",
            pre: "node1 node3",
            post: "node1 node3",
            ..failover
        },
        Row {
            op_id: "OP_INSTANCE_MIGRATE",
            op_code: "OP_INSTANCE_MIGRATE",
            prefix: "instance-migrate",
            variables: "MIGRATE_LIVE=True;MIGRATE_CLEANUP=False;OLD_PRIMARY=node2;NEW_PRIMARY=node3;OLD_SECONDARY=node3;\
                NEW_SECONDARY=node2;POST_INSTANCE_PRIMARY=node3;INSTANCE_HYPERVISOR=kvm;\
                INSTANCE_BE_always_failover=False",
            ..both
        },
        Row {
            target: "web1",
            variables: "TARGET_NODE=node3;SHUTDOWN_TIMEOUT=120;INSTANCE_PRIMARY=node1;POST_INSTANCE_PRIMARY=node3",
            pre: "node1 node3",
            post: "node1 node3",
            ..row("OP_INSTANCE_MOVE", "OP_INSTANCE_MOVE", "instance-move", Object::Instance)
        },
    ] {
        check(&row);
    }
}

#[test]
fn rows_of_copies() {
    let replace =
        row("OP_INSTANCE_REPLACE_DISKS", "OP_INSTANCE_REPLACE_DISKS", "mirrors-replace", Object::Instance);
    let both = Row { target: "mail1", pre: MAIL, post: MAIL, ..row("", "", "", Object::Instance) };
    for row in [
        Row {
            target: "mail1",
            variables: "MODE=replace_new_secondary;OLD_SECONDARY=node3;NEW_SECONDARY=node1;INSTANCE_SECONDARY=node3;\
                POST_INSTANCE_SECONDARY=node1",
            pre: "node1 node2",
            post: "node1 node2",
            ..replace
        },
        Row {
            example: 1,
            target: "db1",
            variables: "MODE=replace_on_secondary;OLD_SECONDARY=node3;NEW_SECONDARY=node3",
            pre: "node1 node3",
            post: "node1 node3",
            ..replace
        },
        Row {
            example: 5,
            target: "db1",
            variables: "MODE=replace_on_primary;OLD_SECONDARY=node3;NEW_SECONDARY=node3",
            pre: "node1 node3",
            post: "node1 node3",
            ..replace
        },
        // These two have no counterpart in Ganeti 3 and keep the names of version 1.
        Row {
            op_id: "OP_INSTANCE_ADD_MDDRBD",
            example: 1,
            op_code: "OP_INSTANCE_ADD_MDDRBD",
            prefix: "mirror-add",
            variables: "NEW_SECONDARY=node3;DISK_NAME=sda",
            ..both
        },
        Row {
            op_id: "OP_INSTANCE_REMOVE_MDDRBD",
            op_code: "OP_INSTANCE_REMOVE_MDDRBD",
            prefix: "mirror-remove",
            variables: "OLD_SECONDARY=node3;DISK_NAME=sdb;DISK_ID=2",
            ..both
        },
    ] {
        check(&row);
    }
}

#[test]
fn rows_of_groups_and_networks() {
    let group =
        |op_id, op_code, prefix| Row { target: "rack2", ..row(op_id, op_code, prefix, Object::Group) };
    let network =
        |op_id, op_code, prefix| Row { target: "lan", ..row(op_id, op_code, prefix, Object::Network) };
    let connect = network("OP_NETWORK_CONNECT", "OP_NETWORK_CONNECT", "network-connect");
    for row in [
        Row {
            target: "rack9",
            variables: "GROUP_NAME=rack9",
            ..group("OP_GROUP_ADD", "OP_GROUP_ADD", "group-add")
        },
        Row {
            variables: "NEW_ALLOC_POLICY=unallocable",
            ..group("OP_GROUP_MODIFY", "OP_GROUP_SET_PARAMS", "group-modify")
        },
        Row {
            target: "spare",
            variables: "GROUP_NAME=spare",
            ..group("OP_GROUP_REMOVE", "OP_GROUP_REMOVE", "group-remove")
        },
        Row {
            variables: "OLD_NAME=rack2;NEW_NAME=room7",
            object: Object::Cluster,
            pre: "node1 node3",
            post: "node1 node3",
            ..group("OP_GROUP_RENAME", "OP_GROUP_RENAME", "group-rename")
        },
        Row {
            target: "dmz",
            variables: "NETWORK_NAME=dmz;NETWORK_SUBNET=203.0.113.128/25;NETWORK_GATEWAY=203.0.113.129;\
                NETWORK_SUBNET6=2001:db8:2::/64;NETWORK_GATEWAY6=2001:db8:2::1;NETWORK_MAC_PREFIX=aa:00:77;\
                NETWORK_TAGS=outside",
            ..network("OP_NETWORK_ADD", "OP_NETWORK_ADD", "network-add")
        },
        Row {
            variables: "NETWORK_GATEWAY=198.51.100.254;POST_NETWORK_GATEWAY=198.51.100.253;NETWORK_SUBNET6=;\
                POST_NETWORK_MAC_PREFIX=",
            ..network("OP_NETWORK_MODIFY", "OP_NETWORK_SET_PARAMS", "network-modify")
        },
        Row {
            target: "lab",
            variables: "NETWORK_NAME=lab",
            object: Object::Cluster,
            ..network("OP_NETWORK_REMOVE", "OP_NETWORK_REMOVE", "network-remove")
        },
        Row {
            target: "lab",
            variables: "GROUP_NAME=default;GROUP_NETWORK_MODE=routed;GROUP_NETWORK_LINK=lab0;GROUP_NETWORK_VLAN=",
            pre: "node1 node2",
            post: "node1 node2",
            ..connect
        },
        Row {
            op_id: "OP_NETWORK_DISCONNECT",
            op_code: "OP_NETWORK_DISCONNECT",
            prefix: "network-disconnect",
            target: "lab",
            variables: "GROUP_NAME=rack2;GROUP_NETWORK_MODE=bridged;GROUP_NETWORK_LINK=lab1;GROUP_NETWORK_VLAN=",
            pre: "node3",
            post: "node3",
            ..connect
        },
    ] {
        check(&row);
    }
}

#[test]
fn rows_without_hooks_in_version_2_run_none() {
    let without: Vec<&str> = ROWS.iter().filter(|row| row.hooks2.is_none()).map(|row| row.op_id).collect();
    let expected = [
        // Ganeti 3 runs no hooks for a change of masters, for tags, and for an evacuation, whose jobs do.
        "OP_MASTER_FAILOVER",
        "OP_CERTIFICATES_RENEW",
        "OP_CLIENT_CERTIFICATE_SIGN",
        "OP_CLIENT_CERTIFICATE_REVOKE",
        "OP_JOB_REPAIR",
        "OP_INSTANCE_MIRRORS_SETTLE",
        "OP_INSTANCE_MIRRORS_SYNC",
        "OP_GROUP_ASSIGN_NODES",
        "OP_TAGS_SET",
        "OP_TAGS_DEL",
        "OP_NODE_EVACUATE",
    ];
    assert_eq!(without, expected);
    for (op, prepared) in prepared() {
        assert_eq!(prepared.hook_prefix.is_some(), op.row().hooks2.is_some(), "{op:?}");
        if op.row().hooks2.is_none() {
            assert!(prepared.nodes.pre.is_empty() && prepared.nodes.post.is_empty(), "{op:?}");
            assert_eq!(prepared.env.iter().count() + prepared.env_post.iter().count(), 0, "{op:?}");
        }
    }
}

#[test]
fn no_prefix_and_no_code_stands_for_two_operations() {
    let hooks: Vec<_> = ROWS.iter().filter_map(|row| row.hooks2).collect();
    let prefixes: BTreeSet<&str> = hooks.iter().map(|row| row.prefix).collect();
    let codes: BTreeSet<&str> = hooks.iter().map(|row| row.op_code).collect();
    assert_eq!((prefixes.len(), codes.len()), (hooks.len(), hooks.len()));
}

#[test]
fn e1_values_and_names_of_all_examples() {
    for (op, prepared) in prepared() {
        for phase in [Phase::Pre, Phase::Post] {
            for (name, value) in prepared.env_in(phase).iter() {
                assert!(!value.contains("None") && !value.contains('\0'), "{name}={value} of {op:?}");
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                // A node's name may hold what no shell's variable may; scripts find those in the whole environment.
                let good = name.trim_start_matches("POST_").strip_prefix("NODE_TAGS_").unwrap_or(name);
                let is_node = good.len() < name.len();
                assert!(
                    good.chars().all(|c| is_name(c) || is_node && (c == '-' || c == '.')),
                    "{name} of {op:?}"
                );
                assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{name} of {op:?}");
                assert!(!["true", "false", "yes", "no"].contains(&value), "{name}={value} of {op:?}");
            }
        }
    }
}

#[test]
fn e1_numbers_of_disks_and_cards_have_no_gaps() {
    for (op, prepared) in prepared() {
        for (env, prefix) in [(&prepared.env, ""), (&prepared.env_post, "POST_")] {
            for (stem, count) in
                [("INSTANCE_DISK", "INSTANCE_DISK_COUNT"), ("INSTANCE_NIC", "INSTANCE_NIC_COUNT")]
            {
                let stem = format!("{prefix}{stem}");
                let number = |name: &str| {
                    let rest = name.strip_prefix(stem.as_str())?;
                    rest.split('_').next().filter(|digits| !digits.is_empty())?.parse::<usize>().ok()
                };
                let found: BTreeSet<usize> = env.iter().filter_map(|(name, _)| number(name)).collect();
                let count = env.get(&format!("{prefix}{count}")).map_or(0, |count| count.parse().unwrap());
                assert_eq!(found, (0..count).collect(), "{stem} of {op:?}");
            }
        }
    }
}

#[test]
fn post_variables_have_a_counterpart_and_are_in_post_alone() {
    for (op, prepared) in prepared() {
        for (name, _) in prepared.env_post.iter() {
            let before = name.strip_prefix("POST_").unwrap_or_else(|| panic!("{name} of {op:?}"));
            assert!(prepared.env.get(before).is_some(), "{name} of {op:?}");
            assert!(prepared.env_in(Phase::Pre).get(name).is_none());
            assert_eq!(prepared.env_in(Phase::Post).get(name), prepared.env_post.get(name));
        }
        if op.row().hooks2.is_some() {
            assert_eq!(prepared.env_in(Phase::Pre).get("HOOKS_PHASE"), Some("pre"));
            assert_eq!(prepared.env_in(Phase::Post).get("HOOKS_PHASE"), Some("post"));
        }
    }
}
