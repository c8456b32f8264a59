//! `gnt-cluster verify`: nodes, versions, clocks, certificates, epochs, hook directories, guests, mirrors, files, failed
//! undos and cleanups.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use muster_core::model::{Cluster, Node};
use muster_proto::v1;
use tonic::Status;

use super::{
    query::{RunningGuests, node_hooks},
    verify_busy::Busy,
    verify_mirrors::{copy_findings, place_findings, served_findings},
};
use crate::{hookset, master::Master};

/// Clocks that differ by more are a finding, in milliseconds.
const SKEW_MS_MAX: u64 = 5_000;
/// Certificates with fewer days left are a warning: they should have renewed themselves.
const CERTIFICATE_DAYS_MIN: i64 = 30;

/// Collects findings.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<v1::VerifyFinding>);

impl Findings {
    pub(super) fn error(&mut self, kind: &str, object: impl ToString, code: &str, text: String) {
        self.push(true, kind, object.to_string(), code, text);
    }

    pub(super) fn warning(&mut self, kind: &str, object: impl ToString, code: &str, text: String) {
        self.push(false, kind, object.to_string(), code, text);
    }

    fn push(&mut self, error: bool, kind: &str, object: String, code: &str, text: String) {
        self.0.push(v1::VerifyFinding {
            error,
            object_type: kind.to_owned(),
            object,
            code: code.to_owned(),
            text,
        });
    }
}

/// Checks everything; asks all nodes, one wait in all.
///
/// # Errors
/// When there is no cluster here, or it is destroyed meanwhile.
pub(crate) async fn verify(master: &Arc<Master>) -> Result<v1::VerifyResponse, Status> {
    let before = master.cluster()?;
    let busy = Busy::begin(master.view());
    let online: Vec<_> = before.nodes.values().filter(|node| !node.offline).collect();
    let names: Vec<_> = online.iter().map(|node| node.name.clone()).collect();
    master.nodes().refresh_live(&names).await;
    let hooks = futures::future::join_all(online.iter().map(|node| node_hooks(master, node))).await;
    let sets = hookset::compare(master, &before, &BTreeSet::new()).await;
    let cluster = master.cluster()?;
    let busy = busy.end(master.view(), &before, &cluster);
    let mut findings = Findings::default();
    cluster_findings(master, &cluster, &mut findings);
    hook_set_findings(&cluster, &sets, &mut findings);
    let online = cluster.nodes.values().filter(|node| names.contains(&node.name) && !node.offline);
    for node in online {
        node_findings(master, &cluster, node, &busy, &mut findings);
    }
    for hooks in &hooks {
        hooks_findings(hooks, &mut findings);
    }
    instance_findings(master, &cluster, &busy, &mut findings);
    Ok(v1::VerifyResponse {
        findings: findings.0,
        nodes_checked: u32::try_from(names.len()).unwrap_or(u32::MAX),
        instances_checked: u32::try_from(cluster.instances.len()).unwrap_or(u32::MAX),
    })
}

fn cluster_findings(master: &Master, cluster: &Cluster, findings: &mut Findings) {
    for (id, cleanup) in &cluster.cleanups {
        if let Some(error) = &cleanup.last_error {
            let text = format!(
                "{} (job {}) failed {} times: {error}",
                cleanup.call.text(),
                id.job,
                cleanup.attempts
            );
            findings.error("cluster", &cluster.name, "ECLEANUP", text);
        }
    }
    for view in master.view().jobs() {
        if let Some(call) = view.job.blocked_call() {
            let (id, place) =
                (view.job.id(), call.node().map(|node| format!(" on {node}")).unwrap_or_default());
            let text = format!(
                "job {id} was killed and is blocked: nobody confirmed the end of: {}{place}; `gnt-job repair {id}` gives it up",
                call.text()
            );
            findings.error("cluster", &cluster.name, "EBLOCKED", text);
        }
        for undo in view.job.failed_undos.iter().filter(|undo| !undo.made_good) {
            let place = undo.call.node().map(|node| format!(" on {node}")).unwrap_or_default();
            let text =
                format!("job {}: could not undo: {}{place}: {}", view.job.id(), undo.call.text(), undo.error);
            findings.error("cluster", &cluster.name, "EUNDO", text);
        }
    }
    let days = master.ca_days();
    if days < CERTIFICATE_DAYS_MIN {
        findings.error(
            "cluster",
            &cluster.name,
            "ECLUSTERCERT",
            format!("the CA is valid for {days} days only"),
        );
    }
}

