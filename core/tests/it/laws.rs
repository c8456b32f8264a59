//! Laws of hooks, steps, undo and cleanups, on every example of every operation.

use muster_core::{
    engine::{ErrorKind, Input, Outcome},
    hooks::{HooksVersion, Phase},
    names::NodeName,
    ops::StepKind,
};

use crate::drive::{CALL_FAULTS, CallFault, Case, Drive, Faults, HookFault, cases};

fn hook_fault(node: &NodeName, phase: Phase, fault: HookFault) -> Faults {
    Faults { hooks: [((node.clone(), phase), fault)].into(), ..Faults::default() }
}

fn call_fault(step: impl ToString, fault: CallFault) -> Faults {
    Faults { calls: [(step.to_string(), fault)].into(), ..Faults::default() }
}

fn error_kind(drive: &Drive) -> ErrorKind {
    match drive.outcome() {
        Outcome::Error(error) => error.kind,
        other @ (Outcome::Success | Outcome::Canceled) => panic!("{}: {other:?}", drive.case.name),
    }
}

/// Each case with the nodes of its sets.
fn each_pre_node(mut law: impl FnMut(&Case, &NodeName)) {
    let mut asked = 0;
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        for node in &plain.prepared().nodes.pre {
            law(&case, node);
            asked += 1;
        }
    }
    assert!(asked > 50, "only {asked} nodes were asked");
}

#[test]
fn an_operation_does_what_it_says_and_leaves_nothing_else() {
    for case in cases() {
        let drive = Drive::run(&case, Faults::default());
        drive.assert_done();
        assert!(
            drive.warnings() == drive.prepared().plan.warnings || case.name.contains("OFFLINE"),
            "{}: {:?}",
            case.name,
            drive.warnings()
        );
    }
}

#[test]
fn e4_e5_each_node_runs_its_scripts_once_a_phase_in_the_same_environment() {
    for case in cases() {
        let drive = Drive::run(&case, Faults::default());
        let prepared = drive.prepared();
        for (phase, nodes) in [(Phase::Pre, &prepared.nodes.pre), (Phase::Post, &prepared.nodes.post)] {
            let own = drive.hook_runs.iter().filter(|call| call.phase == phase && !call.prefix.is_empty());
            let ran: Vec<&NodeName> = own.map(|call| &call.node).collect();
            assert_eq!(ran, nodes.iter().collect::<Vec<_>>(), "{} {phase:?}", case.name);
        }
        for call in drive.hook_runs.iter().filter(|call| !call.prefix.is_empty()) {
            assert_eq!(
                call.env.get("HOOKS_PHASE"),
                Some(call.policy.version.phase(call.phase)),
                "{}",
                case.name
            );
            let told_after = ["JOB_STARTED", "JOB_ENDED", "POST_NODES_COUNT"];
            let is_told = call.policy.version == HooksVersion::V2 && call.phase == Phase::Post;
            for name in told_after {
                assert_eq!(call.env.get(name).is_some(), is_told, "{}: {name}", case.name);
            }
            let differs = |name: &str| ["HOOKS_PHASE", "MASTER"].contains(&name);
            let own = call.env.iter().filter(|(name, _)| !told_after.contains(name));
            for (name, value) in own.filter(|(name, _)| !differs(name)) {
                assert_eq!(prepared.env.get(name), Some(value), "{}", case.name);
            }
        }
    }
}

#[test]
fn e4_in_version_2_post_scripts_see_the_state_before_and_after() {
    for mut case in cases() {
        let Some(cluster) = &mut case.cluster else { continue };
        cluster.hooks.version = HooksVersion::V2;
        let drive = Drive::run(&case, Faults::default());
        let prepared = drive.prepared();
        let own: Vec<_> = drive.hook_runs.iter().filter(|call| !call.prefix.is_empty()).collect();
        assert_eq!(own.len(), prepared.nodes.pre.len() + prepared.nodes.post.len(), "{}", case.name);
        for call in own {
            assert_eq!(
                call.env.get("HOOKS_PHASE"),
                Some(HooksVersion::V2.phase(call.phase)),
                "{}",
                case.name
            );
            let is_post = call.phase == Phase::Post;
            for (name, value) in prepared.env_post.iter() {
                assert_eq!(call.env.get(name), Some(value).filter(|_| is_post), "{}: {name}", case.name);
            }
            for (name, value) in prepared.env.iter().filter(|(name, _)| *name != "MASTER") {
                assert_eq!(call.env.get(name), Some(value), "{}: {name}", case.name);
            }
        }
    }
}

