//! OP_INSTANCE_GROW_DISK: makes a disk larger, on all nodes that have a copy.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, bounds, common,
    examples, parts,
};
use crate::{
    calls::{Call, NodeCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, DiskName, Instance},
    names::InstanceName,
};

/// Grows a disk of an instance that is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskGrow {
    /// The instance.
    pub instance: InstanceName,
    /// The disk.
    pub disk: DiskName,
    /// By so many MiB.
    pub by_mib: u64,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    instance: Instance,
    /// The disk's size before and afterwards, in MiB.
    sizes: (u64, u64),
}

impl Operation for DiskGrow {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_GROW_DISK",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("disk-grow", "OP_INSTANCE_GROW_DISK")),
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
        let instance = parts::instance_reachable(given.cluster, &self.instance)?;
        parts::refuse_up(instance)?;
        let disk = instance.disk(self.disk).ok_or_else(|| {
            Refusal(format!("instance {} has no disk {}", self.instance, self.disk.as_str()))
        })?;
        if self.by_mib == 0 {
            return Err(Refusal("a disk grows by 1 MiB at least".to_owned()));
        }
        let after_mib = disk.size_mib.saturating_add(self.by_mib);
        bounds::disk(self.disk.as_str(), after_mib)?;
        for node in instance.secondaries() {
            common::node_with_disks(given.cluster, &node)?;
        }
        Ok(Checked { instance: instance.clone(), sizes: (disk.size_mib, after_mib) })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let index = checked.instance.disks.iter().position(|disk| disk.name == self.disk);
        let index = index.expect("check proved that it has the disk");
        let own = Env::new().set("DISK", index.to_string()).set("AMOUNT", self.by_mib.to_string());
        Hooks2::instance(given, &checked.instance).with(own)
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        let (before_mib, after_mib) = checked.sizes;
        let mut plan = Plan::new();
        let mut after = checked.instance.clone();
        for disk in after.disks.iter_mut().filter(|disk| disk.name == self.disk) {
            for (node, uuid) in parts::files(&checked.instance, disk) {
                let resize =
                    |size_mib| Call::Node(node.clone(), NodeCall::DiskResize { disk: uuid, size_mib });
                plan = plan.step(resize(after_mib), resize(before_mib));
            }
            disk.size_mib = after_mib;
        }
        plan.edit(Edit::InstancePut { instance: Box::new(after) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let grow = DiskGrow { instance: examples::instance_name("db1"), disk: DiskName::Sda, by_mib: 64 };
        vec![(examples::cluster(), examples::fresh(), grow)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |name: &str, disk: DiskName, by_mib: u64, text: &str| {
            let cluster = examples::cluster();
            let op = DiskGrow { instance: examples::instance_name(name), disk, by_mib };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check("web3", DiskName::Sda, 1, "there is no instance web3");
        check("web1", DiskName::Sda, 1, "instance web1 is up: shut it down first");
        check("db1", DiskName::Sdb, 1, "instance db1 has no disk sdb");
        check("db1", DiskName::Sda, 0, "a disk grows by 1 MiB at least");
        check("db1", DiskName::Sda, u64::MAX, "is not between 1 MiB and 1 PiB");
    }
}
