//! The calls that a node is asked for: journaled, carried out, answered.

use std::rc::Rc;

use muster_core::{
    calls::{CallAnswer, NodeCall},
    engine::HooksCall,
    hooks::{self, Class, HookResult, NodeAnswer},
    ops::GLOBAL_PREFIX,
};
use muster_hooksrv::{Begin, Call, CallId, JournalError, Known, OnLost, RequestDigest};

use super::{Fate, Orphan, Run, SimNode, Work, is_hooks};
use crate::{
    check::Checker,
    event::{Answer, Caller, Context, Event},
    mutation::Mutation,
    scripts,
    witness::Said,
};

/// A script that was asked for before its job's end may begin this long after it, in milliseconds: the way of the end to
/// the node by a connection that is replaced once.
const BEGINS_WITHIN_MS: u64 = 30_000;

impl SimNode {
    /// As the hook service does: joined, else looked for scripts, else journaled and run.
    pub(super) fn hooks_asked(
        &mut self,
        wire: &str,
        asked: Rc<HooksCall>,
        caller: Caller,
        context: &mut Context,
    ) {
        let id = CallId::parse(wire).expect("wire ids are call ids");
        let own = (&asked.prefix, asked.phase, &asked.env, &asked.policy);
        let content = format!("{own:?} {:?} {:?}", asked.global, asked.files);
        let call = Call {
            id: id.clone(),
            digest: RequestDigest::of(content.as_bytes()),
            job: asked.id.job,
            output_dir: None,
            on_lost: OnLost::Tell,
        };
        let journal = self.hooks.as_mut().expect("the daemon is up");
        let count =
            |phase: hooks::Phase, prefix: &str| scripts::count(self.seed, self.id, &phase.directory(prefix));
        let own = if asked.prefix.is_empty() { 0 } else { count(asked.phase, &asked.prefix) };
        let global = asked.global.as_ref().map_or(0, |global| count(global.phase, GLOBAL_PREFIX));
        let scripts = own + global;
        let global_post_absent = asked.global.is_some() && count(hooks::Phase::Post, GLOBAL_PREFIX) == 0;
        let begun = match journal.find(&id, Some(&call.digest)) {
            Err(error) => Err(error),
            Ok(Some(known)) if !context.mutated(Mutation::KeepsNoJournal) => Ok(Begin::Known(known)),
            Ok(_) if scripts == 0 => {
                let nothing = HookResult { global_post_absent, ..HookResult::default() };
                Ok(Begin::Known(Known::Answered(encode(&nothing))))
            }
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
                let (mut result, takes_ms) = scripts::fate(&mut context.random, scripts, faults_on);
                result.global_post_absent = global_post_absent;
                self.begin(id, asked.id.job, Work::Hooks(asked, result), caller, takes_ms, context);
            }
        }
    }

    /// A directory's scripts start: what must hold at this moment.
    fn script_begins(&self, wire: &str, call: &HooksCall, context: &mut Context) {
        let place = (call.id.job, call.id.step.clone(), self.id);
        if context.witness.withdrawn.contains(&(self.id, wire.to_owned())) {
            let what = format!("{}: {wire} starts, and was confirmed never to start", self.name);
            context.violate(Checker::NoScriptBeginsAfterEnd, what);
        }
        if let Some(ended_ms) = context.witness.ended_ms.get(&call.id.job).copied()
            && context.now() > ended_ms + BEGINS_WITHIN_MS
        {
            let what = format!("{}: {wire} starts, and its job is over since {ended_ms}", self.name);
            context.violate(Checker::NoScriptBeginsAfterEnd, what);
        }
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

    pub(super) fn call_asked(
        &mut self,
        wire: &str,
        job: u64,
        asked: NodeCall,
        caller: Caller,
        context: &mut Context,
    ) {
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
                let takes_ms = match context.random.below(1000) {
                    0..15 if context.faults_on => 45_000,
                    15..60 if context.faults_on => 6_000,
                    _ => context.random.range(1, 300),
                };
                self.begin(id, job, Work::Call(asked, fate), caller, takes_ms, context);
            }
        }
    }

    pub(super) fn refuse(&mut self, caller: Caller, error: &JournalError, context: &mut Context) {
        if !self.hooks_store.has_died() && !self.calls_store.has_died() {
            self.reply(caller, Answer::Refused(error.to_string()), context);
        }
    }

    fn join(&mut self, wire: &str, caller: Caller) {
        self.running.get_mut(wire).expect("what is begun runs").listeners.push(caller);
    }

    /// Begins to carry a call out.
    fn begin(
        &mut self,
        call: CallId,
        job: u64,
        work: Work,
        caller: Caller,
        takes_ms: u64,
        context: &mut Context,
    ) {
        let wire = call.as_str().to_owned();
        let key = (self.id, wire.clone());
        let was_answered = context.witness.answered.contains(&key);
        if was_answered || !context.witness.begun.insert(key) {
            let what = format!("{}: {wire} is carried out again, answered before: {was_answered}", self.name);
            context.violate(Checker::CallTakesEffectOnce, what);
        }
        context.log(|| format!("{} begins {wire}, for {takes_ms} ms", self.name));
        let run = Run { id: call, job, work, listeners: vec![caller], ends_ms: context.now() + takes_ms };
        self.running.insert(wire.clone(), run);
        context.after(takes_ms, Event::RunEnds(self.id, self.boot, wire));
    }

    /// The time of a run is over.
    pub(crate) fn run_ends(&mut self, boot: u64, wire: &str, context: &mut Context) {
        if boot != self.boot {
            let now = context.now();
            let is_over = |orphan: &Orphan| orphan.run.id.as_str() == wire && orphan.run.ends_ms <= now;
            if let Some(index) = self.orphans.iter().position(is_over) {
                self.script_ended(&self.orphans[index].run, context);
                // A keeper holds what its run came to until a daemon asks.
                if !self.orphans[index].is_kept {
                    self.orphans.remove(index);
                }
            }
            return;
        }
        if self.running.get(wire).is_some_and(|run| run.ends_ms <= context.now()) {
            self.finish(wire, context);
            self.see_death(context);
        }
    }

    /// Journals the answer of a run, then tells it.
    pub(super) fn finish(&mut self, wire: &str, context: &mut Context) {
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
            if is_hooks(&run) {
                // Its keeper has the result until it is journaled.
                self.orphans.push(Orphan { run, is_kept: !context.mutated(Mutation::LeavesRemains) });
            }
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

    pub(super) fn apply(&mut self, call: &NodeCall, context: &mut Context) -> CallAnswer {
        let is_left_out = match call {
            NodeCall::GuestStop { .. } => context.mutated(Mutation::StopsNoGuest),
            NodeCall::DiskRemove { .. } => context.mutated(Mutation::RemovesNoFile),
            NodeCall::DiskCreate { .. }
            | NodeCall::DiskAbsent { .. }
            | NodeCall::DiskResize { .. }
            | NodeCall::GuestStart { .. }
            | NodeCall::GuestReboot { .. }
            | NodeCall::OsCreate { .. }
            | NodeCall::OsRename { .. }
            | NodeCall::ExportStage { .. }
            | NodeCall::ExportPublish { .. }
            | NodeCall::ExportRemove { .. }
            | NodeCall::ExportCheck { .. }
            | NodeCall::GuestResume { .. }
            | NodeCall::DisksSnapshot { .. }
            | NodeCall::Mirror(_)
            | NodeCall::Migration(_) => false,
        };
        if is_left_out { CallAnswer::Done(Default::default()) } else { self.holdings.apply(call) }
    }

    /// Sends an answer on its way.
    pub(super) fn reply(&mut self, caller: Caller, answer: Answer, context: &mut Context) {
        let delay_ms =
            if context.fault(20) { context.random.range(500, 3_000) } else { context.random.range(1, 20) };
        context.after(delay_ms, Event::Reply(self.id, caller, answer));
    }
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
