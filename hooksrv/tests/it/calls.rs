//! Hook runs as calls: once, joined, answered again, ended.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use muster_core::calls::AliveJobs;
use muster_core::hooks::{Env, HookPolicy, HookResult, Phase, ScriptOutcome, ScriptResult};
use muster_hooksrv::{
    Call, CallError, CallId, CallItem, CallRegistry, CallStream, DirectoryName, HookKeepers, HookRequest,
    HookRunner, KeeperProgram, KeepersConfig, OnLost, RequestDigest, RunnerConfig, prepare_process,
    run_hooks,
};

use crate::support::{executable, is_alive, pids_in};

pub(crate) type Stream = CallStream<ScriptResult, HookResult>;

/// A node daemon's hook part.
pub(crate) struct Node {
    root: PathBuf,
    keepers: Arc<HookKeepers>,
    pub(crate) calls: CallRegistry<ScriptResult, HookResult>,
}

impl Node {
    /// Starts it on a directory that may have been another's before.
    pub(crate) async fn start(root: &std::path::Path) -> Self {
        Self::start_with(root, KeeperProgram::new(env!("CARGO_BIN_EXE_muster-hooksrv").into())).await
    }

    /// The same with another program of keepers.
    pub(crate) async fn start_with(root: &std::path::Path, program: KeeperProgram) -> Self {
        let config = RunnerConfig::new(root.join("hooks"), root.join("state/hook-output"));
        fs::create_dir_all(root.join("hooks/node-add-pre.d")).unwrap();
        let runner = Arc::new(HookRunner::new(prepare_process(), config).unwrap());
        let keepers = KeepersConfig { dir: root.join("state/keepers"), program };
        let keepers = HookKeepers::new(runner, keepers).unwrap();
        let calls = keepers.open_calls(&root.join("state/calls")).await.unwrap();
        Node { root: root.to_owned(), keepers, calls }
    }

    pub(crate) fn script(&self, name: &str, body: &str) {
        executable(self.root.join("hooks/node-add-pre.d").join(name), &format!("#!/bin/sh\n{body}\n"));
    }

    pub(crate) async fn run(&self, id: &str, job: u64, content: &str) -> Result<Stream, CallError> {
        let directory = DirectoryName::new("node-add", Phase::Pre).unwrap();
        let request = HookRequest::new(directory, Env::new(), HookPolicy::default());
        let digest = RequestDigest::of(content.as_bytes());
        run_hooks(&self.keepers, &self.calls, CallId::parse(id).unwrap(), digest, job, request).await
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn journal_files(&self) -> usize {
        fs::read_dir(self.root.join("state/calls")).unwrap().count()
    }
}

pub(crate) async fn items(mut stream: Stream) -> (Vec<String>, Option<HookResult>) {
    let mut events = Vec::new();
    while let Some(item) = stream.next().await {
        match item {
            CallItem::Event(script) => events.push(script.name),
            CallItem::Answer(answer) => {
                assert_eq!(stream.next().await, None);
                return (events, Some(answer));
            }
            CallItem::Lost => return (events, None),
        }
    }
    panic!("a stream ends with an answer or with its loss");
}

pub(crate) async fn started(file: PathBuf, count: usize) -> Vec<i32> {
    tokio::task::spawn_blocking(move || pids_in(&file, count)).await.unwrap()
}

#[tokio::test]
async fn a_call_runs_once_and_a_repeat_joins_it_or_gets_the_first_answer() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    let (runs, gate) = (node.file("runs"), node.file("gate"));
    node.script("10-a", &format!("echo $$ >>{}", runs.display()));
    node.script("20-b", &format!("while [ ! -e {} ]; do sleep 0.02; done; exit 3", gate.display()));
    let first = node.run("17/pre/1", 17, "x").await.unwrap();
    started(runs.clone(), 1).await;
    let joined = node.run("17/pre/1", 17, "x").await.unwrap();
    let asked = node.calls.ask(&CallId::parse("17/pre/1").unwrap()).await.unwrap();
    fs::write(gate, "").unwrap();

    let (events, answer) = items(first).await;
    assert_eq!(events, ["10-a", "20-b"]);
    let answer = answer.expect("an answer");
    assert_eq!(answer.scripts[1].outcome, ScriptOutcome::Failed { code: 3 });
    assert_eq!(items(joined).await, (events.clone(), Some(answer.clone())), "from the first event on");
    assert_eq!(items(asked).await, (events, Some(answer.clone())));
    let repeat = node.run("17/pre/1", 17, "x").await.unwrap();
    assert_eq!(items(repeat).await, (vec![], Some(answer.clone())));
    // A new process of the daemon answers the same.
    let again = Node::start(root.path()).await.run("17/pre/1", 17, "x").await.unwrap();
    assert_eq!(items(again).await, (vec![], Some(answer)));
    assert_eq!(fs::read_to_string(runs).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn a_run_belongs_to_its_call_and_not_to_who_listens() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    let gate = node.file("gate");
    node.script("10-a", &format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display()));
    drop(node.run("17/pre/1", 17, "x").await.unwrap());
    fs::write(gate, "").unwrap();
    let (_, answer) = items(node.run("17/pre/1", 17, "x").await.unwrap()).await;
    assert_eq!(answer.unwrap().scripts[0].outcome, ScriptOutcome::Passed);
}

