//! A failover asks the primary what its mirrors do: a copy that can't be relied on fails it, and is stale from then on.

use std::cell::Cell;

use muster_core::{
    calls::{Call, CallAnswer, MirrorCall, MirrorStatus, NodeCall, Output},
    engine::{Engine, Outcome},
    model::CopyState,
    names::InstanceName,
    ops::{InstanceFailover, Op, examples},
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
