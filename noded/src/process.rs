//! Processes that outlive this daemon, found again by the pid file that their command lines name.

use std::{io, path::Path};

use muster_hooksrv::ProcessId;
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal},
};

/// How QEMU's programs are told of their pid file: the machine, and the storage daemon.
const OPTIONS: [&[u8]; 2] = [b"-pidfile", b"--pidfile"];

/// The process whose command line names this pid file. Found so, it is known whatever was recorded of it, and a number
/// that is used again is never taken for it.
pub(crate) fn find(pid_file: &Path) -> Option<ProcessId> {
    let wanted = pid_file.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").ok()?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.into_iter().find_map(|number| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let mut arguments = line.split(|byte| *byte == 0);
        let named = arguments.any(|argument| OPTIONS.contains(&argument)) && arguments.next() == Some(wanted);
        if named { ProcessId::of(number) } else { None }
    })
}

/// Kills it, if it is there.
pub(crate) fn kill(pid_file: &Path) -> io::Result<()> {
    let Some(found) = find(pid_file) else { return Ok(()) };
    let Some(pid) = Pid::from_raw(found.pid) else { return Ok(()) };
    let handle = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // The number may have become another's between the search and the opening; what the handle means stays the same.
    if find(pid_file) != Some(found) {
        return Ok(());
    }
    match rustix::process::pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
