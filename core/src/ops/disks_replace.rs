//! OP_INSTANCE_REPLACE_DISKS: new copies of all mirrored disks, on another node or on the same; the old ones go after.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples, parts,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::{Cluster, CopyState, DiskTemplate, Instance, Mirror},
    names::{InstanceName, NodeName},
};

/// Replaces an instance's copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisksReplace {
    /// The instance.
    pub instance: InstanceName,
    /// Default: the current secondary.
    pub new_secondary: Option<NodeName>,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    before: Instance,
    after: Instance,
    old_secondary: NodeName,
    new_secondary: NodeName,
    /// New files with their sizes in MiB.
    made: Vec<(Uuid, u64)>,
    replaced: Vec<Mirror>,
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
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        let locks = Locks::part().exclusive("instance", &self.instance);
        match &self.new_secondary {
            Some(node) => locks.shared("node", node),
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
        let mut after = before.clone();
        let mut made = Vec::new();
        let mut replaced = Vec::new();
        let mut disks = std::mem::take(&mut after.disks);
        for disk in &mut disks {
            for old in &mut disk.mirrors {
                let uuid = parts::fresh_uuid(given, parts::FILES + made.len());
                let new = parts::new_mirror(&mut after, &new_secondary, uuid, CopyState::Inconsistent);
                made.push((uuid, disk.size_mib));
                replaced.push(std::mem::replace(old, new));
            }
        }
        after.disks = disks;
        Ok(Checked { before, after, old_secondary, new_secondary, made, replaced })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes_and(given, &checked.before, &checked.new_secondary)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.before)
            .set("OLD_SECONDARY", checked.old_secondary.as_str())
            .set("NEW_SECONDARY", checked.new_secondary.as_str())
    }

    fn plan(&self, _given: Given<'_>, checked: &Checked) -> Plan {
        let mut plan = Plan::new();
        for (uuid, size_mib) in &checked.made {
            plan = parts::plan_disk(plan, &checked.new_secondary, *uuid, *size_mib);
        }
        plan = plan.edit(Edit::InstancePut { instance: Box::new(checked.after.clone()) });
        for old in &checked.replaced {
            plan = plan.cleanup(parts::disk_remove(&old.node, old.uuid));
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let replace = |cluster: Cluster, name: &str, node: Option<&str>| {
            let (instance, new_secondary) = (examples::instance_name(name), node.map(examples::node_name));
            (cluster, examples::fresh(), DisksReplace { instance, new_secondary })
        };
        vec![
            replace(examples::cluster(), "mail1", Some("node1")),
            replace(examples::cluster(), "db1", None),
            replace(examples::offline("node3"), "mail1", Some("node1")),
            replace(examples::second_copy("mail1"), "mail1", None),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, name: &str, node: Option<&str>, text: &str) {
        let (instance, new_secondary) = (examples::instance_name(name), node.map(examples::node_name));
        let op = DisksReplace { instance, new_secondary };
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
        assert_eq!((plan.steps.len(), plan.cleanups.len()), (4, 4));
        let [Edit::InstancePut { instance }] = &plan.edits[..] else { panic!("one edit") };
        let ids: Vec<u32> =
            instance.disks.iter().flat_map(|disk| &disk.mirrors).map(|copy| copy.id).collect();
        assert_eq!((ids, instance.next_mirror_id), (vec![5, 6, 7, 8], 9));
    }
}
