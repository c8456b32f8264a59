//! What a job's undo could not do is made good before another job builds on it.

use muster_core::{
    calls::{Call, CallAnswer, NodeCall, Output},
    engine::{Effect, Engine, Input, Now, Outcome, Phase},
    hooks::{HookResult, NodeAnswer, NodeReport},
    names::InstanceName,
    ops::{InstanceFailover, InstanceStart, Op, examples},
};

/// Runs an operation to its end; hooks allow all, `answer` answers the calls. Returns the calls in order.
pub(crate) fn run(engine: &mut Engine, id: u64, op: Op, answer: impl Fn(&Call) -> CallAnswer) -> Vec<Call> {
    let submission = examples::submission(id, op);
    let mut calls = Vec::new();
    let mut effects = engine.handle(Input::Submit(Box::new(submission)), Now::default()).effects;
    while !effects.is_empty() {
        let input = match effects.remove(0) {
            Effect::RunHooks(call) => {
                let answer = NodeAnswer::Answered(HookResult::default());
                Input::HooksAnswered(call.id, NodeReport { node: call.node, answer, duration_ms: 1 })
            }
            Effect::Execute { id, call } | Effect::ExecuteAfter { id, call, .. } => {
                calls.push(call.clone());
                Input::CallAnswered(id, answer(&call))
            }
            Effect::EndJob { .. } | Effect::StopCall { .. } => continue,
        };
        effects.extend(engine.handle(input, Now::default()).effects);
    }
    calls
}

pub(crate) fn outcome(engine: &Engine, id: u64) -> &Outcome {
    let Phase::Done { outcome, .. } = &engine.job(id).expect("the job was submitted").phase else {
        panic!("job {id} is not over")
    };
    outcome
}

fn done() -> CallAnswer {
    CallAnswer::Done(Output::default())
}

fn silent() -> CallAnswer {
    CallAnswer::NotReached("connection refused".to_owned())
}

#[test]
fn a_start_first_stops_the_guest_where_an_undo_left_it() {
    let cluster = examples::cluster();
    let instance = InstanceName::parse("mail1").unwrap();
    let mail1 = &cluster.instances[&instance];
    let (old, new) = (mail1.primary.clone(), mail1.secondaries()[0].clone());
    let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
    // The new primary dies while it starts the guest: neither the start's end nor its undo is known.
    let failover = InstanceFailover { instance: instance.clone(), ignore_consistency: true, fenced: false };
    let new_is_silent = |call: &Call| if call.node() == Some(&new) { silent() } else { done() };
    run(&mut engine, 1, Op::InstanceFailover(failover), new_is_silent);
    assert!(matches!(outcome(&engine, 1), Outcome::Error(_)));
    assert!(engine.job(1).unwrap().failed_undos.iter().all(|undo| !undo.made_good));

    let start = || Op::InstanceStart(InstanceStart { instance: instance.clone(), force: false });
    let is_start =
        |call: &Call| matches!(call, Call::Node(node, NodeCall::GuestStart { .. }) if *node == old);
    let calls = run(&mut engine, 2, start(), new_is_silent);
    assert!(!calls.iter().any(is_start), "it may still run on {new}: {calls:?}");
    assert!(matches!(outcome(&engine, 2), Outcome::Error(_)));

    // The same after a restart of the master: the records say it.
    let jobs = engine.jobs().cloned().collect();
    let (mut engine, _) =
        Engine::recover(old.clone(), engine.cluster().cloned(), jobs, false, Now::default());
    let calls = run(&mut engine, 3, start(), |_| done());
    let stop = calls
        .iter()
        .position(|call| matches!(call, Call::Node(node, NodeCall::GuestStop { .. }) if *node == new));
    assert!(stop.is_some() && stop < calls.iter().position(is_start), "{calls:?}");
    assert_eq!(*outcome(&engine, 3), Outcome::Success);
    let left = engine.job(1).unwrap().failed_undos.iter().filter(|undo| !undo.made_good).count();
    assert_eq!(left, 0, "the start on {old} has made good the undo that was held back, too");

    let calls = run(&mut engine, 4, start(), |_| done());
    assert_eq!(calls.len(), 1, "nothing is left to make good: {calls:?}");
}
