//! `gnt-os`: the OS definitions of the nodes, asked for in parallel.

use muster_core::model::Node;
use muster_proto::v1;

use crate::master::Master;

/// What nodes say of their OS definitions. Each is waited for within one limit, and one that is silent is named.
pub(super) async fn node_oses(master: &Master, nodes: Vec<&Node>) -> Vec<v1::NodeOses> {
    // A node that only runs hooks has no instances and needs no definitions.
    let asked = nodes.into_iter().filter(|node| !node.hooks_only).map(|node| async move {
        let listed = if node.offline {
            Err("marked offline".to_owned())
        } else {
            match master.nodes().node(&node.name) {
                Ok(client) => client.list_oses().await.map_err(|why| why.to_string()),
                Err(why) => Err(why.to_string()),
            }
        };
        let (oses, not_reached) = match listed {
            Ok(listed) => (listed.oses, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        v1::NodeOses { node: node.name.to_string(), oses, not_reached }
    });
    futures::future::join_all(asked).await
}
