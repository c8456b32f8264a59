//! OP_INSTANCE_REMOVE_MDDRBD: one copy of a disk goes, and its file after it.
//!
//! The template stays `mirror` also without the last copy: a mirror is often removed to be added again elsewhere.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples, mirroring, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, DiskName, Instance, Mirror},
    names::InstanceName,
};

/// Removes a copy of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorRemove {
    /// The instance.
    pub instance: InstanceName,
    /// The disk.
    pub disk: DiskName,
    /// DISK_ID of the copy.
    pub disk_id: u32,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
    removed: Mirror,
}

impl Operation for MirrorRemove {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_REMOVE_MDDRBD",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "mirror-remove", op_code: "OP_INSTANCE_REMOVE_MDDRBD" }),
        hooks2: Some(HookRow2::both("mirror-remove", "OP_INSTANCE_REMOVE_MDDRBD")),
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
        let mut after = before.clone();
        let name = self.disk.as_str();
        let disk = after.disks.iter_mut().find(|disk| disk.name == self.disk);
        let disk = disk.ok_or_else(|| Refusal(format!("{} has no disk {name}", self.instance)))?;
        let Some(index) = disk.mirrors.iter().position(|copy| copy.id == self.disk_id) else {
            let known: Vec<String> =
                disk.mirrors.iter().map(|copy| format!("{} on {}", copy.id, copy.node)).collect();
            let known = if known.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", known.join(", "))
            };
            return Err(Refusal(format!(
                "disk {name} of {} has no copy with the id {}: {known}",
                self.instance, self.disk_id
            )));
        };
        let removed = disk.mirrors.remove(index);
        Ok(Checked { before, after, removed })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.before)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("OLD_SECONDARY", checked.removed.node.as_str())
            .set("DISK_NAME", self.disk.as_str())
            .set("DISK_ID", self.disk_id.to_string())
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let own = Env::new()
            .set("OLD_SECONDARY", checked.removed.node.as_str())
            .set("DISK_NAME", self.disk.as_str())
            .set("DISK_ID", self.disk_id.to_string());
        Hooks2::instance(given, &checked.before).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let removed = mirroring::copies(&checked.before, |mirror| mirror.uuid == checked.removed.uuid);
        let plan = Plan::new().edit(Edit::InstancePut { instance: Box::new(checked.after.clone()) });
        mirroring::plan_end(plan, given.cluster, &checked.before, &removed)
            .cleanup(parts::disk_remove(&checked.removed.node, checked.removed.uuid))
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let remove = |cluster: Cluster, name: &str, disk: DiskName, disk_id: u32| {
            let instance = examples::instance_name(name);
            (cluster, examples::fresh(), MirrorRemove { instance, disk, disk_id })
        };
        vec![
            remove(examples::cluster(), "mail1", DiskName::Sdb, 2),
            remove(examples::offline("node3"), "db1", DiskName::Sda, 1),
            remove(examples::in_sync("mail1"), "mail1", DiskName::Sdb, 2),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |name: &str, disk: DiskName, disk_id: u32, text: &str| {
            let cluster = examples::cluster();
            let op = MirrorRemove { instance: examples::instance_name(name), disk, disk_id };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("mail2", DiskName::Sda, 1, "there is no instance mail2");
        check("db1", DiskName::Sdb, 1, "db1 has no disk sdb");
        check("mail1", DiskName::Sda, 2, "disk sda of mail1 has no copy with the id 2: it has 1 on node3");
        check("web1", DiskName::Sda, 1, "disk sda of web1 has no copy with the id 1: it has none");
    }
}
