//! Parts of plans for instances whose copies follow their disks: what is served, mirrored, copied, and what a copy is
//! afterwards.
//!
//! A copy of a guest that computes is consistent only while a mirror is ready. So a guest is started paused, its
//! consistent copies are made to follow, and then it goes on; a copy that can't follow is stale from then on, and is brought
//! in sync later (OP_INSTANCE_MIRRORS_SYNC).

use std::{collections::BTreeSet, net::IpAddr};

use uuid::Uuid;

use super::{Plan, Relied, Witness, common, parts};
use crate::{
    calls::{Call, Image, MirrorCall, MirrorLink, NodeCall, Sync},
    edit::Edit,
    hypervisor::HypervisorKind,
    model::{Cluster, CopyState, DiskName, DiskTemplate, Instance, Mirror},
    names::NodeName,
};

/// Whether the guest writes to its disks, so that copies must follow. A fake guest writes nothing.
pub(super) fn follows(cluster: &Cluster, instance: &Instance) -> bool {
    cluster.hypervisor.kind == HypervisorKind::Qemu && instance.template == DiskTemplate::Mirror
}

/// A disk's copy, with all that calls must say of it.
#[derive(Debug, Clone)]
pub(super) struct Copy {
    /// The disk.
    pub(super) name: DiskName,
    /// Its file on the primary.
    pub(super) disk: Uuid,
    /// The disk's size in MiB.
    pub(super) size_mib: u64,
    /// The copy.
    pub(super) mirror: Mirror,
}

/// An instance's copies that a test of their state lets through.
pub(super) fn copies(instance: &Instance, wanted: impl Fn(&Mirror) -> bool) -> Vec<Copy> {
    let of_disk =
        instance.disks.iter().flat_map(|disk| disk.mirrors.iter().map(move |mirror| (disk, mirror)));
    let wanted = of_disk.filter(|(_, mirror)| wanted(mirror));
    let copies = wanted.map(|(disk, mirror)| Copy {
        name: disk.name,
        disk: disk.uuid,
        size_mib: disk.size_mib,
        mirror: mirror.clone(),
    });
    copies.collect()
}

/// Copies that hold what their disks hold, on a node that can be asked.
pub(super) fn followers(cluster: &Cluster, instance: &Instance) -> Vec<Copy> {
    copies(instance, |mirror| {
        mirror.state == CopyState::Consistent && common::node_online(cluster, &mirror.node).is_ok()
    })
}

/// What is said of copies that do not follow.
pub(super) fn set_all(instance: &Instance, copies: &[Copy], state: CopyState) -> Vec<Edit> {
    let set = |copy: &Copy| Edit::CopySet {
        instance: instance.name.clone(),
        disk: copy.name,
        mirror: copy.mirror.id,
        state,
    };
    copies.iter().map(set).collect()
}

/// Where disks are replicated to and from on a node.
pub(super) fn data_address(cluster: &Cluster, node: &NodeName) -> IpAddr {
    cluster.nodes.get(node).map(|node| node.secondary_ip).expect("instances are on nodes of the cluster")
}

/// Makes the copies' node serve them to the primary; all are on one node.
pub(super) fn serve(cluster: &Cluster, instance: &Instance, copies: &[Copy]) -> Option<Call> {
    let node = &copies.first()?.mirror.node;
    let call = MirrorCall::Serve {
        copies: copies.iter().map(|copy| (copy.mirror.uuid, copy.size_mib)).collect(),
        peer: instance.primary.clone(),
        listen: data_address(cluster, node),
    };
    Some(Call::Node(node.clone(), NodeCall::Mirror(call)))
}

/// Makes copies follow their disks; their node serves them already.
pub(super) fn start(
    cluster: &Cluster,
    instance: &Instance,
    copies: &[Copy],
    sync: Sync,
    wait: bool,
) -> Option<Call> {
    let peer = &copies.first()?.mirror.node;
    let link = |copy: &Copy| MirrorLink { disk: copy.disk, copy: copy.mirror.uuid, port: None };
    let call = MirrorCall::Start {
        instance: instance.uuid,
        name: instance.name.clone(),
        peer: peer.clone(),
        address: data_address(cluster, peer),
        mirrors: copies.iter().map(link).collect(),
        sync,
        wait,
    };
    Some(Call::Node(instance.primary.clone(), NodeCall::Mirror(call)))
}

