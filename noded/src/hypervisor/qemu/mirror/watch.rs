//! Looks after what serves a guest's copies, so that nothing that hangs there holds the guest up.
//!
//! A peer that does not greet hangs as a whole. One that greets while its disk hangs is known by the mirror itself: the guest's
//! writes are under way, and none of them gets done.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use uuid::Uuid;

use super::{
    super::guest::Guest,
    GuestMirrors, LOOK_LIMIT, index, job,
    records::{Kept, Status},
};
use crate::qmp::Qmp;

/// How often a guest's mirrors are looked at.
const WATCH_PERIOD: Duration = Duration::from_secs(1);
/// A peer that does not greet within this hangs. With the time between two looks a guest waits for 5 s at most.
const GREETING_LIMIT: Duration = Duration::from_secs(3);
/// What every NBD server says first, before any TLS.
const GREETING: &[u8; 8] = b"NBDMAGIC";
/// A copy where writes were under way and none got done for so long hangs. Looks are a second apart, so it is the fourth one that
/// sees the same: as with a silent peer, a guest waits for 5 s at most, also where the looks are a little late.
const HANG_LIMIT: Duration = Duration::from_millis(2500);
/// What is under way counts as done in whole requests, and a guest may discard or clear 2 GiB by one: for each so many bytes, a
/// millisecond more.
const BYTES_PER_MS: u64 = 64 * 1024;
/// The same while a copy is being made: that is done in large pieces, maybe of many disks at once, and ends at all only if slow
/// disks are given their time, the one that is read, too.
const COPYING_HANG_LIMIT: Duration = Duration::from_secs(30);
/// What counts at most from one look to the next, so that it takes four of them at least. Where they are further apart it was this
/// daemon or QEMU that stood still, and nobody knows what the peer did.
const GAP_MAX: Duration = Duration::from_millis(1200);

/// A mirror that goes on, as a look has seen it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) copy: Uuid,
    pub(super) known: Kept,
    /// Bytes that are written there, and those that are to be: more of them only while something is under way.
    pub(super) done: u64,
    pub(super) total: u64,
}

impl Seen {
    fn hang_limit(&self) -> Duration {
        match self.known.status {
            Status::Syncing => COPYING_HANG_LIMIT,
            Status::Ready | Status::Broken | Status::Clean => {
                HANG_LIMIT + Duration::from_millis(self.total.saturating_sub(self.done) / BYTES_PER_MS)
            }
        }
    }
}

/// What is remembered of a mirror from look to look.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    at: Instant,
    done: u64,
    is_waiting: bool,
    /// How long it has been seen to wait for the same; none if it has moved since the look before, or waits for nothing.
    still: Option<Duration>,
}

impl Pulse {
    fn of(seen: &Seen, before: Option<&Pulse>, now: Instant) -> Self {
        let is_waiting = seen.total > seen.done;
        let unmoved = before.filter(|before| is_waiting && before.done == seen.done);
        let still = unmoved.map(|before| {
            let waited = if before.is_waiting { (now - before.at).min(GAP_MAX) } else { Duration::ZERO };
            before.still.unwrap_or_default() + waited
        });
        Pulse { at: now, done: seen.done, is_waiting, still }
    }
}

/// The mirrors of a guest, look by look.
#[derive(Debug, Default)]
struct Pulses(BTreeMap<Uuid, Pulse>);

impl Pulses {
    /// The copies that hang: those that have waited too long, and with them what waits for the same node; taking away the one
    /// would wait for the other.
    fn hung(&mut self, seen: &[Seen], now: Instant) -> Vec<(Uuid, Kept)> {
        let pulses = seen.iter().map(|seen| (seen.copy, Pulse::of(seen, self.0.get(&seen.copy), now)));
        self.0 = pulses.collect();
        let still = |seen: &&Seen| self.0.get(&seen.copy)?.still;
        let node = |seen: &Seen| seen.known.at.map(|(address, _)| address);
        let too_long = |seen: &&Seen| still(seen).is_some_and(|still| still >= seen.hang_limit());
        let nodes: BTreeSet<Option<IpAddr>> = seen.iter().filter(too_long).map(node).collect();
        let hang = seen.iter().filter(|seen| still(seen).is_some() && nodes.contains(&node(seen)));
        hang.map(|seen| (seen.copy, seen.known.clone())).collect()
    }
}

