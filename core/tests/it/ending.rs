//! Laws of a job's end: scripts hear of every end once, whatever happened, and hold nobody's locks meanwhile.

use std::collections::BTreeSet;

use muster_core::{
    calls::Call,
    engine::{END_STEP, ErrorKind, HooksCall, Input, Outcome, Phase as JobPhase},
    hooks::Phase,
    ops::StepKind,
};

use crate::drive::{CALL_FAULTS, Case, Drive, Faults, HookFault, Interrupt, JOB, cases};

const INTERRUPTS: [Interrupt; 6] = [
    Interrupt::Restart,
    Interrupt::RestartOften,
    Interrupt::Cancel,
    Interrupt::CancelAndRestart,
    Interrupt::Kill,
    Interrupt::KillAndRestart,
];

/// Runs of `global-post.d`.
fn global_posts(drive: &Drive) -> Vec<&HooksCall> {
    let is_post = |call: &&HooksCall| call.global.as_ref().is_some_and(|global| global.phase == Phase::Post);
    drive.hook_runs.iter().filter(is_post).collect()
}

fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Success => "success",
        Outcome::Canceled => "canceled",
        Outcome::Error(error) if error.kind == ErrorKind::Interrupted => "disappeared",
        Outcome::Error(_) => "error",
    }
}

/// The law: one run, on the master's node, with the status that the job has.
fn told_once(case: &Case, drive: &Drive, of: &str) {
    let runs = global_posts(drive);
    assert_eq!(runs.len(), 1, "{}: {of}: {:?}", case.name, drive.outcome());
    let run = runs[0];
    assert_eq!(run.node, case.local, "{}: {of}", case.name);
    assert_eq!(run.env.get("POST_STATUS"), Some(status(drive.outcome())), "{}: {of}", case.name);
    for name in ["JOB_STARTED", "JOB_ENDED", "POST_NODES_COUNT", "OP_ID", "JOB_ID", "OP_TARGET"] {
        assert!(run.env.get(name).is_some(), "{}: {of}: {name}", case.name);
    }
    assert!(run.files.contains_key("POST_NODES_PATH"));
    let has_error = matches!(drive.outcome(), Outcome::Error(_));
    assert_eq!(run.files.contains_key("ERROR_MESSAGE_PATH"), has_error, "{}: {of}", case.name);
    assert_eq!(drive.engine.locks().holders().count(), 0, "{}: {of}", case.name);
}

#[test]
fn global_post_runs_once_whatever_is_interrupted_and_where() {
    let mut ends = 0;
    for case in cases() {
        for interrupt in INTERRUPTS {
            for point in 0.. {
                let faults = Faults { interrupt: Some((point, interrupt)), ..Faults::default() };
                let drive = Drive::run(&case, faults);
                if !drive.interrupted {
                    break;
                }
                // Killed while its end was told: what was not begun then never begins.
                if drive.killed_in == Some("end-hooks") && drive.cancel_refused.is_none() {
                    assert!(global_posts(&drive).len() <= 1, "{}: {interrupt:?} {point}", case.name);
                    continue;
                }
                told_once(&case, &drive, &format!("{interrupt:?} at {point}"));
                ends += 1;
            }
        }
    }
    assert!(ends > 1_000, "only {ends} ends");
}

#[test]
fn global_post_runs_once_whatever_fails() {
    let mut statuses = BTreeSet::new();
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        told_once(&case, &plain, "nothing fails");
        told_once(&case, &Drive::run(&case, Faults { dry_run: true, ..Faults::default() }), "a dry run");
        for node in plain.prepared().nodes.pre.iter().chain([&case.local]) {
            for fault in [HookFault::Deny, HookFault::CannotRun, HookFault::Unreachable, HookFault::LostOnce]
            {
                let hooks = [((node.clone(), Phase::Pre), fault)].into();
                let drive = Drive::run(&case, Faults { hooks, ..Faults::default() });
                told_once(&case, &drive, &format!("{fault:?} on {node}"));
                statuses.insert(status(drive.outcome()));
            }
        }
        for step in 0..plain.prepared().plan.steps.len() {
            for fault in CALL_FAULTS {
                let calls = [(step.to_string(), fault)].into();
                let drive = Drive::run(&case, Faults { calls, ..Faults::default() });
                told_once(&case, &drive, &format!("{fault:?} in step {step}"));
            }
        }
    }
    assert_eq!(statuses, ["error", "success"].into());
}

