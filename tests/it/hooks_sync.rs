//! The cluster's own hook set: what travels, when it is used, who may refuse it, and what becomes of nodes that were away.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::cluster::{Cluster, Output, wait_for};

/// Files in the large set.
const FILES: usize = 2_000;
/// How often a node is killed in the middle of a sync.
const KILLS: u32 = 20;
/// Files in the sets of which a node has the one or the other.
const KILL_FILES: usize = 60;

struct Sets {
    cluster: Cluster,
}

impl Sets {
    fn up(args: &[&str]) -> Self {
        Sets { cluster: Cluster::with(args) }
    }

    fn source(&self) -> PathBuf {
        self.cluster.dir().join("hooks-source")
    }

    fn put(&self, path: &str, content: &str) {
        let path = self.source().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn script(&self, path: &str, body: &str) {
        self.put(path, &format!("#!/bin/sh\n{body}\n"));
    }

    fn take(&self, path: &str) {
        fs::remove_file(self.source().join(path)).unwrap();
    }

    #[track_caller]
    fn sync(&self, args: &str) -> Value {
        report(&self.cluster.ok(&format!("hooks sync --json {args}")))
    }

    /// Refused for all, and nothing has changed anywhere.
    #[track_caller]
    fn refused(&self, words: &[&str]) {
        let before = self.used();
        self.cluster.gnt("hooks sync").exits(1).says(words);
        assert_eq!(self.used(), before);
    }

    /// The set that each node says it uses.
    fn used(&self) -> Vec<String> {
        let nodes = self.cluster.ok("node list --live --json -o name,hook_set").stdout;
        let nodes: Value = serde_json::from_str(&nodes).unwrap();
        nodes.as_array().unwrap().iter().map(|node| text(&node["hook_set"])).collect()
    }

    /// Where a node's runs look now.
    fn current(&self, node: u32) -> PathBuf {
        let hooks = self.cluster.node_dir(node).join("state/node/hooks");
        hooks.join(fs::read_link(hooks.join("current")).unwrap())
    }

    fn ran(&self, name: &str) -> BTreeSet<String> {
        let text = fs::read_to_string(self.cluster.dumps().join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[track_caller]
fn report(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// Of each node: files and bytes that travelled, and whether it uses another set now.
fn travelled(report: &Value) -> Vec<(u64, u64, bool)> {
    let node = |node: &Value| {
        let number = |key: &str| node[key].as_u64().unwrap();
        (number("files_sent"), number("bytes_sent"), node["switched"].as_bool().unwrap())
    };
    let mut nodes = report["nodes"].as_array().unwrap().clone();
    // They are told as they end.
    nodes.sort_by_key(|node| text(&node["node"]));
    nodes.iter().map(node).collect()
}

#[test]
fn of_two_thousand_files_only_the_changed_one_travels() {
    let sets = Sets::up(&["--nodes", "3"]);
    assert_eq!(sets.used(), ["none"; 3]);
    for number in 0..FILES {
        sets.put(&format!("lib/data/{number:04}"), &format!("file {number}\n"));
    }
    let all: u64 = (0..FILES).map(|number| u64::try_from(format!("file {number}\n").len()).unwrap()).sum();
    let count = u64::try_from(FILES).unwrap();
    let first = sets.sync("");
    assert_eq!(travelled(&first), [(count, all, true); 3]);
    let digest = text(&first["digest"]);
    assert_eq!(sets.used(), vec![digest[..12].to_owned(); 3]);
    assert_eq!(travelled(&sets.sync("")), [(0, 0, false); 3], "nothing has changed");

    sets.put("lib/data/0777", "another content\n");
    let second = sets.sync("");
    assert_eq!(travelled(&second), [(1, 16, true); 3]);
    eprintln!("{FILES} files with {all} bytes, one changed: 1 file with 16 bytes went to each of 3 nodes");
    for node in 1..=3 {
        let current = sets.current(node);
        assert_eq!(fs::read_to_string(current.join("lib/data/0777")).unwrap(), "another content\n");
        assert_eq!(fs::read_to_string(current.join("lib/data/0778")).unwrap(), "file 778\n");
    }
    assert_eq!(travelled(&sets.sync("--full"))[0].0, count, "all travel again where that is asked for");
    sets.cluster.ok("hooks diff").says(&["same"]);

    // What somebody changes on a node is seen, and made good by the next sync.
    fs::write(sets.current(2).join("lib/data/0001"), "mine").unwrap();
    sets.cluster.gnt("hooks diff").exits(1).says(&["node2", "lib/data/0001: another content"]);
    sets.cluster.gnt("cluster verify").exits(1).says(&["ENODEHOOKSET", "lib/data/0001"]);
    let repaired = travelled(&sets.sync(""));
    assert_eq!(repaired.iter().map(|node| node.2).collect::<Vec<_>>(), [false, true, false]);
    sets.cluster.ok("hooks diff");
}

#[test]
fn scripts_of_the_set_run_beside_the_nodes_own() {
    let sets = Sets::up(&["--nodes", "3"]);
    let cluster = &sets.cluster;
    let dumps = cluster.dumps().display().to_string();
    sets.put("lib/say", "say() { echo \"$GANETI_HOST_NAME $1\" >> \"$2\"; }\n");
    sets.script(
        "instance-add-pre.d/20-b",
        &format!(". \"${{0%/*}}/../lib/say\"; say \"$0\" {dumps}/argv0; say cluster {dumps}/who"),
    );
    sets.script("instance-add-pre.d/10-a", &format!("echo $GANETI_HOST_NAME a >> {dumps}/order"));
    fs::create_dir(sets.source().join("instance-add-post.d")).unwrap();
    symlink("../instance-add-pre.d/10-a", sets.source().join("instance-add-post.d/30-again")).unwrap();
    sets.sync("");
    cluster.script(
        2,
        "instance-add-pre.d",
        "15-own",
        &format!("echo $GANETI_HOST_NAME own >> {dumps}/order"),
    );
    cluster.script(2, "instance-add-pre.d", "20-b", &format!("echo node2 own >> {dumps}/who"));
    cluster.ok("instance add -t file -n node2 -s 1M -o none --no-start web1");
    let path = sets.current(1).join("instance-add-pre.d/20-b").display().to_string();
    assert_eq!(sets.ran("argv0"), [format!("node1 {path}")].into(), "X1: the entry's full path");
    assert_eq!(sets.ran("who"), ["node1 cluster".to_owned(), "node2 own".to_owned()].into());
    let order = fs::read_to_string(cluster.dumps().join("order")).unwrap();
    let of_node2: Vec<&str> = order.lines().filter_map(|line| line.strip_prefix("node2 ")).collect();
    assert_eq!(of_node2, ["a", "own", "a"], "merged by name, and the link runs in post");

    let listed: Value =
        serde_json::from_str(&cluster.ok("hooks list --json -o name,source,state node2").stdout).unwrap();
    let of = |name: &str| -> Vec<(String, String)> {
        let rows = listed.as_array().unwrap().iter().filter(|row| row["name"] == name);
        rows.map(|row| (text(&row["source"]), text(&row["state"]))).collect()
    };
    let pair = |source: &str, state: &str| (source.to_owned(), state.to_owned());
    assert_eq!(of("10-a"), [pair("cluster", "runs")]);
    assert_eq!(of("15-own"), [pair("node", "runs")]);
    assert_eq!(of("20-b"), [pair("node", "runs"), pair("cluster", "skipped")]);
    cluster.gnt("cluster verify").exits(1).says(&["node2", "ENODEHOOKS", "instance-add-pre.d/20-b"]);
    cluster.ok("hooks explain instance remove web1");
    cluster
        .ok("hooks explain instance add -t file -n node2 -s 1M -o none web2")
        .says(&["of the cluster's set"]);

    // A host that leaves keeps nothing of the cluster; one that is added has the set before scripts run on it.
    cluster.ok("instance remove -f web1");
    cluster.ok("node remove node3");
    let left = cluster.node_dir(3).join("state/node/hooks");
    wait_for("the set is gone", || !left.exists() && !left.with_file_name("hooks-left-0").exists());
    sets.script("node-add-post.d/10-seen", &format!("echo $GANETI_HOST_NAME >> {dumps}/added"));
    sets.sync("");
    cluster.join(3);
    cluster.ok("node add node3");
    let names = ["node1", "node2", "node3"].map(str::to_owned);
    assert_eq!(sets.ran("added"), names.into(), "its own addition was told to the new node too");

    // A master that syncs by itself makes up for what was edited while it did not run, and sees what comes later.
    cluster.devcluster(&["kill", "master"]).exits(0);
    let config = cluster.node_dir(1).join("masterd.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("hooks_on_change = true\n{text}")).unwrap();
    sets.script("node-modify-pre.d/10-meanwhile", "exit 0");
    cluster.devcluster(&["start", "master"]).exits(0);
    let has = |path: &str| sets.current(3).join(path).exists();
    wait_for("what was edited meanwhile is synced", || has("node-modify-pre.d/10-meanwhile"));
    sets.script("node-modify-pre.d/20-later", "exit 0");
    wait_for("what was edited later is synced", || has("node-modify-pre.d/20-later"));
}

#[test]
fn what_can_not_be_distributed_is_named_and_scripts_may_refuse() {
    let sets = Sets::up(&["--nodes", "3"]);
    let cluster = &sets.cluster;
    cluster.gnt("hooks sync").exits(1).says(&["hooks-source"]);
    sets.script("node-add-pre.d/10-x", "exit 0");
    sets.sync("");
    for (path, words) in [
        ("README", "README: "),
        ("node-add-pre.d/20-x.sh", "node-add-pre.d/20-x.sh: "),
        ("Node-pre.d/x", "Node-pre.d: "),
    ] {
        sets.put(path, "x");
        sets.refused(&[words, "can't be distributed"]);
        sets.take(path);
    }
    fs::remove_dir(sets.source().join("Node-pre.d")).unwrap();
    for target in ["/etc/passwd", "../../outside"] {
        symlink(target, sets.source().join("node-add-pre.d/30-link")).unwrap();
        sets.refused(&["node-add-pre.d/30-link", target]);
        sets.take("node-add-pre.d/30-link");
    }
    fs::create_dir_all(sets.source().join("lib")).unwrap();
    fs::File::create(sets.source().join("lib/large")).unwrap().set_len((64 << 20) + 1).unwrap();
    sets.refused(&["lib/large", "64 MiB"]);
    sets.take("lib/large");
    sets.put("node-add-pre.d/40-crlf", "#!/bin/sh\r\nexit 0\r\n");
    sets.refused(&["node-add-pre.d/40-crlf", "carriage-return"]);
    sets.take("node-add-pre.d/40-crlf");
    sets.put("node-add-pre.d/50-interpreter", "#!/nonexistent/perl\n");
    sets.refused(&["node-add-pre.d/50-interpreter", "no-interpreter", "no node gets it"]);
    sets.take("node-add-pre.d/50-interpreter");
    for directory in ["global-pre.d", "config-update-post.d", "hooks-sync-pre.d", "node-add-failed.d"] {
        let (crlf, no_execute) = (format!("{directory}/40-crlf"), format!("{directory}/50-no-execute"));
        sets.put(&crlf, "#!/bin/sh\r\nexit 0\r\n");
        sets.script(&no_execute, "exit 1");
        fs::set_permissions(sets.source().join(&no_execute), fs::Permissions::from_mode(0o644)).unwrap();
        sets.refused(&[&format!("{crlf}:1: [carriage-return]"), &format!("{no_execute}: [not-executable]")]);
        sets.take(&crlf);
        sets.take(&no_execute);
    }
    for store in ["node/hooks/sets", "node/hooks/lists", "master/hooks/lists"] {
        // The set in use, and of what was refused here at most the list of the last one.
        let left = fs::read_dir(cluster.node_dir(1).join("state").join(store)).unwrap().count();
        assert!(left <= if store == "node/hooks/lists" { 2 } else { 1 }, "{store}: {left}");
    }
    cluster.gnt("hooks sync --node node9").exits(1).says(&["there is no node node9"]);

    // A guard of a node's own keeps the set away from it, and one on the master's host from all.
    let guard = "[ ! -e \"$GANETI_HOOK_SET_PATH/lib/evil\" ] || { echo \"no evil after $GANETI_HOOK_SET_OLD\" >&2; exit 1; }";
    cluster.script(3, "hooks-sync-pre.d", "10-guard", guard);
    let old = text(&sets.sync("")["digest"]);
    sets.put("lib/evil", "x");
    let said = format!("no evil after {old}");
    cluster.gnt("hooks sync").exits(1).says(&["node3: refused", &said, "node2: uses it now"]);
    assert_eq!(sets.used()[2], old[..12]);
    cluster.gnt("hooks diff").exits(1).says(&["node3", "other", "not taken"]);
    cluster.script(1, "hooks-sync-pre.d", "10-guard", guard);
    sets.put("lib/evil", "y");
    sets.refused(&["no node gets it", "no evil after"]);
    cluster.unscript(1, "hooks-sync-pre.d", "10-guard");
    cluster.unscript(3, "hooks-sync-pre.d", "10-guard");
    // The set's own guard speaks of the next one.
    sets.take("lib/evil");
    sets.script("hooks-sync-pre.d/10-guard", guard);
    sets.sync("");
    sets.put("lib/evil", "z");
    sets.refused(&["no evil after"]);
    sets.take("lib/evil");

    // A node that is named has a set of its own until the next sync of all.
    sets.put("lib/trial", "1");
    assert_eq!(sets.sync("--node node2")["nodes"].as_array().unwrap().len(), 1);
    let used = sets.used();
    assert!(used[0] == used[2] && used[0] != used[1], "{used:?}");
    cluster.ok("hooks diff").says(&["named in a sync"]);
    sets.sync("");
    assert_eq!(sets.used(), vec![used[1].clone(); 3]);
}

#[test]
fn a_set_is_checked_as_the_clusters_version_of_the_interface_has_it() {
    let sets = Sets::up(&["--nodes", "2"]);
    sets.script("instance-shutdown-pre.d/10-guard", "exit 0");
    let warnings =
        |report: &Value| report["warnings"].as_array().unwrap().iter().map(text).collect::<Vec<_>>();
    let first = sets.cluster.ok("hooks sync --json");
    assert_eq!(warnings(&report(&first)), Vec::<String>::new());
    assert!(!first.stderr.contains("warning"), "{first}");
    sets.cluster.ok("cluster modify --hooks-version 2");
    // What was right before is dead now, and that is said by the master and by each node.
    sets.script("instance-shutdown-pre.d/20-guard", "exit 0");
    let dead = sets.cluster.ok("hooks sync");
    let dead_on = |whose: &str| format!("warning: {whose}instance-shutdown-pre.d: [unused-directory]");
    dead.says(&[&dead_on(""), &dead_on("node1: "), &dead_on("node2: "), "probably instance-stop-pre.d"]);
    sets.take("instance-shutdown-pre.d/10-guard");
    sets.take("instance-shutdown-pre.d/20-guard");
    sets.script("instance-stop-pre.d/10-guard", "set -u\necho \"$GANETI_INSTANCE_MEMORY\"");
    let right = sets.cluster.ok("hooks sync");
    assert!(!right.stderr.contains("warning"), "{right}");
    sets.put("instance-stop-pre.d/40-crlf", "#!/bin/sh\r\nexit 0\r\n");
    sets.refused(&["instance-stop-pre.d/40-crlf:1: [carriage-return]"]);
    sets.take("instance-stop-pre.d/40-crlf");
    sets.put("instance-migrate-pre.d/50-interpreter", "#!/nonexistent/perl\n");
    sets.refused(&["instance-migrate-pre.d/50-interpreter", "no-interpreter", "no node gets it"]);
}

#[test]
fn a_guard_of_the_set_that_can_not_be_executed_any_more_has_a_way_out() {
    let sets = Sets::up(&["--nodes", "2"]);
    let cluster = &sets.cluster;
    let interpreter = cluster.dir().join("interpreter");
    fs::copy("/bin/sh", &interpreter).unwrap();
    sets.put("hooks-sync-pre.d/10-check", &format!("#!{}\nexit 0\n", interpreter.display()));
    sets.put("lib/x", "x");
    sets.sync("");
    fs::remove_file(&interpreter).unwrap();
    sets.take("hooks-sync-pre.d/10-check");
    let way_out =
        "a script of the same name in the hooks-sync-pre.d of this node's own hooks is run in its place";
    sets.refused(&["10-check", way_out]);
    for node in [1, 2] {
        cluster.script(node, "hooks-sync-pre.d", "10-check", "exit 0");
    }
    let out = sets.sync("");
    assert_eq!(travelled(&out).iter().map(|node| node.2).collect::<Vec<_>>(), [true, true], "{out}");
    for node in [1, 2] {
        cluster.unscript(node, "hooks-sync-pre.d", "10-check");
    }
    sets.put("lib/later", "x");
    sets.sync("");
}

#[test]
fn a_node_that_was_away_and_a_new_master_have_the_set_that_was_synced_last() {
    let sets = Sets::up(&["--nodes", "3", "--masters", "2"]);
    let cluster = &sets.cluster;
    sets.script("node-add-pre.d/10-x", "exit 0");
    sets.sync("");
    cluster.devcluster(&["kill", "node3"]).exits(0);
    sets.script("node-add-pre.d/20-y", "exit 0");
    cluster.gnt("hooks sync").exits(1).says(&["node3: not reached", "node2: uses it now"]);
    // Edited, and not synced.
    sets.script("node-add-pre.d/30-z", "exit 0");
    cluster.devcluster(&["start", "node3"]).exits(0);
    let has = |name: &str| sets.current(3).join("node-add-pre.d").join(name).exists();
    wait_for("node3 has the set", || has("20-y"));
    assert!(!has("30-z"), "what was not synced does not leak out");

    cluster.gnt_at(2, "cluster master-failover -f").exits(0);
    cluster.gnt_at(2, "hooks diff").exits(0);
    cluster.devcluster(&["kill", "node3"]).exits(0);
    fs::remove_dir_all(cluster.node_dir(3).join("state/node/hooks")).unwrap();
    cluster.devcluster(&["start", "node3"]).exits(0);
    let hooks = cluster.node_dir(3).join("state/node/hooks/current");
    wait_for("the new master has brought the set", || hooks.join("node-add-pre.d/20-y").exists());
    assert!(!has("30-z"));
    cluster.gnt_at(2, "hooks sync").exits(0);
    wait_for("node3 has the newest set", || has("30-z"));

    // While somebody watches, a change is enough.
    let mut watching = cluster.gnt_command(&["hooks", "sync", "--on-change"]);
    watching.env("MUSTER_SOCKET", cluster.node_dir(2).join("run/master.sock"));
    let mut watching = watching.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watching.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("hook set "), "{line}");
    sets.script("node-add-pre.d/40-new", "exit 0");
    wait_for("the change was synced", || has("40-new"));
    watching.kill().unwrap();
    watching.wait().unwrap();
}

/// The letter that all files of a set have, and how many there are.
fn whole_set(current: &Path) -> (char, usize) {
    let mut letters = BTreeSet::new();
    let mut count = 0;
    for entry in fs::read_dir(current.join("lib")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        letters
            .insert(text.chars().next().unwrap_or_else(|| panic!("an empty file in {}", current.display())));
        count += 1;
    }
    assert_eq!(letters.len(), 1, "a mixture: {letters:?}");
    (letters.into_iter().next().unwrap(), count)
}

#[test]
fn a_node_killed_in_the_middle_of_a_sync_has_the_old_set_or_the_new() {
    let sets = Sets::up(&["--nodes", "2"]);
    let cluster = &sets.cluster;
    let fill = |letter: char| {
        for number in 0..KILL_FILES {
            sets.put(&format!("lib/{number}"), &format!("{letter}{number}"));
        }
    };
    fill('a');
    let begin = SystemTime::now();
    sets.sync("");
    let whole = begin.elapsed().unwrap();
    assert_eq!(whole_set(&sets.current(2)), ('a', KILL_FILES));
    let mut found = BTreeSet::new();
    for round in 0..KILLS {
        let letter = if round % 2 == 0 { 'b' } else { 'a' };
        fill(letter);
        let old = whole_set(&sets.current(2)).0;
        let running = cluster.begin("hooks sync");
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        std::thread::sleep(whole * (seed % 1000) / 1000);
        cluster.devcluster(&["kill", "node2"]).exits(0);
        let (now, count) = whole_set(&sets.current(2));
        assert!((now == old || now == letter) && count == KILL_FILES, "round {round}: {now}, {count} files");
        found.insert(now == letter);
        cluster.devcluster(&["start", "node2"]).exits(0);
        running.finish();
        wait_for("the node has the new set", || whole_set(&sets.current(2)).0 == letter);
    }
    cluster.ok("hooks diff");
    assert!(!found.is_empty());
}