/// Whether an NBD server greets there in time.
async fn greets(at: SocketAddr) -> bool {
    let greeting = async {
        let mut stream = TcpStream::connect(at).await.ok()?;
        let mut said = [0; GREETING.len()];
        stream.read_exact(&mut said).await.ok()?;
        Some(said)
    };
    timeout(GREETING_LIMIT, greeting).await.ok().flatten().as_ref() == Some(GREETING)
}

/// Cuts off a copy whose node hangs: QEMU might answer nothing before. Nobody else looks after one that is being ended.
pub(super) async fn cut_if_silent(client: &Qmp, copy: Uuid, known: &Kept) {
    if let Some(at) = known.at
        && !greets(at.into()).await
    {
        job::cut(client, copy).await;
    }
}

impl GuestMirrors {
    /// Cuts off copies that hang: all of them before anything else is tried.
    async fn cut_off(&self, guest: &Guest, client: &Qmp, hung: Vec<(Uuid, Kept)>, why: &str) {
        let mut cut = Vec::new();
        for (copy, known) in hung {
            // It may have been ended meanwhile.
            if self.records.get(copy).is_none_or(|now| now.status != known.status) {
                continue;
            }
            tracing::warn!(guest = %guest.record.instance, %copy, "{why}: it is cut off");
            job::cut(client, copy).await;
            if let Err(error) = self.records.set(copy, Status::Broken) {
                tracing::error!(%copy, %error, "could not write down that a copy misses writes");
            }
            cut.push((copy, known));
        }
        if cut.is_empty() {
            return;
        }
        let _turn = self.turn.lock().await;
        for (copy, known) in cut {
            let ended = async {
                let index = index(guest, client, known.disk).await?;
                job::end(guest, client, index, copy).await
            };
            if let Err(error) = ended.await {
                tracing::warn!(%copy, %error, "what is left of a mirror could not be taken away");
            }
        }
    }

    /// Cuts off the copies whose node does not greet.
    async fn look_after_peers(&self, guest: &Guest) {
        let going = self.records.going(guest.record.instance);
        let probes = going.into_iter().filter_map(|(copy, known)| Some((copy, known.at?, known)));
        let silent = |(copy, at, known): (Uuid, (IpAddr, u16), Kept)| async move {
            (!greets(at.into()).await).then_some((copy, known))
        };
        let silent: Vec<_> = join_all(probes.map(silent)).await.into_iter().flatten().collect();
        if !silent.is_empty()
            && let Some(client) = guest.qmp().await
        {
            self.cut_off(guest, &client, silent, "the node of a copy does not answer").await;
        }
    }

    /// Looks what the mirrors do, cuts off the copies whose disks hang, and takes away what is left of broken ones.
    async fn look_after_disks(&self, guest: &Guest, pulses: &mut Pulses) {
        let looked = async {
            let Some(client) = guest.qmp().await else { return Ok(None) };
            let seen = self.look(guest, &client).await?;
            Ok(Some((client, seen)))
        };
        let cleared = match timeout(LOOK_LIMIT, looked).await {
            Ok(Ok(Some((client, seen)))) => {
                let hung = pulses.hung(&seen, Instant::now());
                self.cut_off(guest, &client, hung, "a copy gets nothing done").await;
                timeout(LOOK_LIMIT, self.clear_left(guest, &client)).await
            }
            Ok(Err(error)) => Ok(Err(error)),
            Ok(Ok(None)) | Err(_) => Ok(Ok(())),
        };
        if let Ok(Err(error)) = cleared {
            tracing::debug!(guest = %guest.record.instance, %error, "could not look at mirrors");
        }
    }
}

