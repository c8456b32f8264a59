//! The sets of a node on disk. All functions block.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        io::AsFd,
    },
    path::{Path, PathBuf},
};

use muster_core::hooks::{Digest, HookSet, SetEntry};
use muster_proto::hookset::{HookStore, HookStoreError, failed, make_private_dir, sync_all_below};
use rustix::fs::{FlockOperation, flock};

/// The link to the set in use.
const CURRENT: &str = "current";
/// The link to the set before.
const PREVIOUS: &str = "previous";
/// A set that is being put together.
const STAGED: &str = "staged";
/// What the names of directories begin with, beside this one, that hold the sets of a cluster that was left.
const LEFT: &str = "hooks-left-";
/// What the names of sets begin with that are being removed.
const GONE: &str = "gone-";
/// As a directory of hooks mostly has; the directories above, which are the daemon's alone, decide who may come here.
const DIRECTORY_MODE: u32 = 0o755;
/// Between looking where `current` leads and taking its lock the set may be replaced and removed. Not that often.
const USE_TRIES: u32 = 20;

/// A set, put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MadeSet {
    /// Of its list.
    pub(crate) digest: Digest,
    /// Its directory.
    pub(crate) path: PathBuf,
}

/// A set that a run uses: it stays for as long as this is held.
#[derive(Debug)]
pub(crate) struct SetInUse {
    path: PathBuf,
    _lock: File,
}

impl SetInUse {
    /// The set's directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Holds a set; `None` where it is being removed, or is gone.
    pub(crate) fn hold(path: &Path) -> io::Result<Option<Self>> {
        let lock = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if !try_lock(&lock, FlockOperation::NonBlockingLockShared)? {
            return Ok(None);
        }
        // Removed between the two: the name is gone, or another's.
        let is_there = fs::symlink_metadata(path).is_ok_and(|named| {
            lock.metadata().is_ok_and(|held| (held.dev(), held.ino()) == (named.dev(), named.ino()))
        });
        Ok(is_there.then(|| SetInUse { path: path.to_owned(), _lock: lock }))
    }
}

fn try_lock(file: impl AsFd, how: FlockOperation) -> io::Result<bool> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The sets of a node.
#[derive(Debug, Clone)]
pub(crate) struct HookSets {
    store: HookStore,
}

impl HookSets {
    /// The sets below a directory, which is made at the first use.
    pub(crate) fn new(dir: PathBuf) -> Self {
        HookSets { store: HookStore::new(dir) }
    }

    /// Contents and lists.
    pub(crate) fn store(&self) -> &HookStore {
        &self.store
    }

    fn dir(&self) -> &Path {
        self.store.dir()
    }

    fn sets_dir(&self) -> PathBuf {
        self.dir().join("sets")
    }

    /// Where a link leads.
    fn linked(&self, link: &str) -> io::Result<Option<MadeSet>> {
        let target = match fs::read_link(self.dir().join(link)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            target => target?,
        };
        let name = target.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let digest = name.split('.').next().unwrap_or_default().parse();
        let digest = digest.map_err(|_| io::Error::other(format!("{link} leads to {}", target.display())))?;
        Ok(Some(MadeSet { digest, path: self.dir().join(target) }))
    }

    /// The set that runs use.
    ///
    /// # Errors
    /// When the link can't be read, or is none of ours.
    pub(crate) fn current(&self) -> Result<Option<MadeSet>, HookStoreError> {
        self.linked(CURRENT).map_err(failed("read", &self.dir().join(CURRENT)))
    }

    /// Holds the set that runs use at this moment.
    ///
    /// # Errors
    /// When it can't be read: that is no empty set.
    pub(crate) fn hold_current(&self) -> Result<Option<SetInUse>, HookStoreError> {
        for _ in 0..USE_TRIES {
            let Some(made) = self.current()? else { return Ok(None) };
            if let Some(held) = SetInUse::hold(&made.path).map_err(failed("use", &made.path))? {
                return Ok(Some(held));
            }
        }
        let path = self.dir().join(CURRENT);
        Err(failed("use", &path)(io::Error::other("it leads to a set that is not there")))
    }

