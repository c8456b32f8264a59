//! Copies of the cluster's facts on the nodes: brought before a hook call to a node that is behind, else in the
//! background. Only the newest are ever sent; one push to a node at a time.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use muster_core::model::Cluster;
use muster_proto::{convert::hooks::version_to_wire, v1};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{client::NodeClient, link::Link, trouble::CallError};

/// Pause before facts that a connected node did not take are sent again.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The facts that scripts may see of a configuration.
pub fn facts_of(cluster: &Cluster) -> v1::Facts {
    v1::Facts {
        serial: cluster.serial,
        cluster_name: cluster.name.as_str().to_owned(),
        master_node: cluster.master.as_str().to_owned(),
        nodes: cluster
            .nodes
            .values()
            .map(|node| v1::NodeFact {
                name: node.name.as_str().to_owned(),
                primary_ip: node.primary_ip.to_string(),
                secondary_ip: node.secondary_ip.to_string(),
            })
            .collect(),
        instances: cluster.instances.keys().map(|name| name.as_str().to_owned()).collect(),
        clients: cluster
            .clients
            .values()
            .map(|client| v1::AcceptedClient {
                fingerprint: client.fingerprint.clone(),
                role: client.role.as_str().to_owned(),
            })
            .collect(),
        hooks_version: Some(version_to_wire(cluster.hooks.version)),
    }
}

impl NodeClient {
    /// Sends the newest facts if the node has others.
    pub(super) async fn bring_facts(&self, link: &Arc<Link>) -> Result<(), CallError> {
        let _one_at_a_time = self.inner.facts_gate.lock().await;
        let Some(facts) = self.inner.shared.facts.borrow().clone() else { return Ok(()) };
        if self.inner.facts_acked.load(Ordering::Acquire) == facts.serial {
            return Ok(());
        }
        let request = v1::PutFactsRequest {
            context: Some(self.inner.shared.context()),
            facts: Some(facts.as_ref().clone()),
        };
        link.agent().put_facts(request).await.map_err(|status| self.inner.shared.error(&status))?;
        link.answered();
        self.inner.facts_acked.store(facts.serial, Ordering::Release);
        Ok(())
    }

    /// Brings facts whenever there are new ones or a new connection, until it is stopped.
    pub(super) async fn push_facts(self, stop: CancellationToken) {
        let mut facts = self.inner.shared.facts.subscribe();
        let mut ups = self.inner.ups.subscribe();
        loop {
            // Looked at after the marks were set: what changes from now on wakes this up again.
            facts.mark_unchanged();
            ups.mark_unchanged();
            let retry = tokio::select! {
                () = stop.cancelled() => return,
                behind = self.push_facts_once() => behind,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                changed = facts.changed() => if changed.is_err() { return },
                _ = ups.changed() => {}
                () = sleep(RETRY_PAUSE), if retry => {}
            }
        }
    }

    /// Returns whether the node is connected and still behind.
    async fn push_facts_once(&self) -> bool {
        // Without a connection there is nothing to do: the watch makes one, and that wakes the push.
        let Some(link) = self.up() else { return false };
        match timeout(self.inner.shared.limits().unary, self.bring_facts(&link)).await {
            Ok(Ok(())) => false,
            Ok(Err(error)) => {
                tracing::debug!(node = %self.name(), %error, "facts not brought");
                if matches!(error, CallError::NotReached(_)) {
                    self.lost(&link, &error.to_string());
                }
                true
            }
            Err(_) => {
                tracing::debug!(node = %self.name(), "facts not brought: no answer");
                true
            }
        }
    }
}
