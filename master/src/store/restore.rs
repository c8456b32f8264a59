//! Puts a backup into the place of the store, when no master runs.
//!
//! ```text
//! FILE --copy--> cluster.db.restore --examine--> (bad: removed, nothing else was touched)
//! cluster.db, its log and note --rename--> cluster.db.before-restore-DATE...
//! cluster.db.restore --rename--> cluster.db
//! ```
//!
//! A process that dies between the last two leaves no store: the next start says so, and a repeated restore goes on.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use muster_core::{engine::Job, model::Cluster};
use rusqlite::{Connection, OpenFlags};

use super::{
    batch::{Records, StoreError},
    cluster::{ClusterRecordError, cluster_from, with_prefix},
    files::{
        COMPANIONS, DirectoryLock, SUFFIX_RESTORE, SUFFIX_WITNESS, beside, directory_of, publish,
        remove_leftovers, sync_directory,
    },
    keys,
    snapshot::{Contents, examine},
    sqlite::check_magic,
    tables::read_error,
    value::{ValueError, decode},
};

/// Names under which a store that is replaced can be kept at one moment; more restores within a second are a loop.
const NAMES_MAX: u32 = 100;

/// Why a backup was not put into place. Unless it says otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The file is not a whole backup.
    #[error("{file} can't be restored: {reason}; the store was not touched")]
    Unusable {
        /// The backup.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Files could not be read, copied or renamed.
    #[error("could not {what} {path}")]
    File {
        /// What was being done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory can't be used: a master runs on it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The cluster as the backup has it.
    pub cluster: Cluster,
    /// The epoch that the backup has.
    pub epoch: u64,
    /// Jobs that are not archived.
    pub jobs: Vec<Job>,
    /// Archived jobs.
    pub archived: u64,
    /// Where the store of before is kept; none where there was none.
    pub kept: Option<PathBuf>,
}

/// Checks a backup and puts it into the place of the store. `accept` may refuse its cluster; `moment` becomes part of the
/// name under which the present store is kept.
///
/// # Errors
/// When a master runs on the directory, or the backup is not whole.
pub fn restore(
    store: &Path,
    file: &Path,
    moment: &str,
    accept: impl FnOnce(&Cluster) -> Result<(), String>,
) -> Result<Restored, RestoreError> {
    let _lock = DirectoryLock::take(directory_of(store))?;
    remove_leftovers(store)?;
    let copy = beside(store, SUFFIX_RESTORE);
    let restored = prepare(&copy, file).and_then(|(contents, found)| {
        let (cluster, epoch, jobs) = found;
        accept(&cluster).map_err(|reason| RestoreError::Unusable { file: file.to_owned(), reason })?;
        let kept = set_aside(store, moment)?;
        publish(&copy, store)?;
        Ok(Restored { cluster, epoch, jobs, archived: contents.archived, kept })
    });
    if restored.is_err() {
        // The first error is the one to tell; the next start removes what is left.
        remove_leftovers(store).ok();
    }
    restored
}

type Found = (Cluster, u64, Vec<Job>);

/// Makes one file of the backup beside the store, and examines it.
fn prepare(copy: &Path, file: &Path) -> Result<(Contents, Found), RestoreError> {
    let unusable = |reason| RestoreError::Unusable { file: file.to_owned(), reason };
    copy_file(file, copy)?;
    // A file that was copied by hand may have its newest commits in the log beside it.
    let log = beside(file, "-wal");
    if log.exists() {
        copy_file(&log, &beside(copy, "-wal"))?;
    }
    let contents = check_magic(copy).and_then(|()| merge_log(copy)).and_then(|()| examine(copy));
    let contents = contents.map_err(|error| unusable(reason(error)))?;
    let found = read(&contents.records).map_err(|error| unusable(crate::chain(&error)))?;
    let found = found.ok_or_else(|| unusable("it holds no cluster".to_owned()))?;
    Ok((contents, found))
}

fn read(records: &Records) -> Result<Option<Found>, ClusterRecordError> {
    let Some(cluster) = cluster_from(records)? else { return Ok(None) };
    let epoch = records.get(keys::EPOCH).map_or(Ok(0), |text| decode(keys::EPOCH, text))?;
    let jobs = with_prefix(records, keys::JOB).map(|(key, text)| decode(key, text));
    let jobs = jobs.collect::<Result<Vec<Job>, ValueError>>()?;
    Ok(Some((cluster, epoch, jobs)))
}

fn copy_file(from: &Path, to: &Path) -> Result<(), RestoreError> {
    let error = |what, path: &Path| {
        let path = path.to_owned();
        move |source| RestoreError::File { what, path, source }
    };
    let mut source = fs::File::open(from).map_err(error("open", from))?;
    let mut options = OpenOptions::new();
    let mut target = options.write(true).create_new(true).mode(0o600).open(to).map_err(error("make", to))?;
    io::copy(&mut source, &mut target).map_err(error("copy", from))?;
    target.sync_all().map_err(error("write", to))
}

fn merge_log(path: &Path) -> Result<(), StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|source| read_error(path, source))?;
    let merged = connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0));
    let mode = merged.map_err(|source| read_error(path, source))?;
    connection.close().map_err(|(_, source)| read_error(path, source))?;
    match mode.as_str() {
        "delete" => Ok(()),
        _ => Err(StoreError::Damaged { path: path.to_owned(), what: format!("journal mode {mode}") }),
    }
}

/// What is wrong with a file, without the path of the copy and without the advice to restore a backup.
fn reason(error: StoreError) -> String {
    match error {
        StoreError::NotAStore { .. } => "it is not a store of Muster".to_owned(),
        StoreError::Newer { found, known, .. } => {
            format!("it has format {found}, and this program knows formats up to {known}")
        }
        StoreError::DamagedRecord { key, .. } => format!("its record {key} is damaged"),
        StoreError::Damaged { what, .. } => format!("it is damaged ({what})"),
        StoreError::Open { source, .. } => format!("it is damaged ({source})"),
        StoreError::File { .. }
        | StoreError::Sqlite { .. }
        | StoreError::InUse { .. }
        | StoreError::Missing { .. }
        | StoreError::EpochChanged { .. }
        | StoreError::Value(_) => crate::chain(&error),
    }
}

/// Gives the present store another name, its companions with it. The main file goes first: without its log it would be an
/// older store, and would be taken for the present one.
fn set_aside(store: &Path, moment: &str) -> Result<Option<PathBuf>, RestoreError> {
    let parts = || [""].into_iter().chain(COMPANIONS).chain([SUFFIX_WITNESS]);
    if !parts().any(|suffix| beside(store, suffix).exists()) {
        return Ok(None);
    }
    let names = (1..=NAMES_MAX).map(|number| match number {
        1 => beside(store, &format!(".before-restore-{moment}")),
        number => beside(store, &format!(".before-restore-{moment}.{number}")),
    });
    let free = |name: &PathBuf| !parts().any(|suffix| beside(name, suffix).exists());
    let kept = names.into_iter().find(free).ok_or_else(|| RestoreError::File {
        what: "find a name to keep",
        path: store.to_owned(),
        source: io::ErrorKind::AlreadyExists.into(),
    })?;
    for suffix in parts() {
        let (from, to) = (beside(store, suffix), beside(&kept, suffix));
        match fs::rename(&from, &to) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(RestoreError::File { what: "rename", path: from, source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    sync_directory(store)?;
    Ok(Some(kept))
}
