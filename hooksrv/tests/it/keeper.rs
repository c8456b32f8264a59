//! Runs that outlive the daemon under their keepers: joined, answered, canceled, and lost only when the keeper is gone too.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use muster_core::hooks::{HookResult, ScriptOutcome};
use muster_hooksrv::{CallId, CallItem, KeeperProgram};
use rustix::process::Signal;

use crate::calls::{Node, items, started};
use crate::support::{
    block_on, given_directory, is_alive, keepers, kill, own_process, pids_in, probe, signal, stdout, wait_for,
};

const ID: &str = "17/pre/1";

/// A daemon in a process of its own: runs until it is killed.
fn daemon(root: &Path) {
    block_on(async {
        let node = Node::start(root).await;
        let end = node.run(ID, 17, "x").await.unwrap().end().await;
        panic!("the daemon should have been killed before this: {end:?}");
    });
}

/// Puts the scripts there: the first one ends at once, the second one waits for the gate with a child beside it.
fn put_scripts(root: &Path) {
    let dir = root.join("hooks/node-add-pre.d");
    fs::create_dir_all(&dir).unwrap();
    let at = |name: &str| root.join(name).display().to_string();
    let first = format!("#!/bin/sh\necho objection >&2; echo $$ >>{}; exit 3\n", at("first"));
    let second = format!(
        "#!/bin/sh\nsleep 1000 & echo $! $$ >>{}; while [ ! -e {} ]; do sleep 0.02; done; kill $!; echo done\n",
        at("pids"),
        at("gate")
    );
    crate::support::executable(dir.join("10-first"), &first);
    crate::support::executable(dir.join("20-second"), &second);
}

/// Runs the scripts in a daemon of its own and kills the daemon while the second one runs; gives its processes.
fn killed_daemon(test: &str, root: &Path) -> Vec<i32> {
    put_scripts(root);
    let mut daemon = own_process(test, &[], root).stdout(Stdio::null()).spawn().unwrap();
    let pids = pids_in(&root.join("pids"), 2);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(pids.iter().all(|pid| is_alive(*pid)), "a script survives its daemon");
    assert_eq!(keepers(root).len(), 1, "and so does its keeper");
    pids
}

fn open_gate(root: &Path) {
    fs::write(root.join("gate"), "").unwrap();
}

/// How often each script was started.
fn starts(root: &Path) -> (usize, usize) {
    let lines = |name: &str| fs::read_to_string(root.join(name)).unwrap().lines().count();
    (lines("first"), lines("pids"))
}

#[track_caller]
fn is_whole(answer: &HookResult) {
    let outcomes: Vec<_> = answer.scripts.iter().map(|script| script.outcome.clone()).collect();
    assert_eq!(outcomes, [ScriptOutcome::Failed { code: 3 }, ScriptOutcome::Passed]);
    assert_eq!(answer.scripts[0].stderr.head, b"objection\n");
    assert_eq!(stdout(&answer.scripts[1]), "done\n");
    assert_eq!(answer.failure, None);
}

#[test]
fn a_run_outlives_its_daemon_and_is_joined_in_the_next_one() {
    const TEST: &str = "keeper::a_run_outlives_its_daemon_and_is_joined_in_the_next_one";
    if let Some(root) = given_directory() {
        return daemon(&root);
    }
    let root = tempfile::tempdir().unwrap();
    killed_daemon(TEST, root.path());
    block_on(async {
        let node = Node::start(root.path()).await;
        let mut joined = node.run(ID, 17, "x").await.unwrap();
        let Some(CallItem::Event(first)) = joined.next().await else {
            panic!("a result from before the kill")
        };
        assert_eq!(first.name, "10-first");
        let asked = node.calls.ask(&CallId::parse(ID).unwrap()).await.unwrap();
        assert!(node.run(ID, 17, "y").await.is_err(), "other content is refused as ever");
        open_gate(root.path());
        let (events, answer) = items(asked).await;
        assert_eq!(events, ["10-first", "20-second"]);
        let answer = answer.expect("an answer");
        is_whole(&answer);
        assert_eq!(joined.end().await, CallItem::Answer(answer.clone()));
        assert_eq!(starts(root.path()), (1, 1));
        let again = Node::start(root.path()).await.run(ID, 17, "x").await.unwrap();
        assert_eq!(items(again).await, (vec![], Some(answer)));
        wait_for("the end of the keeper", || keepers(root.path()).is_empty());
    });
}

#[test]
fn a_run_that_ended_while_no_daemon_was_there_is_answered_as_its_keeper_saw_it() {
    const TEST: &str = "keeper::a_run_that_ended_while_no_daemon_was_there_is_answered_as_its_keeper_saw_it";
    if let Some(root) = given_directory() {
        return daemon(&root);
    }
    let root = tempfile::tempdir().unwrap();
    killed_daemon(TEST, root.path());
    open_gate(root.path());
    wait_for("the end of the keeper", || keepers(root.path()).is_empty());
    block_on(async {
        let node = Node::start(root.path()).await;
        let (events, answer) = items(node.run(ID, 17, "x").await.unwrap()).await;
        // What is answered already has no events any more.
        assert!(events.is_empty() || events == ["10-first", "20-second"], "{events:?}");
        let answer = answer.expect("an answer");
        is_whole(&answer);
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("state/calls/17.pre.1.answer")).unwrap(), text);
        let (_, again) = items(Node::start(root.path()).await.run(ID, 17, "x").await.unwrap()).await;
        assert_eq!(serde_json::to_string(&again.unwrap()).unwrap(), text, "the same to the byte");
        assert_eq!(starts(root.path()), (1, 1));
        wait_for("its directory is gone", || {
            fs::read_dir(root.path().join("state/keepers")).unwrap().count() == 0
        });
    });
}

