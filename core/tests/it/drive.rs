//! Drives the engine as the master does, plainly: records kept as text, calls journaled by id, faults where a law wants
//! them, and one interruption at one point.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use muster_core::{
    calls::{Call, CallAnswer},
    edit::Touched,
    engine::{
        Changes, END_STEP, Effect, Engine, FollowUps, HooksCall, INTERRUPTIONS_MAX, Input, Job, Level,
        LogEntry, Now, Outcome, Output, Phase, Submission,
    },
    hooks::{self, Captured, HookResult, NodeAnswer, NodeReport, NotReached, ScriptOutcome, ScriptResult},
    model::Cluster,
    names::NodeName,
    ops::{Fresh, MasterFailover, Op, Prepared, all_examples, examples},
};
use uuid::Uuid;

use crate::world::World;

/// The job under test.
pub(crate) const JOB: u64 = 2;

/// One example of one operation.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) local: NodeName,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) fresh: Fresh,
    pub(crate) op: Op,
}

/// All examples of all operations.
pub(crate) fn cases() -> Vec<Case> {
    let case = |(index, (cluster, fresh, op)): (usize, (Cluster, Fresh, Op))| {
        let local = if let Op::MasterFailover(MasterFailover { new_master }) = &op {
            new_master.clone()
        } else {
            cluster.master.clone()
        };
        let name = format!("example {index}: {}({})", op.row().op_id, op.target());
        let cluster = Some(cluster).filter(|_| fresh.new_cluster.is_none());
        Case { name, local, cluster, fresh, op }
    };
    all_examples().into_iter().enumerate().map(case).collect()
}

/// The world that the case's configuration describes, without the files that its operation takes for lost.
fn world_of(case: &Case) -> World {
    let mut world = World::of(case.cluster.as_ref(), &case.local);
    if let (Op::DisksRecreate(op), Some(cluster)) = (&case.op, &case.cluster) {
        let disks = cluster.instances[&op.instance].disks.iter();
        let lost = disks.filter(|disk| op.disks.is_empty() || op.disks.contains(&disk.name));
        world.lose(
            lost.flat_map(|disk| std::iter::once(disk.uuid).chain(disk.mirrors.iter().map(|copy| copy.uuid))),
        );
    }
    world
}

/// What goes wrong with a node's hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookFault {
    Deny,
    CannotRun,
    Unreachable,
    LostOnce,
}

/// What goes wrong with a call: it fails or is not reached, with or without having changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFault {
    FailBefore,
    FailAfter,
    SilentBefore,
    SilentAfter,
}

pub(crate) const CALL_FAULTS: [CallFault; 4] =
    [CallFault::FailBefore, CallFault::FailAfter, CallFault::SilentBefore, CallFault::SilentAfter];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    Restart,
    /// So often that the job is given up.
    RestartOften,
    Cancel,
    CancelAndRestart,
    /// The end of the call is asked for before the call itself arrives.
    Kill,
    KillAndRestart,
}

/// What a law wants to go wrong.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) hooks: BTreeMap<(NodeName, hooks::Phase), HookFault>,
    /// By the call id's step, for example `0`, `undo-0`, `clean-0`; first attempts only.
    pub(crate) calls: BTreeMap<String, CallFault>,
    /// Each call is carried out twice, and each answer comes twice.
    pub(crate) twice: bool,
    pub(crate) dry_run: bool,
    /// The master's node has no `global-post.d`.
    pub(crate) no_global_post: bool,
    /// The job is killed when this step's call is to be made.
    pub(crate) kill_at_step: Option<usize>,
    /// So many times nobody can tell how a killed call ended.
    pub(crate) mute_stops: u32,
    /// Jobs that a job asks for are submitted.
    pub(crate) follow: bool,
    /// At this point of the run.
    pub(crate) interrupt: Option<(usize, Interrupt)>,
}

