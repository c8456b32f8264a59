//! What operations share: preparation, look-ups, the variables of instance operations.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, ObjectKind, Operation, Plan, Prepared, ROWS, Refusal, groups, point_directories,
};
use crate::{
    calls::Guest,
    edit::Edit,
    facts::facts_env,
    hooks::{Env, HooksVersion, Phase},
    hypervisor::{HypervisorParams, NicMode},
    model::{Cluster, DiskName, Instance, Node},
    names::{InstanceName, NodeName, nearest},
    networks::LinkMode,
};

/// What of the job scripts see.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    /// `GANETI_JOB_ID`.
    pub id: u64,
    /// `GANETI_JOB_USER`.
    pub user: &'a str,
    /// `GANETI_JOB_REASON`.
    pub reason: &'a str,
    /// `GANETI_DRY_RUN`.
    pub dry_run: bool,
}

/// Check, node sets, environment and plan of one operation (HOOKS.md E4, E5, R6).
pub(super) fn prepare<O: Operation>(
    op: &O,
    given: Given<'_>,
    job: &JobFacts<'_>,
) -> Result<Prepared, Refusal> {
    let checked = op.check(given)?;
    let plan = op.plan(given, &checked);
    let Hooks { prefix, nodes, env, env_post } = hooks(op, given, &checked, &plan, job);
    let nodes = node_sets(nodes, given.cluster, &plan);
    // As post scripts get them: all together.
    env.clone().with(env_post.clone()).validate()?;
    let master_post = plan
        .edits
        .iter()
        .find_map(|edit| if let Edit::MasterSet { node } = edit { Some(node.clone()) } else { None });
    Ok(Prepared {
        policy: given.cluster.hooks.clone(),
        hook_prefix: prefix.map(str::to_owned),
        env,
        env_post,
        master_post: master_post.unwrap_or_else(|| given.cluster.master.clone()),
        nodes,
        plan,
    })
}

/// What an operation has of hooks in its cluster's version.
struct Hooks {
    prefix: Option<&'static str>,
    nodes: HookNodes,
    env: Env,
    env_post: Env,
}

fn hooks<O: Operation>(
    op: &O,
    given: Given<'_>,
    checked: &O::Checked,
    plan: &Plan,
    job: &JobFacts<'_>,
) -> Hooks {
    let (row, cluster, version) = (O::ROW, given.cluster, given.cluster.hooks.version);
    let Some(prefix) = row.prefix_in(version) else {
        return Hooks { prefix: None, nodes: HookNodes::default(), env: Env::new(), env_post: Env::new() };
    };
    let (mut nodes, own, env_post) = match version {
        HooksVersion::V1 => (op.hook_nodes(given, checked), op.hook_env(given, checked), Env::new()),
        HooksVersion::V2 => {
            let hooks = op.hooks2(given, checked);
            let (own, env_post) = (hooks.env(cluster), hooks.env_post(cluster, plan));
            (hooks.nodes, own, env_post)
        }
    };
    if !row.runs_in(version, Phase::Pre) {
        nodes.pre.clear();
    }
    let env = Env::new()
        .set("HOOKS_VERSION", version.value())
        .set("CLUSTER", cluster.name.as_str())
        .set("MASTER", cluster.master.as_str())
        .set("OP_ID", row.op_id)
        .set("OBJECT_TYPE", row.object.as_str())
        .set("OP_CODE", row.code_in(version))
        .set("OP_TARGET", hook_target(op, cluster))
        .set("HOOKS_PATH", prefix)
        .set("JOB_ID", job.id.to_string())
        .set("JOB_USER", job.user)
        .set("JOB_REASON", job.reason)
        .flag("DRY_RUN", job.dry_run)
        .with(node_facts(row.object, given))
        .with(own);
    Hooks { prefix: Some(prefix), nodes, env, env_post }
}

/// An operation that names nothing is about the cluster.
fn hook_target<O: Operation>(op: &O, cluster: &Cluster) -> String {
    let target = op.target();
    if target.is_empty() { cluster.name.to_string() } else { target }
}