#[test]
fn x8_a_cancel_after_a_restart_ends_the_whole_group() {
    const TEST: &str = "keeper::x8_a_cancel_after_a_restart_ends_the_whole_group";
    if let Some(root) = given_directory() {
        return daemon(&root);
    }
    let root = tempfile::tempdir().unwrap();
    let pids = killed_daemon(TEST, root.path());
    block_on(async {
        let node = Node::start(root.path()).await;
        let stream = node.run(ID, 17, "x").await.unwrap();
        assert_eq!(node.calls.end_job(18).await, 0);
        assert_eq!(node.calls.end_job(17).await, 1);
        assert!(!pids.iter().any(|pid| is_alive(*pid)), "nothing of it is left when the end is said");
        let answer = items(stream).await.1.expect("an answer");
        assert_eq!(answer.scripts[1].outcome, ScriptOutcome::Ended);
    });
}

#[test]
fn a_keeper_that_ends_nothing_is_killed_and_its_scripts_are_ended() {
    const TEST: &str = "keeper::a_keeper_that_ends_nothing_is_killed_and_its_scripts_are_ended";
    if let Some(root) = given_directory() {
        return daemon(&root);
    }
    let root = tempfile::tempdir().unwrap();
    let pids = killed_daemon(TEST, root.path());
    signal(keepers(root.path())[0], Signal::STOP);
    block_on(async {
        let node = Node::start(root.path()).await;
        let stream = node.run(ID, 17, "x").await.unwrap();
        assert_eq!(node.calls.end_job(17).await, 1);
        assert_eq!(items(stream).await.1, None, "lost: nobody knows how far it was");
        assert!(!pids.iter().any(|pid| is_alive(*pid)));
        assert!(keepers(root.path()).is_empty());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_keepers_script_is_ended_before_its_call_is_said_to_be_lost() {
    let root = tempfile::tempdir().unwrap();
    put_scripts(root.path());
    let node = Node::start(root.path()).await;
    let mut stream = node.run(ID, 17, "x").await.unwrap();
    let pids = started(node.file("pids"), 2).await;
    assert!(matches!(stream.next().await, Some(CallItem::Event(_))), "told while the second script runs");
    kill(keepers(root.path())[0]);
    assert_eq!(stream.end().await, CallItem::Lost);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
    let again = node.run(ID, 17, "x").await.unwrap();
    assert_eq!(again.end().await, CallItem::Lost, "it is not run again");
    assert_eq!(starts(root.path()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_goes_down_ends_scripts_and_answers_nothing() {
    let root = tempfile::tempdir().unwrap();
    put_scripts(root.path());
    let node = Node::start(root.path()).await;
    let stream = node.run(ID, 17, "x").await.unwrap();
    let pids = started(node.file("pids"), 2).await;
    signal(keepers(root.path())[0], Signal::TERM);
    assert_eq!(stream.end().await, CallItem::Lost, "nobody decided that it should fail");
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn r3_a_keeper_that_can_not_be_started_is_a_failure_and_not_a_loss() {
    let root = tempfile::tempdir().unwrap();
    put_scripts(root.path());
    for program in ["/nonexistent/muster-hooksrv", "/bin/false"] {
        let node = Node::start_with(root.path(), KeeperProgram::new(program.into())).await;
        let id = format!("{}/pre/1", program.len());
        let answer = items(node.run(&id, 17, "x").await.unwrap()).await.1.expect("an answer");
        assert!(answer.failure.as_ref().unwrap().contains("keeper"), "{answer:?}");
    }
    assert!(!root.path().join("first").exists());
}

#[tokio::test]
async fn x6_a_script_inherits_nothing_of_its_keeper() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    symlink(probe(), root.path().join("hooks/node-add-pre.d/10-probe")).unwrap();
    let answer = items(node.run(ID, 17, "x").await.unwrap()).await.1.expect("an answer");
    let text = stdout(&answer.scripts[0]);
    let lines: Vec<&str> = text.lines().collect();
    let of = |key: &str| -> Vec<&str> { lines.iter().filter_map(|line| line.strip_prefix(key)).collect() };
    assert_eq!(of("fd="), ["0", "1", "2"], "{text}");
    assert_eq!(of("fd0="), ["/dev/null"]);
    assert_eq!(of("fd1="), [format!("{}/state/hook-output/17.pre.1/01.stdout", root.path().display())]);
    for line in ["session leader=1", "group leader=1", "terminal=0", "cwd=/", "Umask=0077", "argc=1"] {
        assert!(lines.contains(&line), "{line}: {text}");
    }
    for signals in ["SigBlk=", "SigIgn=", "SigCgt="] {
        assert_eq!(of(signals), ["0000000000000000"], "{signals}");
    }
    let mut env = of("env=");
    env.sort_unstable();
    assert_eq!(env, ["GANETI_HOOK_KILL_TIMEOUT_S=300", "PATH=/sbin:/bin:/usr/sbin:/usr/bin"]);
}
