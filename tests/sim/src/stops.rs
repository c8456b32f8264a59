//! How the master has the call of a killed job ended, as its effects do it: the node ends the call or takes care that it
//! never begins, then tells the call's answer; 20 s later nobody waits for it any more.

use std::rc::Rc;

use muster_core::{
    calls::{Call, CallAnswer, MasterCall},
    engine::{CallId, Effect, Input, Phase},
};

use super::{
    event::{Context, Event},
    mutation::Mutation,
    process::{Process, Work, node_id},
};

/// How long the end of a killed call is waited for, in milliseconds.
pub(crate) const STOP_LIMIT_MS: u64 = 20_000;

/// A call whose end is asked for.
#[derive(Debug)]
pub(crate) struct Stop {
    id: CallId,
    call: Call,
    /// Nodes that have not confirmed it.
    open: usize,
    then: Then,
}

/// What follows when all has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It is asked how the call ended.
    Ask,
    /// The call, another job's, is carried out.
    Execute,
}

impl Process {
    pub(super) fn stop_call(&mut self, id: CallId, call: Call, context: &mut Context) {
        if context.mutated(Mutation::StopsNothing) {
            return;
        }
        let is_blocked =
            self.driver.engine().job(id.job).is_some_and(|job| matches!(job.phase, Phase::Blocked { .. }));
        if is_blocked && context.mutated(Mutation::NeverConfirms) {
            let answer = CallAnswer::NotReached("a mutation".to_owned());
            return self.answer(Input::CallAnswered(id, answer), context);
        }
        let stop = self.next_stop;
        self.next_stop += 1;
        let (job, wire) = (id.job, self.wire(&id));
        let (nodes, calls) = match &call {
            Call::Node(node, _) => (vec![node_id(node)], vec![wire]),
            Call::Master(MasterCall::CopyImage { from_node, to_node, .. }) => {
                (vec![node_id(from_node), node_id(to_node)], Vec::new())
            }
            Call::Master(_) => (Vec::new(), Vec::new()),
        };
        if matches!(call, Call::Master(_)) {
            self.abandon(&id, context);
        }
        self.stops.insert(stop, Stop { id, call, open: nodes.len(), then: Then::Ask });
        if nodes.is_empty() {
            return self.all_ended(stop, context);
        }
        context.after(STOP_LIMIT_MS, Event::StopLimit(self.incarnation, stop));
        let calls: Rc<[String]> = calls.into();
        for node in nodes {
            let work = Work::StopEnd(stop, job, calls.clone());
            self.begin(node, format!("stop-{job}"), work, context);
        }
    }

    /// Has a call's node end what another job left going there, then carries the call out.
    pub(super) fn execute_after(
        &mut self,
        id: CallId,
        call: Call,
        job: u64,
        calls: &[CallId],
        context: &mut Context,
    ) {
        let node = node_id(call.node().expect("such a call has a node"));
        let calls: Rc<[String]> = calls.iter().map(|id| self.wire(id)).collect();
        let stop = self.next_stop;
        self.next_stop += 1;
        self.stops.insert(stop, Stop { id, call, open: 1, then: Then::Execute });
        context.after(STOP_LIMIT_MS, Event::StopLimit(self.incarnation, stop));
        let work = Work::StopEnd(stop, job, calls);
        self.begin(node, format!("after-{job}"), work, context);
    }

    /// The master's own call is done this moment or never.
    fn abandon(&mut self, id: &CallId, context: &mut Context) {
        let is_meant = |work: &Work| matches!(work, Work::Master(own, _) if own == id);
        let Some((task, _)) = self.tasks.iter().find(|(_, task)| is_meant(&task.work)) else { return };
        let task = *task;
        if let Some(given_up) = self.tasks.remove(&task)
            && let Work::Master(_, call) = &given_up.work
            && context.random.permille(500)
        {
            let work = Work::Abandoned(call.clone());
            self.tasks.insert(task, super::process::Task { work, ..given_up });
            context.after(0, Event::MasterWork(self.incarnation, task));
        }
    }

    /// A node has ended what it did for the job, or nobody can tell.
    pub(super) fn stop_ended(&mut self, stop: u64, ended: Result<(), String>, context: &mut Context) {
        let Some(open) = self.stops.get_mut(&stop) else { return };
        match ended {
            Ok(()) => {
                open.open -= 1;
                if open.open == 0 {
                    self.all_ended(stop, context);
                }
            }
            Err(why) => self.stop_answered(stop, CallAnswer::NotReached(why), context),
        }
    }

    fn all_ended(&mut self, stop: u64, context: &mut Context) {
        let Some(Stop { id, call, then, .. }) = self.stops.get(&stop) else { return };
        if *then == Then::Execute {
            let effect = Effect::Execute { id: id.clone(), call: call.clone() };
            self.stops.remove(&stop);
            return self.perform(effect, context);
        }
        match call.clone() {
            Call::Node(node, call) => {
                let (job, wire) = (id.job, self.wire(id));
                self.begin(node_id(&node), wire, Work::StopExecute(stop, job, call), context);
            }
            Call::Master(_) => {
                let answer = CallAnswer::Failed("ended because its job was killed".to_owned());
                self.stop_answered(stop, answer, context);
            }
        }
    }

    pub(super) fn stop_answered(&mut self, stop: u64, answer: CallAnswer, context: &mut Context) {
        if let Some(Stop { id, .. }) = self.stops.remove(&stop) {
            self.answer(Input::CallAnswered(id, answer), context);
        }
    }

    /// Nobody waits for the end of a call any more.
    pub(crate) fn stop_limit(&mut self, stop: u64, context: &mut Context) {
        if !self.stops.contains_key(&stop) {
            return;
        }
        self.tasks.retain(|_, task| match task.work {
            Work::StopEnd(of, ..) | Work::StopExecute(of, ..) => of != stop,
            Work::Hooks(_) | Work::Execute(..) | Work::Master(..) | Work::Abandoned(_) | Work::EndJob(..) => {
                true
            }
        });
        self.stop_answered(stop, CallAnswer::NotReached("no confirmation within 20 s".to_owned()), context);
    }
}
