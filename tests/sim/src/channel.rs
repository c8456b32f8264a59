//! The way from the master to the nodes and back, with the obligations of the master's node clients: a greeting first on
//! each connection, the same call id when a lost connection was replaced, "not reached" only after that.

use std::rc::Rc;

use muster_core::{
    calls::{CallAnswer, MasterCall, Output},
    engine::END_STEP,
};

use super::{
    event::{Answer, Caller, Delivery, Event, NodeId, Request},
    process::{Link, Work, node_id},
    world::Simulation,
};

/// A connection is waited for as long, in milliseconds; a lost one is replaced within the same time.
const CONNECT_MS: u64 = 3_000;
/// Pause between tries to replace a connection, in milliseconds.
const RECONNECT_PAUSE_MS: u64 = 300;
/// A connection that lasted this long may be lost once more, in milliseconds.
const GOOD_CONNECTION_MS: u64 = 20_000;
/// A silent connection is given up at the latest after this, in milliseconds.
pub(crate) const SILENCE_MS: (u64, u64) = (5_000, 20_000);
/// Longest pause of the watch between tries, in milliseconds.
pub(crate) const WATCH_PAUSE_MS: u64 = 10_000;
/// How often what is held up by a cut tries again, in milliseconds.
const RETRANSMIT_MS: u64 = 1_000;

impl Simulation {
    /// Connects to a node, with the greeting; false where that is not possible at present.
    fn connect(&mut self, node: NodeId) -> Result<bool, String> {
        let Some(process) = &mut self.process else { return Ok(false) };
        let target = &mut self.nodes[node];
        if !target.reachable() {
            return Ok(false);
        }
        self.connections += 1;
        target.greet(process.epoch, self.connections, &process.alive, &mut self.context)?;
        if !target.up {
            // It died in a write.
            self.see_boot();
            return Ok(false);
        }
        let link = Link { connection: self.connections, since_ms: self.context.now() };
        process.links.insert(node, link);
        target.reachable_since_ms = self.context.now();
        self.context.log(|| format!("master {} is connected to node{}", process.incarnation, node + 1));
        Ok(true)
    }

    /// A task tries to get a connection, and sends its request when there is one.
    pub(crate) fn dial(&mut self, task_id: u64) {
        let now = self.context.now();
        let Some(process) = &self.process else { return };
        let Some(task) = process.tasks.get(&task_id) else { return };
        let (node, give_up_ms, incarnation) = (task.node, task.give_up_ms, process.incarnation);
        let is_linked = process.links.contains_key(&node);
        let connected = if is_linked { Ok(true) } else { self.connect(node) };
        match connected {
            Ok(true) => self.transmit(task_id),
            Ok(false) if self.nodes[node].up => {
                self.context.after(CONNECT_MS, Event::DialFailed(incarnation, task_id))
            }
            Ok(false) if give_up_ms.is_some_and(|end| now + RECONNECT_PAUSE_MS < end) => {
                self.context.after(RECONNECT_PAUSE_MS, Event::Dial(incarnation, task_id));
            }
            Ok(false) => self.give_up(task_id, "connection refused"),
            Err(why) => {
                if let Some(process) = &mut self.process {
                    process.answered(task_id, Answer::Refused(why), &mut self.context);
                }
            }
        }
    }

    /// A connection was waited for in vain, unless another task has got one.
    pub(crate) fn dial_failed(&mut self, task_id: u64) {
        let Some(process) = &self.process else { return };
        let Some(task) = process.tasks.get(&task_id) else { return };
        if process.links.contains_key(&task.node) {
            self.transmit(task_id);
        } else {
            self.give_up(task_id, "no answer within 3 s");
        }
    }

    fn give_up(&mut self, task_id: u64, why: &str) {
        if let Some(process) = &mut self.process {
            process.not_reached(task_id, why, &mut self.context);
        }
    }

