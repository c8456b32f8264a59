//! Running guests: the trait that every hypervisor implements, and [`Hypervisors`], which knows them all.
//!
//! To add one: a folder here, a variant of [`HypervisorKind`]; the compiler asks for the rest.

mod all;
mod fake;
mod qemu;

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use muster_core::{
    calls::{MirrorLink, MirrorStatus, Sync as MirrorSync},
    hypervisor::{self, NicMode},
};
use uuid::Uuid;

pub use all::{Hypervisors, Places};
pub use muster_core::hypervisor::HypervisorKind;

use crate::{
    cancel::{Cancel, ENDED},
    progress::Tell,
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
    /// Grows each time that the instance changes its primary.
    pub generation: u64,
    /// It does not compute until it is resumed.
    pub paused: bool,
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

impl From<Accel> for hypervisor::Accel {
    fn from(accel: Accel) -> Self {
        match accel {
            Accel::Kvm => hypervisor::Accel::Kvm,
            Accel::Tcg => hypervisor::Accel::Tcg,
        }
    }
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
    /// With which it was started.
    pub generation: u64,
    /// Who computes, where that is known.
    pub accel: Option<hypervisor::Accel>,
    /// How its network card is connected, where that is known.
    pub nic: Option<NicMode>,
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
    /// Its copies do not follow, or are not known to be the same.
    #[error("guest {instance} has no mirror in sync: {why}")]
    Mirror {
        /// The instance.
        instance: Uuid,
        /// Why.
        why: String,
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
    /// The guest can't be moved or copied as it is.
    #[error("guest {instance} can't be moved: {why}")]
    Move {
        /// The instance.
        instance: Uuid,
        /// Why not.
        why: String,
    },
    /// The guest's hypervisor moves no guests.
    #[error("a guest of the {} hypervisor can't be moved or copied while it runs", .0.as_str())]
    NoMoves(HypervisorKind),
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

    /// Makes a guest that was started paused, or has arrived from another host, compute; one that does is left alone. One
    /// whose state is still on its way is awaited for a while. On failure it is as before.
    fn resume(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError>;

    /// Kills and forgets a guest that is of the past: nothing that it does counts any more. One that is unknown is fine.
    /// On failure it may be in any state.
    fn kill(&self, instance: Uuid) -> Result<(), HypervisorError>;

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

    /// Moves and copies its guests while they run, where it can.
    fn moves(&self) -> Option<&dyn Moves>;

    /// How copies follow its guests' disks, where they do.
    fn mirrors(&self) -> Option<&dyn Mirrors>;
}

/// Gives access to guests' serial consoles.
pub trait Consoles {
    /// The socket of a guest's console; it serves one client at a time, and ends when the guest does.
    ///
    /// # Errors
    /// When the guest does not run.
    fn console(&self, instance: Uuid) -> Result<PathBuf, HypervisorError>;
}

/// Where a guest is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The node's name, as its certificate says it.
    pub peer: String,
    /// Its address.
    pub address: IpAddr,
    /// Where it awaits the guest.
    pub port: u16,
}

/// Moves guests between hosts, and copies their disks, while they run. Calls block, as those of [`Hypervisor`]; never two
/// at once for one guest.
///
/// ```text
/// source       runs --send--> runs, is copied --> stopped, mirrors ended --finish--> gone
///                ^                  |  cancel           |  cancel
///                +------------------+-------------------+
/// destination  (none) --receive--> awaits -------------------------> paused --resume--> runs
/// ```
pub trait Moves {
    /// Makes a guest that awaits the state of another, which only the host of that name may send; gives its port. Its disks
    /// are left alone until the state has come, and may be served meanwhile. A repeated call gives the port again; one that
    /// awaits another peer, or whose sender has failed, is made anew. On failure there is none.
    fn receive(
        &self,
        guest: &GuestSpec,
        peer: &str,
        listen: IpAddr,
        cancel: &Cancel,
    ) -> Result<u16, HypervisorError>;

    /// Sends a guest's state, all but the last; then the guest is stopped and its mirrors have ended. A repeated call goes
    /// on. On failure the guest runs on, with its mirrors where they had not ended.
    fn send(
        &self,
        instance: Uuid,
        to: &Destination,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError>;

    /// Sends the last of a guest's state and forgets the guest; one that is forgotten is fine (a repeated call). Its copies
    /// are the same as its disks from then on. On failure it runs on here, or it is not known where it runs.
    fn finish(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError>;

    /// Makes a guest that is being sent go on here; one that is not, or is down, is fine.
    fn cancel(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError>;

    /// Fills disks (the second of each pair, which exist) with what a guest's disks (the first) hold at one moment. The
    /// guest goes on. On failure it is as before, and what was filled is worthless.
    fn snapshot(
        &self,
        instance: Uuid,
        disks: &[(Uuid, Uuid)],
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError>;
}

/// Copies that are to follow a guest's disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorTarget {
    /// The name of the node that serves them.
    pub peer: String,
    /// Its address.
    pub address: IpAddr,
    /// Which copy follows which disk, and its port.
    pub links: Vec<MirrorLink>,
    /// What is copied first.
    pub sync: MirrorSync,
    /// Whether the call ends when all copies hold everything.
    pub wait: bool,
}

/// What a mirror does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorReport {
    /// Names the copy.
    pub copy: Uuid,
    /// What it does.
    pub status: MirrorStatus,
    /// While it is syncing.
    pub done_bytes: u64,
    /// While it is syncing.
    pub total_bytes: u64,
}

/// Makes copies on other nodes follow guests' disks, and knows afterwards which are the same.
pub trait Mirrors {
    /// The copies as ready, if all are known to be the same as their disks: of a guest that is down, those whose mirrors
    /// were in sync when it ended in good order, or that somebody vouched for; of one that is up, those in sync.
    fn clean(&self, instance: Uuid, copies: &[Uuid])
    -> Result<BTreeMap<Uuid, MirrorStatus>, HypervisorError>;

    /// Somebody vouches for copies of a guest that is down: they are the same as its disks, which are in the order of the
    /// copies, where they are named.
    fn trust(&self, instance: Uuid, copies: &[Uuid], disks: &[Uuid]) -> Result<(), HypervisorError>;

    /// Makes copies follow; one that does already is left alone (a repeated call). On failure none of these does.
    fn mirror(
        &self,
        instance: Uuid,
        target: &MirrorTarget,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError>;

    /// Ends mirrors and forgets the copies; where there are none it is fine.
    fn end_mirrors(&self, instance: Uuid, copies: &[Uuid]) -> Result<(), HypervisorError>;

    /// What mirrors do, or did when their guest ended: a copy whose mirror was ready then has every write that the guest was
    /// told is safe. One that is not there is broken; where the guest is not known, what is not known of a copy is left out.
    /// A guest that does not answer is awaited for longer than a silent peer may hold it up.
    fn mirrors_of(&self, instance: Uuid, copies: &[Uuid]) -> BTreeMap<Uuid, MirrorStatus>;

    /// All mirrors of a guest that is up or has ended by itself, for reports; as [`Mirrors::mirrors_of`].
    fn report(&self, instance: Uuid) -> Vec<MirrorReport>;

    /// A guest's disks are written to while no mirror follows: those of its copies that follow none miss these writes.
    fn written(&self, instance: Uuid) -> Result<(), HypervisorError>;

    /// What these disks hold is replaced, by another node whose copies they are now or by an image, or they are gone: nothing
    /// is known of their own copies any more. Those of guests that are up are left alone.
    fn replaced(&self, disks: &[Uuid]) -> Result<(), HypervisorError>;
}
