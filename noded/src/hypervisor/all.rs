//! All hypervisors of a node: a start says which is meant, all else goes to the one that knows the guest.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use muster_core::calls::MirrorStatus;
use uuid::Uuid;

use super::{
    Destination, GuestReport, GuestSpec, Hypervisor, HypervisorError, HypervisorKind, MirrorReport,
    MirrorTarget, Mirrors, Moves, fake::Fake, qemu::Qemu,
};
use crate::{cancel::Cancel, progress::Tell, storage::DiskStore};

/// Where hypervisors keep their own files.
#[derive(Debug, Clone)]
pub struct Places {
    /// What must survive a restart.
    pub state: PathBuf,
    /// Sockets.
    pub run: PathBuf,
    /// The link to the directory that has the node's data certificate; there may be none.
    pub certificates: PathBuf,
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
        let qemu = Qemu::open(places, Arc::clone(disks), changed).await?;
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

    /// As [`Hypervisor::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError> {
        self.of(self.knowing(instance)).resume(instance, cancel)
    }

    /// Kills and forgets the guests of the past: those of a lower generation than an instance has now.
    ///
    /// # Errors
    /// The first failure, when all were tried.
    pub fn kill_past(&self, present: &[(Uuid, u64)]) -> Result<(), HypervisorError> {
        let (guests, _) = self.states();
        let mut killed = Ok(());
        for GuestReport { instance, generation, .. } in guests {
            if present.iter().any(|(of, now)| *of == instance && generation < *now) {
                tracing::warn!(guest = %instance, generation, "a guest of the past is killed");
                killed = killed.and(self.of(self.knowing(instance)).kill(instance));
            }
        }
        killed
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

    fn moves(&self, kind: HypervisorKind) -> Result<&dyn Moves, HypervisorError> {
        self.of(kind).moves().ok_or(HypervisorError::NoMoves(kind))
    }

    /// As [`Moves::receive`].
    ///
    /// # Errors
    /// As there, and when guests of this hypervisor don't move.
    pub fn receive(
        &self,
        kind: HypervisorKind,
        guest: &GuestSpec,
        peer: &str,
        listen: IpAddr,
        cancel: &Cancel,
    ) -> Result<u16, HypervisorError> {
        self.moves(kind)?.receive(guest, peer, listen, cancel)
    }

    /// As [`Moves::send`].
    ///
    /// # Errors
    /// As there, and when the guest's hypervisor moves none.
    pub fn send(
        &self,
        instance: Uuid,
        to: &Destination,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        self.moves(self.knowing(instance))?.send(instance, to, tell, cancel)
    }

    /// As [`Moves::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError> {
        match self.of(self.knowing(instance)).moves() {
            Some(moves) => moves.finish(instance, cancel),
            // The guest is not known any more, or never was sent.
            None => Ok(()),
        }
    }

    /// As [`Moves::cancel`].
    ///
    /// # Errors
    /// As there.
    pub fn cancel_move(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError> {
        match self.of(self.knowing(instance)).moves() {
            Some(moves) => moves.cancel(instance, cancel),
            None => Ok(()),
        }
    }

    /// As [`Moves::snapshot`].
    ///
    /// # Errors
    /// As there, and when the guest's hypervisor copies none.
    pub fn snapshot(
        &self,
        instance: Uuid,
        disks: &[(Uuid, Uuid)],
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        self.moves(self.knowing(instance))?.snapshot(instance, disks, tell, cancel)
    }

    fn mirrors(&self, instance: Uuid) -> Result<&dyn Mirrors, HypervisorError> {
        let none = || HypervisorError::Mirror { instance, why: "its hypervisor mirrors nothing".to_owned() };
        // A guest that is down is not known any more, and its copies are.
        self.of(HypervisorKind::Qemu).mirrors().ok_or_else(none)
    }

    /// As [`Mirrors::clean`].
    ///
    /// # Errors
    /// When a copy is not known to be the same.
    pub fn clean(
        &self,
        instance: Uuid,
        copies: &[Uuid],
    ) -> Result<BTreeMap<Uuid, MirrorStatus>, HypervisorError> {
        self.mirrors(instance)?.clean(instance, copies)
    }

    /// As [`Mirrors::trust`].
    ///
    /// # Errors
    /// When the guest is up, or it can't be written down.
    pub fn trust(&self, instance: Uuid, copies: &[Uuid], disks: &[Uuid]) -> Result<(), HypervisorError> {
        self.mirrors(instance)?.trust(instance, copies, disks)
    }

    /// As [`Mirrors::mirror`].
    ///
    /// # Errors
    /// As there.
    pub fn mirror(
        &self,
        instance: Uuid,
        target: &MirrorTarget,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        self.mirrors(instance)?.mirror(instance, target, tell, cancel)
    }

    /// As [`Mirrors::end_mirrors`].
    ///
    /// # Errors
    /// When a mirror does not end.
    pub fn end_mirrors(&self, instance: Uuid, copies: &[Uuid]) -> Result<(), HypervisorError> {
        self.mirrors(instance)?.end_mirrors(instance, copies)
    }

    /// As [`Mirrors::mirrors_of`].
    ///
    /// # Errors
    /// When there are no mirrors here.
    pub fn mirrors_of(
        &self,
        instance: Uuid,
        copies: &[Uuid],
    ) -> Result<BTreeMap<Uuid, MirrorStatus>, HypervisorError> {
        Ok(self.mirrors(instance)?.mirrors_of(instance, copies))
    }

    /// As [`Mirrors::report`].
    pub fn mirror_reports(&self, instance: Uuid) -> Vec<MirrorReport> {
        self.mirrors(instance).map(|mirrors| mirrors.report(instance)).unwrap_or_default()
    }

    /// As [`Mirrors::written`].
    ///
    /// # Errors
    /// When it can't be written down.
    pub fn written(&self, instance: Uuid) -> Result<(), HypervisorError> {
        self.mirrors(instance)?.written(instance)
    }

    /// As [`Mirrors::replaced`].
    ///
    /// # Errors
    /// When it can't be written down.
    pub fn replaced(&self, disks: &[Uuid]) -> Result<(), HypervisorError> {
        self.of(HypervisorKind::Qemu).mirrors().map_or(Ok(()), |mirrors| mirrors.replaced(disks))
    }
}