    fn transmit(&mut self, task_id: u64) {
        let Some(process) = &mut self.process else { return };
        let Some(task) = process.tasks.get_mut(&task_id) else { return };
        if let Work::Hooks(call) = &task.work
            && !process.alive.spares(call.id.job, call.id.step == END_STEP)
        {
            // The job ended while the connection was waited for.
            return self.give_up(task_id, "its job is over");
        }
        let link = process.links[&task.node];
        task.sent_on = Some(link.connection);
        let request = match &task.work {
            Work::Hooks(call) => Request::Hooks(call.clone()),
            Work::Execute(id, call) => Request::Execute(id.job, Rc::new(call.clone())),
            Work::EndJob(job, calls) | Work::StopEnd(_, job, calls) => Request::EndJob(*job, calls.clone()),
            Work::StopExecute(_, job, call) => Request::Execute(*job, Rc::new(call.clone())),
            Work::Master(..) | Work::Abandoned(_) => {
                unreachable!("the master's own work needs no connection")
            }
        };
        let delivery = Delivery {
            node: task.node,
            boot: self.nodes[task.node].boot,
            caller: Caller { incarnation: process.incarnation, task: task_id, connection: link.connection },
            epoch: process.epoch,
            wire: task.wire.clone(),
            request,
        };
        let delay_ms = self.delay();
        self.context.after(delay_ms, Event::Deliver(delivery));
    }

    fn delay(&mut self) -> u64 {
        if self.context.fault(30) {
            self.context.random.range(500, 4_000)
        } else {
            self.context.random.range(1, 20)
        }
    }

    /// Whether a connection is still the one that the present master has.
    fn is_current(&self, node: NodeId, caller: Caller) -> bool {
        self.process.as_ref().is_some_and(|process| {
            process.incarnation == caller.incarnation
                && process.links.get(&node).is_some_and(|link| link.connection == caller.connection)
        })
    }

    /// A request arrives, or waits where nothing gets through.
    pub(crate) fn deliver(&mut self, delivery: Delivery) {
        let is_current = self.is_current(delivery.node, delivery.caller);
        let node = &mut self.nodes[delivery.node];
        if node.boot != delivery.boot || !node.up {
            return;
        }
        if node.cut {
            if is_current || self.context.random.permille(300) {
                self.context.after(RETRANSMIT_MS, Event::Deliver(delivery));
            }
            return;
        }
        if node.frozen {
            node.inbox.push(delivery);
            return;
        }
        self.see_delivery(&delivery);
        self.nodes[delivery.node].deliver(delivery, &mut self.context);
        self.see_boot();
    }

    /// An answer arrives at the master; nobody waits for it where its connection was given up.
    pub(crate) fn reply(&mut self, node: NodeId, caller: Caller, answer: Answer) {
        if !self.is_current(node, caller) {
            return;
        }
        if self.nodes[node].cut {
            return self.context.after(RETRANSMIT_MS, Event::Reply(node, caller, answer));
        }
        let Some(process) = &mut self.process else { return };
        if process.tasks.get(&caller.task).is_some_and(|task| task.sent_on == Some(caller.connection)) {
            process.answered(caller.task, answer, &mut self.context);
        }
    }

    /// The master gives a connection up: its calls try once more, or their node counts as not reached.
    pub(crate) fn link_lost(&mut self, node: NodeId, connection: u64) {
        let now = self.context.now();
        let Some(process) = &mut self.process else { return };
        let Some(link) = process.links.get(&node).copied().filter(|link| link.connection == connection)
        else {
            return;
        };
        process.links.remove(&node);
        self.context.log(|| format!("master {} loses node{}", process.incarnation, node + 1));
        let mut given_up = Vec::new();
        for (id, task) in &mut process.tasks {
            if task.node != node || task.sent_on != Some(connection) {
                continue;
            }
            task.sent_on = None;
            if task.reconnected && now - link.since_ms < GOOD_CONNECTION_MS {
                given_up.push(*id);
                continue;
            }
            task.reconnected = true;
            task.give_up_ms = Some(now + CONNECT_MS);
            let delay_ms = self.context.random.range(1, 50);
            self.context.after(delay_ms, Event::Dial(process.incarnation, *id));
        }
        let incarnation = process.incarnation;
        let is_new = process.watched.insert(node);
        given_up.into_iter().for_each(|id| self.give_up(id, "connection lost again"));
        if is_new {
            let pause_ms = self.context.random.range(1_000, WATCH_PAUSE_MS);
            self.context.after(pause_ms, Event::Watch(incarnation, node));
        }
    }

