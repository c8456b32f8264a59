//! Output of scripts: whole in files on this node, bounded copies for the master (HOOKS.md X4).
//!
//! `ROOT/CALL/NN.stdout` and `NN.stderr`: a directory a call, NN the script's place in its run. No name from outside
//! becomes part of a path.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use muster_core::hooks::Captured;
use serde::{Deserialize, Serialize};

use crate::call_id::CallId;

/// Bytes of each end of a stream that go to the master (X4).
const CAPTURE_BYTES_MAX: usize = 32 * 1024;
/// The files are looked over at least this often while runs end, for those that grew old.
const PRUNE_INTERVAL: Duration = Duration::from_secs(3600);

/// How long and how much output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Older output is deleted.
    pub age_max: Duration,
    /// Beyond this many bytes in all the oldest output is deleted.
    pub bytes_max: u64,
}

impl Retention {
    /// Everything is kept: for a process that leaves the looking over to another.
    pub(crate) const ALL: Retention = Retention { age_max: Duration::MAX, bytes_max: u64::MAX };
}

impl Default for Retention {
    fn default() -> Self {
        Retention { age_max: Duration::from_secs(30 * 24 * 3600), bytes_max: 1 << 30 }
    }
}

/// Why output could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The directory of a call could not be made.
    #[error("could not create output directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be made or opened.
    #[error("could not create output file {}", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be read.
    #[error("could not read output file {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Old output could not be looked over.
    #[error("could not prune output directory {}", .path.display())]
    Prune {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// All output kept on this node.
#[derive(Debug)]
pub(crate) struct OutputStore {
    root: PathBuf,
    retention: Retention,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    /// Directories of calls that run: never pruned.
    active: BTreeSet<PathBuf>,
    /// Bytes kept, as counted when last looked over plus what ended since.
    bytes: u64,
    pruned: Option<Instant>,
}

impl OutputStore {
    pub(crate) fn new(root: PathBuf, retention: Retention) -> Arc<Self> {
        Arc::new(OutputStore { root, retention, state: Mutex::default() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where a call's output is, whether or not it exists.
    pub(crate) fn directory_of(&self, call: &CallId) -> PathBuf {
        self.root.join(call.file_name())
    }

    /// Makes the directory of a call. One of an earlier call with the same id (of another cluster, or forgotten) is
    /// moved aside, since its files are kept until they are old.
    pub(crate) fn create(self: &Arc<Self>, call: &CallId) -> Result<CallOutput, OutputError> {
        let path = self.directory_of(call);
        let failed = |source| OutputError::Directory { path: path.clone(), source };
        private_directory().recursive(true).create(&self.root).map_err(failed)?;
        match private_directory().create(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let aside = self.root.join(format!("{}.{}", call.file_name(), uuid::Uuid::new_v4()));
                fs::rename(&path, aside).and_then(|()| private_directory().create(&path)).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        self.lock().active.insert(path.clone());
        Ok(CallOutput { store: Arc::clone(self), path })
    }

    /// Spares the output of a call that another process makes, until the value is closed or dropped.
    pub(crate) fn spare(self: &Arc<Self>, call: &CallId) -> CallOutput {
        let path = self.directory_of(call);
        self.lock().active.insert(path.clone());
        CallOutput { store: Arc::clone(self), path }
    }

    /// Deletes what is too old, then the oldest beyond the bound; output of running calls stays.
    pub(crate) fn prune(&self, now: SystemTime) -> Result<(), OutputError> {
        let failed = |source| OutputError::Prune { path: self.root.clone(), source };
        let mut kept = match kept_directories(&self.root) {
            Ok(kept) => kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        kept.sort_by_key(|directory| directory.changed);
        let mut bytes: u64 = kept.iter().map(|directory| directory.bytes).sum();
        for directory in kept {
            let age = now.duration_since(directory.changed).unwrap_or_default();
            if age <= self.retention.age_max && bytes <= self.retention.bytes_max {
                continue;
            }
            // Held while deleting, so that no call takes this directory meanwhile.
            let state = self.lock();
            if !state.active.contains(&directory.path) {
                fs::remove_dir_all(&directory.path).map_err(failed)?;
                bytes -= directory.bytes;
            }
        }
        let mut state = self.lock();
        state.bytes = bytes;
        state.pruned = Some(Instant::now());
        Ok(())
    }

    /// Whether enough ended since the last look for another one.
    fn is_prune_due(&self) -> bool {
        if self.retention == Retention::ALL {
            return false;
        }
        let state = self.lock();
        state.bytes > self.retention.bytes_max || state.pruned.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn private_directory() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// One call's directory as the pruning sees it.
struct Kept {
    path: PathBuf,
    changed: SystemTime,
    bytes: u64,
}

fn kept_directories(root: &Path) -> io::Result<Vec<Kept>> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if let Some(directory) = measured(&path)? {
            kept.push(directory);
        }
    }
    Ok(kept)
}

/// Newest change and size of a call's directory; `None` for what is no directory.
fn measured(path: &Path) -> io::Result<Option<Kept>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(None);
    }
    let mut kept = Kept { path: path.to_owned(), changed: metadata.modified()?, bytes: 0 };
    for file in fs::read_dir(path)? {
        let metadata = file?.metadata()?;
        kept.changed = kept.changed.max(metadata.modified()?);
        kept.bytes += metadata.size();
    }
    Ok(Some(kept))
}

/// The output directory of a running call; pruning spares it until this is dropped.
#[derive(Debug)]
pub(crate) struct CallOutput {
    store: Arc<OutputStore>,
    path: PathBuf,
}

impl CallOutput {
    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes both files of a script.
    pub(crate) fn files(&self, number: usize) -> Result<(OutputFile, OutputFile), OutputError> {
        let file = |stream: &str| OutputFile::create(self.path.join(format!("{number:02}.{stream}")));
        Ok((file("stdout")?, file("stderr")?))
    }

    /// Ends the call's part and prunes where that is due. Blocks.
    pub(crate) fn close(self) {
        let store = Arc::clone(&self.store);
        let bytes = measured(&self.path).ok().flatten().map_or(0, |directory| directory.bytes);
        drop(self);
        store.lock().bytes += bytes;
        if store.is_prune_due()
            && let Err(error) = store.prune(SystemTime::now())
        {
            tracing::warn!(error = crate::chain(&error), "old hook output stays");
        }
    }
}

impl Drop for CallOutput {
    fn drop(&mut self) {
        self.store.lock().active.remove(&self.path);
    }
}

/// One output file: written by the script through a descriptor of its own, read here.
#[derive(Debug)]
pub(crate) struct OutputFile {
    path: PathBuf,
    reader: File,
    /// For the script alone, which gets a copy of this descriptor.
    writer: File,
}

impl OutputFile {
    fn create(path: PathBuf) -> Result<Self, OutputError> {
        let failed = |source| OutputError::Create { path: path.clone(), source };
        let writer =
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        let reader = File::open(&path).map_err(failed)?;
        Ok(OutputFile { path, reader, writer })
    }

    /// The descriptor that the script gets.
    pub(crate) fn writer(&self) -> &File {
        &self.writer
    }

    /// Its length now.
    pub(crate) fn bytes(&self) -> Result<u64, OutputError> {
        Ok(self.reader.metadata().map_err(|source| self.unreadable(source))?.len())
    }

    /// Both ends of it and its length.
    pub(crate) fn captured(&self) -> Result<Captured, OutputError> {
        let total_bytes = self.bytes()?;
        let head = self.read_at(0, total_bytes)?;
        let head_bytes = u64::try_from(head.len()).expect("at most 32 KiB");
        let capture_max = u64::try_from(CAPTURE_BYTES_MAX).expect("a small constant");
        let tail_start = total_bytes.saturating_sub(capture_max).max(head_bytes);
        let tail = self.read_at(tail_start, total_bytes)?;
        Ok(Captured { head, tail, total_bytes, path: self.path.display().to_string() })
    }

    /// Up to 32 KiB from `start` to `end`; less if the script cut its file short meanwhile.
    fn read_at(&self, start: u64, end: u64) -> Result<Vec<u8>, OutputError> {
        let wanted = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX).min(CAPTURE_BYTES_MAX);
        let mut buffer = vec![0; wanted];
        let mut filled = 0;
        while filled < wanted {
            let offset = start + u64::try_from(filled).expect("at most 32 KiB");
            match self
                .reader
                .read_at(&mut buffer[filled..], offset)
                .map_err(|source| self.unreadable(source))?
            {
                0 => break,
                count => filled += count,
            }
        }
        buffer.truncate(filled);
        Ok(buffer)
    }

    fn unreadable(&self, source: io::Error) -> OutputError {
        OutputError::Read { path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn call(text: &str) -> CallId {
        CallId::parse(text).unwrap()
    }

    fn write(store: &Arc<OutputStore>, id: &str, bytes: usize) -> CallOutput {
        let output = store.create(&call(id)).unwrap();
        let (stdout, _stderr) = output.files(1).unwrap();
        stdout.writer().write_all(&vec![b'x'; bytes]).unwrap();
        output
    }

    fn ids(root: &Path) -> BTreeSet<String> {
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn x4_both_ends_are_kept_and_a_cut_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let store = OutputStore::new(dir.path().join("out"), Retention::default());
        let output = store.create(&call("1/pre/1")).unwrap();
        for (number, (length, cut)) in
            [(0, false), (1, false), (32_768, false), (65_536, false), (65_537, true), (1_000_000, true)]
                .into_iter()
                .enumerate()
        {
            let (stdout, _stderr) = output.files(number).unwrap();
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            stdout.writer().write_all(&bytes).unwrap();
            let captured = stdout.captured().unwrap();
            assert_eq!((captured.cut(), captured.total_bytes), (cut, u64::try_from(length).unwrap()));
            assert!(bytes.starts_with(&captured.head) && bytes.ends_with(&captured.tail), "{length}");
            assert!(cut || captured.head.len() + captured.tail.len() == length, "{length}");
            assert!(captured.head.len() <= 32_768 && captured.tail.len() <= 32_768, "{length}");
        }
    }

    #[test]
    fn x4_output_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let store = OutputStore::new(dir.path().join("out"), Retention::default());
        let _output = write(&store, "1/pre/1", 1);
        for (path, mode) in [("out", 0o700), ("out/1.pre.1", 0o700), ("out/1.pre.1/01.stdout", 0o600)] {
            assert_eq!(fs::metadata(dir.path().join(path)).unwrap().mode() & 0o777, mode, "{path}");
        }
    }

    #[test]
    fn x4_the_oldest_output_goes_beyond_the_bound_but_never_that_of_a_running_call() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("out");
        let store = OutputStore::new(root.clone(), Retention { bytes_max: 250, ..Retention::default() });
        let running = write(&store, "1/pre/1", 100);
        for (id, age_s) in [("2/pre/1", 30), ("3/pre/1", 20), ("4/pre/1", 10)] {
            let output = write(&store, id, 100);
            let then = SystemTime::now() - Duration::from_secs(age_s);
            File::open(output.path.join("01.stdout")).unwrap().set_modified(then).unwrap();
            File::open(output.path.join("01.stderr")).unwrap().set_modified(then).unwrap();
            File::open(&output.path).unwrap().set_modified(then).unwrap();
        }
        store.prune(SystemTime::now()).unwrap();
        assert_eq!(ids(&root), BTreeSet::from(["1.pre.1".to_owned(), "4.pre.1".to_owned()]));
        store.prune(SystemTime::now() + Duration::from_secs(31 * 24 * 3600)).unwrap();
        assert_eq!(ids(&root), BTreeSet::from(["1.pre.1".to_owned()]));
        drop(running);
        store.prune(SystemTime::now() + Duration::from_secs(31 * 24 * 3600)).unwrap();
        assert!(ids(&root).is_empty());
    }

    #[test]
    fn x4_output_of_a_forgotten_call_with_the_same_id_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("out");
        let store = OutputStore::new(root.clone(), Retention::default());
        drop(write(&store, "1/pre/1", 7));
        drop(write(&store, "1/pre/1", 8));
        assert_eq!(ids(&root).len(), 2);
        assert_eq!(fs::metadata(root.join("1.pre.1/01.stdout")).unwrap().len(), 8);
    }
}
