//! What is known of copies, kept in a file for each, so that a later daemon knows it again.
//!
//! Of a guest that is down, a copy that is `clean` is the same as its disk. One whose mirror was `ready` when its guest
//! crashed may differ from the disk by writes that the guest had no answer to, and holds all others.

use std::{
    collections::BTreeMap,
    fs, io,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use muster_core::calls::MirrorStatus;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{
    super::{HypervisorError, MirrorReport},
    file_error,
    record::{keep, kept},
};
use crate::storage::{file_uuid, names};

/// What a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// Its mirror is copying.
    Syncing,
    /// Its mirror writes each write there, too; or did when the guest crashed.
    Ready,
    /// It misses writes.
    Broken,
    /// It is the same as its disk, and the guest is down.
    Clean,
}

/// A copy of one of this node's disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) instance: Uuid,
    /// The disk's file; not known of a copy that was made while the guest was down.
    pub(crate) disk: Option<Uuid>,
    /// Where it is served: address and port.
    pub(crate) at: Option<(IpAddr, u16)>,
    pub(crate) status: Status,
    /// Bytes copied, and all that are to be.
    #[serde(skip)]
    pub(crate) progress: (u64, u64),
}

fn is_going(kept: &Kept) -> bool {
    matches!(kept.status, Status::Syncing | Status::Ready)
}

/// All copies of this node's disks.
pub(crate) struct Records {
    folder: PathBuf,
    copies: Mutex<BTreeMap<Uuid, Kept>>,
    /// Held by whoever changes something, from what it goes by until that is written.
    changing: Mutex<()>,
    changed: Arc<dyn Fn() + Send + Sync>,
}

