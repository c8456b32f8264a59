//! No script runs under a job that is over: who may run one still is told to end it.

use muster_core::{
    engine::{ErrorKind, INTERRUPTIONS_MAX, LogEntry, Outcome},
    hooks::Phase,
};

use crate::drive::{Drive, Faults, HookFault, Interrupt, JOB, cases};

#[test]
fn a_node_that_fell_silent_is_told_of_the_jobs_end() {
    let mut told = 0;
    for case in cases() {
        let plain = Drive::run(&case, Faults::default());
        assert!(!plain.ended.contains(&JOB), "{}: all nodes answered", case.name);
        let nodes = &plain.prepared().nodes;
        for (phase, nodes) in [(Phase::Pre, &nodes.pre), (Phase::Post, &nodes.post)] {
            for node in nodes {
                let hooks = [((node.clone(), phase), HookFault::Unreachable)].into();
                let drive = Drive::run(&case, Faults { hooks, ..Faults::default() });
                assert!(drive.ended.contains(&JOB), "{} {phase:?}: {node}", case.name);
                told += 1;
            }
        }
    }
    assert!(told > 100, "only {told}");
}

#[test]
fn post_scripts_end_with_a_job_that_gives_them_up() {
    let mut given_up = 0;
    for case in cases() {
        for point in 0.. {
            let interrupt = Some((point, Interrupt::RestartOften));
            let drive = Drive::run(&case, Faults { interrupt, ..Faults::default() });
            if !drive.interrupted {
                break;
            }
            let job = drive.job();
            let too_often = job.interruptions >= INTERRUPTIONS_MAX;
            if too_often && *drive.outcome() == Outcome::Success && !drive.prepared().nodes.post.is_empty() {
                assert!(drive.ended.contains(&JOB), "{} point {point}", case.name);
                given_up += 1;
            }
        }
    }
    assert!(given_up > 20, "only {given_up}");
}

/// Found from outside: the next job's scripts ran beside those of the job that was given up.
#[test]
fn a_job_that_is_given_up_holds_its_locks_until_its_scripts_have_ended() {
    let mut given_up = 0;
    for case in cases() {
        let mut drive = Drive::new(&case, Faults::default());
        drive.submit(JOB, case.op.clone(), case.fresh.clone());
        if drive.job().done() || drive.prepared().nodes.pre.is_empty() {
            continue;
        }
        drive.restart_often();
        assert!(!drive.job().over(), "{}: its scripts may still run", case.name);
        assert_eq!(drive.engine.locks().holders().count(), 1, "{}", case.name);
        drive.finish();
        let Outcome::Error(error) = drive.outcome() else { panic!("{}: {:?}", case.name, drive.outcome()) };
        assert_eq!(error.kind, ErrorKind::Interrupted);
        drive.assert_unchanged();
        given_up += 1;
    }
    assert!(given_up > 10, "only {given_up}");
}

/// Simulator, seed 501800: a start without an undo went on, and was carried out after the next job had stopped the guest.
#[test]
fn a_call_of_a_job_that_is_given_up_ends_before_its_locks_are_free() {
    let mut given_up = 0;
    for case in cases() {
        for point in 0.. {
            let interrupt = Some((point, Interrupt::RestartOften));
            let drive = Drive::run(&case, Faults { interrupt, ..Faults::default() });
            if !drive.interrupted {
                break;
            }
            let in_a_step = drive.job().log.iter().any(
                |line| matches!(&line.entry, LogEntry::Text(text) if text.contains("in phase steps (3 of")),
            );
            if in_a_step && matches!(drive.outcome(), Outcome::Error(_)) {
                assert_eq!(drive.stops, 1, "{} point {point}", case.name);
                given_up += 1;
            }
        }
    }
    assert!(given_up > 20, "only {given_up}");
}
