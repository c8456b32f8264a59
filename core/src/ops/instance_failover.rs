//! OP_INSTANCE_FAILOVER: an instance goes on from its copies on the secondary node; the nodes change places.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples,
    fencing::{self, OldPrimary},
    hooks2,
    mirroring::{self, Copy, Starting},
    parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, Disk, DiskTemplate, Instance, Mirror},
    names::{InstanceName, NodeName},
};

/// What can be done where the copies miss writes.
const ADVICE: &str = "wait until it is in sync again; --ignore-consistency goes on without what it misses";

/// What can be done where nobody has served a copy all the time.
const ADVICE_UNSERVED: &str = "the guest may have gone on without it; where it did not, as when all nodes lost their power \
                               at once, or what it misses is given up, --ignore-consistency goes on from it";

/// Fails an instance over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceFailover {
    /// The instance.
    pub instance: InstanceName,
    /// Goes on from copies that miss writes.
    pub ignore_consistency: bool,
    /// The operator has made sure that the old primary, which is marked offline, runs the guest no more.
    pub fenced: bool,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
    /// Second copies of a disk on the new primary, which have no use there.
    spare: Vec<Mirror>,
    old_primary: OldPrimary,
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

/// The copies that the guest goes on from, and that hold everything as far as the configuration says.
fn relied_on(op: &InstanceFailover, before: &Instance, after: &Instance) -> Vec<Copy> {
    if op.ignore_consistency {
        return Vec::new();
    }
    mirroring::copies(before, |copy| after.disks.iter().any(|disk| disk.uuid == copy.uuid))
}

