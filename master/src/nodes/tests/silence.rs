//! Nodes that do not answer: refused, silent, frozen. Each costs its limit and no more.

use std::{
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

use muster_core::{
    calls::{CallAnswer, NodeCall},
    hooks::ScriptOutcome,
};
use muster_proto::transport::Keepalive;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use uuid::Uuid;

use super::{
    super::{CallError, Limits, OnScript},
    fixture::{answered, name, not_reached, outcomes, patient, pre, registry, short, within},
    proxy::Proxy,
    server::TestNode,
    tls::master_tls,
};

#[tokio::test]
async fn r3_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (registry, _) = registry(&path, Limits::default());
    let start = Instant::now();
    let report = within(registry.run_hooks(&name("node1"), &pre("17/pre/1"), None)).await;
    let (reason, scripts) = not_reached(&report);
    assert!(reason.contains("connection refused"), "{reason}");
    assert_eq!(scripts, []);
    assert!(start.elapsed() < Duration::from_secs(2), "a refusal is known at once");
    let call = NodeCall::DiskRemove { disk: Uuid::nil() };
    let answer = within(registry.execute(&name("node1"), "17/1/1", 17, &call, None)).await;
    assert!(matches!(&answer, CallAnswer::NotReached(why) if why.contains("refused")), "{answer:?}");
    assert!(registry.not_reached(&name("node1")).unwrap().contains("connection refused"));

    let stranger = registry.run_hooks(&name("node9"), &pre("17/pre/1"), None).await;
    assert_eq!(not_reached(&stranger).0, "node9 is offline or not a node of the cluster");
}

#[tokio::test]
async fn r3_accepted_but_silent_with_the_real_limit() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (registry, _) = registry(&folder.path().join("none"), Limits::default());
    registry.set_tls(&master_tls());
    let address = listener.local_addr().unwrap();
    let client = registry.provisional(name("node2"), address, Uuid::from_u128(2), &[]);
    let start = Instant::now();
    // Two callers wait one limit together, not one after the other.
    let (run, probe) = (pre("17/pre/1"), pre("17/pre/2"));
    let (one, two) =
        within(async { tokio::join!(client.run_hooks(&run, None), client.run_hooks(&probe, None)) }).await;
    for report in [&one, &two] {
        let (reason, _) = not_reached(report);
        assert!(reason.contains("no answer within 3 s"), "{reason}");
    }
    let taken = start.elapsed();
    assert!((Duration::from_millis(2900)..Duration::from_secs(5)).contains(&taken), "{taken:?}");
}

#[tokio::test]
async fn r3_full_backlog() {
    let folder = tempfile::tempdir().unwrap();
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let address: std::net::SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    // Filled until the kernel takes no more.
    let mut fill = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        fill.push(stream);
    }
    let (registry, _) = registry(&folder.path().join("none"), short());
    registry.set_tls(&master_tls());
    let client = registry.provisional(name("node2"), address, Uuid::from_u128(2), &[]);
    let report = within(client.run_hooks(&pre("17/pre/1"), None)).await;
    let (reason, _) = not_reached(&report);
    assert!(reason.contains("no answer within 1500 ms"), "{reason}");
}

#[tokio::test]
async fn r3_frozen_in_the_middle_of_a_script_is_given_up_with_the_real_limits() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, through) = (folder.path().join("node.sock"), folder.path().join("proxy.sock"));
    let node = TestNode::new();
    node.script("10-a", 9);
    let _serving = node.serve(&socket);
    let proxy = Arc::new(Proxy::new(&through, &socket));
    let (registry, _) = registry(&through, Limits::default());
    let on_script: OnScript = {
        let proxy = proxy.clone();
        Arc::new(move |_| proxy.freeze())
    };
    let start = Instant::now();
    let report = within(registry.run_hooks(&name("node1"), &pre("17/pre/1"), Some(&on_script))).await;
    let (reason, scripts) = not_reached(&report);
    assert!(reason.contains("no answer to pings for 15 s"), "{reason}");
    assert!(reason.contains("no answer within 3 s"), "{reason}");
    assert_eq!(scripts, [("10-a".to_owned(), ScriptOutcome::Failed { code: 9 })]);
    let taken = start.elapsed();
    assert!((Duration::from_secs(18)..Duration::from_secs(27)).contains(&taken), "{taken:?}");
    assert!(report.duration_ms >= 18_000);
}

