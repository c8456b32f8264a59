//! The disk under the master's store, and the store: a log of commits ahead of the records.
//!
//! A commit appends its frame to the log and synchronises it. A crash in between leaves the frame whole, torn or not
//! at all; what opens the store next takes the log's whole frames up to the first that is not.

use std::{cell::RefCell, io, ops::Bound, rc::Rc};

use muster_master::store::{Batch, Records, Store, StoreError, decode, keys};

use super::{mutation::Mutation, random::Random};

/// What goes wrong in one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// The machine stops before the frame is synchronised.
    Crash,
    /// The machine stops after that, and before the commit returns.
    CrashAfter,
    /// There is no room: nothing of the frame is written.
    Full,
}

/// A commit that was applied.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) incarnation: u64,
    /// The keys that it wrote and deleted.
    pub(crate) keys: Vec<String>,
}

/// The disk; it outlives the processes that use it.
pub(crate) struct Disk {
    durable: Records,
    archive: Records,
    /// Frames that no synchronisation has reached.
    unsynced: Vec<Batch>,
    fault: Option<CommitFault>,
    applied: Vec<Applied>,
    commits: u64,
    random: Random,
    mutation: Option<Mutation>,
}

impl Disk {
    pub(crate) fn new(records: Records, seed: u64, mutation: Option<Mutation>) -> Self {
        Disk {
            durable: records,
            archive: Records::new(),
            unsynced: Vec::new(),
            fault: None,
            applied: Vec::new(),
            commits: 0,
            random: Random::new(seed),
            mutation,
        }
    }

    pub(crate) fn set_fault(&mut self, fault: Option<CommitFault>) {
        self.fault = fault;
    }

    /// The commits since this was asked last.
    pub(crate) fn take_applied(&mut self) -> Vec<Applied> {
        std::mem::take(&mut self.applied)
    }

    /// How many commits were made.
    pub(crate) fn commits(&self) -> u64 {
        self.commits
    }

    /// A record that no crash can take any more.
    pub(crate) fn durable(&self, key: &str) -> Option<&str> {
        self.durable.get(key).map(String::as_str)
    }

    /// A record of the archive that no crash can take any more.
    pub(crate) fn durable_archived(&self, key: &str) -> Option<&str> {
        self.archive.get(key).map(String::as_str)
    }

    /// The process that wrote is gone, and the machine with it: each frame that was not synchronised is whole, torn
    /// or lost, and the log ends before the first that is not whole.
    pub(crate) fn crash(&mut self) {
        for frame in std::mem::take(&mut self.unsynced) {
            if !self.random.permille(500) {
                break;
            }
            apply(&mut self.durable, &mut self.archive, frame);
        }
        self.fault = None;
    }

    /// The records as the process that writes them sees them.
    pub(crate) fn with_records<T>(&self, look: impl FnOnce(&Records) -> T) -> T {
        if self.unsynced.is_empty() { look(&self.durable) } else { look(&self.present()) }
    }

    /// The archive as the process that writes it sees it.
    fn present_archive(&self) -> Records {
        if self.unsynced.is_empty() {
            return self.archive.clone();
        }
        let (mut records, mut archive) = (self.durable.clone(), self.archive.clone());
        self.unsynced.iter().for_each(|frame| apply(&mut records, &mut archive, frame.clone()));
        archive
    }

    fn present(&self) -> Records {
        let mut records = self.durable.clone();
        let mut archive = Records::new();
        self.unsynced.iter().for_each(|frame| apply(&mut records, &mut archive, frame.clone()));
        records
    }

    fn check_epoch(&self, batch: &Batch) -> Result<(), StoreError> {
        let Some(expected) = batch.epoch else { return Ok(()) };
        if self.mutation == Some(Mutation::IgnoresEpoch) {
            return Ok(());
        }
        let found = match self.durable.get(keys::EPOCH) {
            Some(text) => decode(keys::EPOCH, text)?,
            None => 0,
        };
        if found == expected { Ok(()) } else { Err(StoreError::EpochChanged { expected, found }) }
    }