impl Operation for InstanceFailover {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_FAILOVER",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-failover", op_code: "OP_INSTANCE_FAILOVER" }),
        hooks2: Some(HookRow2::both("instance-failover", "OP_INSTANCE_FAILOVER")),
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
        let old_primary = fencing::check_old_primary(given.cluster, &before, self.fenced)?;
        let generation = before.generation + 1;
        let mut after = Instance { primary: new_primary, disks: Vec::new(), generation, ..before.clone() };
        let mut spare = Vec::new();
        for disk in &before.disks {
            let (disk, left) = check_disk(self, &before, disk)?;
            after.disks.push(disk);
            spare.extend(left);
        }
        Ok(Checked { before, after, spare, old_primary })
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

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let own = Env::new()
            .boolean("IGNORE_CONSISTENCY", self.ignore_consistency)
            .set("SHUTDOWN_TIMEOUT", hooks2::seconds(parts::SHUTDOWN_TIMEOUT_MS));
        hooks2::turned(given, &checked.before, &checked.after.primary).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { before, after, spare, old_primary } = checked;
        let mut plan = Plan::new();
        let on = relied_on(self, before, after);
        let rely_on_server =
            |plan| mirroring::plan_rely_on_server(plan, given.cluster, before, &on, ADVICE_UNSERVED);
        match old_primary {
            // A primary that does not answer fails the failover, lest the guest runs twice.
            OldPrimary::Stops => {
                let rely = |plan| mirroring::plan_rely(plan, given.cluster, before, &on, ADVICE);
                if before.up {
                    // Nothing is stopped in vain.
                    plan = rely(plan);
                }
                plan = parts::plan_stop(plan, given.cluster, before, parts::SHUTDOWN_TIMEOUT_MS);
                // A mirror may break off while the guest shuts down; then the guest goes on where it was.
                plan = rely(plan);
            }
            // It can't be asked: the new one is, before anything is done, and once nothing is written any more.
            OldPrimary::Fence { address, command } => {
                plan = rely_on_server(plan);
                plan = rely_on_server(fencing::plan_fence(plan, before, *address, command));
            }
            OldPrimary::Gone => plan = rely_on_server(plan),
        }
        // Nobody can say any more what an offline primary's file holds.
        let mut turned = mirroring::stopped(given.cluster, before, after);
        if after.up {
            plan = parts::plan_elsewhere(plan, given, after);
            let how = Starting { force: false, undone: true };
            plan = mirroring::plan_start(plan, given.cluster, Some(before), after, how);
            turned = mirroring::started(given.cluster, Some(before), after);
        }
        plan = plan.edit(Edit::InstancePut { instance: Box::new(turned) });
        for copy in spare {
            plan = plan.cleanup(parts::disk_remove(&copy.node, copy.uuid));
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let failover = |cluster: Cluster, name: &str, ignore_consistency: bool| {
            let instance = examples::instance_name(name);
            (cluster, examples::fresh(), InstanceFailover { instance, ignore_consistency, fenced: false })
        };
        vec![
            failover(examples::cluster(), "mail1", true),
            failover(examples::cluster(), "db1", false),
            failover(examples::offline("node2"), "mail1", true),
            failover(examples::second_copy("mail1"), "mail1", true),
            failover(examples::in_sync("mail1"), "mail1", false),
            failover(examples::fenced("mail1"), "mail1", false),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, name: &str, text: &str) {
        let op = InstanceFailover {
            instance: examples::instance_name(name),
            ignore_consistency: false,
            fenced: false,
        };
        examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        let mut cluster = examples::cluster();
        check(&cluster, "mail2", "there is no instance mail2");
        check(&cluster, "web1", "web1 has the template file: only mirror can fail over");
        check(&cluster, "mail1", "the copy of sda on node3 is stale");
        check(&examples::offline("node3"), "db1", "node node3 is marked offline");
        let mut unfenced = examples::fenced("mail1");
        unfenced.fence_command = None;
        check(&unfenced, "mail1", "node node2 is marked offline, and its guests may still run: name a fence");
        let db1 = cluster.instances.get_mut(&examples::instance_name("db1")).unwrap();
        db1.disks[0].mirrors.clear();
        check(&cluster, "db1", "db1 has no secondary node");
    }

    #[test]
    fn an_offline_primary_is_fenced_by_the_sites_command_or_by_the_operator() {
        let steps = |cluster: &Cluster, fenced: bool| -> Vec<String> {
            let instance = examples::instance_name("mail1");
            let op = InstanceFailover { instance, ignore_consistency: false, fenced };
            let prepared = examples::prepared(&op, cluster, &examples::fresh(), &cluster.master);
            prepared.plan.steps.iter().map(|step| step.call.text()).collect()
        };
        let cluster = examples::fenced("mail1");
        let ask = "ask whether copies are still served to node2";
        assert_eq!(steps(&cluster, false), [ask, "fence node2", ask, "start mail1"]);
        assert_eq!(steps(&cluster, true), [ask, "start mail1"]);
        let mut down = cluster;
        down.instances.get_mut(&examples::instance_name("mail1")).unwrap().up = false;
        assert_eq!(
            steps(&down, true),
            Vec::<String>::new(),
            "its copies are what they were when it was stopped"
        );
    }

    #[test]
    fn the_primary_is_asked_what_its_mirrors_do_before_and_after_its_guest_is_stopped() {
        let steps = |cluster: &Cluster, ignore_consistency: bool| -> Vec<String> {
            let instance = examples::instance_name("mail1");
            let op = InstanceFailover { instance, ignore_consistency, fenced: false };
            let prepared = examples::prepared(&op, cluster, &examples::fresh(), &cluster.master);
            prepared.plan.steps.iter().take(3).map(|step| step.call.text()).collect()
        };
        let ask = "ask what the mirrors do";
        let mut cluster = examples::in_sync("mail1");
        assert_eq!(steps(&cluster, false), [ask, "stop mail1", ask]);
        assert_eq!(steps(&cluster, true)[0], "stop mail1");
        cluster.instances.get_mut(&examples::instance_name("mail1")).unwrap().up = false;
        assert_eq!(steps(&cluster, false), ["stop mail1", ask]);
    }

    #[test]
    fn the_nodes_and_their_files_change_places() {
        for (cluster, fresh, op) in InstanceFailover::examples() {
            let before = cluster.instances[&op.instance].clone();
            let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
            let [Edit::InstancePut { instance: after }] = &prepared.plan.edits[..] else {
                panic!("one edit")
            };
            let left_behind = cluster.nodes[&before.primary].offline;
            assert_eq!(after.generation, before.generation + 1);
            assert_eq!(after.primary, before.secondaries()[0]);
            assert_eq!(after.secondaries(), std::slice::from_ref(&before.primary));
            for (new, old) in after.disks.iter().zip(&before.disks) {
                assert_eq!(new.mirrors[0].uuid, old.uuid);
                assert_eq!(new.uuid, old.mirrors[0].uuid);
                assert_eq!(new.mirrors[0].id, old.mirrors[0].id);
                let expected = if left_behind { CopyState::Stale } else { old.mirrors[0].state };
                assert_eq!(new.mirrors[0].state, expected);
            }
        }
    }
}
