//! A kill at every point: the locks are free when the job is done, what is not committed leaves nothing behind, and a node
//! that confirms nothing leaves the job blocked until it does.

use muster_core::{
    calls::CallAnswer,
    engine::{CallId, Effect, Engine, Input, Job, Now, Outcome, Phase, Submission},
    hooks::{HookResult, NodeAnswer, NodeReport},
    ops::{Fresh, InstanceStart, JobRepair, Op, Repair, examples},
};

use crate::drive::{CALL_FAULTS, CallFault, Drive, Faults, Interrupt, JOB, cases};

#[test]
fn a_kill_at_every_point_is_refused_or_ends_the_job() {
    kill_everywhere(Interrupt::Kill, 0);
}

#[test]
fn a_kill_is_remembered_by_a_restarted_master() {
    kill_everywhere(Interrupt::KillAndRestart, 0);
}

#[test]
fn a_killed_job_is_blocked_until_its_node_confirms() {
    let blocked = kill_everywhere(Interrupt::Kill, 1) + kill_everywhere(Interrupt::KillAndRestart, 2);
    assert!(blocked > 50, "{blocked} jobs were blocked");
}

/// Kills each example at each point; gives how many jobs were blocked.
fn kill_everywhere(interrupt: Interrupt, mute_stops: u32) -> u32 {
    let (mut refused, mut undone, mut committed, mut blocked) = (0, 0, 0, 0);
    for case in cases() {
        for point in 0.. {
            let faults = Faults { interrupt: Some((point, interrupt)), mute_stops, ..Faults::default() };
            let mut drive = Drive::run(&case, faults);
            if !drive.interrupted {
                break;
            }
            blocked += u32::from(drive.blocked);
            if drive.cancel_refused.is_some() {
                drive.assert_done();
                refused += 1;
                continue;
            }
            if drive.killed_in == Some("end-hooks") {
                // How it ends was settled before.
                assert!(drive.job().done() && !drive.job().killed, "{} point {point}", case.name);
                continue;
            }
            assert_eq!(drive.outcome(), &Outcome::Canceled, "{} point {point}", case.name);
            assert!(drive.job().killed);
            if drive.job().committed {
                drive.handle(Input::Retry);
                drive.finish();
                drive.world.check(drive.engine.cluster());
                committed += 1;
            } else {
                drive.assert_unchanged();
                undone += 1;
            }
        }
    }
    assert!(
        refused > 10 && undone > 100 && committed > 20,
        "{refused} refused, {undone} undone, {committed} done"
    );
    blocked
}

/// Gives up what is blocked, then repairs it.
#[test]
fn what_is_given_up_is_repaired() {
    let mut repaired = 0;
    // Where there is no cluster yet there is nothing to repair: the next init begins anew.
    for case in cases().into_iter().filter(|case| case.cluster.is_some()) {
        let plain = Drive::run(&case, Faults::default());
        for step in 0..plain.prepared().plan.steps.len() {
            for fault in CALL_FAULTS
                .into_iter()
                .filter(|fault| matches!(fault, CallFault::SilentAfter | CallFault::SilentBefore))
            {
                let mut drive = Drive::new(&case, Faults { mute_stops: 1, ..Faults::default() });
                drive.faults.calls.insert(step.to_string(), fault);
                drive.faults.kill_at_step = Some(step);
                drive.submit(JOB, case.op.clone(), case.fresh.clone());
                drive.perform_all();
                if !matches!(drive.job().phase, Phase::Blocked { .. }) {
                    continue;
                }
                drive.handle(Input::GiveUp(JOB));
                assert!(drive.job().is_unlocked(), "{}", case.name);
                drive.perform_all();
                assert!(drive.job().done(), "{}", case.name);
                assert_eq!(drive.engine.locks().holders().count(), 0, "{}", case.name);
                let calls = drive.engine.undone_by(JOB);
                if calls.is_empty() {
                    continue;
                }
                let locks = drive.job().submission.locks();
                let fresh =
                    Fresh { repair: Some(Repair { locks, calls, gave_up: true }), ..case.fresh.clone() };
                drive.faults.calls.clear();
                drive.submit(JOB + 1, Op::JobRepair(JobRepair { job: JOB }), fresh);
                drive.perform_all();
                assert_eq!(drive.engine.undone_by(JOB), Vec::new(), "{} step {step}", case.name);
                drive.world.check(drive.engine.cluster());
                repaired += 1;
            }
        }
    }
    assert!(repaired > 10, "{repaired} jobs were repaired");
}

/// A killed start on its way: the engine, with the effects of the last input.
struct Killed {
    engine: Engine,
    effects: Vec<Effect>,
}