fn uuids(copies: &[Copy]) -> Vec<Uuid> {
    copies.iter().map(|copy| copy.mirror.uuid).collect()
}

/// Ends mirrors on the primary.
pub(super) fn stop(instance: &Instance, copies: &[Copy]) -> Call {
    let call = MirrorCall::Stop { instance: instance.uuid, copies: uuids(copies) };
    Call::Node(instance.primary.clone(), NodeCall::Mirror(call))
}

/// Asks the primary what the mirrors do.
pub(super) fn check(instance: &Instance, copies: &[Copy]) -> Call {
    let call = MirrorCall::Check { instance: instance.uuid, copies: uuids(copies) };
    Call::Node(instance.primary.clone(), NodeCall::Mirror(call))
}

/// Asks the node on which the guest ran last whether these copies are the same as its files.
pub(super) fn clean(instance: &Instance, copies: &[Copy]) -> Call {
    let call = MirrorCall::Clean { instance: instance.uuid, copies: uuids(copies) };
    Call::Node(instance.primary.clone(), NodeCall::Mirror(call))
}

/// Tells the primary of a guest that is down that these copies are the same as its files.
pub(super) fn trust(instance: &Instance, copies: &[Copy]) -> Call {
    let disks = copies.iter().map(|copy| copy.disk).collect();
    let call = MirrorCall::Trust { instance: instance.uuid, copies: uuids(copies), disks };
    Call::Node(instance.primary.clone(), NodeCall::Mirror(call))
}

/// Asks the primary before the job goes on from these copies. Those that can't be relied on, as when a mirror broke off a
/// moment before, fail it, and the configuration says so.
pub(super) fn plan_rely(
    plan: Plan,
    cluster: &Cluster,
    instance: &Instance,
    on: &[Copy],
    advice: &str,
) -> Plan {
    if on.is_empty() || !follows(cluster, instance) {
        return plan;
    }
    plan.relies(check(instance, on), relied(instance, on, Witness::Primary, advice))
}

fn relied(instance: &Instance, on: &[Copy], witness: Witness, advice: &str) -> Relied {
    let words = |copy: &Copy| format!("the copy of {} on {}", copy.name.as_str(), copy.mirror.node);
    Relied {
        instance: instance.name.clone(),
        copies: on.iter().map(|copy| (copy.mirror.uuid, words(copy))).collect(),
        known: instance.up,
        witness,
        advice: advice.to_owned(),
    }
}

/// Asks the copies' node, where the primary can't be asked: what served them while the guest ran must do so still. Copies
/// that it does not serve any more fail the job, and are stale from then on. All are on one node. A guest that is down was
/// stopped in order, and its copies have not been served since.
pub(super) fn plan_rely_on_server(
    plan: Plan,
    cluster: &Cluster,
    instance: &Instance,
    on: &[Copy],
    advice: &str,
) -> Plan {
    if !instance.up || !follows(cluster, instance) {
        return plan;
    }
    match served(instance, on) {
        Some(call) => plan.relies(call, relied(instance, on, Witness::Server, advice)),
        None => plan,
    }
}

/// Asks the copies' node whether it has served them to the primary until now; all are on one node.
fn served(instance: &Instance, copies: &[Copy]) -> Option<Call> {
    let node = &copies.first()?.mirror.node;
    let call = MirrorCall::Served { copies: uuids(copies), peer: instance.primary.clone() };
    Some(Call::Node(node.clone(), NodeCall::Mirror(call)))
}

/// How a guest is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Starting {
    /// `--force`.
    pub(super) force: bool,
    /// It is stopped on the way back.
    pub(super) undone: bool,
}

