//! What a store does, and why it may fail.

use std::{collections::BTreeMap, io, path::PathBuf};

use super::{
    keys,
    value::{ValueError, decode},
};

/// All records, by key.
pub type Records = BTreeMap<String, String>;

/// A store of records. Not for several threads: one owns it.
pub trait Store {
    /// All records, each checked.
    ///
    /// # Errors
    /// When the store can't be read, or what it holds is not what was written.
    fn load(&self) -> Result<Records, StoreError>;

    /// Commits all of the batch or nothing of it; durable when it returns.
    ///
    /// # Errors
    /// [`StoreError::EpochChanged`] when the batch's condition does not hold: nothing is changed. After any other error
    /// nobody knows what is durable, and the process must end.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// How many commits the store has seen: a copy of an earlier day has a lower number.
    fn commits(&self) -> u64;

    /// How many records are in the archive. Costs nothing, whatever the number.
    fn archived_count(&self) -> u64;

    /// An archived record, checked; `None` where there is none.
    ///
    /// # Errors
    /// When the store can't be read, or what it holds is not what was written.
    fn archived(&self, key: &str) -> Result<Option<String>, StoreError>;

    /// The keys of archived records, the highest first (of jobs: the newest), at most so many; each record is checked.
    ///
    /// # Errors
    /// When the store can't be read, or what it holds is not what was written.
    fn archived_keys(&self, limit: usize) -> Result<Vec<String>, StoreError>;

    /// Archived records in the order of their keys, from behind a key on, at most so many: to copy the archive by pages.
    ///
    /// # Errors
    /// When the store can't be read, or what it holds is not what was written.
    fn archived_after(&self, key: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError>;
}

/// Changes that are committed together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Records to delete, before the others are written; one that isn't there is no error.
    pub deletes: Vec<String>,
    /// Records to write: key and value.
    pub puts: Vec<(String, String)>,
    /// Records to move to the archive, after the others are written: they are loaded no more, only read by their keys,
    /// and never written again. One that isn't there is no error.
    pub archives: Vec<String>,
    /// The epoch that the store must have (0 where it has none) for this batch to be committed.
    pub epoch: Option<u64>,
}

impl Batch {
    /// Replaces all that a store holds by other records.
    pub fn replacing(old: &Records, new: Records) -> Self {
        let deletes = old.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
        Self { deletes, puts: new.into_iter().collect(), ..Self::default() }
    }

    /// Puts records straight into the archive.
    pub fn archiving(records: Vec<(String, String)>) -> Self {
        let archives = records.iter().map(|(key, _)| key.clone()).collect();
        Self { puts: records, archives, ..Self::default() }
    }

    /// Adds a record to write.
    pub fn put(&mut self, key: String, value: String) {
        self.puts.push((key, value));
    }

    /// Adds a record to move to the archive.
    pub fn archive(&mut self, key: String) {
        self.archives.push(key);
    }

    /// Adds a record to delete; one that is to be archived is none any more, and stays in the archive.
    pub fn delete(&mut self, key: String) {
        if self.archives.contains(&key) {
            return;
        }
        self.puts.retain(|(put, _)| *put != key);
        self.deletes.push(key);
    }

    /// Adds the changes of another batch, after those of this one.
    pub fn extend(&mut self, other: Self) {
        let deletes: Vec<String> =
            other.deletes.into_iter().filter(|key| !self.archives.contains(key)).collect();
        self.puts.retain(|(key, _)| !deletes.contains(key));
        self.deletes.extend(deletes);
        self.puts.extend(other.puts);
        self.archives.extend(other.archives);
        self.epoch = self.epoch.or(other.epoch);
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.puts.is_empty() && self.archives.is_empty()
    }
}

/// The way out of damage, as error messages name it.
pub(super) const RESTORE: &str = "restore a backup: muster-masterd --restore FILE";

/// Why a store can't be used any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refused something.
    #[error("could not {what} {path}")]
    File {
        /// What was being tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// SQLite refused something.
    #[error("could not {what} the store {path}")]
    Sqlite {
        /// What was being tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// It can't be opened, for a reason that may be damage.
    #[error("could not open the store {path}; if the file is damaged, {RESTORE}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// Another process has it.
    #[error("the store {path} is in use by another process (a second master daemon on this directory?)")]
    InUse {
        /// The file, or the directory it would be in.
        path: PathBuf,
    },
    /// The file has another purpose.
    #[error("{path} is not a store of Muster: {RESTORE}")]
    NotAStore {
        /// The file.
        path: PathBuf,
    },
    /// Written by a newer version of this program.
    #[error(
        "the store {path} has format {found}, and this program knows formats up to {known}: \
         start the newer version again, or restore a backup that this version made"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: u32,
        /// The newest format known.
        known: u32,
    },
    /// A record is not what was written.
    #[error("record {key} of the store {path} is damaged: {RESTORE}")]
    DamagedRecord {
        /// The file.
        path: PathBuf,
        /// The record.
        key: String,
    },
    /// The file as a whole is not what was written.
    #[error("the store {path} is damaged ({what}): {RESTORE}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// There is none, and there must be one.
    #[error("there is no store {path}, although {why}: {RESTORE}; {otherwise}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// By what it is known that there was one.
        why: String,
        /// What to do if this host is to be without one.
        otherwise: String,
    },
    /// The batch's condition does not hold.
    #[error("the store's epoch is {found}, not {expected}: another master has taken it over")]
    EpochChanged {
        /// The batch's condition.
        expected: u64,
        /// The store's epoch.
        found: u64,
    },
    /// A checked record is nothing that this program reads.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Checks a batch's condition against the epoch's record.
pub(super) fn check_epoch(batch: &Batch, record: Option<&str>) -> Result<(), StoreError> {
    let Some(expected) = batch.epoch else { return Ok(()) };
    let found = record.map_or(Ok(0), |text| decode(keys::EPOCH, text))?;
    if found == expected { Ok(()) } else { Err(StoreError::EpochChanged { expected, found }) }
}
