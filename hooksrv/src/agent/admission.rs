//! Whose certificates are accepted on the node's port.

use std::sync::Arc;

use muster_proto::transport::{Admission, Fingerprint, Identity, IdentityKind, Role};

use super::Agent;

/// Asks the agent at each request.
pub(super) struct NodeAdmission(pub(super) Arc<Agent>);

impl Admission for NodeAdmission {
    /// A master's certificate is let in whatever its epoch: each call then checks the epoch and answers a master that
    /// lost its office by FAILED_PRECONDITION, which ends its jobs. A refusal here would look as if the node was not
    /// reached, which denies nothing (HOOKS.md R3).
    fn admit(&self, identity: &Identity, fingerprint: &Fingerprint) -> Result<Role, String> {
        let Some(member) = self.0.membership() else {
            return Err("this node is in no cluster".to_owned());
        };
        if identity.cluster != member.cluster {
            return Err(format!("cluster: this node belongs to cluster {}", member.cluster));
        }
        match identity.kind {
            IdentityKind::Master { .. } => Ok(Role::Master),
            IdentityKind::Node { .. } => Err("nodes don't call nodes".to_owned()),
            IdentityKind::Client { .. } => match self.0.facts().client(fingerprint) {
                Some(role) => Ok(role.into()),
                None => Err("it is not, or no longer, accepted".to_owned()),
            },
        }
    }
}
