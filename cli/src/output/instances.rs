//! Instances in listings, in `info` and in JSON.

use muster_proto::v1::{DiskInfo, InstanceInfo, MirrorInfo, MirrorStatus};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, alias, field, whole_object, whole_text},
    text,
};

/// The fields of `gnt-instance list` without `-o`.
pub(crate) const DEFAULT: &[&str] =
    &["name", "disk_template", "os", "pnode", "snodes", "status", "oper_ram", "age"];

/// All fields of an instance.
pub(crate) const FIELDS: &[Field<InstanceInfo>] = &[
    field("name", "Instance", |instance: &InstanceInfo| Value::text(&instance.name)),
    field("uuid", "UUID", |instance: &InstanceInfo| Value::text(&instance.uuid)),
    field("pnode", "Primary_node", |instance: &InstanceInfo| Value::text(&instance.primary)),
    field("snodes", "Secondary_Nodes", |instance: &InstanceInfo| Value::List(instance.secondaries.clone())),
    field("os", "OS", |instance: &InstanceInfo| Value::text(&instance.os)),
    field("status", "Status", |instance: &InstanceInfo| Value::text(&instance.status)),
    field("admin_state", "InstanceState", |instance: &InstanceInfo| {
        Value::text(if instance.admin_up { "up" } else { "down" })
    }),
    field("admin_up", "Autostart", |instance: &InstanceInfo| Value::Bool(instance.admin_up)),
    field("oper_state", "Running", |instance: &InstanceInfo| match runs(instance) {
        Some(runs) => Value::Bool(runs),
        None => Value::Unknown,
    }),
    field("oper_ram", "Memory", |instance: &InstanceInfo| {
        while_running(instance, Value::Size(instance.memory_mib))
    }),
    field("memory", "ConfigMaxMem", |instance: &InstanceInfo| Value::Size(instance.memory_mib)),
    field("vcpus", "ConfigVCPUs", |instance: &InstanceInfo| Value::number(instance.vcpus)),
    field("disk_template", "Disk_template", |instance: &InstanceInfo| Value::text(&instance.disk_template)),
    field("disk.count", "Disks", |instance: &InstanceInfo| Value::number(instance.disks.len())),
    field("disk.sizes", "Disk_sizes", |instance: &InstanceInfo| {
        let sizes: Vec<u64> = instance.disks.iter().map(|disk| disk.size_mib).collect();
        let words: Vec<String> = sizes.iter().map(ToString::to_string).collect();
        Value::Parts(words.join(","), json!(sizes))
    }),
    field("sda_size", "SDA_Size", |instance: &InstanceInfo| disk_size(instance, "sda")),
    field("sdb_size", "SDB_Size", |instance: &InstanceInfo| disk_size(instance, "sdb")),
    field("ip", "IP_address", |instance: &InstanceInfo| {
        Value::text(instance.ip.as_deref().unwrap_or_default())
    }),
    field("mac", "MAC_address", |instance: &InstanceInfo| Value::text(&instance.mac)),
    field("network", "Network", |instance: &InstanceInfo| {
        Value::text(instance.network.as_deref().unwrap_or_default())
    }),
    field("tags", "Tags", |instance: &InstanceInfo| Value::List(instance.tags.clone())),
    field("ctime", "CTime", |instance: &InstanceInfo| Value::Time(instance.created_ms)),
    field("age", "Age", |instance: &InstanceInfo| instance.state_age_ms.map_or(Value::Unknown, Value::Span)),
    field("blocked", "Blocked", |instance: &InstanceInfo| {
        Value::optional(instance.blocked_by, Value::number)
    }),
    alias("be/memory", "ConfigMaxMem", |instance: &InstanceInfo| Value::Size(instance.memory_mib)),
    alias("be/maxmem", "ConfigMaxMem", |instance: &InstanceInfo| Value::Size(instance.memory_mib)),
    alias("be/vcpus", "ConfigVCPUs", |instance: &InstanceInfo| Value::number(instance.vcpus)),
    alias("oper_vcpus", "VCPUs", |instance: &InstanceInfo| {
        while_running(instance, Value::number(instance.vcpus))
    }),
    alias("disk.size/0", "Disk/0", |instance: &InstanceInfo| disk_size(instance, "sda")),
    alias("disk.size/1", "Disk/1", |instance: &InstanceInfo| disk_size(instance, "sdb")),
    alias("disk.uuids", "Disk_UUIDs", |instance: &InstanceInfo| {
        Value::List(instance.disks.iter().map(|disk| disk.uuid.clone()).collect())
    }),
    alias("nic.ip/0", "NicIP/0", |instance: &InstanceInfo| {
        Value::text(instance.ip.as_deref().unwrap_or_default())
    }),
    alias("nic.network.name/0", "NicNetworkName/0", |instance: &InstanceInfo| {
        Value::text(instance.network.as_deref().unwrap_or_default())
    }),
    alias("nic.mac/0", "NicMAC/0", |instance: &InstanceInfo| Value::text(&instance.mac)),
];

/// Whether a guest runs; `None` while its node is silent.
fn runs(instance: &InstanceInfo) -> Option<bool> {
    match instance.status.as_str() {
        "running" | "paused" | "ERROR_up" | "ERROR_wrongnode" => Some(true),
        "ADMIN_down" | "USER_down" | "ERROR_down" | "ERROR_crashed" => Some(false),
        _ => None,
    }
}

