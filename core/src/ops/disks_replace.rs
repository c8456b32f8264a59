//! OP_INSTANCE_REPLACE_DISKS: new copies of all mirrored disks, on another node or on the same, or new files on the primary;
//! the old ones go after the new ones hold everything.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples,
    mirroring::{self, Copy},
    networks, parts,
};
use crate::{
    calls::{Call, Image},
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, DiskTemplate, Instance},
    names::{InstanceName, NodeName},
};

/// What can be done where the copies miss writes.
const ADVICE: &str = "the primary's own files are the better ones";

/// Replaces an instance's copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisksReplace {
    /// The instance.
    pub instance: InstanceName,
    /// Default: the current secondary.
    pub new_secondary: Option<NodeName>,
    /// The primary's files are made anew, from the copies, instead of the copies.
    pub on_primary: bool,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    old_secondary: NodeName,
    new_secondary: NodeName,
    files: Files,
}

/// Which files come and go.
#[derive(Debug)]
struct Files {
    after: Instance,
    /// New files with their nodes and sizes in MiB.
    made: Vec<(NodeName, Uuid, u64)>,
    /// The new copies of the instance as it is afterwards.
    new_copies: Vec<Copy>,
    /// Calls that fill new files of the primary.
    from_copies: Vec<Call>,
    /// Old files with their nodes.
    replaced: Vec<(NodeName, Uuid)>,
}

/// Every copy is made anew on this node.
fn new_copies(given: Given<'_>, before: &Instance, node: &NodeName) -> Files {
    let mut after = before.clone();
    let (mut made, mut replaced) = (Vec::new(), Vec::new());
    let mut disks = std::mem::take(&mut after.disks);
    for disk in &mut disks {
        for old in &mut disk.mirrors {
            let uuid = parts::fresh_uuid(given, parts::FILES + made.len());
            let new = parts::new_mirror(&mut after, node, uuid, CopyState::Consistent);
            made.push((node.clone(), uuid, disk.size_mib));
            let old = std::mem::replace(old, new);
            replaced.push((old.node, old.uuid));
        }
    }
    after.disks = disks;
    let new_copies = mirroring::copies(&after, |mirror| made.iter().any(|(_, uuid, _)| *uuid == mirror.uuid));
    Files { after, made, new_copies, from_copies: Vec::new(), replaced }
}

/// Every file of the primary is made anew from its copy, which holds everything; the guest is down.
fn check_primary(op: &DisksReplace, given: Given<'_>, before: &Instance) -> Result<Files, Refusal> {
    if op.new_secondary.is_some() {
        return Err(Refusal("name a new secondary node or the primary's disks, not both".to_owned()));
    }
    parts::refuse_up(before)?;
    let mut after = before.clone();
    let (mut made, mut replaced, mut from_copies) = (Vec::new(), Vec::new(), Vec::new());
    for disk in &mut after.disks {
        let from = disk.mirrors.iter().find(|mirror| mirror.state == CopyState::Consistent);
        let from = from.ok_or_else(|| {
            Refusal(format!("disk {} of {} has no consistent copy", disk.name.as_str(), op.instance))
        })?;
        common::node_with_disks(given.cluster, &from.node)?;
        let uuid = parts::fresh_uuid(given, parts::FILES + made.len());
        let (copy, file) = (Image::Disk { disk: from.uuid }, Image::Disk { disk: uuid });
        from_copies.push(parts::copy((&from.node, copy), (&before.primary, file)));
        made.push((before.primary.clone(), uuid, disk.size_mib));
        replaced.push((before.primary.clone(), std::mem::replace(&mut disk.uuid, uuid)));
    }
    Ok(Files { after, made, new_copies: Vec::new(), from_copies, replaced })
}

/// The node that gets the new copies.
fn check_secondary(
    op: &DisksReplace,
    cluster: &Cluster,
    instance: &Instance,
    current: &NodeName,
) -> Result<NodeName, Refusal> {
    let new = op.new_secondary.as_ref().unwrap_or(current);
    if new == current {
        // It holds the copies already: a drained node may go on doing so.
        common::node_with_disks(cluster, new)?;
    } else {
        common::node_for_instances(cluster, new)?;
        networks::node_for(cluster, instance, new)?;
    }
    if *new == instance.primary {
        return Err(Refusal(format!(
            "node {new} is the primary of {}: the copies go elsewhere",
            instance.name
        )));
    }
    Ok(new.clone())
}