/// A run.
pub(crate) struct Drive {
    pub(crate) case: Case,
    pub(crate) engine: Engine,
    pub(crate) world: World,
    pub(crate) faults: Faults,
    /// What scripts saw.
    pub(crate) hook_runs: Vec<HooksCall>,
    /// What was called, repeats included.
    pub(crate) calls: Vec<(String, Call)>,
    /// Why the engine would not cancel, when asked at the interruption.
    pub(crate) cancel_refused: Option<String>,
    /// Whether the interruption was reached.
    pub(crate) interrupted: bool,
    /// Whether the job was blocked.
    pub(crate) blocked: bool,
    /// Jobs that were asked for.
    pub(crate) asked: Vec<FollowUps>,
    /// How often the end of a call was asked for.
    pub(crate) stops: u32,
    /// The phase in which the job was killed.
    pub(crate) killed_in: Option<&'static str>,
    pending: VecDeque<Effect>,
    journal: BTreeMap<String, CallAnswer>,
    hook_journal: BTreeMap<(String, NodeName), NodeReport>,
    /// Jobs whose runs were told to end.
    pub(crate) ended: BTreeSet<u64>,
    stored_cluster: Option<Cluster>,
    stored_jobs: BTreeMap<u64, String>,
    points: usize,
    now: Now,
}

impl Drive {
    /// An engine over the case's cluster, nothing submitted.
    pub(crate) fn new(case: &Case, faults: Faults) -> Drive {
        Drive {
            engine: Engine::new(case.local.clone(), case.cluster.clone()),
            world: world_of(case),
            faults,
            hook_runs: Vec::new(),
            calls: Vec::new(),
            cancel_refused: None,
            interrupted: false,
            blocked: false,
            asked: Vec::new(),
            stops: 0,
            killed_in: None,
            pending: VecDeque::new(),
            journal: BTreeMap::new(),
            hook_journal: BTreeMap::new(),
            ended: BTreeSet::new(),
            stored_cluster: case.cluster.clone(),
            stored_jobs: BTreeMap::new(),
            points: 0,
            now: Now { wall_ms: 1_900_000_000_000, mono_ms: 0 },
            case: case.clone(),
        }
    }

    /// Submits the case and drives it to its end.
    pub(crate) fn run(case: &Case, faults: Faults) -> Drive {
        let mut drive = Drive::new(case, faults);
        drive.submit(JOB, case.op.clone(), case.fresh.clone());
        drive.finish();
        drive
    }

    pub(crate) fn submit(&mut self, id: u64, op: Op, fresh: Fresh) {
        let submission = Submission {
            reason: "law".to_owned(),
            dry_run: self.faults.dry_run,
            fresh,
            ..examples::submission(id, op)
        };
        self.handle(Input::Submit(Box::new(submission)));
    }

    /// Performs effects until none is left; asks again where a job is blocked.
    pub(crate) fn finish(&mut self) {
        self.perform_all();
        while self.job().over() && !self.job().done() {
            assert_eq!(
                self.engine.locks().holders().count(),
                1,
                "{}: a blocked job has its locks",
                self.case.name
            );
            self.blocked = true;
            self.handle(Input::Retry);
            self.perform_all();
        }
        assert!(
            self.job().done(),
            "{}: nothing is left to do, and the job is in {:?}",
            self.case.name,
            self.job().phase
        );
        assert_eq!(self.engine.locks().holders().count(), 0, "{}: locks are left", self.case.name);
    }

    /// Performs one effect and takes its answer; false when there is none.
    pub(crate) fn perform_one(&mut self) -> bool {
        let Some(effect) = self.pending.pop_front() else { return false };
        if let Some(input) = self.perform(effect) {
            self.handle(input);
        }
        true
    }

    pub(crate) fn perform_all(&mut self) {
        while let Some(effect) = self.pending.pop_front() {
            let step = self.faults.kill_at_step.map(|step| step.to_string());
            if matches!(&effect, Effect::Execute { id, .. } if Some(&id.step) == step.as_ref()) {
                self.faults.kill_at_step = None;
                self.kill();
            }
            // The input is recorded, its effect not performed.
            if self.point() {
                continue;
            }
            let Some(input) = self.perform(effect) else { continue };
            // The effect is performed, its answer not recorded.
            if self.point() {
                continue;
            }
            self.handle(input.clone());
            if self.faults.twice {
                self.handle(input);
            }
        }
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.now.wall_ms += 1;
        self.now.mono_ms += 1;
        let output = self.engine.handle(input, self.now);
        self.record(output);
    }

