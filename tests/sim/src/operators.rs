//! Operators: they drain, pause and archive, repair what jobs left, and look into the archive.

use muster_core::{
    calls::Call,
    engine::Job,
    ops::{JobRepair, NodeModify, Op},
};
use muster_master::driver::{ArchiveWhich, Command, QueueChange};

use super::{clients::Told, process::node_id, world::Simulation};

impl Simulation {
    /// Drains or pauses the queue, or ends that.
    pub(super) fn change_queue(&mut self) -> Command {
        let is_held = self.clients.is_drained || self.clients.is_paused;
        let change = match self.context.random.below(4) {
            _ if is_held => QueueChange { drained: Some(false), paused: Some(false) },
            0 => QueueChange { drained: Some(true), paused: None },
            1 => QueueChange { drained: None, paused: Some(true) },
            2 => QueueChange { drained: Some(true), paused: Some(true) },
            _ => QueueChange::default(),
        };
        self.queue_command(change)
    }

    fn queue_command(&mut self, change: QueueChange) -> Command {
        self.context.log(|| format!("an operator changes the queue: {change:?}"));
        self.clients.is_drained &= change.drained != Some(false);
        self.clients.is_paused &= change.paused != Some(false);
        let told = self.clients.told.clone();
        let reply = move |facts| told.lock().expect("no holder panics").push(Told::Queue(facts));
        Command::Queue(change, Box::new(reply))
    }

    /// Ends a drain and a pause, for good.
    pub(crate) fn open_queue(&mut self) {
        let command = self.queue_command(QueueChange { drained: Some(false), paused: Some(false) });
        if let Some(process) = &mut self.process {
            // All nodes have power again: nobody marks one offline now, as one that is taken to be down.
            let marks = process.driver.engine().jobs().filter(|job| {
                let op = &job.submission.op;
                !job.over() && matches!(op, Op::NodeModify(NodeModify { offline: Some(true), .. }))
            });
            let marks: Vec<u64> = marks.map(Job::id).collect();
            for job in marks {
                process.send(Command::Cancel(job, false, Box::new(drop)), &mut self.context);
            }
            process.send(command, &mut self.context);
        }
    }

    /// Archives jobs, those that can't be archived included.
    pub(super) fn archive(&mut self) -> Command {
        let which = if self.context.random.permille(500) || self.clients.jobs.is_empty() {
            ArchiveWhich::OlderThan(self.context.random.below(60_000))
        } else {
            ArchiveWhich::Ids(vec![self.young_job(), self.young_job()])
        };
        self.context.log(|| format!("an operator archives {which:?}"));
        Command::Archive(which, Box::new(drop))
    }

    /// Looks for a job in the archive.
    pub(super) fn look_in_archive(&mut self) -> Command {
        let archived: Vec<u64> = {
            let tracks = self.tracks.jobs.iter().filter(|(_, track)| track.is_archived);
            tracks.map(|(id, _)| *id).collect()
        };
        let job = if archived.is_empty() { self.young_job() } else { *self.context.random.pick(&archived) };
        let told = self.clients.told.clone();
        let is_archived = self.tracks.is_archived(job);
        let reply = move |found| {
            told.lock().expect("no holder panics").push(Told::Archived(job, is_archived, found));
        };
        Command::Archived(job, Box::new(reply))
    }

    /// A script wants to wait for a job.
    pub(super) fn follow(&mut self) -> Command {
        let (parent, job) = (self.young_job(), self.young_job());
        Command::Follow { parent, job, reply: Box::new(drop) }
    }

    /// In the liveness phase: jobs that are blocked by a node that stays away are given up.
    pub(crate) fn give_up_blocked(&mut self) {
        let Some(process) = &self.process else { return };
        let is_away = |call: &Call| call.node().is_some_and(|node| !process.is_member(node_id(node)));
        let blocked = process.driver.engine().blocked();
        let away: Vec<u64> =
            blocked.filter(|job| job.blocked_call().is_some_and(is_away)).map(|job| job.id()).collect();
        self.repair(&away);
    }

    /// In the end: what jobs left undone is repaired. Whether there is anything.
    pub(crate) fn ask_repairs(&mut self) -> bool {
        let undone: Vec<u64> = self.tracks.failed_undos.keys().copied().collect();
        self.repair(&undone);
        !undone.is_empty()
    }

    fn repair(&mut self, jobs: &[u64]) {
        for job in jobs {
            let command = self.plain(Op::JobRepair(JobRepair { job: *job }));
            if let Some(process) = &mut self.process {
                process.send(command, &mut self.context);
            }
        }
    }
}
