//! The files of a store: its directory's lock, making and removing them durably.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use muster_proto::transport::take_lock;
use rustix::fs::{FlockOperation, flock};

use super::batch::StoreError;

/// What SQLite may leave beside a file.
pub(super) const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Names the note of commits beside a store's file.
pub(super) const SUFFIX_WITNESS: &str = ".commits";
/// Names the copy that a backup is sent from.
pub(super) const SUFFIX_SNAPSHOT: &str = ".snapshot";
/// Names the copy that is examined before it becomes the store.
pub(super) const SUFFIX_RESTORE: &str = ".restore";

/// A lock on a directory, kept until it is dropped or the process ends. It leaves nothing on disk.
#[derive(Debug)]
pub(super) struct DirectoryLock(
    #[expect(dead_code, reason = "the lock lasts as long as the descriptor")] File,
);

impl DirectoryLock {
    /// Takes the lock, which a master that has just ended may seem to hold; the directory is made when it isn't there.
    pub(super) fn take(directory: &Path) -> Result<Self, StoreError> {
        take_lock(|| Self::try_take(directory), |error| matches!(error, StoreError::InUse { .. }))
    }

    fn try_take(directory: &Path) -> Result<Self, StoreError> {
        let error = |what| move |source| StoreError::File { what, path: directory.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(error("make"))?;
        let opened = File::open(directory).map_err(error("open"))?;
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(opened)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse { path: directory.to_owned() }),
            Err(errno) => Err(error("lock")(errno.into())),
        }
    }
}

/// The directory that a file is in.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        Some(_) | None => Path::new("."),
    }
}

/// The path with something appended to the file's name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut text = OsString::from(path);
    text.push(suffix);
    PathBuf::from(text)
}

/// Makes an empty file that only its owner may read.
pub(super) fn make_private(path: &Path) -> Result<(), StoreError> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map(drop).map_err(|source| StoreError::File { what: "make", path: path.to_owned(), source })
}

/// Gives a finished file its name, replacing what has it; whole and durable, or not at all.
pub(super) fn publish(from: &Path, to: &Path) -> Result<(), StoreError> {
    let error = |what| move |source| StoreError::File { what, path: to.to_owned(), source };
    File::open(from).and_then(|file| file.sync_all()).map_err(error("write"))?;
    fs::rename(from, to).map_err(error("put into place"))?;
    sync_directory(to)
}

/// Removes a database with all that SQLite keeps beside it; the main file goes first, since without it the rest means
/// nothing.
pub(super) fn remove_database(path: &Path) -> Result<(), StoreError> {
    remove(path)?;
    remove_companions(path)?;
    sync_directory(path)
}

/// Removes what SQLite, and the store itself, keep beside a database.
pub(super) fn remove_companions(path: &Path) -> Result<(), StoreError> {
    COMPANIONS.iter().chain([&SUFFIX_WITNESS]).try_for_each(|suffix| remove(&beside(path, suffix)))
}

/// Removes copies that a process left which ended while it made them.
pub(super) fn remove_leftovers(path: &Path) -> Result<(), StoreError> {
    for suffix in [SUFFIX_SNAPSHOT, SUFFIX_RESTORE] {
        let copy = beside(path, suffix);
        for name in [beside(&copy, ".new"), copy] {
            if name.try_exists().unwrap_or(true) {
                remove_database(&name)?;
            }
            remove_companions(&name)?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::File { what: "remove", path: path.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

pub(super) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let directory = directory_of(path);
    let synced = File::open(directory).and_then(|opened| opened.sync_all());
    synced.map_err(|source| StoreError::File { what: "write", path: directory.to_owned(), source })
}
