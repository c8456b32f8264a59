//! Reads a hook directory and decides what of it runs (HOOKS.md D2 to D7).
//!
//! Reading collects facts; [`decide`] is a pure function of them.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use muster_core::hooks::{
    ScriptLimits, SkipReason, Skipped, TIMEOUT_MAX_DEFAULT_MS, script_limits, skipped_by_name,
};
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};
use serde::{Deserialize, Serialize};

/// Bytes read of a script for its limits: 1000 characters of at most four bytes.
const HEAD_BYTES_MAX: u64 = 4000;
/// The write bits of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// The execute bits.
const ANY_EXECUTE: u32 = 0o111;

/// What a directory entry is, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// The daemon's user may execute it.
        executable: bool,
        /// It has execute bits, but its filesystem is mounted noexec.
        no_exec_mount: bool,
        /// Others than root and the daemon's user can write it or the directory it really lies in.
        writable_by_others: bool,
    },
    /// A directory.
    Directory,
    /// A link to nothing.
    Dangling,
    /// A socket, device or fifo.
    Special,
}

/// A directory entry as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name, any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
}

/// A script that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Its name.
    pub name: String,
    /// Others than root and the daemon's user can write it (D7).
    pub writable_by_others: bool,
}

/// What of a directory runs, in order, and what does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The scripts in the order they run.
    pub scripts: Vec<Script>,
    /// The other entries, by name.
    pub skipped: Vec<Skipped>,
}

/// Decides what of the entries runs and in which order (D3, D5).
pub fn decide(mut entries: Vec<Entry>) -> Decision {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let mut decision = Decision::default();
    for entry in entries {
        match script_or_reason(&entry) {
            Ok(script) => decision.scripts.push(script),
            Err(reason) => decision.skipped.push(Skipped { name: shown(&entry.name), reason }),
        }
    }
    decision
}

fn script_or_reason(entry: &Entry) -> Result<Script, SkipReason> {
    if let Some(reason) = skipped_by_name(&entry.name) {
        return Err(reason);
    }
    match entry.kind {
        EntryKind::File { executable: true, writable_by_others, .. } => {
            Ok(Script { name: shown(&entry.name), writable_by_others })
        }
        EntryKind::File { no_exec_mount: true, .. } => Err(SkipReason::NoExecMount),
        EntryKind::File { .. } => Err(SkipReason::NotExecutable),
        EntryKind::Directory => Err(SkipReason::Directory),
        EntryKind::Dangling => Err(SkipReason::DanglingLink),
        EntryKind::Special => Err(SkipReason::NotAFile),
    }
}

/// A name as text: control characters and undecodable bytes made visible.
pub(crate) fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// Why a directory that exists could not be read (D2: a failure, not an empty directory).
#[derive(Debug, thiserror::Error)]
#[error("could not read hook directory {}", .path.display())]
pub struct ScanError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// A directory as it was read; missing, or no directory, is empty (D2).
///
/// # Errors
/// When it exists and can't be read.
pub(crate) fn scan(path: &Path) -> Result<Decision, ScanError> {
    let failed = |source| ScanError { path: path.to_owned(), source };
    let Some(directory) = open(path).map_err(failed)? else {
        return Ok(Decision::default());
    };
    let mut entries = Vec::new();
    for entry in directory {
        let name = entry.map_err(failed)?.file_name();
        if let Some(kind) = kind_of(&path.join(&name)).map_err(failed)? {
            entries.push(Entry { name: name.into_encoded_bytes(), kind });
        }
    }
    Ok(decide(entries))
}