    /// The background watch of a node.
    pub(crate) fn watch(&mut self, node: NodeId) {
        let Some(process) = &mut self.process else { return };
        process.watched.remove(&node);
        if process.links.contains_key(&node) || !process.is_member(node) {
            return;
        }
        process.watched.insert(node);
        let incarnation = process.incarnation;
        if !self.connect(node).unwrap_or(false) {
            return self.context.after(WATCH_PAUSE_MS, Event::Watch(incarnation, node));
        }
        if let Some(process) = &mut self.process {
            process.watched.remove(&node);
        }
    }

    /// Connections to a node that is gone, or is silent from now on, are lost after a while.
    pub(crate) fn break_link(&mut self, node: NodeId, after_ms: u64) {
        let Some(process) = &self.process else { return };
        if let Some(link) = process.links.get(&node) {
            self.context.after(after_ms, Event::LinkLost(process.incarnation, node, link.connection));
        }
    }

    /// What the master does itself is done.
    pub(crate) fn master_work(&mut self, task_id: u64) {
        let Some(process) = &self.process else { return };
        let Some(task) = process.tasks.get(&task_id) else { return };
        let (id, call) = match task.work.clone() {
            Work::Master(id, call) => (id, call),
            Work::Abandoned(call) => {
                let answer = self.carry_out(&call);
                self.context.log(|| format!("master's own work, given up: {answer:?}"));
                if let Some(process) = &mut self.process {
                    process.tasks.remove(&task_id);
                }
                return;
            }
            Work::Hooks(_)
            | Work::Execute(..)
            | Work::EndJob(..)
            | Work::StopEnd(..)
            | Work::StopExecute(..) => return,
        };
        let answer = if self.context.fault(20) {
            CallAnswer::Failed("a fault of the master's own work".to_owned())
        } else {
            self.carry_out(&call)
        };
        if matches!(answer, CallAnswer::Done(_)) {
            self.context.witness.done.insert((id.job, id.step.clone()));
        }
        self.context.log(|| format!("master's own work: {id} {answer:?}"));
        if let Some(process) = &mut self.process {
            process.answered(task_id, Answer::Call(answer), &mut self.context);
        }
    }

    fn carry_out(&mut self, call: &MasterCall) -> CallAnswer {
        let nodes = match call {
            MasterCall::CopyImage { from_node, to_node, .. } => vec![from_node, to_node],
            MasterCall::PendingDeliver { node, .. } | MasterCall::NodeLeave { node, .. } => vec![node],
            MasterCall::CaCreate { .. }
            | MasterCall::CaRemove
            | MasterCall::LocalNodeSign { .. }
            | MasterCall::LocalNodeLeave
            | MasterCall::PendingSign { .. }
            | MasterCall::PendingWithdraw { .. }
            | MasterCall::CertificateRenew { .. }
            | MasterCall::Fence { .. }
            | MasterCall::ClientSign { .. } => Vec::new(),
        };
        if let Some(away) = nodes.into_iter().find(|node| !self.nodes[node_id(node)].reachable()) {
            return CallAnswer::NotReached(format!("{away} is silent"));
        }
        let mut output = Output::default();
        match call {
            MasterCall::CopyImage { from_node, from, to_node, to } => {
                let content = self.nodes[node_id(from_node)].holdings.read(from);
                let written = content.and_then(|text| self.nodes[node_id(to_node)].holdings.write(to, text));
                if let Err(why) = written {
                    return CallAnswer::Failed(why);
                }
            }
            MasterCall::PendingSign { node, uuid, .. } => {
                output.node = Some(node.clone());
                output.fingerprint = Some(format!("signed {uuid}"));
            }
            MasterCall::PendingDeliver { .. }
            | MasterCall::NodeLeave { .. }
            | MasterCall::CaCreate { .. }
            | MasterCall::CaRemove
            | MasterCall::LocalNodeSign { .. }
            | MasterCall::LocalNodeLeave
            | MasterCall::PendingWithdraw { .. }
            | MasterCall::CertificateRenew { .. }
            | MasterCall::Fence { .. }
            | MasterCall::ClientSign { .. } => {}
        }
        CallAnswer::Done(output)
    }
}
