//! Disks as sparse raw files: `<uuid>.raw`; `<uuid>.raw.new` while one is made.

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::ControlFlow,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use super::super::{DiskReport, DiskStore, Listing, StorageError, file_uuid, names, sync_dir};
use crate::image;

/// Bytes in a MiB.
const MIB: u64 = 1024 * 1024;
/// The unit of `st_blocks`, whatever the filesystem's block size.
const STAT_BLOCK_BYTES: u64 = 512;

pub(in crate::storage) struct FileDisks {
    folder: PathBuf,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    move |source| StorageError::File { doing, path, source }
}

/// A disk's size in bytes.
fn file_bytes(size_mib: u64) -> Result<u64, StorageError> {
    let bytes = size_mib.checked_mul(MIB).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or(StorageError::TooLarge { size_mib })
}

/// Whether a file is empty from here on: a hole, or zeros.
fn is_empty_from(file: &File, from: u64, length: u64) -> io::Result<bool> {
    let mut empty = true;
    image::read_data_from(file, from, length, |_, bytes| {
        empty = bytes.iter().all(|byte| *byte == 0);
        if empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(empty)
}

impl FileDisks {
    pub(in crate::storage) fn open(folder: &Path) -> Result<Self, StorageError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn file(&self, disk: Uuid) -> PathBuf {
        self.folder.join(format!("{disk}.raw"))
    }

    fn path_new(&self, disk: Uuid) -> PathBuf {
        self.folder.join(format!("{disk}.raw.new"))
    }

    fn open_with(&self, disk: Uuid, options: &OpenOptions) -> Result<File, StorageError> {
        let path = self.file(disk);
        match options.open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StorageError::NoDisk(disk)),
            Err(source) => Err(failed("open", &path)(source)),
        }
    }
}

