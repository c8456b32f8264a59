//! Copies of a store's file: made while the store is written, and examined as a whole.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{
    batch::{Records, StoreError},
    files::{SUFFIX_SNAPSHOT, beside, make_private, publish, remove_database},
    format::FORMAT,
    sqlite::{check_magic, quick_check},
    tables::{self, read_error, sqlite_error},
};

/// What an examined file holds.
#[derive(Debug)]
pub struct Contents {
    /// The file's format.
    pub format: u32,
    /// How many commits it has seen.
    pub commits: u64,
    /// The live records.
    pub records: Records,
    /// How many records are in the archive.
    pub archived: u64,
}

/// Where a running master makes the copy that a backup is sent from; a start removes what is left there.
pub fn snapshot_path(store: &Path) -> PathBuf {
    beside(store, SUFFIX_SNAPSHOT)
}

/// Copies the store of a running master as it is at this moment, by a connection of its own: commits go on meanwhile.
/// The copy is examined before it is given out; a bad one is removed.
///
/// # Errors
/// When the store can't be copied, or the copy is not whole.
pub fn snapshot(store: &Path, to: &Path) -> Result<Contents, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(store, flags).map_err(|source| sqlite_error("copy", store, source))?;
    let examined = copy(&connection, store, to).and_then(|()| examine(to));
    if examined.is_err() {
        // The first error is the one to tell.
        remove_database(&beside(to, ".new")).and_then(|()| remove_database(to)).ok();
    }
    examined
}

/// Writes a copy of an open file to another one; what was there is replaced.
pub(super) fn copy(connection: &Connection, path: &Path, to: &Path) -> Result<(), StoreError> {
    let new = beside(to, ".new");
    remove_database(&new)?;
    make_private(&new)?;
    let source = std::io::ErrorKind::InvalidFilename;
    let text = new.to_str().ok_or_else(|| StoreError::File {
        what: "write",
        path: to.to_owned(),
        source: source.into(),
    })?;
    // Into an empty file: that one has the right mode already. One read transaction: the copy is of one moment.
    let copied = connection.execute("VACUUM INTO ?1", [text]);
    copied.map_err(|source| sqlite_error("copy", path, source))?;
    publish(&new, to)
}

/// Reads a file that nobody writes, wholly: its structure, each record, their sums, the archive.
///
/// # Errors
/// When anything in it is not what was written.
pub(super) fn examine(path: &Path) -> Result<Contents, StoreError> {
    check_magic(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|source| read_error(path, source))?;
    let guarded = connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF");
    guarded.map_err(|source| read_error(path, source))?;
    let meta = tables::read_meta(&connection, path)?;
    if meta.format > FORMAT.version {
        return Err(StoreError::Newer { path: path.to_owned(), found: meta.format, known: FORMAT.version });
    }
    quick_check(&connection, path, "PRAGMA integrity_check(1)")?;
    let records = tables::load(&connection, path, &meta)?;
    tables::check_archive(&connection, path, &meta)?;
    Ok(Contents { format: meta.format, commits: meta.commits, records, archived: meta.archived })
}
