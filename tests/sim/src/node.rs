//! A node: its daemon with the real call journals, the scripts that it watches, and what it holds.
//!
//! A daemon's crash takes the journals' memory and the connections. Its hook runs go on under their keepers: the next
//! daemon joins them, or finds what they came to; where the keeper is gone too it ends what is left before it serves.

use std::{collections::BTreeMap, rc::Rc};

use muster_core::{
    calls::{AliveJobs, NodeCall},
    engine::HooksCall,
    hooks::HookResult,
    names::NodeName,
};
use muster_hooksrv::{CallId, Journal};

use super::{
    call_store::MemoryCalls,
    event::{Answer, Caller, Context, Delivery, Event, NodeId, Request},
    holdings::Holdings,
    mutation::Mutation,
};

mod calls;
mod ends;

/// A daemon that stood still for longer than this, in milliseconds, closes all its connections: less than any silence
/// after which a master gives it up.
const FROZEN_MS: u64 = 4_000;
const _: () = assert!(FROZEN_MS < super::channel::SILENCE_MS.0);

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

/// A hook run whose daemon is gone.
#[derive(Debug, Clone)]
struct Orphan {
    run: Run,
    /// Its keeper goes on, and records how it ends.
    is_kept: bool,
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
    orphans: Vec<Orphan>,
    pub(crate) inbox: Vec<Delivery>,
    /// Calls of a job are carried out one after another.
    ordered: bool,
    /// Calls that wait for another of their job.
    waiting: Vec<Delivery>,
    /// The newest connection that was greeted.
    connection_seen: u64,
    /// Since when it is frozen.
    frozen_since_ms: u64,
    /// The newest connection that was closed after a freeze: nothing that came by it or an older one is taken.
    closed_through: u64,
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
            frozen_since_ms: 0,
            closed_through: 0,
        }
    }

    /// The daemon is stopped.
    pub(crate) fn freeze(&mut self, now_ms: u64) {
        self.frozen = true;
        self.frozen_since_ms = now_ms;
    }

    /// The daemon goes on. Whether it closes its connections, the newest of which is `connection`: what lies in them is
    /// from a time when its master may have given it up.
    pub(crate) fn thaw(&mut self, now_ms: u64, connection: u64) -> bool {
        self.frozen = false;
        let closes = now_ms - self.frozen_since_ms > FROZEN_MS;
        if closes {
            self.inbox.clear();
            self.waiting.clear();
            self.closed_through = connection;
        }
        closes
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
        self.fenced = true;
        self.machine_stops(context)
    }

    /// The whole machine stops: daemon, scripts, keepers and guests.
    pub(crate) fn machine_stops(&mut self, context: &mut Context) -> Vec<uuid::Uuid> {
        if self.up {
            self.crash(context);
        }
        for orphan in std::mem::take(&mut self.orphans) {
            self.script_ended(&orphan.run, context);
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
                Work::Hooks(..) => {
                    let is_kept = context.random.permille(850) && !context.mutated(Mutation::LeavesRemains);
                    self.orphans.push(Orphan { run, is_kept });
                }
                // Done, half done or not begun: each call leads to the same state from there when it is repeated.
                Work::Call(call, fate) if *fate == Fate::Works && context.random.permille(500) => {
                    self.apply(&call.clone(), context);
                }
                Work::Call(..) => {}
            }
        }
        context.log(|| format!("{} leaves {} scripts at {now}", self.name, self.orphans.len()));
    }

    /// A new daemon: it follows the runs that go on, and ends what is left of lost ones before it serves.
    pub(crate) fn start(&mut self, context: &mut Context) {
        self.hooks_store.restart();
        self.calls_store.restart();
        self.hooks = Journal::open(self.hooks_store.clone()).ok();
        self.calls = Journal::open(self.calls_store.clone()).ok();
        let lost = self.hooks.as_ref().map(Journal::lost).unwrap_or_default();
        let now = context.now();
        self.up = true;
        for orphan in std::mem::take(&mut self.orphans) {
            let is_lost = lost.iter().any(|lost| lost.id == orphan.run.id);
            if orphan.is_kept && is_lost {
                self.follow(orphan.run, context);
            } else if orphan.run.ends_ms > now && context.mutated(Mutation::LeavesRemains) {
                self.orphans.push(orphan);
            } else {
                self.script_ended(&orphan.run, context);
            }
        }
        context.log(|| format!("{} starts", self.name));
    }

    /// A run goes on under its keeper, or has ended under it: the daemon follows it by the real journal.
    fn follow(&mut self, run: Run, context: &mut Context) {
        let wire = run.id.as_str().to_owned();
        let is_resumed = self.hooks.as_mut().is_some_and(|journal| journal.resume(&run.id));
        assert!(is_resumed, "{wire} was seen to be lost");
        context.log(|| format!("{} follows {wire}", self.name));
        context.witness.begun.insert((self.id, wire.clone()));
        let left_ms = run.ends_ms.saturating_sub(context.now());
        context.after(left_ms, Event::RunEnds(self.id, self.boot, wire.clone()));
        self.running.insert(wire, Run { listeners: Vec::new(), ..run });
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

    /// A master's first call on a connection: runs that it does not spare end before it is answered.
    pub(crate) fn greet(
        &mut self,
        epoch: u64,
        connection: u64,
        alive: &AliveJobs,
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
            .filter(|(_, run)| !alive.spares(run.job, run.id.tells_of_end()))
            .map(|(wire, _)| wire.clone())
            .collect();
        for wire in dead {
            if self.cut_short(&wire, context) {
                self.finish(&wire, context);
                self.see_death(context);
            }
            if !self.up {
                break;
            }
        }
        Ok(())
    }

    /// Takes a request from a connection.
    pub(crate) fn deliver(&mut self, delivery: Delivery, context: &mut Context) {
        let caller = delivery.caller;
        if caller.connection <= self.closed_through {
            return context.log(|| format!("{}: {} comes by a closed connection", self.name, delivery.wire));
        }
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
            Request::Execute(job, call) => {
                self.call_asked(&delivery.wire, job, (*call).clone(), caller, context)
            }
            Request::EndJob(job, calls) => self.asked_to_end(job, &calls, caller, context),
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
