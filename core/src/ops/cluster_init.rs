//! OP_INIT_CLUSTER: makes the cluster, with the local node as its master.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    examples,
};
use crate::{
    calls::{Call, MasterCall},
    edit::Edit,
    hooks::Env,
    hypervisor::HypervisorKind,
    locks::Locks,
    model::{Cluster, Node},
    names::ClusterName,
};

/// Makes a cluster of the local node alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterInit {
    /// The new cluster's name.
    pub name: ClusterName,
    /// What runs guests.
    #[serde(default)]
    pub hypervisor: HypervisorKind,
}

/// What check proved: the cluster that was drawn at submit, and its one node.
#[derive(Debug)]
pub struct Checked {
    cluster: Box<Cluster>,
    node: Node,
}

impl Operation for ClusterInit {
    const ROW: Row = Row {
        op_id: "OP_INIT_CLUSTER",
        object: ObjectKind::Cluster,
        hooks: Some(HookRow { prefix: "cluster-init", op_code: "OP_CLUSTER_INIT" }),
        hooks2: Some(HookRow2::post_only("cluster-init", "OP_CLUSTER_POST_INIT")),
        submitter: Submitter::Local,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::cluster()
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let Some(cluster) = &given.fresh.new_cluster else {
            return Err(Refusal(format!("there is a cluster already: {}", given.cluster.name)));
        };
        if cluster.name != self.name {
            return Err(Refusal(format!(
                "the cluster was drawn as {}, not as {}: submit again",
                cluster.name, self.name
            )));
        }
        let node = cluster.nodes.get(given.local).filter(|_| cluster.master == *given.local);
        let node = node.ok_or_else(|| {
            Refusal(format!("the local node {} is not the new cluster's master", given.local))
        })?;
        Ok(Checked { cluster: cluster.clone(), node: node.clone() })
    }

    fn hook_nodes(&self, _given: Given<'_>, checked: &Checked) -> HookNodes {
        HookNodes::both(vec![checked.cluster.master.clone()])
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        // CLUSTER and MASTER are common variables.
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        Hooks2::cluster(given).on(HookNodes::both(vec![checked.cluster.master.clone()]))
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        let node = &checked.node;
        let sign = MasterCall::LocalNodeSign {
            node: node.name.clone(),
            uuid: node.uuid,
            addresses: node.addresses(),
        };
        Plan::new()
            .step(
                Call::Master(MasterCall::CaCreate { cluster: checked.cluster.uuid }),
                Call::Master(MasterCall::CaRemove),
            )
            .step(Call::Master(sign), Call::Master(MasterCall::LocalNodeLeave))
            .edit(Edit::ClusterCreate { cluster: checked.cluster.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let cluster = examples::new_cluster();
        let fresh = super::Fresh { new_cluster: Some(Box::new(cluster.clone())), ..examples::fresh() };
        let name = cluster.name.clone();
        vec![(cluster, fresh, ClusterInit { name, hypervisor: HypervisorKind::Fake })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let (cluster, fresh, op) = ClusterInit::examples().remove(0);
        examples::refused(
            &op,
            &cluster,
            &examples::fresh(),
            &cluster.master,
            "there is a cluster already: dev",
        );
        let other =
            ClusterInit { name: ClusterName::parse("other").unwrap(), hypervisor: HypervisorKind::Fake };
        examples::refused(&other, &cluster, &fresh, &cluster.master, "drawn as dev, not as other");
        examples::refused(
            &op,
            &cluster,
            &fresh,
            &examples::node_name("node9"),
            "not the new cluster's master",
        );
    }
}
