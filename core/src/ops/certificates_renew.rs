//! OP_CERTIFICATES_RENEW: new keys and certificates for nodes; one out of reach is left for the next run.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples,
};
use crate::{
    calls::{Call, MasterCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::NodeName,
};

/// Renews nodes' certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificatesRenew {
    /// Empty for all that are not offline.
    pub nodes: Vec<NodeName>,
}

impl Operation for CertificatesRenew {
    const ROW: Row = Row {
        op_id: "OP_CERTIFICATES_RENEW",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Admin,
    };
    /// The nodes, each once, by name.
    type Checked = Vec<NodeName>;

    fn target(&self) -> String {
        let names: Vec<&str> = self.nodes.iter().map(NodeName::as_str).collect();
        names.join(", ")
    }

    fn locks(&self) -> Locks {
        // Which nodes these are is known later: whoever else writes nodes' records holds this name shared.
        Locks::part().exclusive("certificates", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Vec<NodeName>, Refusal> {
        if self.nodes.is_empty() {
            let online = given.cluster.nodes.values().filter(|node| !node.offline);
            return Ok(online.map(|node| node.name.clone()).collect());
        }
        let mut names = Vec::new();
        for name in &self.nodes {
            names.push(common::node_online(given.cluster, name)?.name.clone());
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn hook_nodes(&self, _given: Given<'_>, _names: &Vec<NodeName>) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _names: &Vec<NodeName>) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _names: &Vec<NodeName>) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, names: &Vec<NodeName>) -> Plan {
        let mut plan = Plan::new();
        for node in names {
            // A node that was renewed uses its new certificate at once: it must be pinned, a cancel notwithstanding.
            plan = plan
                .kept(Call::Master(MasterCall::CertificateRenew { node: node.clone() }))
                .edit(Edit::NodePin { node: node.clone(), fingerprint: None });
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let all = CertificatesRenew { nodes: Vec::new() };
        let one = CertificatesRenew { nodes: vec![examples::node_name("node3")] };
        vec![
            (examples::cluster(), examples::fresh(), all),
            (examples::offline("node2"), examples::fresh(), one),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |cluster: &Cluster, names: &[&str], text: &str| {
            let op = CertificatesRenew { nodes: names.iter().copied().map(examples::node_name).collect() };
            examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
        };
        check(&examples::cluster(), &["node1", "node4"], "there is no node node4; the nearest name is node1");
        check(&examples::offline("node2"), &["node2"], "node node2 is marked offline");
    }

    #[test]
    fn all_leaves_offline_nodes_out() {
        let cluster = examples::offline("node2");
        let op = CertificatesRenew { nodes: Vec::new() };
        let fresh = examples::fresh();
        let names = op
            .check(Given { cluster: &cluster, fresh: &fresh, local: &cluster.master, undone: &[] })
            .unwrap();
        assert_eq!(names, ["node1", "node3"].map(examples::node_name));
    }
}
