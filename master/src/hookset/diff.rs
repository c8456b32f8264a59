//! `gnt-hooks diff`: what the nodes use against what they are to use, their files looked at.

use std::{collections::BTreeSet, sync::Arc};

use muster_core::{
    model::{Cluster, Node},
    names::NodeName,
};
use muster_proto::v1;

use super::follow::last_refusal;
use crate::master::Master;

/// Asks nodes, all at once; none named means all that are not marked offline.
pub(crate) async fn diff(
    master: &Arc<Master>,
    cluster: &Cluster,
    named: &BTreeSet<NodeName>,
) -> v1::DiffHookSetsResponse {
    let record = master.hook_sets.record();
    let problem = match record.cluster {
        None => None,
        Some(digest) => {
            let master = master.clone();
            let offered = tokio::task::spawn_blocking(move || master.hook_sets.offer(digest).map(drop)).await;
            match offered {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(crate::chain(&error)),
                Err(error) => Some(error.to_string()),
            }
        }
    };
    let wanted = cluster.nodes.values().filter(|node| match named.is_empty() {
        true => !node.offline,
        false => named.contains(&node.name),
    });
    let asked = wanted.map(|node| async {
        let digest = record.wanted(node);
        v1::NodeHookSet {
            wanted: digest.map(|digest| digest.to_string()),
            own: record.own.contains_key(&node.uuid),
            refused: last_refusal(master, &node.name),
            ..asked_node(master, node).await
        }
    });
    v1::DiffHookSetsResponse {
        digest: record.cluster.map(|digest| digest.to_string()),
        problem,
        nodes: futures::future::join_all(asked).await,
    }
}

async fn asked_node(master: &Master, node: &Node) -> v1::NodeHookSet {
    let found = v1::NodeHookSet { node: node.name.to_string(), ..v1::NodeHookSet::default() };
    if node.offline {
        return v1::NodeHookSet { not_reached: Some("marked offline".to_owned()), ..found };
    }
    let checked = match master.nodes.node(&node.name) {
        Ok(client) => client.check_set().await,
        Err(error) => Err(error),
    };
    match checked {
        Ok(checked) => v1::NodeHookSet { used: checked.digest, changed: checked.changed, ..found },
        Err(error) => v1::NodeHookSet { not_reached: Some(error.to_string()), ..found },
    }
}
