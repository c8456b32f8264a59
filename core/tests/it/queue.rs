//! Jobs that wait for jobs, priorities, the pause, and jobs that would wait for ever.

use std::collections::BTreeSet;

use muster_core::{
    engine::{
        Dependency, END_STEP, Effect, Ending, Engine, ErrorKind, Input, Now, Outcome, Phase, Priority,
        Status, Submission, WaitReason,
    },
    hooks::{HookResult, HooksVersion, NodeAnswer, NodeReport},
    names::{InstanceName, NodeName},
    ops::{
        InstanceModify, MasterFailover, MirrorsSettle, NodeModify, Op,
        examples::{self, submission},
    },
};

fn node(name: &str) -> NodeName {
    NodeName::parse(name).expect("tests use good names")
}

/// A job that changes the memory of db1, and has hooks.
fn modify(id: u64) -> Submission {
    let instance = InstanceName::parse("db1").expect("it is a good name");
    let op = InstanceModify { instance, memory_mib: Some(100 + id), vcpus: None, ip: None, network: None };
    submission(id, Op::InstanceModify(op))
}

/// A job without steps or hooks of its own: it is over as soon as its global scripts have passed.
fn drain(id: u64, name: &str) -> Submission {
    let marks = NodeModify {
        name: node(name),
        offline: None,
        drained: Some(true),
        master_candidate: None,
        primary_ip: None,
        secondary_ip: None,
    };
    submission(id, Op::NodeModify(marks))
}

fn after(job: u64, endings: &[Ending], submission: Submission) -> Submission {
    let dependency = Dependency { job, endings: endings.iter().copied().collect() };
    Submission { depends: vec![dependency], ..submission }
}

struct Queue {
    engine: Engine,
    effects: Vec<Effect>,
}

impl Queue {
    fn new() -> Self {
        let cluster = examples::cluster();
        Queue { engine: Engine::new(cluster.master.clone(), Some(cluster)), effects: Vec::new() }
    }

    fn handle(&mut self, input: Input) {
        self.effects.extend(self.engine.handle(input, Now::default()).effects);
    }

    fn submit(&mut self, submission: Submission) {
        self.handle(Input::Submit(Box::new(submission)));
    }

    /// Lets all scripts of a job pass, in both phases.
    fn pass(&mut self, job: u64) {
        while let Some(at) =
            self.effects.iter().position(|e| matches!(e, Effect::RunHooks(c) if c.id.job == job))
        {
            let Effect::RunHooks(call) = self.effects.remove(at) else { unreachable!() };
            let answer = NodeAnswer::Answered(HookResult::default());
            let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
            self.handle(Input::HooksAnswered(call.id, report));
        }
    }

    fn status(&self, job: u64) -> Status {
        let waits = self.engine.wait_reason(job).is_some();
        self.engine.job(job).expect("it was submitted").status(waits)
    }
}

#[test]
fn a_job_starts_when_the_one_it_depends_on_is_over_as_wanted() {
    let mut queue = Queue::new();
    queue.submit(modify(1));
    queue.submit(after(1, &[Ending::Success], drain(2, "node2")));
    queue.submit(after(2, &[Ending::Success], drain(3, "node3")));
    assert_eq!(
        (queue.status(1), queue.status(2), queue.status(3)),
        (Status::Running, Status::Waiting, Status::Waiting)
    );
    let Some(WaitReason::Job(dependency)) = queue.engine.wait_reason(2) else { panic!("it waits for a job") };
    assert_eq!(dependency.job, 1);
    assert!(!queue.engine.locks().knows(2), "it holds nobody up while it waits for a job");
    queue.pass(1);
    queue.pass(2);
    queue.pass(3);
    assert_eq!((queue.status(2), queue.status(3)), (Status::Success, Status::Success));
}

#[test]
fn a_job_whose_dependency_ends_otherwise_ends_too() {
    let mut queue = Queue::new();
    queue.submit(modify(1));
    queue.submit(after(1, &[Ending::Success], drain(2, "node2")));
    queue.submit(after(1, &[Ending::Error, Ending::Canceled], drain(3, "node3")));
    queue.submit(after(3, &[Ending::Error], drain(4, "node3")));
    queue.handle(Input::Kill(1));
    for job in 2..=4 {
        queue.pass(job);
    }
    assert_eq!(
        (queue.status(1), queue.status(2), queue.status(3)),
        (Status::Canceled, Status::Canceled, Status::Success)
    );
    let Phase::Done { outcome: Outcome::Error(error), .. } = &queue.engine.job(4).unwrap().phase else {
        panic!("{:?}", queue.engine.job(4))
    };
    assert_eq!(error.kind, ErrorKind::Refused);
    assert_eq!(error.message, "job 3, on which this one depends, ended as success (wanted: error)");
}

