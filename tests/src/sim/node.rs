//! A node: its daemon with the real call journals, the scripts that it watches, and what it holds.
//!
//! A daemon's crash takes the journals' memory and the connections. What its scripts do goes on without it until the
//! next daemon ends what is left of calls that were not answered, before it serves.

use std::{collections::BTreeMap, rc::Rc};

use muster_core::{calls::NodeCall, engine::HooksCall, hooks::HookResult, names::NodeName};
use muster_hooksrv::{CallId, Journal};

use super::{
    call_store::MemoryCalls,
    event::{Answer, Caller, Context, Delivery, Event, NodeId, Request},
    holdings::Holdings,
    mutation::Mutation,
    scripts,
};

mod calls;

/// What a run does.
#[derive(Debug, Clone)]
enum Work {
    Hooks(Rc<HooksCall>, HookResult),
    Call(NodeCall, Fate),
}

/// How a call to a backend goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Works,
    FailsBefore,
    FailsAfter,
}

/// A call that is carried out.
#[derive(Debug, Clone)]
struct Run {
    id: CallId,
    job: u64,
    work: Work,
    listeners: Vec<Caller>,
    ends_ms: u64,
}

/// A node.
pub(crate) struct SimNode {
    pub(crate) id: NodeId,
    pub(crate) name: NodeName,
    seed: u64,
    pub(crate) up: bool,
    /// Counts the daemon's runs.
    pub(crate) boot: u64,
    /// Stopped by a signal: takes nothing from its connections.
    pub(crate) frozen: bool,
    /// No packet goes to or from it.
    pub(crate) cut: bool,
    /// The operator took its power.
    pub(crate) fenced: bool,
    /// Since when the master could have told it what is over.
    pub(crate) reachable_since_ms: u64,
    pub(crate) holdings: Holdings,
    epoch_seen: u64,
    hooks_store: MemoryCalls,
    calls_store: MemoryCalls,
    hooks: Option<Journal<MemoryCalls>>,
    calls: Option<Journal<MemoryCalls>>,
    running: BTreeMap<String, Run>,
    /// Runs whose daemon is gone.
    orphans: Vec<Run>,
    pub(crate) inbox: Vec<Delivery>,
    /// Calls of a job are carried out one after another.
    ordered: bool,
    /// Calls that wait for another of their job.
    waiting: Vec<Delivery>,
    /// The newest connection that was greeted.
    connection_seen: u64,
}

impl SimNode {
    pub(crate) fn new(id: NodeId, name: NodeName, seed: u64, ordered: bool, holdings: Holdings) -> Self {
        let (hooks_store, calls_store) = (MemoryCalls::default(), MemoryCalls::default());
        SimNode {
            id,
            name,
            seed,
            up: true,
            boot: 1,
            frozen: false,
            cut: false,
            fenced: false,
            reachable_since_ms: 0,
            holdings,
            epoch_seen: 0,
            hooks: Journal::open(hooks_store.clone()).ok(),
            calls: Journal::open(calls_store.clone()).ok(),
            hooks_store,
            calls_store,
            running: BTreeMap::new(),
            orphans: Vec::new(),
            inbox: Vec::new(),
            ordered,
            waiting: Vec::new(),
            connection_seen: 0,
        }
    }

    /// Whether packets and answers go through.
    pub(crate) fn reachable(&self) -> bool {
        self.up && !self.frozen && !self.cut
    }

