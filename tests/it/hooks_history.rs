//! `gnt-hooks run` and `gnt-hooks history`, the lines on each job's time in the master's log, and the files on the last job:
//! what scripts did is found again, and one of them can be run again as it was.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::cluster::{Cluster, run, wait_for};
use crate::dumps::{DUMP, Dump, dump_body};

const START_PRE: &str = "instance-start-pre.d";
const START_POST: &str = "instance-start-post.d";
const START_FAILED: &str = "instance-start-failed.d";

/// Rows of the history, each as job, node, directory and script, and outcome.
#[track_caller]
fn rows(cluster: &Cluster, flags: &[&str]) -> Vec<(u64, String, String, String)> {
    let args = [&["hooks", "history", "--json"], flags].concat();
    let output = run(cluster.gnt_command(&args)).exits(0);
    let rows: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"));
    let text = |row: &Value, name: &str| row[name].as_str().unwrap_or("-").to_owned();
    let row = |row: &Value| {
        let script = format!("{}/{}", text(row, "directory"), text(row, "script"));
        (row["job"].as_u64().unwrap(), text(row, "node"), script, text(row, "outcome"))
    };
    rows.as_array().unwrap().iter().map(row).collect()
}

fn row(job: u64, node: &str, script: &str, outcome: &str) -> (u64, String, String, String) {
    (job, node.to_owned(), script.to_owned(), outcome.to_owned())
}

/// The one dump of a directory on a node.
#[track_caller]
fn dump(dumps: &[Dump], node: &str, directory: &str) -> BTreeMap<String, String> {
    let found: Vec<&Dump> =
        dumps.iter().filter(|dump| dump.node == node && dump.directory == directory).collect();
    assert_eq!(found.len(), 1, "{node} {directory}: {dumps:?}");
    found[0].env.clone()
}

/// Runs the dumping script of a directory again: the environment is the one before, but for these variables.
#[track_caller]
fn again(
    cluster: &Cluster,
    node: &str,
    directory: &str,
    job: u64,
    before: &BTreeMap<String, String>,
    other: &[&str],
) {
    cluster.ok(&format!("hooks run {node} {directory}/{DUMP} --from-job {job}")).says(&["exit code 0"]);
    let mut env = dump(&cluster.take_dumps(), node, directory);
    for name in other {
        let (now, before) = (&env[*name], &before[*name]);
        assert_ne!(now, before, "{name}");
        env.insert((*name).to_owned(), before.clone());
    }
    assert_eq!(env, *before, "{node} {directory}");
}

#[test]
fn what_scripts_did_is_listed_and_one_is_run_again() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t file -n node2 -s 16M -m 32M -o none --no-start web1");
    let added = cluster.last_job().id;
    for node in 1..=3 {
        for directory in [START_PRE, START_POST, START_FAILED] {
            cluster.script(node, directory, DUMP, &dump_body(&cluster.dumps()));
        }
    }
    cluster.script(2, START_PRE, "10-no", "echo not today\nexit 3");
    fs::write(cluster.node_dir(2).join("hooks").join(START_PRE).join("20-text"), "a text\n").unwrap();

    cluster.gnt("instance start web1").exits(1).says(&["not today"]);
    let denied = cluster.last_job().id;
    let denied_dumps = cluster.take_dumps();
    cluster.unscript(2, START_PRE, "10-no");
    cluster.ok("instance start web1");
    let started = cluster.last_job().id;
    let started_dumps = cluster.take_dumps();
    cluster.script(2, START_PRE, "10-no", "echo not today\nexit 3");

    check_history(&cluster, denied, started);
    check_archived(&cluster, denied);
    let pre = dump(&denied_dumps, "node2", START_PRE);
    again(&cluster, "node2", START_PRE, denied, &pre, &[]);
    let failed = dump(&denied_dumps, "node2", START_FAILED);
    again(
        &cluster,
        "node2",
        START_FAILED,
        denied,
        &failed,
        &["GANETI_ERROR_MESSAGE_PATH", "GANETI_POST_NODES_PATH"],
    );
    let post = dump(&started_dumps, "node1", START_POST);
    again(&cluster, "node1", START_POST, started, &post, &[]);
    let output = cluster.gnt(&format!("hooks run node2 {START_PRE}/10-no --from-job {started}")).exits(1);
    output.says(&["exit code 3", "stdout | not today", "it would have denied the operation"]);

    // A node that the job did not ask.
    let line = format!("hooks run node3 {START_PRE}/{DUMP} --from-job {started}");
    cluster.ok(&line).says(&["node3 is none of the nodes"]);
    let env = dump(&cluster.take_dumps(), "node3", START_PRE);
    let seen =
        ["GANETI_HOST_NAME", "GANETI_INSTANCE_PRIMARY", "GANETI_JOB_ID"].map(|name| env[name].as_str());
    assert_eq!(seen, ["node3", "node2", &started.to_string()]);

    check_wrong(&cluster, denied, started);
    check_log(&cluster, denied, started);
    check_files(&cluster, added, denied, started);
    check_version_2(&cluster);
}