impl Operation for DisksReplace {
    const ROW: Row = Row {
        op_id: "OP_INSTANCE_REPLACE_DISKS",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "mirror-replace", op_code: "OP_INSTANCE_REPLACE_DISKS" }),
        hooks2: Some(HookRow2::both("mirrors-replace", "OP_INSTANCE_REPLACE_DISKS")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("instance", &self.instance);
        match &self.new_secondary {
            Some(node) => locks.shared("node", node).shared("instance-networks", ""),
            // A node with copies can't be removed, so the current one needs no lock.
            None => locks,
        }
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let before = parts::instance_reachable(given.cluster, &self.instance)?.clone();
        if before.template != DiskTemplate::Mirror {
            return Err(Refusal(format!(
                "{} has the template {}: it has no copies to replace",
                self.instance,
                before.template.as_str()
            )));
        }
        let old_secondary = parts::secondary(&before)
            .ok_or_else(|| Refusal(format!("{} has no secondary node: add a mirror first", self.instance)))?;
        let new_secondary = check_secondary(self, given.cluster, &before, &old_secondary)?;
        let files = if self.on_primary {
            check_primary(self, given, &before)?
        } else {
            new_copies(given, &before, &new_secondary)
        };
        Ok(Checked { before, old_secondary, new_secondary, files })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes_and(given, &checked.before, &checked.new_secondary)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("OLD_SECONDARY", checked.old_secondary.as_str())
            .set("NEW_SECONDARY", checked.new_secondary.as_str())
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let Checked { before, old_secondary, new_secondary, .. } = checked;
        let mode = match (self.on_primary, old_secondary == new_secondary) {
            (true, _) => "replace_on_primary",
            (false, true) => "replace_on_secondary",
            (false, false) => "replace_new_secondary",
        };
        let nodes = vec![given.cluster.master.clone(), before.primary.clone(), new_secondary.clone()];
        let own = Env::new()
            .set("MODE", mode)
            .set("OLD_SECONDARY", old_secondary.as_str())
            .set("NEW_SECONDARY", new_secondary.as_str());
        Hooks2::instance(given, before).on(HookNodes::both(nodes)).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { before, files, .. } = checked;
        let mut plan = Plan::new();
        for (node, uuid, size_mib) in &files.made {
            plan = parts::plan_disk(plan, node, *uuid, *size_mib);
        }
        plan = match &files.from_copies[..] {
            [] => mirroring::plan_fill(plan, given.cluster, &files.after, &files.new_copies),
            copies => {
                let on = mirroring::copies(before, |copy| copy.state == CopyState::Consistent);
                let plan = mirroring::plan_rely(plan, given.cluster, before, &on, ADVICE);
                copies.iter().fold(plan, |plan, copy| plan.harmless(copy.clone()))
            }
        };
        plan = plan.edit(Edit::InstancePut { instance: Box::new(files.after.clone()) });
        // All at once: the mirrors of the old copies end before their files go.
        let old: Vec<Copy> =
            mirroring::copies(before, |mirror| files.replaced.iter().any(|(_, uuid)| *uuid == mirror.uuid));
        plan = mirroring::plan_end(plan, given.cluster, before, &old);
        for (node, uuid) in &files.replaced {
            plan = plan.cleanup(parts::disk_remove(node, *uuid));
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let replace = |cluster: Cluster, name: &str, node: Option<&str>| {
            let (instance, new_secondary) = (examples::instance_name(name), node.map(examples::node_name));
            (cluster, examples::fresh(), DisksReplace { instance, new_secondary, on_primary: false })
        };
        vec![
            replace(examples::cluster(), "mail1", Some("node1")),
            replace(examples::cluster(), "db1", None),
            replace(examples::offline("node3"), "mail1", Some("node1")),
            replace(examples::second_copy("mail1"), "mail1", None),
            replace(examples::in_sync("mail1"), "mail1", Some("node1")),
            (
                examples::cluster(),
                examples::fresh(),
                DisksReplace {
                    instance: examples::instance_name("db1"),
                    new_secondary: None,
                    on_primary: true,
                },
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, name: &str, node: Option<&str>, text: &str) {
        let (instance, new_secondary) = (examples::instance_name(name), node.map(examples::node_name));
        let op = DisksReplace { instance, new_secondary, on_primary: false };
        examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        let cluster = examples::cluster();
        check(&cluster, "mail2", None, "there is no instance mail2");
        check(&cluster, "web1", None, "web1 has the template file");
        check(&cluster, "mail1", Some("node2"), "node node2 is the primary of mail1");
        check(&cluster, "mail1", Some("node9"), "there is no node node9");
        check(&examples::offline("node3"), "mail1", None, "node node3 is marked offline");
        check(&examples::drained("node1"), "mail1", Some("node1"), "node node1 is drained");
        check(&examples::offline("node2"), "mail1", None, "the primary of mail1 can't be worked with");
    }

    #[test]
    fn each_copy_gets_a_new_file_and_a_new_id() {
        let (cluster, fresh, op) = DisksReplace::examples().remove(3);
        let plan = examples::prepared(&op, &cluster, &fresh, &cluster.master).plan;
        // A file is made and filled for each.
        assert_eq!((plan.steps.len(), plan.cleanups.len()), (8, 4));
        let [Edit::InstancePut { instance }] = &plan.edits[..] else { panic!("one edit") };
        let ids: Vec<u32> =
            instance.disks.iter().flat_map(|disk| &disk.mirrors).map(|copy| copy.id).collect();
        assert_eq!((ids, instance.next_mirror_id), (vec![5, 6, 7, 8], 9));
    }
}
