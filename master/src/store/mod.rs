//! The store: records by key, committed many at a time.
//!
//! - [`Store`], [`Batch`]: what a store does. Three of them: [`SqliteStore`] (a file), [`MemoryStore`], and
//!   [`MasterStore`], which is in memory until there is a cluster, so that a denied init leaves nothing on disk.
//! - [`keys`]: the records that there are.
//! - [`encode`], [`decode`]: a value is JSON text with a version.
//! - [`records_of`], [`cluster_from`]: the configuration as records; a commit writes what its edits touched.
//! - [`snapshot`], [`restore`]: a copy of a running master's store, and such a copy put into its place.
//! - [`RecordWriter`]: how the rest of the master has records written; the driver's thread owns the store.
//!
//! A store's error is fatal: what was being committed may or may not be durable, and only a restart can tell.

mod batch;
mod cluster;
mod files;
mod format;
mod history;
pub mod keys;
mod master;
mod memory;
mod restore;
mod snapshot;
mod sqlite;
mod tables;
mod value;
mod witness;
mod writer;

#[cfg(test)]
mod archive_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod restore_tests;
#[cfg(test)]
mod tests;

pub(crate) use self::cluster::with_prefix;
pub use self::{
    batch::{Batch, Records, Store, StoreError},
    cluster::{ClusterRecordError, cluster_from, records_of},
    format::FORMAT_VERSION,
    history::ArchivedJobs,
    master::MasterStore,
    memory::MemoryStore,
    restore::{RestoreError, Restored, restore},
    snapshot::{Contents, snapshot, snapshot_path},
    sqlite::SqliteStore,
    value::{VALUE_VERSION, ValueError, decode, encode},
    writer::{RecordWriter, WriteError},
};
