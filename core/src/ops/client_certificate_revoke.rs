//! OP_CLIENT_CERTIFICATE_REVOKE: a remote client is out at once.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples,
};
use crate::{edit::Edit, hooks::Env, locks::Locks, model::Cluster, names::ClientName};

/// Revokes a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificateRevoke {
    /// The client's label.
    pub name: ClientName,
}

impl Operation for ClientCertificateRevoke {
    const ROW: Row = Row {
        op_id: "OP_CLIENT_CERTIFICATE_REVOKE",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Admin,
    };
    type Checked = ();

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("client", &self.name)
    }

    fn check(&self, given: Given<'_>) -> Result<(), Refusal> {
        let clients = &given.cluster.clients;
        if clients.contains_key(&self.name) {
            return Ok(());
        }
        Err(common::unknown("client", self.name.as_str(), clients.keys().map(ClientName::as_str)))
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &()) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &()) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _checked: &()) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, _checked: &()) -> Plan {
        Plan::new().edit(Edit::ClientRemove { client: self.name.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let name = ClientName::parse("ci").expect("a label");
        vec![(examples::cluster(), examples::fresh(), ClientCertificateRevoke { name })]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let (cluster, fresh, _) = ClientCertificateRevoke::examples().remove(0);
        let op = ClientCertificateRevoke { name: ClientName::parse("cii").unwrap() };
        let text = "there is no client cii; the nearest name is ci";
        examples::refused(&op, &cluster, &fresh, &cluster.master, text);
    }
}