    /// Puts a set together from its contents, durably, beside the one that is in use.
    ///
    /// # Errors
    /// When a content is missing or damaged, or the disk fails.
    pub(crate) fn assemble(&self, set: &HookSet, digest: &Digest) -> Result<PathBuf, HookStoreError> {
        make_private_dir(&self.sets_dir())?;
        let staged = self.sets_dir().join(STAGED);
        remove_dir(&staged)?;
        make_dir(&staged)?;
        for (path, entry) in set.entries() {
            let place = staged.join(path);
            if let Some(parent) = place.parent() {
                make_dir(parent)?;
            }
            match entry {
                SetEntry::File { digest, mode, size } => {
                    let bytes = self.store.read(digest)?;
                    let found = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                    if found != *size {
                        return Err(HookStoreError::Size { digest: *digest, listed: *size, found });
                    }
                    write_file(&place, &bytes, *mode).map_err(failed("write", &place))?;
                }
                SetEntry::Link { target } => symlink(target, &place).map_err(failed("make", &place))?,
            }
        }
        sync_all_below(&staged)?;
        let made = self.free_name(digest)?;
        fs::rename(&staged, &made).map_err(failed("make", &made))?;
        sync_dir(&self.sets_dir())?;
        Ok(made)
    }

    /// The digest, and a number behind it where a set of this name is there already.
    fn free_name(&self, digest: &Digest) -> Result<PathBuf, HookStoreError> {
        let mut made = self.sets_dir().join(digest.to_string());
        let mut number = 1_u64;
        while fs::symlink_metadata(&made).is_ok() {
            made = self.sets_dir().join(format!("{digest}.{number}"));
            number += 1;
        }
        Ok(made)
    }

    /// Makes runs use a set from now on: before the rename of a link they use the old one, after it the new one.
    ///
    /// # Errors
    /// When the disk fails; the old one is in use then, or the new one, as [`HookSets::current`] says.
    pub(crate) fn switch(&self, made: &Path) -> Result<(), HookStoreError> {
        let name = made.file_name().unwrap_or_default().to_owned();
        let old = fs::read_link(self.dir().join(CURRENT)).ok();
        // First, so that the old one is never without a link.
        if let Some(old) = old.as_deref().and_then(Path::file_name) {
            self.replace_link(PREVIOUS, old.to_owned())?;
        }
        self.replace_link(CURRENT, name)
    }