/// What post scripts are told of the job is there again too, in a file of its own.
fn check_version_2(cluster: &Cluster) {
    cluster.ok("cluster modify --hooks-version 2");
    cluster.unscript(2, START_PRE, "10-no");
    cluster.ok("instance shutdown web1");
    cluster.ok("instance start web1");
    let post = dump(&cluster.take_dumps(), "node1", START_POST);
    assert_eq!(post["GANETI_POST_NODES_COUNT"], "1");
    again(cluster, "node1", START_POST, cluster.last_job().id, &post, &["GANETI_POST_NODES_PATH"]);
}

fn check_history(cluster: &Cluster, denied: u64, started: u64) {
    let no = row(denied, "node2", "instance-start-pre.d/10-no", "failed");
    assert_eq!(rows(cluster, &["--failed"]), std::slice::from_ref(&no));
    assert_eq!(rows(cluster, &["--failed", "--node", "node1"]), []);
    assert_eq!(rows(cluster, &["--script", "10-*"]), std::slice::from_ref(&no));
    let pre = rows(cluster, &["--script", "instance-start-pre.d/*"]);
    assert_eq!(pre.len(), 7, "{pre:?}");
    assert!(pre[..3].iter().all(|row| row.0 == started), "the newest job first: {pre:?}");
    assert!(pre[3..].iter().all(|row| row.0 == denied), "{pre:?}");
    assert!(pre.contains(&row(denied, "node2", "instance-start-pre.d/20-text", "skipped")), "{pre:?}");
    assert!(pre.contains(&row(denied, "node1", "instance-start-pre.d/00-dump", "ok")), "{pre:?}");
    let after = rows(cluster, &["--node", "node1", "--script", "instance-start-*/00-dump"]);
    let expected = [
        row(started, "node1", "instance-start-post.d/00-dump", "ok"),
        row(started, "node1", "instance-start-pre.d/00-dump", "ok"),
        row(denied, "node1", "instance-start-failed.d/00-dump", "ok"),
        row(denied, "node1", "instance-start-pre.d/00-dump", "ok"),
    ];
    assert_eq!(after, expected);
    assert_eq!(rows(cluster, &["--since", "1h"]), rows(cluster, &[]));
    assert_eq!(rows(cluster, &["--since", "2999-01-01T00:00:00Z"]), []);
    let all = rows(cluster, &[]);
    assert_eq!(rows(cluster, &["--limit", "2"]), all[..2]);
    cluster.ok("hooks history --limit 2").says(&["note: the newest 2 are shown; there are more"]);
    let chosen = cluster.ok("hooks history --failed -o job,script,outcome,detail --no-headers --separator |");
    assert_eq!(chosen.stdout, format!("{denied}|10-no|failed|exit code 3\n"));
    cluster
        .ok("hooks history --node node22")
        .says(&["there is no node node22 now; the nearest name is node2"]);
}

/// A job that was archived is found like any other, and its environment too.
fn check_archived(cluster: &Cluster, denied: u64) {
    let before = rows(cluster, &[]);
    cluster.ok(&format!("job archive {denied}"));
    assert_eq!(rows(cluster, &[]), before);
}

fn check_wrong(cluster: &Cluster, denied: u64, started: u64) {
    let check = |line: &str, code: i32, words: &[&str]| {
        cluster.gnt(&format!("hooks run {line}")).exits(code).says(words);
    };
    let of = |script: &str| format!("node2 {script} --from-job {denied}");
    check(
        &of("instance-start-pre.d/00-dmup"),
        1,
        &["node2: there is no script 00-dmup", "did you mean 00-dump?"],
    );
    check(&of("instance-start-pre.d/20-text"), 1, &["20-text", "is not run: not executable"]);
    check(
        &of("instance-strat-pre.d/10-no"),
        1,
        &["has nothing to do with", "did you mean instance-start-pre.d?"],
    );
    check(&of("global-pre.d/10-no"), 1, &["there is no script 10-no in global-pre.d; it has none"]);
    check(&of("10-no"), 2, &["expected DIR/SCRIPT"]);
    check(&of("instance-start/10-no"), 2, &["-pre.d, -post.d or -failed.d"]);
    check(&format!("node22 {START_PRE}/10-no --from-job {denied}"), 1, &["the nearest name is node2"]);
    check(&format!("node2 {START_PRE}/10-no --from-job 9999"), 1, &["there is no job 9999"]);
    check(&format!("node2 {START_PRE}/10-no"), 2, &["--from-job"]);
    check(&format!("node2 {START_FAILED}/00-dump --from-job {started}"), 1, &["did not fail"]);
    // Refused before an environment was made.
    cluster.gnt("instance start nobody").exits(1);
    let refused = cluster.last_job().id;
    check(&format!("node2 {START_PRE}/10-no --from-job {refused}"), 1, &["has no environment"]);
    // An operation without hooks of its own.
    cluster.ok("node modify --offline yes node3");
    let offline = cluster.last_job().id;
    check(
        &format!("node2 {START_PRE}/10-no --from-job {offline}"),
        1,
        &["its directories are", "global-post.d"],
    );
    check(&format!("node3 {START_PRE}/00-dump --from-job {started}"), 1, &["node3 is marked offline"]);
    cluster.devcluster(&["kill", "node2"]).exits(0);
    check(&format!("node2 {START_PRE}/00-dump --from-job {started}"), 1, &["node2 could not be reached"]);
    cluster.devcluster(&["start", "node2"]).exits(0);
    assert_eq!(cluster.take_dumps(), [], "nothing was run");
}

