//! Running guests: the trait that every hypervisor implements, and [`Hypervisors`], which knows them all.
//!
//! To add one: a folder here, a variant of [`HypervisorKind`]; the compiler asks for the rest.

mod all;
mod fake;
mod qemu;

use std::{path::PathBuf, time::Duration};

use muster_core::hypervisor::NicMode;
use uuid::Uuid;

pub use all::{Hypervisors, Places};
pub use muster_core::hypervisor::HypervisorKind;

use crate::{
    cancel::{Cancel, ENDED},
    storage::StorageError,
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
    /// What it boots, where that is not what is on its first disk.
    pub boot: Option<Boot>,
    /// Who computes; without it what this host can do best.
    pub accel: Option<Accel>,
    /// How its network card is connected.
    pub nic: NicMode,
}

/// A kernel that is on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Boot {
    /// The kernel.
    pub kernel: PathBuf,
    /// Its initial file system.
    pub initrd: Option<PathBuf>,
    /// Its command line.
    pub append: String,
}

/// Who computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The processor, by KVM.
    Kvm,
    /// QEMU's own translator.
    Tcg,
}

/// What a guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// It computes.
    Running,
    /// It is stopped in the middle.
    Paused,
    /// Its own system shut it down.
    ShutDown,
    /// It is gone, and nobody knows why.
    Crashed,
    /// It is down.
    Stopped,
}

/// A guest that the hypervisor knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestReport {
    /// The instance.
    pub instance: Uuid,
    /// What it does.
    pub state: RunState,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
}

impl GuestReport {
    /// Whether the guest has its memory and its disks.
    pub fn is_up(&self) -> bool {
        match self.state {
            RunState::Running | RunState::Paused => true,
            RunState::ShutDown | RunState::Crashed | RunState::Stopped => false,
        }
    }
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
    /// The hypervisor's program can't be executed.
    #[error("could not execute {program}")]
    Program {
        /// The program.
        program: &'static str,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The guest was started and is down again.
    #[error("guest {instance} does not start: {words}")]
    Start {
        /// The instance.
        instance: Uuid,
        /// The hypervisor's words.
        words: String,
    },
    /// A path of a socket is longer than a socket's address.
    #[error(
        "the path of socket {path} has {bytes} bytes, and at most {bytes_max} are allowed: choose a shorter run_dir",
        bytes = path.as_os_str().len()
    )]
    SocketPath {
        /// The path.
        path: PathBuf,
        /// What an address has room for.
        bytes_max: usize,
    },
    /// The guest is down or unknown.
    #[error("guest {0} does not run on this node")]
    NotRunning(Uuid),
    /// The guest's hypervisor has no consoles.
    #[error("a guest of the {} hypervisor has no console", .0.as_str())]
    NoConsole(HypervisorKind),
    /// The guest did not do what its hypervisor was asked for.
    #[error("guest {instance} does not follow: {words}")]
    Control {
        /// The instance.
        instance: Uuid,
        /// The hypervisor's words.
        words: String,
    },
    /// The guest's process outlives being killed.
    #[error("the process of guest {instance} is still there {seconds} s after it was killed")]
    StillThere {
        /// The instance.
        instance: Uuid,
        /// How long it was awaited.
        seconds: u64,
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

    /// Makes a guest that is up start anew within its machine: after a clean shutdown where there is time for one, by
    /// force at the limit. A repeated call makes it start anew once more. On failure it may be in any state.
    fn reboot(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError>;

    /// All guests known here, by uuid. Called often; must not wait for a guest.
    fn states(&self) -> Result<Vec<GuestReport>, HypervisorError>;

    /// The serial consoles of its guests, where they have some.
    fn consoles(&self) -> Option<&dyn Consoles>;
}

/// Gives access to guests' serial consoles.
pub trait Consoles {
    /// The socket of a guest's console; it serves one client at a time, and ends when the guest does.
    ///
    /// # Errors
    /// When the guest does not run.
    fn console(&self, instance: Uuid) -> Result<PathBuf, HypervisorError>;
}
