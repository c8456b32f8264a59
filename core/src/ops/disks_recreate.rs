//! OP_INSTANCE_RECREATE_DISKS: new, empty files in the place of disks that were lost. One that is still there is never touched:
//! its node refuses.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common,
    examples, hooks2, mirroring, networks, parts,
};
use crate::{
    calls::{Call, NodeCall},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, DiskName, DiskTemplate, Instance},
    names::{InstanceName, NodeName},
};

/// Makes lost disks anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisksRecreate {
    /// The instance.
    pub instance: InstanceName,
    /// Which disks; empty for all.
    pub disks: BTreeSet<DiskName>,
    /// Its primary node afterwards, and its secondary; empty where its nodes stay.
    pub nodes: Vec<NodeName>,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    after: Instance,
    /// Files that must not be there, with their nodes.
    lost: Vec<(NodeName, Uuid)>,
    /// New files with their nodes and sizes in MiB.
    made: Vec<(NodeName, Uuid, u64)>,
}

/// The primary node and the secondary, where the template has one.
fn check_nodes(
    op: &DisksRecreate,
    cluster: &Cluster,
    before: &Instance,
) -> Result<(NodeName, Option<NodeName>), Refusal> {
    let wanted = if before.template == DiskTemplate::Mirror { 2 } else { 1 };
    let (primary, secondary) = match &op.nodes[..] {
        [] => (before.primary.clone(), parts::secondary(before)),
        nodes if nodes.len() != wanted => {
            let template = before.template.as_str();
            return Err(Refusal(format!(
                "{} has the template {template}, and so {wanted} nodes: {} are named",
                op.instance,
                nodes.len()
            )));
        }
        [primary, rest @ ..] => (primary.clone(), rest.first().cloned()),
    };
    if secondary.as_ref() == Some(&primary) {
        return Err(Refusal(format!("node {primary} can't be both primary and secondary")));
    }
    let stays = |node: &NodeName| *node == before.primary || before.secondaries().contains(node);
    for node in std::iter::once(&primary).chain(&secondary) {
        if stays(node) {
            common::node_with_disks(cluster, node)?;
        } else {
            common::node_for_instances(cluster, node)?;
            networks::node_for(cluster, before, node)?;
        }
    }
    Ok((primary, secondary))
}

/// The disks that are made anew.
fn check_disks(op: &DisksRecreate, before: &Instance) -> Result<BTreeSet<DiskName>, Refusal> {
    let all: BTreeSet<DiskName> = before.disks.iter().map(|disk| disk.name).collect();
    if all.is_empty() {
        return Err(Refusal(format!("{} has no disks", op.instance)));
    }
    if let Some(unknown) = op.disks.iter().find(|name| !all.contains(name)) {
        return Err(Refusal(format!("{} has no disk {}", op.instance, unknown.as_str())));
    }
    let chosen = if op.disks.is_empty() { all.clone() } else { op.disks.clone() };
    if !op.nodes.is_empty() && chosen != all {
        return Err(Refusal("on other nodes all disks are made anew: name none".to_owned()));
    }
    Ok(chosen)
}

