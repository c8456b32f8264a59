//! Hook sets on disk, the same for a master and a node: contents by their digest, lists by theirs. What is read is checked
//! against its name, so that a file that a crash or a hand has damaged counts as missing.
//!
//! ```text
//! DIR/files/SHA-256    contents
//! DIR/lists/SHA-256    lists, as JSON
//! ```

use std::{
    collections::BTreeSet,
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_core::hooks::{Digest, HookSet, SET_BYTES_MAX};
use sha2::{Digest as _, Sha256};

use crate::transport::{FileError, MODE_PRIVATE, write_whole};

/// A list has a line for each of 10,000 entries, of two paths at most.
const LIST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Why a set can't be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum HookStoreError {
    /// A file or directory.
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
    /// A list can't be written.
    #[error(transparent)]
    Write(#[from] FileError),
    /// A content or a list is not here, or is damaged.
    #[error("{what} {digest} is not here, or damaged")]
    Missing {
        /// `the file` or `the list`.
        what: &'static str,
        /// Its name.
        digest: Digest,
    },
    /// A content is longer or shorter than its list says.
    #[error("the file {digest} has {found} bytes, and {listed} in the list")]
    Size {
        /// Its name.
        digest: Digest,
        /// Bytes by the list.
        listed: u64,
        /// Bytes that it has.
        found: u64,
    },
    /// Another content came than was said.
    #[error("the file {wanted} came with another content, {found}")]
    Other {
        /// What was said.
        wanted: Digest,
        /// What came.
        found: Digest,
    },
}

/// The SHA-256 of some bytes.
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::new(Sha256::digest(bytes).into())
}

/// The name of a set: the SHA-256 of its list.
pub fn set_digest(set: &HookSet) -> Digest {
    digest_of(set.canonical().as_bytes())
}

/// An error at a path.
pub fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> HookStoreError {
    move |source| HookStoreError::File { verb, path: path.to_owned(), source }
}

/// Makes a directory and those above it, for this daemon alone.
///
/// # Errors
/// When that is not possible.
pub fn make_private_dir(path: &Path) -> Result<(), HookStoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make", path))
}

/// Makes all that was written to the filesystem of a directory durable, with one wait for thousands of files.
///
/// # Errors
/// When the disk fails.
pub fn sync_all_below(path: &Path) -> Result<(), HookStoreError> {
    let synced = File::open(path).and_then(|dir| rustix::fs::syncfs(&dir).map_err(io::Error::from));
    synced.map_err(failed("sync", path))
}

/// Contents and lists below a directory. All methods block.
#[derive(Debug, Clone)]
pub struct HookStore {
    dir: PathBuf,
    /// Held while a file is written: two that wrote the same content would use the same temporary name.
    writing: Arc<Mutex<()>>,
}

impl HookStore {
    /// The store below a directory, which is made at the first use.
    pub fn new(dir: PathBuf) -> Self {
        HookStore { dir, writing: Arc::default() }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    fn lists(&self) -> PathBuf {
        self.dir.join("lists")
    }

    fn file_path(&self, digest: &Digest) -> PathBuf {
        self.files().join(digest.to_string())
    }

    /// Keeps a content under the digest that it was said to have. Not durable before [`sync_all_below`].
    ///
    /// # Errors
    /// When it is another one, or the disk fails.
    pub fn put(&self, wanted: &Digest, bytes: &[u8]) -> Result<(), HookStoreError> {
        let found = digest_of(bytes);
        if found != *wanted {
            return Err(HookStoreError::Other { wanted: *wanted, found });
        }
        if self.read(wanted).is_ok() {
            // To replace thousands of files by the same takes long.
            return Ok(());
        }
        make_private_dir(&self.files())?;
        let _alone = self.writing();
        Ok(write_whole(&self.file_path(wanted), bytes, MODE_PRIVATE)?)
    }

    /// Keeps some bytes; their digest.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn insert(&self, bytes: &[u8]) -> Result<Digest, HookStoreError> {
        let digest = digest_of(bytes);
        // Compared, not only looked for: what is damaged is replaced here.
        if self.read(&digest).is_err() {
            self.put(&digest, bytes)?;
        }
        Ok(digest)
    }

