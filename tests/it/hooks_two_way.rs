//! What real scripts see against `docs/hooks.md`, both ways and in both versions of the interface: nothing is exported
//! that is not documented, and what is documented as always set is.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    hooks::{HooksVersion, Phase, VARIABLE_PREFIX},
    ops::ROWS,
};
use muster_tests::hook_reference::differences;

use crate::{cluster::Cluster, dumps::Dump, tidy::hook_reference::documented};

/// Operations of both versions, each on what the ones before have left.
const BOTH: [&str; 14] = [
    "instance add -t mirror -n node1:node2 -s 2M --swap-size 1M -m 64M -i 10.1.2.3 -o none web1",
    "instance add -t diskless -n node2 -m 64M -o none --no-start null1",
    "instance shutdown web1",
    "instance start --force web1",
    "instance modify -m 96M web1",
    "instance failover -f web1",
    "instance add-mirror -b sda -n node1 web1",
    "instance remove-mirror -b sda -p 3 web1",
    "instance replace-disks web1",
    "backup export -n node1 web1",
    "backup import -t file -n node2 --src-node node1 --src-dir web1 -s 2M --swap-size 1M -m 64M -p 1 -o none --no-start web2",
    "instance remove -f web1",
    "instance remove -f null1",
    "node remove node3",
];

/// Operations that have hooks in version 2 alone, before the others.
const NEWER: [&str; 21] = [
    "cluster modify --hook-timeout-max 2h",
    "node modify -C yes node2",
    "instance add -t mirror -n node1:node2 -s 1M -m 64M -o none own1",
    "node migrate node1",
    "instance reboot own1",
    "instance shutdown own1",
    "instance grow-disk own1 sda 1M",
    "instance rename own1 own2",
    "cluster verify",
    "group add rack2",
    "group modify --alloc-policy last_resort rack2",
    "group rename rack2 room7",
    "group remove room7",
    "network add --network 198.51.100.0/24 lan",
    "network modify --gateway 198.51.100.1 lan",
    "network connect -N mode=bridged,link=br0 lan default",
    "instance add -t file -n node2 -s 1M -o none --network lan --ip pool net1",
    "instance move -n node1 net1",
    "instance remove -f net1",
    "network disconnect lan default",
    "network remove lan",
];

/// The end of a cluster, in version 2.
const END: [&str; 6] = [
    "instance remove -f own2",
    "instance remove -f web2",
    "node modify -C no node2",
    "cluster rename prod",
    "node remove node2",
    "cluster destroy -f prod",
];

/// Runs the lines in a cluster with a version; what all scripts saw.
fn dumps(version: HooksVersion, lines: &[&str]) -> Vec<Dump> {
    let cluster = Cluster::bare(3);
    cluster.ok("cluster init --hypervisor fake dev");
    if version == HooksVersion::V2 {
        cluster.ok("cluster modify --hooks-version 2");
    }
    cluster.ok("cluster info").says(&[&format!("hooks_version:{:8}{version}", "")]);
    let prefixes: Vec<&str> = ROWS.iter().filter_map(|row| row.prefix_in(version)).collect();
    cluster.install_dumps(3, &prefixes);
    for node in [2, 3] {
        cluster.join(node);
        cluster.ok(&format!("node add node{node}"));
    }
    for line in lines {
        cluster.ok(line);
    }
    cluster.take_dumps()
}

#[track_caller]
fn check(version: HooksVersion, lines: &[&str], operations: usize) {
    let document = documented();
    let mut by_phase: BTreeMap<(String, bool), Vec<Vec<String>>> = BTreeMap::new();
    for dump in dumps(version, lines) {
        let op_id = dump.env["GANETI_OP_ID"].clone();
        let is_post = dump.directory.ends_with("-post.d");
        let phase = if is_post { Phase::Post } else { Phase::Pre };
        assert_eq!(dump.env["GANETI_HOOKS_VERSION"], version.value(), "{op_id}");
        assert_eq!(dump.env["GANETI_HOOKS_PHASE"], version.phase(phase), "{op_id}");
        let names = dump.env.keys().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX));
        by_phase.entry((op_id, is_post)).or_default().push(names.map(str::to_owned).collect());
        assert!(dump.env.values().all(|value| !value.contains("None")), "{:?}", dump.env);
    }
    let mut found = Vec::new();
    for ((op_id, is_post), lists) in &by_phase {
        let phase = if *is_post { Phase::Post } else { Phase::Pre };
        let table =
            document.variables(version, op_id, phase).unwrap_or_else(|| panic!("{op_id} is documented"));
        let differ = differences(&table, lists, true);
        found.extend(differ.iter().map(|text| format!("{phase:?} of {op_id}: {text}")));
    }
    assert!(found.is_empty(), "version {version}:\n{}", found.join("\n"));
    let seen: BTreeSet<&str> = by_phase.keys().map(|(op_id, _)| op_id.as_str()).collect();
    assert_eq!(seen.len(), operations, "{seen:?}");
}

#[test]
fn e1_scripts_of_version_1_see_what_is_documented() {
    check(HooksVersion::V1, &BOTH, 12);
}

#[test]
fn e1_scripts_of_version_2_see_what_is_documented() {
    check(HooksVersion::V2, &[&NEWER[..], &BOTH, &END].concat(), 31);
}
