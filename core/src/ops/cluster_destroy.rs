//! OP_CLUSTER_DESTROY: an empty cluster of one node ceases to be.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Step, StepKind, Submitter,
    examples,
};
use crate::{
    calls::{Call, MasterCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::{ClusterName, NodeName},
};

/// Destroys the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterDestroy {
    /// Its name, so that none is destroyed by mistake.
    pub name: ClusterName,
}

impl Operation for ClusterDestroy {
    const ROW: Row = Row {
        op_id: "OP_CLUSTER_DESTROY",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: Some(HookRow2::post_only("cluster-destroy", "OP_CLUSTER_DESTROY")),
        submitter: Submitter::Admin,
    };
    type Checked = ();

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::cluster()
    }

    fn check(&self, given: Given<'_>) -> Result<(), Refusal> {
        let cluster = given.cluster;
        if self.name != cluster.name {
            return Err(Refusal(format!("this is the cluster {}, not {}", cluster.name, self.name)));
        }
        let instances: Vec<&str> = cluster.instances.keys().map(crate::names::InstanceName::as_str).collect();
        if !instances.is_empty() {
            return Err(Refusal(format!("the cluster has instances: {}", instances.join(", "))));
        }
        let others = cluster.nodes.keys().filter(|name| **name != cluster.master);
        let others: Vec<&str> = others.map(NodeName::as_str).collect();
        if !others.is_empty() {
            return Err(Refusal(format!("the cluster has nodes beside its master: {}", others.join(", "))));
        }
        Ok(())
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &()) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &()) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _checked: &()) -> Hooks2 {
        Hooks2::cluster(given)
    }

    fn plan(&self, _given: Given<'_>, _checked: &()) -> Plan {
        // Without cluster there is no record of a cleanup: what is to be destroyed is destroyed by steps, and what
        // follows the final one may fail no more.
        let leave = Step { call: Call::Master(MasterCall::LocalNodeLeave), kind: StepKind::Final };
        Plan { steps: vec![leave], ..Plan::new() }
            .optional(Call::Master(MasterCall::CaRemove), Vec::new())
            .edit(Edit::ClusterDestroy)
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let cluster = examples::new_cluster();
        let name = cluster.name.clone();
        vec![(cluster, examples::fresh(), ClusterDestroy { name })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, name: &str, text: &str| {
            let op = ClusterDestroy { name: ClusterName::parse(name).unwrap() };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        let mut cluster = examples::cluster();
        check(&cluster, "prod", "this is the cluster dev, not prod");
        check(&cluster, "dev", "the cluster has instances: db1, mail1, null1, web1");
        cluster.instances.clear();
        check(&cluster, "dev", "the cluster has nodes beside its master: node2, node3");
    }
}