/// A job's lines under the target, without what stands before.
fn timing(cluster: &Cluster, job: u64) -> Vec<String> {
    let start = format!("muster.job.timing: job {job}: ");
    let log = cluster.log("master");
    log.lines().filter_map(|line| line.split_once(&start)).map(|(_, text)| text.to_owned()).collect()
}

fn check_log(cluster: &Cluster, denied: u64, started: u64) {
    let parts = |job: u64, beginnings: &[&str]| {
        wait_for("the job's lines are in the log", || timing(cluster, job).len() >= beginnings.len());
        let lines = timing(cluster, job);
        for (line, beginning) in lines.iter().zip(beginnings) {
            assert!(line.starts_with(beginning), "{beginning:?} is expected: {lines:#?}");
        }
        assert_eq!(lines.len(), beginnings.len(), "{lines:#?}");
        lines
    };
    let before =
        ["INSTANCE_START(web1) begins, asked for by ", "timing summary:", "queue", "locks", "pre hooks"];
    let after = ["steps", "commit", "post hooks", "INSTANCE_START(web1) ended: success [started "];
    let lines = parts(started, &[before.as_slice(), &after].concat());
    assert!(lines[4].ends_with(" ms, 2 scripts on 2 nodes"), "{lines:#?}");
    let after = ["end hooks", "INSTANCE_START(web1) ended: error (denied) [started "];
    let lines = parts(denied, &[before.as_slice(), &after].concat());
    assert!(lines[4].ends_with(" ms, 3 scripts on 2 nodes"), "{lines:#?}");
}

fn last(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.node_dir(1).join("state/last").join(name)
}

fn check_files(cluster: &Cluster, added: u64, denied: u64, started: u64) {
    let text = |name: &str| fs::read_to_string(last(cluster, name)).unwrap_or_default();
    wait_for("the failed job has its file", || {
        text("last-failure-message.old").contains(&format!("# job {denied}: "))
    });
    let message = text("last-failure-message.old");
    assert!(message.contains("denied by hooks on node2\n") && message.contains("not today\n"), "{message}");
    // The failure after it was the refusal.
    assert!(text("last-failure-message").contains("\nrefused: "), "{}", text("last-failure-message"));

    // The last success marked a node offline, which is work on no node; the one before started the instance.
    wait_for("the nodes are told", || text("last-updated-nodes.old").contains(&format!("# job {started}: ")));
    assert_eq!(source(cluster, "last-updated-nodes"), "masters= nodes= all=\n");
    assert_eq!(source(cluster, "last-updated-nodes.old"), "masters= nodes=node2 all=node2\n");
    assert!(!text("last-updated-nodes.old").contains(&format!("# job {added}: ")));
    cluster.ok("instance add -t file -n node1 -s 16M -m 32M -o none --no-start web2");
    wait_for("the master is told of", || text("last-updated-nodes").contains("('node1')"));
    assert_eq!(source(cluster, "last-updated-nodes"), "masters=node1 nodes= all=node1\n");
}

/// What bash gets of a file.
#[track_caller]
fn source(cluster: &Cluster, name: &str) -> String {
    let mut bash = Command::new("bash");
    let show = "set -eu; source \"$1\"; echo \"masters=${MUSTER_MASTER_IDS[*]-} nodes=${MUSTER_UPDATED_NODE_IDS[*]-} all=${MUSTER_NODE_IDS[*]-}\"";
    bash.args(["-c", show, "bash"]).arg(last(cluster, name));
    run(bash).exits(0).stdout
}
