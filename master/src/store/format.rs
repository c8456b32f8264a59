//! The file's format, and the store's record of itself.
//!
//! To change the format: raise [`FORMAT_VERSION`] and append to [`FORMAT`]'s upgrades a function from the records of
//! the version before. Opening an older file makes a backup and then applies them in one transaction.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::batch::Records;
use crate::hex;

/// The format that is written.
pub const FORMAT_VERSION: u32 = 1;

/// Makes the records of one format from those of the one before.
pub(super) type Upgrade = fn(Records) -> Records;

/// What a program knows of formats.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    /// The one that it writes.
    pub(super) version: u32,
    /// From 1 to 2, from 2 to 3 and so on.
    pub(super) upgrades: &'static [Upgrade],
}

/// What this program knows.
pub(super) const FORMAT: Format = Format { version: FORMAT_VERSION, upgrades: &[] };

impl Format {
    /// The upgrades that a file of this older format needs.
    pub(super) fn upgrades_from(&self, found: u32) -> impl Iterator<Item = &Upgrade> {
        let done = usize::try_from(found.saturating_sub(1)).expect("formats are few");
        self.upgrades.iter().skip(done)
    }
}

/// SHA-256 of a record.
pub(super) type Checksum = [u8; 32];

/// A record's checksum. The key is in it, so that a value can't turn up under another key.
pub(super) fn checksum(key: &str, value: &str) -> Checksum {
    // No key contains a zero byte, so no two records have the same text here.
    Sha256::new().chain_update(key).chain_update([0]).chain_update(value).finalize().into()
}

/// The store's record of itself, written with each commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meta {
    /// The file's format.
    pub(super) format: u32,
    /// How many commits it has seen.
    pub(super) commits: u64,
    /// How many records it holds.
    records: u64,
    /// The checksums of all records, by exclusive or, hexadecimal: a record that is lost, or of another day than the
    /// rest, is found though its own checksum is right.
    sum: String,
}

impl Meta {
    pub(super) fn new(format: u32) -> Self {
        Self { format, commits: 0, records: 0, sum: hex::hex_of(&[0; 32]) }
    }

    pub(super) fn add(&mut self, checksum: &Checksum) {
        self.records += 1;
        self.mix(checksum);
    }

    /// Saturates rather than underflows: in a damaged file a record more than were counted can be deleted.
    pub(super) fn remove(&mut self, checksum: &Checksum) {
        self.records = self.records.saturating_sub(1);
        self.mix(checksum);
    }

    fn mix(&mut self, checksum: &Checksum) {
        let mut sum = hex::bytes_of(&self.sum).unwrap_or_default();
        // A sum of another length is damage; it then equals no real sum.
        sum.iter_mut().zip(checksum).for_each(|(byte, other)| *byte ^= other);
        self.sum = hex::hex_of(&sum);
    }

    /// Compares with what was counted when all records were read; else what is wrong.
    pub(super) fn check(&self, counted: &Meta) -> Result<(), String> {
        if self.records != counted.records {
            return Err(format!("{} records instead of {}", counted.records, self.records));
        }
        match self.sum == counted.sum {
            true => Ok(()),
            false => Err("its records are not all of the same state".to_owned()),
        }
    }
}