/// A failover to node2, which is no master yet, in a version of the hook interface.
fn failover(version: HooksVersion) -> Queue {
    let mut cluster = examples::cluster();
    cluster.hooks.version = version;
    let mut queue = Queue { engine: Engine::new(node("node2"), Some(cluster)), effects: Vec::new() };
    queue.submit(submission(1, Op::MasterFailover(MasterFailover { new_master: node("node2") })));
    queue
}

#[test]
fn where_the_office_goes_back_no_job_begins_and_none_waits_in_vain() {
    let mut queue = failover(HooksVersion::V1);
    queue.submit(modify(2));
    queue.handle(Input::Cancel(1));
    // The failover is denied or canceled; its end is still told.
    while !queue.engine.job(1).unwrap().is_ending() {
        let at =
            queue.effects.iter().position(|e| matches!(e, Effect::RunHooks(c) if c.id.job == 1)).unwrap();
        let Effect::RunHooks(call) = queue.effects.remove(at) else { unreachable!() };
        let answer = NodeAnswer::Answered(HookResult::default());
        let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
        queue.handle(Input::HooksAnswered(call.id, report));
    }
    queue.submit(modify(3));
    let jobs = queue.engine.jobs().cloned().collect();
    let cluster = queue.engine.cluster().cloned();
    let (engine, output) = Engine::recover(node("node2"), cluster, jobs, false, Now::default());
    queue.engine = engine;
    queue.effects = output.effects;
    queue.submit(modify(4));
    queue.pass(1);
    queue.submit(modify(5));
    assert_eq!(queue.status(1), Status::Canceled);
    for job in 2..=5 {
        assert_eq!(queue.status(job), Status::Error, "job {job}");
        assert!(queue.engine.job(job).unwrap().started_ms.is_none(), "job {job} began");
        queue.pass(job);
        let Phase::Done { outcome: Outcome::Error(error), .. } = &queue.engine.job(job).unwrap().phase else {
            panic!("{:?}", queue.engine.job(job))
        };
        assert_eq!(error.message, "the master failover did not succeed: submit it again on node1");
    }
}

#[test]
fn scripts_at_the_end_of_a_committed_failover_see_the_new_master_whatever_came_after() {
    for version in [HooksVersion::V1, HooksVersion::V2] {
        let mut queue = failover(version);
        while !queue.engine.job(1).unwrap().committed {
            let at = queue.effects.iter().position(|e| matches!(e, Effect::RunHooks(_))).unwrap();
            let Effect::RunHooks(call) = queue.effects.remove(at) else { unreachable!() };
            assert_eq!(call.env.get("MASTER"), Some("node1"));
            let answer = NodeAnswer::Answered(HookResult::default());
            let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
            queue.handle(Input::HooksAnswered(call.id, report));
        }
        if version == HooksVersion::V1 {
            // In its post phase.
            queue.handle(Input::Kill(1));
        }
        let is_end = |effect: &&Effect| matches!(effect, Effect::RunHooks(call) if call.id.step == END_STEP);
        let end = queue.effects.iter().find(is_end).cloned();
        let Some(Effect::RunHooks(end)) = end else { panic!("its end is told") };
        assert_eq!(end.env.get("MASTER"), Some("node2"), "{version:?}");
        queue.submit(modify(2));
        assert_eq!(queue.status(2), Status::Running, "the office is here");
    }
}

#[test]
fn what_is_so_already_is_recorded_without_asking() {
    let mut queue = Queue::new();
    let instance = InstanceName::parse("mail1").unwrap();
    queue.submit(submission(1, Op::MirrorsSettle(MirrorsSettle { instance })));
    assert!(queue.engine.job(1).unwrap().committed, "{:?}", queue.engine.job(1));
    queue.pass(1);
    assert_eq!(queue.status(1), Status::Success);
}

