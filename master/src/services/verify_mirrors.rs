//! What `gnt-cluster verify` says of copies, of who serves them, and of guests that run where they should not.

use muster_core::{
    calls::MirrorStatus,
    model::{Cluster, CopyState, Instance, Mirror, Node},
};
use muster_proto::v1;
use uuid::Uuid;

use super::{query::RunningGuests, verify::Findings, verify_busy::Busy};
use crate::mirrors::{MirrorSeen, mirror_of};

/// Copies that may not be relied on.
pub(super) fn copy_findings(
    cluster: &Cluster,
    instance: &Instance,
    guests: &RunningGuests,
    findings: &mut Findings,
) {
    let mirrors = guests.mirrors(instance);
    let copies = instance.disks.iter().flat_map(|disk| disk.mirrors.iter().map(move |copy| (disk, copy)));
    for (disk, copy) in copies {
        if let Some(what) = trouble(copy, mirror_of(cluster, instance, mirrors, copy)) {
            let text = format!("mirror {} of {} on {} {what}", copy.id, disk.name.as_str(), copy.node);
            findings.warning("instance", &instance.name, "EINSTANCEMIRROR", text);
        }
    }
}

/// What is wrong with a copy.
fn trouble(copy: &Mirror, mirror: Option<MirrorSeen>) -> Option<String> {
    let percent = mirror.and_then(|mirror| mirror.percent);
    let percent = percent.map(|percent| format!(" ({percent} %)")).unwrap_or_default();
    let state = copy.state.as_str();
    match (copy.state, mirror.map(|mirror| mirror.status)) {
        (CopyState::Consistent, None | Some(MirrorStatus::Ready)) => None,
        (CopyState::Consistent, Some(MirrorStatus::Broken)) => {
            Some("does not follow the guest's writes any more".to_owned())
        }
        (CopyState::Consistent, Some(MirrorStatus::Syncing)) => {
            Some(format!("is being written over{percent}"))
        }
        (CopyState::Inconsistent | CopyState::Stale, None) => Some(format!("is {state}")),
        (CopyState::Inconsistent | CopyState::Stale, Some(MirrorStatus::Ready)) => {
            Some(format!("is {state}, though it follows the guest's writes"))
        }
        (CopyState::Inconsistent | CopyState::Stale, Some(MirrorStatus::Broken)) => {
            Some(format!("is {state} and does not follow the guest's writes"))
        }
        (CopyState::Inconsistent | CopyState::Stale, Some(MirrorStatus::Syncing)) => {
            Some(format!("is {state} and is being brought in sync{percent}"))
        }
    }
}

/// Copies that a node serves and that are none.
pub(super) fn served_findings(
    cluster: &Cluster,
    node: &Node,
    state: &v1::NodeState,
    busy: &Busy,
    findings: &mut Findings,
) {
    for served in state.served_copies.iter().filter(|served| !busy.has_file(served)) {
        let Some(owner) = owner(cluster, served) else {
            let text = format!("serves the copy {served}, which belongs to no instance");
            findings.error("node", &node.name, "ENODEORPHAN", text);
            continue;
        };
        let mut copies = owner.disks.iter().flat_map(|disk| &disk.mirrors);
        let is_copy = copies.any(|copy| copy.node == node.name && copy.uuid.to_string() == *served);
        if !is_copy && !busy.has_instance(owner) {
            let text = format!("serves the file {served} of {}, which is no copy there", owner.name);
            findings.error("node", &node.name, "ENODEORPHAN", text);
        }
    }
}

/// The instance that has a disk or a copy in a file.
fn owner<'a>(cluster: &'a Cluster, file: &str) -> Option<&'a Instance> {
    let file: Uuid = file.parse().ok()?;
    let has = |instance: &&Instance| {
        let disks = &instance.disks;
        disks.iter().any(|disk| disk.uuid == file || disk.mirrors.iter().any(|copy| copy.uuid == file))
    };
    cluster.instances.values().find(has)
}

