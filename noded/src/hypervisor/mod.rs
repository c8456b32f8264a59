//! Running guests: the trait that every hypervisor implements, and the factory that knows them all.
//!
//! To add one: a folder here, a variant of [`HypervisorKind`]; the compiler asks for the rest.

mod fake;

use std::{path::Path, path::PathBuf, sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    cancel::{Cancel, ENDED},
    storage::{DiskStore, StorageError},
};

/// What a guest is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestSpec {
    /// The instance.
    pub instance: Uuid,
    /// The instance's name, for people.
    pub name: String,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
    /// The disks in the order in which the guest sees them.
    pub disks: Vec<Uuid>,
    /// The guest's address, if one is defined.
    pub ip: Option<String>,
    /// The MAC address of its network card.
    pub mac: String,
    /// The OS definition's name.
    pub os: String,
}

/// A guest that the hypervisor knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestReport {
    /// The instance.
    pub instance: Uuid,
    /// Whether it runs.
    pub running: bool,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
}

/// Why a hypervisor did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HypervisorError {
    /// A disk of the guest can't be opened.
    #[error("could not open a disk of guest {instance}")]
    Disk {
        /// The instance.
        instance: Uuid,
        /// The cause.
        #[source]
        source: StorageError,
    },
    /// A file of the hypervisor could not be used.
    #[error("could not {doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A guest's state file does not say what it must.
    #[error("state file {path} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// The call was told to end before the guest had followed.
    #[error("{ENDED}: guest {0} is left as it is")]
    Cancelled(Uuid),
}

/// Starts and stops guests. Calls block; several may come at once, but never two for one guest. One that waits for a
/// guest gives up as soon as it is cancelled, and leaves the guest in whatever state it is.
pub trait Hypervisor: Send + Sync {
    /// Starts a guest; one that runs is left alone (a repeated call is fine). Its disks exist.
    /// On failure the guest is down; when it was cancelled it may be in either state.
    fn start(&self, guest: &GuestSpec, cancel: &Cancel) -> Result<(), HypervisorError>;

    /// Stops a guest within the limit, by force where it does not follow; one that is down or unknown is fine.
    /// On failure it may be in either state; the call may be repeated.
    fn stop(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError>;

    /// All guests known here, by uuid. Called often; must not wait for a guest.
    fn states(&self) -> Result<Vec<GuestReport>, HypervisorError>;
}

/// The hypervisors there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HypervisorKind {
    /// Guests are files that say "running".
    Fake,
}

/// Makes a hypervisor that keeps its own files below `state` and takes disks from `disks`.
///
/// # Errors
/// When its directory can't be made.
pub fn hypervisor(
    kind: HypervisorKind,
    state: &Path,
    disks: Arc<dyn DiskStore>,
) -> Result<Arc<dyn Hypervisor>, HypervisorError> {
    match kind {
        HypervisorKind::Fake => Ok(Arc::new(fake::Fake::open(state.join("guests"), disks)?)),
    }
}
