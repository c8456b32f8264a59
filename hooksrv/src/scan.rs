//! Reads a hook directory and decides what of it runs (HOOKS.md D2 to D7).
//!
//! Reading collects facts; [`decide`] is a pure function of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use muster_core::hooks::{LimitBounds, ScriptLimits, SkipReason, Skipped, script_limits, skipped_by_name};
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
    /// It is of the cluster's set, not of the node's own hooks.
    #[serde(default)]
    pub from_cluster: bool,
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

/// The node's own directory and the cluster's as one: names bytewise, and where both have one the node's own is what counts,
/// whatever it is.
pub(crate) fn merge(own: Decision, cluster: Decision) -> Decision {
    let names: BTreeSet<String> = own
        .scripts
        .iter()
        .map(|script| script.name.clone())
        .chain(own.skipped.iter().map(|skipped| skipped.name.clone()))
        .collect();
    let Decision { mut scripts, mut skipped } = own;
    for script in cluster.scripts {
        if names.contains(&script.name) {
            skipped.push(Skipped { name: script.name, reason: SkipReason::Shadowed });
        } else {
            scripts.push(Script { from_cluster: true, ..script });
        }
    }
    skipped.extend(cluster.skipped.into_iter().filter(|skipped| !names.contains(&skipped.name)));
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    skipped.sort_by(|a, b| a.name.cmp(&b.name));
    Decision { scripts, skipped }
}

/// The node's own directory of a name, and the cluster's where a set is in use.
pub(crate) fn scan_both(own: &Path, cluster: Option<&Path>) -> Result<Decision, ScanError> {
    let decision = scan(own)?;
    match cluster {
        Some(cluster) => Ok(merge(decision, scan(cluster)?)),
        None => Ok(decision),
    }
}

fn script_or_reason(entry: &Entry) -> Result<Script, SkipReason> {
    if let Some(reason) = skipped_by_name(&entry.name) {
        return Err(reason);
    }
    match entry.kind {
        EntryKind::File { executable: true, writable_by_others, .. } => {
            Ok(Script { name: shown(&entry.name), writable_by_others, from_cluster: false })
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
pub(crate) fn limits_of(path: &Path, bounds: LimitBounds) -> ScriptLimits {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES_MAX).read_to_end(&mut head));
    let mut limits = script_limits(&head, bounds);
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
    /// It is of the cluster's set, not of the node's own hooks.
    pub from_cluster: bool,
    /// Its own limits, and those that hold where the cluster has the defaults; remarks on the lines that set them (X8).
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

/// Every sub-directory of `hooks_dir`, by name, whatever it is called: an operator wants to see a misspelt one. And the hook
/// directories of the cluster's set, where one is in use.
///
/// # Errors
/// When `hooks_dir` exists and can't be read.
pub(crate) fn list(hooks_dir: &Path, set: Option<&Path>) -> Result<Vec<ListedDirectory>, ScanError> {
    let parent_unsafe = fs::metadata(hooks_dir).is_ok_and(|metadata| writable_by_others(&metadata));
    let mut names: BTreeMap<OsString, bool> =
        names_in(hooks_dir)?.into_iter().map(|name| (name, parent_unsafe)).collect();
    if let Some(set) = set {
        let hook_directories = names_in(set)?.into_iter().filter(|name| name.as_bytes().ends_with(b".d"));
        for name in hook_directories {
            names.entry(name).or_insert(false);
        }
    }
    let listed = names.iter().filter_map(|(name, parent_unsafe)| {
        let (own, cluster) = (hooks_dir.join(name), set.map(|set| set.join(name)));
        listed_directory(name, &own, cluster.as_deref(), *parent_unsafe)
    });
    Ok(listed.collect())
}

fn names_in(dir: &Path) -> Result<Vec<OsString>, ScanError> {
    let failed = |source| ScanError { path: dir.to_owned(), source };
    let Some(entries) = open(dir).map_err(failed)? else { return Ok(Vec::new()) };
    entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>().map_err(failed)
}

/// `None` for what is no directory; a loop of links is listed, since a run fails on it.
fn listed_directory(
    name: &OsString,
    own: &Path,
    cluster: Option<&Path>,
    parent_unsafe: bool,
) -> Option<ListedDirectory> {
    let metadata = fs::metadata(own);
    let is_in_set = cluster.is_some_and(Path::is_dir);
    let writable = match &metadata {
        Ok(metadata) if metadata.is_dir() => {
            writable_by_others(metadata) || parent_unsafe || real_directory_writable_by_others(own)
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => false,
        Ok(_) | Err(_) if !is_in_set => return None,
        Ok(_) | Err(_) => false,
    };
    let (decision, failure) = decision_or_failure(own, cluster);
    let script = |script: Script| {
        let dir = if script.from_cluster { cluster.unwrap_or(own) } else { own };
        ListedScript {
            limits: limits_of(&dir.join(&script.name), LimitBounds::default()),
            name: script.name,
            writable_by_others: script.writable_by_others,
            from_cluster: script.from_cluster,
        }
    };
    Some(ListedDirectory {
        name: shown(name.as_bytes()),
        scripts: decision.scripts.into_iter().map(script).collect(),
        skipped: decision.skipped,
        writable_by_others: writable,
        failure,
    })
}

fn decision_or_failure(own: &Path, cluster: Option<&Path>) -> (Decision, Option<String>) {
    match scan_both(own, cluster) {
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
    fn d5_both_directories_are_merged_bytewise_and_the_nodes_own_names_count() {
        let entry = |name: &str, executable| Entry { name: name.into(), kind: file(executable, false) };
        let own = decide(vec![
            entry("20-b", true),
            entry("30-off", false),
            entry("A", true),
            entry("40-x.disabled", true),
        ]);
        let cluster = decide(vec![
            entry("10-a", true),
            entry("20-b", true),
            entry("30-off", true),
            entry("40-x", true),
            entry("_z", true),
            entry("README", false),
        ]);
        let merged = merge(own, cluster);
        let scripts: Vec<(&str, bool)> =
            merged.scripts.iter().map(|script| (script.name.as_str(), script.from_cluster)).collect();
        assert_eq!(scripts, [("10-a", true), ("20-b", false), ("40-x", true), ("A", false), ("_z", true)]);
        let skipped: Vec<(&str, SkipReason)> =
            merged.skipped.iter().map(|skipped| (skipped.name.as_str(), skipped.reason)).collect();
        assert_eq!(
            skipped,
            [
                ("20-b", SkipReason::Shadowed),
                ("30-off", SkipReason::NotExecutable),
                ("30-off", SkipReason::Shadowed),
                ("40-x.disabled", SkipReason::Disabled),
                ("README", SkipReason::NotExecutable),
            ]
        );
    }

    #[test]
    fn d3_names_are_shown_with_undecodable_bytes_made_visible() {
        assert_eq!(shown(b"caf\xe9\n"), "caf\\xe9\\n");
        assert_eq!(shown("é".as_bytes()), "é");
    }
}
