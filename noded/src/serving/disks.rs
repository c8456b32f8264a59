//! The node's disks, none of which is served while something else changes it.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use uuid::Uuid;

use super::Serving;
use crate::storage::{DiskReport, DiskStore, Listing, StorageError};

/// Disks of another store; one that is removed, resized or written to is not served any more.
pub(crate) struct UnservedDisks {
    disks: Arc<dyn DiskStore>,
    serving: Arc<Serving>,
}

impl UnservedDisks {
    pub(crate) fn new(disks: Arc<dyn DiskStore>, serving: Arc<Serving>) -> Self {
        UnservedDisks { disks, serving }
    }

    fn release(&self, disk: Uuid) -> Result<(), StorageError> {
        let failed = |error| StorageError::Served { disk, source: Box::new(error) };
        self.serving.release(&[disk]).map_err(failed)
    }
}

impl DiskStore for UnservedDisks {
    fn create(&self, disk: Uuid, size_mib: u64) -> Result<(), StorageError> {
        self.disks.create(disk, size_mib)
    }

    fn resize(&self, disk: Uuid, size_mib: u64) -> Result<(), StorageError> {
        self.release(disk)?;
        self.disks.resize(disk, size_mib)
    }

    fn remove(&self, disk: Uuid) -> Result<(), StorageError> {
        self.release(disk)?;
        self.disks.remove(disk)
    }

    fn absent(&self, disk: Uuid) -> Result<(), StorageError> {
        self.disks.absent(disk)
    }

    fn list(&self) -> Result<Listing<DiskReport>, StorageError> {
        self.disks.list()
    }

    fn open_read(&self, disk: Uuid) -> Result<File, StorageError> {
        self.disks.open_read(disk)
    }

    fn open_write(&self, disk: Uuid) -> Result<File, StorageError> {
        self.release(disk)?;
        self.disks.open_write(disk)
    }

    fn path(&self, disk: Uuid) -> Result<PathBuf, StorageError> {
        self.disks.path(disk)
    }

    fn place(&self) -> &Path {
        self.disks.place()
    }
}