/// Looks at a guest's mirrors until the guest ends.
pub(in super::super) async fn watch(guest: Arc<Guest>) {
    let mut pulses = Pulses::default();
    let mut ticks = interval(WATCH_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = guest.ended() => return,
        }
        // Both at once: a look that waits for a silent peer goes on when that one is cut off.
        let mirrors = &guest.mirrors;
        tokio::join!(mirrors.look_after_disks(&guest, &mut pulses), mirrors.look_after_peers(&guest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(copy: u128, node: u8, status: Status, (done, total): (u64, u64)) -> Seen {
        let at = Some(([127, 0, 0, node].into(), 10809));
        let known = Kept { instance: Uuid::nil(), disk: None, at, status, progress: (0, 0) };
        Seen { copy: Uuid::from_u128(copy), known, done, total }
    }

    /// At which of these looks, a second apart, a copy is said to hang for the first time.
    fn hangs_at(status: Status, looks: impl IntoIterator<Item = (u64, u64)>) -> Option<usize> {
        let (mut pulses, begin) = (Pulses::default(), Instant::now());
        let mut now = begin;
        looks.into_iter().position(|progress| {
            now += SECOND;
            !pulses.hung(&[seen(1, 1, status, progress)], now).is_empty()
        })
    }

    #[test]
    fn a_copy_hangs_when_writes_are_under_way_and_none_gets_done() {
        assert_eq!(hangs_at(Status::Ready, [(5, 9); 9]), Some(3), "within 5 s of its last write");
        let after_writing = [(1, 1), (3, 4), (5, 9), (5, 9), (5, 9), (5, 13), (5, 13), (5, 13)];
        assert_eq!(hangs_at(Status::Ready, after_writing), Some(5));
        let after_idling = [(5, 5), (5, 5), (5, 9), (5, 9), (5, 9), (5, 9), (5, 9), (5, 9)];
        assert_eq!(hangs_at(Status::Ready, after_idling), Some(5));
    }

    #[test]
    fn a_copy_that_moves_or_has_nothing_to_do_does_not_hang() {
        assert_eq!(hangs_at(Status::Ready, [(5, 5); 100]), None, "the guest does not write");
        assert_eq!(hangs_at(Status::Ready, (0..100).map(|look| (look / 3, 1000))), None, "slow, and moves");
        let with_pauses = (0..100).map(|look| (5, if look % 3 == 0 { 5 } else { 9 }));
        assert_eq!(hangs_at(Status::Ready, with_pauses), None, "all was done in between");
    }

    #[test]
    fn a_large_request_has_more_time() {
        let under_way = |bytes: u64| hangs_at(Status::Ready, [(5, 5 + bytes); 60]);
        assert_eq!(under_way(1 << 20), Some(3), "a write");
        assert_eq!(under_way(256 << 20), Some(7), "all that a disk's queue holds");
        assert_eq!(under_way(2 << 30), Some(36), "a discard");
    }

    #[test]
    fn a_copy_that_is_being_made_has_more_time() {
        assert_eq!(hangs_at(Status::Syncing, [(5, 9); 40]), Some(30));
        assert_eq!(hangs_at(Status::Syncing, (0..100).map(|look| (look / 29, 1000))), None);
    }

    #[test]
    fn the_time_in_which_nobody_looked_counts_for_little() {
        let (mut pulses, begin) = (Pulses::default(), Instant::now());
        let waits = [seen(1, 1, Status::Ready, (5, 9))];
        let mut hangs = |after: Duration| !pulses.hung(&waits, begin + after).is_empty();
        assert!(!hangs(SECOND));
        assert!(!hangs(600 * SECOND), "the daemon was stopped");
        assert!(!hangs(1200 * SECOND));
        assert!(hangs(1800 * SECOND), "the same again at the fourth look");
    }

    #[test]
    fn what_waits_for_the_same_node_hangs_with_it_and_nothing_else_does() {
        let (mut pulses, begin) = (Pulses::default(), Instant::now());
        let mut hung = Vec::new();
        for look in 0..4u64 {
            let at_last = |done| (done, if look == 3 { done + 4 } else { done });
            let looked = [
                seen(1, 1, Status::Ready, (5, 9)),
                seen(2, 1, Status::Ready, at_last(5)),
                seen(3, 1, Status::Ready, (5, 5)),
                seen(4, 1, Status::Syncing, (look, 1000)),
                seen(5, 2, Status::Ready, at_last(5)),
            ];
            let now = begin + SECOND * u32::try_from(look).unwrap();
            hung = pulses.hung(&looked, now).into_iter().map(|(copy, _)| copy.as_u128()).collect();
            assert!(look == 3 || hung.is_empty(), "{hung:?} at look {look}");
        }
        assert_eq!(hung, [1, 2]);
        assert_eq!(pulses.hung(&[], begin + 9 * SECOND).len(), 0);
        assert!(pulses.0.is_empty(), "what has ended is forgotten");
    }
}
