//! What the daemon keeps of a guest, so that a later one knows it again.

use std::io;

use muster_hooksrv::ProcessId;
use muster_proto::transport::{MODE_PRIVATE, write_atomic};
use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::files::GuestFiles;

/// A guest that was started and not stopped by the master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The instance.
    pub(crate) instance: Uuid,
    /// Its label.
    pub(crate) name: String,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// Virtual processors.
    pub(crate) vcpus: u32,
    /// How it ended by itself, if it did.
    pub(crate) ended: Option<Ended>,
}

/// How a guest ended that nobody stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// Its own system shut it down.
    ShutDown,
    /// QEMU is gone: it crashed, or was killed.
    Crashed,
}

impl Record {
    pub(crate) fn write(&self, files: &GuestFiles) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("plain data has a JSON form");
        write_atomic(&files.record, &text, MODE_PRIVATE).map_err(io::Error::other)
    }

    /// `None` where there is none.
    pub(crate) fn read(files: &GuestFiles) -> io::Result<Option<Self>> {
        match std::fs::read(&files.record) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The QEMU of a guest: the process whose command line names its pid file. Found so, a guest is known whatever was
/// recorded of it, and a number that is used again is never taken for it.
pub(crate) fn process(files: &GuestFiles) -> Option<ProcessId> {
    let wanted = files.pid.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").ok()?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.into_iter().find_map(|number| {
        let line = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let mut arguments = line.split(|byte| *byte == 0);
        let named = arguments.any(|argument| argument == b"-pidfile") && arguments.next() == Some(wanted);
        if named { ProcessId::of(number) } else { None }
    })
}

/// Kills the QEMU of a guest, if there is one.
pub(crate) fn kill(files: &GuestFiles) -> io::Result<()> {
    let Some(found) = process(files) else { return Ok(()) };
    let Some(pid) = Pid::from_raw(found.pid) else { return Ok(()) };
    let handle = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // The number may have become another's between the search and the opening; what the handle means stays the same.
    if process(files) != Some(found) {
        return Ok(());
    }
    match rustix::process::pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