/// What scripts of node operations see of the node's host, in both interface versions.
fn node_facts(object: ObjectKind, given: Given<'_>) -> Env {
    match object {
        ObjectKind::Node => facts_env(given.fresh.node_facts.as_ref()),
        ObjectKind::Instance | ObjectKind::Cluster | ObjectKind::Group | ObjectKind::Network => Env::new(),
    }
}

/// Each node once, and those marked offline left out: in post, by what the edits make of it (HOOKS.md E5, R6).
fn node_sets(mut nodes: HookNodes, cluster: &Cluster, plan: &Plan) -> HookNodes {
    let offline_before = |name: &NodeName| cluster.nodes.get(name).is_some_and(|node| node.offline);
    let put = |name: &NodeName| {
        let puts = plan
            .edits
            .iter()
            .filter_map(|edit| if let Edit::NodePut { node } = edit { Some(node) } else { None });
        puts.filter(|node| node.name == *name).map(|node| node.offline).next_back()
    };
    nodes.pre.retain(|name| !offline_before(name));
    nodes.post.retain(|name| !put(name).unwrap_or_else(|| offline_before(name)));
    for set in [&mut nodes.pre, &mut nodes.post] {
        set.sort();
        set.dedup();
    }
    nodes
}

/// Where an import takes its disks from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSource {
    /// The node that has the export.
    pub node: NodeName,
    /// The exported instance's name, or the export's uuid.
    pub export: String,
}

/// Refuses an unknown name, with the nearest known one.
pub(super) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Refusal {
    Refusal(match nearest(name, known) {
        Some(near) => format!("there is no {what} {name}; the nearest name is {near}"),
        None => format!("there is no {what} {name}"),
    })
}

/// A node by its name, or a refusal with the nearest known name.
pub(super) fn node<'a>(cluster: &'a Cluster, name: &NodeName) -> Result<&'a Node, Refusal> {
    let known = || cluster.nodes.keys().map(NodeName::as_str);
    cluster.nodes.get(name).ok_or_else(|| unknown("node", name.as_str(), known()))
}

/// A node that can be asked: known and not offline.
pub(super) fn node_online<'a>(cluster: &'a Cluster, name: &NodeName) -> Result<&'a Node, Refusal> {
    let found = node(cluster, name)?;
    if found.offline {
        return Err(Refusal(format!("node {name} is marked offline")));
    }
    Ok(found)
}

/// A node that can hold disks, guests and exports: online, and not one that runs hooks only.
pub(super) fn node_with_disks<'a>(cluster: &'a Cluster, name: &NodeName) -> Result<&'a Node, Refusal> {
    let found = node_online(cluster, name)?;
    if found.hooks_only {
        return Err(Refusal(format!("node {name} runs hooks only: it holds no instances, disks or exports")));
    }
    Ok(found)
}

/// A node that may get instances which have a place there already: online, and not drained.
pub(super) fn node_not_drained<'a>(cluster: &'a Cluster, name: &NodeName) -> Result<&'a Node, Refusal> {
    let found = node_with_disks(cluster, name)?;
    if found.drained {
        return Err(Refusal(format!("node {name} is drained: it gets no new instances")));
    }
    Ok(found)
}

/// A node that may get new instances: online, not drained, and its group not unallocable.
pub(super) fn node_for_instances<'a>(cluster: &'a Cluster, name: &NodeName) -> Result<&'a Node, Refusal> {
    let found = node_not_drained(cluster, name)?;
    groups::allocatable(cluster, found)?;
    Ok(found)
}

/// An instance by its name, or a refusal with the nearest known name.
pub(super) fn instance<'a>(cluster: &'a Cluster, name: &InstanceName) -> Result<&'a Instance, Refusal> {
    let known = || cluster.instances.keys().map(InstanceName::as_str);
    cluster.instances.get(name).ok_or_else(|| unknown("instance", name.as_str(), known()))
}

/// The master node, the primary and the secondaries of an instance, in this order.
pub(super) fn master_primary_secondaries(cluster: &Cluster, instance: &Instance) -> Vec<NodeName> {
    let mut nodes = vec![cluster.master.clone(), instance.primary.clone()];
    nodes.extend(instance.secondaries());
    nodes
}

