//! One run of the master daemon: the real driver, what it has published, and its tasks' way to the nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use muster_core::{
    calls::{AliveJobs, Call, CallAnswer, MasterCall, NodeCall},
    engine::{CallId, Effect, HooksCall, Input},
    hooks::{HookResult, NodeAnswer, NodeReport, NotReached},
    model::Cluster,
    names::NodeName,
};
use muster_master::driver::{Command, Driver};
use uuid::Uuid;

use super::{
    disk::SimStore,
    edges::{SimClock, SimIds},
    event::{Answer, Context, Event, NodeId},
    mutation::Mutation,
    stops::Stop,
};

/// The real driver over simulated edges.
pub(crate) type SimDriver = Driver<SimStore, SimClock, SimIds>;

/// What a task of the shell does.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Hooks(Rc<HooksCall>),
    Execute(CallId, NodeCall),
    Master(CallId, MasterCall),
    /// The master's own work for a killed job, which nobody waits for.
    Abandoned(MasterCall),
    EndJob(u64, Rc<[String]>),
    /// The first part of a stop: the node ends the call and all else of the job.
    StopEnd(u64, u64, Rc<[String]>),
    /// The second part: the node's answer to the call.
    StopExecute(u64, u64, NodeCall),
}

/// A task of the shell, and where it is on its way.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) node: NodeId,
    pub(crate) wire: String,
    pub(crate) work: Work,
    /// The connection that its request went out on.
    pub(crate) sent_on: Option<u64>,
    /// It has lost a connection before.
    pub(crate) reconnected: bool,
    /// Until when it tries to connect again; `None` for a single try.
    pub(crate) give_up_ms: Option<u64>,
}

/// The kept connection to a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) connection: u64,
    pub(crate) since_ms: u64,
}

/// A run of the master daemon.
pub(crate) struct Process {
    pub(crate) driver: SimDriver,
    pub(crate) incarnation: u64,
    pub(crate) epoch: u64,
    /// The configuration as published.
    pub(crate) cluster: Option<Cluster>,
    /// Jobs that are not over, as published.
    pub(crate) alive: AliveJobs,
    /// The jobs' uuids.
    pub(crate) uuids: BTreeMap<u64, Uuid>,
    pub(crate) inbox: Vec<Command>,
    pub(crate) flush_due: bool,
    pub(crate) tasks: BTreeMap<u64, Task>,
    next_task: u64,
    pub(crate) links: BTreeMap<NodeId, Link>,
    /// Nodes that the background tries to reach.
    pub(crate) watched: BTreeSet<NodeId>,
    /// Calls of killed jobs whose end is asked for.
    pub(super) stops: BTreeMap<u64, Stop>,
    pub(super) next_stop: u64,
    answers: u64,
}

/// The number of a node: `node1` has 0.
pub(crate) fn node_id(name: &NodeName) -> NodeId {
    let number: NodeId = name.as_str().trim_start_matches("node").parse().expect("nodes are named by number");
    number - 1
}

impl Process {
    pub(crate) fn new(driver: SimDriver, incarnation: u64, epoch: u64, cluster: Option<Cluster>) -> Self {
        Process {
            driver,
            incarnation,
            epoch,
            cluster,
            alive: AliveJobs::default(),
            uuids: BTreeMap::new(),
            inbox: Vec::new(),
            flush_due: false,
            tasks: BTreeMap::new(),
            next_task: 0,
            links: BTreeMap::new(),
            watched: BTreeSet::new(),
            stops: BTreeMap::new(),
            next_stop: 0,
            answers: 0,
        }
    }

    /// Gives the driver something to do; it is made durable a moment later, with what else comes until then.
    pub(crate) fn send(&mut self, command: Command, context: &mut Context) {
        self.inbox.push(command);
        if !self.flush_due {
            self.flush_due = true;
            let delay_ms = if context.random.permille(300) { context.random.range(1, 8) } else { 0 };
            context.after(delay_ms, Event::Flush(self.incarnation));
        }
    }

    /// Members that are not offline, and this host.
    pub(crate) fn is_member(&self, node: NodeId) -> bool {
        let nodes = self.cluster.iter().flat_map(|cluster| cluster.nodes.values());
        node == 0 || nodes.into_iter().any(|member| node_id(&member.name) == node && !member.offline)
    }

    pub(super) fn wire(&self, id: &CallId) -> String {
        match self.uuids.get(&id.job) {
            Some(uuid) => format!("{}-{}/{}/{}", id.job, uuid.simple(), id.step, id.attempt),
            None => id.to_string(),
        }
    }

    /// Begins to perform an effect: one task a node.
    pub(crate) fn perform(&mut self, effect: Effect, context: &mut Context) {
        match effect {
            Effect::RunHooks(mut call) => {
                if context.mutated(Mutation::AnswersForNodes) {
                    let answer = NodeAnswer::Answered(HookResult::default());
                    return self.hooks_answered(&call, answer, context);
                }
                if context.mutated(Mutation::ChangesEnvironment) {
                    call.env = call.env.set("ATTEMPT", call.id.attempt.to_string());
                }
                let (node, wire) = (node_id(&call.node), self.wire(&call.id));
                self.begin(node, wire, Work::Hooks(Rc::new(*call)), context);
            }
            Effect::Execute { id, call } => {
                if context.mutated(Mutation::SkipsSteps) {
                    let answer = CallAnswer::Done(Default::default());
                    return self.answer(Input::CallAnswered(id, answer), context);
                }
                let wire = self.wire(&id);
                match call {
                    Call::Node(node, call) => {
                        self.begin(node_id(&node), wire, Work::Execute(id, call), context)
                    }
                    Call::Master(call) => self.begin(0, wire, Work::Master(id, call), context),
                }
            }
            Effect::ExecuteAfter { id, call, job, calls } => {
                self.execute_after(id, call, job, &calls, context)
            }
            Effect::StopCall { id, call } => self.stop_call(id, call, context),
            Effect::EndJob { job, nodes, calls } => {
                let calls: Rc<[String]> = calls.iter().map(|id| self.wire(id)).collect();
                for node in nodes {
                    let work = Work::EndJob(job, calls.clone());
                    self.begin(node_id(&node), format!("end-{job}"), work, context);
                }
            }
        }
    }

