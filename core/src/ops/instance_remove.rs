//! OP_INSTANCE_REMOVE: an instance goes, and its disks after it.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples, hooks2, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, Instance},
    names::{InstanceName, NodeName},
};

/// Removes an instance with its disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRemove {
    /// The instance.
    pub instance: InstanceName,
}

/// Nodes that are away, on which the instance's guest may still run: its primary, and where it has changed its primary
/// before, any other.
fn left_running<'a>(cluster: &'a Cluster, instance: &Instance) -> impl Iterator<Item = &'a NodeName> {
    let (primary, has_moved) = (instance.primary.clone(), instance.generation > 0);
    let away = cluster.nodes.values().filter(|node| node.offline && !node.hooks_only);
    away.map(|node| &node.name).filter(move |name| has_moved || **name == primary)
}

impl Operation for InstanceRemove {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_REMOVE",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-remove", op_code: "OP_INSTANCE_REMOVE" }),
        hooks2: Some(HookRow2::both("instance-remove", "OP_INSTANCE_REMOVE")),
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
        common::instance(given.cluster, &self.instance).cloned()
    }

    fn hook_nodes(&self, given: Given<'_>, _instance: &Instance) -> HookNodes {
        HookNodes::both(vec![given.cluster.master.clone()])
    }

    fn hook_env(&self, _given: Given<'_>, instance: &Instance) -> Env {
        common::instance_env(instance)
    }

    fn hooks2(&self, given: Given<'_>, instance: &Instance) -> Hooks2 {
        let post = common::master_primary_secondaries(given.cluster, instance);
        let nodes = HookNodes { pre: vec![given.cluster.master.clone()], post };
        let timeout = hooks2::seconds(parts::SHUTDOWN_TIMEOUT_MS);
        Hooks2::instance(given, instance).on(nodes).with(Env::new().set("SHUTDOWN_TIMEOUT", timeout))
    }

    fn plan(&self, given: Given<'_>, instance: &Instance) -> Plan {
        let offline = given.cluster.nodes.get(&instance.primary).is_some_and(|node| node.offline);
        let mut plan = Plan::new();
        if !offline {
            plan = parts::plan_stop(plan, given.cluster, instance, parts::SHUTDOWN_TIMEOUT_MS);
        }
        plan = plan.edit(Edit::InstanceRemove { instance: instance.name.clone() });
        // Nobody tells a node of the generation of an instance that is gone: guests that may still run are stopped by name.
        for node in left_running(given.cluster, instance) {
            let left = Instance { primary: node.clone(), ..instance.clone() };
            plan = plan.cleanup(parts::guest_stop(&left, 0));
        }
        // Files on a node that is away are removed when it is back.
        for disk in &instance.disks {
            for (node, uuid) in parts::files(instance, disk) {
                plan = plan.cleanup(parts::disk_remove(node, uuid));
            }
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let remove = |cluster: Cluster, name: &str| {
            (cluster, examples::fresh(), InstanceRemove { instance: examples::instance_name(name) })
        };
        vec![
            remove(examples::cluster(), "mail1"),
            remove(examples::cluster(), "db1"),
            remove(examples::cluster(), "null1"),
            remove(examples::offline("node2"), "mail1"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let cluster = examples::cluster();
        let op = InstanceRemove { instance: examples::instance_name("wep1") };
        let text = "there is no instance wep1; the nearest name is web1";
        examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn every_file_is_cleaned_up_and_none_is_removed_before() {
        let (cluster, fresh, op) = InstanceRemove::examples().remove(0);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        assert_eq!((plan.steps.len(), plan.cleanups.len()), (1, 4));
        assert!(plan.cleanups.iter().all(|(_, once)| !once));
    }

    #[test]
    fn a_guest_that_may_run_on_a_node_that_is_away_is_stopped_when_the_node_is_back() {
        let stops = |cluster: &Cluster| -> Vec<String> {
            let op = InstanceRemove { instance: examples::instance_name("mail1") };
            let plan = examples::prepared(&op, cluster, &examples::fresh(), &cluster.master).plan;
            let stops = plan.cleanups.iter().filter(|(call, _)| call.text() == "stop mail1");
            stops.map(|(call, once)| format!("{} {once}", call.node().unwrap())).collect()
        };
        assert_eq!(stops(&examples::cluster()), Vec::<String>::new());
        assert_eq!(stops(&examples::offline("node2")), ["node2 false"], "its primary");
        let mut elsewhere = examples::offline("node3");
        assert_eq!(stops(&elsewhere), Vec::<String>::new(), "it never ran there");
        elsewhere.instances.get_mut(&examples::instance_name("mail1")).unwrap().generation = 1;
        assert_eq!(stops(&elsewhere), ["node3 false"], "it may have run there");
    }
}
