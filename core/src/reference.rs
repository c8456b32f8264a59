//! What is documented of each operation's hooks: directories, commands, nodes, variables and what they mean. Variables
//! come from the operations' own examples; the words stand here, and tests compare them with the operations table.
//!
//! `docs/hooks.md`, `gnt-hooks init` and `gnt-hooks lint` are made from this.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    hooks::Phase,
    names::nearest,
    ops::{Given, JobFacts, Op, Prepared, ROWS, all_examples},
};

/// When a variable is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In every run.
    Always,
    /// Where it is given or applies; absent else.
    Sometimes,
}

/// A variable of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Without prefix.
    pub name: &'static str,
    /// When it is there.
    pub presence: Presence,
    /// A value that it may have.
    pub example: String,
    /// What it is.
    pub meaning: &'static str,
}

/// Where and for what an operation runs hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Words {
    prefix: &'static str,
    commands: &'static str,
    pre_on: &'static str,
    post_on: &'static str,
}

/// One operation with hooks.
#[derive(Debug, Clone)]
pub struct OperationHooks {
    /// `GANETI_OP_ID`.
    pub op_id: &'static str,
    /// `GANETI_OP_CODE`.
    pub op_code: &'static str,
    /// `GANETI_OBJECT_TYPE`.
    pub object: &'static str,
    /// Directory prefix.
    pub prefix: &'static str,
    /// The commands that ask for it.
    pub commands: &'static str,
    /// The nodes that are asked, in words.
    pub pre_on: &'static str,
    /// The nodes that are told, in words.
    pub post_on: &'static str,
    /// The operation's own variables, by name.
    pub own: Vec<Variable>,
    /// The first example as a job would have it.
    pub example: Prepared,
}

/// All operations with hooks.
#[derive(Debug, Clone)]
pub struct Reference {
    /// In the order of the operations table.
    pub operations: Vec<OperationHooks>,
}

const fn words(
    prefix: &'static str,
    commands: &'static str,
    pre_on: &'static str,
    post_on: &'static str,
) -> Words {
    Words { prefix, commands, pre_on, post_on }
}

const MPS: &str = "the master, the instance's primary node and its secondary node";
const MPS_NEW: &str = "the master, the instance's primary and secondary node, and the new secondary";

const WORDS: [Words; 14] = [
    words("cluster-init", "gnt-cluster init", "the master", "the master"),
    words("master-failover", "gnt-cluster master-failover", "the new master", "all nodes"),
    words("node-add", "gnt-node add", "all existing nodes", "all existing nodes and the new one"),
    words("node-remove", "gnt-node remove", "all nodes but the removed one", "all nodes but the removed one"),
    words("instance-add", "gnt-instance add, gnt-backup import", MPS, MPS),
    words("instance-export", "gnt-backup export", MPS, MPS),
    words("instance-start", "gnt-instance start", MPS, MPS),
    words("instance-shutdown", "gnt-instance shutdown", MPS, MPS),
    words("instance-modify", "gnt-instance modify", MPS, MPS),
    words("instance-failover", "gnt-instance failover", MPS, MPS),
    words("instance-remove", "gnt-instance remove", "the master", "the master"),
    words("mirror-add", "gnt-instance add-mirror", MPS_NEW, MPS_NEW),
    words("mirror-remove", "gnt-instance remove-mirror", MPS, MPS),
    words("mirror-replace", "gnt-instance replace-disks", MPS_NEW, MPS_NEW),
];

/// Variables of every operation, of the daemon's making included: when they are there and what they are.
const COMMON: [(&str, Presence, &str); 17] = [
    ("CLUSTER", Presence::Always, "the cluster's name"),
    (
        "DATA_DIR",
        Presence::Always,
        "directory with the cluster's facts as plain files, such as ssconf_node_list",
    ),
    ("DRY_RUN", Presence::Sometimes, "True in a dry run, which changes nothing afterwards"),
    ("HOOKS_PATH", Presence::Always, "the directory's prefix"),
    ("HOOKS_PHASE", Presence::Always, "PRE before the operation, POST after it"),
    ("HOOKS_VERSION", Presence::Always, "1; a script that knows another version only should do nothing"),
    ("HOOK_KILL_TIMEOUT_S", Presence::Always, "seconds until this script is ended"),
    ("HOST_NAME", Presence::Always, "the node on which the script runs"),
    ("HOST_TYPE", Presence::Always, "MASTER or NODE: what that node is"),
    ("JOB_ID", Presence::Always, "the job's number"),
    ("JOB_REASON", Presence::Always, "why it was asked for (--reason), may be empty"),
    ("JOB_USER", Presence::Always, "who asked for it"),
    ("MASTER", Presence::Always, "the master node's name"),
    ("OBJECT_TYPE", Presence::Always, "INSTANCE, NODE or CLUSTER"),
    ("OP_CODE", Presence::Always, "the operation, as Ganeti's own code named it"),
    ("OP_ID", Presence::Always, "the operation"),
    ("OP_TARGET", Presence::Always, "the instance, node or cluster that it is about"),
];

