//! A daemon that is killed while a script runs, and its keeper too: nothing of the script is left, then its call is said
//! to be lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use muster_hooksrv::{CallItem, CallStream};

use crate::calls::Node;
use crate::support::{block_on, given_directory, is_alive, keepers, kill, own_process, pids_in, wait_for};

/// Where the keeper of the only run reports.
fn report(root: &Path) -> PathBuf {
    root.join("state/keepers/17.pre.1/report")
}

/// Runs a script in a daemon of its own, kills the daemon, then the keeper, and returns the script's processes, which go
/// on.
fn killed_daemon(test: &str, root: &Path) -> Vec<i32> {
    let mut daemon: Child = own_process(test, &[], root).stdout(Stdio::null()).spawn().unwrap();
    let pids = pids_in(&root.join("pids"), 2);
    wait_for("the record of the process", || {
        fs::read_to_string(report(root)).unwrap_or_default().contains("started")
    });
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let keeper = keepers(root);
    assert_eq!(keeper.len(), 1, "a keeper survives its daemon");
    kill(keeper[0]);
    wait_for("the keeper's end", || keepers(root).is_empty());
    assert!(pids.iter().all(|pid| is_alive(*pid)), "a script survives its keeper");
    pids
}

/// The daemon: runs until it is killed.
fn daemon(root: &Path, body: &str) {
    block_on(async {
        let node = Node::start(root).await;
        node.script("10-x", body);
        let end = node.run("17/pre/1", 17, "x").await.unwrap().end().await;
        panic!("the daemon should have been killed before this: {end:?}");
    });
}

/// The next daemon: what it finds, ends and says.
fn next_daemon(root: &Path, pids: &[i32]) {
    block_on(async {
        let node = Node::start(root).await;
        let left: Vec<&i32> = pids.iter().filter(|pid| is_alive(**pid)).collect();
        assert!(left.is_empty(), "{left:?}");
        let stream: CallStream<_, _> = node.run("17/pre/1", 17, "x").await.unwrap();
        assert_eq!(stream.end().await, CallItem::Lost, "it is not run again");
        assert_eq!(fs::read_dir(root.join("state/keepers")).unwrap().count(), 0);
    });
}

#[test]
fn a_lost_scripts_group_is_ended_by_what_was_recorded() {
    const TEST: &str = "crash::a_lost_scripts_group_is_ended_by_what_was_recorded";
    if let Some(root) = given_directory() {
        // Its output goes elsewhere: only the record leads to it.
        let pids = root.join("pids");
        let body =
            format!("exec >/dev/null 2>&1; trap '' TERM; sleep 1000 & echo $! $$ >{}; wait", pids.display());
        return daemon(&root, &body);
    }
    let root = tempfile::tempdir().unwrap();
    let pids = killed_daemon(TEST, root.path());
    next_daemon(root.path(), &pids);
}

#[test]
fn a_lost_scripts_group_is_ended_by_where_it_writes() {
    const TEST: &str = "crash::a_lost_scripts_group_is_ended_by_where_it_writes";
    if let Some(root) = given_directory() {
        return daemon(&root, &format!("sleep 1000 & echo $! $$ >{}; wait", root.join("pids").display()));
    }
    let root = tempfile::tempdir().unwrap();
    let pids = killed_daemon(TEST, root.path());
    // As if the keeper had died between the start of the script and the record of it.
    let text = fs::read_to_string(report(root.path())).unwrap();
    let begun = text.split_inclusive('\n').next().unwrap();
    assert!(begun.contains("begun"), "{begun}");
    fs::write(report(root.path()), begun).unwrap();
    next_daemon(root.path(), &pids);
}