/// The variables that every instance operation has (HOOKS.md, below the table of operations).
pub(super) fn instance_env(instance: &Instance) -> Env {
    Env::new()
        .set("INSTANCE_NAME", instance.name.as_str())
        .set("INSTANCE_PRIMARY", instance.primary.as_str())
        .list("INSTANCE_SECONDARIES", &instance.secondaries())
        .set("INSTANCE_DISK_TYPE", instance.template.as_str())
        .set("INSTANCE_DISK_SIZE", instance.disk_size_mib(DiskName::Sda).to_string())
        .set("INSTANCE_OS", instance.os.as_str())
}

/// The cluster's parameters; where guests have bridges, an instance of a network has that network's there.
fn parameters(cluster: &Cluster, instance: &Instance) -> HypervisorParams {
    let mut parameters = cluster.hypervisor.clone();
    if let (NicMode::Bridge(bridge), Some(connection)) =
        (&mut parameters.nic, cluster.connection_of(instance))
    {
        match connection.mode {
            LinkMode::Bridged => bridge.clone_from(&connection.link),
            // The site's scripts see to its routes.
            LinkMode::Routed => {}
        }
    }
    parameters
}

/// An instance as its hypervisor sees it.
pub(super) fn guest(cluster: &Cluster, instance: &Instance) -> Guest {
    Guest {
        uuid: instance.uuid,
        name: instance.name.clone(),
        memory_mib: instance.memory_mib,
        vcpus: instance.vcpus,
        disks: instance.disks.iter().map(|disk| (disk.name, disk.uuid, disk.size_mib)).collect(),
        ip: instance.ip,
        mac: instance.mac.clone(),
        os: instance.os.clone(),
        hypervisor: parameters(cluster, instance),
        generation: instance.generation,
    }
}

/// The names of all hook directories that an operation uses in a version of the interface.
pub fn used_directories(version: HooksVersion) -> impl Iterator<Item = String> {
    ROWS.iter().flat_map(move |row| {
        let phases = [Phase::Pre, Phase::Post].into_iter().filter(move |phase| row.runs_in(version, *phase));
        let prefix = row.prefix_in(version).into_iter();
        prefix.flat_map(move |prefix| phases.clone().map(move |phase| phase.directory(prefix)))
    })
}

/// The names of all directories that run anything in a version: those of operations, of operations that failed, the
/// global ones and those of events.
pub fn hook_directories(version: HooksVersion) -> impl Iterator<Item = String> {
    let prefixes = ROWS.iter().filter_map(move |row| row.prefix_in(version));
    let failed = prefixes.map(|prefix| Phase::Failed.directory(prefix));
    used_directories(version).chain(failed).chain(point_directories())
}

/// What is known of a directory that no operation uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnusedDirectory {
    /// The name that was probably meant: the same operation's in this version, else the nearest.
    Nearest(String),
    /// The other version of the interface has it, and this one has no hooks of that operation.
    OtherVersion(HooksVersion),
    /// Nothing.
    Unlike,
}

impl UnusedDirectory {
    /// What is known of a name that is not among [`hook_directories`].
    pub fn find(version: HooksVersion, name: &str) -> Self {
        for other in HooksVersion::ALL.into_iter().filter(|other| *other != version) {
            let phases = [Phase::Pre, Phase::Post, Phase::Failed];
            for (row, phase) in ROWS.iter().flat_map(|row| phases.map(|phase| (row, phase))) {
                let theirs = row.prefix_in(other).filter(|_| row.runs_in(other, phase));
                if theirs.is_none_or(|prefix| phase.directory(prefix) != name) {
                    continue;
                }
                let ours = row.prefix_in(version).filter(|_| row.runs_in(version, phase));
                return match ours {
                    Some(prefix) => UnusedDirectory::Nearest(phase.directory(prefix)),
                    None => UnusedDirectory::OtherVersion(other),
                };
            }
        }
        let used: Vec<String> = hook_directories(version).collect();
        match nearest(name, used.iter().map(String::as_str)) {
            Some(name) => UnusedDirectory::Nearest(name.to_owned()),
            None => UnusedDirectory::Unlike,
        }
    }
}