impl Killed {
    /// Submits a start, and kills it while its guest is being started.
    fn start() -> Self {
        let mut cluster = examples::cluster();
        let name = cluster.instances.keys().next().expect("the example cluster has instances").clone();
        cluster.instances.get_mut(&name).expect("just seen").up = false;
        let op = Op::InstanceStart(InstanceStart { instance: name, force: false });
        let local = cluster.master.clone();
        let mut killed = Killed { engine: Engine::new(local, Some(cluster)), effects: Vec::new() };
        killed.handle(submission(JOB, op, examples::fresh()));
        killed.pass_scripts();
        killed.handle(Input::Kill(JOB));
        killed
    }

    /// Lets all scripts pass that are asked; what follows is left to be done.
    fn pass_scripts(&mut self) {
        while let Some(at) = self.effects.iter().position(|effect| matches!(effect, Effect::RunHooks(_))) {
            let Effect::RunHooks(call) = self.effects.remove(at) else { unreachable!() };
            let answer = NodeAnswer::Answered(HookResult::default());
            let report = NodeReport { node: call.node, answer, duration_ms: 1 };
            let output = self.engine.handle(Input::HooksAnswered(call.id, report), Now::default());
            self.effects.extend(output.effects);
        }
    }

    fn handle(&mut self, input: Input) {
        self.effects = self.engine.handle(input, Now::default()).effects;
    }

    fn answer(&mut self, step: &str, answer: CallAnswer) {
        let id = CallId { job: JOB, step: step.to_owned(), attempt: 1 };
        self.handle(Input::CallAnswered(id, answer));
    }

    fn restart(&mut self) {
        let jobs: Vec<Job> = self.engine.jobs().cloned().collect();
        let cluster = self.engine.cluster().cloned();
        let local = cluster.as_ref().expect("there is a cluster").master.clone();
        let (engine, output) = Engine::recover(local, cluster, jobs, false, Now::default());
        (self.engine, self.effects) = (engine, output.effects);
    }
}

#[test]
fn a_restart_goes_on_with_the_undo_of_a_killed_job() {
    let mut killed = Killed::start();
    killed.answer("0", CallAnswer::Failed("ended".to_owned()));
    killed.restart();
    assert!(
        matches!(&killed.effects[..], [Effect::Execute { id, .. }] if id.step == "undo-0"),
        "{:?}",
        killed.effects
    );
    assert_eq!(killed.engine.kill_refused(JOB), None, "an undo that hangs can be killed too");
    killed.handle(Input::Kill(JOB));
    killed.restart();
    assert!(matches!(&killed.effects[..], [Effect::StopCall { .. }]), "{:?}", killed.effects);
    assert!(killed.engine.kill_refused(JOB).is_some());
}

#[test]
fn a_repair_waits_for_what_the_job_left_going() {
    let mut killed = Killed::start();
    killed.answer("0", CallAnswer::NotReached("silent".to_owned()));
    killed.handle(Input::GiveUp(JOB));
    let calls = killed.engine.undone_by(JOB);
    let locks = killed.engine.job(JOB).expect("it is kept").submission.locks();
    let fresh = Fresh { repair: Some(Repair { locks, calls, gave_up: true }), ..examples::fresh() };
    killed.handle(submission(JOB + 1, Op::JobRepair(JobRepair { job: JOB }), fresh));
    killed.pass_scripts();
    let [Effect::ExecuteAfter { job, calls, .. }] = &killed.effects[..] else {
        panic!("{:?}", killed.effects)
    };
    let steps: Vec<&str> = calls.iter().map(|id| id.step.as_str()).collect();
    assert_eq!((*job, steps), (JOB, vec!["0", "undo-0"]));
}

fn submission(id: u64, op: Op, fresh: Fresh) -> Input {
    Input::Submit(Box::new(Submission { fresh, ..examples::submission(id, op) }))
}

#[test]
fn a_kill_in_a_phase_of_hooks_ends_its_scripts() {
    let (mut in_pre, mut in_post) = (0, 0);
    for case in cases() {
        for point in 0.. {
            let interrupt = Some((point, Interrupt::Kill));
            let drive = Drive::run(&case, Faults { interrupt, ..Faults::default() });
            if !drive.interrupted {
                break;
            }
            match drive.killed_in {
                Some("pre-hooks") => in_pre += 1,
                Some("post-hooks") => in_post += 1,
                Some(_) | None => continue,
            }
            assert!(drive.ended.contains(&JOB), "{} point {point}: its scripts run on", case.name);
        }
    }
    assert!(in_pre > 50 && in_post > 50, "{in_pre} in pre, {in_post} in post");
}
