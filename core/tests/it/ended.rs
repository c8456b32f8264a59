//! No script runs under a job that is over: who may run one still is told to end it.

use muster_core::{
    engine::{INTERRUPTIONS_MAX, Outcome},
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
            let in_post = job.post.is_empty() && job.interruptions >= INTERRUPTIONS_MAX;
            if in_post && *drive.outcome() == Outcome::Success && !drive.prepared().nodes.post.is_empty() {
                assert!(drive.ended.contains(&JOB), "{} point {point}", case.name);
                given_up += 1;
            }
        }
    }
    assert!(given_up > 20, "only {given_up}");
}
