//! OP_CLIENT_CERTIFICATE_SIGN: a remote client gets a certificate with a role.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples, parts,
};
use crate::{
    calls::{Call, MasterCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Client, ClientRole, Cluster},
    names::ClientName,
};

/// Signs a client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificateSign {
    /// The client's label.
    pub name: ClientName,
    /// What it may do.
    pub role: ClientRole,
    /// PKCS#10, DER, hexadecimal.
    pub csr_hex: String,
}

impl Operation for ClientCertificateSign {
    const ROW: Row = Row {
        op_id: "OP_CLIENT_CERTIFICATE_SIGN",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Admin,
    };
    /// The client; its certificate is not signed yet.
    type Checked = Client;

    fn target(&self) -> String {
        self.name.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("client", &self.name)
    }

    fn check(&self, given: Given<'_>) -> Result<Client, Refusal> {
        if given.cluster.clients.contains_key(&self.name) {
            return Err(Refusal(format!(
                "there is a client {} already: revoke its certificate first",
                self.name
            )));
        }
        Ok(Client {
            name: self.name.clone(),
            uuid: parts::fresh_uuid(given, parts::OBJECT),
            role: self.role,
            fingerprint: String::new(),
            created_ms: given.fresh.now_ms,
        })
    }

    fn hook_nodes(&self, _given: Given<'_>, _client: &Client) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _client: &Client) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _client: &Client) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, client: &Client) -> Plan {
        let sign =
            MasterCall::ClientSign { uuid: client.uuid, role: client.role, csr_hex: self.csr_hex.clone() };
        // A certificate whose fingerprint was not committed opens nothing.
        Plan::new().harmless(Call::Master(sign)).edit(Edit::ClientPut { client: client.clone() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let name = ClientName::parse("backup").expect("a label");
        let op = ClientCertificateSign { name, role: ClientRole::Operator, csr_hex: "3000".to_owned() };
        vec![(examples::cluster(), examples::fresh(), op)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let (cluster, fresh, op) = ClientCertificateSign::examples().remove(0);
        let op = ClientCertificateSign { name: ClientName::parse("ci").unwrap(), ..op };
        examples::refused(&op, &cluster, &fresh, &cluster.master, "there is a client ci already");
    }
}
