//! What the daemon keeps of a guest, so that a later one knows it again.

use std::{io, path::Path};

use muster_core::hypervisor::{Accel, NicMode};
use muster_proto::transport::{MODE_PRIVATE, write_atomic};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
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
    /// Grows each time that the instance changes its primary; a record without one is of the first.
    #[serde(default)]
    pub(crate) generation: u64,
    /// Who computes; a record without it is of an earlier version.
    #[serde(default)]
    pub(crate) accel: Option<Accel>,
    /// How its network card is connected; as above.
    #[serde(default)]
    pub(crate) nic: Option<NicMode>,
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

/// Writes a file that outlives the daemon.
pub(crate) fn keep(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(content).expect("plain data has a JSON form");
    write_atomic(path, &text, MODE_PRIVATE).map_err(io::Error::other)
}

/// Reads such a file; `None` where there is none.
pub(crate) fn kept<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Record {
    pub(crate) fn write(&self, files: &GuestFiles) -> io::Result<()> {
        keep(&files.record, self)
    }

    /// `None` where there is none.
    pub(crate) fn read(files: &GuestFiles) -> io::Result<Option<Self>> {
        kept(&files.record)
    }
}
