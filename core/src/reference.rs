//! What is documented of each operation's hooks: directories, commands, nodes, variables and what they mean. Variables
//! come from the operations' own examples; the words stand here, and tests compare them with the operations table.
//!
//! `docs/hooks.md`, `gnt-hooks init` and `gnt-hooks lint` are made from this.

mod points;
mod v2;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    hooks::{HooksVersion, Phase},
    model::Cluster,
    names::nearest,
    ops::{AFTER_VARIABLES, Given, JobFacts, ObjectKind, Op, Prepared, ROWS, all_examples, examples},
};

pub use points::{PointHooks, PointKind, PointVariable, after_in_global, points};

/// When a variable is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// In every run.
    Always,
    /// Where it is given or applies; absent else.
    Sometimes,
}

impl Presence {
    /// In words, for a variable of this name.
    pub fn words(self, name: &str) -> &'static str {
        match self {
            Presence::Always => "always",
            Presence::Sometimes if name.contains("NICn_NETWORK_") => "for each in a network",
            Presence::Sometimes if is_one_of_many(name) => "for each",
            Presence::Sometimes => "when given",
        }
    }
}

/// A variable of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Without prefix; `n` stands for a number, from 0.
    pub name: &'static str,
    /// When it is there.
    pub presence: Presence,
    /// Post scripts have `POST_NAME` too: its value after the operation.
    pub restated: bool,
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
    /// Whether it runs hooks before.
    pub has_pre: bool,
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

/// All operations with hooks in one interface version.
#[derive(Debug, Clone)]
pub struct Reference {
    /// That version.
    pub version: HooksVersion,
    /// In the order of the operations table.
    pub operations: Vec<OperationHooks>,
    /// Directories beside the operations' own.
    pub points: Vec<PointHooks>,
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
    ("HOOKS_PHASE", Presence::Always, "PRE before the operation, POST after it; pre and post in version 2"),
    ("HOOKS_VERSION", Presence::Always, "1 or 2; a script that knows another version only should do nothing"),
    ("HOOK_KILL_TIMEOUT_S", Presence::Always, "seconds until this script is ended"),
    ("HOST_NAME", Presence::Always, "the node on which the script runs"),
    ("HOST_TYPE", Presence::Always, "MASTER or NODE: what that node is"),
    ("JOB_ID", Presence::Always, "the job's number"),
    ("JOB_REASON", Presence::Always, "why it was asked for (--reason), may be empty"),
    ("JOB_USER", Presence::Always, "who asked for it"),
    ("MASTER", Presence::Always, "the master node's name"),
    ("OBJECT_TYPE", Presence::Always, "INSTANCE, NODE, CLUSTER, GROUP or NETWORK"),
    ("OP_CODE", Presence::Always, "the operation, as Ganeti's own code named it"),
    ("OP_ID", Presence::Always, "the operation"),
    ("OP_TARGET", Presence::Always, "the instance, node, cluster, group or network that it is about"),
];

/// What the operations' own variables are.
const MEANINGS: [(&str, &str); 36] = [
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
    ("NODE_IPS", "its host's addresses, a blank between; empty where nobody knows"),
    ("NODE_NAME", "the node that the operation is about, not the one on which the script runs"),
    ("NODE_OS_NAME", "its host's operating system, such as debian; empty where nobody knows"),
    ("NODE_OS_SP", "the system's service pack or patch level; empty where it has none"),
    ("NODE_OS_STRING", "the system and its version in a line; empty where nobody knows"),
    ("NODE_OS_VERSION", "the system's version, such as 12; empty where nobody knows"),
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

/// A variable by the name that it is described under: `INSTANCE_NIC0_IP` is `INSTANCE_NICn_IP`, and a node's name is `name`.
pub fn described_name(name: &str) -> Cow<'_, str> {
    for stem in ["INSTANCE_NIC", "INSTANCE_DISK"] {
        let Some(rest) = name.strip_prefix(stem) else { continue };
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() < rest.len() && after.starts_with('_') {
            return Cow::Owned(format!("{stem}n{after}"));
        }
    }
    if name.starts_with("NODE_TAGS_") {
        return Cow::Borrowed("NODE_TAGS_name");
    }
    Cow::Borrowed(name)
}

/// Whether a described name stands for one variable for each disk, network card or node.
pub fn is_one_of_many(described: &str) -> bool {
    described.contains("NICn_") || described.contains("DISKn_") || described == "NODE_TAGS_name"
}