    /// Makes the records durable, then queues the effects.
    fn record(&mut self, output: Output) {
        self.engine.locks().check().expect("no two holders conflict");
        self.store(&output.changes);
        assert_eq!(
            self.stored_cluster.as_ref(),
            self.engine.cluster(),
            "{}: a record was forgotten",
            self.case.name
        );
        self.pending.extend(output.effects);
        for asked in output.follow_ups {
            self.asked.push(asked.clone());
            if self.faults.follow {
                self.follow(asked);
            }
        }
    }

    /// Submits what a job asks for, as the driver does, with numbers from 1000 on.
    fn follow(&mut self, asked: FollowUps) {
        let job = asked.job;
        let parent = &self.engine.job(job).expect("it asks").submission;
        let mut id = 999;
        let submissions = asked.submissions(parent, || {
            id += 1;
            let uuids = (0..6).map(|index| Uuid::from_u128(u128::from(id) << 64 | index)).collect();
            (id, Uuid::from_u128(u128::from(id)), Fresh { uuids, ..self.case.fresh.clone() })
        });
        self.handle(Input::FollowUps(job, submissions));
    }

    /// Writes what is said to have changed, and nothing else.
    fn store(&mut self, changes: &Changes) {
        for id in &changes.jobs {
            let job = self.engine.job(*id).expect("a changed job exists");
            self.stored_jobs.insert(*id, serde_json::to_string(job).expect("jobs are JSON"));
        }
        // Copies kept elsewhere follow the edits; the serial is the commit's own.
        let mut copy = self.stored_cluster.clone();
        for edit in &changes.edits {
            edit.clone().apply(&mut copy);
        }
        if let (Some(copy), Some(cluster)) = (&mut copy, self.engine.cluster()) {
            copy.serial = cluster.serial;
        }
        assert_eq!(copy.as_ref(), self.engine.cluster(), "{}: the edits tell something else", self.case.name);
        // The cluster came to be: what else is touched is a part of it.
        if changes.config.contains(&Touched::All) {
            self.stored_cluster = self.engine.cluster().cloned();
        }
        for touched in &changes.config {
            store_record(&mut self.stored_cluster, self.engine.cluster(), touched);
        }
    }

    /// Whether the master was restarted here.
    fn point(&mut self) -> bool {
        let point = self.points;
        self.points += 1;
        match self.faults.interrupt {
            Some((at, Interrupt::Restart)) if at == point => {
                self.restart();
                true
            }
            Some((at, Interrupt::RestartOften)) if at == point => {
                self.restart_often();
                true
            }
            Some((at, Interrupt::Cancel)) if at == point => {
                self.cancel();
                false
            }
            Some((at, Interrupt::CancelAndRestart)) if at == point => {
                self.cancel();
                self.restart();
                true
            }
            Some((at, Interrupt::Kill)) if at == point => {
                let before = self.pending.len();
                self.kill();
                self.pending.rotate_left(before);
                false
            }
            Some((at, Interrupt::KillAndRestart)) if at == point => {
                self.kill();
                self.restart();
                true
            }
            Some(_) | None => false,
        }
    }

    pub(crate) fn restart_often(&mut self) {
        (0..INTERRUPTIONS_MAX).for_each(|_| self.restart());
    }

    fn kill(&mut self) {
        self.interrupted = true;
        self.cancel_refused = self.engine.kill_refused(JOB);
        self.killed_in = self.engine.job(JOB).map(|job| job.phase.as_str());
        self.handle(Input::Kill(JOB));
    }

    fn cancel(&mut self) {
        self.interrupted = true;
        self.cancel_refused = self.engine.cancel_refused(JOB);
        self.handle(Input::Cancel(JOB));
    }

