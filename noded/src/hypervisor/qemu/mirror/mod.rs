//! Mirrors of guests' disks: begun, watched, ended, and what becomes of their copies.
//!
//! One task for each guest looks at its mirrors and after the nodes that serve their copies. A copy whose node is silent, or
//! whose disk hangs, is cut off out of band before anything else is tried: everything else would wait for it, the guest too.

mod job;
mod records;
mod watch;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use muster_core::calls::{MirrorLink, MirrorStatus, Sync};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use self::{
    job::{Job, Names, Peer},
    records::{Kept, Status},
    watch::{Seen, cut_if_silent},
};
pub(super) use self::{records::Records, watch::watch};
use super::{
    super::{HypervisorError, MirrorReport, MirrorTarget, Mirrors},
    Qemu, file_error,
    guest::Guest,
    snapshot, status,
};
use crate::{
    cancel::Cancel,
    progress::{Tell, copied},
    qmp::{Event, Qmp},
};

/// How long a look may take; longer, and QEMU waits for a peer.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// How long somebody who asks for mirrors waits for an answer: longer than a silent peer may hold QEMU up.
const ASK_LIMIT: Duration = Duration::from_secs(8);
/// A guest that answers no more because it dies is known to be dead within this.
const DEATH_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks of somebody who waits for copies.
const WAIT_PERIOD: Duration = Duration::from_millis(50);
/// Between two reports of progress.
const TELL_PERIOD: Duration = Duration::from_millis(500);

fn refused(instance: Uuid, words: impl Into<String>) -> HypervisorError {
    HypervisorError::Mirror { instance, why: words.into() }
}

/// A guest's mirrors, watched together.
///
/// QEMU tells of a write that a copy has missed before the guest hears that this write is done. So what QEMU has told until it
/// died is enough to know which copies had all of them, if somebody listened all the time.
pub(super) struct GuestMirrors {
    records: Arc<Records>,
    /// One change at a time.
    turn: tokio::sync::Mutex<()>,
    /// How often something that QEMU told may have been missed, and how often that was when a look began that made up for it.
    missed: AtomicU64,
    made_up: AtomicU64,
    /// Copies that QEMU has told of, and of whose mirrors something is left.
    left: Mutex<BTreeSet<Uuid>>,
}

impl GuestMirrors {
    pub(super) fn new(records: Arc<Records>) -> Self {
        let (turn, made_up, left) = Default::default();
        GuestMirrors { records, turn, missed: AtomicU64::new(1), made_up, left }
    }

    /// QEMU may have told something that nobody heard.
    pub(super) fn missed_some(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing that QEMU told was missed since the last look began.
    fn heard_all(&self) -> bool {
        self.made_up.load(Ordering::SeqCst) == self.missed.load(Ordering::SeqCst)
    }

    /// QEMU tells something: a mirror that could not write has missed it.
    pub(super) fn hear(&self, guest: &Guest, event: &Event) {
        if event.name != "BLOCK_JOB_ERROR" {
            return;
        }
        let job = event.data.get("device").and_then(serde_json::Value::as_str).unwrap_or_default();
        let going = self.records.going(guest.record.instance);
        for (copy, _) in going.into_iter().filter(|(copy, _)| Names::of(*copy).job == job) {
            tracing::warn!(guest = %guest.record.instance, %copy, "a copy misses a write");
            if let Err(error) = self.records.set(copy, Status::Broken) {
                tracing::error!(%copy, %error, "could not write down that a copy misses writes");
            }
            self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(copy);
        }
    }

    /// QEMU is gone, and nobody told it to go: copies that may have missed something have.
    pub(super) fn crashed(&self, guest: &Guest) {
        if self.heard_all() {
            return;
        }
        if let Err(error) = self.records.break_off(guest.record.instance, |_| true) {
            tracing::error!(guest = %guest.record.instance, %error, "could not write down that copies may miss writes");
        }
    }

    /// Takes away what is left of mirrors that QEMU has told of.
    async fn clear_left(&self, guest: &Guest, client: &Qmp) -> Result<(), HypervisorError> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if left.is_empty() {
            return Ok(());
        }
        let _turn = self.turn.lock().await;
        for copy in left {
            if let Some(known) = self.records.get(copy).filter(|known| known.status == Status::Broken) {
                let index = index(guest, client, known.disk).await?;
                job::end(guest, client, index, copy).await?;
            }
            self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(&copy);
        }
        Ok(())
    }