impl Operation for DisksRecreate {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_RECREATE_DISKS",
        object: ObjectKind::Instance,
        hooks: None,
        hooks2: Some(HookRow2::both("instance-recreate-disks", "OP_INSTANCE_RECREATE_DISKS")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("instance", &self.instance);
        let on = |locks: Locks, node: &NodeName| locks.shared("node", node).shared("instance-networks", "");
        self.nodes.iter().fold(locks, on)
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = common::instance(given.cluster, &self.instance)?;
        parts::refuse_up(before)?;
        let chosen = check_disks(self, before)?;
        let (primary, secondary) = check_nodes(self, given.cluster, before)?;
        let moved = u64::from(primary != before.primary);
        let mut after = Instance { primary, generation: before.generation + moved, ..before.clone() };
        let (mut lost, mut made) = (Vec::new(), Vec::new());
        let mut disks = std::mem::take(&mut after.disks);
        for disk in disks.iter_mut().filter(|disk| chosen.contains(&disk.name)) {
            lost.extend(parts::files(before, disk).map(|(node, uuid)| (node.clone(), uuid)));
            disk.uuid = parts::fresh_uuid(given, parts::FILES + made.len());
            made.push((after.primary.clone(), disk.uuid, disk.size_mib));
            // One copy is enough, whatever there was: it is as empty as the disk.
            let before_on = disk.mirrors.first().map(|copy| copy.node.clone());
            let copy_on = if self.nodes.is_empty() { before_on } else { secondary.clone() };
            disk.mirrors.clear();
            if let Some(node) = copy_on {
                let uuid = parts::fresh_uuid(given, parts::FILES + made.len());
                made.push((node.clone(), uuid, disk.size_mib));
                disk.mirrors.push(parts::new_mirror(&mut after, &node, uuid, CopyState::Consistent));
            }
        }
        after.disks = disks;
        // Nobody can say what is on a node that can't be asked; what is there stays there.
        lost.retain(|(node, _)| common::node_online(given.cluster, node).is_ok());
        Ok(Checked { after, lost, made })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _checked: &Checked) -> Hooks2 {
        Hooks2::instance(given, hooks2::instance_before(given, &self.instance))
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { after, lost, made } = checked;
        let absent = |plan: Plan, (node, disk): &(NodeName, Uuid)| {
            plan.harmless(Call::Node(node.clone(), NodeCall::DiskAbsent { disk: *disk }))
        };
        let mut plan = lost.iter().fold(Plan::new(), absent);
        for (node, uuid, size_mib) in made {
            plan = parts::plan_disk(plan, node, *uuid, *size_mib);
        }
        let empty = mirroring::copies(after, |copy| made.iter().any(|(_, uuid, _)| *uuid == copy.uuid));
        mirroring::plan_trust(plan, given.cluster, after, &empty)
            .edit(Edit::InstancePut { instance: Box::new(after.clone()) })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let recreate = |cluster: Cluster, name: &str, disks: &[DiskName], nodes: &[&str]| {
            let instance = examples::instance_name(name);
            let nodes = nodes.iter().map(|node| examples::node_name(node)).collect();
            (
                cluster,
                examples::fresh(),
                DisksRecreate { instance, disks: disks.iter().copied().collect(), nodes },
            )
        };
        let down = |mut cluster: Cluster, name: &str| {
            cluster.instances.get_mut(&examples::instance_name(name)).expect("it is an example").up = false;
            cluster
        };
        vec![
            recreate(examples::cluster(), "db1", &[], &[]),
            recreate(examples::in_sync("db1"), "db1", &[], &["node2", "node1"]),
            recreate(down(examples::cluster(), "web1"), "web1", &[DiskName::Sdb], &[]),
            recreate(down(examples::offline("node2"), "mail1"), "mail1", &[], &["node1", "node3"]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, name: &str, disks: &[DiskName], nodes: &[&str], text: &str) {
        let op = DisksRecreate {
            instance: examples::instance_name(name),
            disks: disks.iter().copied().collect(),
            nodes: nodes.iter().map(|node| examples::node_name(node)).collect(),
        };
        examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        let mut cluster = examples::cluster();
        check(&cluster, "web3", &[], &[], "there is no instance web3");
        check(&cluster, "web1", &[], &[], "instance web1 is up: shut it down first");
        check(&cluster, "db1", &[DiskName::Sdb], &[], "db1 has no disk sdb");
        check(&cluster, "db1", &[], &["node2"], "db1 has the template mirror, and so 2 nodes: 1 are named");
        check(&cluster, "db1", &[], &["node2", "node2"], "node node2 can't be both primary and secondary");
        check(&cluster, "db1", &[], &["node2", "node9"], "there is no node node9");
        check(&examples::offline("node3"), "db1", &[], &[], "node node3 is marked offline");
        check(&examples::drained("node2"), "db1", &[], &["node2", "node3"], "node node2 is drained");
        for name in ["web1", "null1"] {
            cluster.instances.get_mut(&examples::instance_name(name)).unwrap().up = false;
        }
        check(&cluster, "null1", &[], &[], "null1 has no disks");
        check(&cluster, "web1", &[DiskName::Sda], &["node2"], "on other nodes all disks are made anew");
    }

    #[test]
    fn every_file_is_asked_for_before_one_is_made() {
        let steps = |index: usize| -> Vec<(String, String)> {
            let (cluster, fresh, op) = DisksRecreate::examples().remove(index);
            let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
            let text = |call: &Call| call.text().split(' ').take(3).collect::<Vec<_>>().join(" ");
            let node = |call: &Call| call.node().map(ToString::to_string).unwrap_or_default();
            plan.steps.iter().map(|step| (node(&step.call), text(&step.call)[..6].to_owned())).collect()
        };
        let of = |expected: &[(&str, &str)]| -> Vec<(String, String)> {
            expected.iter().map(|(node, text)| ((*node).to_owned(), (*text).to_owned())).collect()
        };
        let expected = [("node1", "see th"), ("node3", "see th"), ("node1", "create"), ("node3", "create")];
        assert_eq!(steps(0), of(&expected));
        // A node that is marked offline is not asked.
        let expected = [
            ("node3", "see th"),
            ("node3", "see th"),
            ("node1", "create"),
            ("node3", "create"),
            ("node1", "create"),
            ("node3", "create"),
        ];
        assert_eq!(steps(3), of(&expected));
    }
}
