//! OP_MASTER_FAILOVER: another node takes the office; executed by the new master from the start.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, HookRow, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples,
};
use crate::{edit::Edit, hooks::Env, locks::Locks, model::Cluster, names::NodeName};

/// Makes the node whose master daemon executes this the master.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MasterFailover {
    /// The executing master daemon's own node, filled in by that daemon.
    pub new_master: NodeName,
}

impl Operation for MasterFailover {
    const ROW: Row = Row {
        op_id: "OP_MASTER_FAILOVER",
        object: ObjectKind::Cluster,
        hooks: Some(HookRow { prefix: "master-failover", op_code: "OP_CLUSTER_MASTERFAILOVER" }),
        hooks2: None,
        submitter: Submitter::Local,
    };
    /// The old master.
    type Checked = NodeName;

    fn target(&self) -> String {
        self.new_master.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::cluster()
    }

    fn check(&self, given: Given<'_>) -> Result<NodeName, Refusal> {
        if self.new_master != *given.local {
            return Err(Refusal(format!(
                "a failover is executed by the new master: {} can't make {} the master",
                given.local, self.new_master
            )));
        }
        if self.new_master == given.cluster.master {
            return Err(Refusal(format!("node {} is the master already", self.new_master)));
        }
        let node = common::node_online(given.cluster, &self.new_master)?;
        if node.drained {
            return Err(Refusal(format!("node {} is drained: it can't become master", node.name)));
        }
        Ok(given.cluster.master.clone())
    }

    fn hook_nodes(&self, given: Given<'_>, _old: &NodeName) -> HookNodes {
        HookNodes { pre: vec![self.new_master.clone()], post: given.cluster.nodes.keys().cloned().collect() }
    }

    fn hook_env(&self, _given: Given<'_>, old: &NodeName) -> Env {
        Env::new().set("OLD_MASTER", old.as_str()).set("NEW_MASTER", self.new_master.as_str())
    }

    fn hooks2(&self, _given: Given<'_>, _old: &NodeName) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, _old: &NodeName) -> Plan {
        // The old master has recorded that it is retired before this job was submitted here, and gets the office back
        // when the job ends without success, whatever ended it: both are the executing daemon's business.
        Plan::new().edit(Edit::MasterSet { node: self.new_master.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let new_master = examples::node_name("node2");
        vec![(examples::cluster(), examples::fresh(), MasterFailover { new_master })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, new: &str, local: &str, text: &str| {
            let op = MasterFailover { new_master: examples::node_name(new) };
            examples::refused(&op, cluster, &examples::fresh(), &examples::node_name(local), text);
        };
        let cluster = examples::cluster();
        check(&cluster, "node2", "node1", "node1 can't make node2 the master");
        check(&cluster, "node1", "node1", "node node1 is the master already");
        check(&cluster, "node9", "node9", "there is no node node9");
        check(&examples::offline("node2"), "node2", "node2", "marked offline");
        check(&examples::drained("node2"), "node2", "node2", "is drained");
    }
}