#[test]
fn r1_one_nodes_objection_denies_and_nothing_changes() {
    each_pre_node(|case, node| {
        for fault in [HookFault::Deny, HookFault::CannotRun] {
            let drive = Drive::run(case, hook_fault(node, Phase::Pre, fault));
            let Outcome::Error(error) = drive.outcome() else {
                panic!("{}: {node} was not heard", case.name)
            };
            assert_eq!(error.kind, ErrorKind::Denied);
            assert!(error.objections.iter().all(|objection| objection.node == *node), "{}", case.name);
            assert!(drive.calls.is_empty(), "{}: steps ran", case.name);
            drive.assert_unchanged();
        }
    });
}

#[test]
fn r3_r5_a_silent_node_denies_nothing_but_the_masters_own() {
    each_pre_node(|case, node| {
        let drive = Drive::run(case, hook_fault(node, Phase::Pre, HookFault::Unreachable));
        if *node == case.local {
            assert_eq!(error_kind(&drive), ErrorKind::Failed, "{}", case.name);
            drive.assert_unchanged();
        } else {
            drive.assert_done();
            assert!(
                drive.warnings().iter().any(|line| line.contains(node.as_str())),
                "{}: {node}",
                case.name
            );
        }
    });
}

#[test]
fn r7_post_changes_no_result() {
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        for node in &plain.prepared().nodes.post {
            for fault in [HookFault::Deny, HookFault::Unreachable] {
                let drive = Drive::run(&case, hook_fault(node, Phase::Post, fault));
                drive.assert_done();
                assert_eq!(drive.world, plain.world);
                assert!(
                    drive.warnings().iter().any(|line| line.contains(node.as_str())),
                    "{}: {node}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn r8_a_lost_pre_run_is_repeated_with_the_same_environment() {
    each_pre_node(|case, node| {
        let drive = Drive::run(case, hook_fault(node, Phase::Pre, HookFault::LostOnce));
        drive.assert_done();
        let runs: Vec<_> =
            drive.hook_runs.iter().filter(|call| call.node == *node && call.phase == Phase::Pre).collect();
        assert_eq!(runs.len(), 2, "{}", case.name);
        assert_eq!(runs[0].env, runs[1].env);
    });
}

#[test]
fn a_failure_before_the_first_final_step_leaves_everything_as_it_was() {
    for case in cases() {
        let plan = Drive::run(&case, Faults::default()).prepared().plan.clone();
        for (index, step) in plan.steps.iter().enumerate() {
            for fault in CALL_FAULTS {
                let drive = Drive::run(&case, call_fault(index, fault));
                let half_done = matches!(fault, CallFault::FailAfter | CallFault::SilentAfter);
                match step.kind {
                    StepKind::Undoable { .. } | StepKind::Harmless | StepKind::Relies { .. } => {
                        assert_eq!(error_kind(&drive), ErrorKind::Failed, "{} step {index}", case.name);
                        drive.assert_unchanged();
                    }
                    StepKind::Final if !half_done => {
                        assert_eq!(error_kind(&drive), ErrorKind::Failed, "{} step {index}", case.name);
                        drive.assert_unchanged();
                    }
                    StepKind::Optional { .. } | StepKind::Kept if !half_done => {
                        assert_eq!(drive.outcome(), &Outcome::Success, "{} step {index}", case.name);
                        assert!(
                            drive.warnings().iter().any(|line| line.contains("left out")),
                            "{}",
                            case.name
                        );
                    }
                    // What such a step did half is not undone.
                    StepKind::Final | StepKind::Optional { .. } | StepKind::Kept => {}
                }
            }
        }
    }
}

#[test]
fn an_undo_that_fails_is_recorded_and_the_undoing_goes_on() {
    for case in cases() {
        let plan = Drive::run(&case, Faults::default()).prepared().plan.clone();
        let undoable: Vec<usize> = (0..plan.steps.len())
            .filter(|index| matches!(plan.steps[*index].kind, StepKind::Undoable { .. }))
            .collect();
        let Some(last) = undoable.last() else { continue };
        for broken in &undoable {
            let mut faults = call_fault(last, CallFault::FailAfter);
            faults.calls.insert(format!("undo-{broken}"), CallFault::FailBefore);
            let drive = Drive::run(&case, faults);
            assert_eq!(error_kind(&drive), ErrorKind::Failed);
            assert_eq!(drive.engine.cluster(), case.cluster.as_ref(), "{}", case.name);
            // More than one where an earlier step's undo needs the broken one: a guest that still runs on one node is
            // not started on another.
            assert!(!drive.job().failed_undos.is_empty(), "{}", case.name);
            let undone = drive.calls.iter().filter(|(step, _)| step.starts_with("undo-")).count();
            let kept_back = drive.job().failed_undos.len() - 1;
            assert_eq!(undone, undoable.len() - kept_back, "{}: all others are tried", case.name);
            let doubled = drive
                .job()
                .failed_undos
                .iter()
                .skip(1)
                .all(|failed| failed.call.unsafe_after(&drive.job().failed_undos[0].call));
            assert!(doubled, "{}: only what would run a guest twice is kept back", case.name);
        }
    }
}

#[test]
fn a_call_that_comes_twice_changes_nothing_more() {
    for case in cases() {
        let once = Drive::run(&case, Faults::default());
        let twice = Drive::run(&case, Faults { twice: true, ..Faults::default() });
        twice.assert_done();
        assert_eq!(
            (&once.world, once.engine.cluster()),
            (&twice.world, twice.engine.cluster()),
            "{}",
            case.name
        );
    }
}

#[test]
fn a_cleanup_that_fails_is_kept_and_tried_again() {
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        let cleanups = plain.prepared().plan.cleanups.clone();
        for (index, (call, once)) in cleanups.iter().enumerate() {
            let away = case.cluster.as_ref().zip(call.node()).and_then(|(c, node)| c.nodes.get(node));
            if away.is_some_and(|node| node.offline) {
                continue;
            }
            for fault in CALL_FAULTS {
                let mut drive = Drive::run(&case, call_fault(format!("clean-{index}"), fault));
                drive.assert_done();
                let kept = drive.engine.cluster().map_or(0, |cluster| cluster.cleanups.len());
                let kept_else = plain.engine.cluster().map_or(0, |cluster| cluster.cleanups.len());
                assert_eq!(kept - kept_else, usize::from(!once), "{} cleanup {index}", case.name);
                drive.handle(Input::Retry);
                drive.finish();
                if !once {
                    assert_eq!(drive.world, plain.world, "{} cleanup {index}", case.name);
                }
                let left = drive.engine.cluster().map_or(0, |cluster| cluster.cleanups.len());
                assert_eq!(left, kept_else, "{}", case.name);
            }
        }
    }
}

#[test]
fn a_dry_run_asks_the_scripts_and_changes_nothing() {
    for case in cases() {
        let drive = Drive::run(&case, Faults { dry_run: true, ..Faults::default() });
        assert_eq!(drive.outcome(), &Outcome::Success, "{}", case.name);
        assert!(drive.calls.is_empty());
        drive.assert_unchanged();
        for call in &drive.hook_runs {
            assert_eq!(call.env.get("DRY_RUN"), Some("True"));
        }
    }
}

#[test]
fn r6_no_call_and_no_script_goes_to_a_node_marked_offline() {
    let mut checked = 0;
    for case in cases() {
        let drive = Drive::run(&case, Faults::default());
        let nodes = case.cluster.iter().flat_map(|cluster| cluster.nodes.values());
        for node in nodes.filter(|node| node.offline) {
            // One that is added again is not offline any more.
            if drive.engine.cluster().and_then(|c| c.nodes.get(&node.name)).is_some_and(|node| !node.offline)
            {
                continue;
            }
            assert!(drive.hook_runs.iter().all(|call| call.node != node.name), "{}", case.name);
            assert!(drive.calls.iter().all(|(_, call)| call.node() != Some(&node.name)), "{}", case.name);
            checked += 1;
        }
    }
    assert!(checked > 5, "only {checked}");
}