    /// A content, compared with its name. One that is damaged is removed.
    ///
    /// # Errors
    /// When it is not here, or damaged, or can't be read.
    pub fn read(&self, digest: &Digest) -> Result<Vec<u8>, HookStoreError> {
        let path = self.file_path(digest);
        let bytes = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => {
                Some(opened.and_then(|file| read_up_to(file, SET_BYTES_MAX)).map_err(failed("read", &path))?)
            }
        };
        match bytes {
            Some(bytes) if digest_of(&bytes) == *digest => Ok(bytes),
            Some(_) => {
                tracing::warn!(path = %path.display(), "a file of a hook set is damaged and is thrown away");
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                Err(HookStoreError::Missing { what: "the file", digest: *digest })
            }
            None => Err(HookStoreError::Missing { what: "the file", digest: *digest }),
        }
    }

    /// Keeps a list; its digest. Not durable before [`sync_all_below`].
    ///
    /// # Errors
    /// When the disk fails.
    pub fn insert_list(&self, set: &HookSet) -> Result<Digest, HookStoreError> {
        make_private_dir(&self.lists())?;
        let digest = set_digest(set);
        let text = serde_json::to_vec(set).expect("a list of paths and numbers has a JSON form");
        let _alone = self.writing();
        write_whole(&self.lists().join(digest.to_string()), &text, MODE_PRIVATE)?;
        Ok(digest)
    }

    /// A list.
    ///
    /// # Errors
    /// When it is not here, or damaged, or can't be read.
    pub fn list(&self, digest: &Digest) -> Result<HookSet, HookStoreError> {
        let path = self.lists().join(digest.to_string());
        let missing = || HookStoreError::Missing { what: "the list", digest: *digest };
        let text = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            opened => {
                opened.and_then(|file| read_up_to(file, LIST_BYTES_MAX)).map_err(failed("read", &path))?
            }
        };
        let set: HookSet = serde_json::from_slice(&text).map_err(|_| missing())?;
        if set_digest(&set) == *digest { Ok(set) } else { Err(missing()) }
    }

    /// What of a set is not here, or damaged.
    pub fn lacking(&self, set: &HookSet) -> Vec<Digest> {
        set.contents().into_keys().filter(|digest| self.read(digest).is_err()).collect()
    }

    /// Removes all lists but these, and all contents that are in none of them.
    ///
    /// # Errors
    /// When a file can't be removed.
    pub fn keep_only(&self, lists: &BTreeSet<Digest>) -> Result<(), HookStoreError> {
        let mut contents = BTreeSet::new();
        for digest in lists {
            match self.list(digest) {
                Ok(set) => contents.extend(set.contents().into_keys()),
                Err(HookStoreError::Missing { .. }) => {}
                // What is in it is not known, so nothing is thrown away.
                Err(error) => return Err(error),
            }
        }
        let _alone = self.writing();
        remove_others(&self.lists(), lists)?;
        remove_others(&self.files(), &contents)
    }
}

/// A file's content; of one that is too long a byte more than the bound, so that it can't be taken for a whole one.
fn read_up_to(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn remove_others(dir: &Path, kept: &BTreeSet<Digest>) -> Result<(), HookStoreError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("read", dir))?,
    };
    for entry in entries {
        let path = entry.map_err(failed("read", dir))?.path();
        let digest = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
        if digest.is_none_or(|digest: Digest| !kept.contains(&digest)) {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::SetEntry;

    use super::*;

    fn set(entries: &[(&str, &[u8])]) -> HookSet {
        let entry = |bytes: &[u8]| SetEntry::File {
            digest: digest_of(bytes),
            mode: 0o755,
            size: u64::try_from(bytes.len()).unwrap(),
        };
        let entries: Vec<_> =
            entries.iter().map(|(path, bytes)| ((*path).to_owned(), entry(bytes))).collect();
        HookSet::try_from(entries).unwrap()
    }

    #[test]
    fn what_is_kept_is_read_and_what_is_damaged_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let store = HookStore::new(folder.path().join("hooks"));
        let (one, two) = (b"#!/bin/sh\n".as_slice(), b"two".as_slice());
        let both = set(&[("a-pre.d/1", one), ("a-pre.d/2", two)]);
        assert_eq!(store.lacking(&both).len(), 2);
        let digest = store.insert(one).unwrap();
        assert_eq!(store.read(&digest).unwrap(), one);
        assert_eq!(store.lacking(&both), [digest_of(two)]);
        fs::write(store.file_path(&digest), b"#!/bin/bad").unwrap();
        assert!(matches!(store.read(&digest), Err(HookStoreError::Missing { .. })));
        assert_eq!(store.lacking(&both).len(), 2, "the damaged file is gone");
        let list = store.insert_list(&both).unwrap();
        assert_eq!(store.list(&list).unwrap(), both);
        let path = store.lists().join(list.to_string());
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("a-pre.d/2", "a-pre.d/3")).unwrap();
        assert!(matches!(store.list(&list), Err(HookStoreError::Missing { .. })));
    }

    #[test]
    fn another_content_than_was_said_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = HookStore::new(folder.path().to_owned());
        let wanted = digest_of(b"good");
        assert!(matches!(store.put(&wanted, b"evil"), Err(HookStoreError::Other { .. })));
        assert!(store.read(&wanted).is_err());
    }

    #[test]
    fn only_what_kept_lists_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = HookStore::new(folder.path().to_owned());
        let (old, new) = (set(&[("lib/a", b"a"), ("lib/b", b"b")]), set(&[("lib/a", b"a"), ("lib/b", b"c")]));
        for content in [b"a", b"b", b"c"] {
            store.insert(content).unwrap();
        }
        let lists = [store.insert_list(&old).unwrap(), store.insert_list(&new).unwrap()];
        store.keep_only(&lists.into()).unwrap();
        assert!(store.lacking(&old).is_empty() && store.lacking(&new).is_empty());
        store.keep_only(&[lists[1]].into()).unwrap();
        assert!(store.lacking(&new).is_empty());
        assert_eq!(store.lacking(&old), [digest_of(b"b")]);
        assert!(store.list(&lists[0]).is_err());
    }

    #[test]
    fn two_that_write_the_same_do_not_disturb_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = HookStore::new(folder.path().to_owned());
        let set = set(&[("lib/a", b"same")]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (store, set) = (store.clone(), &set);
                scope.spawn(move || {
                    for _ in 0..20 {
                        store.insert_list(set).unwrap();
                        store.put(&digest_of(b"same"), b"same").unwrap();
                    }
                });
            }
        });
        assert!(store.list(&set_digest(&set)).is_ok() && store.lacking(&set).is_empty());
    }
}
