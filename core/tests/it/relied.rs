//! A failover asks the primary what its mirrors do: a copy that can't be relied on fails it, and is stale from then on.

use std::cell::Cell;

use muster_core::{
    calls::{Call, CallAnswer, MirrorCall, MirrorStatus, NodeCall, Output, Sync},
    engine::{Engine, Outcome},
    model::CopyState,
    names::InstanceName,
    ops::{InstanceFailover, InstanceShutdown, Op, examples},
};

use crate::undone::{outcome, run};

/// Answers calls; the mirrors of the second disk break off before this question of the failover.
fn answer(call: &Call, asked: &Cell<usize>, breaks_before: usize) -> CallAnswer {
    let Call::Node(_, NodeCall::Mirror(MirrorCall::Check { copies, .. })) = call else {
        return CallAnswer::Done(Output::default());
    };
    asked.set(asked.get() + 1);
    let mut mirrors: std::collections::BTreeMap<_, _> =
        copies.iter().map(|copy| (*copy, MirrorStatus::Ready)).collect();
    if asked.get() >= breaks_before {
        mirrors.insert(copies[1], MirrorStatus::Broken);
    }
    CallAnswer::Done(Output { mirrors, ..Output::default() })
}

#[test]
fn a_failover_does_not_go_on_from_a_copy_whose_mirror_broke_off() {
    let name = InstanceName::parse("mail1").unwrap();
    for (breaks_before, calls_expected) in [
        (1, vec!["ask what the mirrors do"]),
        // While it shuts down: it goes on where it was.
        (2, vec!["ask what the mirrors do", "stop mail1", "ask what the mirrors do", "start mail1"]),
    ] {
        let cluster = examples::in_sync("mail1");
        let before = cluster.instances[&name].clone();
        let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
        let failover = |ignore_consistency: bool| {
            let instance = name.clone();
            Op::InstanceFailover(InstanceFailover { instance, ignore_consistency, fenced: false })
        };
        let asked = Cell::new(0);
        let calls = run(&mut engine, 1, failover(false), |call| answer(call, &asked, breaks_before));
        let texts: Vec<String> = calls.iter().map(Call::text).collect();
        assert_eq!(texts, calls_expected);
        assert!(calls.iter().all(|call| call.node() == Some(&before.primary)), "{calls:?}");
        let Outcome::Error(error) = outcome(&engine, 1) else { panic!("{:?}", outcome(&engine, 1)) };
        let expected = "the copy of sdb on node3 misses writes: its mirror broke off (wait until";
        assert!(error.message.starts_with(expected), "{}", error.message);

        let after = &engine.cluster().unwrap().instances[&name];
        let states = after.disks.iter().map(|disk| disk.mirrors[0].state);
        assert!(states.eq([CopyState::Consistent, CopyState::Stale]), "{after:?}");
        assert_eq!((&after.primary, after.generation), (&before.primary, before.generation));

        // The next one is refused at once, and goes on all the same where it is told to.
        assert!(run(&mut engine, 2, failover(false), |call| answer(call, &asked, 0)).is_empty());
        run(&mut engine, 3, failover(true), |call| answer(call, &asked, 0));
        assert_eq!(outcome(&engine, 3), &Outcome::Success);
        assert_ne!(engine.cluster().unwrap().instances[&name].primary, before.primary);
    }
}

/// Answers calls; what served the second disk's copy has ended.
fn answer_of_server(call: &Call) -> CallAnswer {
    let Call::Node(_, NodeCall::Mirror(MirrorCall::Served { copies, .. })) = call else {
        return CallAnswer::Done(Output::default());
    };
    let mirrors = [(copies[0], MirrorStatus::Ready), (copies[1], MirrorStatus::Broken)].into();
    CallAnswer::Done(Output { mirrors, ..Output::default() })
}

fn states(engine: &Engine, name: &InstanceName) -> Vec<CopyState> {
    let cluster = engine.cluster().expect("there is one");
    cluster.instances[name].disks.iter().map(|disk| disk.mirrors[0].state).collect()
}

