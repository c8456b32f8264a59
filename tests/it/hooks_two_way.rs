//! What real scripts see against `docs/hooks.md`, both ways and in both versions of the interface: nothing is exported
//! that is not documented, and what is documented as always set is.

use std::{collections::BTreeSet, fs, process::Command};

use muster_core::{
    hooks::{HooksVersion, Phase, VARIABLE_PREFIX},
    ops::{ROWS, Row, point_directories},
};
use muster_tests::hook_reference::{Document, Said, Table, differences};

use crate::{
    cluster::{Cluster, devcluster_program, start, wait_for},
    dumps::{DUMP, Dump, dump_body},
    tidy::hook_reference::documented,
};

/// Operations of both versions, each on what the ones before have left.
const BOTH: [&str; 17] = [
    "instance add -t mirror -n node1:node2 -s 2M --swap-size 1M -m 64M -i 10.1.2.3 -o none web1",
    "instance add -t diskless -n node2 -m 64M -o none --no-start null1",
    "refused: instance start web9",
    "canceled: instance start null1",
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
/// Before a line that is refused: its job has nothing of the operation's own.
const REFUSED: &str = "refused: ";
/// Before a line whose job is canceled before it begins.
const CANCELED: &str = "canceled: ";
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

/// What all scripts saw, and the jobs of which scripts at their end know nothing of the operation.
#[derive(Default)]
struct Dumps {
    dumps: Vec<Dump>,
    /// Refused, or over before they began.
    bare: BTreeSet<String>,
    not_begun: BTreeSet<String>,
}

/// Runs the lines in a cluster with a version.
fn dumps(version: HooksVersion, lines: &[&str]) -> Dumps {
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
    let mut all = Dumps::default();
    for line in lines {
        run(&cluster, line, &mut all);
    }
    all.dumps.extend(cluster.take_dumps());
    all
}

fn run(cluster: &Cluster, line: &str, all: &mut Dumps) {
    if let Some(line) = line.strip_prefix(DENIED) {
        cluster.script(1, "instance-modify-pre.d", "99-no", "exit 1");
        cluster.gnt(line).exits(1);
        cluster.unscript(1, "instance-modify-pre.d", "99-no");
    } else if let Some(line) = line.strip_prefix(REFUSED) {
        cluster.gnt(line).exits(1).says(&["refused"]);
        all.bare.insert(cluster.last_job().id.to_string());
    } else if let Some(line) = line.strip_prefix(CANCELED) {
        cluster.ok("cluster queue pause");
        let waiting = cluster.submit(line);
        cluster.ok(&format!("job cancel {waiting}"));
        wait_for("the end of the canceled job to be told", || {
            all.dumps.extend(cluster.take_dumps());
            all.dumps.iter().any(|dump| dump.env["GANETI_JOB_ID"] == waiting.to_string())
        });
        cluster.ok("cluster queue resume");
        all.bare.insert(waiting.to_string());
        all.not_begun.insert(waiting.to_string());
    } else if let Some(name) = line.strip_prefix(LOST) {
        let uuid = cluster.instance(name).disks.remove(0).uuid;
        let files: Vec<String> = cluster.files().into_keys().filter(|path| path.contains(&uuid)).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        fs::remove_file(cluster.dir().join(&files[0])).unwrap();
    } else {
        cluster.ok(line);
    }
}

/// What a script of a directory must see: the variables of its operation's phase, and those of the job's end in global ones.
fn table_of(document: &Document, version: HooksVersion, dump: &Dump, all: &Dumps) -> Table {
    let op_id = &dump.env["GANETI_OP_ID"];
    let job = &dump.env["GANETI_JOB_ID"];
    let is_global_post = dump.directory == "global-post.d";
    let has_failed = dump.env.get("GANETI_POST_STATUS").is_some_and(|status| status != "success");
    let phase = if is_global_post && has_failed { Phase::Failed } else { phase_of(&dump.directory) };
    let operation = document.variables(version, op_id, phase).filter(|_| !all.bare.contains(job));
    let mut table = operation.unwrap_or_else(|| document.common.clone());
    if is_global_post {
        table.extend(document.points["global-post.d"].clone());
        if has_failed && dump.env["GANETI_POST_STATUS"] != "canceled" {
            table.insert("ERROR_MESSAGE_PATH".to_owned(), Said::Always);
        } else {
            table.remove("ERROR_MESSAGE_PATH");
        }
        if all.not_begun.contains(job) {
            table.remove("JOB_STARTED");
        } else {
            table.insert("JOB_STARTED".to_owned(), Said::Always);
        }
    } else if dump.directory == "global-pre.d" {
        table.extend(document.points["global-pre.d"].clone());
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
    let all = dumps(version, lines);
    assert_eq!((all.bare.len(), all.not_begun.len()), (2, 1));
    for dump in &all.dumps {
        let op_id = dump.env["GANETI_OP_ID"].clone();
        let (directory, phase) = (&dump.directory, phase_of(&dump.directory));
        assert_eq!(dump.env["GANETI_HOOKS_VERSION"], version.value(), "{op_id}");
        assert_eq!(dump.env["GANETI_HOOKS_PHASE"], version.phase(phase), "{op_id}");
        assert!(dump.env.values().all(|value| !value.contains("None")), "{:?}", dump.env);
        let names = dump.env.keys().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX)).map(str::to_owned);
        let differ = differences(&table_of(&document, version, dump, &all), &[names.collect()], true);
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

/// Asks to join with a token for another host; the master refuses it.
fn join_with_a_wrong_token(cluster: &Cluster, node: u32) {
    let token = cluster.ok("node token create --node node9").stdout;
    let mut join = Command::new(devcluster_program().with_file_name("muster-noded"));
    join.arg("join")
        .arg("--config")
        .arg(cluster.node_dir(node).join("noded.toml"))
        .args(["--token-file", "-"]);
    start(join, &token).finish().exits(1).says(&["the master refused"]);
}

/// A node's daemon finds another operating system on its host.
fn change_facts(cluster: &Cluster, node: u32) {
    let (config, root) = (cluster.node_dir(node).join("noded.toml"), cluster.node_dir(node).join("host"));
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/os-release"), "ID=testos\nVERSION_ID=2\n").unwrap();
    let text = fs::read_to_string(&config).unwrap() + &format!("host_root = \"{}\"\n", root.display());
    fs::write(config, text).unwrap();
    let name = format!("node{node}");
    cluster.devcluster(&["kill", &name]).exits(0);
    cluster.devcluster(&["start", &name]).exits(0);
    cluster.ok(&format!("node info --live {name}"));
}

#[test]
fn scripts_of_events_and_of_syncs_see_what_is_documented() {
    let cluster = Cluster::bare(2);
    let document = documented();
    let directories: BTreeSet<String> =
        point_directories().filter(|directory| !directory.starts_with("global-")).collect();
    for directory in &directories {
        cluster.script(1, directory, DUMP, &dump_body(&cluster.dumps()));
    }
    cluster.ok("cluster init --hypervisor fake dev");
    cluster.ok("cluster modify --hooks-version 2");
    join_with_a_wrong_token(&cluster, 2);
    cluster.join(2);
    cluster.ok("node add node2");
    change_facts(&cluster, 2);
    let source = cluster.dir().join("hooks-source/lib");
    fs::create_dir_all(&source).unwrap();
    fs::write(source.join("x"), "x").unwrap();
    cluster.ok("hooks sync");
    let (mut dumps, mut seen) = (Vec::new(), BTreeSet::new());
    wait_for("all points to have run their scripts", || {
        let more = cluster.take_dumps();
        seen.extend(more.iter().map(|dump| dump.directory.clone()));
        dumps.extend(more);
        seen == directories
    });
    let mut found = BTreeSet::new();
    for Dump { directory, env, .. } in dumps {
        let names = env.keys().filter_map(|name| name.strip_prefix(VARIABLE_PREFIX)).map(str::to_owned);
        let differ = differences(&document.points[&directory], &[names.collect()], false);
        found.extend(differ.iter().map(|text| format!("{directory}: {text}")));
    }
    assert!(found.is_empty(), "{}", Vec::from_iter(found).join("\n"));
}
