//! `gnt-hooks explain`, `init` and `lint`: what an explanation promises is what scripts get, nothing is changed by asking, and a
//! directory that `init` made has nothing that surprises.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use muster_core::{
    hooks::HooksVersion,
    ops::{hook_directories, used_directories},
};
use serde_json::{Value, json};

use crate::cluster::{Cluster, wait_for};
use crate::dumps::{DUMP, Dump};

/// Stands for the job's number.
const JOB_ID: &str = "<the job's number>";

/// Stands for what only the job knows, when it is done.
const AFTER: &str = "<known after the operation>";

/// One script's environment by what `explain` says: phase, node, variables.
type Promise = (String, String, BTreeMap<String, String>);

/// Explains an operation; neither the cluster nor its jobs change by it, and no script runs.
#[track_caller]
fn explain_at(cluster: &Cluster, node: u32, line: &str) -> Value {
    let before = (cluster.snapshot(), cluster.jobs());
    let output = cluster.gnt_at(node, &format!("hooks explain --json {line}")).exits(0);
    assert_eq!((cluster.snapshot(), cluster.jobs()), before, "an explanation changed something");
    assert_eq!(cluster.take_dumps(), [], "an explanation ran a script");
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

#[track_caller]
fn explain(cluster: &Cluster, line: &str) -> Value {
    explain_at(cluster, 1, line)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn variables(env: &Value) -> BTreeMap<String, String> {
    let object = env.as_object().unwrap_or_else(|| panic!("{env} is no object"));
    object.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// The environment of the dumping script on each node that was reached.
fn promises(explained: &Value) -> Vec<Promise> {
    let mut all = Vec::new();
    for phase in explained["phases"].as_array().unwrap() {
        for node in phase["nodes"].as_array().unwrap() {
            for script in node["scripts"].as_array().unwrap() {
                assert_eq!(script["name"], DUMP);
                all.push((text(&phase["directory"]), text(&node["node"]), variables(&script["env"])));
            }
        }
    }
    all.sort();
    all
}

/// What scripts got, the job's number replaced by what stands for it.
#[track_caller]
fn kept(dumps: Vec<Dump>, job: u64) -> Vec<Promise> {
    let mut all = Vec::new();
    for Dump { directory, node, mut env, .. } in dumps {
        let id = env.insert("GANETI_JOB_ID".to_owned(), JOB_ID.to_owned());
        assert_eq!(id, Some(job.to_string()));
        let is_global = directory == "global-post.d";
        let is_told = is_global || env["GANETI_HOOKS_VERSION"] == "2" && directory.ends_with("-post.d");
        if is_global {
            assert_eq!(env.insert("GANETI_POST_STATUS".to_owned(), AFTER.to_owned()).unwrap(), "success");
        }
        for name in ["JOB_STARTED", "JOB_ENDED", "POST_NODES_COUNT", "POST_NODES_PATH"] {
            let known = env.get_mut(&format!("GANETI_{name}"));
            assert_eq!(known.is_some(), is_told, "{name} in {directory}");
            if let Some(value) = known {
                AFTER.clone_into(value);
            }
        }
        all.push((directory, node, env));
    }
    all.sort();
    all
}

/// Explains an operation, runs it, and compares.
#[track_caller]
fn check(cluster: &Cluster, line: &str, scripts: usize) -> Value {
    let line = format!("{line} --reason ticket-4711");
    let explained = explain(cluster, &line);
    cluster.ok(&line);
    let kept = kept(cluster.take_dumps(), cluster.last_job().id);
    assert_eq!(kept.len(), scripts, "{line}");
    assert_eq!(promises(&explained), kept, "{line}");
    explained
}

#[test]
fn e4_scripts_get_what_was_explained_for_every_operation_on_instances() {
    let cluster = Cluster::up(3);
    let prefixes: Vec<String> = used_directories(HooksVersion::V1)
        .filter_map(|name| name.strip_suffix("-pre.d").map(str::to_owned))
        .collect();
    assert_eq!(prefixes.len(), 14);
    cluster.install_dumps(3, &prefixes.iter().map(String::as_str).collect::<Vec<_>>());
    let add = "instance add -t mirror -n node2:node3 -s 64M -m 64M -p 1 -i 192.0.2.7 -o none web1";
    let explained = check(&cluster, add, 6);
    assert_eq!((&explained["operation"], &explained["target"]), (&json!("OP_INSTANCE_ADD"), &json!("web1")));
    assert_eq!(explained["placeholders"], json!(["GANETI_JOB_ID"]));
    let env = &explained["phases"][0]["nodes"][0]["scripts"][0]["env"];
    assert_eq!((&env["GANETI_JOB_ID"], &env["GANETI_DISK_SIZE"]), (&json!(JOB_ID), &json!("64")));
    check(&cluster, "instance failover -f web1", 6);
    check(&cluster, "instance modify -m 96M -i none web1", 6);
    check(&cluster, "instance shutdown web1", 6);
    check(&cluster, "instance start --force web1", 6);
    check(&cluster, "instance replace-disks web1", 6);
    check(&cluster, "backup export -n node1 web1", 6);
    check(&cluster, "backup import -t file -n node2 --src-node node1 --src-dir web1 web9", 4);
    let disk_id = cluster.instance("web1").disks[0].mirrors[0].disk_id;
    check(&cluster, &format!("instance remove-mirror -b sda -p {disk_id} web1"), 6);
    check(&cluster, "instance add-mirror -b sda -n node1 web1", 4);
    check(&cluster, "instance remove -f web1", 2);

    // A dry run has pre scripts only, and says so to them.
    let line = "instance stop web9 --dry-run";
    let explained = explain(&cluster, line);
    cluster.ok(line);
    let kept = kept(cluster.take_dumps(), cluster.last_job().id);
    let mut promised = promises(&explained);
    promised.retain(|(directory, ..)| directory.ends_with("-pre.d"));
    assert_eq!(promised, kept);
    assert_eq!(promised[0].2["GANETI_DRY_RUN"], "True");
}

#[test]
fn e4_scripts_get_what_was_explained_when_nodes_come_and_go() {
    let cluster = Cluster::bare(3);
    cluster.install_dumps(3, &["cluster-init", "node-add", "node-remove"]);

    // Without a cluster: the local node is asked in the name of the one that would be.
    let output = cluster.ok("hooks explain --json cluster init dev --hypervisor fake");
    let explained: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(cluster.take_dumps(), []);
    cluster.gnt("cluster info").exits(1);
    assert_eq!(cluster.files().len(), 0, "nothing is on disk");
    cluster.ok("cluster init dev --hypervisor fake");
    assert_eq!(promises(&explained), kept(cluster.take_dumps(), cluster.last_job().id));
    cluster.gnt("hooks explain cluster init dev").exits(1).says(&["master of cluster dev already"]);

    cluster.gnt("hooks explain node add node2").exits(1).says(&["refused: no host is pending"]);
    cluster.join(2);
    check_node_add(&cluster, "node2", 1);
    cluster.join(3);
    check_node_add(&cluster, "node3", 2);
    check(&cluster, "node remove node3", 4);
}

/// As [`check`], but the new node can't be asked before it is in the cluster: what only it knows is not promised.
#[track_caller]
fn check_node_add(cluster: &Cluster, name: &str, existing: usize) {
    let line = format!("node add {name}");
    let explained = explain(cluster, &line);
    let post = explained["phases"][1]["nodes"].as_array().unwrap();
    let new = post.iter().find(|node| node["node"] == name).unwrap();
    assert!(text(&new["not_reached"]).contains("not in the cluster yet"), "{new}");
    cluster.ok(&line);
    let mut kept = kept(cluster.take_dumps(), cluster.last_job().id);
    assert_eq!(kept.len(), 2 * existing + 1);
    let on_new = kept.iter().position(|(_, node, _)| node == name).unwrap();
    let (_, _, mut env) = kept.remove(on_new);
    for of_the_node in ["GANETI_DATA_DIR", "GANETI_HOOK_KILL_TIMEOUT_S"] {
        env.remove(of_the_node).unwrap();
    }
    assert_eq!(variables(&new["env"]), env);
    assert_eq!(promises(&explained), kept);
}

#[test]
fn t2_a_master_failover_is_explained_on_the_master_and_names_the_new_one() {
    let cluster = Cluster::with(&["--nodes", "3", "--masters", "2"]);
    cluster.install_dumps(3, &["master-failover"]);
    cluster.gnt("hooks explain cluster master-failover").exits(1).says(&["node1 is the master already"]);
    cluster
        .gnt("hooks explain --new-master node3 cluster master-failover")
        .exits(1)
        .says(&["no master candidate"]);
    cluster.gnt("hooks explain --new-master node2 instance list").exits(2);
    cluster
        .gnt("hooks explain --new-master node2 node remove node3")
        .exits(2)
        .says(&["only a master failover"]);
    let explained = explain(&cluster, "--new-master node2 cluster master-failover");
    cluster.gnt_at(2, "cluster master-failover -f").exits(0);
    let dumps = cluster.take_dumps();
    let job = cluster.gnt_at(2, "job list --json").exits(0);
    let jobs: Value = serde_json::from_str(&job.stdout).unwrap();
    let id = jobs.as_array().unwrap().iter().filter_map(|job| job["id"].as_u64()).max().unwrap();
    let promised = promises(&explained);
    assert_eq!(promised.len(), 4);
    assert_eq!(promised, kept(dumps, id));
    cluster.gnt("hooks explain node remove node3").exits(3).says(&["node2"]);
    explain_retired(&cluster);
}

/// The new master answers.
#[track_caller]
fn explain_retired(cluster: &Cluster) {
    let output = cluster.gnt_at(2, "hooks explain --json node remove node3").exits(0);
    let explained: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(explained["phases"][0]["nodes"][0]["env"]["GANETI_MASTER"], "node2");
}

#[test]
fn people_see_order_skips_limits_and_silent_nodes() {
    let cluster = Cluster::up(3);
    let dir = "instance-add-pre.d";
    cluster.script(1, dir, "20-second", "# HOOK_KILL_TIMEOUT = 90 s\nexit 0");
    cluster.script(1, dir, "10-first", "exit 1");
    cluster.script(1, dir, "30-third.sh", "exit 1");
    cluster.devcluster(&["kill", "node2"]).exits(0);
    let before = cluster.jobs();
    let add = "instance add -t file -n node2 -s 64M -o none web1";
    let output = cluster.ok(&format!("hooks explain {add}"));
    let first = output.stdout.find("runs     10-first  GANETI_HOOK_KILL_TIMEOUT_S=300").unwrap();
    let second = output.stdout.find("runs     20-second  GANETI_HOOK_KILL_TIMEOUT_S=90").unwrap();
    assert!(first < second, "{output}");
    output.says(&[
        "pre: instance-add-pre.d on node1, node2",
        "skipped  30-third.sh  bad name",
        "node2: not reached: ",
        "GANETI_INSTANCE_NAME=web1",
        "GANETI_HOOKS_PHASE=POST",
        "GANETI_JOB_ID=<the job's number>",
    ]);
    cluster.gnt("hooks explain instance start web9").exits(1).says(&["refused: there is no instance web9"]);
    cluster
        .ok("hooks explain cluster modify --hook-timeout allow")
        .says(&["has no hooks of its own in interface version 1", "nothing would run"]);
    cluster.ok("cluster modify --hook-timeout-max 60s");
    cluster.ok(&format!("hooks explain {add}")).says(&["20-second  GANETI_HOOK_KILL_TIMEOUT_S=60"]);
    assert_eq!(cluster.jobs().len(), before.len() + 1, "the change of the parameter alone is a job");
    // A script without limits of its own has the directory's, and else the cluster's.
    cluster.ok("cluster modify --hook-kill-limit 40s");
    cluster.ok(&format!("hooks explain {add}")).says(&["10-first  GANETI_HOOK_KILL_TIMEOUT_S=40"]);
    cluster.ok("hooks policy set instance-add-pre.d kill_limit=7s");
    let limits = ["10-first  GANETI_HOOK_KILL_TIMEOUT_S=7", "20-second  GANETI_HOOK_KILL_TIMEOUT_S=60"];
    cluster.ok(&format!("hooks explain {add}")).says(&limits);
    cluster.ok("hooks list --no-headers --separator=| -o name,kill_after node1").says(&["10-first|7.000"]);
    cluster.ok("hooks explain hooks policy reset instance-add-pre.d").says(&["OP_CLUSTER_MODIFY"]);
}

#[test]
fn global_scripts_are_explained_with_every_operation() {
    let cluster = Cluster::up(2);
    cluster.install_dumps(2, &["global"]);
    // Without hooks of its own in version 1.
    let explained = check(&cluster, "group add rack2", 2);
    assert_eq!((&explained["prefix"], &explained["hooks_version"]), (&Value::Null, &json!(1)));
    assert_eq!(explained["placeholders"], json!(["GANETI_JOB_ID"]));
    cluster.ok("hooks explain group add rack3").says(&["has no hooks of its own", "global-pre.d on node1"]);
    cluster.gnt("hooks explain group add rack2").exits(1).says(&["refused: there is a group rack2"]);
    // Two before and after it, on the master alone; and with hooks of its own that the master's node takes no part in.
    check(&cluster, "instance add -t diskless -n node2 -o none web1", 2);
    cluster.ok("cluster modify --hooks-version 2");
    cluster.ok("group assign-nodes rack2 node2");
    cluster.ok("network add --network 198.51.100.0/24 lan");
    cluster.take_dumps();
    cluster.install_dumps(2, &["network-connect"]);
    let explained = check(&cluster, "network connect -N mode=bridged,link=br0 lan rack2", 4);
    let directories = |phase: &Value| (text(&phase["directory"]), text(&phase["nodes"][0]["node"]));
    let directories: Vec<_> = explained["phases"].as_array().unwrap().iter().map(directories).collect();
    let expected = [
        ("global-pre.d", "node1"),
        ("network-connect-pre.d", "node2"),
        ("network-connect-post.d", "node2"),
        ("global-post.d", "node1"),
    ];
    assert_eq!(directories, expected.map(|(directory, node)| (directory.to_owned(), node.to_owned())));
}

#[test]
fn e4_scripts_of_version_2_get_what_was_explained() {
    let cluster = Cluster::up(3);
    cluster.ok("cluster modify --hooks-version 2");
    let prefixes: Vec<String> = used_directories(HooksVersion::V2)
        .filter_map(|name| name.strip_suffix("-post.d").map(str::to_owned))
        .collect();
    cluster.install_dumps(3, &prefixes.iter().map(String::as_str).collect::<Vec<_>>());
    let add = "instance add -t mirror -n node2:node3 -s 64M -m 64M -o none --tags prod,site:north web1";
    let explained = check_drawn(&cluster, add);
    assert_eq!(explained["hooks_version"], 2);
    let env = &explained["phases"][0]["nodes"][0]["scripts"][0]["env"];
    assert_eq!(env["GANETI_INSTANCE_TAGS"], "prod site:north");
    check(&cluster, "instance modify -m 96M web1", 6);
    check(&cluster, "instance failover -f web1", 6);
    check(&cluster, "instance stop web1", 6);
    check(&cluster, "node modify --drained yes node3", 4);
    check(&cluster, "cluster rename -f prod", 2);
}

/// As [`check`], but what is drawn at submission is not compared, only that it is promised as drawn.
#[track_caller]
fn check_drawn(cluster: &Cluster, line: &str) -> Value {
    const DRAWN: &str = "<drawn at submission>";
    let explained = explain(cluster, line);
    cluster.ok(line);
    let mut kept = kept(cluster.take_dumps(), cluster.last_job().id);
    let promised = promises(&explained);
    assert_eq!(promised.len(), kept.len(), "{line}");
    let mut drawn = 0;
    for ((.., promised), (.., kept)) in promised.iter().zip(&mut kept) {
        for (name, value) in promised.iter().filter(|(_, value)| *value == DRAWN) {
            drawn += 1;
            assert_ne!(kept.insert(name.clone(), value.clone()), None, "{name}");
        }
    }
    assert!(drawn > 0, "an identity is drawn");
    assert_eq!(promised, kept, "{line}");
    explained
}

#[test]
fn a_reader_may_ask() {
    let cluster = Cluster::up(1);
    let certs = cluster.dir().join("certs");
    fs::create_dir(&certs).unwrap();
    cluster.ok(&format!("cluster client-cert sign --role reader --out {} eye", certs.display()));
    let line = "hooks explain --json instance add -t diskless -n node1 -o none web1";
    let mut command = cluster.gnt_command(&line.split_whitespace().collect::<Vec<_>>());
    let master = format!("{}:1810", cluster.address(1));
    command.env("MUSTER_MASTER", master).env("MUSTER_CERT", certs.join("eye.pem"));
    command.env("MUSTER_KEY", certs.join("eye.key")).env("MUSTER_CA", certs.join("ca.pem"));
    let output = crate::cluster::run(command).exits(0);
    let explained: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(explained["phases"][0]["nodes"][0]["env"]["GANETI_JOB_USER"], "eye");
}

#[test]
fn a_node_without_a_master_lints_as_the_cluster_has_it() {
    let cluster = Cluster::up(2);
    let config = cluster.node_dir(2).join("noded.toml").display().to_string();
    let file = cluster.node_dir(2).join("state/data/ssconf_hooks_version");
    let says = |version: &str| fs::read_to_string(&file).is_ok_and(|text| text == format!("{version}\n"));
    cluster.script(2, "instance-stop-pre.d", "10-x", "exit 0");
    wait_for("the node was told of version 1", || says("1"));
    hooks(&["lint", "--config", &config]).exits(1).says(&[
        "version 1 of the hook interface",
        "ssconf_hooks_version",
        "probably instance-shutdown-pre.d",
    ]);
    cluster.ok("cluster modify --hooks-version 2");
    wait_for("the node was told of version 2", || says("2"));
    let linted = hooks(&["lint", "--config", &config]);
    assert!(linted.stderr.contains("version 2 of the hook interface"), "{linted}");
    assert!(!linted.stdout.contains("unused-directory"), "{linted}");
    let dir = cluster.dir().join("made").display().to_string();
    hooks(&["init", "--config", &config, "--dir", &dir]).exits(0).says(&["version 2 of the hook interface"]);
    assert!(Path::new(&dir).join("instance-stop-pre.d/README.md").exists());
    // The master says it itself; a host that knows nothing says so.
    let asked = cluster.gnt(&format!("hooks lint --config {config}"));
    assert!(asked.stderr.contains("version 2 of the hook interface: the cluster's\n"), "{asked}");
    lint(Path::new(&dir)).says(&["version 1 of the hook interface: no master could be asked"]);
}

/// `gnt-hooks` without a master.
fn hooks(args: &[&str]) -> crate::cluster::Output {
    let program = crate::cluster::devcluster_program().with_file_name("gnt");
    let mut command = std::process::Command::new(program);
    command.arg("hooks").args(args).env("MUSTER_SOCKET", "/nonexistent/master.sock").env_remove("RUST_LOG");
    crate::cluster::run(command)
}

fn lint(dir: &Path) -> crate::cluster::Output {
    hooks(&["lint", dir.to_str().unwrap()])
}

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_init_makes_is_clean_also_when_its_examples_are_put_to_use() {
    let temp = tempfile::tempdir().unwrap();
    let config = temp.path().join("noded.toml");
    let dir = temp.path().join("hooks");
    fs::write(&config, format!("hooks_dir = {dir:?}\nstate_dir = \"/nonexistent\"\n")).unwrap();
    let config = config.to_str().unwrap();
    hooks(&["lint", "--config", config]).exits(2).says(&["gnt-hooks init"]);
    hooks(&["init", "--config", config]).exits(0).says(&["instance-add-pre.d/README.md", "148 things made"]);
    hooks(&["lint", "--config", config]).exits(0).says(&["nothing found in 49 directories"]);
    for name in hook_directories(HooksVersion::V1) {
        let example = dir.join(&name).join("10-example.disabled");
        fs::rename(&example, dir.join(&name).join("10-example")).unwrap();
        assert!(dir.join(&name).join("README.md").exists());
    }
    lint(&dir).exits(0).says(&["nothing found in 49 directories with 98 entries"]);
    let again = hooks(&["init", "--dir", dir.to_str().unwrap(), "--json"]).exits(0);
    let made: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(made["made"].as_array().unwrap().len(), 49, "only the examples were gone");
    assert_eq!(made["kept"].as_array().unwrap().len(), 98);
}

#[test]
fn examples_of_init_allow_and_run_in_a_cluster() {
    let cluster = Cluster::up(1);
    let dir = cluster.node_dir(1).join("hooks");
    hooks(&["init", "--dir", dir.to_str().unwrap()]).exits(0);
    for name in used_directories(HooksVersion::V1) {
        let example = dir.join(&name).join("10-example.disabled");
        fs::rename(&example, dir.join(&name).join("10-example")).unwrap();
    }
    cluster.ok("instance add -t diskless -n node1 -o none web1");
    let job = cluster.last_job();
    for reports in [&job.pre, &job.post] {
        let result = reports[0].result.as_ref().unwrap();
        assert_eq!(result.scripts.len(), 1, "{result:?}");
        let said = String::from_utf8_lossy(&result.scripts[0].stdout.as_ref().unwrap().head).into_owned();
        assert_eq!(said, format!("OP_INSTANCE_ADD of web1, job {}, seen on node1\n", job.id));
        let is_of_init = |name: &str| name.ends_with("README.md") || name.ends_with("10-example.disabled");
        assert!(result.skipped.iter().all(|entry| is_of_init(&entry.name)), "{result:?}");
        assert!(result.skipped.iter().any(|entry| entry.name == "README.md"), "the README is skipped");
    }
    cluster.ok("instance remove -f web1");
    cluster.ok("hooks list --json").does_not_say("unused");
}

#[test]
fn the_example_hooks_of_this_repository_are_clean() {
    let temp = tempfile::tempdir().unwrap();
    fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/hooks/install.sh");
    for version in ["1", "2"] {
        let hooks_dir = temp.path().join(version);
        let mut command = std::process::Command::new(&install);
        command.arg(&hooks_dir).arg(version);
        crate::cluster::run(command).exits(0);
        let args = ["lint", "--hooks-version", version, hooks_dir.to_str().unwrap()];
        hooks(&args).exits(0).says(&["nothing found"]);
    }
}

fn scripts_of_a_point(dir: &Path) {
    script(&dir.join("30-dos"), "#!/bin/sh\r\n");
    script(&dir.join("31-other"), "#!/bin/sh\nset -u\necho \"$GANETI_NODE_NAMES\"\n");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn lint_finds_what_surprises() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("hooks");
    let at = |name: &str| dir.join("instance-start-pre.d").join(name);
    script(&at("10-check.sh"), "#!/bin/sh\n");
    script(&at("11-mode"), "#!/bin/sh\n");
    fs::set_permissions(at("11-mode"), fs::Permissions::from_mode(0o644)).unwrap();
    script(&at("12-dos"), "#!/bin/sh\r\necho\r\n");
    script(&at("13-gone"), "#!/opt/none/python\n");
    script(&at("14-env"), "#!/usr/bin/env no-such-interpreter\n");
    script(&at("15-other"), "#!/bin/sh\n\necho \"$GANETI_NODE_NAME\"\n");
    script(&at("16-unset"), "#!/bin/sh\nset -eu\n[ \"$GANETI_FORCE\" = True ]\n");
    script(&at("17-python"), "#!/bin/python3\nimport os\nprint(os.environ['GANETI_NIC_COUNT'])\n");
    fs::create_dir(at("18-dir")).unwrap();
    symlink("/bin/true", at("19-outside")).unwrap();
    symlink("nowhere", at("20-dangling")).unwrap();
    script(&at("21-open"), "#!/bin/sh\n");
    fs::set_permissions(at("21-open"), fs::Permissions::from_mode(0o777)).unwrap();
    script(
        &at("22-good"),
        "#!/bin/sh\nset -eu\n[ \"${GANETI_FORCE-}\" = True ] || echo \"$GANETI_INSTANCE_NAME\"\n",
    );
    script(&at("23-limit"), "#!/bin/sh\n# HOOK_KILL_TIMEOUT = soon\n");
    script(&dir.join("instance-stop-pre.d/10-x"), "#!/bin/sh\n");
    for point in ["config-update-post.d", "global-pre.d", "hooks-sync-pre.d"] {
        scripts_of_a_point(&dir.join(point));
    }
    for path in [dir.clone(), dir.join("instance-start-pre.d"), dir.join("instance-stop-pre.d")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = hooks(&["lint", "--json", dir.to_str().unwrap()]).exits(1);
    let findings: Value = serde_json::from_str(&output.stdout).unwrap();
    let mut found: Vec<(String, String, Option<u64>)> = Vec::new();
    for finding in findings.as_array().unwrap() {
        let path = text(&finding["path"]);
        let name = Path::new(&path).file_name().unwrap().to_str().unwrap().to_owned();
        if name == "17-python" && finding["rule"] == "no-interpreter" {
            // Not every host that runs this test has it.
            continue;
        }
        found.push((name, text(&finding["rule"]), finding["line"].as_u64()));
        assert!(!text(&finding["surprise"]).is_empty() && !text(&finding["right"]).is_empty(), "{finding}");
    }
    let of_point = [("30-dos", "carriage-return", Some(1)), ("31-other", "unknown-variable", Some(3))];
    let right = [
        ("10-check.sh", "bad-name", None),
        ("11-mode", "not-executable", None),
        ("12-dos", "carriage-return", Some(1)),
        ("13-gone", "no-interpreter", Some(1)),
        ("14-env", "no-interpreter", Some(1)),
        ("15-other", "unknown-variable", Some(3)),
        ("16-unset", "maybe-unset", Some(3)),
        ("17-python", "unknown-variable", Some(3)),
        ("18-dir", "not-a-file", None),
        ("19-outside", "link-outside", None),
        ("20-dangling", "dangling-link", None),
        ("21-open", "writable", None),
        ("23-limit", "time-limit", None),
        ("instance-stop-pre.d", "unused-directory", None),
    ];
    let right = [&of_point[..], &of_point, &of_point, &right].concat();
    let right = right.iter().map(|(name, rule, line)| ((*name).to_owned(), (*rule).to_owned(), *line));
    assert_eq!(found, right.collect::<Vec<_>>());
    lint(&dir).exits(1).says(&["15-other:3: [unknown-variable]", "right: probably instance-shutdown-pre.d"]);
    let owner = ["lint", dir.to_str().unwrap(), "--daemon-user", "4000000000"];
    let is_root = fs::metadata(&dir).map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0;
    let output = hooks(&owner).exits(1);
    assert_eq!(output.stdout.contains("[owner]"), !is_root, "{output}");
    lint(Path::new("/nonexistent/hooks")).exits(2).says(&["/nonexistent/hooks"]);
    lint(&at("22-good")).exits(2).says(&["no directory"]);
}
