//! A node: its daemon with the real call journals, the scripts that it watches, and what it holds.
//!
//! A daemon's crash takes the journals' memory and the connections. What its scripts do goes on without it until the
//! next daemon ends what is left of calls that were not answered, before it serves.

use std::{collections::BTreeMap, rc::Rc};

use muster_core::{
    calls::{CallAnswer, NodeCall},
    engine::HooksCall,
    hooks::{self, Class, HookResult, NodeAnswer},
    names::NodeName,
};
use muster_hooksrv::{Begin, Call, CallId, Journal, JournalError, Known, OnLost, RequestDigest};

use super::{
    call_store::MemoryCalls,
    check::Checker,
    event::{Answer, Caller, Context, Delivery, Event, NodeId, Request},
    holdings::Holdings,
    mutation::Mutation,
    scripts,
    witness::Said,
};

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

    /// As the hook service does: joined, else looked for scripts, else journaled and run.
    fn hooks_asked(&mut self, wire: &str, asked: Rc<HooksCall>, caller: Caller, context: &mut Context) {
        let id = CallId::parse(wire).expect("wire ids are call ids");
        let content = format!("{:?} {:?} {:?} {:?}", asked.prefix, asked.phase, asked.env, asked.policy);
        let call = Call {
            id: id.clone(),
            digest: RequestDigest::of(content.as_bytes()),
            job: asked.id.job,
            output_dir: None,
            on_lost: OnLost::Tell,
        };
        let journal = self.hooks.as_mut().expect("the daemon is up");
        let scripts = scripts::count(self.seed, self.id, &asked.phase.directory(&asked.prefix));
        let begun = match journal.find(&id, Some(&call.digest)) {
            Err(error) => Err(error),
            Ok(Some(known)) if !context.mutated(Mutation::KeepsNoJournal) => Ok(Begin::Known(known)),
            Ok(_) if scripts == 0 => Ok(Begin::Known(Known::Answered(encode(&HookResult::default())))),
            Ok(Some(_)) => Ok(Begin::New),
            Ok(None) => journal.begin(&call, context.now()),
        };
        let place = (asked.id.job, asked.id.step.clone(), self.id);
        match begun {
            Err(error) => self.refuse(caller, &error, context),
            Ok(Begin::Known(Known::Answered(text))) => {
                let result: HookResult = serde_json::from_str(&text).expect("answers are journaled whole");
                context.witness.said.insert(place, said(&asked, &result));
                self.reply(caller, Answer::Hooks(NodeAnswer::Answered(result)), context);
            }
            Ok(Begin::Known(Known::Begun)) => self.join(wire, caller),
            Ok(Begin::Known(Known::Lost)) => {
                context.witness.said.insert(place, Said::Lost);
                self.reply(caller, Answer::Hooks(NodeAnswer::Lost), context);
            }
            Ok(Begin::Known(Known::Withdrawn)) => {
                self.reply(caller, Answer::Refused("the call is withdrawn".to_owned()), context);
            }
            Ok(Begin::New) => {
                self.script_begins(wire, &asked, context);
                let faults_on = context.faults_on;
                let (result, takes_ms) = scripts::fate(&mut context.random, scripts, faults_on);
                self.begin(wire, id, asked.id.job, Work::Hooks(asked, result), takes_ms, caller, context);
            }
        }
    }

    /// A directory's scripts start: what must hold at this moment.
    fn script_begins(&self, wire: &str, call: &HooksCall, context: &mut Context) {
        let place = (call.id.job, call.id.step.clone(), self.id);
        if let Some(first) = context.witness.running.get(&place).filter(|first| *first != wire).cloned() {
            let what = format!("{}: {wire} starts while {first} still runs", self.name);
            context.violate(Checker::SecondRunWaitsForFirst, what);
        }
        let env = call.env.clone();
        let first = context.witness.environments.entry(place.clone()).or_insert_with(|| env.clone());
        if *first != env {
            let what =
                format!("{}: {wire} has the environment {env:?}, its first run had {first:?}", self.name);
            context.violate(Checker::RepeatHasSameEnvironment, what);
        }
        context.witness.running.insert(place, wire.to_owned());
    }

    fn call_asked(&mut self, wire: &str, job: u64, asked: NodeCall, caller: Caller, context: &mut Context) {
        let id = CallId::parse(wire).expect("wire ids are call ids");
        let digest = RequestDigest::of(format!("{asked:?}").as_bytes());
        let call = Call { id: id.clone(), digest, job, output_dir: None, on_lost: OnLost::Repeat };
        let journal = self.calls.as_mut().expect("the daemon is up");
        let mut begun = journal.begin(&call, context.now());
        if context.mutated(Mutation::KeepsNoJournal) && begun.is_ok() {
            begun = Ok(Begin::New);
        }
        match begun {
            Err(error) => self.refuse(caller, &error, context),
            Ok(Begin::Known(Known::Answered(text))) => {
                let answer: CallAnswer = serde_json::from_str(&text).expect("answers are journaled whole");
                self.reply(caller, Answer::Call(answer), context);
            }
            Ok(Begin::Known(Known::Begun)) => self.join(wire, caller),
            Ok(Begin::Known(Known::Lost)) => {
                let why = "the node daemon does not know how the call ended".to_owned();
                self.reply(caller, Answer::Call(CallAnswer::Failed(why)), context);
            }
            Ok(Begin::Known(Known::Withdrawn)) => {
                self.reply(caller, Answer::Refused("the call is withdrawn".to_owned()), context);
            }
            Ok(Begin::New) => {
                let fate = match context.random.below(1000) {
                    0..15 if context.faults_on => Fate::FailsBefore,
                    15..30 if context.faults_on => Fate::FailsAfter,
                    _ => Fate::Works,
                };
                let takes_ms = if context.fault(50) { 6_000 } else { context.random.range(1, 300) };
                self.begin(wire, id, job, Work::Call(asked, fate), takes_ms, caller, context);
            }
        }
    }

    fn refuse(&mut self, caller: Caller, error: &JournalError, context: &mut Context) {
        if !self.hooks_store.has_died() && !self.calls_store.has_died() {
            self.reply(caller, Answer::Refused(error.to_string()), context);
        }
    }

    fn join(&mut self, wire: &str, caller: Caller) {
        self.running.get_mut(wire).expect("what is begun runs").listeners.push(caller);
    }

    fn begin(
        &mut self,
        wire: &str,
        id: CallId,
        job: u64,
        work: Work,
        takes_ms: u64,
        caller: Caller,
        context: &mut Context,
    ) {
        let key = (self.id, wire.to_owned());
        let was_answered = context.witness.answered.contains(&key);
        if was_answered || !context.witness.begun.insert(key) {
            let what = format!("{}: {wire} is carried out again, answered before: {was_answered}", self.name);
            context.violate(Checker::CallTakesEffectOnce, what);
        }
        context.log(|| format!("{} begins {wire}, for {takes_ms} ms", self.name));
        let run = Run { id, job, work, listeners: vec![caller], ends_ms: context.now() + takes_ms };
        self.running.insert(wire.to_owned(), run);
        context.after(takes_ms, Event::RunEnds(self.id, self.boot, wire.to_owned()));
    }

    /// The time of a run is over.
    pub(crate) fn run_ends(&mut self, boot: u64, wire: &str, context: &mut Context) {
        if boot != self.boot {
            let now = context.now();
            let (over, left) = std::mem::take(&mut self.orphans)
                .into_iter()
                .partition::<Vec<_>, _>(|run| run.id.as_str() == wire && run.ends_ms <= now);
            self.orphans = left;
            over.iter().for_each(|run| self.script_ended(run, context));
            return;
        }
        if self.running.get(wire).is_some_and(|run| run.ends_ms <= context.now()) {
            self.finish(wire, context);
            self.see_death(context);
        }
    }

    /// Journals the answer of a run, then tells it.
    fn finish(&mut self, wire: &str, context: &mut Context) {
        let Some(run) = self.running.remove(wire) else { return };
        self.script_ended(&run, context);
        let now = context.now();
        let (answer, journaled) = match &run.work {
            Work::Hooks(call, result) => {
                let journal = self.hooks.as_mut().expect("the daemon is up");
                let journaled = journal.answer(&run.id, &encode(result), now);
                if journaled.is_err() {
                    journal.lose(&run.id);
                }
                let place = (call.id.job, call.id.step.clone(), self.id);
                context.witness.said.insert(place, said(call, result));
                (Answer::Hooks(NodeAnswer::Answered(result.clone())), journaled)
            }
            Work::Call(call, fate) => {
                let answer = self.work_ends(&call.clone(), *fate, context);
                let journal = self.calls.as_mut().expect("the daemon is up");
                let journaled = journal.answer(&run.id, &encode(&answer), now);
                if journaled.is_err() {
                    journal.lose(&run.id);
                }
                if matches!(answer, CallAnswer::Done(_)) {
                    let step = wire.split('/').nth(1).unwrap_or_default().to_owned();
                    context.witness.done.insert((run.job, step));
                }
                (Answer::Call(answer), journaled)
            }
        };
        context.log(|| format!("{} ends {wire}: {answer:?}, {journaled:?}", self.name));
        let key = (self.id, wire.to_owned());
        context.witness.begun.remove(&key);
        if journaled.is_ok() {
            context.witness.answered.insert(key);
        }
        if self.hooks_store.has_died() || self.calls_store.has_died() {
            return;
        }
        for listener in run.listeners {
            self.reply(listener, answer.clone(), context);
        }
        for delivery in std::mem::take(&mut self.waiting) {
            context.after(0, Event::Deliver(delivery));
        }
    }

    fn work_ends(&mut self, call: &NodeCall, fate: Fate, context: &mut Context) -> CallAnswer {
        let injected = || CallAnswer::Failed("a fault of the backend".to_owned());
        match fate {
            Fate::Works => self.apply(call, context),
            Fate::FailsBefore => injected(),
            Fate::FailsAfter => {
                self.apply(call, context);
                injected()
            }
        }
    }

    fn apply(&mut self, call: &NodeCall, context: &mut Context) -> CallAnswer {
        let is_left_out = match call {
            NodeCall::GuestStop { .. } => context.mutated(Mutation::StopsNoGuest),
            NodeCall::DiskRemove { .. } => context.mutated(Mutation::RemovesNoFile),
            NodeCall::DiskCreate { .. }
            | NodeCall::GuestStart { .. }
            | NodeCall::ExportStage { .. }
            | NodeCall::ExportPublish { .. }
            | NodeCall::ExportRemove { .. } => false,
        };
        if is_left_out { CallAnswer::Done(Default::default()) } else { self.holdings.apply(call) }
    }

    /// Sends an answer on its way.
    fn reply(&mut self, caller: Caller, answer: Answer, context: &mut Context) {
        let delay_ms =
            if context.fault(20) { context.random.range(500, 3_000) } else { context.random.range(1, 20) };
        context.after(delay_ms, Event::Reply(self.id, caller, answer));
    }
}

fn is_hooks(run: &Run) -> bool {
    matches!(run.work, Work::Hooks(..))
}

fn encode<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("answers are plain data")
}

fn said(call: &HooksCall, result: &HookResult) -> Said {
    let denies = call.phase == hooks::Phase::Pre
        && (result.failure.is_some()
            || result.scripts.iter().any(|script| call.policy.class(&script.outcome) == Class::Error));
    if denies { Said::Denied } else { Said::Allowed }
}
