//! What is wrong with a set: as its list says it before it is used, and on disk while it is.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use muster_core::hooks::{
    Digest, HookSet, HooksVersion, SCRIPT_PATH, SetEntry,
    lint::{Interpreter, Linter, SetFiles, SetFindings, set_findings},
};
use muster_proto::hookset::{HookStoreError, digest_of, failed};
use rustix::fs::StatVfsMountFlags;

use super::HookSets;

/// Differences that are told; who has more has seen enough.
const CHANGED_MAX: usize = 100;
/// The execute bits.
const ANY_EXECUTE: u32 = 0o111;
/// The permission bits.
const MODE_BITS: u32 = 0o7777;

/// The set in use, and what of it is not as in its list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CheckedSet {
    /// `None` where there is none.
    pub(super) digest: Option<Digest>,
    /// A path and what is wrong with it, each.
    pub(super) changed: Vec<String>,
}

impl HookSets {
    /// Checks a set that was put together here, with this host's interpreters, as a version of the interface has it.
    /// What the master alone runs needs them where that is. Blocks.
    pub(super) fn findings(
        &self,
        version: HooksVersion,
        on_master: bool,
        set: &HookSet,
        made: &Path,
    ) -> SetFindings {
        let content = |digest: &Digest| self.store().read(digest).ok();
        let no_exec_mount =
            rustix::fs::statvfs(made).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOEXEC));
        let files = SetFiles { content: &content, no_exec_mount, is_there: &is_there, on_master };
        set_findings(&Linter::of(version), set, &files)
    }

    /// Compares the set in use with its list. Blocks.
    ///
    /// # Errors
    /// When the link or the list can't be read.
    pub(super) fn check_current(&self) -> Result<CheckedSet, HookStoreError> {
        let Some(made) = self.current()? else { return Ok(CheckedSet::default()) };
        let mut changed = match self.store().list(&made.digest) {
            Ok(set) => differences(&set, &made.path)?,
            Err(HookStoreError::Missing { .. }) => {
                vec!["the list of the set is missing or damaged".to_owned()]
            }
            Err(error) => return Err(error),
        };
        changed.truncate(CHANGED_MAX);
        Ok(CheckedSet { digest: Some(made.digest), changed })
    }
}

fn differences(set: &HookSet, dir: &Path) -> Result<Vec<String>, HookStoreError> {
    let mut changed = Vec::new();
    for (path, entry) in set.entries() {
        if let Some(what) = difference(&dir.join(path), entry) {
            changed.push(format!("{path}: {what}"));
        }
    }
    surplus(set, dir, "", &mut changed)?;
    Ok(changed)
}

fn difference(path: &Path, entry: &SetEntry) -> Option<&'static str> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Some("missing"),
        Err(_) => return Some("can't be looked at"),
        Ok(found) => found,
    };
    match entry {
        SetEntry::Link { target } => {
            let is_same = fs::read_link(path).is_ok_and(|found| found.as_os_str() == target.as_str());
            (!is_same).then_some("another link, or none")
        }
        SetEntry::File { .. } if !found.is_file() => Some("no regular file"),
        // Before it is read: it may be of any size.
        SetEntry::File { size, .. } if found.len() != *size => Some("another content"),
        SetEntry::File { digest, mode, .. } => match fs::read(path) {
            Ok(bytes) if digest_of(&bytes) != *digest => Some("another content"),
            Err(_) => Some("can't be read"),
            Ok(_) if found.permissions().mode() & MODE_BITS != *mode => Some("another mode"),
            Ok(_) => None,
        },
    }
}

/// What is there beside the set's entries and the directories that they are in.
fn surplus(set: &HookSet, dir: &Path, below: &str, changed: &mut Vec<String>) -> Result<(), HookStoreError> {
    let here = dir.join(below);
    let entries = match fs::read_dir(&here) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("read", &here))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed("read", &here))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = if below.is_empty() { name.into_owned() } else { format!("{below}/{name}") };
        let is_directory = entry.file_type().map_err(failed("read", &here))?.is_dir();
        if changed.len() >= CHANGED_MAX {
            return Ok(());
        }
        if is_directory && set.has_below(&path) {
            surplus(set, dir, &path, changed)?;
        } else if is_directory || !set.has(&path) {
            changed.push(format!("{}: not in the list", crate::scan::shown(path.as_bytes())));
        }
    }
    Ok(())
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & ANY_EXECUTE != 0)
}

/// Whether this host has an interpreter.
fn is_there(interpreter: Interpreter<'_>) -> bool {
    use std::os::unix::ffi::OsStrExt;
    match interpreter {
        Interpreter::Path(path) => is_program(Path::new(OsStr::from_bytes(path))),
        Interpreter::Searched(name) if name.contains(&b'/') => is_program(Path::new(OsStr::from_bytes(name))),
        Interpreter::Searched(name) => {
            SCRIPT_PATH.split(':').any(|folder| is_program(&Path::new(folder).join(OsStr::from_bytes(name))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use muster_proto::hookset::set_digest;

    use super::*;
    use crate::hookset::sets::tests::{filled, use_set};

    #[test]
    fn every_change_on_disk_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let sets = HookSets::new(folder.path().to_owned());
        assert_eq!(sets.check_current().unwrap(), CheckedSet::default());
        let set = filled(
            &sets,
            &[
                ("a-pre.d/1", b"1"),
                ("a-pre.d/2", b"2"),
                ("a-pre.d/3", b"3"),
                ("a-pre.d/4", b"4"),
                ("lib/x", b"x"),
            ],
        );
        let made = use_set(&sets, &set);
        let digest = Some(set_digest(&set));
        assert_eq!(sets.check_current().unwrap(), CheckedSet { digest, changed: Vec::new() });
        fs::write(made.join("a-pre.d/1"), "9").unwrap();
        fs::remove_file(made.join("a-pre.d/2")).unwrap();
        fs::set_permissions(made.join("a-pre.d/3"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::remove_file(made.join("a-pre.d/4")).unwrap();
        symlink("3", made.join("a-pre.d/4")).unwrap();
        fs::write(made.join("a-pre.d/5"), "").unwrap();
        // More than can be read.
        fs::File::create(made.join("lib/x")).unwrap().set_len(1 << 42).unwrap();
        fs::create_dir(made.join("b-pre.d")).unwrap();
        fs::remove_file(made.join("a-pre.d/99-link")).unwrap();
        symlink("1", made.join("a-pre.d/99-link")).unwrap();
        let mut changed = sets.check_current().unwrap().changed;
        changed.sort();
        assert_eq!(
            changed,
            [
                "a-pre.d/1: another content",
                "a-pre.d/2: missing",
                "a-pre.d/3: another mode",
                "a-pre.d/4: no regular file",
                "a-pre.d/5: not in the list",
                "a-pre.d/99-link: another link, or none",
                "b-pre.d: not in the list",
                "lib/x: another content",
            ]
        );
        fs::remove_file(folder.path().join("lists").join(set_digest(&set).to_string())).unwrap();
        assert_eq!(sets.check_current().unwrap().changed, ["the list of the set is missing or damaged"]);
    }
}