/// `None` where nothing is, or something that is no directory.
fn open(path: &Path) -> io::Result<Option<fs::ReadDir>> {
    match fs::read_dir(path) {
        Ok(directory) => Ok(Some(directory)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What an entry is; `None` if it went away meanwhile.
fn kind_of(path: &Path) -> io::Result<Option<EntryKind>> {
    let target = match fs::metadata(path) {
        Ok(target) => target,
        Err(error) if fs::symlink_metadata(path).is_ok_and(|own| own.is_symlink()) => {
            // A loop of links has no target either; one that may not be looked at can't be executed.
            return Ok(Some(if error.kind() == io::ErrorKind::PermissionDenied {
                EntryKind::File { executable: false, no_exec_mount: false, writable_by_others: false }
            } else {
                EntryKind::Dangling
            }));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(if target.is_file() {
        let executable = rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        EntryKind::File {
            executable,
            no_exec_mount: !executable && target.mode() & ANY_EXECUTE != 0 && is_no_exec_mount(path),
            writable_by_others: writable_by_others(&target) || real_directory_writable_by_others(path),
        }
    } else if target.is_dir() {
        EntryKind::Directory
    } else {
        EntryKind::Special
    }))
}

fn is_no_exec_mount(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Whether others than root and the daemon's user can write a file or directory (D7).
fn writable_by_others(metadata: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    metadata.mode() & OTHERS_WRITE != 0 || (metadata.uid() != 0 && metadata.uid() != own)
}

/// The same for the directory in which a link's target lies: who can write there can exchange the script.
fn real_directory_writable_by_others(path: &Path) -> bool {
    let is_link = fs::symlink_metadata(path).is_ok_and(|own| own.is_symlink());
    is_link
        && fs::canonicalize(path)
            .ok()
            .and_then(|target| fs::metadata(target.parent()?).ok())
            .is_none_or(|directory| writable_by_others(&directory))
}

/// The limits that a script sets for itself (X8); the defaults where it can't be read.
pub(crate) fn limits_of(path: &Path, max_ms: u64) -> ScriptLimits {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES_MAX).read_to_end(&mut head));
    let mut limits = script_limits(&head, max_ms);
    if let Err(error) = read {
        limits.notes.push(format!("its time limits could not be read: {error}"));
    }
    limits
}

/// A script in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedScript {
    /// Its name.
    pub name: String,
    /// Others than root and the daemon's user can write it (D7).
    pub writable_by_others: bool,
    /// Its limits, bounded by the default of `hook_timeout_max`, and remarks on the lines that set them (X8).
    pub limits: ScriptLimits,
}

/// A hook directory in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedDirectory {
    /// Its name, for example `node-add-pre.d`.
    pub name: String,
    /// The scripts in the order they would run.
    pub scripts: Vec<ListedScript>,
    /// The entries that would not run.
    pub skipped: Vec<Skipped>,
    /// Others than root and the daemon's user can write it (D7).
    pub writable_by_others: bool,
    /// Set when it can't be read.
    pub failure: Option<String>,
}

/// Every sub-directory of `hooks_dir`, by name, whatever it is called: an operator wants to see a misspelt one.
///
/// # Errors
/// When `hooks_dir` exists and can't be read.
pub(crate) fn list(hooks_dir: &Path) -> Result<Vec<ListedDirectory>, ScanError> {
    let failed = |source| ScanError { path: hooks_dir.to_owned(), source };
    let Some(entries) = open(hooks_dir).map_err(failed)? else {
        return Ok(Vec::new());
    };
    let parent_unsafe = fs::metadata(hooks_dir).is_ok_and(|metadata| writable_by_others(&metadata));
    let mut names =
        entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    names.sort();
    Ok(names.iter().filter_map(|name| listed_directory(hooks_dir, name, parent_unsafe)).collect())
}

/// `None` for what is no directory; a loop of links is listed, since a run fails on it.
fn listed_directory(hooks_dir: &Path, name: &OsStr, parent_unsafe: bool) -> Option<ListedDirectory> {
    let path = hooks_dir.join(name);
    let metadata = fs::metadata(&path);
    let (writable, (decision, failure)) = match &metadata {
        Ok(metadata) if !metadata.is_dir() => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Ok(metadata) => (writable_by_others(metadata), decision_or_failure(&path)),
        Err(_) => (false, decision_or_failure(&path)),
    };
    let script = |script: Script| ListedScript {
        limits: limits_of(&path.join(&script.name), TIMEOUT_MAX_DEFAULT_MS),
        name: script.name,
        writable_by_others: script.writable_by_others,
    };
    Some(ListedDirectory {
        name: shown(name.as_bytes()),
        scripts: decision.scripts.into_iter().map(script).collect(),
        skipped: decision.skipped,
        writable_by_others: writable || parent_unsafe || real_directory_writable_by_others(&path),
        failure,
    })
}

fn decision_or_failure(path: &Path) -> (Decision, Option<String>) {
    match scan(path) {
        Ok(decision) => (decision, None),
        Err(error) => (Decision::default(), Some(crate::chain(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(executable: bool, no_exec_mount: bool) -> EntryKind {
        EntryKind::File { executable, no_exec_mount, writable_by_others: false }
    }

    #[test]
    fn d3_every_skip_has_its_reason() {
        let check = |name: &[u8], kind: EntryKind, expected: Option<SkipReason>| {
            let decision = decide(vec![Entry { name: name.to_vec(), kind }]);
            let reasons: Vec<SkipReason> = decision.skipped.iter().map(|skipped| skipped.reason).collect();
            assert_eq!(reasons, expected.into_iter().collect::<Vec<_>>(), "{}", name.escape_ascii());
            assert_eq!(decision.scripts.len(), usize::from(expected.is_none()), "{}", name.escape_ascii());
        };
        let script = file(true, false);
        for good in [&b"10-x"[..], b"a", b"_", b"-", b"A_b-9"] {
            check(good, script, None);
        }
        for bad in [&b"a.sh"[..], b"a\n", b"\n", b" a", b".a", b"a~", b"caf\xe9", "\u{e9}".as_bytes(), b""] {
            check(bad, script, Some(SkipReason::BadName));
        }
        check(b"10-x.disabled", script, Some(SkipReason::Disabled));
        check(b"x", file(false, false), Some(SkipReason::NotExecutable));
        check(b"x", file(false, true), Some(SkipReason::NoExecMount));
        check(b"x", EntryKind::Directory, Some(SkipReason::Directory));
        check(b"x", EntryKind::Dangling, Some(SkipReason::DanglingLink));
        check(b"x", EntryKind::Special, Some(SkipReason::NotAFile));
    }

    #[test]
    fn d5_order_is_bytewise() {
        let entries = ["a", "_x", "A", "2-x", "10-x"];
        let decision = decide(
            entries
                .iter()
                .map(|name| Entry { name: name.as_bytes().to_vec(), kind: file(true, false) })
                .collect(),
        );
        let names: Vec<&str> = decision.scripts.iter().map(|script| script.name.as_str()).collect();
        assert_eq!(names, ["10-x", "2-x", "A", "_x", "a"]);
    }

    #[test]
    fn d3_names_are_shown_with_undecodable_bytes_made_visible() {
        assert_eq!(shown(b"caf\xe9\n"), "caf\\xe9\\n");
        assert_eq!(shown("é".as_bytes()), "é");
    }
}