/// Starts a guest whose copies follow where they can. `before` is the instance as it ran last, where that may have been: its
/// primary knows whether the copies are the same as its files; without it they are known to be. The instance is afterwards
/// what [`started`] makes of it.
pub(super) fn plan_start(
    mut plan: Plan,
    cluster: &Cluster,
    before: Option<&Instance>,
    after: &Instance,
    how: Starting,
) -> Plan {
    let followers = match follows(cluster, after) {
        true => followers(cluster, &left_behind(cluster, before, after)),
        false => Vec::new(),
    };
    let guest = common::guest(cluster, after);
    let call = NodeCall::GuestStart { guest, force: how.force, paused: !followers.is_empty() };
    let start_guest = Call::Node(after.primary.clone(), call);
    let stale = set_all(after, &followers, CopyState::Stale);
    let mut sync = Sync::Same;
    if let Some(before) = before.filter(|_| !followers.is_empty()) {
        sync = Sync::Unproven;
        let is_follower =
            |file: Uuid| followers.iter().any(|copy| file == copy.mirror.uuid || file == copy.disk);
        let pairs = copies(before, |mirror| is_follower(mirror.uuid));
        plan = plan.optional(clean(before, &pairs), stale.clone());
    }
    if let Some(serve) = serve(cluster, after, &followers) {
        plan = plan.optional(serve, stale.clone());
    }
    plan = if how.undone {
        plan.step(start_guest, parts::guest_stop(after, parts::SHUTDOWN_TIMEOUT_MS))
    } else {
        plan.harmless(start_guest)
    };
    if let Some(mirror) = start(cluster, after, &followers, sync, true) {
        let resume = NodeCall::GuestResume { instance: after.uuid, name: after.name.clone() };
        plan = plan.optional(mirror, stale).harmless(Call::Node(after.primary.clone(), resume));
    }
    plan
}

/// The instance once its guest was started by [`plan_start`].
pub(super) fn started(cluster: &Cluster, before: Option<&Instance>, after: &Instance) -> Instance {
    let started = Instance { up: true, ..after.clone() };
    if follows(cluster, after) { left_behind(cluster, before, &started) } else { started }
}

/// The instance in its new places while its guest is down.
pub(super) fn stopped(cluster: &Cluster, before: &Instance, after: &Instance) -> Instance {
    if follows(cluster, after) { left_behind(cluster, Some(before), after) } else { after.clone() }
}

/// The instance once its disks were written to: copies that nobody can make follow are stale.
pub(super) fn left_behind(cluster: &Cluster, before: Option<&Instance>, after: &Instance) -> Instance {
    let mut left = after.clone();
    let asked = before.is_none_or(|before| common::node_online(cluster, &before.primary).is_ok());
    for copy in left.disks.iter_mut().flat_map(|disk| &mut disk.mirrors) {
        let follows = asked && common::node_online(cluster, &copy.node).is_ok();
        if copy.state == CopyState::Consistent && !follows {
            copy.state = CopyState::Stale;
        }
    }
    left
}

/// Ends serving copies that are all on one node.
pub(super) fn release(copies: &[Copy]) -> Option<Call> {
    let node = &copies.first()?.mirror.node;
    Some(Call::Node(node.clone(), NodeCall::Mirror(MirrorCall::Release { copies: uuids(copies) })))
}

/// After a stop: the copies are what their mirrors were at the guest's end; a mirror may have broken off, or have come in
/// sync, a moment before. `stopped` is what the configuration says of the instance otherwise.
pub(super) fn plan_stopped(plan: Plan, cluster: &Cluster, instance: &Instance, stopped: Instance) -> Plan {
    let all = copies(instance, |_| true);
    let plan = plan.edit(Edit::InstancePut { instance: Box::new(stopped) });
    if !instance.up || !follows(cluster, instance) || all.is_empty() {
        return plan;
    }
    let consistent = copies(instance, |mirror| mirror.state == CopyState::Consistent);
    plan.optional(check(instance, &all), set_all(instance, &consistent, CopyState::Stale))
        .edit(Edit::CopiesSettle { instance: instance.name.clone(), mirrors: Default::default() })
}

