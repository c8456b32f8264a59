//! The configuration as records, one for each object, so that a commit writes only what its edits touched.

use std::collections::BTreeMap;

use muster_core::{
    edit::Touched,
    hooks::HookPolicy,
    hypervisor::HypervisorParams,
    model::{CleanupId, Cluster},
    names::{ClusterName, NodeName},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{
    batch::{Batch, Records},
    keys,
    value::{ValueError, decode, encode},
};

/// Why records are no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterRecordError {
    /// A record can't be read.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A record stands under a key that isn't its own.
    #[error("record {0} holds something of another name")]
    WrongKey(String),
    /// There is a part of a cluster without the cluster.
    #[error("there is a record {0}, but no record of the cluster")]
    NoCluster(String),
}

/// The cluster-wide fields.
#[derive(Serialize, Deserialize)]
struct Globals {
    uuid: Uuid,
    name: ClusterName,
    serial: u64,
    master: NodeName,
    hooks: HookPolicy,
    // Absent in records that were written before there were any.
    #[serde(default)]
    hypervisor: HypervisorParams,
    #[serde(default)]
    fence_command: Option<String>,
}

/// The records that a commit writes and deletes: those of what was touched, and the cluster-wide ones, since each
/// commit has a new serial. `cluster` is the configuration after the commit.
pub fn records_of<'a>(cluster: Option<&Cluster>, touched: impl IntoIterator<Item = &'a Touched>) -> Batch {
    let mut changes: BTreeMap<String, Option<String>> = BTreeMap::new();
    for touched in touched {
        match cluster {
            Some(cluster) => {
                changes.insert(keys::CLUSTER.to_owned(), Some(encode_globals(cluster)));
                change(cluster, touched, &mut changes);
            }
            // The store takes all else with it.
            None => drop(changes.insert(keys::CLUSTER.to_owned(), None)),
        }
    }
    let mut batch = Batch::default();
    for (key, value) in changes {
        match value {
            Some(value) => batch.puts.push((key, value)),
            None => batch.deletes.push(key),
        }
    }
    batch
}

fn change(cluster: &Cluster, touched: &Touched, changes: &mut BTreeMap<String, Option<String>>) {
    match touched {
        // The cluster-wide record is written in any case.
        Touched::Globals | Touched::Nothing => {}
        Touched::Node(name) => {
            changes.insert(keys::node(name), cluster.nodes.get(name).map(encode));
        }
        Touched::Instance(name) => {
            changes.insert(keys::instance(name), cluster.instances.get(name).map(encode));
        }
        Touched::Export(uuid) => {
            changes.insert(keys::export(*uuid), cluster.exports.get(uuid).map(encode));
        }
        Touched::Client(name) => {
            changes.insert(keys::client(name), cluster.clients.get(name).map(encode));
        }
        Touched::Cleanup(id) => {
            changes.insert(keys::cleanup(*id), cluster.cleanups.get(id).map(encode));
        }
        Touched::All => change_all(cluster, changes),
    }
}

fn change_all(cluster: &Cluster, changes: &mut BTreeMap<String, Option<String>>) {
    changes.extend(cluster.nodes.iter().map(|(name, node)| (keys::node(name), Some(encode(node)))));
    changes.extend(cluster.instances.iter().map(|(name, it)| (keys::instance(name), Some(encode(it)))));
    changes.extend(cluster.exports.iter().map(|(uuid, export)| (keys::export(*uuid), Some(encode(export)))));
    changes.extend(cluster.clients.iter().map(|(name, client)| (keys::client(name), Some(encode(client)))));
    changes.extend(cluster.cleanups.iter().map(|(id, cleanup)| (keys::cleanup(*id), Some(encode(cleanup)))));
}

