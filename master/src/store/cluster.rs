//! The configuration as records, one for each object, so that a commit writes only what its edits touched.

use std::collections::BTreeMap;

use muster_core::{
    allowed::Allowed,
    edit::Touched,
    groups::Group,
    hooks::HookPolicy,
    hypervisor::HypervisorParams,
    model::{CleanupId, Cluster},
    names::{ClusterName, NodeName},
    networks::Network,
    tags::Tags,
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
    #[serde(default)]
    allowed: Allowed,
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
        Touched::Group(uuid) => {
            changes.insert(keys::group(*uuid), cluster.groups.get(uuid).map(encode));
        }
        Touched::Network(uuid) => {
            changes.insert(keys::network(*uuid), cluster.networks.get(uuid).map(encode));
        }
        Touched::ClusterTags => {
            changes.insert(keys::CLUSTER_TAGS.to_owned(), encode_tags(cluster));
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
    changes.extend(cluster.groups.iter().map(|(uuid, group)| (keys::group(*uuid), Some(encode(group)))));
    changes.extend(cluster.networks.iter().map(|(uuid, it)| (keys::network(*uuid), Some(encode(it)))));
    changes.extend(encode_tags(cluster).map(|tags| (keys::CLUSTER_TAGS.to_owned(), Some(tags))));
}

/// In a record of their own: the cluster-wide one is written with each commit, and tags may be many.
fn encode_tags(cluster: &Cluster) -> Option<String> {
    (!cluster.tags.is_empty()).then(|| encode(&cluster.tags))
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
        allowed: cluster.allowed.clone(),
    })
}

/// The configuration that the records hold; `None` where there is no cluster. Other records are passed over.
pub fn cluster_from(records: &Records) -> Result<Option<Cluster>, ClusterRecordError> {
    let Some(globals) = records.get(keys::CLUSTER) else {
        let parts = [
            keys::NODE,
            keys::INSTANCE,
            keys::EXPORT,
            keys::CLIENT,
            keys::CLEANUP,
            keys::GROUP,
            keys::NETWORK,
            keys::CLUSTER_TAGS,
        ];
        return match parts.iter().find_map(|prefix| with_prefix(records, prefix).next()) {
            Some((key, _)) => Err(ClusterRecordError::NoCluster(key.clone())),
            None => Ok(None),
        };
    };
    let globals: Globals = decode(keys::CLUSTER, globals)?;
    let Globals { uuid, name, serial, master, hooks, hypervisor, fence_command, allowed } = globals;
    let tags: Option<Tags> =
        records.get(keys::CLUSTER_TAGS).map(|tags| decode(keys::CLUSTER_TAGS, tags)).transpose()?;
    let cluster = Cluster {
        uuid,
        name,
        serial,
        master,
        hooks,
        hypervisor,
        fence_command,
        allowed,
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
        tags: tags.unwrap_or_default(),
        groups: objects(records, keys::GROUP, |group: &Group| (keys::group(group.uuid), group.uuid))?,
        networks: objects(records, keys::NETWORK, |it: &Network| (keys::network(it.uuid), it.uuid))?,
    };
    Ok(Some(cluster.with_first_group()))
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
    use muster_core::edit::Edit;

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

    #[test]
    fn a_store_older_than_groups_opens_with_the_first_one_and_keeps_it_beside_others() {
        let current = muster_core::ops::examples::cluster();
        let batch = records_of(Some(&current), [&Touched::All]);
        let mut records: Records = batch.puts.into_iter().collect();
        records.retain(|key, _| !key.starts_with(keys::GROUP));
        for (key, text) in &mut records {
            // What was not there yet when it was written.
            if key.starts_with(keys::NODE) || key.starts_with(keys::INSTANCE) {
                let mut value: serde_json::Value = decode(key, text).unwrap();
                let fields = value.as_object_mut().unwrap();
                for field in ["group", "tags", "network"] {
                    fields.remove(field);
                }
                *text = encode(&value);
            }
        }
        let opened = cluster_from(&records).unwrap().unwrap();
        assert_eq!(opened, current, "all nodes are in the first group, and nothing has a tag");
        // Another group comes, and all nodes go there: the first one must not be lost with its last node.
        let mut slot = Some(opened);
        let first = slot.as_ref().unwrap().groups.values().next().unwrap().clone();
        let name = muster_core::names::GroupName::parse("rack2").unwrap();
        let second = Group { uuid: Uuid::from_u128(77), name, ..first.clone() };
        let nodes: Vec<NodeName> = current.nodes.keys().cloned().collect();
        let mut edits =
            vec![Edit::GroupPut { group: second.clone() }, Edit::GroupRecord { group: first.uuid }];
        edits.extend(nodes.into_iter().map(|node| Edit::NodeGroupSet { node, group: second.uuid }));
        for edit in edits {
            let touched = edit.touched();
            edit.apply(&mut slot);
            records.extend(records_of(slot.as_ref(), [&touched]).puts);
        }
        assert_eq!(cluster_from(&records).unwrap(), slot);
        assert_eq!(slot.unwrap().groups.len(), 2);
    }
}