fn node_findings(master: &Master, cluster: &Cluster, node: &Node, busy: &Busy, findings: &mut Findings) {
    let name = &node.name;
    if let Some(why) = master.nodes().not_reached(name) {
        return findings.error("node", name, "ENODEREACH", format!("could not be reached: {why}"));
    }
    let Some((state, _)) = master.nodes().state(name) else {
        return findings.error("node", name, "ENODEREACH", "has not reported its state".to_owned());
    };
    if state.version != crate::VERSION {
        let text = format!("runs version {}, the master {}", state.version, crate::VERSION);
        findings.warning("node", name, "ENODEVERSION", text);
    }
    if let Some(skew_ms) = master.nodes().info(name).map(|info| info.skew_ms)
        && skew_ms.unsigned_abs() > SKEW_MS_MAX
    {
        findings.error(
            "node",
            name,
            "ENODETIME",
            format!("its clock differs from the master's by {skew_ms} ms"),
        );
    }
    if state.epoch_seen > master.epoch() {
        let text = format!("has seen epoch {}, this master has {}", state.epoch_seen, master.epoch());
        findings.error("node", name, "ENODEEPOCH", text);
    }
    certificate_findings(node, &state, findings);
    file_findings(cluster, node, &state, busy, findings);
    served_findings(cluster, node, &state, busy, findings);
    for problem in &state.problems {
        findings.error("node", name, "ENODESTORAGE", problem.clone());
    }
}

fn certificate_findings(node: &Node, state: &v1::NodeState, findings: &mut Findings) {
    if state.certificate_days < 0 {
        let text = "its certificate is no longer valid".to_owned();
        findings.error("node", &node.name, "ENODECERT", text);
    } else if state.certificate_days < CERTIFICATE_DAYS_MIN {
        let text = format!("its certificate is valid for {} days only", state.certificate_days);
        findings.warning("node", &node.name, "ENODECERT", text);
    }
    if !node.fingerprints.contains(&state.certificate_fingerprint) {
        let text = "uses a certificate that the cluster does not know".to_owned();
        findings.error("node", &node.name, "ENODECERT", text);
    }
}

/// Files wanted on a node against those that are there.
fn file_findings(
    cluster: &Cluster,
    node: &Node,
    state: &v1::NodeState,
    busy: &Busy,
    findings: &mut Findings,
) {
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    for instance in cluster.instances.values() {
        for disk in &instance.disks {
            if instance.primary == node.name {
                wanted.insert(disk.uuid.to_string(), format!("{} of {}", disk.name.as_str(), instance.name));
            }
            for mirror in disk.mirrors.iter().filter(|mirror| mirror.node == node.name) {
                let text = format!("mirror {} of {} of {}", mirror.id, disk.name.as_str(), instance.name);
                wanted.insert(mirror.uuid.to_string(), text);
            }
        }
    }
    let there: BTreeSet<&str> = state.disks.iter().map(|disk| disk.uuid.as_str()).collect();
    for (uuid, what) in &wanted {
        if !there.contains(uuid.as_str()) && !busy.has_file(uuid) {
            findings.error("node", &node.name, "ENODEDISK", format!("the file {uuid} ({what}) is missing"));
        }
    }
    let exports = cluster.exports.values().filter(|export| export.node == node.name);
    let exports: BTreeSet<String> = exports.map(|export| export.uuid.to_string()).collect();
    for export in &exports {
        if !state.exports.contains(export) && !busy.has_file(export) {
            findings.error("node", &node.name, "ENODEEXPORT", format!("the export {export} is missing"));
        }
    }
    for uuid in there.iter().filter(|uuid| !wanted.contains_key(**uuid) && !busy.has_file(uuid)) {
        findings.error(
            "node",
            &node.name,
            "ENODEORPHAN",
            format!("the disk file {uuid} belongs to no instance"),
        );
    }
    for uuid in state.exports.iter().filter(|uuid| !exports.contains(*uuid) && !busy.has_file(uuid)) {
        findings.error("node", &node.name, "ENODEORPHAN", format!("the export {uuid} is not known"));
    }
    for file in &state.unknown_files {
        findings.warning("node", &node.name, "ENODEORPHAN", format!("{file} is no file of this cluster"));
    }
}

