//! Hook calls on a node that can be reached: what comes back, what is sent before, what a loss in the middle does.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use muster_core::{
    calls::{CallAnswer, MirrorStatus, NodeCall},
    hooks::{NodeAnswer, ScriptOutcome},
};
use muster_proto::{
    transport::EPOCH_SEEN,
    v1::{self, execute_event, run_hooks_event::Event},
};
use tonic::Status;
use uuid::Uuid;

use super::{
    super::{CallError, Limits, Office, OnProgress, OnScript, Progress},
    fixture::{answered, facts, name, not_reached, outcomes, patient, pre, registry, short, within},
    proxy::Proxy,
    server::TestNode,
};

#[tokio::test]
async fn results_travel_script_by_script_and_every_call_has_its_context() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, Limits::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_script: OnScript = {
        let (told, node) = (told.clone(), node.clone());
        Arc::new(move |script| {
            told.lock().unwrap().push(script.name.clone());
            // The run goes on only after its first script was heard of.
            if script.name == "10-a" {
                node.script("20-b", 3);
                node.finish();
            }
        })
    };
    node.script("10-a", 0);
    let report = within(registry.run_hooks(&name("node1"), &pre("17/pre/1"), Some(&on_script))).await;
    let expected =
        [("10-a".to_owned(), ScriptOutcome::Passed), ("20-b".to_owned(), ScriptOutcome::Failed { code: 3 })];
    assert_eq!(outcomes(answered(&report)), expected);
    assert_eq!(*told.lock().unwrap(), ["10-a", "20-b"]);
    assert_eq!(node.calls(), ["hello", "run_hooks 17/pre/1"]);
    for context in node.contexts.lock().unwrap().iter() {
        assert_eq!(
            (context.cluster_uuid.as_str(), context.epoch, context.serial),
            (super::fixture::CLUSTER, 3, 7)
        );
    }
    let info = registry.info(&name("node1")).unwrap();
    assert_eq!((info.version.as_str(), info.serial_seen, info.epoch_seen), ("0.9.0", 6, 2));
    assert!((9_000..=11_000).contains(&info.skew_ms), "{info:?}");
}

#[tokio::test]
async fn r3_a_daemon_that_answers_with_an_error_is_a_failure() {
    for status in [
        Status::internal("can't spawn"),
        Status::already_exists("another call has this id"),
        Status::permission_denied("not the master's role"),
        Status::failed_precondition("cluster: this node belongs to another one"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("node.sock");
        let node = TestNode::new();
        node.refuse("run_hooks", status.clone());
        let _serving = node.serve(&socket);
        let (registry, lost) = registry(&socket, Limits::default());
        let report = within(registry.run_hooks(&name("node1"), &pre("17/pre/1"), None)).await;
        assert_eq!(answered(&report).failure.as_deref(), Some(status.message()));
        assert!(lost.lock().unwrap().is_empty());
        assert_eq!(node.calls(), ["hello", "run_hooks 17/pre/1"]);
    }
}

#[tokio::test]
async fn r3_a_refused_epoch_is_reported_from_any_call() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, lost) = registry(&socket, Limits::default());
    let refusal = Status::failed_precondition("epoch: 3 is older than 9");
    node.refuse("run_hooks", refusal.clone());
    let report = within(registry.run_hooks(&name("node1"), &pre("17/pre/1"), None)).await;
    // The operation must not go on: a failure denies.
    let failure = answered(&report).failure.as_deref();
    assert_eq!(failure, Some("this master is no longer in office: epoch: 3 is older than 9"));
    assert_eq!(*lost.lock().unwrap(), ["epoch: 3 is older than 9"]);
    node.refuse("*", refusal);
    registry.local().reset();
    assert!(matches!(within(registry.local().hello(true)).await, Err(CallError::OfficeLost(_))));
    let call = NodeCall::DiskRemove { disk: Uuid::nil() };
    let answer = within(registry.execute(&name("node1"), "17/1/1", 17, &call, None)).await;
    assert!(matches!(answer, CallAnswer::Failed(_)), "{answer:?}");
    assert_eq!(lost.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_refusal_of_this_masters_own_earlier_epoch_is_no_lost_office() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, lost) = registry(&socket, Limits::default());
    let own = 9;
    registry.set_office(Office { cluster: Some(Uuid::nil()), epoch: own, serial: 1 });
    for (seen, expected) in [(own, false), (own - 1, false), (own + 1, true)] {
        let mut refusal = Status::failed_precondition("epoch: 3 is over");
        refusal.metadata_mut().insert(EPOCH_SEEN, seen.into());
        node.refuse("*", refusal);
        let answer = within(registry.local().hello(true)).await;
        assert_eq!(matches!(answer, Err(CallError::OfficeLost(_))), expected, "{seen}: {answer:?}");
        assert_eq!(!lost.lock().unwrap().is_empty(), expected, "{seen}");
    }
}

