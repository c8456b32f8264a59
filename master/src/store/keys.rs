//! The keys of all records. A new kind of record has its line here.

use muster_core::{
    model::CleanupId,
    names::{ClientName, InstanceName, NodeName},
};
use muster_proto::transport::Fingerprint;
use uuid::Uuid;

/// Cluster-wide fields: uuid, name, serial, master, hooks.
pub const CLUSTER: &str = "cluster";
/// The number of the master's term of office.
pub const EPOCH: &str = "epoch";
/// Whether this master has the office.
pub const OFFICE: &str = "office";
/// What an operator said of the queue: drained, paused.
pub const QUEUE: &str = "queue";
/// The number that the next job gets, at the least. Written with every commit that archives jobs, since numbers are
/// otherwise drawn above the highest live job's, and the archive may hold a higher one. Kept when the cluster ends.
pub const NEXT_JOB: &str = "next_job";
/// Which set of the cluster's own hooks the nodes are to have.
pub const HOOK_SET: &str = "hook_set";
/// The store's own: format, commit counter, sum over all records. Never among the records that are loaded.
pub(super) const META: &str = "meta";

/// What the keys of nodes begin with.
pub const NODE: &str = "node/";
/// What the keys of instances begin with.
pub const INSTANCE: &str = "instance/";
/// What the keys of exports begin with.
pub const EXPORT: &str = "export/";
/// What the keys of clients begin with.
pub const CLIENT: &str = "client/";
/// What the keys of cleanups begin with.
pub const CLEANUP: &str = "cleanup/";
/// What the keys of jobs begin with.
pub const JOB: &str = "job/";
/// What the keys of tokens begin with.
pub const TOKEN: &str = "token/";
/// What the keys of pending hosts begin with.
pub const PENDING: &str = "pending/";
/// What the keys of certificates begin with that were signed and are not yet in the configuration.
pub const ISSUED: &str = "issued/";

/// What the keys of groups of nodes begin with.
pub const GROUP: &str = "group/";
/// What the keys of networks begin with.
pub const NETWORK: &str = "network/";
/// The cluster's tags, where it has any.
pub const CLUSTER_TAGS: &str = "cluster_tags";

/// A group's record.
pub fn group(uuid: Uuid) -> String {
    format!("{GROUP}{uuid}")
}

/// A network's record.
pub fn network(uuid: Uuid) -> String {
    format!("{NETWORK}{uuid}")
}

/// What the keys of nodes' facts begin with.
pub const HOST_FACTS: &str = "host_facts/";

/// The record of a node's facts.
pub fn host_facts(name: &NodeName) -> String {
    format!("{HOST_FACTS}{name}")
}

/// A node's record.
pub fn node(name: &NodeName) -> String {
    format!("{NODE}{name}")
}

/// An instance's record.
pub fn instance(name: &InstanceName) -> String {
    format!("{INSTANCE}{name}")
}

/// An export's record.
pub fn export(uuid: Uuid) -> String {
    format!("{EXPORT}{uuid}")
}

/// A client's record.
pub fn client(name: &ClientName) -> String {
    format!("{CLIENT}{name}")
}

/// A cleanup's record.
pub fn cleanup(id: CleanupId) -> String {
    format!("{CLEANUP}{}", String::from(id))
}

/// A job's record; the order of keys is the order of numbers.
pub fn job(id: u64) -> String {
    format!("{JOB}{id:020}")
}

/// The job that a record is of; `None` for other records.
pub fn job_id(key: &str) -> Option<u64> {
    key.strip_prefix(JOB)?.parse().ok()
}

/// The record of the token whose secret has this SHA-256.
pub fn token(hash: &str) -> String {
    format!("{TOKEN}{hash}")
}

/// A pending host's record.
pub fn pending(name: &NodeName) -> String {
    format!("{PENDING}{name}")
}

/// A signed certificate's record.
pub fn issued(fingerprint: &Fingerprint) -> String {
    format!("{ISSUED}{fingerprint}")
}