#[test]
fn a_failover_from_a_node_that_is_away_does_not_go_on_from_a_copy_that_nobody_served() {
    let name = InstanceName::parse("mail1").unwrap();
    let failover = |ignore_consistency: bool, fenced: bool| {
        let instance = name.clone();
        Op::InstanceFailover(InstanceFailover { instance, ignore_consistency, fenced })
    };
    for fenced in [true, false] {
        let cluster = examples::fenced("mail1");
        let before = cluster.instances[&name].clone();
        let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
        let calls = run(&mut engine, 1, failover(false, fenced), answer_of_server);
        let texts: Vec<String> = calls.iter().map(Call::text).collect();
        assert_eq!(texts, ["ask whether copies are still served to node2"], "nobody is fenced in vain");
        assert_eq!(calls[0].node(), Some(&before.secondaries()[0]));
        let Outcome::Error(error) = outcome(&engine, 1) else { panic!("{:?}", outcome(&engine, 1)) };
        assert!(error.message.starts_with("the copy of sdb on node3 may miss writes: "), "{}", error.message);
        assert!(error.message.contains("--ignore-consistency"), "{}", error.message);
        assert_eq!(states(&engine, &name), [CopyState::Consistent, CopyState::Stale]);
        assert_eq!(engine.cluster().unwrap().instances[&name].primary, before.primary);
        run(&mut engine, 2, failover(true, fenced), answer_of_server);
        assert_eq!(outcome(&engine, 2), &Outcome::Success);
        assert_ne!(engine.cluster().unwrap().instances[&name].primary, before.primary);
    }
}

#[test]
fn the_copies_of_a_guest_that_is_marked_down_unasked_are_what_their_node_vouches_for() {
    let name = InstanceName::parse("mail1").unwrap();
    let shutdown = || {
        let instance = name.clone();
        Op::InstanceShutdown(InstanceShutdown { instance, timeout_s: None, fenced: true })
    };
    let (consistent, stale) = (CopyState::Consistent, CopyState::Stale);
    let mut engine = Engine::new(examples::fenced("mail1").master, Some(examples::fenced("mail1")));
    run(&mut engine, 1, shutdown(), answer_of_server);
    assert_eq!(outcome(&engine, 1), &Outcome::Success);
    assert_eq!(states(&engine, &name), [consistent, stale]);
    assert!(!engine.cluster().unwrap().instances[&name].up);

    // Nobody can say anything.
    let mut dark = examples::fenced("mail1");
    for node in dark.nodes.values_mut().filter(|node| node.name != dark.master) {
        node.offline = true;
    }
    let mut engine = Engine::new(dark.master.clone(), Some(dark));
    assert!(run(&mut engine, 1, shutdown(), answer_of_server).is_empty());
    assert_eq!(states(&engine, &name), [stale, stale]);

    let mut silent = Engine::new(examples::fenced("mail1").master, Some(examples::fenced("mail1")));
    run(&mut silent, 1, shutdown(), |_| CallAnswer::NotReached("it is away".to_owned()));
    assert_eq!(outcome(&silent, 1), &Outcome::Success);
    assert_eq!(states(&silent, &name), [stale, stale]);
}

#[test]
fn a_copy_that_misses_no_write_is_not_taken_for_the_same() {
    let cluster = examples::in_sync("mail1");
    let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
    let instance = InstanceName::parse("mail1").unwrap();
    let failover =
        Op::InstanceFailover(InstanceFailover { instance, ignore_consistency: false, fenced: false });
    // The guest has crashed: its mirror was ready, and a write that had no answer may be in one file alone.
    let asked = Cell::new(0);
    let calls = run(&mut engine, 1, failover, |call| match call {
        Call::Node(_, NodeCall::Mirror(MirrorCall::Clean { .. })) => {
            CallAnswer::Failed("it crashed".to_owned())
        }
        Call::Node(..) | Call::Master(_) => answer(call, &asked, usize::MAX),
    });
    assert_eq!(outcome(&engine, 1), &Outcome::Success);
    let syncs: Vec<Sync> = calls
        .iter()
        .filter_map(|call| match call {
            Call::Node(_, NodeCall::Mirror(MirrorCall::Start { sync, .. })) => Some(*sync),
            Call::Node(..) | Call::Master(_) => None,
        })
        .collect();
    assert_eq!(syncs, [Sync::Unproven], "the node refuses it, and the keeper copies the whole disk");
}