#[tokio::test]
async fn a_node_that_is_behind_gets_the_facts_before_the_hooks() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.finish();
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, Limits { facts: Duration::from_secs(1), ..patient() });
    // What the node said it has.
    registry.set_facts(facts(5));
    within(registry.run_hooks(&name("node1"), &pre("1/pre/1"), None)).await;
    registry.set_facts(facts(6));
    registry.set_facts(facts(7));
    within(registry.run_hooks(&name("node1"), &pre("2/pre/1"), None)).await;
    within(registry.run_hooks(&name("node1"), &pre("3/pre/1"), None)).await;
    let expected = ["hello", "run_hooks 1/pre/1", "put_facts 7", "run_hooks 2/pre/1", "run_hooks 3/pre/1"];
    assert_eq!(node.calls(), expected);
    // A node that does not take them in time runs its hooks all the same.
    node.hang("put_facts");
    registry.set_facts(facts(8));
    let report = within(registry.run_hooks(&name("node1"), &pre("4/pre/1"), None)).await;
    assert_eq!(answered(&report).failure, None);
    assert_eq!(node.calls()[5..], ["put_facts 8", "run_hooks 4/pre/1"]);
}

#[tokio::test]
async fn a_lost_connection_is_made_again_and_the_run_joined_by_its_call_id() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, through) = (folder.path().join("node.sock"), folder.path().join("proxy.sock"));
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let proxy = Arc::new(Proxy::new(&through, &socket));
    let (registry, _) = registry(&through, patient());
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_script: OnScript = {
        let (told, proxy) = (told.clone(), proxy.clone());
        Arc::new(move |script| {
            told.lock().unwrap().push(script.name.clone());
            if script.name == "10-a" {
                proxy.cut();
            }
        })
    };
    node.script("10-a", 1);
    let run =
        tokio::spawn(
            async move { registry.run_hooks(&name("node1"), &pre("17/pre/1"), Some(&on_script)).await },
        );
    node.called("run_hooks 17/pre/1", 2).await;
    node.script("20-b", 0);
    node.finish();
    let report = within(run).await.unwrap();
    let expected =
        [("10-a".to_owned(), ScriptOutcome::Failed { code: 1 }), ("20-b".to_owned(), ScriptOutcome::Passed)];
    assert_eq!(outcomes(answered(&report)), expected);
    assert_eq!(*told.lock().unwrap(), ["10-a", "20-b"]);
    assert_eq!(node.calls(), ["hello", "run_hooks 17/pre/1", "hello", "run_hooks 17/pre/1"]);
}

#[tokio::test]
async fn a_daemon_restarted_between_and_within_calls_is_no_lost_node() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let (registry, _) = registry(&socket, Limits::default());
    let serving = node.serve(&socket);
    node.finish();
    let first = within(registry.run_hooks(&name("node1"), &pre("1/pre/1"), None)).await;
    assert_eq!(answered(&first).failure, None);
    serving.stop().await;
    let serving = node.serve(&socket);
    let second = within(registry.run_hooks(&name("node1"), &pre("2/pre/1"), None)).await;
    assert_eq!(answered(&second).failure, None);

    node.hooks.send_replace(Vec::new());
    node.script("10-a", 0);
    let run = tokio::spawn(async move { registry.run_hooks(&name("node1"), &pre("3/pre/1"), None).await });
    node.called("run_hooks 3/pre/1", 1).await;
    serving.stop().await;
    // For a moment nobody listens: a refusal is not the end yet.
    std::fs::remove_file(&socket).unwrap();
    let _serving = node.serve(&socket);
    node.called("run_hooks 3/pre/1", 2).await;
    node.finish();
    let third = within(run).await.unwrap();
    assert_eq!(outcomes(answered(&third)), [("10-a".to_owned(), ScriptOutcome::Passed)]);
}

