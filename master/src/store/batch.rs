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
}

/// Changes that are committed together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Records to delete, before the others are written; one that isn't there is no error.
    pub deletes: Vec<String>,
    /// Records to write: key and value.
    pub puts: Vec<(String, String)>,
    /// The epoch that the store must have (0 where it has none) for this batch to be committed.
    pub epoch: Option<u64>,
}

impl Batch {
    /// Replaces all that a store holds by other records.
    pub fn replacing(old: &Records, new: Records) -> Self {
        let deletes = old.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
        Self { deletes, puts: new.into_iter().collect(), epoch: None }
    }

    /// Adds a record to write.
    pub fn put(&mut self, key: String, value: String) {
        self.puts.push((key, value));
    }

    /// Adds a record to delete.
    pub fn delete(&mut self, key: String) {
        self.puts.retain(|(put, _)| *put != key);
        self.deletes.push(key);
    }

    /// Adds the changes of another batch, after those of this one.
    pub fn extend(&mut self, other: Self) {
        self.puts.retain(|(key, _)| !other.deletes.contains(key));
        self.deletes.extend(other.deletes);
        self.puts.extend(other.puts);
        self.epoch = self.epoch.or(other.epoch);
    }

    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.puts.is_empty()
    }
}

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
    /// Another process has it.
    #[error("the store {path} is in use by another process (a second master daemon on this directory?)")]
    InUse {
        /// The file, or the directory it would be in.
        path: PathBuf,
    },
    /// The file has another purpose.
    #[error("{path} is not a store of Muster; move it away, or restore the store from a backup")]
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
    /// A record is not what was written. The log beside the file would be applied to a backup that is put in its place.
    #[error(
        "record {key} of the store {path} is damaged: remove {path}-wal and restore {path} from a backup"
    )]
    DamagedRecord {
        /// The file.
        path: PathBuf,
        /// The record.
        key: String,
    },
    /// The file as a whole is not what was written.
    #[error("the store {path} is damaged ({what}): remove {path}-wal and restore {path} from a backup")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
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
