//! The master dies at every point and goes on from its records: the end is the same.

use muster_core::{
    engine::{ErrorKind, Outcome},
    hooks::Phase,
    ops::StepKind,
};

use crate::drive::{CallFault, Drive, Faults, Interrupt, cases};

#[test]
fn a_restart_at_every_point_gives_the_same_end() {
    let mut restarts = 0;
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        for point in 0.. {
            let faults = Faults { interrupt: Some((point, Interrupt::Restart)), ..Faults::default() };
            let drive = Drive::run(&case, faults);
            if !drive.interrupted {
                break;
            }
            restarts += 1;
            drive.assert_done();
            assert_eq!(drive.engine.cluster(), plain.engine.cluster(), "{} point {point}", case.name);
            assert_eq!(drive.world, plain.world, "{} point {point}", case.name);
            for phase in [Phase::Pre, Phase::Post] {
                let ran = |drive: &Drive| drive.hook_runs.iter().filter(|call| call.phase == phase).count();
                assert_eq!(ran(&drive), ran(&plain), "{} point {point}: no script ran twice", case.name);
            }
        }
    }
    assert!(restarts > 200, "only {restarts} restarts");
}

#[test]
fn a_restart_while_a_failed_job_is_undone_gives_the_same_end() {
    for case in cases() {
        let plan = Drive::run(&case, Faults::default()).prepared().plan.clone();
        let Some(last) = plan.steps.iter().rposition(|step| matches!(step.kind, StepKind::Undoable { .. }))
        else {
            continue;
        };
        let calls = [(last.to_string(), CallFault::FailAfter)];
        for point in 0.. {
            let interrupt = Some((point, Interrupt::Restart));
            let drive =
                Drive::run(&case, Faults { calls: calls.clone().into(), interrupt, ..Faults::default() });
            if !drive.interrupted {
                break;
            }
            assert!(matches!(drive.outcome(), Outcome::Error(_)), "{} point {point}", case.name);
            drive.assert_unchanged();
        }
    }
}

#[test]
fn a_job_interrupted_too_often_in_one_place_is_undone_or_carried_on() {
    let (mut given_up, mut carried_on) = (0, 0);
    for case in cases() {
        for point in 0.. {
            let interrupt = Some((point, Interrupt::RestartOften));
            let drive = Drive::run(&case, Faults { interrupt, ..Faults::default() });
            if !drive.interrupted {
                break;
            }
            match drive.outcome() {
                Outcome::Success => {
                    drive.assert_done();
                    carried_on += 1;
                }
                Outcome::Error(error) => {
                    assert_eq!(error.kind, ErrorKind::Interrupted, "{} point {point}", case.name);
                    drive.assert_unchanged();
                    given_up += 1;
                }
                Outcome::Canceled => panic!("{} point {point}: nobody canceled", case.name),
            }
        }
    }
    assert!(given_up > 100 && carried_on > 20, "{given_up} given up, {carried_on} carried on");
}