fn hooks_findings(hooks: &v1::NodeHooks, findings: &mut Findings) {
    let node = &hooks.node;
    let Some(list) = &hooks.hooks else { return };
    if let Some(failure) = &list.failure {
        findings.error("node", node, "ENODEHOOKS", format!("{}: {failure}", list.hooks_dir));
    }
    for directory in &list.directories {
        if let Some(failure) = &directory.failure {
            findings.error("node", node, "ENODEHOOKS", format!("{}: {failure}", directory.name));
        }
        if directory.r#unsafe {
            let text = format!("{} can be written by others than root and the daemon's user", directory.name);
            findings.warning("node", node, "ENODEHOOKS", text);
        }
        for hidden in directory.skipped.iter().filter(|entry| entry.reason() == v1::SkipReason::Shadowed) {
            let text = format!(
                "{}/{} of the cluster's hook set does not run: the node has an entry of its own with this name",
                directory.name, hidden.name
            );
            // A guard that everybody takes for granted.
            match directory.name.ends_with("-pre.d") {
                true => findings.error("node", node, "ENODEHOOKS", text),
                false => findings.warning("node", node, "ENODEHOOKS", text),
            }
        }
        for script in directory.scripts.iter().filter(|script| script.r#unsafe) {
            let path = format!("{}/{}", directory.name, script.name);
            let text = format!("{path} can be written by others than root and the daemon's user");
            findings.warning("node", node, "ENODEHOOKS", text);
        }
    }
    for unused in &hooks.unused {
        let near = match (&unused.nearest, unused.hooks_version) {
            (Some(near), _) => format!("; did you mean {near}?"),
            (None, Some(version)) => format!("; version {version} of the interface has it"),
            (None, None) => String::new(),
        };
        findings.warning(
            "node",
            node,
            "ENODEHOOKS",
            format!("no operation uses the directory {}{near}", unused.name),
        );
    }
}

/// Nodes that do not use the set that they should; one that is not reached is a finding already, and of one that was being
/// brought a set nothing can be said.
fn hook_set_findings(cluster: &Cluster, sets: &hookset::Compared, findings: &mut Findings) {
    let hookset::Compared { answer: sets, unsettled } = sets;
    if let Some(problem) = &sets.problem {
        let text =
            format!("the master can't bring the cluster's hook set to a node: {problem}; run gnt-hooks sync");
        findings.error("cluster", &cluster.name, "EHOOKSET", text);
    }
    for set in sets.nodes.iter().filter(|set| set.not_reached.is_none()) {
        let settled = !unsettled.contains(&set.node);
        let refused = set.refused.as_ref().map(|why| format!(" (not taken: {why})")).unwrap_or_default();
        let text = match (&set.wanted, &set.used) {
            (Some(wanted), None) => format!("has no hook set, and should have {wanted}{refused}"),
            (Some(wanted), Some(used)) if wanted != used => {
                format!("uses the hook set {used}, and should use {wanted}{refused}")
            }
            (None, Some(used)) => format!("uses the hook set {used}, which nobody knows here"),
            (Some(_), Some(_)) | (None, None) => String::new(),
        };
        if settled && !text.is_empty() {
            findings.error("node", &set.node, "ENODEHOOKSET", text);
        }
        for change in set.changed.iter().filter(|_| settled) {
            let text = format!("its hook set is not as it was brought: {change}");
            findings.error("node", &set.node, "ENODEHOOKSET", text);
        }
        if set.own {
            let text = "has a hook set that is not the cluster's: it was named in a sync".to_owned();
            findings.warning("node", &set.node, "ENODEHOOKSET", text);
        }
    }
}

fn instance_findings(master: &Master, cluster: &Cluster, busy: &Busy, findings: &mut Findings) {
    let running = RunningGuests::new(master, cluster);
    for instance in cluster.instances.values() {
        copy_findings(cluster, instance, &running, findings);
        if busy.has_instance(instance) {
            continue;
        }
        let status = running.status(cluster, instance);
        match status {
            "running" | "ADMIN_down" => {}
            "ERROR_nodeoffline" if !instance.up => {}
            // Somebody in the guest did that on purpose, or it goes on by itself.
            "USER_down" | "paused" => {
                let text = format!("is {status} on {}; wanted up", instance.primary);
                findings.warning("instance", &instance.name, "EINSTANCESTATE", text);
            }
            _ => {
                let wanted = if instance.up { "up" } else { "down" };
                let text = format!("is {status} on {}; wanted {wanted}", instance.primary);
                findings.error("instance", &instance.name, "EINSTANCESTATE", text);
            }
        }
        place_findings(instance, &running, findings);
    }
    let known: BTreeSet<String> =
        cluster.instances.values().map(|instance| instance.uuid.to_string()).collect();
    for node in cluster.nodes.keys() {
        let Some((state, _)) = master.nodes().state(node) else { continue };
        let unknown = |guest: &&v1::GuestState| {
            !known.contains(&guest.instance_uuid) && !busy.has_file(&guest.instance_uuid)
        };
        for guest in state.guests.iter().filter(unknown) {
            let text = format!("the guest {} belongs to no instance", guest.instance_uuid);
            findings.error("node", node, "ENODEORPHAN", text);
        }
    }
}