/// After somebody has made sure that the guest of a primary that can't be asked is off: the copies are what their nodes can
/// vouch for. `stopped` is what the configuration says of the instance otherwise.
pub(super) fn plan_gone(mut plan: Plan, cluster: &Cluster, instance: &Instance, stopped: Instance) -> Plan {
    plan = plan.edit(Edit::InstancePut { instance: Box::new(stopped) });
    let consistent = copies(instance, |mirror| mirror.state == CopyState::Consistent);
    if !instance.up || !follows(cluster, instance) || consistent.is_empty() {
        return plan;
    }
    let nodes: BTreeSet<&NodeName> = consistent.iter().map(|copy| &copy.mirror.node).collect();
    for node in nodes {
        let here: Vec<Copy> = consistent.iter().filter(|copy| copy.mirror.node == *node).cloned().collect();
        let stale = set_all(instance, &here, CopyState::Stale);
        let asked = served(instance, &here).filter(|_| common::node_online(cluster, node).is_ok());
        plan = match asked {
            Some(call) => plan.optional(call, stale),
            None => stale.into_iter().fold(plan, Plan::edit),
        };
    }
    plan.edit(Edit::CopiesSettle { instance: instance.name.clone(), mirrors: Default::default() })
}

/// Ends serving the copies of a guest that was stopped; where that fails the copy's next use ends it.
pub(super) fn plan_release(plan: Plan, cluster: &Cluster, instance: &Instance) -> Plan {
    let served = copies(instance, |mirror| common::node_online(cluster, &mirror.node).is_ok());
    match served.first() {
        Some(first) if follows(cluster, instance) => {
            let call = NodeCall::Mirror(MirrorCall::Release { copies: uuids(&served) });
            plan.cleanup_once(Call::Node(first.mirror.node.clone(), call))
        }
        Some(_) | None => plan,
    }
}

/// Ends mirrors after the commit that gave their copies up.
pub(super) fn plan_end(plan: Plan, cluster: &Cluster, instance: &Instance, copies: &[Copy]) -> Plan {
    if !follows(cluster, instance) || copies.is_empty() {
        return plan;
    }
    plan.cleanup(stop(instance, copies))
}

/// Makes new copies hold what their disks hold, beside a guest that may compute.
pub(super) fn plan_fill(mut plan: Plan, cluster: &Cluster, instance: &Instance, new: &[Copy]) -> Plan {
    if follows_now(cluster, instance) {
        let (serve, start) = (serve(cluster, instance, new), start(cluster, instance, new, Sync::Full, true));
        if let (Some(serve), Some(start)) = (serve, start) {
            plan = plan.harmless(serve).step(start, stop(instance, new));
        }
        return plan;
    }
    for copy in new {
        plan = plan.harmless(copied(instance, copy));
    }
    plan_trust(plan, cluster, instance, new)
}

/// Notes that copies were made the same as their disks while the guest was down.
pub(super) fn plan_trust(plan: Plan, cluster: &Cluster, instance: &Instance, same: &[Copy]) -> Plan {
    if cluster.hypervisor.kind != HypervisorKind::Qemu || same.is_empty() {
        return plan;
    }
    plan.harmless(trust(instance, same))
}

/// Copies a disk of a guest that is down to its copy.
pub(super) fn copied(instance: &Instance, copy: &Copy) -> Call {
    let from = (&instance.primary, Image::Disk { disk: copy.disk });
    parts::copy(from, (&copy.mirror.node, Image::Disk { disk: copy.mirror.uuid }))
}

/// Brings copies up to date with what was just written to the disks of a guest that is down; those that can't be reached
/// are stale; so are those on nodes marked offline, as [`left_behind`] says.
pub(super) fn plan_refresh(mut plan: Plan, cluster: &Cluster, instance: &Instance) -> Plan {
    let reached = followers(cluster, instance);
    for copy in &reached {
        let stale = set_all(instance, std::slice::from_ref(copy), CopyState::Stale);
        plan = plan.optional(copied(instance, copy), stale);
    }
    if follows(cluster, instance) && !reached.is_empty() {
        // Without it they are brought in sync once more at the next start.
        plan = plan.optional(trust(instance, &reached), Vec::new());
    }
    plan
}

/// Whether the guest computes, so that its copies must follow. (One that has no copies yet may get some.)
fn follows_now(cluster: &Cluster, instance: &Instance) -> bool {
    cluster.hypervisor.kind == HypervisorKind::Qemu && instance.up
}
