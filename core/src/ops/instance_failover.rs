//! OP_INSTANCE_FAILOVER: an instance goes on from its copies on the secondary node; the nodes change places.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, Disk, DiskTemplate, Instance, Mirror},
    names::{InstanceName, NodeName},
};

/// Fails an instance over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceFailover {
    /// The instance.
    pub instance: InstanceName,
    /// Goes on from copies that miss writes.
    pub ignore_consistency: bool,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
    /// Second copies of a disk on the new primary, which have no use there.
    spare: Vec<Mirror>,
    old_primary_offline: bool,
}

/// Best first.
fn rank(copy: &Mirror) -> u8 {
    match copy.state {
        CopyState::Consistent => 0,
        CopyState::Stale => 1,
        CopyState::Inconsistent => 2,
    }
}

/// The disk after the change of places, and the copies that are left over.
fn check_disk(
    op: &InstanceFailover,
    instance: &Instance,
    disk: &Disk,
) -> Result<(Disk, Vec<Mirror>), Refusal> {
    let name = disk.name.as_str();
    let mut copies = disk.mirrors.clone();
    copies.sort_by_key(rank);
    let mut copies = copies.into_iter();
    let Some(taken) = copies.next() else {
        return Err(Refusal(format!("disk {name} of {} has no copy: add a mirror first", instance.name)));
    };
    if taken.state != CopyState::Consistent && !op.ignore_consistency {
        return Err(Refusal(format!(
            "the copy of {name} on {} is {}: it misses writes (--ignore-consistency goes on without them)",
            taken.node,
            taken.state.as_str()
        )));
    }
    // Two equal files are equal the other way round too; of two that differ, the old primary's is the one left behind.
    let state = match taken.state {
        CopyState::Consistent => CopyState::Consistent,
        CopyState::Stale | CopyState::Inconsistent => CopyState::Stale,
    };
    let old = Mirror { id: taken.id, node: instance.primary.clone(), uuid: disk.uuid, state };
    Ok((Disk { uuid: taken.uuid, mirrors: vec![old], ..disk.clone() }, copies.collect()))
}

impl Operation for InstanceFailover {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_FAILOVER",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-failover", op_code: "OP_INSTANCE_FAILOVER" }),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = common::instance(given.cluster, &self.instance)?.clone();
        if before.template != DiskTemplate::Mirror {
            return Err(Refusal(format!(
                "{} has the template {}: only mirror can fail over",
                self.instance,
                before.template.as_str()
            )));
        }
        let new_primary: NodeName = parts::secondary(&before)
            .ok_or_else(|| Refusal(format!("{} has no secondary node: add a mirror first", self.instance)))?;
        common::node_with_disks(given.cluster, &new_primary)?;
        let old_primary_offline = common::node(given.cluster, &before.primary)?.offline;
        let mut after = Instance { primary: new_primary, disks: Vec::new(), ..before.clone() };
        let mut spare = Vec::new();
        for disk in &before.disks {
            let (disk, left) = check_disk(self, &before, disk)?;
            after.disks.push(disk);
            spare.extend(left);
        }
        Ok(Checked { before, after, spare, old_primary_offline })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.before)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("OLD_PRIMARY", checked.before.primary.as_str())
            .set("NEW_PRIMARY", checked.after.primary.as_str())
            .flag("IGNORE_CONSISTENCY", self.ignore_consistency)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { before, after, spare, old_primary_offline } = checked;
        let mut plan = Plan::new();
        // A primary that does not answer fails the failover, lest the guest runs twice. Who marks it offline says that
        // it is down.
        if !old_primary_offline {
            plan = parts::plan_stop(plan, given.cluster, before, parts::SHUTDOWN_TIMEOUT_MS);
        }
        if after.up {
            plan = parts::plan_elsewhere(plan, given, after);
            let stop = parts::guest_stop(after, parts::SHUTDOWN_TIMEOUT_MS);
            plan = plan.step(parts::guest_start(given.cluster, after, false), stop);
        }
        plan = plan.edit(Edit::InstancePut { instance: Box::new(after.clone()) });
        for copy in spare {
            plan = plan.cleanup(parts::disk_remove(&copy.node, copy.uuid));
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let failover = |cluster: Cluster, name: &str, ignore_consistency: bool| {
            let instance = examples::instance_name(name);
            (cluster, examples::fresh(), InstanceFailover { instance, ignore_consistency })
        };
        vec![
            failover(examples::cluster(), "mail1", true),
            failover(examples::cluster(), "db1", false),
            failover(examples::offline("node2"), "mail1", true),
            failover(examples::second_copy("mail1"), "mail1", true),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, name: &str, text: &str) {
        let op = InstanceFailover { instance: examples::instance_name(name), ignore_consistency: false };
        examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        let mut cluster = examples::cluster();
        check(&cluster, "mail2", "there is no instance mail2");
        check(&cluster, "web1", "web1 has the template file: only mirror can fail over");
        check(&cluster, "mail1", "the copy of sda on node3 is stale");
        check(&examples::offline("node3"), "db1", "node node3 is marked offline");
        let db1 = cluster.instances.get_mut(&examples::instance_name("db1")).unwrap();
        db1.disks[0].mirrors.clear();
        check(&cluster, "db1", "db1 has no secondary node");
    }

    #[test]
    fn the_nodes_and_their_files_change_places() {
        for (cluster, fresh, op) in InstanceFailover::examples() {
            let before = cluster.instances[&op.instance].clone();
            let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
            let [Edit::InstancePut { instance: after }] = &prepared.plan.edits[..] else {
                panic!("one edit")
            };
            assert_eq!(after.primary, before.secondaries()[0]);
            assert_eq!(after.secondaries(), std::slice::from_ref(&before.primary));
            for (new, old) in after.disks.iter().zip(&before.disks) {
                assert_eq!(new.mirrors[0].uuid, old.uuid);
                assert_eq!(new.uuid, old.mirrors[0].uuid);
                assert_eq!(new.mirrors[0].id, old.mirrors[0].id);
                assert_eq!(new.mirrors[0].state == CopyState::Consistent, !before.up);
            }
        }
    }
}
