//! What real scripts see against `docs/hooks.md`, both ways and in both versions of the interface: nothing is exported
//! that is not documented, and what is documented as always set is.

use std::{collections::BTreeSet, fs};

use muster_core::{
    hooks::{HooksVersion, Phase, VARIABLE_PREFIX},
    ops::{ROWS, Row},
};
use muster_tests::hook_reference::{Document, Table, differences};

use crate::{
    cluster::Cluster,
    dumps::{DUMP, Dump, dump_body},
    tidy::hook_reference::documented,
};

/// Operations of both versions, each on what the ones before have left.
const BOTH: [&str; 15] = [
    "instance add -t mirror -n node1:node2 -s 2M --swap-size 1M -m 64M -i 10.1.2.3 -o none web1",
    "instance add -t diskless -n node2 -m 64M -o none --no-start null1",
    "instance shutdown web1",
    "instance start --force web1",
    "instance modify -m 96M web1",
    "denied: instance modify -m 48M web1",
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
const NEWER: [&str; 25] = [
    "cluster modify --hook-timeout-max 2h",
    "node modify -C yes node2",
    "instance add -t mirror -n node1:node2 -s 1M -m 64M -o none own1",
    "node migrate -f node1",
    "instance reboot own1",
    "instance shutdown own1",
    "instance grow-disk own1 sda 1M",
    "instance rename own1 own2",
    "instance add -t file -n node2 -s 1M -o none --no-start lost1",
    "lost: lost1",
    "instance recreate-disks lost1",
    "instance remove -f lost1",
    "cluster verify",
    "group add rack2",
    "group modify --alloc-policy last_resort rack2",
    "group rename rack2 room7",
    "group remove room7",
    "network add --network 198.51.100.0/24 lan",
    "network modify --gateway 198.51.100.1 lan",
    "network connect -N mode=bridged,link=br0 lan default",
    "instance add -t file -n node2 -s 1M -o none --network lan --ip pool net1",
    "instance move -f -n node1 net1",
    "instance remove -f net1",
    "network disconnect lan default",
    "network remove lan",
];

/// The end of a cluster, in version 2.
const END: [&str; 6] = [
    "instance remove -f own2",
    "instance remove -f web2",
    "node modify -C no node2",
    "cluster rename -f prod",
    "node remove node2",
    "cluster destroy -f prod",
];

/// Before a line that is to be denied by a script of `instance-modify-pre.d`, and fails.
const DENIED: &str = "denied: ";
/// Before the name of an instance whose disk files are taken away.
const LOST: &str = "lost: ";

/// Phases of operations that these lines do not reach, and where they are shown: a change of masters is two daemons' business
/// (`hooks_insight`), guests migrate and are installed where they are real (`qemu`, `oses`, `corpus`), and a cluster begins with
/// version 1. Nodes that are evacuated run the hooks of the jobs that follow.
fn elsewhere(version: HooksVersion) -> &'static [&'static str] {
    match version {
        HooksVersion::V1 => &["OP_MASTER_FAILOVER"],
        HooksVersion::V2 => &["OP_INIT_CLUSTER", "OP_INSTANCE_MIGRATE", "OP_INSTANCE_REINSTALL"],
    }
}

/// Runs the lines in a cluster with a version; what all scripts saw.
fn dumps(version: HooksVersion, lines: &[&str]) -> Vec<Dump> {
    let cluster = Cluster::bare(3);
    let prefixes: Vec<&str> = ROWS.iter().filter_map(|row| row.prefix_in(version)).collect();
    cluster.install_dumps(3, &prefixes);
    cluster.install_dumps(1, &["global"]);
    cluster.ok("cluster init --hypervisor fake dev");
    if version == HooksVersion::V2 {
        cluster.ok("cluster modify --hooks-version 2");
        // A job keeps the version that it began with.
        cluster.take_dumps();
    }
    cluster.ok("cluster info").says(&[&format!("hooks_version:{:8}{version}", "")]);
    for node in [2, 3] {
        cluster.script(node, "instance-modify-failed.d", DUMP, &dump_body(&cluster.dumps()));
        cluster.join(node);
        cluster.ok(&format!("node add node{node}"));
    }
    for line in lines {
        if let Some(line) = line.strip_prefix(DENIED) {
            cluster.script(1, "instance-modify-pre.d", "99-no", "exit 1");
            cluster.gnt(line).exits(1);
            cluster.unscript(1, "instance-modify-pre.d", "99-no");
        } else if let Some(name) = line.strip_prefix(LOST) {
            let uuid = cluster.instance(name).disks.remove(0).uuid;
            let files: Vec<String> =
                cluster.files().into_keys().filter(|path| path.contains(&uuid)).collect();
            assert_eq!(files.len(), 1, "{files:?}");
            fs::remove_file(cluster.dir().join(&files[0])).unwrap();
        } else {
            cluster.ok(line);
        }
    }
    cluster.take_dumps()
}