fn encode_globals(cluster: &Cluster) -> String {
    encode(&Globals {
        uuid: cluster.uuid,
        name: cluster.name.clone(),
        serial: cluster.serial,
        master: cluster.master.clone(),
        hooks: cluster.hooks.clone(),
        hypervisor: cluster.hypervisor.clone(),
        fence_command: cluster.fence_command.clone(),
    })
}

/// The configuration that the records hold; `None` where there is no cluster. Other records are passed over.
pub fn cluster_from(records: &Records) -> Result<Option<Cluster>, ClusterRecordError> {
    let Some(globals) = records.get(keys::CLUSTER) else {
        let parts = [keys::NODE, keys::INSTANCE, keys::EXPORT, keys::CLIENT, keys::CLEANUP];
        return match parts.iter().find_map(|prefix| with_prefix(records, prefix).next()) {
            Some((key, _)) => Err(ClusterRecordError::NoCluster(key.clone())),
            None => Ok(None),
        };
    };
    let globals: Globals = decode(keys::CLUSTER, globals)?;
    let Globals { uuid, name, serial, master, hooks, hypervisor, fence_command } = globals;
    Ok(Some(Cluster {
        uuid,
        name,
        serial,
        master,
        hooks,
        hypervisor,
        fence_command,
        nodes: objects(records, keys::NODE, |node: &muster_core::model::Node| {
            (keys::node(&node.name), node.name.clone())
        })?,
        instances: objects(records, keys::INSTANCE, |it: &muster_core::model::Instance| {
            (keys::instance(&it.name), it.name.clone())
        })?,
        exports: objects(records, keys::EXPORT, |export: &muster_core::model::Export| {
            (keys::export(export.uuid), export.uuid)
        })?,
        clients: objects(records, keys::CLIENT, |client: &muster_core::model::Client| {
            (keys::client(&client.name), client.name.clone())
        })?,
        cleanups: cleanups(records)?,
    }))
}

/// The records whose keys begin so; cost follows their number.
pub(crate) fn with_prefix<'a>(
    records: &'a Records,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    records.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
}

/// All objects of a kind. `named` gives an object's key and its name; the key must be the record's.
fn objects<T: DeserializeOwned, N: Ord>(
    records: &Records,
    prefix: &str,
    named: impl Fn(&T) -> (String, N),
) -> Result<BTreeMap<N, T>, ClusterRecordError> {
    let mut found = BTreeMap::new();
    for (key, text) in with_prefix(records, prefix) {
        let object = decode(key, text)?;
        let (own_key, name) = named(&object);
        if own_key != *key {
            return Err(ClusterRecordError::WrongKey(key.clone()));
        }
        found.insert(name, object);
    }
    Ok(found)
}

/// Cleanups don't hold their own number: it is in the key alone.
fn cleanups(
    records: &Records,
) -> Result<BTreeMap<CleanupId, muster_core::calls::Cleanup>, ClusterRecordError> {
    let mut found = BTreeMap::new();
    for (key, text) in with_prefix(records, keys::CLEANUP) {
        let id = CleanupId::try_from(key[keys::CLEANUP.len()..].to_owned());
        let id = id.map_err(|_| ClusterRecordError::WrongKey(key.clone()))?;
        found.insert(id, decode(key, text)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record as it was before clusters had parameters of guests.
    #[derive(Serialize)]
    struct OlderGlobals {
        uuid: Uuid,
        name: &'static str,
        serial: u64,
        master: &'static str,
        hooks: HookPolicy,
    }

    #[test]
    fn a_record_without_parameters_of_guests_opens_with_the_first_ones() {
        let hooks = HookPolicy::default();
        let older = OlderGlobals { uuid: Uuid::nil(), name: "dev", serial: 7, master: "node1", hooks };
        let records = Records::from([(keys::CLUSTER.to_owned(), encode(&older))]);
        let cluster = cluster_from(&records).unwrap().unwrap();
        assert_eq!((cluster.serial, cluster.fence_command), (7, None));
        assert_eq!(cluster.hypervisor, HypervisorParams::default());
    }
}