/// What the operations' own variables are.
const MEANINGS: [(&str, &str); 31] = [
    ("DISK_ID", "the mirror component's number, as gnt-instance info prints it"),
    ("DISK_NAME", "sda or sdb"),
    ("DISK_SIZE", "MiB of the first disk; 0 without one"),
    ("DISK_TEMPLATE", "diskless, file or mirror"),
    ("EXPORT_DO_SHUTDOWN", "True if the guest is down while it is copied, else False"),
    ("EXPORT_NODE", "the node that gets the export"),
    ("FORCE", "True if --force was given"),
    ("IGNORE_CONSISTENCY", "True if --ignore-consistency was given"),
    ("INSTANCE_ADD_MODE", "create or import"),
    ("INSTANCE_DISK_SIZE", "MiB of the first disk; 0 without one"),
    ("INSTANCE_DISK_TYPE", "diskless, file or mirror"),
    ("INSTANCE_IP", "the instance's address, where it has one"),
    ("INSTANCE_NAME", "the instance"),
    ("INSTANCE_OS", "its OS definition, or none"),
    ("INSTANCE_PRIMARY", "its primary node before the operation"),
    ("INSTANCE_SECONDARIES", "its secondary nodes before the operation, a blank between; may be empty"),
    ("MEM_SIZE", "MiB of memory, after a change"),
    ("NEW_MASTER", "the master after the operation"),
    ("NEW_PRIMARY", "the primary node after the operation"),
    ("NEW_SECONDARY", "the node that gets the new component; it may be the same as before"),
    ("NODE_NAME", "the node that the operation is about, not the one on which the script runs"),
    ("NODE_PIP", "that node's address for traffic between nodes"),
    ("NODE_SIP", "its address for disk replication; it may be the same"),
    ("OLD_MASTER", "the master before the operation"),
    ("OLD_PRIMARY", "the primary node before the operation"),
    ("OLD_SECONDARY", "the node that had the component"),
    ("SRC_IMAGE", "of an import: the disk image's file in the export"),
    ("SRC_NODE", "of an import: the node that has the export"),
    ("SRC_PATH", "of an import: the export's directory"),
    ("SWAP_SIZE", "MiB of the second disk; 0 without one"),
    ("VCPUS", "number of virtual processors, after a change"),
];

/// Variables of every operation.
pub fn common_variables() -> impl Iterator<Item = (&'static str, Presence, &'static str)> {
    COMMON.into_iter()
}

fn is_common(name: &str) -> bool {
    COMMON.iter().any(|(common, ..)| *common == name)
}

/// The variables that examples of one operation have beyond the common ones.
fn own_variables(examples: &[Prepared]) -> Vec<Variable> {
    let all: BTreeSet<&str> = examples.iter().flat_map(|p| p.env.iter().map(|(name, _)| name)).collect();
    let meaning = |name: &str| MEANINGS.iter().find(|(known, _)| *known == name);
    let own = all.into_iter().filter(|name| !is_common(name)).filter_map(meaning);
    let variable = |(name, meaning): &(&'static str, &'static str)| {
        let values: Vec<&str> = examples.iter().filter_map(|p| p.env.get(name)).collect();
        let is_always = values.len() == examples.len();
        let example = values.iter().find(|value| !value.is_empty()).copied().unwrap_or_default();
        Variable {
            name,
            presence: if is_always { Presence::Always } else { Presence::Sometimes },
            example: example.to_owned(),
            meaning,
        }
    };
    own.map(variable).collect()
}

impl Reference {
    /// Interface version 1, from the operations table and its examples.
    pub fn new() -> Self {
        let mut examples: BTreeMap<&str, Vec<Prepared>> = BTreeMap::new();
        for (cluster, fresh, op) in all_examples().into_iter().filter(|(_, _, op)| op.row().hooks.is_some()) {
            let local =
                if let Op::MasterFailover(failover) = &op { &failover.new_master } else { &cluster.master };
            let given = Given { cluster: &cluster, fresh: &fresh, local, undone: &[] };
            let job = JobFacts { id: 17, user: "root", reason: "", dry_run: false };
            let prepared = op.prepare(given, &job).expect("an operation's own examples pass its check");
            examples.entry(op.row().op_id).or_default().push(prepared);
        }
        let mut operation = |row: &crate::ops::Row| {
            let hooks = row.hooks?;
            let words = WORDS.iter().find(|words| words.prefix == hooks.prefix)?;
            let of_row = examples.remove(row.op_id)?;
            Some(OperationHooks {
                op_id: row.op_id,
                op_code: hooks.op_code,
                object: row.object.as_str(),
                prefix: hooks.prefix,
                commands: words.commands,
                pre_on: words.pre_on,
                post_on: words.post_on,
                own: own_variables(&of_row),
                example: of_row.into_iter().next()?,
            })
        };
        Reference { operations: ROWS.iter().filter_map(&mut operation).collect() }
    }