    fn commit(&mut self, batch: &Batch, incarnation: u64) -> Result<(), StoreError> {
        self.check_epoch(batch)?;
        if self.fault == Some(CommitFault::Full) {
            return Err(stopped(io::ErrorKind::StorageFull));
        }
        let frame = self.mutate(batch.clone());
        let written = frame.puts.iter().map(|(key, _)| key);
        let keys = frame.deletes.iter().chain(written).chain(&frame.archives).cloned().collect();
        self.unsynced.push(frame);
        if self.fault == Some(CommitFault::Crash) {
            return Err(stopped(io::ErrorKind::Other));
        }
        let is_lazy = self.mutation == Some(Mutation::AnswersUnsynced) && !self.random.permille(200);
        if !is_lazy {
            for frame in std::mem::take(&mut self.unsynced) {
                apply(&mut self.durable, &mut self.archive, frame);
            }
        }
        self.commits += 1;
        self.applied.push(Applied { incarnation, keys });
        match self.fault {
            Some(CommitFault::CrashAfter) => Err(stopped(io::ErrorKind::Other)),
            Some(CommitFault::Crash | CommitFault::Full) | None => Ok(()),
        }
    }

    fn mutate(&mut self, mut batch: Batch) -> Batch {
        let (durable, random) = (&self.durable, &mut self.random);
        let is_job = |key: &str| keys::job_id(key).is_some();
        match self.mutation {
            Some(Mutation::LosesResults) => {
                batch.puts.retain(|(key, text)| !(is_job(key) && is_done(text) && random.permille(300)));
            }
            Some(Mutation::LosesSubmissions) => {
                batch
                    .puts
                    .retain(|(key, _)| !(is_job(key) && !durable.contains_key(key) && random.permille(300)));
            }
            Some(Mutation::WritesForFailed) => {
                let failed = |(key, text): &(String, String)| {
                    is_job(key) && is_done(text) && text.contains("\"denied\"")
                };
                if batch.puts.iter().any(failed) {
                    batch.deletes.extend(durable.keys().find(|key| key.starts_with(keys::INSTANCE)).cloned());
                }
            }
            Some(Mutation::LosesArchived) => {
                let lost: Vec<String> =
                    batch.archives.iter().filter(|_| random.permille(300)).cloned().collect();
                batch.archives.retain(|key| !lost.contains(key));
                batch.puts.retain(|(key, _)| !lost.contains(key));
                batch.deletes.extend(lost);
            }
            Some(Mutation::LosesRepairs) => {
                for (_, text) in batch.puts.iter_mut().filter(|(key, _)| is_job(key)) {
                    *text = text.replace("\"made_good\":true", "\"made_good\":false");
                }
            }
            Some(Mutation::LosesRecords) => batch.puts.retain(|(key, _)| !key.starts_with(keys::NODE)),
            Some(_) | None => {}
        }
        batch
    }
}

fn is_done(text: &str) -> bool {
    text.contains("\"phase\":\"done\"")
}

fn stopped(kind: io::ErrorKind) -> StoreError {
    StoreError::File { what: "write", path: "simulated store".into(), source: kind.into() }
}

fn apply(records: &mut Records, archive: &mut Records, batch: Batch) {
    for key in &batch.deletes {
        records.remove(key);
    }
    records.extend(batch.puts);
    for key in &batch.archives {
        archive.extend(records.remove_entry(key));
    }
}

/// The store of one run of the master daemon.
pub(crate) struct SimStore {
    pub(crate) disk: Rc<RefCell<Disk>>,
    pub(crate) incarnation: u64,
}

impl Store for SimStore {
    fn load(&self) -> Result<Records, StoreError> {
        Ok(self.disk.borrow().present())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.disk.borrow_mut().commit(batch, self.incarnation)
    }

    fn commits(&self) -> u64 {
        self.disk.borrow().commits
    }

    fn archived_count(&self) -> u64 {
        u64::try_from(self.disk.borrow().present_archive().len()).unwrap_or(u64::MAX)
    }

    fn archived(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.disk.borrow().present_archive().remove(key))
    }

    fn archived_keys(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        Ok(self.disk.borrow().present_archive().into_keys().rev().take(limit).collect())
    }

    fn archived_after(&self, key: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError> {
        let archive = self.disk.borrow().present_archive();
        let after = (Bound::Excluded(key.to_owned()), Bound::Unbounded);
        Ok(archive.range(after).take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
