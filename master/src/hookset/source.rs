//! Reads `hooks_source` into a list, its files into the store. Blocks.

use std::{
    ffi::OsString,
    fs, io,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use muster_core::hooks::{HookSet, SET_BYTES_MAX, SET_ENTRIES_MAX, SetEntry, SetError, check_set_path};
use muster_proto::hookset::{HookStore, HookStoreError, make_private_dir, sync_all_below};

/// Directories below one another.
const DEPTH_MAX: usize = 32;

/// Why there is no set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SourceError {
    /// A file or directory can't be read.
    #[error("could not read {}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A name is no text.
    #[error("{}: its name is not UTF-8 text", .0.display())]
    Name(PathBuf),
    /// A file, or all of them, by the rules for sets.
    #[error(transparent)]
    Set(#[from] SetError),
    /// Something that can't be distributed.
    #[error("{0}: it is no regular file, directory or link")]
    Special(String),
    /// Directories below directories.
    #[error("{0}: it is more than {DEPTH_MAX} directories deep")]
    Deep(String),
    /// The directory has nothing in it: that is a mistake rather than a set.
    #[error("{} has no file: an empty set would take away every guard", .0.display())]
    Empty(PathBuf),
    /// The store.
    #[error(transparent)]
    Store(#[from] HookStoreError),
}

struct Walk<'a> {
    root: &'a Path,
    store: &'a HookStore,
    entries: Vec<(String, SetEntry)>,
    bytes: u64,
}

/// Reads a directory; its files are durable in the store then, and so is the list.
///
/// # Errors
/// The first thing that is not as it must be, by name.
pub(super) fn read_source(root: &Path, store: &HookStore) -> Result<HookSet, SourceError> {
    make_private_dir(store.dir())?;
    let mut walk = Walk { root, store, entries: Vec::new(), bytes: 0 };
    walk.directory("", 0)?;
    if walk.entries.is_empty() {
        return Err(SourceError::Empty(root.to_owned()));
    }
    let set = HookSet::try_from(walk.entries)?;
    store.insert_list(&set)?;
    sync_all_below(store.dir())?;
    Ok(set)
}

/// By name, so that the same mistake is named each time.
fn names_in(path: &Path) -> Result<Vec<OsString>, SourceError> {
    let failed = |source| SourceError::Read { path: path.to_owned(), source };
    let entries = fs::read_dir(path).map_err(failed)?;
    let mut names =
        entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    names.sort();
    Ok(names)
}

impl Walk<'_> {
    fn directory(&mut self, below: &str, depth: usize) -> Result<(), SourceError> {
        if depth > DEPTH_MAX {
            return Err(SourceError::Deep(below.to_owned()));
        }
        let here = self.root.join(below);
        for name in names_in(&here)? {
            let place = here.join(&name);
            let name = name.into_string().map_err(|_| SourceError::Name(place.clone()))?;
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            self.entry(path, &place, depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: String, place: &Path, depth: usize) -> Result<(), SourceError> {
        let failed = |source| SourceError::Read { path: place.to_owned(), source };
        let found = fs::symlink_metadata(place).map_err(failed)?;
        if found.is_dir() {
            // Below a directory that has no good name no path can be good.
            check_set_path(&format!("{path}/x")).map_err(|_| SetError::Path(path.clone()))?;
            return self.directory(&path, depth + 1);
        }
        check_set_path(&path)?;
        if self.entries.len() == SET_ENTRIES_MAX {
            return Err(SetError::TooMany { path }.into());
        }
        let entry = if found.is_symlink() {
            let target = fs::read_link(place).map_err(failed)?;
            let target = target.into_os_string().into_string();
            SetEntry::Link { target: target.map_err(|_| SourceError::Name(place.to_owned()))? }
        } else if found.is_file() {
            let bytes = self.content(&path, place)?;
            let mode = found.permissions().mode();
            let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            SetEntry::File { digest: self.store.insert(&bytes)?, mode, size }
        } else {
            return Err(SourceError::Special(path));
        };
        self.entries.push((path, entry));
        Ok(())
    }

    /// The content as it is now; what is in the list is what is in the store, whatever becomes of the file meanwhile.
    fn content(&mut self, path: &str, place: &Path) -> Result<Vec<u8>, SourceError> {
        let failed = |source| SourceError::Read { path: place.to_owned(), source };
        let left = SET_BYTES_MAX - self.bytes;
        let mut bytes = Vec::new();
        let file = fs::File::open(place).map_err(failed)?;
        file.take(left + 1).read_to_end(&mut bytes).map_err(failed)?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(length);
        if length > left {
            return Err(SetError::TooLarge { path: path.to_owned(), bytes: self.bytes }.into());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn source(files: &[&str]) -> (tempfile::TempDir, PathBuf, HookStore) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("source");
        fs::create_dir(&root).unwrap();
        for file in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("#!/bin/sh\n# {file}\n")).unwrap();
        }
        let store = HookStore::new(folder.path().join("store"));
        (folder, root, store)
    }

    #[test]
    fn a_directory_is_read_with_its_links_and_modes() {
        let (_folder, root, store) = source(&["a-pre.d/10-x", "lib/common", "lib/deep/er/y"]);
        symlink("../lib/common", root.join("a-pre.d/20-link")).unwrap();
        fs::create_dir(root.join("b-pre.d")).unwrap();
        fs::set_permissions(root.join("a-pre.d/10-x"), fs::Permissions::from_mode(0o6777)).unwrap();
        let set = read_source(&root, &store).unwrap();
        let paths: Vec<&str> = set.entries().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a-pre.d/10-x", "a-pre.d/20-link", "lib/common", "lib/deep/er/y"]);
        assert!(set.canonical().contains("\t755\t"));
        assert!(store.lacking(&set).is_empty());
        assert_eq!(read_source(&root, &store).unwrap(), set);
    }

    #[test]
    fn what_can_not_be_distributed_is_named() {
        let refused = |file: &str, words: &str| {
            let (_folder, root, store) = source(&["a-pre.d/10-x", file]);
            let error = crate::chain(&read_source(&root, &store).unwrap_err());
            assert!(
                error.starts_with(file.split('/').next().unwrap()) && error.contains(words),
                "{file}: {error}"
            );
        };
        refused("README", "a hook set has scripts in DIRECTORY.d");
        refused("a-pre.d/20-x.sh", "a-pre.d/20-x.sh: a hook set has scripts");
        refused("Bad_dir/x", "Bad_dir: ");
        refused("node_add-pre.d/x", "node_add-pre.d: ");
        let (_folder, root, store) = source(&["a-pre.d/10-x"]);
        symlink("/etc/passwd", root.join("a-pre.d/20-link")).unwrap();
        let error = read_source(&root, &store).unwrap_err().to_string();
        assert!(error.starts_with("a-pre.d/20-link: ") && error.contains("only relative links"), "{error}");
        fs::remove_file(root.join("a-pre.d/20-link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("lib"), rustix::fs::Mode::RUSR).unwrap();
        assert!(read_source(&root, &store).is_err());
        fs::remove_file(root.join("lib")).unwrap();
        fs::create_dir(root.join("lib")).unwrap();
        fs::File::create(root.join("lib/large")).unwrap().set_len(SET_BYTES_MAX).unwrap();
        let error = read_source(&root, &store).unwrap_err().to_string();
        assert!(error.starts_with("lib/large: ") && error.contains("64 MiB"), "{error}");
        let (_folder, root, store) = source(&[]);
        assert!(matches!(read_source(&root, &store), Err(SourceError::Empty(_))));
        assert!(matches!(read_source(&root.join("none"), &store), Err(SourceError::Read { .. })));
    }
}