    /// The operation and the phase of a directory's name; `None` for one that no operation uses.
    pub fn of_directory(&self, name: &str) -> Option<(&OperationHooks, Phase)> {
        let phases = [Phase::Pre, Phase::Post];
        let mut all = self.operations.iter().flat_map(|operation| phases.map(|phase| (operation, phase)));
        all.find(|(operation, phase)| phase.directory(operation.prefix) == name)
    }

    /// Identifiers of the operations that set a variable (its name without prefix) of their own.
    pub fn setters(&self, name: &str) -> Vec<&'static str> {
        let sets = |operation: &&OperationHooks| operation.own.iter().any(|variable| variable.name == name);
        self.operations.iter().filter(sets).map(|operation| operation.op_id).collect()
    }
}

impl Default for Reference {
    fn default() -> Self {
        Reference::new()
    }
}

impl OperationHooks {
    /// The nodes of a phase, in words.
    pub fn nodes_of(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::Pre => self.pre_on,
            Phase::Post => self.post_on,
        }
    }

    /// Whether the operation sets a variable, its name without prefix.
    pub fn presence(&self, name: &str) -> Option<Presence> {
        let own = self.own.iter().find(|variable| variable.name == name).map(|variable| variable.presence);
        own.or_else(|| COMMON.iter().find(|(common, ..)| *common == name).map(|(_, presence, _)| *presence))
    }

    /// The variable that was probably meant by a name that the operation does not set.
    pub fn nearest_variable(&self, name: &str) -> Option<&'static str> {
        let known = self.own.iter().map(|variable| variable.name);
        nearest(name, known.chain(COMMON.iter().map(|(common, ..)| *common)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::used_directories;

    #[test]
    fn e1_every_variable_and_every_directory_is_described() {
        let reference = Reference::new();
        let prefixes: Vec<&str> = ROWS.iter().filter_map(|row| row.hooks).map(|hooks| hooks.prefix).collect();
        let described: Vec<&str> = reference.operations.iter().map(|operation| operation.prefix).collect();
        assert_eq!(described, prefixes);
        for directory in used_directories() {
            assert!(reference.of_directory(&directory).is_some(), "{directory}");
        }
        let mut unused: BTreeSet<&str> = MEANINGS.iter().map(|(name, _)| *name).collect();
        for (cluster, fresh, op) in all_examples().into_iter().filter(|(_, _, op)| op.row().hooks.is_some()) {
            let local =
                if let Op::MasterFailover(failover) = &op { &failover.new_master } else { &cluster.master };
            let given = Given { cluster: &cluster, fresh: &fresh, local, undone: &[] };
            let job = JobFacts { id: 17, user: "root", reason: "", dry_run: true };
            let env = op
                .prepare(given, &job)
                .unwrap()
                .env_in(Phase::Pre)
                .on_node("node1", Some("/d"))
                .for_script(1);
            let operation =
                reference.operations.iter().find(|operation| operation.op_id == op.row().op_id).unwrap();
            for (name, _) in env.iter() {
                assert!(operation.presence(name).is_some(), "{name} of {}", operation.op_id);
                unused.remove(name);
            }
            let always = operation.own.iter().filter(|variable| variable.presence == Presence::Always);
            for name in always.map(|variable| variable.name).chain(COMMON.iter().map(|common| common.0)) {
                assert!(env.get(name).is_some(), "{name} of {}", operation.op_id);
            }
        }
        assert!(unused.is_empty(), "described, and set by no operation: {unused:?}");
    }

    #[test]
    fn e2_what_may_be_absent() {
        let reference = Reference::new();
        let sometimes = |variable: &&Variable| variable.presence == Presence::Sometimes;
        let mut names: BTreeSet<&str> = reference
            .operations
            .iter()
            .flat_map(|op| op.own.iter().filter(sometimes))
            .map(|v| v.name)
            .collect();
        names.extend(COMMON.iter().filter(|common| common.1 == Presence::Sometimes).map(|common| common.0));
        let right =
            ["DRY_RUN", "FORCE", "IGNORE_CONSISTENCY", "INSTANCE_IP", "SRC_IMAGE", "SRC_NODE", "SRC_PATH"];
        assert_eq!(names.into_iter().collect::<Vec<_>>(), right);
    }

    #[test]
    fn look_ups() {
        let reference = Reference::new();
        let (operation, phase) = reference.of_directory("instance-start-post.d").unwrap();
        assert_eq!((operation.op_id, phase), ("OP_INSTANCE_START", Phase::Post));
        assert_eq!(operation.presence("FORCE"), Some(Presence::Sometimes));
        assert_eq!(operation.presence("HOST_NAME"), Some(Presence::Always));
        assert_eq!(operation.presence("NODE_NAME"), None);
        assert_eq!(operation.nearest_variable("INSTANCE_NMAE"), Some("INSTANCE_NAME"));
        assert_eq!(reference.setters("NODE_NAME"), ["OP_ADD_NODE", "OP_REMOVE_NODE"]);
        assert!(reference.of_directory("instance-stop-pre.d").is_none());
    }
}
