//! Parts of plans: guest and disk calls, what a running guest means for its copies, which fresh uuid is for what.

use uuid::Uuid;

use super::{Given, HookNodes, Plan, Refusal, common};
use crate::{
    calls::{Call, Image, MasterCall, NodeCall},
    model::{Cluster, CopyState, Disk, Instance, Mirror},
    names::{InstanceName, NodeName},
};

/// Position of the uuid of a new instance, node, client or export.
pub(super) const OBJECT: usize = 0;
/// Position of the first new disk file's uuid; the others follow in the order in which the plan makes them. At most
/// two disks with two files each are made.
pub(super) const FILES: usize = 1;

/// How long a guest may take to shut down cleanly where the operator gives no limit.
pub(super) const SHUTDOWN_TIMEOUT_MS: u64 = 120_000;

/// At most this many copies of one disk, so that one can be added before the other is removed.
pub(super) const COPIES_MAX: usize = 2;

/// The first DISK_ID of an instance.
pub(super) const MIRROR_ID_FIRST: u32 = 1;

/// A uuid drawn at submit.
pub(super) fn fresh_uuid(given: Given<'_>, position: usize) -> Uuid {
    *given.fresh.uuids.get(position).expect("the driver draws FRESH_UUIDS uuids for each job")
}

/// An instance whose primary can be worked with, or a refusal.
pub(super) fn instance_reachable<'a>(
    cluster: &'a Cluster,
    name: &InstanceName,
) -> Result<&'a Instance, Refusal> {
    let found = common::instance(cluster, name)?;
    common::node_with_disks(cluster, &found.primary)
        .map_err(|why| Refusal(format!("the primary of {name} can't be worked with: {why}")))?;
    Ok(found)
}

/// Refuses what can't be done while the guest runs.
pub(super) fn refuse_up(instance: &Instance) -> Result<(), Refusal> {
    if instance.up {
        return Err(Refusal(format!("instance {} is up: shut it down first", instance.name)));
    }
    Ok(())
}

/// M P S in both phases.
pub(super) fn instance_nodes(given: Given<'_>, instance: &Instance) -> HookNodes {
    HookNodes::both(common::master_primary_secondaries(given.cluster, instance))
}

/// M P S and one node more, in both phases.
pub(super) fn instance_nodes_and(given: Given<'_>, instance: &Instance, more: &NodeName) -> HookNodes {
    let mut nodes = common::master_primary_secondaries(given.cluster, instance);
    nodes.push(more.clone());
    HookNodes::both(nodes)
}

/// Starts an instance's guest on its primary.
pub(super) fn guest_start(cluster: &Cluster, instance: &Instance, force: bool) -> Call {
    let guest = common::guest(cluster, instance);
    Call::Node(instance.primary.clone(), NodeCall::GuestStart { guest, force, paused: false })
}

/// Stops an instance's guest on its primary.
pub(super) fn guest_stop(instance: &Instance, timeout_ms: u64) -> Call {
    let (uuid, name) = (instance.uuid, instance.name.clone());
    Call::Node(instance.primary.clone(), NodeCall::GuestStop { instance: uuid, name, timeout_ms })
}

/// Sees to it that the guest runs nowhere else before it is started: an undo that failed may have left it running.
/// A node marked offline is taken to be down.
pub(super) fn plan_elsewhere(plan: Plan, given: Given<'_>, instance: &Instance) -> Plan {
    let left = given.undone.iter().filter(|undo| {
        let node = undo.node().and_then(|name| given.cluster.nodes.get(name));
        node.is_some_and(|node| !node.offline)
            && guest_start(given.cluster, instance, false).unsafe_after(undo)
    });
    left.fold(plan, |plan, undo| plan.harmless(undo.clone()))
}

/// Makes sure that no guest runs, and starts it again on the way back where one is wanted.
pub(super) fn plan_stop(plan: Plan, cluster: &Cluster, instance: &Instance, timeout_ms: u64) -> Plan {
    let stop = guest_stop(instance, timeout_ms);
    if instance.up {
        plan.step(stop, guest_start(cluster, instance, false))
    } else {
        // Stopping what is down is fine; a guest that nobody wants up is not started again.
        plan.harmless(stop)
    }
}

/// Makes a disk's file, and removes it on the way back.
pub(super) fn plan_disk(plan: Plan, node: &NodeName, disk: Uuid, size_mib: u64) -> Plan {
    let create = Call::Node(node.clone(), NodeCall::DiskCreate { disk, size_mib });
    plan.step(create, disk_remove(node, disk))
}

/// Removes a disk's file.
pub(super) fn disk_remove(node: &NodeName, disk: Uuid) -> Call {
    Call::Node(node.clone(), NodeCall::DiskRemove { disk })
}

/// Copies an image from a node to a node.
pub(super) fn copy(from: (&NodeName, Image), to: (&NodeName, Image)) -> Call {
    Call::Master(MasterCall::CopyImage {
        from_node: from.0.clone(),
        from: from.1,
        to_node: to.0.clone(),
        to: to.1,
    })
}

/// A new copy that does not hold the disk's data, with the instance's next DISK_ID.
pub(super) fn new_mirror(instance: &mut Instance, node: &NodeName, uuid: Uuid, state: CopyState) -> Mirror {
    let id = instance.next_mirror_id;
    instance.next_mirror_id += 1;
    Mirror { id, node: node.clone(), uuid, state }
}

/// The one secondary of an instance, where it has one.
pub(super) fn secondary(instance: &Instance) -> Option<NodeName> {
    instance.secondaries().into_iter().next()
}

/// All files of a disk, each with its node.
pub(super) fn files<'a>(
    instance: &'a Instance,
    disk: &'a Disk,
) -> impl Iterator<Item = (&'a NodeName, Uuid)> + 'a {
    let copies = disk.mirrors.iter().map(|copy| (&copy.node, copy.uuid));
    std::iter::once((&instance.primary, disk.uuid)).chain(copies)
}
