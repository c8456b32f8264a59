//! OP_BACKUP_EXPORT: saves an instance's disks on a node, in place of its older export there.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Given, HookNodes, HookRow, HookRow2, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter,
    common, examples, hooks2,
    mirroring::{self, Starting},
    parts,
};
use crate::{
    calls::{Call, Image, NodeCall},
    edit::Edit,
    hooks::Env,
    hypervisor::HypervisorKind,
    locks::Locks,
    model::{Cluster, Export, Instance},
    names::{InstanceName, NodeName},
};

/// Exports an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupExport {
    /// The instance.
    pub instance: InstanceName,
    /// The node that the export is stored on.
    pub node: NodeName,
    /// Copies while the guest runs.
    pub no_shutdown: bool,
}

/// What check proved.
#[derive(Debug)]
pub struct Checked {
    instance: Instance,
    export: Export,
    /// Exports of the same instance on the same node, which this one takes the place of.
    older: Vec<Export>,
}

/// The manifest: JSON, for people and other programs that find the export.
fn manifest(export: &Export, instance: &Instance) -> String {
    // Every value is a number, a uuid or a label: none holds a character that JSON would have to escape.
    let disks: Vec<String> = export
        .disks
        .iter()
        .map(|(disk, size_mib)| {
            let (name, image) = (disk.as_str(), disk.image());
            format!("    {{\"name\": \"{name}\", \"image\": \"{image}\", \"size_mib\": {size_mib}}}")
        })
        .collect();
    let disks = if disks.is_empty() { "[]".to_owned() } else { format!("[\n{}\n  ]", disks.join(",\n")) };
    let Export { uuid, memory_mib, vcpus, os, created_ms, did_shutdown, .. } = export;
    let (name, instance_uuid, template) = (&instance.name, instance.uuid, instance.template.as_str());
    format!(
        "{{\n  \"version\": 1,\n  \"export\": \"{uuid}\",\n  \"instance\": \"{name}\",\n  \
         \"instance_uuid\": \"{instance_uuid}\",\n  \"disk_template\": \"{template}\",\n  \
         \"memory_mib\": {memory_mib},\n  \"vcpus\": {vcpus},\n  \"os\": \"{os}\",\n  \
         \"created_ms\": {created_ms},\n  \"did_shutdown\": {did_shutdown},\n  \"disks\": {disks}\n}}\n"
    )
}

/// The files that hold an instance's disks on its primary, in the disks' order.
fn disk_files(instance: &Instance) -> Vec<Uuid> {
    instance.disks.iter().map(|disk| disk.uuid).collect()
}

/// The files that get what the disks of a running guest hold at one moment, in the disks' order.
fn snapshots(given: Given<'_>, instance: &Instance) -> Vec<Uuid> {
    (parts::FILES..).take(instance.disks.len()).map(|position| parts::fresh_uuid(given, position)).collect()
}

/// Fills these files; they go when the export has them.
fn plan_snapshot(mut plan: Plan, instance: &Instance, files: &[Uuid]) -> Plan {
    for (disk, file) in instance.disks.iter().zip(files) {
        plan = parts::plan_disk(plan, &instance.primary, *file, disk.size_mib);
    }
    let disks = instance.disks.iter().zip(files).map(|(disk, file)| (disk.uuid, *file)).collect();
    let call = NodeCall::DisksSnapshot { instance: instance.uuid, name: instance.name.clone(), disks };
    plan.harmless(Call::Node(instance.primary.clone(), call))
}

impl Operation for BackupExport {
    const ROW: Row = Row {
        op_id: "OP_BACKUP_EXPORT",
        object: ObjectKind::Instance,
        hooks: Some(HookRow { prefix: "instance-export", op_code: "OP_BACKUP_EXPORT" }),
        hooks2: Some(HookRow2::both("instance-export", "OP_BACKUP_EXPORT")),
        submitter: Submitter::Operator,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        self.instance.to_string()
    }

    fn locks(&self) -> Locks {
        Locks::part()
            .exclusive("instance", &self.instance)
            .shared("node", &self.node)
            .shared("exports", &self.node)
            .exclusive("export", format!("{}@{}", self.instance, self.node))
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        let instance = parts::instance_reachable(given.cluster, &self.instance)?;
        common::node_with_disks(given.cluster, &self.node)?;
        let exports = given.cluster.exports.values();
        let older = exports.filter(|export| export.instance == self.instance && export.node == self.node);
        let export = Export {
            uuid: parts::fresh_uuid(given, parts::OBJECT),
            instance: self.instance.clone(),
            node: self.node.clone(),
            path: String::new(),
            disks: instance.disks.iter().map(|disk| (disk.name, disk.size_mib)).collect(),
            memory_mib: instance.memory_mib,
            vcpus: instance.vcpus,
            os: instance.os.clone(),
            created_ms: given.fresh.now_ms,
            did_shutdown: !instance.up || !self.no_shutdown,
        };
        Ok(Checked { instance: instance.clone(), export, older: older.cloned().collect() })
    }

    fn hook_nodes(&self, given: Given<'_>, checked: &Checked) -> HookNodes {
        parts::instance_nodes(given, &checked.instance)
    }