#[test]
fn those_that_were_asked_hear_of_a_failure_and_nobody_of_a_success() {
    let mut told = 0;
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        assert!(plain.hook_runs.iter().all(|call| call.phase != Phase::Failed), "{}", case.name);
        let prepared = plain.prepared();
        let undoable = prepared.plan.steps.iter().position(|step| {
            matches!(step.kind, StepKind::Undoable { .. }) && matches!(step.call, Call::Node(..))
        });
        let Some(step) = undoable.filter(|_| prepared.hook_prefix.is_some()) else { continue };
        let calls = [(step.to_string(), CALL_FAULTS[1])].into();
        let drive = Drive::run(&case, Faults { calls, ..Faults::default() });
        let failed: Vec<_> = drive.hook_runs.iter().filter(|call| call.phase == Phase::Failed).collect();
        let nodes: Vec<_> = failed.iter().map(|call| &call.node).collect();
        assert_eq!(nodes, prepared.nodes.pre.iter().collect::<Vec<_>>(), "{}", case.name);
        for call in failed {
            assert_eq!(Some(&call.prefix), prepared.hook_prefix.as_ref());
            assert_eq!(call.env.get("HOOKS_PHASE"), Some("FAILED"));
            assert!(call.files["ERROR_MESSAGE_PATH"].contains("as the law wants"), "{:?}", call.files);
            let node = prepared.plan.steps[step].call.node().unwrap().as_str();
            assert!(call.files["POST_NODES_PATH"].lines().any(|line| line == node), "{:?}", call.files);
            told += 1;
        }
    }
    assert!(told > 10, "only {told}");
}

#[test]
fn a_job_that_is_refused_or_never_began_is_told_too() {
    let case = cases().into_iter().find(|case| case.name.contains("OP_INSTANCE_START")).unwrap();
    let mut drive = Drive::new(&case, Faults::default());
    drive.engine.set_paused(true);
    drive.submit(JOB, case.op.clone(), case.fresh.clone());
    drive.handle(Input::Cancel(JOB));
    // Over for those who wait, before the scripts were told.
    assert!(drive.job().over() && !drive.job().done());
    drive.perform_all();
    assert_eq!(drive.outcome(), &Outcome::Canceled);
    let runs = global_posts(&drive);
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].env.get("POST_STATUS"), runs[0].env.get("JOB_STARTED")), (Some("canceled"), None));

    let mut away = case.clone();
    away.cluster.as_mut().unwrap().instances.clear();
    let drive = Drive::run(&away, Faults::default());
    let Outcome::Error(error) = drive.outcome() else { panic!("{:?}", drive.outcome()) };
    assert_eq!(error.kind, ErrorKind::Refused);
    let runs = global_posts(&drive);
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].env.get("POST_STATUS"), Some("error"));
    assert!(runs[0].files["ERROR_MESSAGE_PATH"].contains("there is no instance"));
}

#[test]
fn locks_are_free_while_an_end_is_told() {
    let case = cases().into_iter().find(|case| case.name.contains("OP_INSTANCE_START")).unwrap();
    let mut drive = Drive::new(&case, Faults::default());
    drive.submit(JOB, case.op.clone(), case.fresh.clone());
    while !matches!(drive.job().phase, JobPhase::Ending { .. }) {
        assert!(drive.perform_one(), "the job is told of before it is done");
    }
    assert_eq!(drive.engine.locks().holders().count(), 0);
    assert!(!drive.job().over(), "those who wait are told after it");
    assert!(drive.engine.kill_refused(JOB).is_none() && drive.engine.cancel_refused(JOB).is_some());
    drive.handle(Input::Kill(JOB));
    assert!(drive.job().done());
    assert_eq!(drive.outcome(), &Outcome::Success);
}

#[test]
fn without_a_global_directory_an_end_costs_no_call() {
    for case in cases() {
        let drive = Drive::run(&case, Faults { no_global_post: true, ..Faults::default() });
        let told = drive.hook_runs.iter().filter(|call| call.id.step == END_STEP).count();
        // One that asks nobody before can't know it.
        assert_eq!(told, usize::from(!case.op.asks_global_scripts()), "{}", case.name);
        assert!(drive.job().done());
    }
}
