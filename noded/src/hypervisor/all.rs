//! All hypervisors of a node: a start says which is meant, all else goes to the one that knows the guest.

use std::{path::PathBuf, sync::Arc, time::Duration};

use uuid::Uuid;

use super::{GuestReport, GuestSpec, Hypervisor, HypervisorError, HypervisorKind, fake::Fake, qemu::Qemu};
use crate::{cancel::Cancel, storage::DiskStore};

/// Where hypervisors keep their own files.
#[derive(Debug, Clone)]
pub struct Places {
    /// What must survive a restart.
    pub state: PathBuf,
    /// Sockets.
    pub run: PathBuf,
}

/// The hypervisors of this node.
pub struct Hypervisors {
    fake: Fake,
    qemu: Qemu,
}

impl Hypervisors {
    /// Opens them all and finds the guests that run; `changed` is called whenever a guest's state changes by itself.
    ///
    /// # Errors
    /// When a directory can't be made or read.
    pub async fn open(
        places: &Places,
        disks: &Arc<dyn DiskStore>,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, HypervisorError> {
        let fake = Fake::open(places.state.join("guests"), Arc::clone(disks))?;
        let qemu = places.state.join("qemu");
        let qemu = Qemu::open(qemu, places.run.clone(), Arc::clone(disks), changed).await?;
        Ok(Hypervisors { fake, qemu })
    }

    fn of(&self, kind: HypervisorKind) -> &dyn Hypervisor {
        match kind {
            HypervisorKind::Fake => &self.fake,
            HypervisorKind::Qemu => &self.qemu,
        }
    }

    /// The hypervisor that knows a guest. The fake one looks for its file, which says nothing where it is damaged: then
    /// it is meant, too.
    fn knowing(&self, instance: Uuid) -> HypervisorKind {
        if self.qemu.knows(instance) { HypervisorKind::Qemu } else { HypervisorKind::Fake }
    }

    /// As [`Hypervisor::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(
        &self,
        kind: HypervisorKind,
        guest: &GuestSpec,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        self.of(kind).start(guest, cancel)
    }

    /// As [`Hypervisor::stop`].
    ///
    /// # Errors
    /// As there.
    pub fn stop(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError> {
        self.of(self.knowing(instance)).stop(instance, limit, cancel)
    }

    /// As [`Hypervisor::reboot`].
    ///
    /// # Errors
    /// As there.
    pub fn reboot(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError> {
        self.of(self.knowing(instance)).reboot(instance, limit, cancel)
    }

    /// The guests of all hypervisors, by uuid; those of one that can't tell are left out, and why is told beside.
    pub fn states(&self) -> (Vec<GuestReport>, Vec<HypervisorError>) {
        let (mut guests, mut problems) = (Vec::new(), Vec::new());
        for kind in [HypervisorKind::Fake, HypervisorKind::Qemu] {
            match self.of(kind).states() {
                Ok(states) => guests.extend(states),
                Err(error) => problems.push(error),
            }
        }
        guests.sort_by_key(|guest| guest.instance);
        (guests, problems)
    }

    /// Whether a guest has its memory and its disks.
    pub fn is_up(&self, instance: Uuid) -> bool {
        self.states().0.iter().any(|guest| guest.instance == instance && guest.is_up())
    }

    /// The socket of a guest's console.
    ///
    /// # Errors
    /// When the guest does not run, or can't have one.
    pub fn console(&self, instance: Uuid) -> Result<PathBuf, HypervisorError> {
        let kind = self.knowing(instance);
        if !self.is_up(instance) {
            return Err(HypervisorError::NotRunning(instance));
        }
        match self.of(kind).consoles() {
            Some(consoles) => consoles.console(instance),
            None => Err(HypervisorError::NoConsole(kind)),
        }
    }
}