    /// Whether nothing is mirrored.
    pub(super) fn is_idle(&self, guest: &Guest) -> bool {
        self.records.going(guest.record.instance).is_empty()
    }

    /// Looks what the mirrors do, and takes away those that have failed; gives those that go on.
    async fn look(&self, guest: &Guest, client: &Qmp) -> Result<Vec<Seen>, HypervisorError> {
        let _turn = self.turn.lock().await;
        let missed = self.missed.load(Ordering::SeqCst);
        let going = self.records.going(guest.record.instance);
        let names: Vec<Names> = going.iter().map(|(copy, _)| Names::of(*copy)).collect();
        let mut seen = Vec::new();
        if going.is_empty() {
            return Ok(seen);
        }
        let jobs = job::look(guest, client, &names.iter().collect::<Vec<_>>()).await?;
        for ((copy, known), job) in going.into_iter().zip(jobs) {
            let (status, (done, total)) = match job {
                // One that was ready and only pauses is so still.
                Job::Copying { done, total } => (known.status, (done, total)),
                Job::Ready { done, total } => (Status::Ready, (done, total)),
                Job::Over(_) | Job::None => (Status::Broken, (0, 0)),
            };
            // Of some, more has been heard meanwhile.
            if !self.records.replace(copy, known.status, status)? {
                continue;
            }
            match job {
                Job::Copying { .. } => self.records.progress(copy, (done, total)),
                Job::Ready { .. } | Job::None => {}
                Job::Over(why) => {
                    let words = why.unwrap_or_default();
                    tracing::warn!(guest = %guest.record.instance, %copy, words, "a mirror broke off");
                    let index = index(guest, client, known.disk).await?;
                    job::end(guest, client, index, copy).await?;
                }
            }
            if status != Status::Broken {
                seen.push(Seen { copy, known: Kept { status, ..known }, done, total });
            }
        }
        self.made_up.store(missed, Ordering::SeqCst);
        Ok(seen)
    }

    /// Ends all mirrors that are ready, of a guest that does not compute; gives the copies that are complete, and which
    /// count as broken until somebody vouches for them.
    pub(super) async fn end_all(&self, guest: &Guest, client: &Qmp) -> Result<Vec<Uuid>, HypervisorError> {
        let _turn = self.turn.lock().await;
        let mut complete = Vec::new();
        for (copy, known) in self.records.going(guest.record.instance) {
            self.records.set(copy, Status::Broken)?;
            cut_if_silent(client, copy, &known).await;
            let index = index(guest, client, known.disk).await?;
            if job::end(guest, client, index, copy).await? && known.status == Status::Ready {
                complete.push(copy);
            }
        }
        Ok(complete)
    }

    /// The guest has shut down and QEMU is about to quit: what was in sync until now is the same as its disk.
    pub(super) async fn end_in_order(&self, guest: &Guest, client: &Qmp) {
        let ended = async {
            // A mirror that broke within the last moment is not believed to be ready.
            self.look(guest, client).await?;
            for copy in self.end_all(guest, client).await? {
                self.records.set(copy, Status::Clean)?;
            }
            Ok::<(), HypervisorError>(())
        };
        if let Err(error) = ended.await {
            tracing::warn!(guest = %guest.record.instance, %error, "mirrors did not end in good order");
        }
    }
}

/// How a look at a guest's mirrors ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// It is up, and has told what they do.
    Up,
    /// It is up and does not answer: what it told before is all that there is.
    Silent { heard_all: bool },
    /// It has ended by itself.
    Ended,
    /// There is none here.
    Unknown,
}

