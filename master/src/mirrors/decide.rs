//! What an instance's copies need: the configuration against what the primary says of the mirrors. Pure.
//!
//! | configuration \ mirror | ready | syncing | broken, or not there |
//! |---|---|---|---|
//! | consistent | in order | settle | settle |
//! | inconsistent | settle | wait | sync |
//! | stale | settle | settle | sync |
//!
//! Settling comes first: what the configuration says decides whether a failover is safe.

use muster_core::{
    calls::MirrorStatus,
    model::{CopyState, DiskName, Instance},
    names::NodeName,
};
use uuid::Uuid;

use super::seen::MirrorsSeen;

/// A copy that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    disk: DiskName,
    node: NodeName,
    copy: Uuid,
    state: CopyState,
    mirror: Option<MirrorStatus>,
}

impl Finding {
    /// In words, as the reason of a job.
    fn words(&self) -> String {
        let copy = format!("the copy of {} on {}", self.disk.as_str(), self.node);
        match (self.state, self.mirror) {
            (CopyState::Consistent, Some(MirrorStatus::Broken) | None) => format!("{copy} broke off"),
            (_, Some(MirrorStatus::Syncing)) => format!("{copy} is being written over"),
            (_, Some(MirrorStatus::Ready)) => format!("{copy} is in sync"),
            (CopyState::Inconsistent | CopyState::Stale, Some(MirrorStatus::Broken) | None) => {
                format!("{copy} misses writes")
            }
        }
    }
}

/// All findings in words.
pub(super) fn reason(findings: &[Finding]) -> String {
    let words: Vec<String> = findings.iter().map(Finding::words).collect();
    words.join("; ")
}

/// What an instance's copies need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: all follow.
    InOrder,
    /// Nothing for now: they are being brought in sync.
    Syncing,
    /// The configuration is to say what these mirrors do.
    Settle(Vec<Finding>),
    /// These are to be copied anew.
    Sync {
        /// The node that has them.
        node: NodeName,
        /// Those copies.
        behind: Vec<Finding>,
    },
}

/// Looks at an instance that is wanted up, and whose guest runs on its primary with these mirrors, or had them when it ended
/// there by itself.
pub(super) fn decide(instance: &Instance, mirrors: &MirrorsSeen) -> Verdict {
    let (mut differ, mut behind, mut syncing) = (Vec::new(), Vec::new(), false);
    let copies =
        instance.disks.iter().flat_map(|disk| disk.mirrors.iter().map(move |copy| (disk.name, copy)));
    for (disk, copy) in copies {
        let mirror = mirrors.get(&copy.uuid).map(|seen| seen.status);
        let list = match (copy.state, mirror) {
            (CopyState::Consistent, Some(MirrorStatus::Ready)) => continue,
            (CopyState::Inconsistent, Some(MirrorStatus::Syncing)) => {
                syncing = true;
                continue;
            }
            (CopyState::Consistent, Some(MirrorStatus::Syncing | MirrorStatus::Broken) | None)
            | (CopyState::Inconsistent | CopyState::Stale, Some(MirrorStatus::Ready))
            | (CopyState::Stale, Some(MirrorStatus::Syncing)) => &mut differ,
            (CopyState::Inconsistent | CopyState::Stale, Some(MirrorStatus::Broken) | None) => &mut behind,
        };
        let (node, state) = (copy.node.clone(), copy.state);
        list.push(Finding { disk, node, copy: copy.uuid, state, mirror });
    }
    if !differ.is_empty() {
        return Verdict::Settle(differ);
    }
    match behind.first().map(|first| first.node.clone()) {
        Some(node) => Verdict::Sync { node, behind },
        None if syncing => Verdict::Syncing,
        None => Verdict::InOrder,
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::{super::seen::MirrorSeen, *};

    const READY: Option<MirrorStatus> = Some(MirrorStatus::Ready);
    const SYNCING: Option<MirrorStatus> = Some(MirrorStatus::Syncing);
    const BROKEN: Option<MirrorStatus> = Some(MirrorStatus::Broken);

    /// The verdict on `mail1`, whose disks have these copies, in a word with its reason.
    fn verdict(copies: [(CopyState, Option<MirrorStatus>); 2]) -> (&'static str, String) {
        let cluster = examples::in_sync("mail1");
        let mut mail = cluster.instances.into_values().find(|mail| mail.name.as_str() == "mail1").unwrap();
        let mut mirrors = MirrorsSeen::new();
        for (disk, (state, status)) in mail.disks.iter_mut().zip(copies) {
            disk.mirrors[0].state = state;
            mirrors.extend(status.map(|status| (disk.mirrors[0].uuid, MirrorSeen { status, percent: None })));
        }
        match decide(&mail, &mirrors) {
            Verdict::InOrder => ("in order", String::new()),
            Verdict::Syncing => ("syncing", String::new()),
            Verdict::Settle(findings) => ("settle", reason(&findings)),
            Verdict::Sync { node, behind } => {
                assert_eq!(node.as_str(), "node3");
                ("sync", reason(&behind))
            }
        }
    }

    #[test]
    fn one_copy_in_every_state() {
        use CopyState::{Consistent, Inconsistent, Stale};
        for (state, mirror, word, words) in [
            (Consistent, READY, "in order", ""),
            (Consistent, SYNCING, "settle", "the copy of sda on node3 is being written over"),
            (Consistent, BROKEN, "settle", "the copy of sda on node3 broke off"),
            (Consistent, None, "settle", "the copy of sda on node3 broke off"),
            (Inconsistent, READY, "settle", "the copy of sda on node3 is in sync"),
            (Inconsistent, SYNCING, "syncing", ""),
            (Inconsistent, BROKEN, "sync", "the copy of sda on node3 misses writes"),
            (Inconsistent, None, "sync", "the copy of sda on node3 misses writes"),
            (Stale, READY, "settle", "the copy of sda on node3 is in sync"),
            (Stale, SYNCING, "settle", "the copy of sda on node3 is being written over"),
            (Stale, BROKEN, "sync", "the copy of sda on node3 misses writes"),
            (Stale, None, "sync", "the copy of sda on node3 misses writes"),
        ] {
            let found = verdict([(state, mirror), (Consistent, READY)]);
            assert_eq!(found, (word, words.to_owned()), "{state:?} {mirror:?}");
        }
    }

    #[test]
    fn settling_comes_before_copying_and_copying_before_waiting() {
        use CopyState::{Consistent, Inconsistent, Stale};
        for (first, second, word, words) in [
            ((Consistent, BROKEN), (Stale, BROKEN), "settle", "the copy of sda on node3 broke off"),
            (
                (Consistent, BROKEN),
                (Inconsistent, READY),
                "settle",
                "the copy of sda on node3 broke off; the copy of sdb on node3 is in sync",
            ),
            ((Inconsistent, SYNCING), (Stale, None), "sync", "the copy of sdb on node3 misses writes"),
            ((Inconsistent, SYNCING), (Consistent, READY), "syncing", ""),
            ((Consistent, READY), (Consistent, READY), "in order", ""),
        ] {
            assert_eq!(verdict([first, second]), (word, words.to_owned()), "{first:?} {second:?}");
        }
    }
}