#[tokio::test]
async fn the_same_id_with_other_content_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    node.script("10-a", "true");
    items(node.run("17/pre/1", 17, "x").await.unwrap()).await;
    assert!(matches!(node.run("17/pre/1", 17, "y").await, Err(CallError::OtherContent(_))));
}

#[tokio::test]
async fn nothing_is_written_where_no_script_would_run() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    node.script("bad.name", "exit 1");
    let (events, answer) = items(node.run("17/pre/1", 17, "x").await.unwrap()).await;
    assert_eq!((events.len(), answer.unwrap().skipped.len()), (0, 1));
    assert_eq!(node.journal_files(), 0);
    assert!(!node.file("state/hook-output").exists());
    assert!(!node.file("state/keepers").exists());
}

#[tokio::test]
async fn an_id_said_to_be_unknown_is_not_started_by_a_late_request() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    node.script("10-a", "touch ran");
    let id = CallId::parse("17/pre/1").unwrap();
    assert!(matches!(node.calls.ask(&id).await, Err(CallError::Unknown(_))));
    assert!(matches!(node.run("17/pre/1", 17, "x").await, Err(CallError::Unknown(_))));
    let again = Node::start(root.path()).await;
    assert!(matches!(again.run("17/pre/1", 17, "x").await, Err(CallError::Unknown(_))));
    node.calls.clear().await.unwrap();
    assert!(
        items(node.run("17/pre/1", 17, "x").await.unwrap()).await.1.is_some(),
        "another cluster's job 17"
    );
}

#[tokio::test]
async fn runs_of_jobs_that_are_not_alive_are_ended_and_others_go_on() {
    let root = tempfile::tempdir().unwrap();
    let node = Node::start(root.path()).await;
    let (pids, gate) = (node.file("pids"), node.file("gate"));
    let body =
        format!("echo $$ >>{}; while [ ! -e {} ]; do sleep 0.02; done", pids.display(), gate.display());
    node.script("10-a", &body);
    let mut streams = Vec::new();
    for (job, step) in [(1, "pre"), (2, "pre"), (3, "pre"), (4, "post"), (4, "end")] {
        streams.push(node.run(&format!("{job}/{step}/1"), job, "x").await.unwrap());
    }
    let running = started(pids, 5).await;
    let alive = AliveJobs { all: [1, 3, 4].into(), ending: [4].into() };
    assert_eq!(node.calls.end_others(&alive).await, 2, "job 2, and what job 4 had before its end is told");
    assert_eq!(running.iter().filter(|pid| is_alive(**pid)).count(), 3);
    assert_eq!(node.calls.end_job(3).await, 1);
    assert_eq!(running.iter().filter(|pid| is_alive(**pid)).count(), 2);
    assert_eq!(node.calls.end_job(3).await, 0);
    fs::write(gate, "").unwrap();
    let mut outcomes = Vec::new();
    for stream in streams {
        outcomes.push(items(stream).await.1.unwrap().scripts.remove(0).outcome);
    }
    assert_eq!(outcomes, {
        use ScriptOutcome::{Ended, Passed};
        [Passed, Ended, Ended, Ended, Passed]
    });
}

/// A registry of backend calls, as noded has.
async fn backend(root: &tempfile::TempDir) -> CallRegistry<u32, String> {
    CallRegistry::open(&root.path().join("calls")).await.unwrap()
}

fn backend_call(on_lost: OnLost) -> Call {
    let id = CallId::parse("17/3/1").unwrap();
    Call { id, digest: RequestDigest::of(b"x"), job: 17, output_dir: None, on_lost }
}

#[tokio::test]
async fn a_late_listener_gets_kept_events_and_the_newest_progress() {
    let root = tempfile::tempdir().unwrap();
    let calls = backend(&root).await;
    let (told, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (work_told, work_go_on) = (Arc::clone(&told), Arc::clone(&go_on));
    let work = |context: muster_hooksrv::CallContext<u32>| async move {
        context.keep(1);
        context.progress(10);
        context.progress(20);
        work_told.notify_one();
        work_go_on.notified().await;
        context.keep(2);
        "done".to_owned()
    };
    let mut stream = calls.start_or_join(backend_call(OnLost::Repeat), work).await.unwrap();
    told.notified().await;
    assert_eq!(stream.next().await, Some(CallItem::Event(1)));
    assert_eq!(stream.next().await, Some(CallItem::Event(20)));
    go_on.notify_one();
    assert_eq!(stream.next().await, Some(CallItem::Event(2)));
    assert_eq!(stream.next().await, Some(CallItem::Answer("done".to_owned())));
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn work_that_panics_is_lost_and_repeated_only_where_it_may_be() {
    let root = tempfile::tempdir().unwrap();
    let calls = backend(&root).await;
    let broken = |_context| async { panic!("a bug in the work") };
    let stream = calls.start_or_join(backend_call(OnLost::Tell), broken).await.unwrap();
    assert_eq!(stream.end().await, CallItem::Lost);
    let work = |_context| async { "done".to_owned() };
    let stream = calls.start_or_join(backend_call(OnLost::Tell), work).await.unwrap();
    assert_eq!(stream.end().await, CallItem::Lost);
    let stream = calls.start_or_join(backend_call(OnLost::Repeat), work).await.unwrap();
    assert_eq!(stream.end().await, CallItem::Answer("done".to_owned()));
}