/// The place of a disk in its guest.
async fn index(guest: &Guest, client: &Qmp, disk: Option<Uuid>) -> Result<usize, HypervisorError> {
    let instance = guest.record.instance;
    let disk = disk.ok_or_else(|| refused(instance, "it is not known which disk a copy is of"))?;
    let name = disk.to_string();
    let disks = snapshot::disks(guest, client).await?;
    let found = disks.iter().find(|own| own.path.to_string_lossy().contains(&name));
    found.map(|own| own.index).ok_or_else(|| refused(instance, format!("it runs without disk {disk}")))
}

impl Qemu {
    /// Ends the mirrors of a guest that stands still because it moves; as [`GuestMirrors::end_all`].
    pub(super) async fn end_mirrors_of(&self, guest: &Guest) -> Result<Vec<Uuid>, HypervisorError> {
        let client = Self::control(guest).await?;
        guest.mirrors.end_all(guest, &client).await
    }

    /// Somebody vouches for copies: they are the same as their disks, and the guest is not up here.
    pub(super) fn trust_copies(
        &self,
        instance: Uuid,
        copies: &[Uuid],
        disks: &[Uuid],
    ) -> Result<(), HypervisorError> {
        for (place, copy) in copies.iter().enumerate() {
            let known = self.records.get(*copy).and_then(|known| known.disk);
            let disk = disks.get(place).copied().or(known);
            let clean = Kept { instance, disk, at: None, status: Status::Clean, progress: (0, 0) };
            self.records.put(*copy, clean)?;
        }
        Ok(())
    }

    /// Looks at a guest's mirrors now. One that dies or is held up at this moment is awaited: it is down, or goes on.
    fn look_now(&self, instance: Uuid) -> Looked {
        let Some(guest) = self.guest(instance) else { return Looked::Unknown };
        let look = async {
            loop {
                if guest.has_ended() {
                    return Looked::Ended;
                }
                let look = async { guest.mirrors.look(&guest, &*Self::control(&guest).await?).await };
                if matches!(timeout(LOOK_LIMIT, look).await, Ok(Ok(_))) {
                    return Looked::Up;
                }
                sleep(WAIT_PERIOD).await;
            }
        };
        let looked = self.runtime.block_on(async { timeout(ASK_LIMIT, look).await });
        let heard_all = guest.mirrors.heard_all();
        looked.unwrap_or(Looked::Silent { heard_all })
    }

    /// Copies that were to follow and do not: that is known of them, lest they are taken for the same because nothing is.
    fn follow_not(&self, instance: Uuid, target: &MirrorTarget) -> Result<(), HypervisorError> {
        let going = self.records.going(instance);
        let left_out = target.links.iter().filter(|link| going.iter().all(|(copy, _)| *copy != link.copy));
        for MirrorLink { disk, copy, .. } in left_out {
            let status = Status::Broken;
            let known = Kept { instance, disk: Some(*disk), at: None, status, progress: (0, 0) };
            self.records.put(*copy, known)?;
        }
        Ok(())
    }

    fn is_up(&self, instance: Uuid) -> bool {
        self.guest(instance).is_some_and(|guest| !guest.has_ended())
    }

    async fn begin_all(
        &self,
        guest: &Guest,
        client: &Qmp,
        target: &MirrorTarget,
    ) -> Result<(), HypervisorError> {
        let instance = guest.record.instance;
        let certificates = fs::canonicalize(&self.certificates);
        let certificates = certificates
            .map_err(|source| file_error("find the data certificate", &self.certificates, source))?;
        let _turn = guest.mirrors.turn.lock().await;
        if status(guest, client).await? != "running" {
            // QEMU 10 leaves the disks of a guest that has arrived inactive until it goes on; an older one has no such command.
            let _refused = client.execute("blockdev-set-active", json!({ "active": true })).await;
        }
        for MirrorLink { disk, copy, port } in &target.links {
            let port = port.ok_or_else(|| {
                refused(instance, format!("{} did not say where it serves copy {copy}", target.peer))
            })?;
            let is_going = self.records.going(instance).iter().any(|(going, _)| going == copy);
            let names = Names::of(*copy);
            let job = job::look(guest, client, &[&names]).await?.remove(0);
            if is_going && matches!(job, Job::Ready { .. } | Job::Copying { .. }) {
                continue;
            }
            if target.sync == Sync::Same && status(guest, client).await? == "running" {
                return Err(refused(instance, "it computes already: its copies can't be taken for the same"));
            }
            let index = index(guest, client, Some(*disk)).await?;
            // What a broken attempt left.
            job::end(guest, client, index, *copy).await?;
            let at = Some((target.address, port));
            let known = Kept { instance, disk: Some(*disk), at, status: Status::Syncing, progress: (0, 0) };
            self.records.put(*copy, known)?;
            let peer =
                Peer { name: &target.peer, address: target.address, port, certificates: &certificates };
            job::begin(guest, client, index, *copy, &peer, target.sync == Sync::Full).await?;
        }
        Ok(())
    }

