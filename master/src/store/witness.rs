//! How many commits were answered, noted beside the store's file.
//!
//! SQLite reads its log up to the first page that is damaged and takes that for the end: all later commits are gone
//! without an error. The note is written after each commit, and never flushed, so that it costs no time. It survives the
//! death of the process; after a loss of power it may be behind the store, but never ahead of it, since a commit is on the
//! disk before it is noted. So a store with fewer commits than the note says has lost some.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::files::{SUFFIX_WITNESS, beside};
use crate::hex;

/// Bytes of the digest that a note carries: enough to tell a note from damage.
const DIGEST_BYTES: usize = 8;

/// The note.
#[derive(Debug)]
pub(super) struct Witness {
    path: PathBuf,
    /// Made at the first commit; without it commits are not noted.
    file: Option<File>,
}

impl Witness {
    /// The note beside a store's file.
    pub(super) fn of(store: &Path) -> Self {
        Self { path: beside(store, SUFFIX_WITNESS), file: None }
    }

    /// The number that was noted last; `None` where there is no note, or one that a loss of power spoilt.
    pub(super) fn noted(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (number, _) = text.split_once(' ')?;
        let number = number.parse().ok()?;
        (text == note(number)).then_some(number)
    }

    /// Notes a commit. A note that can't be written protects less, and is no reason to end.
    pub(super) fn note(&mut self, commits: u64) {
        let written = self.file().and_then(|file| file.write_all_at(note(commits).as_bytes(), 0));
        if let Err(error) = written {
            tracing::warn!(path = %self.path.display(), %error, "could not note a commit");
        }
    }

    fn file(&mut self) -> std::io::Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => {
                let mut options = OpenOptions::new();
                let opened = options.write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
                Ok(none.insert(opened))
            }
        }
    }
}

/// A note's text; all have the same length, so that one replaces the other.
fn note(commits: u64) -> String {
    let digest = Sha256::digest(commits.to_be_bytes());
    format!("{commits:020} {}\n", hex::hex_of(&digest[..DIGEST_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_note_counts_and_a_spoilt_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("cluster.db");
        let mut witness = Witness::of(&store);
        assert_eq!(witness.noted(), None);
        for commits in [7, 123_456, 8, u64::MAX] {
            witness.note(commits);
            assert_eq!(Witness::of(&store).noted(), Some(commits));
        }
        let path = beside(&store, SUFFIX_WITNESS);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen('8', "9", 1)).unwrap();
        assert_eq!(witness.noted(), None);
        fs::write(&path, &text[..10]).unwrap();
        assert_eq!(witness.noted(), None);
    }
}