#[test]
fn ends_that_nobody_waits_for_hold_up_no_job() {
    let mut queue = Queue::new();
    queue.engine.set_paused(true);
    for id in 1..=200 {
        queue.submit(modify(id));
        queue.handle(Input::Cancel(id));
    }
    queue.engine.set_paused(false);
    queue.submit(modify(201));
    assert_eq!(queue.status(201), Status::Running, "no end of a job that never began was told");
}

#[test]
fn a_chain_as_long_as_the_queue_ends_at_once() {
    let mut queue = Queue::new();
    queue.submit(modify(1));
    for id in 2..=9_000 {
        queue.submit(after(id - 1, &[Ending::Success], drain(id, "node2")));
    }
    queue.handle(Input::Cancel(1));
    queue.pass(1);
    assert!((1..=9_000).all(|id| queue.status(id) == Status::Canceled));
}

#[test]
fn a_restart_keeps_who_waits_for_whom_and_who_goes_first() {
    let mut queue = Queue::new();
    queue.submit(modify(1));
    queue.submit(modify(2));
    queue.submit(Submission { priority: Priority::HIGH, ..modify(3) });
    queue.submit(after(3, &[Ending::Success], drain(4, "node2")));
    let jobs = queue.engine.jobs().cloned().collect();
    let cluster = queue.engine.cluster().cloned();
    let (engine, output) = Engine::recover(node("node1"), cluster, jobs, false, Now::default());
    let mut queue = Queue { engine, effects: output.effects };
    queue.pass(1);
    assert_eq!((queue.status(3), queue.status(2)), (Status::Running, Status::Waiting));
    queue.pass(3);
    queue.pass(4);
    assert_eq!((queue.status(4), queue.status(2)), (Status::Success, Status::Running));
}

#[test]
fn a_paused_queue_starts_nothing_and_lets_go_on_what_runs() {
    let mut queue = Queue::new();
    queue.submit(modify(1));
    queue.engine.set_paused(true);
    queue.submit(drain(2, "node2"));
    assert_eq!(queue.engine.wait_reason(2), Some(WaitReason::Paused));
    queue.pass(1);
    assert_eq!((queue.status(1), queue.status(2)), (Status::Success, Status::Waiting));
    queue.engine.set_paused(false);
    queue.handle(Input::Retry);
    queue.pass(2);
    assert_eq!(queue.status(2), Status::Success);
}

#[test]
fn a_way_back_to_the_asking_job_is_found() {
    let mut queue = Queue::new();
    let followed = BTreeSet::new();
    queue.submit(modify(1));
    let locks = modify(9).locks();
    let waits = queue.engine.would_wait_for(Priority::default(), &locks, &[]);
    assert_eq!(
        queue.engine.way(&waits, 1, &followed),
        Some(vec![1]),
        "a script of 1 asks for the same instance"
    );
    queue.submit(modify(2));
    queue.submit(after(2, &[Ending::Success], drain(3, "node2")));
    assert_eq!(queue.engine.way(&queue.engine.waits_for(3), 1, &followed), Some(vec![2, 1]));
    let free = queue.engine.would_wait_for(Priority::default(), &drain(9, "node3").locks(), &[]);
    assert_eq!(queue.engine.way(&free, 1, &followed), None);
    // By a script: 1 waits for nothing, but its script follows 7, which does not exist any more, and 5 follows 3.
    let followed = BTreeSet::from([(2, 5), (1, 7)]);
    assert_eq!(queue.engine.way(&[3], 5, &followed), Some(vec![3, 2, 5]));
}

#[test]
fn what_is_not_over_or_left_something_is_not_archived() {
    let mut queue = Queue::new();
    queue.submit(modify(1));
    assert!(queue.engine.forget(1).unwrap_err().contains("is not over"));
    assert!(queue.engine.forget(7).unwrap_err().contains("there is no job 7"));
    queue.pass(1);
    assert_eq!(queue.engine.forget(1).unwrap().id(), 1);
    assert!(queue.engine.job(1).is_none());
}

#[test]
fn priorities_have_bounds() {
    assert_eq!(Priority::try_from(-20).unwrap(), Priority::FIRST);
    for wrong in [-21, 20, 1000] {
        let text = Priority::try_from(wrong).unwrap_err().to_string();
        assert_eq!(text, format!("priority {wrong} is not between -20 (first) and 19 (last)"));
    }
}
