//! Whether this host had a store: a master whose store is gone must not begin anew as if there had never been a cluster.

use std::{fs, path::Path};

use crate::{ca::CaKeeper, config::Config, store::StoreError};

/// Refuses to be without a store where this host's node is in a cluster, or where there is a certificate authority that
/// no interrupted init left.
///
/// # Errors
/// When there must have been a store.
pub(crate) fn check(config: &Config) -> Result<(), StoreError> {
    let path = config.store();
    if let Some(cluster) = node_cluster(&config.state_dir) {
        return Err(StoreError::Missing {
            path,
            why: format!("this host's node belongs to cluster {cluster}"),
            otherwise: "where another host is the master, start with --standby; \
                        where the cluster is given up, run muster-noded leave on this host"
                .to_owned(),
        });
    }
    let directory = config.master_dir();
    if let Some(found) = CaKeeper::orphaned(&directory) {
        return Err(StoreError::Missing {
            path,
            why: format!("there is the certificate authority of a cluster, {}", found.display()),
            otherwise: format!(
                "where the cluster is given up, remove ca.pem and ca.key from {}",
                directory.display()
            ),
        });
    }
    Ok(())
}

/// The cluster that this host's node belongs to, as its daemon keeps it; a file that can't be read counts as one.
pub(crate) fn node_cluster(state_dir: &Path) -> Option<String> {
    let path = state_dir.join("node/node.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some("unknown".to_owned()),
    };
    let read: Option<serde_json::Value> = serde_json::from_slice(&text).ok();
    let cluster = read.as_ref().and_then(|read| read.get("cluster")).and_then(serde_json::Value::as_str);
    Some(cluster.unwrap_or("unknown").to_owned())
}
