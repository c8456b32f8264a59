//! What the keeper did for each instance, and when it may do the same again. Pure: the time is an input.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use muster_core::model::Cluster;
use uuid::Uuid;

use super::decide::{Finding, Verdict};

/// What did not help is not tried again before this.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
/// Pauses double up to this: a node that comes back is not waited for much longer, and the list of jobs stays short.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What was done, by the instance's uuid.
#[derive(Debug, Default)]
pub(super) struct Memory(BTreeMap<Uuid, Done>);

/// What was done for one instance.
#[derive(Debug, Default)]
struct Done {
    /// The last thing that was settled: another is settled at once.
    settled: Option<(Vec<Finding>, Pause)>,
    synced: Option<Synced>,
}

/// Copying that was begun.
#[derive(Debug)]
struct Synced {
    pause: Pause,
    /// How often the copies' node had been connected to.
    connections: Option<u64>,
}

/// When the same may be done again, and how long the next pause is.
#[derive(Debug, Clone, Copy)]
struct Pause {
    end: Instant,
    next: Duration,
}

impl Pause {
    /// A pause from now on; longer than the one before, where that was for the same.
    fn after(before: Option<Pause>, now: Instant) -> Self {
        let length = before.map_or(PAUSE_FIRST, |before| before.next);
        Pause { end: now + length, next: (length * 2).min(PAUSE_MAX) }
    }
}

impl Memory {
    /// Whether what the instance needs may be done now. `connections` counts those to the node of its copies: one that
    /// came back is tried at once.
    pub(super) fn allows(
        &self,
        instance: Uuid,
        verdict: &Verdict,
        connections: Option<u64>,
        now: Instant,
    ) -> bool {
        let done = self.0.get(&instance);
        match verdict {
            Verdict::InOrder | Verdict::Syncing => false,
            Verdict::Settle(findings) => done
                .and_then(|done| done.settled.as_ref())
                .is_none_or(|(settled, pause)| settled != findings || now >= pause.end),
            Verdict::Sync { .. } => done
                .and_then(|done| done.synced.as_ref())
                .is_none_or(|synced| synced.connections != connections || now >= synced.pause.end),
        }
    }

    /// Notes that it was done.
    pub(super) fn note(&mut self, instance: Uuid, verdict: &Verdict, connections: Option<u64>, now: Instant) {
        let done = self.0.entry(instance).or_default();
        match verdict {
            Verdict::InOrder | Verdict::Syncing => {}
            Verdict::Settle(findings) => {
                let before = done.settled.take().filter(|(settled, _)| settled == findings);
                done.settled = Some((findings.clone(), Pause::after(before.map(|(_, pause)| pause), now)));
            }
            Verdict::Sync { .. } => {
                let before = done.synced.take().filter(|synced| synced.connections == connections);
                let pause = Pause::after(before.map(|synced| synced.pause), now);
                done.synced = Some(Synced { pause, connections });
            }
        }
    }

    /// Forgets an instance that is in order, once its pauses are over: one whose mirrors break off again and again is not in
    /// order for long enough.
    pub(super) fn in_order(&mut self, instance: Uuid, now: Instant) {
        let Some(done) = self.0.get(&instance) else { return };
        let settled = done.settled.as_ref().map(|(_, pause)| pause.end);
        let synced = done.synced.as_ref().map(|synced| synced.pause.end);
        if settled.into_iter().chain(synced).all(|end| now >= end) {
            self.0.remove(&instance);
        }
    }