    fn hook_env(&self, _given: Given<'_>, checked: &Checked) -> Env {
        common::instance_env(&checked.instance)
            .set("EXPORT_NODE", self.node.as_str())
            .boolean("EXPORT_DO_SHUTDOWN", checked.export.did_shutdown)
    }

    fn hooks2(&self, given: Given<'_>, checked: &Checked) -> Hooks2 {
        let own = Env::new()
            .set("EXPORT_MODE", "local")
            .set("EXPORT_NODE", self.node.as_str())
            .boolean("EXPORT_DO_SHUTDOWN", checked.export.did_shutdown)
            .boolean("REMOVE_INSTANCE", false)
            .set("SHUTDOWN_TIMEOUT", hooks2::seconds(parts::SHUTDOWN_TIMEOUT_MS));
        Hooks2::instance(given, &checked.instance).with(own)
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { instance, export, older } = checked;
        let on_target = |call: NodeCall| Call::Node(self.node.clone(), call);
        let remove = |export: &Export| on_target(NodeCall::ExportRemove { export: export.uuid });
        let stop = instance.up && !self.no_shutdown;
        let mut plan =
            Plan::new().step(on_target(NodeCall::ExportStage { export: export.uuid }), remove(export));
        if stop {
            plan = parts::plan_elsewhere(plan, given, instance);
            plan = parts::plan_stop(plan, given.cluster, instance, parts::SHUTDOWN_TIMEOUT_MS);
        }
        let live = instance.up && self.no_shutdown && given.cluster.hypervisor.kind == HypervisorKind::Qemu;
        let files = if live { snapshots(given, instance) } else { disk_files(instance) };
        if live {
            plan = plan_snapshot(plan, instance, &files);
        }
        for (disk, file) in instance.disks.iter().zip(&files) {
            let to = Image::Export { export: export.uuid, name: disk.name.image() };
            plan = plan
                .harmless(parts::copy((&instance.primary, Image::Disk { disk: *file }), (&self.node, to)));
        }
        if stop {
            // As soon as all is copied. It is the stop's undo too, so there is nothing of its own to undo.
            let how = Starting { force: false, undone: false };
            plan = mirroring::plan_start(plan, given.cluster, Some(instance), instance, how);
            let after = mirroring::started(given.cluster, Some(instance), instance);
            if after != *instance {
                plan = plan.edit(Edit::InstancePut { instance: Box::new(after) });
            }
        }
        let publish = NodeCall::ExportPublish { export: export.uuid, manifest: manifest(export, instance) };
        plan = plan
            .step(on_target(publish), remove(export))
            .edit(Edit::ExportPut { export: Box::new(export.clone()) });
        for old in older {
            plan = plan.edit(Edit::ExportRemove { export: old.uuid }).cleanup(remove(old));
        }
        if live {
            for file in &files {
                plan = plan.cleanup(parts::disk_remove(&instance.primary, *file));
            }
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let export = |instance: &str, node: &str, no_shutdown: bool| {
            let (instance, node) = (examples::instance_name(instance), examples::node_name(node));
            (examples::cluster(), examples::fresh(), BackupExport { instance, node, no_shutdown })
        };
        let (_, fresh, live) = export("mail1", "node2", true);
        vec![
            export("web1", "node2", false),
            export("web1", "node3", true),
            export("db1", "node2", true),
            export("null1", "node1", false),
            (examples::in_sync("mail1"), fresh, live),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &Cluster, instance: &str, node: &str, text: &str) {
        let (instance, node) = (examples::instance_name(instance), examples::node_name(node));
        let op = BackupExport { instance, node, no_shutdown: false };
        examples::refused(&op, cluster, &examples::fresh(), &cluster.master, text);
    }

    #[test]
    fn refusals() {
        let cluster = examples::cluster();
        check(&cluster, "web11", "node2", "there is no instance web11; the nearest name is web1");
        check(&cluster, "web1", "node9", "there is no node node9");
        check(&examples::offline("node3"), "web1", "node3", "node node3 is marked offline");
        check(&examples::offline("node2"), "mail1", "node3", "the primary of mail1 can't be worked with");
    }

    #[test]
    fn the_shutdown_variable_tells_whether_the_guest_runs_meanwhile() {
        let values = [("True", 1), ("False", 0), ("True", 0), ("True", 1), ("False", 0)];
        for ((cluster, fresh, op), (value, stops)) in BackupExport::examples().into_iter().zip(values) {
            let prepared = examples::prepared(&op, &cluster, &fresh, &cluster.master);
            assert_eq!(prepared.env.get("EXPORT_DO_SHUTDOWN"), Some(value), "{op:?}");
            let found = prepared.plan.steps.iter().filter(|step| step.call.text().starts_with("stop"));
            assert_eq!(found.count(), stops, "{op:?}");
        }
    }

    #[test]
    fn the_manifest_is_json_that_names_every_disk() {
        for (cluster, fresh, op) in BackupExport::examples() {
            let given = Given { cluster: &cluster, fresh: &fresh, local: &cluster.master, undone: &[] };
            let checked = op.check(given).unwrap();
            let text = manifest(&checked.export, &checked.instance);
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["instance"], op.instance.as_str());
            assert_eq!(json["disks"].as_array().unwrap().len(), checked.instance.disks.len());
        }
    }
}