/// What a variable is in a version, and its name.
fn meaning_of(version: HooksVersion, name: &str) -> Option<(&'static str, &'static str)> {
    let newer = match version {
        HooksVersion::V1 => [].iter(),
        HooksVersion::V2 => v2::MEANINGS.iter(),
    };
    newer.chain(&MEANINGS).find(|(known, _)| *known == name).copied()
}

/// The variables that examples of one operation have beyond the common ones.
fn own_variables(version: HooksVersion, examples: &[Prepared]) -> Vec<Variable> {
    let all: BTreeSet<Cow<'_, str>> =
        examples.iter().flat_map(|p| p.env.iter().map(|(name, _)| described_name(name))).collect();
    let own = all.iter().filter(|name| !is_common(name)).filter_map(|name| meaning_of(version, name));
    let variable = |(name, meaning): (&'static str, &'static str)| {
        let described_so =
            |(found, value): (&str, &str)| (described_name(found) == name).then(|| value.to_owned());
        let values: Vec<String> =
            examples.iter().filter_map(|p| p.env.iter().find_map(described_so)).collect();
        let is_plain = !is_one_of_many(name);
        let is_always = values.len() == examples.len() && is_plain;
        let example = values.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
        let is_restated = |p: &Prepared| {
            let mut names = p.env_post.iter().filter_map(|(post, _)| post.strip_prefix("POST_"));
            names.any(|post| described_name(post) == name)
        };
        Variable {
            name,
            presence: if is_always { Presence::Always } else { Presence::Sometimes },
            restated: examples.iter().any(is_restated),
            example,
            meaning,
        }
    };
    own.map(variable).collect()
}

/// The example cluster's instances, all of them in a network.
fn in_a_network(mut cluster: Cluster) -> Cluster {
    let lan = examples::networked().networks.into_values().next().expect("the example has networks");
    for instance in cluster.instances.values_mut() {
        instance.network = Some(lan.uuid);
    }
    cluster.networks.insert(lan.uuid, lan);
    cluster
}

/// The examples of all operations with hooks in a version, prepared as a job would have them, with the `OP_ID`. Those on
/// instances are there once more with the instances in a network, where the operation can be done so.
pub fn prepared_examples(version: HooksVersion, dry_run: bool) -> Vec<(&'static str, Prepared)> {
    let mut all = Vec::new();
    for (mut cluster, fresh, op) in all_examples() {
        let row = op.row();
        if row.prefix_in(version).is_none() {
            continue;
        }
        cluster.hooks.version = version;
        let prepare = |cluster: &Cluster| {
            let local =
                if let Op::MasterFailover(failover) = &op { &failover.new_master } else { &cluster.master };
            let given = Given { cluster, fresh: &fresh, local, undone: &[] };
            op.prepare(given, &JobFacts { id: 17, user: "root", reason: "", dry_run })
        };
        all.push((row.op_id, prepare(&cluster).expect("an operation's own examples pass its check")));
        if row.object == ObjectKind::Instance {
            all.extend(prepare(&in_a_network(cluster)).ok().map(|prepared| (row.op_id, prepared)));
        }
    }
    all
}

impl Reference {
    /// An interface version, from the operations table and its examples.
    pub fn new(version: HooksVersion) -> Self {
        let mut examples: BTreeMap<&str, Vec<Prepared>> = BTreeMap::new();
        for (op_id, prepared) in prepared_examples(version, false) {
            examples.entry(op_id).or_default().push(prepared);
        }
        let described: &[Words] = match version {
            HooksVersion::V1 => &WORDS,
            HooksVersion::V2 => &v2::WORDS,
        };
        let mut operation = |row: &crate::ops::Row| {
            let prefix = row.prefix_in(version)?;
            let words = described.iter().find(|words| words.prefix == prefix)?;
            let of_row = examples.remove(row.op_id)?;
            Some(OperationHooks {
                op_id: row.op_id,
                op_code: row.code_in(version),
                object: row.object.as_str(),
                prefix,
                has_pre: row.runs_in(version, Phase::Pre),
                commands: words.commands,
                pre_on: words.pre_on,
                post_on: words.post_on,
                own: own_variables(version, &of_row),
                example: of_row.into_iter().next()?,
            })
        };
        Reference { version, operations: ROWS.iter().filter_map(&mut operation).collect(), points: points() }
    }

