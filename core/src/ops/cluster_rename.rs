//! OP_CLUSTER_RENAME: another name for the cluster, which is a label: certificates and records go by its uuid.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples,
};
use crate::{edit::Edit, hooks::Env, locks::Locks, model::Cluster, names::ClusterName};

/// Renames the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRename {
    /// Its name afterwards.
    pub new_name: ClusterName,
}

impl Operation for ClusterRename {
    const ROW: Row = Row {
        op_id: "OP_CLUSTER_RENAME",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: Some(HookRow2::both("cluster-rename", "OP_CLUSTER_RENAME")),
        submitter: Submitter::Admin,
    };
    type Checked = ();

    fn target(&self) -> String {
        String::new()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("cluster-parameters", "")
    }

    fn check(&self, given: Given<'_>) -> Result<(), Refusal> {
        if self.new_name == given.cluster.name {
            return Err(Refusal(format!("the cluster's name is {} already", self.new_name)));
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
        Hooks2::cluster(given).with(Env::new().set("NEW_NAME", self.new_name.as_str()))
    }

    fn plan(&self, _given: Given<'_>, _checked: &()) -> Plan {
        Plan::new().edit(Edit::ClusterNameSet { name: self.new_name.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let new_name = ClusterName::parse("prod").expect("examples use good names");
        vec![(examples::cluster(), examples::fresh(), ClusterRename { new_name })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let cluster = examples::cluster();
        let op = ClusterRename { new_name: cluster.name.clone() };
        let text = "the cluster's name is dev already";
        examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn nothing_but_the_name_changes() {
        let (cluster, fresh, op) = ClusterRename::examples().remove(0);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        let mut slot = Some(cluster.clone());
        plan.edits.into_iter().for_each(|edit| edit.apply(&mut slot));
        assert_eq!(slot, Some(Cluster { name: op.new_name, ..cluster }));
    }
}