/// What a script of a directory must see: the variables of its operation's phase, and those of the job's end in global ones.
fn table_of(document: &Document, version: HooksVersion, dump: &Dump) -> Table {
    let op_id = &dump.env["GANETI_OP_ID"];
    let has_failed = dump.env.get("GANETI_POST_STATUS").is_some_and(|status| status != "success");
    let tells_of_failure = dump.directory == "global-post.d" && has_failed;
    let phase = if tells_of_failure { Phase::Failed } else { phase_of(&dump.directory) };
    let mut table = document.variables(version, op_id, phase).unwrap_or_else(|| document.common.clone());
    if dump.directory == "global-post.d" {
        for name in document.after.keys() {
            table.insert(name.clone(), has_failed || name != "ERROR_MESSAGE_PATH");
        }
    }
    table
}

fn phase_of(directory: &str) -> Phase {
    let phases = [Phase::Pre, Phase::Post, Phase::Failed].into_iter();
    let ending = |phase: &Phase| directory.ends_with(&phase.directory(""));
    phases.clone().find(ending).unwrap_or_else(|| panic!("{directory} is of no phase"))
}

#[track_caller]
fn check(version: HooksVersion, lines: &[&str]) {
    let document = documented();
    let mut found = BTreeSet::new();
    let mut seen: BTreeSet<(String, &str)> = BTreeSet::new();
    let mut global: BTreeSet<(String, String)> = BTreeSet::new();
    for dump in dumps(version, lines) {
        let op_id = dump.env["GANETI_OP_ID"].clone();
        let (directory, phase) = (&dump.directory, phase_of(&dump.directory));
        assert_eq!(dump.env["GANETI_HOOKS_VERSION"], version.value(), "{op_id}");
        assert_eq!(dump.env["GANETI_HOOKS_PHASE"], version.phase(phase), "{op_id}");
        assert!(dump.env.values().all(|value| !value.contains("None")), "{:?}", dump.env);
        let names = dump.env.keys().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX)).map(str::to_owned);
        let differ = differences(&table_of(&document, version, &dump), &[names.collect()], true);
        found.extend(differ.iter().map(|text| format!("{directory} of {op_id}: {text}")));
        if directory.starts_with("global-") {
            global.insert((op_id, directory.clone()));
        } else {
            seen.insert((op_id, version.phase(phase)));
        }
    }
    assert!(found.is_empty(), "version {version}:\n{}", Vec::from_iter(found).join("\n"));
    let phases = |row: &'static Row| {
        let phases = [Phase::Pre, Phase::Post].into_iter().filter(move |phase| row.runs_in(version, *phase));
        phases.map(move |phase| (row.op_id.to_owned(), version.phase(phase)))
    };
    let own = ROWS
        .iter()
        .filter(|row| row.prefix_in(version).is_some() && !elsewhere(version).contains(&row.op_id));
    let mut wanted: BTreeSet<(String, &str)> = own.flat_map(phases).collect();
    wanted.insert(("OP_INSTANCE_MODIFY".to_owned(), version.phase(Phase::Failed)));
    assert_eq!(seen, wanted);
    for (op_id, _) in &wanted {
        let has = |directory: &str| global.contains(&(op_id.clone(), directory.to_owned()));
        // After its end there is no cluster whose scripts could be told.
        assert!(has("global-pre.d") && (has("global-post.d") || op_id == "OP_CLUSTER_DESTROY"), "{op_id}");
    }
}

#[test]
fn e1_scripts_of_version_1_see_what_is_documented() {
    check(HooksVersion::V1, &BOTH);
}

#[test]
fn e1_scripts_of_version_2_see_what_is_documented() {
    check(HooksVersion::V2, &[&NEWER[..], &BOTH, &END].concat());
}