    /// Jobs of the scripts that run, with the calls.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = (u64, &CallId)> {
        let hooks = self.running.values().filter(|run| matches!(run.work, Work::Hooks(..)));
        hooks.map(|run| (run.job, &run.id))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.orphans.is_empty()
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.hooks_store.set_full(full);
        self.calls_store.set_full(full);
    }

    /// The daemon dies in one of its next writes.
    pub(crate) fn die_in(&self, writes: u32) {
        self.hooks_store.die_in(writes);
        self.calls_store.die_in(writes);
    }

    /// The daemon does not die in a write any more.
    pub(crate) fn heal_journals(&self) {
        if self.up {
            self.hooks_store.restart();
            self.calls_store.restart();
        }
    }

    /// Ends all that the operator's fencing takes: daemon, scripts and guests.
    pub(crate) fn power_off(&mut self, context: &mut Context) -> Vec<uuid::Uuid> {
        if self.up {
            self.crash(context);
        }
        self.fenced = true;
        for run in std::mem::take(&mut self.orphans) {
            self.script_ended(&run, context);
        }
        std::mem::take(&mut self.holdings.guests).into_iter().collect()
    }

    /// The daemon dies; its scripts go on.
    pub(crate) fn crash(&mut self, context: &mut Context) {
        context.log(|| format!("{} crashes", self.name));
        self.up = false;
        self.frozen = false;
        self.boot += 1;
        self.inbox.clear();
        self.waiting.clear();
        self.hooks = None;
        self.calls = None;
        let now = context.now();
        for (wire, run) in std::mem::take(&mut self.running) {
            context.witness.begun.remove(&(self.id, wire));
            match &run.work {
                Work::Hooks(..) => self.orphans.push(run),
                // Done, half done or not begun: each call leads to the same state from there when it is repeated.
                Work::Call(call, fate) if *fate == Fate::Works && context.random.permille(500) => {
                    self.apply(&call.clone(), context);
                }
                Work::Call(..) => {}
            }
        }
        context.log(|| format!("{} leaves {} scripts at {now}", self.name, self.orphans.len()));
    }

    /// A new daemon: what is left of lost runs is ended before it serves.
    pub(crate) fn start(&mut self, context: &mut Context) {
        self.hooks_store.restart();
        self.calls_store.restart();
        self.hooks = Journal::open(self.hooks_store.clone()).ok();
        self.calls = Journal::open(self.calls_store.clone()).ok();
        let lost = self.hooks.as_ref().map(Journal::lost).unwrap_or_default();
        let now = context.now();
        for run in std::mem::take(&mut self.orphans) {
            let is_over = run.ends_ms <= now;
            let is_known = lost.iter().any(|lost| lost.id == run.id);
            if is_over || (is_known && !context.mutated(Mutation::LeavesRemains)) {
                self.script_ended(&run, context);
            } else {
                self.orphans.push(run);
            }
        }
        self.up = true;
        context.log(|| format!("{} starts", self.name));
    }

    fn script_ended(&self, run: &Run, context: &mut Context) {
        if let Work::Hooks(call, _) = &run.work {
            let place = (call.id.job, call.id.step.clone(), self.id);
            if context.witness.running.get(&place).is_some_and(|wire| wire == run.id.as_str()) {
                context.witness.running.remove(&place);
            }
        }
    }

    fn admit(&mut self, epoch: u64) -> Result<(), String> {
        if epoch < self.epoch_seen {
            return Err(format!("epoch {epoch} is over: {} was seen", self.epoch_seen));
        }
        self.epoch_seen = epoch;
        Ok(())
    }

    /// A master's first call on a connection: runs of jobs that are not alive end before it is answered.
    pub(crate) fn greet(
        &mut self,
        epoch: u64,
        connection: u64,
        alive: impl Fn(u64) -> bool,
        context: &mut Context,
    ) -> Result<(), String> {
        self.admit(epoch)?;
        self.connection_seen = connection;
        if context.mutated(Mutation::EndsNothing) {
            return Ok(());
        }
        let dead: Vec<String> = self
            .running
            .iter()
            .filter(|(_, run)| is_hooks(run) && !alive(run.job))
            .map(|(wire, _)| wire.clone())
            .collect();
        for wire in dead {
            self.end(&wire, context);
        }
        Ok(())
    }

    /// Ends a run of scripts before its time.
    fn end(&mut self, wire: &str, context: &mut Context) {
        if let Some(run) = self.running.get_mut(wire)
            && let Work::Hooks(_, result) = &mut run.work
        {
            *result = scripts::ended();
            self.finish(wire, context);
        }
    }

    /// Takes a request from a connection.
    pub(crate) fn deliver(&mut self, delivery: Delivery, context: &mut Context) {
        let caller = delivery.caller;
        if let Err(why) = self.admit(delivery.epoch) {
            return self.reply(caller, Answer::Refused(why), context);
        }
        if self.ordered && caller.connection < self.connection_seen {
            return context.log(|| format!("{}: {} comes by an old connection", self.name, delivery.wire));
        }
        if self.ordered && self.waits(&delivery) {
            return self.waiting.push(delivery);
        }
        match delivery.request {
            Request::Hooks(call) => self.hooks_asked(&delivery.wire, call, caller, context),
            Request::Execute(job, call) => self.call_asked(&delivery.wire, job, call, caller, context),
            Request::EndJob(job) => {
                let runs: Vec<String> = self
                    .running
                    .iter()
                    .filter(|(_, run)| is_hooks(run) && run.job == job)
                    .map(|(wire, _)| wire.clone())
                    .collect();
                if !context.mutated(Mutation::EndsNothing) {
                    let (now, boot) = (context.now(), self.boot);
                    for wire in runs {
                        let delay_ms = context.random.below(scripts::GRACE_MS);
                        let run = self.running.get_mut(&wire).expect("just seen");
                        if let Work::Hooks(_, result) = &mut run.work
                            && run.ends_ms > now + delay_ms
                        {
                            *result = scripts::ended();
                            run.ends_ms = now + delay_ms;
                            context.after(delay_ms, Event::RunEnds(self.id, boot, wire));
                        }
                    }
                }
                self.reply(caller, Answer::Ended, context);
            }
        }
        self.see_death(context);
    }

    /// Whether another call of the same job is carried out, one that its master has given up.
    fn waits(&self, delivery: &Delivery) -> bool {
        let Request::Execute(job, _) = &delivery.request else { return false };
        let mut calls = self.running.iter().filter(|(_, run)| !is_hooks(run) && run.job == *job);
        calls.any(|(wire, _)| *wire != delivery.wire)
    }

    /// A write in which the daemon died has returned.
    fn see_death(&mut self, context: &mut Context) {
        if self.up && (self.hooks_store.has_died() || self.calls_store.has_died()) {
            self.crash(context);
        }
    }
}

fn is_hooks(run: &Run) -> bool {
    matches!(run.work, Work::Hooks(..))
}