#[tokio::test]
async fn a_quiet_script_is_waited_for_while_pings_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, through) = (folder.path().join("node.sock"), folder.path().join("proxy.sock"));
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let proxy = Proxy::new(&through, &socket);
    let keepalive = Keepalive { interval: Duration::from_millis(100), limit: Duration::from_secs(1) };
    let (registry, _) = registry(&through, Limits { keepalive, ..patient() });
    let run = tokio::spawn(async move { registry.run_hooks(&name("node1"), &pre("17/pre/1"), None).await });
    node.called("run_hooks 17/pre/1", 1).await;
    // Pings and answers: about 2 s of quiet, with a limit of 1 s.
    proxy.forwarded(40).await;
    node.script("10-a", 0);
    node.finish();
    let report = within(run).await.unwrap();
    assert_eq!(outcomes(answered(&report)), [("10-a".to_owned(), ScriptOutcome::Passed)]);
    assert_eq!(node.calls(), ["hello", "run_hooks 17/pre/1"]);
}

#[tokio::test]
async fn an_idle_connection_that_froze_costs_a_ping_and_a_reconnect() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, through) = (folder.path().join("node.sock"), folder.path().join("proxy.sock"));
    let node = TestNode::new();
    node.finish();
    let _serving = node.serve(&socket);
    let proxy = Proxy::new(&through, &socket);
    let (registry, _) = registry(&through, short());
    within(registry.run_hooks(&name("node1"), &pre("1/pre/1"), None)).await;
    proxy.freeze();
    let report = within(registry.run_hooks(&name("node1"), &pre("2/pre/1"), None)).await;
    let (reason, _) = not_reached(&report);
    assert_eq!(reason, "no answer to a ping within 1500 ms; reconnecting: no answer within 1500 ms");
    // Silent before: only a probe is waited for.
    let start = Instant::now();
    let mut again = pre("2/pre/2");
    again.probe = true;
    let report = within(registry.run_hooks(&name("node1"), &again, None)).await;
    let (reason, _) = not_reached(&report);
    assert!(reason.contains("within 1500 ms"), "{reason}");
    assert!(start.elapsed() < Duration::from_millis(2900), "one limit: {:?}", start.elapsed());
    assert_eq!(node.calls(), ["hello", "run_hooks 1/pre/1"]);
}

#[tokio::test]
async fn a_node_found_silent_is_waited_for_again_once_a_probe_answers() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.finish();
    let (registry, _) = registry(&socket, patient());
    let mut run = pre("1/pre/1");
    let silent = within(registry.run_hooks(&name("node1"), &run, None)).await;
    assert!(not_reached(&silent).0.contains("no such socket"), "{silent:?}");
    let _serving = node.serve(&socket);
    run.probe = true;
    let report = within(registry.run_hooks(&name("node1"), &run, None)).await;
    assert_eq!(answered(&report).failure, None);
}

#[tokio::test]
async fn a_greeting_without_answer_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.hang("hello");
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, short());
    let error = within(registry.local().hello(false)).await.unwrap_err();
    assert_eq!(error, CallError::NotReached("no answer to the greeting within 3 s".to_owned()));
}

#[tokio::test]
async fn the_end_of_a_job_has_a_limit_of_its_own() {
    let Limits { unary, end_job, .. } = Limits::default();
    assert!(unary > Duration::from_secs(12), "a node may take 12 s");
    assert!(unary < end_job && end_job <= Duration::from_secs(20));

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    node.hang("end_job");
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, Limits { end_job: Duration::from_millis(500), ..patient() });
    let start = Instant::now();
    let error = within(registry.end_job(&name("node1"), 4, &[])).await.unwrap_err();
    assert_eq!(error, CallError::NotReached("the job's runs did not end within 500 ms".to_owned()));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