    /// Waits until all copies hold everything.
    async fn wait_for_copies(
        &self,
        guest: &Guest,
        client: &Qmp,
        target: &MirrorTarget,
        tell: Tell<'_>,
    ) -> Result<(), HypervisorError> {
        let begun = Instant::now();
        let mut told: Option<Instant> = None;
        loop {
            guest.mirrors.look(guest, client).await?;
            let known = |link: &MirrorLink| self.records.get(link.copy);
            let copies: Vec<Kept> = target.links.iter().filter_map(known).collect();
            let is = |status| move |copy: &Kept| copy.status == status;
            if copies.len() < target.links.len() || copies.iter().any(is(Status::Broken)) {
                let words = format!("a mirror to {} broke off before it was in sync", target.peer);
                return Err(refused(guest.record.instance, words));
            }
            if copies.iter().all(is(Status::Ready)) {
                return Ok(());
            }
            if guest.has_ended() {
                return Err(HypervisorError::NotRunning(guest.record.instance));
            }
            if told.is_none_or(|told| told.elapsed() > TELL_PERIOD) {
                told = Some(Instant::now());
                let (done, total) = copies
                    .iter()
                    .fold((0, 0), |(done, total), copy| (done + copy.progress.0, total + copy.progress.1));
                tell(copied(done, total, done / begun.elapsed().as_secs().max(1)));
            }
            sleep(WAIT_PERIOD).await;
        }
    }

    async fn mirror_here(
        &self,
        guest: &Guest,
        target: &MirrorTarget,
        tell: Tell<'_>,
    ) -> Result<(), HypervisorError> {
        let client = Self::control(guest).await?;
        self.begin_all(guest, &client, target).await?;
        if target.wait || target.sync == Sync::Same {
            self.wait_for_copies(guest, &client, target, tell).await?;
        }
        Ok(())
    }

    async fn end_here(&self, guest: &Guest, copies: &[Uuid]) -> Result<(), HypervisorError> {
        let client = Self::control(guest).await?;
        let _turn = guest.mirrors.turn.lock().await;
        for copy in copies {
            // One that was vouched for, and not mirrored since, has nothing in the guest.
            let is_mirrored = |known: &Kept| known.disk.is_some() && known.status != Status::Clean;
            let Some(known) = self.records.get(*copy).filter(is_mirrored) else { continue };
            self.records.set(*copy, Status::Broken)?;
            cut_if_silent(&client, *copy, &known).await;
            let index = index(guest, &client, known.disk).await?;
            job::end(guest, &client, index, *copy).await?;
        }
        Ok(())
    }
}

impl Mirrors for Qemu {
    fn clean(
        &self,
        instance: Uuid,
        copies: &[Uuid],
    ) -> Result<BTreeMap<Uuid, MirrorStatus>, HypervisorError> {
        let same = match self.look_now(instance) {
            Looked::Up => Some(Status::Ready),
            Looked::Ended | Looked::Unknown => Some(Status::Clean),
            Looked::Silent { .. } => None,
        };
        let is_same = |copy: &Uuid| {
            let known = self.records.get(*copy).filter(|known| known.instance == instance);
            known.is_some_and(|known| Some(known.status) == same)
        };
        if let Some(copy) = copies.iter().find(|copy| !is_same(copy)) {
            return Err(refused(instance, format!("copy {copy} is not known to be the same as its disk")));
        }
        Ok(copies.iter().map(|copy| (*copy, MirrorStatus::Ready)).collect())
    }

