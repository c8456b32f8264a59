//! OP_INSTANCE_MOVE: an instance without copies goes to another node; it is down while its disks are copied there.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common,
    examples, hooks2, networks, parts,
};
use crate::{
    calls::Image,
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, DiskTemplate, Instance},
    names::{InstanceName, NodeName},
};

/// Moves an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceMove {
    /// The instance.
    pub instance: InstanceName,
    /// Where it goes.
    pub node: NodeName,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
}

/// What has nothing on its node can leave one that is marked offline.
fn check_left(before: &Instance) -> Result<(), Refusal> {
    let (name, node) = (&before.name, &before.primary);
    if before.up {
        return Err(Refusal(format!(
            "node {node} is marked offline, and {name} is up there: gnt-instance shutdown marks it down first"
        )));
    }
    if !before.disks.is_empty() {
        return Err(Refusal(format!(
            "node {node} is marked offline, and has the disks of {name}: gnt-instance recreate-disks -n NODE makes them \
             anew elsewhere, empty"
        )));
    }
    Ok(())
}

impl Operation for InstanceMove {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_MOVE",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("instance-move", "OP_INSTANCE_MOVE")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part()
            .exclusive("instance", &self.instance)
            .shared("node", &self.node)
            .shared("instance-networks", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = common::instance(given.cluster, &self.instance)?.clone();
        match before.template {
            DiskTemplate::Diskless | DiskTemplate::File => {}
            DiskTemplate::Mirror => {
                return Err(Refusal(format!(
                    "{} has the template mirror: replace its secondary by {} (replace-disks -n) and migrate it or fail it \
                     over",
                    self.instance, self.node
                )));
            }
        }
        if common::node(given.cluster, &before.primary)?.offline {
            check_left(&before)?;
        } else {
            parts::instance_reachable(given.cluster, &self.instance)?;
        }
        if self.node == before.primary {
            return Err(Refusal(format!("{} is on node {} already", self.instance, self.node)));
        }
        common::node_for_instances(given.cluster, &self.node)?;
        networks::node_for(given.cluster, &before, &self.node)?;
        let generation = before.generation + 1;
        let mut after = Instance { primary: self.node.clone(), generation, ..before.clone() };
        for (index, disk) in after.disks.iter_mut().enumerate() {
            disk.uuid = parts::fresh_uuid(given, parts::FILES + index);
        }
        Ok(Checked { before, after })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let before = &checked.before;
        let nodes = vec![given.cluster.master.clone(), before.primary.clone(), self.node.clone()];
        let own = Env::new()
            .set("TARGET_NODE", self.node.as_str())
            .set("SHUTDOWN_TIMEOUT", hooks2::seconds(parts::SHUTDOWN_TIMEOUT_MS));
        Hooks2::instance(given, before).on(HookNodes::both(nodes)).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { before, after } = checked;
        let mut plan = Plan::new();
        for disk in &after.disks {
            plan = parts::plan_disk(plan, &after.primary, disk.uuid, disk.size_mib);
        }
        if common::node_online(given.cluster, &before.primary).is_ok() {
            // Also where nobody wants it up: a guest that runs all the same would write to what is copied.
            plan = parts::plan_stop(plan, given.cluster, before, parts::SHUTDOWN_TIMEOUT_MS);
        }
        let image = |uuid: Uuid| Image::Disk { disk: uuid };
        for (old, new) in before.disks.iter().zip(&after.disks) {
            let (from, to) = ((&before.primary, image(old.uuid)), (&after.primary, image(new.uuid)));
            plan = plan.harmless(parts::copy(from, to));
        }
        if after.up {
            plan = parts::plan_elsewhere(plan, given, after);
            let start = parts::guest_start(given.cluster, after, false);
            plan = plan.step(start, parts::guest_stop(after, parts::SHUTDOWN_TIMEOUT_MS));
        }
        plan = plan.edit(Edit::InstancePut { instance: Box::new(after.clone()) });
        for old in &before.disks {
            plan = plan.cleanup(parts::disk_remove(&before.primary, old.uuid));
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let moved = |cluster: Cluster, name: &str, node: &str| {
            let (instance, node) = (examples::instance_name(name), examples::node_name(node));
            (cluster, examples::fresh(), InstanceMove { instance, node })
        };
        let mut down = examples::cluster();
        down.instances.get_mut(&examples::instance_name("web1")).expect("it is an example").up = false;
        let mut left = examples::offline("node1");
        left.master = examples::node_name("node2");
        left.instances.get_mut(&examples::instance_name("null1")).expect("it is an example").up = false;
        vec![
            moved(examples::cluster(), "web1", "node3"),
            moved(examples::cluster(), "null1", "node2"),
            moved(down, "web1", "node2"),
            moved(left, "null1", "node2"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, node: &str, text: &str| {
            let op =
                InstanceMove { instance: examples::instance_name(name), node: examples::node_name(node) };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let cluster = examples::cluster();
        check(&cluster, "web3", "node2", "there is no instance web3");
        check(&cluster, "web1", "node9", "there is no node node9");
        check(&cluster, "web1", "node1", "web1 is on node node1 already");
        check(&cluster, "mail1", "node1", "mail1 has the template mirror: replace its secondary by node1");
        check(&examples::drained("node2"), "web1", "node2", "node node2 is drained");
        check(&examples::offline("node2"), "web1", "node2", "node node2 is marked offline");
        check(&examples::hooks_only("node2"), "web1", "node2", "node node2 runs hooks only");
        let mut left = examples::offline("node1");
        check(&left, "web1", "node2", "and web1 is up there: gnt-instance shutdown marks it down");
        left.instances.get_mut(&examples::instance_name("web1")).unwrap().up = false;
        check(&left, "web1", "node2", "and has the disks of web1: gnt-instance recreate-disks -n NODE makes");
    }

    #[test]
    fn files_are_new_and_the_old_ones_go_after_the_commit() {
        let (cluster, fresh, op) = InstanceMove::examples().remove(0);
        let before = &cluster.instances[&op.instance];
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        let [Edit::InstancePut { instance: after }] = &plan.edits[..] else { panic!("one edit") };
        assert_eq!((after.primary.as_str(), after.generation), ("node3", before.generation + 1));
        assert!(after.disks.iter().zip(&before.disks).all(|(new, old)| new.uuid != old.uuid));
        // Two files made, a stop, two copies, a start.
        assert_eq!((plan.steps.len(), plan.cleanups.len()), (6, 2));
    }
}
