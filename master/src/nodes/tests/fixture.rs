//! Registries, calls and results that the tests share.

use std::{
    future::Future,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use muster_core::{
    calls::AliveJobs,
    hooks::{Env, HookPolicy, HookResult, NodeAnswer, NodeReport, Phase, ScriptOutcome},
    names::NodeName,
};
use muster_proto::{transport::Keepalive, v1};
use uuid::Uuid;

use super::super::{Limits, NodeRegistry, Office, RunHooks, Settings};

/// No wait of a test takes longer; a test that gets here has failed.
const TEST_LIMIT: Duration = Duration::from_secs(30);
pub(super) const CLUSTER: &str = "00000000-0000-0000-0000-0000000000c1";

pub(super) fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

pub(super) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_LIMIT, work).await.expect("the test's limit has passed")
}

/// Short limits, so that silence is found out quickly; long enough for one that answers on a busy machine.
pub(super) fn short() -> Limits {
    Limits {
        connect: Duration::from_millis(1500),
        hello: Duration::from_secs(3),
        probe: Duration::from_millis(1500),
        fresh: Duration::ZERO,
        keepalive: Keepalive { interval: Duration::from_millis(100), limit: Duration::from_millis(1500) },
        reconnect: Duration::from_secs(2),
        facts: Duration::from_millis(300),
        unary: Duration::from_secs(2),
        end_job: Duration::from_secs(10),
        watch_pause: (Duration::from_millis(50), Duration::from_millis(200)),
    }
}

/// The real limits where all goes well, so that a busy machine fails no test; only pauses are short.
pub(super) fn patient() -> Limits {
    let watch_pause = (Duration::from_millis(50), Duration::from_millis(200));
    Limits { fresh: Duration::ZERO, watch_pause, ..Limits::default() }
}

/// A registry on `node1`, and the reasons for which its office was lost.
pub(super) fn registry(socket: &Path, limits: Limits) -> (NodeRegistry, Arc<Mutex<Vec<String>>>) {
    let lost = Arc::new(Mutex::new(Vec::new()));
    let reasons = lost.clone();
    let registry = NodeRegistry::new(Settings {
        local: name("node1"),
        local_socket: socket.to_owned(),
        version: "1.2.3".to_owned(),
        limits,
        alive_jobs: Arc::new(|| AliveJobs { all: [17, 18].into(), ending: [18].into() }),
        guests: Arc::new(|| vec![(Uuid::from_u128(101), 3), (Uuid::from_u128(102), 0)]),
        office_lost: Arc::new(move |reason| reasons.lock().unwrap().push(reason)),
        host_told: Arc::new(|_, _| {}),
    });
    registry.set_office(Office { cluster: Some(CLUSTER.parse().unwrap()), epoch: 3, serial: 7 });
    (registry, lost)
}

pub(super) fn pre(call_id: &str) -> RunHooks {
    RunHooks {
        call_id: call_id.to_owned(),
        job: 17,
        phase: Phase::Pre,
        prefix: "node-add".to_owned(),
        env: Env::new().set("CLUSTER", "dev"),
        policy: HookPolicy::default(),
        probe: false,
        global: None,
        files: Default::default(),
    }
}

pub(super) fn facts(serial: u64) -> v1::Facts {
    v1::Facts { serial, ..v1::Facts::default() }
}

/// The result of a node that answered.
pub(super) fn answered(report: &NodeReport) -> &HookResult {
    match &report.answer {
        NodeAnswer::Answered(result) => result,
        other @ (NodeAnswer::NotReached { .. } | NodeAnswer::Lost) => panic!("not answered: {other:?}"),
    }
}

/// The reason and the scripts of a node that was not reached.
pub(super) fn not_reached(report: &NodeReport) -> (&str, Vec<(String, ScriptOutcome)>) {
    match &report.answer {
        NodeAnswer::NotReached { why, partial } => (&why.reason, outcomes(partial)),
        other @ (NodeAnswer::Answered(_) | NodeAnswer::Lost) => panic!("reached: {other:?}"),
    }
}

pub(super) fn outcomes(result: &HookResult) -> Vec<(String, ScriptOutcome)> {
    result.scripts.iter().map(|script| (script.name.clone(), script.outcome.clone())).collect()
}