/// Guests that run on nodes which are not their primary.
pub(super) fn place_findings(instance: &Instance, guests: &RunningGuests, findings: &mut Findings) {
    for (node, generation) in guests.elsewhere(instance) {
        let text = format!(
            "runs on {node} (generation {generation}), and its primary is {} (generation {})",
            instance.primary, instance.generation
        );
        findings.error("instance", &instance.name, "EINSTANCEWRONGNODE", text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use muster_core::{names::NodeName, ops::examples};

    use super::*;
    use crate::view::View;

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    fn mail(cluster: &Cluster) -> &Instance {
        cluster.instances.values().find(|instance| instance.name.as_str() == "mail1").unwrap()
    }

    fn texts(findings: &Findings) -> Vec<String> {
        let line = |f: &v1::VerifyFinding| {
            let level = if f.error { "error" } else { "warning" };
            format!("{level} {} {} {}: {}", f.object_type, f.object, f.code, f.text)
        };
        findings.0.iter().map(line).collect()
    }

    fn guest(instance: &Instance, generation: u64, state: v1::RunState) -> v1::GuestState {
        let instance_uuid = instance.uuid.to_string();
        v1::GuestState { instance_uuid, generation, state: state.into(), ..v1::GuestState::default() }
    }

    fn guests(said: [(&str, v1::GuestState); 2]) -> RunningGuests {
        let mut guests = RunningGuests::default();
        for (node, guest) in said {
            let state = v1::NodeState { guests: vec![guest], ..v1::NodeState::default() };
            guests.add(&name(node), &Arc::new(state), true);
        }
        guests
    }

    #[test]
    fn every_state_of_a_copy_and_its_mirror() {
        use CopyState::{Consistent, Inconsistent, Stale};
        let seen = |status, percent| Some(MirrorSeen { status, percent });
        let (ready, broken) = (seen(MirrorStatus::Ready, None), seen(MirrorStatus::Broken, None));
        let syncing = seen(MirrorStatus::Syncing, Some(45));
        for (state, mirror, text) in [
            (Consistent, None, None),
            (Consistent, ready, None),
            (Consistent, broken, Some("does not follow the guest's writes any more")),
            (Consistent, syncing, Some("is being written over (45 %)")),
            (Stale, None, Some("is stale")),
            (Stale, ready, Some("is stale, though it follows the guest's writes")),
            (Stale, broken, Some("is stale and does not follow the guest's writes")),
            (Inconsistent, None, Some("is inconsistent")),
            (Inconsistent, syncing, Some("is inconsistent and is being brought in sync (45 %)")),
            (
                Inconsistent,
                seen(MirrorStatus::Syncing, None),
                Some("is inconsistent and is being brought in sync"),
            ),
        ] {
            let copy = Mirror { state, ..mail(&examples::in_sync("mail1")).disks[0].mirrors[0].clone() };
            assert_eq!(trouble(&copy, mirror).as_deref(), text, "{state:?} {mirror:?}");
        }
    }

    #[test]
    fn a_copy_without_a_mirror_is_found_only_where_a_guest_writes() {
        let cluster = examples::in_sync("mail1");
        let mail = mail(&cluster);
        let found = |cluster: &Cluster, state| {
            let elsewhere = guest(mail, 0, v1::RunState::Stopped);
            let guests = guests([("node2", guest(mail, 0, state)), ("node3", elsewhere)]);
            let mut findings = Findings::default();
            copy_findings(cluster, mail, &guests, &mut findings);
            texts(&findings)
        };
        let text = |copy, disk| {
            let what = "does not follow the guest's writes any more";
            format!("warning instance mail1 EINSTANCEMIRROR: mirror {copy} of {disk} on node3 {what}")
        };
        assert_eq!(found(&cluster, v1::RunState::Running), [text(1, "sda"), text(2, "sdb")]);
        assert!(found(&cluster, v1::RunState::ShutDown).is_empty());
        let mut fake = cluster.clone();
        fake.hypervisor.kind = muster_core::hypervisor::HypervisorKind::Fake;
        assert!(found(&fake, v1::RunState::Running).is_empty());
    }

    #[test]
    fn a_guest_on_the_wrong_node_is_found() {
        let mut cluster = examples::in_sync("mail1");
        cluster.instances.values_mut().for_each(|instance| instance.generation = 4);
        let mail = mail(&cluster);
        let found = |generation, state| {
            let here = guest(mail, 4, v1::RunState::Running);
            let guests = guests([("node2", here), ("node3", guest(mail, generation, state))]);
            let mut findings = Findings::default();
            place_findings(mail, &guests, &mut findings);
            (guests.status(&cluster, mail), texts(&findings))
        };
        let text = |generation| {
            let words = "and its primary is node2 (generation 4)";
            format!(
                "error instance mail1 EINSTANCEWRONGNODE: runs on node3 (generation {generation}), {words}"
            )
        };
        let (running, paused) = (v1::RunState::Running, v1::RunState::Paused);
        assert_eq!(found(3, running), ("ERROR_wrongnode", vec![text(3)]));
        assert_eq!(found(3, paused), ("ERROR_wrongnode", vec![text(3)]));
        assert_eq!(found(5, running), ("ERROR_wrongnode", vec![text(5)]));
        // It is being received, and does not run.
        assert_eq!(found(5, paused), ("running", vec![]));
        assert_eq!(found(3, v1::RunState::Stopped), ("running", vec![]));
    }

    #[test]
    fn what_a_node_serves_must_be_a_copy_there() {
        let cluster = examples::in_sync("mail1");
        let mail = mail(&cluster);
        let (disk, copy) = (mail.disks[0].uuid.to_string(), mail.disks[0].mirrors[0].uuid.to_string());
        let found = |node: &str, served: &str, busy: &Busy| {
            let state = v1::NodeState { served_copies: vec![served.to_owned()], ..v1::NodeState::default() };
            let mut findings = Findings::default();
            served_findings(&cluster, &cluster.nodes[&name(node)], &state, busy, &mut findings);
            texts(&findings)
        };
        let idle = Busy::default();
        assert!(found("node3", &copy, &idle).is_empty());
        let orphan = |what: String| [format!("error node node3 ENODEORPHAN: serves {what}")];
        let of_mail = orphan(format!("the file {disk} of mail1, which is no copy there"));
        assert_eq!(found("node3", &disk, &idle), of_mail);
        assert_eq!(found("node2", &copy, &idle).len(), 1, "it is a copy elsewhere");
        let unknown = "00000000-0000-0000-0000-00000000aaaa";
        let of_nobody = orphan(format!("the copy {unknown}, which belongs to no instance"));
        assert_eq!(found("node3", unknown, &idle), of_nobody);
        // Roles are being turned.
        let busy = Busy::default().end(&View::default(), &examples::cluster(), &cluster);
        assert!(found("node3", &disk, &busy).is_empty());
    }
}