    /// The operation and the phase of a directory's name; `None` for one that no operation uses.
    pub fn of_directory(&self, name: &str) -> Option<(&OperationHooks, Phase)> {
        let mut all = self.operations.iter().flat_map(|operation| {
            let phases = operation.phases().into_iter().chain([Phase::Failed]);
            phases.map(move |phase| (operation, phase))
        });
        all.find(|(operation, phase)| phase.directory(operation.prefix) == name)
    }

    /// The point that a directory belongs to; `None` for those of operations.
    pub fn point(&self, directory: &str) -> Option<&PointHooks> {
        self.points.iter().find(|point| point.directory == directory)
    }

    /// Whether a variable (its name without prefix) is there in some directories only: a script that is run in several has
    /// to look where it is.
    pub fn is_set_somewhere(&self, name: &str) -> bool {
        let of_point = |point: &PointHooks| point.variables.iter().any(|(own, ..)| *own == name);
        !self.setters(name).is_empty() || self.points.iter().any(of_point)
    }

    /// Identifiers of the operations that set a variable (its name without prefix) of their own.
    pub fn setters(&self, name: &str) -> Vec<&'static str> {
        let name = described_name(name);
        let sets = |operation: &&OperationHooks| operation.own.iter().any(|variable| variable.name == name);
        self.operations.iter().filter(sets).map(|operation| operation.op_id).collect()
    }
}

impl Default for Reference {
    fn default() -> Self {
        Reference::new(HooksVersion::default())
    }
}

impl OperationHooks {
    /// The phases that have a directory.
    pub fn phases(&self) -> Vec<Phase> {
        let pre = self.has_pre.then_some(Phase::Pre);
        pre.into_iter().chain([Phase::Post]).collect()
    }

