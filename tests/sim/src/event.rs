//! What happens in a simulation, in the order of its time.

use std::{cell::Cell, collections::BTreeMap, rc::Rc};

use muster_core::{
    calls::{CallAnswer, NodeCall},
    engine::HooksCall,
    hooks::NodeAnswer,
};

use super::{
    check::{Checker, Violation},
    mutation::Mutation,
    random::Random,
    witness::Witness,
};

/// A node's number: `node1` has 0.
pub(crate) type NodeId = usize;

/// What a master asks of a node.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    Hooks(Rc<HooksCall>),
    Execute(u64, Rc<NodeCall>),
    /// End what runs for a job; these calls may not begin any more.
    EndJob(u64, Rc<[String]>),
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The run of the master daemon.
    pub(crate) incarnation: u64,
    /// Its task.
    pub(crate) task: u64,
    /// The connection, a number of the master's.
    pub(crate) connection: u64,
}

/// A request on its way.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(crate) node: NodeId,
    /// The run of the node's daemon that the connection leads to.
    pub(crate) boot: u64,
    pub(crate) caller: Caller,
    pub(crate) epoch: u64,
    pub(crate) wire: String,
    pub(crate) request: Request,
}

/// What a node says.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Hooks(NodeAnswer),
    Call(CallAnswer),
    /// The runs of a job are told to end.
    Ended,
    /// The request can't be carried out, or its sender has lost its office.
    Refused(String),
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    /// A client or a fault acts.
    Act,
    /// The master makes durable what it has handled.
    Flush(u64),
    /// A connection for a task is tried.
    Dial(u64, u64),
    /// A connection for a task was tried in vain.
    DialFailed(u64, u64),
    /// The background watch of a node, by the incarnation, tries to connect.
    Watch(u64, NodeId),
    /// The master notices that its connection is gone.
    LinkLost(u64, NodeId, u64),
    Deliver(Delivery),
    Reply(NodeId, Caller, Answer),
    /// Work that the master does itself ends.
    MasterWork(u64, u64),
    /// A run on a node ends: by node, boot and call.
    RunEnds(NodeId, u64, String),
    /// The node looks whether all that it was told to end has ended: by node, boot, caller and job, until when.
    JobEnds(NodeId, u64, Caller, u64, u64),
    /// The end of a killed call was waited for long enough.
    StopLimit(u64, u64),
    /// Left-over cleanups are to be tried.
    Tick(u64),
    MasterStarts,
    NodeStarts(NodeId),
    Thaws(NodeId),
    Heals(NodeId),
    /// A master that was taken for dead goes on.
    ZombieActs,
}

/// What every part of a simulation uses.
pub(crate) struct Context {
    pub(crate) clock: Rc<Cell<u64>>,
    pub(crate) random: Random,
    pub(crate) witness: Witness,
    pub(crate) mutation: Option<Mutation>,
    pub(crate) violation: Option<Violation>,
    /// The safety phase: things go wrong.
    pub(crate) faults_on: bool,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    trace: Option<Vec<String>>,
    digest: u64,
}

impl Context {
    pub(crate) fn new(seed: u64, mutation: Option<Mutation>, with_trace: bool) -> Self {
        Context {
            clock: Rc::default(),
            random: Random::new(seed),
            witness: Witness::default(),
            mutation,
            violation: None,
            faults_on: true,
            queue: BTreeMap::new(),
            sequence: 0,
            trace: with_trace.then(Vec::new),
            digest: 0,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.get()
    }

    /// Lets an event happen later.
    pub(crate) fn after(&mut self, delay_ms: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now() + delay_ms, self.sequence), event);
    }

    /// The next event; the clock moves to it.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let ((time, sequence), event) = self.queue.pop_first()?;
        self.clock.set(time);
        self.digest = self.digest.rotate_left(5) ^ (time << 20) ^ sequence ^ self.random.clone().number();
        Some(event)
    }

    /// Removes the events that are not wanted any more.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Event) -> bool) {
        self.queue.retain(|_, event| keep(event));
    }

    /// A number that two runs of a seed share, and hardly any two runs that differ.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// A fault of the safety phase, this often in a thousand.
    pub(crate) fn fault(&mut self, permille: u64) -> bool {
        self.faults_on && self.random.permille(permille)
    }

    pub(crate) fn log(&mut self, line: impl FnOnce() -> String) {
        let now = self.clock.get();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>9} {}", line()));
        }
    }

    /// Keeps the first broken promise.
    pub(crate) fn violate(&mut self, checker: Checker, what: String) {
        if self.violation.is_none() {
            self.log(|| format!("VIOLATION {checker:?}: {what}"));
            self.violation = Some(Violation { checker, what });
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }
}