    pub(super) fn begin(&mut self, node: NodeId, wire: String, work: Work, context: &mut Context) {
        let id = self.next_task;
        self.next_task += 1;
        let is_own = matches!(work, Work::Master(..));
        context.log(|| {
            format!("master {} task {id}: {wire} on node{} {}", self.incarnation, node + 1, kind(&work))
        });
        self.tasks.insert(id, Task { node, wire, work, sent_on: None, reconnected: false, give_up_ms: None });
        if is_own {
            let takes_ms = if context.fault(30) { 8_000 } else { context.random.range(1, 300) };
            context.after(takes_ms, Event::MasterWork(self.incarnation, id));
        } else if self.is_member(node) {
            context.after(0, Event::Dial(self.incarnation, id));
        } else {
            self.not_reached(id, "it is offline or not a node of the cluster", context);
        }
    }

    /// A task's node counts as not reached.
    pub(crate) fn not_reached(&mut self, id: u64, why: &str, context: &mut Context) {
        let Some(task) = self.tasks.remove(&id) else { return };
        context.log(|| format!("master {} task {id}: not reached: {why}", self.incarnation));
        match task.work {
            Work::Hooks(call) => {
                let place = (call.id.job, call.id.step.clone(), task.node);
                context.witness.unreached.insert(place);
                let why = NotReached { reason: why.to_owned() };
                let answer = NodeAnswer::NotReached { why, partial: HookResult::default() };
                self.hooks_answered(&call, answer, context);
            }
            Work::Execute(id, _) | Work::Master(id, _) => {
                self.answer(Input::CallAnswered(id, CallAnswer::NotReached(why.to_owned())), context);
            }
            Work::StopEnd(stop, ..) => self.stop_ended(stop, Err(why.to_owned()), context),
            Work::StopExecute(stop, ..) => {
                self.stop_answered(stop, CallAnswer::NotReached(why.to_owned()), context);
            }
            Work::Abandoned(_) | Work::EndJob(..) => {}
        }
    }

    /// A task has its answer.
    pub(crate) fn answered(&mut self, id: u64, answer: Answer, context: &mut Context) {
        let Some(task) = self.tasks.remove(&id) else { return };
        match (task.work, answer) {
            (Work::Hooks(call), Answer::Hooks(answer)) => {
                context.witness.unreached.remove(&(call.id.job, call.id.step.clone(), task.node));
                self.hooks_answered(&call, answer, context);
            }
            (Work::Hooks(call), Answer::Refused(why)) => {
                let result = HookResult { failure: Some(why), ..HookResult::default() };
                self.hooks_answered(&call, NodeAnswer::Answered(result), context);
            }
            (Work::Execute(id, _) | Work::Master(id, _), Answer::Call(answer)) => {
                self.answer(Input::CallAnswered(id, answer), context);
            }
            (Work::Execute(id, _) | Work::Master(id, _), Answer::Refused(why)) => {
                self.answer(Input::CallAnswered(id, CallAnswer::Failed(why)), context);
            }
            (Work::StopEnd(stop, ..), Answer::Ended) => self.stop_ended(stop, Ok(()), context),
            (Work::StopEnd(stop, ..), Answer::Refused(why)) => self.stop_ended(stop, Err(why), context),
            (Work::StopExecute(stop, ..), Answer::Call(answer)) => self.stop_answered(stop, answer, context),
            (Work::StopExecute(stop, ..), Answer::Refused(why)) => {
                self.stop_answered(stop, CallAnswer::Failed(why), context);
            }
            (Work::Abandoned(_), Answer::Call(_)) => {}
            (Work::EndJob(..), Answer::Ended | Answer::Refused(_)) => {}
            (work, answer) => unreachable!("{work:?} is answered by {answer:?}"),
        }
    }

    fn hooks_answered(&mut self, call: &HooksCall, answer: NodeAnswer, context: &mut Context) {
        let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
        self.answer(Input::HooksAnswered(call.id.clone(), report), context);
    }

    /// Tells the driver; the answer may come twice.
    pub(super) fn answer(&mut self, input: Input, context: &mut Context) {
        self.answers += 1;
        if context.mutated(Mutation::DropsAnswers) && self.answers.is_multiple_of(20) {
            return;
        }
        if context.fault(30) {
            self.send(Command::Input(input.clone()), context);
        }
        self.send(Command::Input(input), context);
    }
}

fn kind(work: &Work) -> String {
    match work {
        Work::Hooks(call) => format!("hooks {}", call.prefix),
        Work::Execute(_, call) => format!("{call:?}"),
        Work::Master(_, call) | Work::Abandoned(call) => format!("{call:?}"),
        Work::EndJob(..) => "end".to_owned(),
        Work::StopEnd(..) => "stop".to_owned(),
        Work::StopExecute(_, _, call) => format!("how it ended: {call:?}"),
    }
}
