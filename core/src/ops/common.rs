//! What operations share: preparation, look-ups, the variables of instance operations.

use serde::{Deserialize, Serialize};

use super::{Given, HookNodes, Operation, Plan, Prepared, ROWS, Refusal};
use crate::{
    calls::Guest,
    edit::Edit,
    hooks::{Env, Phase},
    model::{Cluster, DiskName, Instance, Node},
    names::{InstanceName, NodeName, nearest},
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
    let row = O::ROW;
    let plan = op.plan(given, &checked);
    let nodes = node_sets(op.hook_nodes(given, &checked), given.cluster, &plan);
    let env = match row.hooks {
        None => Env::new(),
        Some(hooks) => Env::new()
            .set("HOOKS_VERSION", "1")
            .set("CLUSTER", given.cluster.name.as_str())
            .set("MASTER", given.cluster.master.as_str())
            .set("OP_ID", row.op_id)
            .set("OBJECT_TYPE", row.object.as_str())
            .set("OP_CODE", hooks.op_code)
            .set("OP_TARGET", op.target())
            .set("HOOKS_PATH", hooks.prefix)
            .set("JOB_ID", job.id.to_string())
            .set("JOB_USER", job.user)
            .set("JOB_REASON", job.reason)
            .flag("DRY_RUN", job.dry_run)
            .with(op.hook_env(given, &checked)),
    };
    env.validate()?;
    let master_post = plan
        .edits
        .iter()
        .find_map(|edit| if let Edit::MasterSet { node } = edit { Some(node.clone()) } else { None });
    Ok(Prepared {
        policy: given.cluster.hooks.clone(),
        hook_prefix: row.hooks.map(|hooks| hooks.prefix.to_owned()),
        env,
        master_post: master_post.unwrap_or_else(|| given.cluster.master.clone()),
        nodes,
        plan,
    })
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

/// A node that may get new instances: online and not drained.
pub(super) fn node_for_instances<'a>(cluster: &'a Cluster, name: &NodeName) -> Result<&'a Node, Refusal> {
    let found = node_with_disks(cluster, name)?;
    if found.drained {
        return Err(Refusal(format!("node {name} is drained: it gets no new instances")));
    }
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
        hypervisor: cluster.hypervisor.clone(),
        generation: instance.generation,
    }
}

/// The names of all hook directories that an operation uses.
pub fn used_directories() -> impl Iterator<Item = String> {
    let prefixes = ROWS.iter().filter_map(|row| row.hooks).map(|hooks| hooks.prefix);
    prefixes.flat_map(|prefix| [Phase::Pre.directory(prefix), Phase::Post.directory(prefix)])
}

/// The pairs in which other Ganeti versions use another prefix.
const OTHER_VERSIONS: [(&str, &str); 2] =
    [("instance-stop", "instance-shutdown"), ("mirrors-replace", "mirror-replace")];

/// For a directory that no operation uses: the name that was probably meant.
pub fn unused_directory_nearest(name: &str) -> Option<String> {
    for (theirs, ours) in OTHER_VERSIONS {
        for phase in [Phase::Pre, Phase::Post] {
            if name == phase.directory(theirs) {
                return Some(phase.directory(ours));
            }
        }
    }
    let used: Vec<String> = used_directories().collect();
    nearest(name, used.iter().map(String::as_str)).map(str::to_owned)
}
