//! OP_INSTANCE_ADD_MDDRBD: one disk of an instance gets one more copy on the secondary node.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples, mirroring, networks, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, DiskName, DiskTemplate, Instance},
    names::{InstanceName, NodeName},
};

/// Adds a copy of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorAdd {
    /// The instance.
    pub instance: InstanceName,
    /// The disk.
    pub disk: DiskName,
    /// The node that gets the copy.
    pub node: NodeName,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
    uuid: Uuid,
}

/// The node may hold copies of this instance.
fn check_node(op: &MirrorAdd, cluster: &Cluster, instance: &Instance) -> Result<(), Refusal> {
    common::node_for_instances(cluster, &op.node)?;
    if op.node == instance.primary {
        return Err(Refusal(format!(
            "node {} is the primary of {}: a copy goes elsewhere",
            op.node, op.instance
        )));
    }
    networks::node_for(cluster, instance, &op.node)?;
    match parts::secondary(instance) {
        Some(other) if other != op.node => Err(Refusal(format!(
            "{} has the secondary {other} already: an instance has one at most",
            op.instance
        ))),
        Some(_) | None => Ok(()),
    }
}

impl Operation for MirrorAdd {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_ADD_MDDRBD",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "mirror-add", op_code: "OP_INSTANCE_ADD_MDDRBD" }),
        hooks2: Some(HookRow2::both("mirror-add", "OP_INSTANCE_ADD_MDDRBD")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("instance", &self.instance).shared("node", &self.node);
        locks.shared("instance-networks", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = parts::instance_reachable(given.cluster, &self.instance)?.clone();
        check_node(self, given.cluster, &before)?;
        let uuid = parts::fresh_uuid(given, parts::FILES);
        let mut after = Instance { template: DiskTemplate::Mirror, ..before.clone() };
        let mirror = parts::new_mirror(&mut after, &self.node, uuid, CopyState::Consistent);
        let disk = after.disks.iter_mut().find(|disk| disk.name == self.disk);
        let disk =
            disk.ok_or_else(|| Refusal(format!("{} has no disk {}", self.instance, self.disk.as_str())))?;
        if disk.mirrors.len() >= parts::COPIES_MAX {
            return Err(Refusal(format!(
                "disk {} of {} has {} copies, the most there may be: remove one first",
                self.disk.as_str(),
                self.instance,
                disk.mirrors.len()
            )));
        }
        disk.mirrors.push(mirror);
        Ok(Checked { before, after, uuid })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes_and(given, &checked.before, &self.node)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("NEW_SECONDARY", self.node.as_str())
            .set("DISK_NAME", self.disk.as_str())
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let own = Env::new().set("NEW_SECONDARY", self.node.as_str()).set("DISK_NAME", self.disk.as_str());
        Hooks2::instance(given, &checked.before).on(self.hook_nodes(given, checked)).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let size_mib = checked.before.disk_size_mib(self.disk);
        let plan = parts::plan_disk(Plan::new(), &self.node, checked.uuid, size_mib);
        let new = mirroring::copies(&checked.after, |mirror| mirror.uuid == checked.uuid);
        mirroring::plan_fill(plan, given.cluster, &checked.after, &new)
            .edit(Edit::InstancePut { instance: Box::new(checked.after.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let add = |name: &str, disk: DiskName, node: &str| {
            let (instance, node) = (examples::instance_name(name), examples::node_name(node));
            (examples::cluster(), examples::fresh(), MirrorAdd { instance, disk, node })
        };
        let (_, fresh, real) = add("mail1", DiskName::Sda, "node3");
        vec![
            add("web1", DiskName::Sdb, "node2"),
            add("mail1", DiskName::Sda, "node3"),
            (examples::in_sync("mail1"), fresh, real),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, name: &str, disk: DiskName, node: &str, text: &str) {
        let (instance, node) = (examples::instance_name(name), examples::node_name(node));
        let op = MirrorAdd { instance, disk, node };
        examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        let cluster = examples::cluster();
        check(&cluster, "mail2", DiskName::Sda, "node3", "there is no instance mail2");
        check(&cluster, "null1", DiskName::Sda, "node3", "null1 has no disk sda");
        check(&cluster, "db1", DiskName::Sdb, "node3", "db1 has no disk sdb");
        check(&cluster, "web1", DiskName::Sda, "node1", "node node1 is the primary of web1");
        check(&cluster, "mail1", DiskName::Sda, "node1", "mail1 has the secondary node3 already");
        check(&cluster, "web1", DiskName::Sda, "node9", "there is no node node9");
        check(&examples::offline("node3"), "web1", DiskName::Sda, "node3", "node node3 is marked offline");
        check(&examples::second_copy("mail1"), "mail1", DiskName::Sda, "node3", "has 2 copies");
    }

    #[test]
    fn a_new_copy_has_a_new_disk_id_and_all_data() {
        let (cluster, fresh, op) = MirrorAdd::examples().remove(1);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        let [Edit::InstancePut { instance }] = &plan.edits[..] else { panic!("one edit") };
        let copies: Vec<(u32, CopyState)> =
            instance.disks[0].mirrors.iter().map(|copy| (copy.id, copy.state)).collect();
        assert_eq!(copies, [(1, CopyState::Stale), (3, CopyState::Consistent)]);
    }
}