    /// A new engine over the records; calls that were going are known to the nodes only.
    fn restart(&mut self) {
        self.interrupted = true;
        let text = serde_json::to_string(&self.stored_cluster).expect("clusters are JSON");
        let cluster: Option<Cluster> = serde_json::from_str(&text).expect("what was written can be read");
        assert_eq!(cluster, self.stored_cluster);
        let jobs: Vec<Job> = self
            .stored_jobs
            .values()
            .map(|text| serde_json::from_str(text).expect("what was written can be read"))
            .collect();
        self.pending.clear();
        let (engine, output) = Engine::recover(self.case.local.clone(), cluster, jobs, false, self.now);
        self.engine = engine;
        self.record(output);
    }

    fn perform(&mut self, effect: Effect) -> Option<Input> {
        match effect {
            Effect::RunHooks(call) => {
                let report = self.run_hooks(&call);
                Some(Input::HooksAnswered(call.id, report))
            }
            Effect::Execute { id, call } | Effect::ExecuteAfter { id, call, .. } => {
                self.calls.push((id.step.clone(), call.clone()));
                let answer = match self.journal.get(&id.to_string()) {
                    Some(first) => first.clone(),
                    None => self.execute(&id.step, id.attempt, &call),
                };
                self.journal.insert(id.to_string(), answer.clone());
                Some(Input::CallAnswered(id, answer))
            }
            Effect::EndJob { job, .. } => {
                self.ended.insert(job);
                None
            }
            Effect::StopCall { id, .. } => {
                self.stops += 1;
                if self.faults.mute_stops > 0 {
                    self.faults.mute_stops -= 1;
                    return Some(Input::CallAnswered(
                        id,
                        CallAnswer::NotReached("as the law wants".to_owned()),
                    ));
                }
                // What never began never begins.
                let withdrawn = || CallAnswer::Failed("it never began".to_owned());
                let answer = self.journal.entry(id.to_string()).or_insert_with(withdrawn).clone();
                Some(Input::CallAnswered(id, answer))
            }
        }
    }

    fn execute(&mut self, step: &str, attempt: u32, call: &Call) -> CallAnswer {
        let fault = self.faults.calls.get(step).filter(|_| attempt == 1).copied();
        if fault.is_none_or(|fault| matches!(fault, CallFault::FailAfter | CallFault::SilentAfter)) {
            let answer = self.world.apply(call);
            if self.faults.twice {
                assert_eq!(self.world.apply(call), answer, "{}: a repeat of {call:?}", self.case.name);
            }
            if fault.is_none() {
                return answer;
            }
        }
        match fault {
            Some(CallFault::FailBefore | CallFault::FailAfter) => {
                CallAnswer::Failed("as the law wants".to_owned())
            }
            Some(CallFault::SilentBefore | CallFault::SilentAfter) | None => {
                CallAnswer::NotReached("as the law wants".to_owned())
            }
        }
    }

    fn run_hooks(&mut self, call: &HooksCall) -> NodeReport {
        let key = (call.id.to_string(), call.node.clone());
        if let Some(first) = self.hook_journal.get(&key) {
            return first.clone();
        }
        self.hook_runs.push(call.clone());
        let fault = self.faults.hooks.get(&(call.node.clone(), call.phase)).copied();
        let outcome = match fault {
            _ if self.ended.contains(&call.id.job) && call.id.step != END_STEP => ScriptOutcome::Ended,
            Some(HookFault::Deny) => ScriptOutcome::Failed { code: 1 },
            Some(HookFault::CannotRun | HookFault::Unreachable | HookFault::LostOnce) | None => {
                ScriptOutcome::Passed
            }
        };
        let script = ScriptResult {
            name: "10-law".to_owned(),
            outcome,
            duration_ms: 1,
            stdout: Captured::default(),
            stderr: Captured::default(),
            notes: Vec::new(),
        };
        let global_post_absent = self.faults.no_global_post && call.global.is_some();
        let result = HookResult { scripts: vec![script], global_post_absent, ..HookResult::default() };
        let answer = match fault {
            Some(HookFault::Unreachable) => NodeAnswer::NotReached {
                why: NotReached { reason: "connection refused".to_owned() },
                partial: HookResult::default(),
            },
            Some(HookFault::CannotRun) => {
                let failure = Some("could not read the directory".to_owned());
                NodeAnswer::Answered(HookResult { failure, ..HookResult::default() })
            }
            Some(HookFault::LostOnce) if call.id.attempt == 1 => NodeAnswer::Lost,
            Some(HookFault::Deny | HookFault::LostOnce) | None => NodeAnswer::Answered(result),
        };
        let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
        self.hook_journal.insert(key, report.clone());
        report
    }

