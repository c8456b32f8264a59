//! OP_CLUSTER_VERIFY: the site's own part of a verification. It changes nothing; its scripts come after, on all nodes, and
//! what they say is its result (HOOKS.md R7).

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples,
};
use crate::{hooks::Env, locks::Locks, model::Cluster};

/// Runs the site's checks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterVerify {}

impl Operation for ClusterVerify {
    const ROW: Row = Row {
        op_id: "OP_CLUSTER_VERIFY",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: Some(HookRow2::post_only("cluster-verify", "OP_CLUSTER_VERIFY_GROUP")),
        submitter: Submitter::Operator,
    };
    type Checked = ();

    fn target(&self) -> String {
        String::new()
    }

    fn locks(&self) -> Locks {
        Locks::part()
    }

    fn check(&self, _given: Given<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &()) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &()) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _checked: &()) -> Hooks2 {
        let cluster = given.cluster;
        let own = Env::new().list("CLUSTER_TAGS", &cluster.tags.to_texts());
        let own = cluster
            .nodes
            .values()
            .fold(own, |env, node| env.list(&format!("NODE_TAGS_{}", node.name), &node.tags.to_texts()));
        let nodes = HookNodes { pre: Vec::new(), post: cluster.nodes.keys().cloned().collect() };
        Hooks2::cluster(given).on(nodes).with(own)
    }

    fn plan(&self, _given: Given<'_>, _checked: &()) -> Plan {
        Plan::new()
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        vec![(examples::cluster(), examples::fresh(), ClusterVerify {})]
    }
}