    /// The nodes of a phase, in words.
    pub fn nodes_of(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::Pre | Phase::Failed => self.pre_on,
            Phase::Post => self.post_on,
        }
    }

    /// Whether the operation sets a variable in a phase, its name without prefix.
    pub fn presence(&self, phase: Phase, name: &str) -> Option<Presence> {
        let after = AFTER_VARIABLES.iter().find(|(after, ..)| *after == name);
        if let Some((.., with_success)) = after {
            let is_there =
                self.example.policy.version.tells_of_job(phase) && (phase == Phase::Failed || *with_success);
            return is_there.then_some(Presence::Always);
        }
        let restated = name.strip_prefix("POST_").filter(|_| phase == Phase::Post);
        let described = described_name(restated.unwrap_or(name));
        let own = self.own.iter().find(|variable| variable.name == described);
        if restated.is_some() {
            return own.filter(|variable| variable.restated).map(|variable| variable.presence);
        }
        let own = own.map(|variable| variable.presence);
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
    use crate::{hooks::Env, ops::used_directories};

    /// What a script sees of an example in a phase, in the widest case.
    fn exported(version: HooksVersion, phase: Phase) -> Vec<(&'static str, Env)> {
        let all = prepared_examples(version, true).into_iter();
        all.map(|(op_id, prepared)| {
            (op_id, prepared.env_in(phase).on_node("node1", Some("/d")).for_script(1))
        })
        .collect()
    }

    #[test]
    fn e1_every_variable_and_every_directory_is_described() {
        let mut unused: BTreeSet<&str> = MEANINGS.iter().chain(v2::MEANINGS).map(|(name, _)| *name).collect();
        for version in HooksVersion::ALL {
            let reference = Reference::new(version);
            let prefixes: Vec<&str> = ROWS.iter().filter_map(|row| row.prefix_in(version)).collect();
            let described: Vec<&str> =
                reference.operations.iter().map(|operation| operation.prefix).collect();
            assert_eq!(described, prefixes);
            for directory in used_directories(version) {
                assert!(reference.of_directory(&directory).is_some(), "{directory}");
            }
            for phase in [Phase::Pre, Phase::Post] {
                for (op_id, env) in exported(version, phase) {
                    let operation =
                        reference.operations.iter().find(|operation| operation.op_id == op_id).unwrap();
                    for (name, _) in env.iter() {
                        assert!(
                            operation.presence(phase, name).is_some(),
                            "{name} of {op_id}, version {version}"
                        );
                        unused.remove(&*described_name(name));
                    }
                    let always =
                        operation.own.iter().filter(|variable| variable.presence == Presence::Always);
                    for name in
                        always.map(|variable| variable.name).chain(COMMON.iter().map(|common| common.0))
                    {
                        assert!(env.get(name).is_some(), "{name} of {op_id}, version {version}");
                    }
                }
            }
        }
        assert!(unused.is_empty(), "described, and set by no operation: {unused:?}");
    }

    #[test]
    fn e2_what_may_be_absent() {
        let sometimes = |variable: &&Variable| variable.presence == Presence::Sometimes;
        for version in HooksVersion::ALL {
            let reference = Reference::new(version);
            let operations = reference.operations.iter();
            let names: BTreeSet<&str> =
                operations.flat_map(|op| op.own.iter().filter(sometimes)).map(|v| v.name).collect();
            let plain = names.into_iter().filter(|name| !is_one_of_many(name));
            let right: &[&str] = match version {
                HooksVersion::V1 => {
                    &["FORCE", "IGNORE_CONSISTENCY", "INSTANCE_IP", "SRC_IMAGE", "SRC_NODE", "SRC_PATH"]
                }
                HooksVersion::V2 => &["SRC_IMAGE", "SRC_IMAGES", "SRC_NODE", "SRC_PATH"],
            };
            assert_eq!(plain.collect::<Vec<_>>(), right);
        }
        let common = COMMON.iter().filter(|common| common.1 == Presence::Sometimes).map(|common| common.0);
        assert_eq!(common.collect::<Vec<_>>(), ["DRY_RUN"]);
    }

    #[test]
    fn look_ups() {
        let reference = Reference::new(HooksVersion::V1);
        let (operation, phase) = reference.of_directory("instance-start-post.d").unwrap();
        assert_eq!((operation.op_id, phase), ("OP_INSTANCE_START", Phase::Post));
        assert_eq!(operation.presence(phase, "FORCE"), Some(Presence::Sometimes));
        assert_eq!(operation.presence(phase, "HOST_NAME"), Some(Presence::Always));
        assert_eq!(operation.presence(phase, "NODE_NAME"), None);
        assert_eq!(operation.presence(phase, "POST_INSTANCE_NAME"), None);
        assert_eq!(operation.nearest_variable("INSTANCE_NMAE"), Some("INSTANCE_NAME"));
        assert_eq!(reference.setters("NODE_NAME"), ["OP_ADD_NODE", "OP_REMOVE_NODE"]);
        assert!(reference.of_directory("instance-stop-pre.d").is_none());
    }

    #[test]
    fn look_ups_in_version_2() {
        let reference = Reference::new(HooksVersion::V2);
        let (operation, phase) = reference.of_directory("instance-stop-post.d").unwrap();
        assert_eq!((operation.op_id, phase), ("OP_INSTANCE_SHUTDOWN", Phase::Post));
        assert_eq!(operation.presence(phase, "POST_INSTANCE_NAME"), Some(Presence::Always));
        assert_eq!(operation.presence(Phase::Pre, "POST_INSTANCE_NAME"), None);
        assert_eq!(operation.presence(phase, "INSTANCE_NIC7_MAC"), Some(Presence::Sometimes));
        assert_eq!(operation.presence(phase, "POST_INSTANCE_DISK0_SIZE"), Some(Presence::Sometimes));
        assert_eq!(operation.presence(phase, "INSTANCE_DISK_SIZE"), None);
        assert_eq!(reference.setters("INSTANCE_NIC0_IP").first(), Some(&"OP_INSTANCE_ADD"));
        assert!(reference.of_directory("cluster-init-pre.d").is_none());
    }

    #[test]
    fn described_names() {
        for (name, right) in [
            ("INSTANCE_NIC0_IP", "INSTANCE_NICn_IP"),
            ("INSTANCE_NIC12_NETWORK_NAME", "INSTANCE_NICn_NETWORK_NAME"),
            ("INSTANCE_DISK0_SIZE", "INSTANCE_DISKn_SIZE"),
            ("INSTANCE_DISK_SIZE", "INSTANCE_DISK_SIZE"),
            ("INSTANCE_NIC_COUNT", "INSTANCE_NIC_COUNT"),
            ("INSTANCE_NIC0", "INSTANCE_NIC0"),
        ] {
            assert_eq!(described_name(name), right);
        }
    }
}
