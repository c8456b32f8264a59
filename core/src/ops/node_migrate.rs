//! OP_NODE_MIGRATE: all instances leave their primary node for their secondaries, a job each.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookObject, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples, hooks2,
    relocate::{Leave, Leaving, Relocation},
};
use crate::{hooks::Env, locks::Locks, model::Cluster, names::NodeName};

/// Migrates what a node is the primary of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMigrate {
    /// The node.
    pub name: NodeName,
    /// What can't leave stays, and is told; else nothing leaves then.
    #[serde(default)]
    pub ignore_unmovable: bool,
}

impl Operation for NodeMigrate {
    const ROW: Row = Row {
        op_id: "OP_NODE_MIGRATE",
        object: ObjectKind::Node,
        hooks: None,
        hooks2: Some(HookRow2::both("node-migrate", "OP_NODE_MIGRATE")),
        submitter: Submitter::Operator,
    };
    type Checked = Leaving;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        // Whoever puts an instance on the node at the moment is waited for.
        Locks::part().exclusive("node", &self.name)
    }

    fn check(&self, given: Given<'_>) -> Result<Leaving, Refusal> {
        let cluster = given.cluster;
        common::node_online(cluster, &self.name)?;
        let mut relocation = Relocation::default();
        for instance in cluster.primaries_on(&self.name) {
            relocation.leave_primary(given, instance, Leave::default());
        }
        relocation.leaving(&self.name, self.ignore_unmovable)
    }

    fn hook_nodes(&self, _given: Given<'_>, _leaving: &Leaving) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _leaving: &Leaving) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _leaving: &Leaving) -> Hooks2 {
        let node = hooks2::node_before(given, &self.name).clone();
        Hooks2::on_master(given, HookObject::Node(Box::new(node)))
    }

    fn plan(&self, _given: Given<'_>, leaving: &Leaving) -> Plan {
        leaving.plan()
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let migrate = |cluster: Cluster, name: &str| {
            (
                cluster,
                examples::fresh(),
                NodeMigrate { name: examples::node_name(name), ignore_unmovable: false },
            )
        };
        vec![migrate(examples::in_sync("mail1"), "node2"), migrate(examples::cluster(), "node3")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hypervisor::HypervisorKind,
        ops::{FollowUp, Op},
    };

    fn jobs(cluster: &Cluster, name: &str) -> Vec<FollowUp> {
        let op = NodeMigrate { name: examples::node_name(name), ignore_unmovable: false };
        examples::prepared(&op, cluster, &examples::fresh(), &cluster.master).plan.follow_ups
    }

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = NodeMigrate { name: examples::node_name(name), ignore_unmovable: false };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let cluster = examples::cluster();
        check(&cluster, "node9", "there is no node node9");
        check(&examples::offline("node2"), "node2", "node node2 is marked offline");
        // All that can't leave are named.
        check(&cluster, "node1", "not all instances can leave node1: null1: it has the template diskless");
        check(&cluster, "node1", "; web1: it has the template file: gnt-instance move -n NODE moves it");
        check(&cluster, "node2", "mail1: the copy of sda on node3 is stale");
    }

    #[test]
    fn a_guest_that_computes_migrates_and_any_other_fails_over() {
        let mut cluster = examples::in_sync("mail1");
        let [FollowUp { op: Op::InstanceMigrate(op), after: None }] = &jobs(&cluster, "node2")[..] else {
            panic!("a migration")
        };
        assert_eq!(op.instance.as_str(), "mail1");
        cluster.instances.get_mut(&op.instance).unwrap().up = false;
        assert!(matches!(&jobs(&cluster, "node2")[..], [FollowUp { op: Op::InstanceFailover(_), .. }]));
        cluster.instances.get_mut(&op.instance).unwrap().up = true;
        cluster.hypervisor.kind = HypervisorKind::Fake;
        assert!(matches!(&jobs(&cluster, "node2")[..], [FollowUp { op: Op::InstanceFailover(_), .. }]));
        assert_eq!(jobs(&cluster, "node3"), [], "a node that is the primary of nothing has nothing to do");
    }
}