#[tokio::test]
async fn r3_scripts_reported_before_a_loss_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.script("10-a", 7);
    let serving = node.serve(&socket);
    let (registry, _) = registry(&socket, short());
    let (heard, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    let on_script: OnScript = Arc::new(move |script| heard.send(script.name.clone()).unwrap());
    let run =
        tokio::spawn(
            async move { registry.run_hooks(&name("node1"), &pre("17/pre/1"), Some(&on_script)).await },
        );
    assert_eq!(within(hearing.recv()).await.as_deref(), Some("10-a"));
    serving.stop().await;
    let report = within(run).await.unwrap();
    let (reason, scripts) = not_reached(&report);
    assert_eq!(scripts, [("10-a".to_owned(), ScriptOutcome::Failed { code: 7 })]);
    assert!(reason.contains("lost") && reason.contains("reconnecting"), "{reason}");
}

#[tokio::test]
async fn a_run_that_the_node_lost_track_of_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.hook_event(Event::Lost(v1::RunLost {}));
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, patient());
    let report = within(registry.run_hooks(&name("node1"), &pre("17/pre/1"), None)).await;
    assert_eq!(report.answer, NodeAnswer::Lost);
}

#[tokio::test]
async fn calls_report_progress_and_are_joined_after_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, through) = (folder.path().join("node.sock"), folder.path().join("proxy.sock"));
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let proxy = Arc::new(Proxy::new(&through, &socket));
    let (registry, _) = registry(&through, patient());
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_progress: OnProgress = {
        let (told, proxy) = (told.clone(), proxy.clone());
        Arc::new(move |progress| {
            told.lock().unwrap().push(progress);
            if told.lock().unwrap().len() == 1 {
                proxy.cut();
            }
        })
    };
    let event = |event| v1::ExecuteEvent { event: Some(event) };
    let half = v1::Progress { text: "half".to_owned(), percent: Some(50) };
    node.execution.send_modify(|events| events.push(event(execute_event::Event::Progress(half))));
    let call = NodeCall::ExportPublish { export: Uuid::nil(), manifest: "{}".to_owned() };
    let run = tokio::spawn(async move {
        registry.execute(&name("node1"), "17/2/1", 17, &call, Some(&on_progress)).await
    });
    node.called("execute 17/2/1", 2).await;
    let copy = Uuid::from_u128(7);
    let ready = v1::MirrorStatus::Ready.into();
    let output = v1::Output {
        path: "/srv/x".to_owned(),
        ports: [(copy.to_string(), 40_000)].into(),
        mirrors: [(copy.to_string(), ready)].into(),
        ..v1::Output::default()
    };
    let done = v1::answer::Answer::Done(output);
    let answer = v1::Answer { answer: Some(done) };
    node.execution.send_modify(|events| events.push(event(execute_event::Event::Answer(answer))));
    let CallAnswer::Done(output) = within(run).await.unwrap() else { panic!("the call did not succeed") };
    assert_eq!(output.path.as_deref(), Some("/srv/x"));
    assert_eq!(output.ports, [(copy, 40_000)].into());
    assert_eq!(output.mirrors, [(copy, MirrorStatus::Ready)].into());
    let half = Progress { text: "half".to_owned(), percent: Some(50) };
    assert_eq!(*told.lock().unwrap(), [half.clone(), half]);
}

#[tokio::test]
async fn an_answer_of_unknown_outcome_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, patient());
    let lost = v1::Answer { answer: Some(v1::answer::Answer::Lost(v1::ExecuteGoing {})) };
    let event = v1::ExecuteEvent { event: Some(execute_event::Event::Answer(lost)) };
    node.execution.send_modify(|events| events.push(event));
    let call = NodeCall::DiskRemove { disk: Uuid::nil() };
    let answer = within(registry.execute(&name("node1"), "17/2/1", 17, &call, None)).await;
    assert!(
        matches!(&answer, CallAnswer::Failed(why) if why.contains("the outcome is unknown")),
        "{answer:?}"
    );
}

/// The library gives a connection up after about a thousand streams that were dropped before their end.
#[tokio::test]
async fn one_connection_carries_any_number_of_calls() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, Limits::default());
    node.finish();
    for round in 0..8_000 {
        let report = within(registry.run_hooks(&name("node1"), &pre(&format!("{round}/pre/1")), None)).await;
        assert_eq!(outcomes(answered(&report)), Vec::new(), "round {round}");
    }
    let greetings = node.calls().iter().filter(|call| *call == "hello").count();
    assert_eq!(greetings, 1, "the connection was made anew");
}
