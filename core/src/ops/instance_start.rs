//! OP_INSTANCE_START: starts an instance on its primary node.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples,
    mirroring::{self, Starting},
    parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::InstanceName,
};

/// Starts an instance; one that is wanted up already is started where it is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceStart {
    /// The instance.
    pub instance: InstanceName,
    /// `--force`.
    pub force: bool,
}

impl Operation for InstanceStart {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_START",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-start", op_code: "OP_INSTANCE_STARTUP" }),
        hooks2: Some(HookRow2::both("instance-start", "OP_INSTANCE_STARTUP")),
        submitter: Submitter::Operator,
    };
    type Checked = Instance;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("instance", &self.instance)
    }

    fn check(&self, given: Given<'_>) -> Result<Instance, Refusal> {
        parts::instance_reachable(given.cluster, &self.instance).cloned()
    }

    fn hook_nodes(&self, given: Given<'_>, instance: &Instance) -> HookNodes {
        parts::instance_nodes(given, instance)
    }

    fn hook_env(&self, _given: Given<'_>, instance: &Instance) -> Env {
        common::instance_env(instance).flag("FORCE", self.force)
    }

    fn hooks2(&self, given: Given<'_>, instance: &Instance) -> Hooks2 {
        Hooks2::instance(given, instance).with(Env::new().boolean("FORCE", self.force))
    }

    fn plan(&self, given: Given<'_>, instance: &Instance) -> Plan {
        let plan = parts::plan_elsewhere(Plan::new(), given, instance);
        // It may run already: an undo would stop what was running before.
        let how = Starting { force: self.force, undone: !instance.up };
        let plan = mirroring::plan_start(plan, given.cluster, Some(instance), instance, how);
        let after = mirroring::started(given.cluster, Some(instance), instance);
        plan.edit(Edit::InstancePut { instance: Box::new(after) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let start = |name: &str, force: bool| {
            let instance = examples::instance_name(name);
            (examples::cluster(), examples::fresh(), InstanceStart { instance, force })
        };
        let (_, fresh, real) = start("db1", false);
        vec![start("db1", false), start("web1", true), (examples::in_sync("db1"), fresh, real)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = InstanceStart { instance: examples::instance_name(name), force: false };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        check(&examples::cluster(), "db2", "there is no instance db2; the nearest name is db1");
        check(&examples::offline("node2"), "mail1", "node node2 is marked offline");
    }

    #[test]
    fn a_start_wants_the_instance_up_and_changes_nothing_else() {
        let (cluster, fresh, op) = InstanceStart::examples().remove(0);
        let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
        let [Edit::InstancePut { instance }] = &prepared.plan.edits[..] else { panic!("one edit") };
        let before = cluster.instances[&op.instance].clone();
        assert_eq!(**instance, crate::model::Instance { up: true, ..before });
    }
}