    fn replace_link(&self, link: &str, set: OsString) -> Result<(), HookStoreError> {
        let (path, new) = (self.dir().join(link), self.dir().join(format!("{link}.new")));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &new)(error));
            }
            Ok(()) | Err(_) => {}
        }
        symlink(Path::new("sets").join(set), &new).map_err(failed("make", &new))?;
        fs::rename(&new, &path).map_err(failed("replace", &path))?;
        sync_dir(self.dir())
    }

    /// Removes what no link leads to and no run uses. Not while a set is put together. `tried` is a list that stays with its
    /// files all the same: they need not travel again when it comes again.
    ///
    /// # Errors
    /// When something can't be removed, or a link can't be read: what it leads to is not known then.
    pub(crate) fn prune(&self, tried: Option<Digest>) -> Result<(), HookStoreError> {
        let mut kept = BTreeSet::new();
        for link in [CURRENT, PREVIOUS] {
            let made = self.linked(link).map_err(failed("read", &self.dir().join(link)))?;
            kept.extend(made.and_then(|made| made.path.file_name().map(ToOwned::to_owned)));
        }
        let sets = self.sets_dir();
        let entries = match fs::read_dir(&sets) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            entries => Some(entries.map_err(failed("read", &sets))?),
        };
        let mut lists: BTreeSet<Digest> = tried.into_iter().collect();
        for entry in entries.into_iter().flatten() {
            let name = entry.map_err(failed("read", &sets))?.file_name();
            if !kept.contains(&name) && remove_unused(&sets, &name)? {
                continue;
            }
            let digest = name.to_str().and_then(|name| name.split('.').next()?.parse::<Digest>().ok());
            lists.extend(digest);
        }
        self.store.keep_only(&lists)
    }

    /// Forgets everything: the node left its cluster. Thousands of files take their time to go, and the host may enter
    /// another cluster meanwhile, so they are set aside at once and removed by a thread of their own.
    ///
    /// # Errors
    /// When they can't be set aside.
    pub(crate) fn clear(&self) -> Result<(), HookStoreError> {
        let mut number = 0_u64;
        let aside = loop {
            let aside = self.dir().with_file_name(format!("{LEFT}{number}"));
            if fs::symlink_metadata(&aside).is_err() {
                break aside;
            }
            number += 1;
        };
        match fs::rename(self.dir(), &aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", self.dir())(error));
            }
            Ok(()) | Err(_) => {}
        }
        self.remove_left();
        Ok(())
    }

    /// Removes what was set aside, also by an earlier daemon; does not wait for it.
    fn remove_left(&self) {
        let Some(parent) = self.dir().parent().map(ToOwned::to_owned) else { return };
        let removing = move || {
            let entries = fs::read_dir(&parent).into_iter().flatten().filter_map(Result::ok);
            for entry in
                entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(LEFT.as_bytes()))
            {
                if let Err(error) = remove_dir(&entry.path()) {
                    let error = crate::chain(&error);
                    tracing::warn!(error, "hook sets of a cluster that was left are still here");
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("hook-sets-left".to_owned()).spawn(removing) {
            tracing::warn!(%error, "hook sets of a cluster that was left stay until the next start");
        }
    }
}

/// Removes a set unless a run uses it; whether it was removed.
fn remove_unused(sets: &Path, name: &OsString) -> Result<bool, HookStoreError> {
    let path = sets.join(name);
    let text = name.to_string_lossy();
    if text == STAGED || text.starts_with(GONE) {
        remove_dir(&path)?;
        return Ok(true);
    }
    let lock = File::open(&path).map_err(failed("open", &path))?;
    if !try_lock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(failed("lock", &path))? {
        return Ok(false);
    }
    // Under another name first: who looks for it now finds nothing, not half of it.
    let gone = sets.join(format!("{GONE}{text}"));
    remove_dir(&gone)?;
    fs::rename(&path, &gone).map_err(failed("remove", &path))?;
    remove_dir(&gone)?;
    Ok(true)
}

fn remove_dir(path: &Path) -> Result<(), HookStoreError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn make_dir(path: &Path) -> Result<(), HookStoreError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let made = DirBuilder::new().mode(DIRECTORY_MODE).create(path);
    // The umask took bits away.
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(DIRECTORY_MODE)))
        .map_err(failed("make", path))
}

fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}

fn sync_dir(path: &Path) -> Result<(), HookStoreError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(failed("sync", path))
}

#[cfg(test)]
pub(super) mod tests {
    use muster_proto::hookset::set_digest;

    use super::*;

    pub(in super::super) fn filled(sets: &HookSets, entries: &[(&str, &[u8])]) -> HookSet {
        let entry = |(path, bytes): &(&str, &[u8])| {
            let digest = sets.store().insert(bytes).unwrap();
            let size = u64::try_from(bytes.len()).unwrap();
            ((*path).to_owned(), SetEntry::File { digest, mode: 0o755, size })
        };
        let mut entries: Vec<_> = entries.iter().map(entry).collect();
        entries.push(("a-pre.d/99-link".to_owned(), SetEntry::Link { target: "../lib/x".to_owned() }));
        let set = HookSet::try_from(entries).unwrap();
        sets.store().insert_list(&set).unwrap();
        set
    }

    pub(in super::super) fn use_set(sets: &HookSets, set: &HookSet) -> PathBuf {
        let made = sets.assemble(set, &set_digest(set)).unwrap();
        sets.switch(&made).unwrap();
        made
    }