    /// Forgets instances that there are no more.
    pub(super) fn retain(&mut self, cluster: &Cluster) {
        if !self.0.is_empty() {
            let there: std::collections::BTreeSet<Uuid> =
                cluster.instances.values().map(|i| i.uuid).collect();
            self.0.retain(|instance, _| there.contains(instance));
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use muster_core::{calls::MirrorStatus, model::CopyState, ops::examples};

    use super::{
        super::{
            decide::decide,
            seen::{MirrorSeen, MirrorsSeen},
        },
        *,
    };

    const MAIL: Uuid = Uuid::from_u128(1);

    /// What `mail1` needs with copies in this state and mirrors like that.
    fn verdict(state: CopyState, mirror: MirrorStatus) -> Verdict {
        let cluster = examples::in_sync("mail1");
        let mut mail = cluster.instances.into_values().find(|mail| mail.name.as_str() == "mail1").unwrap();
        let copies = mail.disks.iter_mut().flat_map(|disk| &mut disk.mirrors);
        let mirrors: MirrorsSeen = copies
            .map(|copy| {
                copy.state = state;
                (copy.uuid, MirrorSeen { status: mirror, percent: None })
            })
            .collect();
        decide(&mail, &mirrors)
    }

    fn sync() -> Verdict {
        verdict(CopyState::Stale, MirrorStatus::Broken)
    }

    /// The pauses between tries of the same, the connections to the node being these.
    fn pauses(verdict: &Verdict, connections: &[u64]) -> Vec<u64> {
        let mut memory = Memory::default();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for connections in connections {
            let before = now;
            while !memory.allows(MAIL, verdict, Some(*connections), now) {
                now += Duration::from_secs(1);
            }
            pauses.push((now - before).as_secs());
            memory.note(MAIL, verdict, Some(*connections), now);
        }
        pauses
    }

    #[test]
    fn what_does_not_help_is_tried_at_longer_and_longer_intervals() {
        let expected = [0, 10, 20, 40, 80, 160, 300, 300];
        assert_eq!(pauses(&sync(), &[1; 8]), expected);
        let broken = verdict(CopyState::Consistent, MirrorStatus::Broken);
        assert_eq!(pauses(&broken, &[1; 8]), expected);
    }

    #[test]
    fn a_node_that_came_back_is_tried_at_once() {
        assert_eq!(pauses(&sync(), &[1, 1, 1, 2, 2, 2, 3]), [0, 10, 20, 0, 10, 20, 0]);
    }

    #[test]
    fn another_thing_to_settle_is_settled_at_once() {
        let mut memory = Memory::default();
        let now = Instant::now();
        let broken = verdict(CopyState::Consistent, MirrorStatus::Broken);
        let back = verdict(CopyState::Inconsistent, MirrorStatus::Ready);
        for verdict in [&broken, &sync(), &back, &broken] {
            assert!(memory.allows(MAIL, verdict, Some(1), now), "{verdict:?}");
            memory.note(MAIL, verdict, Some(1), now);
            assert!(!memory.allows(MAIL, verdict, Some(1), now), "{verdict:?}");
        }
        // The whole round again: copying waits.
        assert!(!memory.allows(MAIL, &sync(), Some(1), now));
        assert!(memory.allows(Uuid::from_u128(2), &sync(), Some(1), now), "another instance");
    }

    #[test]
    fn an_instance_that_stays_in_order_is_forgotten_and_one_that_flaps_is_not() {
        let mut memory = Memory::default();
        let now = Instant::now();
        let later = now + PAUSE_FIRST;
        memory.note(MAIL, &sync(), Some(1), now);
        memory.in_order(MAIL, now + Duration::from_secs(5));
        assert!(!memory.allows(MAIL, &sync(), Some(1), later - Duration::from_secs(1)));
        memory.in_order(MAIL, later);
        assert!(memory.0.is_empty());
        memory.note(MAIL, &sync(), Some(1), now);
        memory.retain(&examples::cluster());
        assert!(memory.0.is_empty(), "there is no such instance any more");
    }

    #[test]
    fn nothing_is_done_where_nothing_is_needed() {
        let memory = Memory::default();
        for verdict in [
            verdict(CopyState::Consistent, MirrorStatus::Ready),
            verdict(CopyState::Inconsistent, MirrorStatus::Syncing),
        ] {
            assert!(!memory.allows(MAIL, &verdict, Some(1), Instant::now()), "{verdict:?}");
        }
    }
}
