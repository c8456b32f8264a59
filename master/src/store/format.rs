//! The file's format, and the store's record of itself.
//!
//! To change the format: raise [`FORMAT_VERSION`] and append to [`FORMAT`]'s upgrades a function from the records of
//! the version before. Opening an older file makes a backup and then applies them in one transaction. Archived records
//! are not passed through upgrades: their values have a version of their own.
//!
//! Formats: 1, live records only; 2, also an archive, which a program of format 1 would neither show nor count.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::batch::Records;
use crate::hex;

/// The format that is written.
pub const FORMAT_VERSION: u32 = 2;

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
pub(super) const FORMAT: Format = Format { version: FORMAT_VERSION, upgrades: &[archive_added] };

/// The table is made where the file is opened; the records stay as they are.
fn archive_added(records: Records) -> Records {
    records
}

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
    /// How many live records it holds.
    records: u64,
    /// The checksums of all live records, by exclusive or, hexadecimal: a record that is lost, or of another day than
    /// the rest, is found though its own checksum is right.
    sum: String,
    /// How many records its archive holds.
    #[serde(default)]
    pub(super) archived: u64,
    /// The same sum over the archive. Kept with each commit and compared where the whole file is examined, never at a
    /// start.
    #[serde(default = "no_sum")]
    archive_sum: String,
}

/// The sum over no record.
fn no_sum() -> String {
    hex::hex_of(&[0; 32])
}

impl Meta {
    pub(super) fn new(format: u32) -> Self {
        Self { format, commits: 0, records: 0, sum: no_sum(), archived: 0, archive_sum: no_sum() }
    }

    pub(super) fn add(&mut self, checksum: &Checksum) {
        self.records += 1;
        mix(&mut self.sum, checksum);
    }

    /// Saturates rather than underflows: in a damaged file a record more than were counted can be deleted.
    pub(super) fn remove(&mut self, checksum: &Checksum) {
        self.records = self.records.saturating_sub(1);
        mix(&mut self.sum, checksum);
    }

    pub(super) fn add_archived(&mut self, checksum: &Checksum) {
        self.archived += 1;
        mix(&mut self.archive_sum, checksum);
    }

    pub(super) fn remove_archived(&mut self, checksum: &Checksum) {
        self.archived = self.archived.saturating_sub(1);
        mix(&mut self.archive_sum, checksum);
    }

    /// Compares with what was counted when all live records were read; else what is wrong.
    pub(super) fn check(&self, counted: &Meta) -> Result<(), String> {
        compare("records", (self.records, &self.sum), (counted.records, &counted.sum))
    }

    /// The same for the archive.
    pub(super) fn check_archive(&self, counted: &Meta) -> Result<(), String> {
        let written = (self.archived, self.archive_sum.as_str());
        compare("archived records", written, (counted.archived, &counted.archive_sum))
    }
}

fn mix(sum: &mut String, checksum: &Checksum) {
    let mut bytes = hex::bytes_of(sum).unwrap_or_default();
    // A sum of another length is damage; it then equals no real sum.
    bytes.iter_mut().zip(checksum).for_each(|(byte, other)| *byte ^= other);
    *sum = hex::hex_of(&bytes);
}

fn compare(what: &str, written: (u64, &str), counted: (u64, &str)) -> Result<(), String> {
    if written.0 != counted.0 {
        return Err(format!("{} {what} instead of {}", counted.0, written.0));
    }
    match written.1 == counted.1 {
        true => Ok(()),
        false => Err(format!("its {what} are not all of the same state")),
    }
}
