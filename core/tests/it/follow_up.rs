//! Laws of jobs that a job asks for.

use muster_core::{
    engine::{Engine, ErrorKind, Input, Job, Now, Outcome, Phase},
    hooks::{self, HookResult, NodeAnswer, NodeReport},
    ops::{ClusterVerify, FollowUp, InstanceFailover, Op, examples},
};

use crate::drive::{CallFault, Case, Drive, Faults, Interrupt, JOB, cases};

fn asking() -> Vec<Case> {
    let all = cases().into_iter();
    let asks = |case: &Case| {
        let drive = Drive::run(case, Faults::default());
        drive.job().prepared().is_some_and(|prepared| !prepared.plan.follow_ups.is_empty())
    };
    let asking: Vec<Case> = all.filter(asks).collect();
    assert!(asking.len() > 3, "only {} examples ask for jobs", asking.len());
    asking
}

fn outcome(job: &Job) -> &Outcome {
    let Phase::Done { outcome, .. } = &job.phase else { panic!("job {} is in {:?}", job.id(), job.phase) };
    outcome
}

#[test]
fn what_a_job_asks_for_can_be_done_and_is_known_by_both() {
    for case in asking() {
        let drive = Drive::run(&case, Faults { follow: true, ..Faults::default() });
        drive.assert_done();
        let wanted = &drive.prepared().plan.follow_ups;
        let parent = drive.job();
        assert_eq!(parent.children.len(), wanted.len(), "{}", case.name);
        for (id, FollowUp { op, after }) in parent.children.iter().zip(wanted) {
            let child = drive.engine.job(*id).expect("it was submitted");
            let submission = &child.submission;
            assert_eq!(outcome(child), &Outcome::Success, "{}: {op:?}", case.name);
            assert_eq!((&submission.op, submission.parent), (op, Some(JOB)));
            assert_eq!(
                (&submission.user, &submission.reason),
                (&parent.submission.user, &parent.submission.reason)
            );
            let depends: Vec<u64> = submission.depends.iter().map(|dependency| dependency.job).collect();
            assert_eq!(depends, after.map(|index| parent.children[index]).into_iter().collect::<Vec<_>>());
        }
    }
}

#[test]
fn jobs_are_asked_for_once_and_only_with_the_commit() {
    for case in asking() {
        for point in 0..20 {
            for interrupt in [Interrupt::Restart, Interrupt::Cancel, Interrupt::Kill, Interrupt::RestartOften]
            {
                let drive =
                    Drive::run(&case, Faults { interrupt: Some((point, interrupt)), ..Faults::default() });
                let expected = usize::from(drive.job().committed);
                assert_eq!(drive.asked.len(), expected, "{}: {interrupt:?} at {point}", case.name);
            }
        }
        let drive = Drive::run(&case, Faults { dry_run: true, ..Faults::default() });
        assert!(drive.asked.is_empty(), "{}: a dry run", case.name);
    }
}

#[test]
fn a_job_whose_forerunner_failed_is_refused() {
    let is_ordered = |case: &Case| {
        let drive = Drive::run(case, Faults::default());
        drive.prepared().plan.follow_ups.iter().any(|job| job.after.is_some())
    };
    let case = asking().into_iter().find(is_ordered).expect("an evacuation of a primary is an example");
    let fails = Faults { calls: [("0".to_owned(), CallFault::FailBefore)].into(), ..Faults::default() };
    let drive = Drive::run(&case, Faults { follow: true, ..fails });
    assert_eq!(drive.outcome(), &Outcome::Success, "what was asked for is asked for");
    let kinds: Vec<ErrorKind> = drive
        .job()
        .children
        .iter()
        .map(|id| match outcome(drive.engine.job(*id).expect("it was submitted")) {
            Outcome::Error(error) => error.kind,
            other @ (Outcome::Success | Outcome::Canceled) => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [ErrorKind::Failed, ErrorKind::Refused]);
}

/// A verification in version 2 whose only post script, on node2, ends in this way; and the nodes that heard of its failure.
fn verified(outcome: hooks::ScriptOutcome) -> (Job, Vec<String>) {
    let mut told = Vec::new();
    let now = Now { wall_ms: 1_900_000_000_000, mono_ms: 0 };
    let mut cluster = examples::cluster();
    cluster.hooks.version = hooks::HooksVersion::V2;
    let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
    let submission = examples::submission(1, Op::ClusterVerify(ClusterVerify {}));
    let mut effects = engine.handle(Input::Submit(Box::new(submission)), now).effects;
    while let Some(effect) = effects.pop() {
        let muster_core::engine::Effect::RunHooks(call) = effect else { continue };
        let is_failed = call.phase == hooks::Phase::Failed && call.prefix == "cluster-verify";
        told.extend(is_failed.then(|| call.node.to_string()));
        let is_it = !is_failed && call.prefix == "cluster-verify" && call.node.as_str() == "node2";
        let script = hooks::ScriptResult {
            name: "10-disks".to_owned(),
            outcome: outcome.clone(),
            duration_ms: 1,
            stdout: hooks::Captured::default(),
            stderr: hooks::Captured::default(),
            notes: Vec::new(),
        };
        let result =
            HookResult { scripts: is_it.then_some(script).into_iter().collect(), ..HookResult::default() };
        let report = NodeReport { node: call.node, answer: NodeAnswer::Answered(result), duration_ms: 1 };
        effects.extend(engine.handle(Input::HooksAnswered(call.id, report), now).effects);
    }
    (engine.job(1).expect("it was submitted").clone(), told)
}

#[test]
fn r7_post_scripts_are_a_part_of_a_verification() {
    let (good, told) = verified(hooks::ScriptOutcome::Passed);
    assert_eq!(told, [""; 0]);
    assert_eq!(outcome(&good), &Outcome::Success);
    assert_eq!(
        (good.pre.len(), good.post.len()),
        (1, 3),
        "all nodes are told; before, only the master's global scripts run"
    );
    let (bad, told) = verified(hooks::ScriptOutcome::Failed { code: 3 });
    let Outcome::Error(error) = outcome(&bad).clone() else { panic!("a script failed") };
    assert_eq!(told, ["node1"], "nobody was asked before: the master is told of the failure");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Failed, "the site's own checks failed on node2")
    );
    let [objection] = &error.objections[..] else { panic!("{:?}", error.objections) };
    assert_eq!(objection.script.as_ref().map(|script| script.name.as_str()), Some("10-disks"));
}

#[test]
fn a_disk_that_is_there_is_not_made_anew() {
    let case =
        cases().into_iter().find(|case| matches!(case.op, Op::DisksRecreate(_))).expect("it has examples");
    let Op::DisksRecreate(op) = &case.op else { unreachable!("just found") };
    // Another operation's case of the same cluster: nothing is lost.
    let failover =
        InstanceFailover { instance: op.instance.clone(), ignore_consistency: false, fenced: false };
    let whole = Case { op: Op::InstanceFailover(failover), ..case.clone() };
    let mut drive = Drive::new(&whole, Faults::default());
    drive.submit(JOB, case.op.clone(), case.fresh.clone());
    drive.finish();
    let Outcome::Error(error) = drive.outcome() else { panic!("the files are there") };
    assert!(error.message.contains("is still there"), "{}", error.message);
    drive.assert_unchanged();
}