impl DiskStore for FileDisks {
    fn create(&self, disk: Uuid, size_mib: u64) -> Result<(), StorageError> {
        let bytes = file_bytes(size_mib)?;
        let path = self.file(disk);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.len() == bytes => return Ok(()),
            Ok(metadata) => return Err(StorageError::OtherSize { disk, bytes: metadata.len(), size_mib }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("look at", &path)(source)),
        }
        // Under the final name a file always has its size: a crash in between leaves none that a repeat would refuse.
        let new = self.path_new(disk);
        let file = File::create(&new).map_err(failed("make", &new))?;
        file.set_len(bytes).map_err(failed("size", &new))?;
        file.sync_all().map_err(failed("sync", &new))?;
        fs::rename(&new, &path).map_err(failed("rename", &new))?;
        sync_dir(&self.folder).map_err(failed("sync", &self.folder))
    }

    fn resize(&self, disk: Uuid, size_mib: u64) -> Result<(), StorageError> {
        let bytes = file_bytes(size_mib)?;
        let path = self.file(disk);
        let file = self.open_write(disk)?;
        let is = file.metadata().map_err(failed("look at", &path))?.len();
        if bytes < is && !is_empty_from(&file, bytes, is).map_err(failed("read", &path))? {
            return Err(StorageError::HoldsData { disk, size_mib });
        }
        file.set_len(bytes).map_err(failed("size", &path))?;
        file.sync_all().map_err(failed("sync", &path))
    }

    fn remove(&self, disk: Uuid) -> Result<(), StorageError> {
        for path in [self.file(disk), self.path_new(disk)] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("remove", &path)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        // Also after "not found": the removal that this call repeats may not be durable yet.
        sync_dir(&self.folder).map_err(failed("sync", &self.folder))
    }

    fn absent(&self, disk: Uuid) -> Result<(), StorageError> {
        let path = self.file(disk);
        match fs::symlink_metadata(&path) {
            Ok(_) => Err(StorageError::StillThere(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(failed("look at", &path)(source)),
        }
    }

    fn list(&self) -> Result<Listing<DiskReport>, StorageError> {
        let mut listing = Listing { own: Vec::new(), unknown: Vec::new() };
        for name in names(&self.folder).map_err(failed("list", &self.folder))? {
            let stem = name.strip_suffix(".new").unwrap_or(&name).strip_suffix(".raw");
            match stem.and_then(file_uuid) {
                Some(_) if name.ends_with(".new") => {}
                Some(disk) => match fs::metadata(self.folder.join(&name)) {
                    Ok(metadata) => listing.own.push(DiskReport {
                        disk,
                        bytes: metadata.len(),
                        used_bytes: metadata.blocks().saturating_mul(STAT_BLOCK_BYTES),
                    }),
                    // Removed since the listing.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => return Err(failed("look at", &self.folder.join(&name))(source)),
                },
                None => listing.unknown.push(name),
            }
        }
        Ok(listing)
    }

    fn open_read(&self, disk: Uuid) -> Result<File, StorageError> {
        self.open_with(disk, OpenOptions::new().read(true))
    }

    fn open_write(&self, disk: Uuid) -> Result<File, StorageError> {
        self.open_with(disk, OpenOptions::new().read(true).write(true))
    }

    fn path(&self, disk: Uuid) -> Result<PathBuf, StorageError> {
        let path = self.file(disk);
        match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StorageError::NoDisk(disk)),
            Err(source) => Err(failed("look at", &path)(source)),
        }
    }

    fn place(&self) -> &Path {
        &self.folder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Uuid = Uuid::from_u128(7);

    fn store() -> (tempfile::TempDir, FileDisks) {
        let folder = tempfile::tempdir().unwrap();
        let disks = FileDisks::open(&folder.path().join("storage")).unwrap();
        (folder, disks)
    }

    #[test]
    fn create_may_come_twice_and_keeps_the_content() {
        use std::os::unix::fs::FileExt;
        let (_folder, disks) = store();
        disks.create(DISK, 64).unwrap();
        disks.open_write(DISK).unwrap().write_all_at(b"kept", 0).unwrap();
        disks.create(DISK, 64).unwrap();
        let mut content = [0; 4];
        disks.open_read(DISK).unwrap().read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"kept");
        assert!(matches!(disks.create(DISK, 65), Err(StorageError::OtherSize { .. })));
    }

    #[test]
    fn a_disk_grows_and_shrinks_back_but_loses_no_data() {
        use std::os::unix::fs::FileExt;
        let (_folder, disks) = store();
        disks.create(DISK, 1).unwrap();
        disks.open_write(DISK).unwrap().write_all_at(b"kept", MIB - 4).unwrap();
        for size_mib in [3, 3, 1, 2] {
            disks.resize(DISK, size_mib).unwrap();
            assert_eq!(disks.list().unwrap().own[0].bytes, size_mib * MIB);
        }
        disks.open_write(DISK).unwrap().write_all_at(&[0; 9], 2 * MIB - 9).unwrap();
        disks.resize(DISK, 1).unwrap();
        let refused = disks.resize(DISK, 0);
        assert!(matches!(refused, Err(StorageError::HoldsData { disk: DISK, size_mib: 0 })));
        assert!(matches!(disks.resize(Uuid::from_u128(8), 1), Err(StorageError::NoDisk(_))));
        assert!(matches!(disks.resize(DISK, u64::MAX), Err(StorageError::TooLarge { .. })));
    }

    #[test]
    fn disks_are_sparse() {
        let (_folder, disks) = store();
        disks.create(DISK, 1024).unwrap();
        let listing = disks.list().unwrap();
        let expected = DiskReport { disk: DISK, bytes: 1024 * MIB, used_bytes: 0 };
        assert_eq!(listing, Listing { own: vec![expected], unknown: vec![] });
    }

    #[test]
    fn remove_may_come_twice_and_takes_what_a_crash_left() {
        let (_folder, disks) = store();
        disks.create(DISK, 1).unwrap();
        fs::write(disks.path_new(DISK), b"half").unwrap();
        for _ in 0..2 {
            disks.remove(DISK).unwrap();
            assert_eq!(fs::read_dir(disks.place()).unwrap().count(), 0);
        }
        assert!(matches!(disks.open_read(DISK), Err(StorageError::NoDisk(DISK))));
    }

    #[test]
    fn a_crash_in_create_does_not_hinder_its_repeat() {
        let (_folder, disks) = store();
        fs::write(disks.path_new(DISK), b"half").unwrap();
        assert_eq!(disks.list().unwrap(), Listing { own: vec![], unknown: vec![] });
        disks.create(DISK, 1).unwrap();
        assert_eq!(disks.list().unwrap().own[0].bytes, MIB);
    }

    #[test]
    fn a_disk_that_is_there_is_not_absent_whatever_it_is() {
        let (_folder, disks) = store();
        disks.absent(DISK).unwrap();
        disks.create(DISK, 1).unwrap();
        assert!(
            matches!(disks.absent(DISK), Err(StorageError::StillThere(path)) if path == disks.file(DISK))
        );
        disks.remove(DISK).unwrap();
        std::os::unix::fs::symlink("/nowhere", disks.file(DISK)).unwrap();
        assert!(matches!(disks.absent(DISK), Err(StorageError::StillThere(_))));
    }

    #[test]
    fn files_of_others_are_named() {
        let (_folder, disks) = store();
        for name in ["notes.txt", "x.raw", "00000000-0000-0000-0000-000000000007"] {
            fs::write(disks.place().join(name), b"").unwrap();
        }
        let unknown = disks.list().unwrap().unknown;
        assert_eq!(unknown, ["00000000-0000-0000-0000-000000000007", "notes.txt", "x.raw"]);
    }

    #[test]
    fn sizes_beyond_a_file_are_refused() {
        let (_folder, disks) = store();
        for size_mib in [u64::MAX, 1 << 43] {
            assert!(matches!(disks.create(DISK, size_mib), Err(StorageError::TooLarge { .. })));
        }
    }
}
