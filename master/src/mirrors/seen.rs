//! What a primary says of its guest's mirrors.

use std::collections::BTreeMap;

use muster_core::{
    calls::MirrorStatus,
    hypervisor::HypervisorKind,
    model::{Cluster, CopyState, DiskTemplate, Instance, Mirror},
};
use muster_proto::v1;
use uuid::Uuid;

/// A mirror at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MirrorSeen {
    /// What it does.
    pub(crate) status: MirrorStatus,
    /// 0 to 100, while it brings the copy in sync.
    pub(crate) percent: Option<u32>,
}

impl MirrorSeen {
    pub(crate) fn is_syncing(self) -> bool {
        self.status == MirrorStatus::Syncing
    }

    pub(crate) fn is_ready(self) -> bool {
        self.status == MirrorStatus::Ready
    }
}

/// Mirrors by their copy's uuid.
pub(crate) type MirrorsSeen = BTreeMap<Uuid, MirrorSeen>;

/// The mirrors of a guest. What can't be read is not there.
pub(crate) fn mirrors_of(guest: &v1::GuestState) -> MirrorsSeen {
    let read = |mirror: &v1::MirrorState| {
        let status = match mirror.status() {
            v1::MirrorStatus::Syncing => MirrorStatus::Syncing,
            v1::MirrorStatus::Ready => MirrorStatus::Ready,
            v1::MirrorStatus::Broken => MirrorStatus::Broken,
            v1::MirrorStatus::Unspecified => return None,
        };
        let percent = (status == MirrorStatus::Syncing).then(|| percent(mirror)).flatten();
        Some((mirror.copy_uuid.parse().ok()?, MirrorSeen { status, percent }))
    };
    guest.mirrors.iter().filter_map(read).collect()
}

fn percent(mirror: &v1::MirrorState) -> Option<u32> {
    let percent =
        u128::from(mirror.done_bytes) * 100 / u128::from(Some(mirror.total_bytes).filter(|t| *t > 0)?);
    u32::try_from(percent.min(100)).ok()
}

/// Whether the guests of an instance write to disks whose copies must follow.
pub(crate) fn follows(cluster: &Cluster, instance: &Instance) -> bool {
    cluster.hypervisor.kind == HypervisorKind::Qemu && instance.template == DiskTemplate::Mirror
}

/// What a copy's mirror does: one that is not there is broken. None where nothing must follow. `mirrors` are those of the
/// guest that is up on the primary, where one is and the primary can be asked.
pub(crate) fn mirror_of(
    cluster: &Cluster,
    instance: &Instance,
    mirrors: Option<&MirrorsSeen>,
    copy: &Mirror,
) -> Option<MirrorSeen> {
    let mirrors = mirrors.filter(|_| follows(cluster, instance))?;
    let broken = MirrorSeen { status: MirrorStatus::Broken, percent: None };
    Some(mirrors.get(&copy.uuid).copied().unwrap_or(broken))
}

/// Whether a copy does not hold what its disk holds, or does not follow it.
pub(crate) fn degraded(cluster: &Cluster, instance: &Instance, mirrors: Option<&MirrorsSeen>) -> bool {
    instance.disks.iter().flat_map(|disk| &disk.mirrors).any(|copy| {
        let follows = mirror_of(cluster, instance, mirrors, copy).is_none_or(MirrorSeen::is_ready);
        copy.state != CopyState::Consistent || !follows
    })
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    fn state(copy: Uuid, status: v1::MirrorStatus, done_bytes: u64, total_bytes: u64) -> v1::MirrorState {
        v1::MirrorState { copy_uuid: copy.to_string(), status: status.into(), done_bytes, total_bytes }
    }

    #[test]
    fn percents_are_those_of_copies_that_are_being_brought_in_sync() {
        let copy = Uuid::from_u128(1);
        for (status, done, total, expected) in [
            (v1::MirrorStatus::Syncing, 0, 0, Some((MirrorStatus::Syncing, None))),
            (v1::MirrorStatus::Syncing, 1, 3, Some((MirrorStatus::Syncing, Some(33)))),
            (v1::MirrorStatus::Syncing, 4, 3, Some((MirrorStatus::Syncing, Some(100)))),
            (v1::MirrorStatus::Syncing, u64::MAX, u64::MAX, Some((MirrorStatus::Syncing, Some(100)))),
            (v1::MirrorStatus::Ready, 3, 3, Some((MirrorStatus::Ready, None))),
            (v1::MirrorStatus::Broken, 1, 3, Some((MirrorStatus::Broken, None))),
            (v1::MirrorStatus::Unspecified, 1, 3, None),
        ] {
            let guest =
                v1::GuestState { mirrors: vec![state(copy, status, done, total)], ..Default::default() };
            let seen = mirrors_of(&guest).get(&copy).map(|seen| (seen.status, seen.percent));
            assert_eq!(seen, expected, "{status:?} {done}/{total}");
        }
        let mut unreadable = state(copy, v1::MirrorStatus::Ready, 0, 0);
        unreadable.copy_uuid = "x".to_owned();
        assert!(mirrors_of(&v1::GuestState { mirrors: vec![unreadable], ..Default::default() }).is_empty());
    }

    #[test]
    fn an_instance_is_degraded_by_one_copy_that_is_behind_or_does_not_follow() {
        let cluster = examples::in_sync("mail1");
        let mail = cluster.instances.values().find(|instance| instance.name.as_str() == "mail1").unwrap();
        let copies: Vec<Uuid> = mail.disks.iter().map(|disk| disk.mirrors[0].uuid).collect();
        let ready = MirrorSeen { status: MirrorStatus::Ready, percent: None };
        let mut mirrors: MirrorsSeen = copies.iter().map(|copy| (*copy, ready)).collect();
        assert!(!degraded(&cluster, mail, Some(&mirrors)));
        assert!(!degraded(&cluster, mail, None), "the guest is down");
        mirrors.insert(copies[1], MirrorSeen { status: MirrorStatus::Broken, percent: None });
        assert!(degraded(&cluster, mail, Some(&mirrors)));
        mirrors.remove(&copies[1]);
        assert!(degraded(&cluster, mail, Some(&mirrors)));
        let mut fake = cluster.clone();
        fake.hypervisor.kind = HypervisorKind::Fake;
        assert!(!degraded(&fake, mail, Some(&MirrorsSeen::new())), "nothing writes, nothing follows");
        let mut behind = mail.clone();
        behind.disks[0].mirrors[0].state = CopyState::Stale;
        assert!(degraded(&cluster, &behind, None) && degraded(&fake, &behind, None));
    }
}