    fn trust(&self, instance: Uuid, copies: &[Uuid], disks: &[Uuid]) -> Result<(), HypervisorError> {
        if self.is_up(instance) {
            return Err(refused(instance, "it is up: its copies can't be taken for the same"));
        }
        self.trust_copies(instance, copies, disks)
    }

    fn mirror(
        &self,
        instance: Uuid,
        target: &MirrorTarget,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        if target.sync == Sync::Unproven {
            self.follow_not(instance, target)?;
            return Err(refused(instance, "nobody has said that its copies are the same"));
        }
        let guest = self.guest(instance).filter(|guest| !guest.has_ended());
        let guest = guest.ok_or(HypervisorError::NotRunning(instance))?;
        self.runtime.block_on(async {
            let mirrored = tokio::select! {
                mirrored = self.mirror_here(&guest, target, tell) => mirrored,
                () = cancel.told() => Err(HypervisorError::Cancelled(instance)),
            };
            if mirrored.is_err() {
                let copies: Vec<Uuid> = target.links.iter().map(|link| link.copy).collect();
                if !guest.has_ended()
                    && let Err(error) = self.end_here(&guest, &copies).await
                {
                    tracing::warn!(guest = %instance, %error, "mirrors that failed could not be taken away");
                }
                self.records.break_off(instance, |copy| copies.contains(copy))?;
                self.follow_not(instance, target)?;
            }
            mirrored
        })
    }

    fn end_mirrors(&self, instance: Uuid, copies: &[Uuid]) -> Result<(), HypervisorError> {
        if let Some(guest) = self.guest(instance).filter(|guest| !guest.has_ended()) {
            self.runtime.block_on(async {
                let ended = self.end_here(&guest, copies).await;
                // One that died meanwhile has no mirrors either.
                if ended.is_err() && timeout(DEATH_LIMIT, guest.ended()).await.is_err() {
                    return ended;
                }
                Ok(())
            })?;
        }
        self.records.forget(|copy, _| copies.contains(copy))
    }

    fn mirrors_of(&self, instance: Uuid, copies: &[Uuid]) -> BTreeMap<Uuid, MirrorStatus> {
        let broken = Some(MirrorStatus::Broken);
        let (told, otherwise) = match self.look_now(instance) {
            Looked::Up | Looked::Silent { heard_all: true } => (self.records.report(instance, true), broken),
            Looked::Silent { heard_all: false } => (Vec::new(), broken),
            Looked::Ended => (self.records.report(instance, false), broken),
            Looked::Unknown => (self.records.report(instance, false), None),
        };
        let status = |copy: &Uuid| {
            let found = told.iter().find(|report| report.copy == *copy);
            found.map(|report| report.status).or(otherwise).map(|status| (*copy, status))
        };
        copies.iter().filter_map(status).collect()
    }

    fn report(&self, instance: Uuid) -> Vec<MirrorReport> {
        let guest = self.guest(instance);
        guest.map(|guest| self.records.report(instance, !guest.has_ended())).unwrap_or_default()
    }

    fn written(&self, instance: Uuid) -> Result<(), HypervisorError> {
        let is_up = self.is_up(instance);
        let follows_not = |status: Status| match status {
            Status::Clean => true,
            Status::Syncing | Status::Ready => !is_up,
            Status::Broken => false,
        };
        self.records.miss_writes(|known| known.instance == instance && follows_not(known.status))
    }

    fn replaced(&self, disks: &[Uuid]) -> Result<(), HypervisorError> {
        let is_of = |known: &Kept| known.disk.is_some_and(|disk| disks.contains(&disk));
        self.records.forget(|_, known| is_of(known) && !self.is_up(known.instance))
    }
}
