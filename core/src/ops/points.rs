//! Hook points beside an operation's own directories: the global ones of every operation, those of a failed one, and
//! those of events that are no operation.

use super::{JobFacts, Op};
use crate::{
    hooks::{Env, HooksVersion, Phase},
    model::Cluster,
};

/// The prefix of the directories that every operation runs on the master: `global-pre.d`, `global-post.d`.
pub const GLOBAL_PREFIX: &str = "global";

/// The prefix of the directory that may refuse a new set of the cluster's hooks on a node: `hooks-sync-pre.d`.
pub const SYNC_PREFIX: &str = "hooks-sync";
/// What its scripts see beside the common variables: name without prefix, and meaning.
pub const SYNC_VARIABLES: [(&str, &str); 3] = [
    ("HOOK_SET_OLD", "the digest of the set in use on this node; empty where there is none"),
    ("HOOK_SET_NEW", "the digest of the set that is to be used"),
    ("HOOK_SET_PATH", "the directory in which the new set lies on this node"),
];

/// An event that is no operation: its scripts run on the master and are only logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPoint {
    /// `config-update` means `config-update-post.d`.
    pub prefix: &'static str,
    /// When it runs, in words.
    pub when: &'static str,
    /// Variables of its own, without prefix, with what they are.
    pub own: &'static [(&'static str, &'static str)],
}

const NODE_NAME: (&str, &str) = ("NODE_NAME", "the node");
const FACTS_PATH: (&str, &str) = ("FACTS_PATH", "a file with what the node said, JSON, gone after the run");
const OS_NAME: (&str, &str) = ("NODE_OS_NAME", "its host's operating system; may be empty");
const OS_VERSION: (&str, &str) = ("NODE_OS_VERSION", "the system's version; may be empty");
const OS_SP: (&str, &str) = ("NODE_OS_SP", "the system's service pack or patch level; may be empty");
const OS_STRING: (&str, &str) = ("NODE_OS_STRING", "the system and its version in a line; may be empty");
const IPS: (&str, &str) = ("NODE_IPS", "its host's addresses, a blank between; may be empty");

/// All events that run a directory.
pub const EVENT_POINTS: [EventPoint; 4] = [
    EventPoint {
        prefix: "config-update",
        when: "after a change of the configuration was committed; changes close together are one run",
        own: &[("CONFIG_SERIAL", "the configuration's serial number")],
    },
    EventPoint {
        prefix: "node-pending",
        when: "when a node has asked to join",
        own: &[
            NODE_NAME,
            ("NODE_PIP", "its address"),
            OS_NAME,
            OS_VERSION,
            OS_SP,
            OS_STRING,
            IPS,
            FACTS_PATH,
        ],
    },
    EventPoint {
        prefix: "node-enrol-failed",
        when: "when a node's request to join could not be processed",
        own: &[
            ("NODE_NAME", "the name that it gave; may be empty"),
            ("NODE_PIP", "the address that it came from"),
            FACTS_PATH,
            ("ERROR_MESSAGE_PATH", "a file with the reason, gone after the run"),
        ],
    },
    EventPoint {
        prefix: "node-facts",
        when: "when a node's facts have changed",
        own: &[NODE_NAME, OS_NAME, OS_VERSION, OS_SP, OS_STRING, IPS, FACTS_PATH],
    },
];

/// What scripts see after every operation, beside what it tells before: name without prefix, meaning, and whether it is
/// there after a success too. Global scripts, and those of a failed operation, see all of them; an operation's own post
/// scripts those of a success, where the interface version tells them ([`HooksVersion::tells_of_job`]).
pub const AFTER_VARIABLES: [(&str, &str, bool); 6] = [
    ("JOB_STARTED", "when the job began, ISO 8601 in UTC", true),
    ("JOB_ENDED", "when all that the operation does was done or undone", true),
    ("POST_NODES_COUNT", "on how many nodes something was done", true),
    ("POST_NODES_PATH", "a file with the names of these nodes, one a line, gone after the run", true),
    ("POST_STATUS", "success, error, canceled or disappeared", false),
    ("ERROR_MESSAGE_PATH", "a file with the error's text, gone after the run", false),
];

/// The directories of [`GLOBAL_PREFIX`], [`EVENT_POINTS`] and [`SYNC_PREFIX`].
pub fn point_directories() -> impl Iterator<Item = String> {
    let global = [Phase::Pre, Phase::Post].map(|phase| phase.directory(GLOBAL_PREFIX));
    let events = EVENT_POINTS.iter().map(|point| Phase::Post.directory(point.prefix));
    global.into_iter().chain(events).chain([Phase::Pre.directory(SYNC_PREFIX)])
}

/// What global scripts see of an operation that has no hooks of its own, or was not prepared.
pub fn job_env(op: &Op, cluster: Option<&Cluster>, job: &JobFacts<'_>) -> Env {
    let row = op.row();
    let version = cluster.map_or(HooksVersion::default(), |cluster| cluster.hooks.version);
    Env::new()
        .set("HOOKS_VERSION", version.value())
        .set("CLUSTER", cluster.map(|cluster| cluster.name.as_str()).unwrap_or_default())
        .set("MASTER", cluster.map(|cluster| cluster.master.as_str()).unwrap_or_default())
        .set("OP_ID", row.op_id)
        .set("OBJECT_TYPE", row.object.as_str())
        .set("OP_CODE", row.code_in(version))
        .set("OP_TARGET", op.target())
        .set("HOOKS_PATH", GLOBAL_PREFIX)
        .set("JOB_ID", job.id.to_string())
        .set("JOB_USER", job.user)
        .set("JOB_REASON", job.reason)
        .flag("DRY_RUN", job.dry_run)
}

/// What scripts see of an event.
pub fn event_env(prefix: &str, cluster: &Cluster, own: Env) -> Env {
    let version = cluster.hooks.version;
    let object = if own.get("NODE_NAME").is_some() { "NODE" } else { "CLUSTER" };
    Env::new()
        .set("HOOKS_VERSION", version.value())
        .set("HOOKS_PHASE", version.phase(Phase::Post))
        .set("HOOKS_PATH", prefix)
        .set("CLUSTER", cluster.name.as_str())
        .set("MASTER", cluster.master.as_str())
        .set("OBJECT_TYPE", object)
        .with(own)
}

/// What `hooks-sync-pre.d` sees as the operation, which is none.
const SYNC_OP_ID: &str = "OP_HOOKS_SYNC";

/// What scripts of [`SYNC_PREFIX`] see, without what the node adds ([`SYNC_VARIABLES`] among it).
pub fn sync_env(cluster: &Cluster, user: &str) -> Env {
    let version = cluster.hooks.version;
    Env::new()
        .set("HOOKS_VERSION", version.value())
        .set("HOOKS_PHASE", version.phase(Phase::Pre))
        .set("HOOKS_PATH", SYNC_PREFIX)
        .set("CLUSTER", cluster.name.as_str())
        .set("MASTER", cluster.master.as_str())
        .set("OBJECT_TYPE", "CLUSTER")
        .set("OP_ID", SYNC_OP_ID)
        .set("OP_CODE", SYNC_OP_ID)
        .set("OP_TARGET", cluster.name.as_str())
        .set("JOB_ID", "0")
        .set("JOB_USER", user)
        .set("JOB_REASON", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_points() {
        let names: Vec<String> = point_directories().collect();
        assert_eq!(
            names,
            [
                "global-pre.d",
                "global-post.d",
                "config-update-post.d",
                "node-pending-post.d",
                "node-enrol-failed-post.d",
                "node-facts-post.d",
                "hooks-sync-pre.d"
            ]
        );
    }
}