    #[test]
    fn a_run_sees_one_set_and_the_last_two_stay() {
        let folder = tempfile::tempdir().unwrap();
        let sets = HookSets::new(folder.path().join("hooks"));
        assert!(sets.hold_current().unwrap().is_none());
        sets.prune(None).unwrap();
        let made: Vec<HookSet> = [b"1".as_slice(), b"2", b"3", b"4"]
            .iter()
            .map(|content| filled(&sets, &[("a-pre.d/10-x", content), ("lib/x", b"same")]))
            .collect();
        let first = use_set(&sets, &made[0]);
        let held = sets.hold_current().unwrap().unwrap();
        assert_eq!(held.path(), first);
        let second = use_set(&sets, &made[1]);
        let third = use_set(&sets, &made[2]);
        sets.prune(None).unwrap();
        assert_eq!(
            fs::read(held.path().join("a-pre.d/10-x")).unwrap(),
            b"1",
            "a run keeps the set that it has"
        );
        assert_eq!(fs::read(first.join("a-pre.d/99-link")).unwrap(), b"same");
        assert!(second.is_dir(), "the one before stays");
        assert_eq!(sets.current().unwrap().unwrap(), MadeSet { digest: set_digest(&made[2]), path: third });
        drop(held);
        sets.prune(None).unwrap();
        assert!(!first.exists(), "nobody uses it any more");
        assert!(sets.store().list(&set_digest(&made[0])).is_err());
        assert!(sets.store().lacking(&made[1]).is_empty());
        let fourth = use_set(&sets, &made[2]);
        assert!(fourth.to_str().unwrap().ends_with(".1"), "the same set, made again");
        assert_eq!(sets.current().unwrap().unwrap().digest, set_digest(&made[2]));
        sets.clear().unwrap();
        assert!(sets.current().unwrap().is_none() && !folder.path().join("hooks").exists());
    }

    #[test]
    fn a_crash_at_any_step_leaves_the_old_set_or_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let sets = HookSets::new(folder.path().join("hooks"));
        let old = filled(&sets, &[("a-pre.d/10-x", b"old"), ("lib/x", b"")]);
        let new = filled(&sets, &[("a-pre.d/10-x", b"new"), ("lib/x", b"")]);
        let used = |sets: &HookSets| {
            let held = sets.hold_current().unwrap().unwrap();
            fs::read(held.path().join("a-pre.d/10-x")).unwrap()
        };
        let first = use_set(&sets, &old);
        // Dead while it is put together, and after that.
        fs::create_dir_all(folder.path().join("hooks/sets/staged/a-pre.d")).unwrap();
        assert_eq!(used(&sets), b"old");
        let made = sets.assemble(&new, &set_digest(&new)).unwrap();
        assert_eq!(used(&sets), b"old");
        // Dead between the two links: both lead to the old one.
        sets.replace_link(PREVIOUS, first.file_name().unwrap().to_owned()).unwrap();
        symlink("sets/half", folder.path().join("hooks/current.new")).unwrap();
        sets.prune(Some(set_digest(&new))).unwrap();
        assert_eq!(used(&sets), b"old");
        assert!(!made.exists(), "what nothing leads to is removed");
        assert!(sets.store().lacking(&new).is_empty(), "the files of what was tried stay");
        sets.prune(None).unwrap();
        // Its files went too, and come again.
        let new = filled(&sets, &[("a-pre.d/10-x", b"new"), ("lib/x", b"")]);
        use_set(&sets, &new);
        assert_eq!(used(&sets), b"new");
        sets.prune(None).unwrap();
        assert!(first.exists());
    }

    #[test]
    fn all_directories_of_a_set_have_one_mode_and_all_files_their_listed_size() {
        let folder = tempfile::tempdir().unwrap();
        let sets = HookSets::new(folder.path().join("hooks"));
        let set = filled(&sets, &[("lib/a/b/c", b"1"), ("lib/x", b"")]);
        let made = use_set(&sets, &set);
        for path in ["", "lib", "lib/a", "lib/a/b"] {
            let mode = fs::metadata(made.join(path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, DIRECTORY_MODE, "{path}");
        }
        let digest = sets.store().insert(b"four").unwrap();
        let entry = SetEntry::File { digest, mode: 0o755, size: 3 };
        let set = HookSet::try_from(vec![("lib/x".to_owned(), entry)]).unwrap();
        let refused = sets.assemble(&set, &set_digest(&set)).unwrap_err();
        assert!(matches!(refused, HookStoreError::Size { listed: 3, found: 4, .. }), "{refused}");
    }

    #[test]
    fn a_damaged_content_makes_no_set() {
        let folder = tempfile::tempdir().unwrap();
        let sets = HookSets::new(folder.path().to_owned());
        let set = filled(&sets, &[("a-pre.d/10-x", b"good"), ("lib/x", b"")]);
        let digest = muster_proto::hookset::digest_of(b"good");
        fs::write(folder.path().join("files").join(digest.to_string()), b"evil").unwrap();
        assert!(matches!(sets.assemble(&set, &set_digest(&set)), Err(HookStoreError::Missing { .. })));
        assert_eq!(sets.store().lacking(&set), [digest]);
    }
}