    pub(crate) fn job(&self) -> &Job {
        self.engine.job(JOB).expect("it was submitted")
    }

    pub(crate) fn outcome(&self) -> &Outcome {
        let Phase::Done { outcome, .. } = &self.job().phase else { panic!("the job is over") };
        outcome
    }

    pub(crate) fn prepared(&self) -> &Prepared {
        self.job()
            .prepared()
            .unwrap_or_else(|| panic!("{} was refused: {:?}", self.case.name, self.outcome()))
    }

    /// The job's warnings.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        let lines = self.job().log.iter().filter(|line| line.level == Level::Warning);
        lines
            .filter_map(
                |line| if let LogEntry::Text(text) = &line.entry { Some(text.as_str()) } else { None },
            )
            .collect()
    }

    /// Asserts that nothing is changed: neither the configuration nor a file nor a guest.
    pub(crate) fn assert_unchanged(&self) {
        let name = &self.case.name;
        assert_eq!(self.engine.cluster(), self.case.cluster.as_ref(), "{name}: the configuration changed");
        assert_eq!(self.world, world_of(&self.case), "{name}: the world changed");
        // Global scripts hear of every end.
        let own = self.hook_runs.iter().filter(|call| !call.prefix.is_empty());
        let post = own.filter(|call| call.phase == hooks::Phase::Post).count();
        assert_eq!(post, 0, "{name}: post scripts ran");
    }

    /// Asserts that the job did what was asked.
    pub(crate) fn assert_done(&self) {
        assert_eq!(self.outcome(), &Outcome::Success, "{}", self.case.name);
        self.world.check(self.engine.cluster());
    }
}

/// Copies one record from the engine's configuration to the stored one.
fn store_record(stored: &mut Option<Cluster>, cluster: Option<&Cluster>, touched: &Touched) {
    let Some(cluster) = cluster else {
        *stored = None;
        return;
    };
    let stored = stored.as_mut().expect("the cluster was stored before a part of it");
    match touched {
        Touched::All | Touched::Nothing => {}
        Touched::Globals => {
            stored.serial = cluster.serial;
            stored.name = cluster.name.clone();
            stored.master = cluster.master.clone();
            stored.hooks = cluster.hooks.clone();
            stored.hypervisor = cluster.hypervisor.clone();
            stored.fence_command.clone_from(&cluster.fence_command);
            stored.allowed = cluster.allowed.clone();
        }
        Touched::Node(key) => store_entry(&mut stored.nodes, &cluster.nodes, key),
        Touched::Instance(key) => store_entry(&mut stored.instances, &cluster.instances, key),
        Touched::Export(key) => store_entry(&mut stored.exports, &cluster.exports, key),
        Touched::Client(key) => store_entry(&mut stored.clients, &cluster.clients, key),
        Touched::Cleanup(key) => store_entry(&mut stored.cleanups, &cluster.cleanups, key),
        Touched::Group(key) => store_entry(&mut stored.groups, &cluster.groups, key),
        Touched::Network(key) => store_entry(&mut stored.networks, &cluster.networks, key),
        Touched::ClusterTags => stored.tags = cluster.tags.clone(),
    }
}

fn store_entry<K: Ord + Clone, V: Clone>(stored: &mut BTreeMap<K, V>, from: &BTreeMap<K, V>, key: &K) {
    match from.get(key) {
        Some(value) => drop(stored.insert(key.clone(), value.clone())),
        None => drop(stored.remove(key)),
    }
}