impl Records {
    /// Reads all files; one that can't be read is as good as none.
    pub(crate) fn open(
        folder: PathBuf,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, HypervisorError> {
        fs::create_dir_all(&folder).map_err(|source| file_error("make", &folder, source))?;
        let mut copies = BTreeMap::new();
        for name in names(&folder).map_err(|source| file_error("list", &folder, source))? {
            let copy = name.strip_suffix(".json").and_then(file_uuid);
            match copy.map(|copy| (copy, kept::<Kept>(&folder.join(&name)))) {
                Some((copy, Ok(Some(known)))) => drop(copies.insert(copy, known)),
                Some((copy, Err(error))) => tracing::warn!(%copy, %error, "a copy's record can't be read"),
                Some((_, Ok(None))) | None => {}
            }
        }
        Ok(Records { folder, copies: Mutex::new(copies), changing: Mutex::default(), changed })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Kept>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a copy.
    pub(crate) fn get(&self, copy: Uuid) -> Option<Kept> {
        self.lock().get(&copy).cloned()
    }

    /// The copies of an instance whose mirrors go on.
    pub(crate) fn going(&self, instance: Uuid) -> Vec<(Uuid, Kept)> {
        let copies = self.lock();
        let going = copies.iter().filter(|(_, kept)| kept.instance == instance && is_going(kept));
        going.map(|(copy, kept)| (*copy, kept.clone())).collect()
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what is known of a copy; on stable storage when this returns.
    pub(crate) fn put(&self, copy: Uuid, known: Kept) -> Result<(), HypervisorError> {
        let turn = self.change();
        self.write(&turn, copy, known)
    }

    fn write(&self, _turn: &MutexGuard<'_, ()>, copy: Uuid, known: Kept) -> Result<(), HypervisorError> {
        let path = self.folder.join(format!("{copy}.json"));
        keep(&path, &known).map_err(|source| file_error("write", &path, source))?;
        self.lock().insert(copy, known);
        (self.changed)();
        Ok(())
    }

    /// Another status for a copy of which this is so; whether it is.
    fn set_if(
        &self,
        copy: Uuid,
        status: Status,
        is_so: impl FnOnce(&Kept) -> bool,
    ) -> Result<bool, HypervisorError> {
        let turn = self.change();
        let Some(known) = self.get(copy).filter(is_so) else { return Ok(false) };
        if known.status != status {
            self.write(&turn, copy, Kept { status, ..known })?;
        }
        Ok(true)
    }

    /// Another status for a copy that is known.
    pub(crate) fn set(&self, copy: Uuid, status: Status) -> Result<(), HypervisorError> {
        self.set_if(copy, status, |_| true).map(drop)
    }

    /// Another status for a copy that has this one; whether it had. Not for one of which more has been heard meanwhile.
    pub(crate) fn replace(&self, copy: Uuid, from: Status, to: Status) -> Result<bool, HypervisorError> {
        self.set_if(copy, to, |known| known.status == from)
    }

    /// Mirrors of an instance that went on, these of them, do not any more.
    pub(crate) fn break_off(
        &self,
        instance: Uuid,
        which: impl Fn(&Uuid) -> bool,
    ) -> Result<(), HypervisorError> {
        let mut going = self.going(instance).into_iter().filter(|(copy, _)| which(copy));
        going.try_for_each(|(copy, _)| self.set_if(copy, Status::Broken, is_going).map(drop))
    }

    /// How far a mirror is; that alone is not written down.
    pub(crate) fn progress(&self, copy: Uuid, progress: (u64, u64)) {
        if let Some(known) = self.lock().get_mut(&copy) {
            known.progress = progress;
        }
    }

    /// Nothing is known of these copies any more.
    pub(crate) fn forget(&self, which: impl Fn(&Uuid, &Kept) -> bool) -> Result<(), HypervisorError> {
        let _turn = self.change();
        let gone: Vec<Uuid> =
            self.lock().iter().filter(|(copy, kept)| which(copy, kept)).map(|(copy, _)| *copy).collect();
        for copy in gone {
            let path = self.folder.join(format!("{copy}.json"));
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(file_error("remove", &path, source));
                }
                Ok(()) | Err(_) => {}
            }
            self.lock().remove(&copy);
            (self.changed)();
        }
        Ok(())
    }

    /// Copies of which this is so miss writes.
    pub(crate) fn miss_writes(&self, which: impl Fn(&Kept) -> bool) -> Result<(), HypervisorError> {
        let missing: Vec<Uuid> =
            self.lock().iter().filter(|(_, kept)| which(kept)).map(|(copy, _)| *copy).collect();
        missing.into_iter().try_for_each(|copy| self.set_if(copy, Status::Broken, &which).map(drop))
    }

    /// What the mirrors of an instance do, or did until its guest ended.
    pub(crate) fn report(&self, instance: Uuid, is_up: bool) -> Vec<MirrorReport> {
        let copies = self.lock();
        let own = copies.iter().filter(|(_, kept)| kept.instance == instance);
        let reports = own.filter_map(|(copy, kept)| {
            let status = match kept.status {
                Status::Syncing => MirrorStatus::Syncing,
                Status::Ready => MirrorStatus::Ready,
                Status::Broken => MirrorStatus::Broken,
                // It does not follow yet.
                Status::Clean if is_up => return None,
                Status::Clean => MirrorStatus::Ready,
            };
            let (done_bytes, total_bytes) = kept.progress;
            Some(MirrorReport { copy: *copy, status, done_bytes, total_bytes })
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(instance: Uuid, status: Status) -> Kept {
        Kept { instance, disk: None, at: None, status, progress: (0, 0) }
    }

    #[test]
    fn what_is_known_survives_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Records::open(folder.path().to_owned(), Arc::new(|| ())).unwrap();
        let (instance, one, other) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
        let records = open();
        records.put(one, known(instance, Status::Syncing)).unwrap();
        records.put(other, known(instance, Status::Clean)).unwrap();
        records.set(one, Status::Ready).unwrap();
        records.set(Uuid::nil(), Status::Ready).unwrap();
        let again = open();
        assert_eq!(again.get(one), Some(known(instance, Status::Ready)));
        assert_eq!(again.get(Uuid::nil()), None);
        let going: Vec<Uuid> = again.going(instance).into_iter().map(|(copy, _)| copy).collect();
        assert_eq!(going, [one]);
        let told = |is_up: bool| -> Vec<_> {
            again.report(instance, is_up).into_iter().map(|told| (told.copy, told.status)).collect()
        };
        assert_eq!(told(true), [(one, MirrorStatus::Ready)], "the guest of a clean copy is down");
        assert_eq!(told(false), [(one, MirrorStatus::Ready), (other, MirrorStatus::Ready)]);
        again.miss_writes(|kept| kept.status == Status::Ready).unwrap();
        assert_eq!(told(false), [(one, MirrorStatus::Broken), (other, MirrorStatus::Ready)]);
        again.forget(|copy, _| *copy == other).unwrap();
        fs::write(folder.path().join(format!("{one}.json")), "{").unwrap();
        assert_eq!(open().get(one), None);
        assert_eq!(open().get(other), None);
    }
    #[test]
    fn a_copy_that_was_heard_to_miss_a_write_is_not_ready_for_who_saw_it_so_before() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path().to_owned(), Arc::new(|| ())).unwrap();
        let (instance, copy) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for seen in [Status::Syncing, Status::Ready] {
            records.put(copy, known(instance, seen)).unwrap();
            assert!(records.replace(copy, seen, Status::Ready).unwrap());
            assert_eq!(records.get(copy), Some(known(instance, Status::Ready)));

            records.put(copy, known(instance, seen)).unwrap();
            records.set(copy, Status::Broken).unwrap();
            assert!(!records.replace(copy, seen, Status::Ready).unwrap());
            assert_eq!(records.get(copy), Some(known(instance, Status::Broken)));
        }
        assert!(!records.replace(Uuid::nil(), Status::Ready, Status::Ready).unwrap());
        assert_eq!(records.get(Uuid::nil()), None);
    }

    #[test]
    fn what_one_task_hears_is_not_lost_to_what_another_saw() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(folder.path().to_owned(), Arc::new(|| ())).unwrap();
        let (instance, copy) = (Uuid::from_u128(1), Uuid::from_u128(2));
        for _ in 0..40 {
            records.put(copy, known(instance, Status::Syncing)).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| records.set(copy, Status::Broken).unwrap());
                scope.spawn(|| records.replace(copy, Status::Syncing, Status::Ready).unwrap());
            });
            assert_eq!(records.get(copy), Some(known(instance, Status::Broken)));
        }
    }
}
