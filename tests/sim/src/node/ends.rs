//! How a node ends what it does for a job: calls that it does not know never begin, scripts and guests' calls are ended,
//! and all else is waited for.

use muster_core::{calls::NodeCall, engine::END_STEP};
use muster_hooksrv::CallId;

use super::{Fate, SimNode, Work};
use crate::{
    event::{Answer, Caller, Context, Event},
    mutation::Mutation,
    scripts,
};

/// How long a node waits for the end of what it has ended, in milliseconds.
const ENDED_WAIT_MS: u64 = 10_000;
/// A cancelled call of a backend ends within this, in milliseconds.
const CALL_ENDS_MS: u64 = 500;

impl SimNode {
    /// Ends all that runs for a job; these calls, and those that wait for their turn, never begin.
    pub(super) fn asked_to_end(&mut self, job: u64, calls: &[String], caller: Caller, context: &mut Context) {
        if context.mutated(Mutation::EndsNothing) {
            return self.reply(caller, Answer::Ended, context);
        }
        let mut withdrawn = calls.to_vec();
        withdrawn
            .extend(self.waiting.iter().map(|waiting| waiting.wire.clone()).filter(|wire| of(wire, job)));
        let mut refused = None;
        for wire in withdrawn {
            if !context.mutated(Mutation::WithdrawsNothing)
                && let Err(error) = self.withdraw(&wire, context)
            {
                refused = Some(error);
            }
        }
        if refused.is_none() {
            context.witness.withdrawn.extend(calls.iter().map(|wire| (self.id, wire.clone())));
        }
        // Those that tell of the job's end go on, unless they are named.
        let is_meant = |wire: &String| step_of(wire) != END_STEP || calls.contains(wire);
        let runs = self.running.iter().filter(|(wire, run)| run.job == job && is_meant(wire));
        let runs: Vec<String> = runs.map(|(wire, _)| wire.clone()).collect();
        let now = context.now();
        for wire in runs {
            let before_ms = self.running[&wire].ends_ms;
            // A daemon that was frozen has not seen the end yet.
            if before_ms <= now || !self.cut_short(&wire, context) {
                continue;
            }
            let run = self.running.get_mut(&wire).expect("just seen");
            let delay_ms = match run.work {
                Work::Hooks(..) => context.random.below(scripts::GRACE_MS),
                Work::Call(..) => context.random.below(CALL_ENDS_MS),
            };
            run.ends_ms = before_ms.min(now + delay_ms);
            context.after(run.ends_ms - now, Event::RunEnds(self.id, self.boot, wire));
        }
        match refused {
            Some(error) => self.refuse(caller, &error, context),
            None => self.job_ends(self.boot, caller, job, now + ENDED_WAIT_MS, context),
        }
    }

    /// Makes sure that a call that is not known never begins.
    fn withdraw(&mut self, wire: &str, context: &Context) -> Result<(), muster_hooksrv::JournalError> {
        let id = CallId::parse(wire).expect("wire ids are call ids");
        let journal = match step_of(wire) {
            "pre" | "post" | END_STEP => &mut self.hooks,
            _ => &mut self.calls,
        };
        journal.as_mut().expect("the daemon is up").withdraw(&id, context.now()).map(drop)
    }

    /// Tells a run to end before its time; whether it will.
    pub(super) fn cut_short(&mut self, wire: &str, context: &mut Context) -> bool {
        let Some(run) = self.running.get_mut(wire) else { return false };
        match &mut run.work {
            Work::Hooks(_, result) => {
                *result = scripts::ended();
                true
            }
            Work::Call(
                NodeCall::GuestStart { .. }
                | NodeCall::GuestStop { .. }
                | NodeCall::GuestReboot { .. }
                | NodeCall::OsCreate { .. }
                | NodeCall::OsRename { .. }
                | NodeCall::GuestResume { .. }
                | NodeCall::DisksSnapshot { .. }
                | NodeCall::ExportCheck { .. }
                | NodeCall::Mirror(_)
                | NodeCall::Migration(_),
                fate,
            ) => {
                *fate = *context.random.pick(&[Fate::Works, Fate::FailsBefore, Fate::FailsAfter]);
                true
            }
            // Short file work.
            Work::Call(
                NodeCall::DiskCreate { .. }
                | NodeCall::DiskRemove { .. }
                | NodeCall::DiskAbsent { .. }
                | NodeCall::DiskResize { .. }
                | NodeCall::ExportStage { .. }
                | NodeCall::ExportPublish { .. }
                | NodeCall::ExportRemove { .. },
                _,
            ) => false,
        }
    }

    /// Answers when nothing of the job goes on any more, or when that takes too long.
    pub(crate) fn job_ends(
        &mut self,
        boot: u64,
        caller: Caller,
        job: u64,
        until_ms: u64,
        context: &mut Context,
    ) {
        if boot != self.boot || !self.up {
            return;
        }
        let now = context.now();
        let last = self.running.values().filter(|run| run.job == job).map(|run| run.ends_ms).max();
        match last {
            None => self.reply(caller, Answer::Ended, context),
            Some(_) if now >= until_ms => {
                let why = format!("runs of job {job} were told to end and have not");
                self.reply(caller, Answer::Refused(why), context);
            }
            Some(ends_ms) => {
                let at_ms = ends_ms.clamp(now + 1, until_ms);
                context.after(at_ms - now, Event::JobEnds(self.id, boot, caller, job, until_ms));
            }
        }
    }
}

fn step_of(wire: &str) -> &str {
    wire.split('/').nth(1).unwrap_or_default()
}

/// Whether a call is of a job.
fn of(wire: &str, job: u64) -> bool {
    wire.split(['-', '/']).next().and_then(|number| number.parse().ok()) == Some(job)
}
