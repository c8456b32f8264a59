//! A cancel at every point: either it is refused and the job does what was asked, or nothing is changed.

use muster_core::{
    engine::{Ending, Input, Outcome},
    ops::{MasterFailover, Op, examples},
};

use crate::drive::{Case, Drive, Faults, Interrupt, JOB, cases};

#[test]
fn a_cancel_at_every_point_is_refused_or_changes_nothing() {
    cancel_everywhere(Interrupt::Cancel);
}

#[test]
fn a_cancel_is_remembered_by_a_restarted_master() {
    cancel_everywhere(Interrupt::CancelAndRestart);
}

fn cancel_everywhere(interrupt: Interrupt) {
    let (mut refused, mut followed) = (0, 0);
    for case in cases() {
        for point in 0.. {
            let faults = Faults { interrupt: Some((point, interrupt)), ..Faults::default() };
            let drive = Drive::run(&case, faults);
            if !drive.interrupted {
                break;
            }
            if drive.cancel_refused.is_some() {
                drive.assert_done();
                refused += 1;
            } else {
                assert_eq!(drive.outcome(), &Outcome::Canceled, "{} point {point}", case.name);
                drive.assert_unchanged();
                followed += 1;
            }
        }
    }
    assert!(refused > 20 && followed > 100, "{refused} refused, {followed} followed");
}

/// A job that holds the whole cluster and stays in its first phase.
fn holder(case: &Case) -> (Case, Op) {
    let others =
        case.cluster.iter().flat_map(|cluster| cluster.nodes.values().map(move |node| (cluster, node)));
    let successor = others
        .filter(|(cluster, node)| node.name != cluster.master && !node.offline && !node.drained)
        .map(|(_, node)| node.name.clone())
        .next();
    match successor {
        Some(new_master) => {
            let op = Op::MasterFailover(MasterFailover { new_master: new_master.clone() });
            (Case { local: new_master, ..case.clone() }, op)
        }
        None => (case.clone(), case.op.clone()),
    }
}

#[test]
fn a_waiting_job_is_canceled_at_once() {
    for case in cases() {
        let (case, op) = holder(&case);
        let fresh = if op == case.op { case.fresh.clone() } else { examples::fresh() };
        let mut drive = Drive::new(&case, Faults::default());
        drive.submit(1, op, fresh);
        drive.submit(JOB, case.op.clone(), case.fresh.clone());
        assert!(drive.engine.locks().waits_for(JOB).is_some(), "{} waits", case.name);
        assert_eq!(drive.engine.cancel_refused(JOB), None);
        drive.handle(Input::Cancel(JOB));
        assert_eq!(drive.job().ending(), Some(Ending::Canceled), "{}", case.name);
        assert!(drive.job().is_unlocked(), "{}", case.name);
        drive.assert_unchanged();
    }
}
