//! Storage in plain files: a sparse raw file a disk, a directory an export.

mod checksums;
mod disks;
mod exports;

pub(super) use disks::FileDisks;
pub(super) use exports::FileExports;
