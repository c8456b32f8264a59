//! The one process that lasts as long as its cluster: it holds the claim on the addresses, whichever daemons are killed.
//!
//! It also ends the cluster when nobody can want it any more: its directory is gone, or the process it was made for (a test, say)
//! has ended without ending it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::address::Claim;
use super::error::DevclusterError;
use super::layout::Layout;
use super::process::{detach, find};
use super::{down, leftovers};

/// How often the holder looks whether the cluster is still there.
const LOOK_EVERY_S: i64 = 2;

/// Starts the holder. It inherits the claim's socket as its stdin, which is all it takes to hold it.
pub(super) fn start(layout: &Layout, claim: Claim, owner: Option<u32>) -> Result<(), DevclusterError> {
    let program = super::process::program("muster-devcluster")?;
    let mut command = Command::new(&program);
    command.arg("hold").arg("--dir").arg(layout.dir()).current_dir("/");
    if let Some(owner) = owner {
        command.arg("--owner").arg(owner.to_string());
    }
    command.stdin(OwnedFd::from(claim.lock)).stdout(Stdio::null()).stderr(Stdio::null());
    let child = detach(&mut command).spawn().map_err(|source| DevclusterError::Spawn { program, source })?;
    let pid_file = layout.holder_pid_file();
    fs::write(&pid_file, format!("{}\n", child.id())).map_err(DevclusterError::file("write", pid_file))
}

/// The holder's process, if it runs.
pub(super) fn running(layout: &Layout) -> Option<Pid> {
    find(&layout.holder_pid_file(), layout.dir())
}

/// What the holder does all its life.
pub(super) fn hold(dir: &Path, owner: Option<u32>) -> Result<(), DevclusterError> {
    let layout = Layout::open(dir)?;
    let watched = owner.and_then(|owner| Pid::from_raw(i32::try_from(owner).ok()?));
    let pidfd = watched.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    loop {
        if owner_is_gone(watched, pidfd.as_ref()) {
            let own = rustix::process::getpid();
            down::end_all(&layout, &layout.record()?, Some(own))?;
            return fs::remove_dir_all(layout.dir()).map_err(DevclusterError::file("remove", layout.dir()));
        }
        if !layout.record_file().exists() {
            return leftovers::kill_all(layout.dir(), None);
        }
    }
}

/// Waits a moment for the owner's end; without an owner the moment passes and the answer is no.
fn owner_is_gone(watched: Option<Pid>, pidfd: Option<&OwnedFd>) -> bool {
    let moment = Timespec { tv_sec: LOOK_EVERY_S, tv_nsec: 0 };
    let mut fds: Vec<PollFd<'_>> = pidfd.into_iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    // An interrupted wait is a short one.
    let ready = poll(&mut fds, Some(&moment)).unwrap_or(0);
    ready > 0 || (watched.is_some() && pidfd.is_none())
}