fn while_running(instance: &InstanceInfo, value: Value) -> Value {
    match runs(instance) {
        Some(true) => value,
        Some(false) => Value::Absent,
        None => Value::Unknown,
    }
}

fn disk_size(instance: &InstanceInfo, name: &str) -> Value {
    let disk = instance.disks.iter().find(|disk| disk.name == name);
    Value::optional(disk.map(|disk| disk.size_mib), Value::Size)
}

/// Everything of an instance as JSON.
pub(crate) fn instance_json(instance: &InstanceInfo) -> Json {
    let mut object = whole_object(FIELDS, instance);
    object.insert("disks".to_owned(), instance.disks.iter().map(disk_json).collect());
    Json::Object(object)
}

fn disk_json(disk: &DiskInfo) -> Json {
    let mirrors = disk.mirrors.iter().map(|mirror| {
        json!({
            "disk_id": mirror.disk_id,
            "node": mirror.node,
            "uuid": mirror.uuid,
            "state": mirror.state,
            "mirror": mirror_word(mirror),
            "percent": mirror.percent,
        })
    });
    json!({ "name": disk.name, "uuid": disk.uuid, "size": disk.size_mib, "mirrors": mirrors.collect::<Vec<_>>() })
}

/// What a copy's mirror does, where somebody knows.
fn mirror_word(mirror: &MirrorInfo) -> Option<&'static str> {
    match mirror.mirror() {
        MirrorStatus::Unspecified => None,
        MirrorStatus::Syncing => Some("syncing"),
        MirrorStatus::Ready => Some("in sync"),
        MirrorStatus::Broken => Some("degraded"),
    }
}

/// Everything of an instance for people.
pub(crate) fn instance_text(instance: &InstanceInfo) -> String {
    let mut text = format!("Instance {}\n{}", instance.name, whole_text(FIELDS, instance));
    for disk in &instance.disks {
        text += &format!("  disk {}, {}, uuid {}\n", disk.name, text::size(disk.size_mib), disk.uuid);
        for mirror in &disk.mirrors {
            let follows = match (mirror_word(mirror), mirror.percent) {
                (None, _) => String::new(),
                (Some(word), None) => format!(" ({word})"),
                (Some(word), Some(percent)) => format!(" ({word}, {percent} %)"),
            };
            text += &format!(
                "    mirror component, DISK_ID {}, on {}, {}{follows}, uuid {}\n",
                mirror.disk_id, mirror.node, mirror.state, mirror.uuid
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::ListFlags, output::fields::select};

    fn instances() -> Vec<InstanceInfo> {
        let mirror = |disk_id, node: &str| MirrorInfo {
            disk_id,
            node: node.to_owned(),
            uuid: format!("m{disk_id}"),
            state: "consistent".to_owned(),
            mirror: [MirrorStatus::Unspecified, MirrorStatus::Syncing][usize::from(node == "node2")].into(),
            percent: (node == "node2").then_some(34),
        };
        let instance = |name: &str, status: &str| InstanceInfo {
            name: name.to_owned(),
            primary: "node1".to_owned(),
            disk_template: "diskless".to_owned(),
            os: "none".to_owned(),
            status: status.to_owned(),
            memory_mib: 2048,
            vcpus: 2,
            state_age_ms: Some(1_500),
            ..InstanceInfo::default()
        };
        vec![
            InstanceInfo {
                secondaries: vec!["node2".into()],
                disk_template: "mirror".into(),
                admin_up: true,
                disks: vec![DiskInfo {
                    name: "sda".into(),
                    uuid: "d".into(),
                    size_mib: 10_240,
                    mirrors: vec![mirror(0, "node1"), mirror(1, "node2")],
                }],
                ..instance("web1", "running")
            },
            instance("web2", "ADMIN_down"),
            InstanceInfo { state_age_ms: None, ..instance("web3", "ERROR_nodedown") },
        ]
    }

    #[test]
    fn default_columns() {
        let text = select(FIELDS, DEFAULT, &ListFlags::default()).unwrap().render(&instances()).unwrap();
        let expected = "\
Instance Disk_template OS   Primary_node Secondary_Nodes Status         Memory   Age
web1     mirror        none node1        node2           running          2.0G 1.5 s
web2     diskless      none node1        -               ADMIN_down          - 1.5 s
web3     diskless      none node1        -               ERROR_nodedown      ?     ?
";
        assert_eq!(text, expected);
    }

    #[test]
    fn info_shows_each_mirrors_disk_id() {
        let text = instance_text(&instances()[0]);
        assert!(text.ends_with(
            "  disk sda, 10.0G, uuid d
    mirror component, DISK_ID 0, on node1, consistent, uuid m0
    mirror component, DISK_ID 1, on node2, consistent (syncing, 34 %), uuid m1
"
        ));
        let value = instance_json(&instances()[0]);
        assert_eq!(value["disks"][0]["mirrors"][1]["disk_id"], json!(1));
        assert_eq!((&value["sda_size"], &value["sdb_size"]), (&json!(10_240), &Json::Null));
        assert_eq!((&value["oper_state"], &value["snodes"]), (&json!(true), &json!(["node2"])));
        assert_eq!(value["ip"], Json::Null);
        assert_eq!(instance_json(&instances()[2])["oper_state"], Json::Null);
    }

    #[test]
    fn default_fields_exist() {
        assert!(DEFAULT.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)));
    }
}
