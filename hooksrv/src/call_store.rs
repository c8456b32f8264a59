//! Where the call journal keeps its records: a trait, and small files in one directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::call_id::CallId;

/// Suffix of a file that is being written.
const UNFINISHED: &str = ".tmp";

/// A part of what is kept of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// What is known of the call.
    Record,
    /// Its answer.
    Answer,
    /// The process it started last, where the daemon itself started it. Not durable: after a crash of the machine there is
    /// no process.
    Process,
}

impl Part {
    fn suffix(self) -> &'static str {
        match self {
            Part::Record => ".call",
            Part::Answer => ".answer",
            Part::Process => ".process",
        }
    }
}

/// Why the storage failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or the directory.
    #[error("could not {verb} {}", .path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A value has no form as text.
    #[error("could not encode a record")]
    Encode(#[source] serde_json::Error),
}

/// Storage of the call journal.
pub trait CallStore {
    /// The records of all calls, read once at the start.
    ///
    /// # Errors
    /// When they can't be read.
    fn records(&self) -> Result<Vec<(CallId, String)>, StoreError>;

    /// Replaces a part of a call, wholly or not at all; records and answers are durable when it returns.
    ///
    /// # Errors
    /// When that fails; the old part may then be there still.
    fn write(&self, id: &CallId, part: Part, text: &str) -> Result<(), StoreError>;

    /// Reads a part of a call; `None` if there is none.
    ///
    /// # Errors
    /// When it can't be read.
    fn read(&self, id: &CallId, part: Part) -> Result<Option<String>, StoreError>;

    /// Removes a part of a call; it may be missing.
    ///
    /// # Errors
    /// When it can't be removed.
    fn remove_part(&self, id: &CallId, part: Part) -> Result<(), StoreError>;

    /// Removes all parts of a call, the record last, so that none is left without it.
    ///
    /// # Errors
    /// When a part can't be removed.
    fn remove(&self, id: &CallId) -> Result<(), StoreError> {
        [Part::Process, Part::Answer, Part::Record]
            .into_iter()
            .try_for_each(|part| self.remove_part(id, part))
    }
}

/// One directory of small files, each replaced by rename.
#[derive(Debug, Clone)]
pub struct FileStore {
    dir: PathBuf,
}

impl FileStore {
    /// Opens the directory, made if missing; what a crash left half written is removed.
    ///
    /// # Errors
    /// When the directory can't be made or read.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed("create", dir))?;
        let store = FileStore { dir: dir.to_owned() };
        for name in store.names()?.iter().filter(|name| name.ends_with(UNFINISHED)) {
            let path = dir.join(name);
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
        Ok(store)
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let entries = fs::read_dir(&self.dir).map_err(failed("read", &self.dir))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect::<io::Result<_>>().map_err(failed("read", &self.dir))
    }

    fn path(&self, id: &CallId, part: Part) -> PathBuf {
        self.dir.join(format!("{}{}", id.file_name(), part.suffix()))
    }
}

fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |source| StoreError::File { verb, path: path.to_owned(), source }
}

impl CallStore for FileStore {
    fn records(&self) -> Result<Vec<(CallId, String)>, StoreError> {
        let mut records = Vec::new();
        for name in self.names()? {
            let Some(Ok(id)) = name.strip_suffix(Part::Record.suffix()).map(CallId::from_file_name) else {
                continue;
            };
            let path = self.dir.join(&name);
            // Lossy: bytes that are no text are a damaged record, which the journal tells from a good one.
            let text = String::from_utf8_lossy(&fs::read(&path).map_err(failed("read", &path))?).into_owned();
            records.push((id, text));
        }
        Ok(records)
    }

    fn write(&self, id: &CallId, part: Part, text: &str) -> Result<(), StoreError> {
        let is_durable = part != Part::Process;
        let path = self.path(id, part);
        let unfinished = self.dir.join(format!("{}{}{UNFINISHED}", id.file_name(), part.suffix()));
        let replace = || {
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            if is_durable {
                file.sync_all()?;
            }
            fs::rename(&unfinished, &path)?;
            if is_durable { File::open(&self.dir)?.sync_all() } else { Ok(()) }
        };
        replace().map_err(failed("write", &path))
    }

    fn read(&self, id: &CallId, part: Part) -> Result<Option<String>, StoreError> {
        let path = self.path(id, part);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &path)(error)),
        }
    }

    fn remove_part(&self, id: &CallId, part: Part) -> Result<(), StoreError> {
        let path = self.path(id, part);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
