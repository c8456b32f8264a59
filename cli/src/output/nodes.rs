//! Nodes in listings, in `info` and in JSON; and hosts that asked to join.

use muster_proto::v1::{GuestState, NodeInfo, NodeState, PendingNode};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, alias, field, whole_object, whole_text},
    host, text, words,
};

/// The fields of `gnt-node list` without `-o`.
pub(crate) const DEFAULT: &[&str] =
    &["name", "dtotal", "dfree", "mtotal", "mfree", "pinst_cnt", "sinst_cnt", "role", "hook_set", "age"];

/// All fields of a node.
pub(crate) const FIELDS: &[Field<NodeInfo>] = &[
    field("name", "Node", |node: &NodeInfo| Value::text(&node.name)),
    field("pip", "PrimaryIP", |node: &NodeInfo| Value::text(&node.primary_ip)),
    field("sip", "SecondaryIP", |node: &NodeInfo| Value::text(&node.secondary_ip)),
    field("port", "Port", |node: &NodeInfo| Value::number(node.port)),
    field("pinst_cnt", "Pinst", |node: &NodeInfo| Value::number(node.primary_instances.len())),
    field("sinst_cnt", "Sinst", |node: &NodeInfo| Value::number(node.secondary_instances.len())),
    field("pinst_list", "PriInstances", |node: &NodeInfo| Value::List(node.primary_instances.clone())),
    field("sinst_list", "SecInstances", |node: &NodeInfo| Value::List(node.secondary_instances.clone())),
    field("mtotal", "MTotal", |node: &NodeInfo| live(node, |state| Value::Size(state.memory_total_mib))),
    field("mfree", "MFree", |node: &NodeInfo| live(node, |state| Value::Size(state.memory_free_mib))),
    field("dtotal", "DTotal", |node: &NodeInfo| live(node, |state| Value::Size(state.disk_total_mib))),
    field("dfree", "DFree", |node: &NodeInfo| live(node, |state| Value::Size(state.disk_free_mib))),
    field("ctotal", "CTotal", |node: &NodeInfo| live(node, |state| Value::number(state.cpus))),
    field("role", "Role", |node: &NodeInfo| Value::text(role(node))),
    field("group", "Group", |node: &NodeInfo| Value::text(&node.group)),
    field("tags", "Tags", |node: &NodeInfo| Value::List(node.tags.clone())),
    field("offline", "Offline", |node: &NodeInfo| Value::Bool(node.offline)),
    field("drained", "Drained", |node: &NodeInfo| Value::Bool(node.drained)),
    field("master_candidate", "MasterC", |node: &NodeInfo| Value::Bool(node.master_candidate)),
    field("master", "IsMaster", |node: &NodeInfo| Value::Bool(node.master)),
    field("uuid", "UUID", |node: &NodeInfo| Value::text(&node.uuid)),
    field("age", "Age", |node: &NodeInfo| match node.state {
        Some(_) => node.state_age_ms.map_or(Value::Unknown, Value::Span),
        None => Value::Unknown,
    }),
    field("version", "Version", |node: &NodeInfo| live(node, |state| Value::text(&state.version))),
    field("hooks_only", "HooksOnly", |node: &NodeInfo| live(node, |state| Value::Bool(state.hooks_only))),
    field("cert_days", "CertDays", |node: &NodeInfo| {
        live(node, |state| Value::Number(state.certificate_days))
    }),
    field("not_reached", "NotReached", |node: &NodeInfo| {
        Value::text(node.not_reached.as_deref().unwrap_or_default())
    }),
    field("hook_set", "HookSet", |node: &NodeInfo| {
        live(node, |state| Value::text(&super::hook_sets::short(state.hook_set.as_deref().unwrap_or("none"))))
    }),
    field("blocked", "Blocked", |node: &NodeInfo| Value::optional(node.blocked_by, Value::number)),
    field("cpus", "CPUs", |node: &NodeInfo| host::cpus(node.host.as_ref())),
    field("cpu_model", "CPUModel", |node: &NodeInfo| host::text(node.host.as_ref(), |host| &host.cpu_model)),
    field("host_memory", "Memory", |node: &NodeInfo| host::memory(node.host.as_ref())),
    field("host_disks", "Disks", |node: &NodeInfo| host::disks(node.host.as_ref())),
    field("host_addresses", "Addresses", |node: &NodeInfo| {
        host::list(node.host.as_ref(), |host| &host.addresses)
    }),
    field("os_name", "OS", |node: &NodeInfo| host::text(node.host.as_ref(), |host| &host.os_name)),
    field("os_version", "OSVersion", |node: &NodeInfo| {
        host::text(node.host.as_ref(), |host| &host.os_version)
    }),
    field("os_sp", "OSSP", |node: &NodeInfo| host::text(node.host.as_ref(), |host| &host.os_sp)),
    field("os_string", "System", |node: &NodeInfo| host::text(node.host.as_ref(), |host| &host.os_string)),
    field("kernel", "Kernel", |node: &NodeInfo| host::text(node.host.as_ref(), |host| &host.kernel)),
    field("hypervisors", "Hypervisors", |node: &NodeInfo| {
        host::list(node.host.as_ref(), |host| &host.hypervisors)
    }),
    field("qemu_version", "QEMU", |node: &NodeInfo| {
        host::text(node.host.as_ref(), |host| &host.qemu_version)
    }),
    field("facts_age", "FactsAge", |node: &NodeInfo| node.host_age_ms.map_or(Value::Unknown, Value::Span)),
    alias("address", "PrimaryIP", |node: &NodeInfo| Value::text(&node.primary_ip)),
];

/// A value of the node's own report; unknown while the node is silent.
fn live(node: &NodeInfo, value: fn(&NodeState) -> Value) -> Value {
    node.state.as_ref().map_or(Value::Unknown, value)
}

/// `M` master, `O` offline, `D` drained, `C` master candidate, `R` regular.
fn role(node: &NodeInfo) -> &'static str {
    match (node.master, node.offline, node.drained, node.master_candidate) {
        (true, _, _, _) => "M",
        (false, true, _, _) => "O",
        (false, false, true, _) => "D",
        (false, false, false, true) => "C",
        (false, false, false, false) => "R",
    }
}

/// Everything of a node as JSON.
pub(crate) fn node_json(node: &NodeInfo) -> Json {
    let mut object = whole_object(FIELDS, node);
    object.insert("fingerprints".to_owned(), json!(node.fingerprints));
    let state = node.state.as_ref().map(|state| {
        json!({
            "guests": state.guests.iter().map(guest_json).collect::<Vec<_>>(),
            "disks": state.disks.iter().map(|disk| json!({
                "uuid": disk.uuid, "size": disk.size_mib, "used_bytes": disk.used_bytes,
            })).collect::<Vec<_>>(),
            "exports": state.exports,
            "unknown_files": state.unknown_files,
            "problems": state.problems,
            "epoch_seen": state.epoch_seen,
            "facts_serial": state.facts_serial,
            "certificate_fingerprint": state.certificate_fingerprint,
        })
    });
    object.insert("state".to_owned(), state.unwrap_or_default());
    Json::Object(object)
}

fn guest_json(guest: &GuestState) -> Json {
    json!({
        "instance_uuid": guest.instance_uuid,
        "state": words::run_state(guest.state()),
        "memory": guest.memory_mib,
        "vcpus": guest.vcpus,
    })
}

/// Everything of a node for people.
pub(crate) fn node_text(node: &NodeInfo) -> String {
    let mut text = format!("Node {}\n{}", node.name, whole_text(FIELDS, node));
    for fingerprint in &node.fingerprints {
        text += &format!("  certificate: {fingerprint}\n");
    }
    let Some(state) = &node.state else { return text };
    for guest in &state.guests {
        text += &format!(
            "  guest:       {} {}, {}, {}\n",
            guest.instance_uuid,
            words::run_state(guest.state()),
            text::size(guest.memory_mib),
            text::counted(guest.vcpus, "vcpu"),
        );
    }
    for disk in &state.disks {
        text += &format!("  disk:        {} {}\n", disk.uuid, text::size(disk.size_mib));
    }
    for export in &state.exports {
        text += &format!("  export:      {export}\n");
    }
    for (title, lines) in [("unknown file:", &state.unknown_files), ("problem:", &state.problems)] {
        for line in lines {
            text += &format!("  {title:<12} {}\n", text::visible_line(line));
        }
    }
    text
}

/// The fields of `gnt-node pending` without `-o`.
pub(crate) const PENDING_DEFAULT: &[&str] = &["name", "source_ip", "address", "port", "version", "since"];

/// All fields of a host that asked to join.
pub(crate) const PENDING_FIELDS: &[Field<PendingNode>] = &[
    field("name", "Node", |host: &PendingNode| Value::text(&host.name)),
    field("source_ip", "SourceIP", |host: &PendingNode| Value::text(&host.source_ip)),
    field("address", "Address", |host: &PendingNode| {
        Value::text(host.advertise_ip.as_deref().unwrap_or_default())
    }),
    field("port", "Port", |host: &PendingNode| Value::number(host.port)),
    field("version", "Version", |host: &PendingNode| Value::text(&host.version)),
    field("since", "Since", |host: &PendingNode| Value::Time(host.since_ms)),
    field("hooks_only", "HooksOnly", |host: &PendingNode| Value::Bool(host.hooks_only)),
    field("uuid", "UUID", |host: &PendingNode| Value::text(&host.enrolment_uuid)),
    field("facts", "Facts", |host: &PendingNode| {
        let mut facts: Vec<String> =
            host.facts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        facts.sort();
        Value::Parts(facts.join(","), json!(host.facts))
    }),
    field("cpus", "CPUs", |pending: &PendingNode| host::cpus(pending.host.as_ref())),
    field("host_memory", "Memory", |pending: &PendingNode| host::memory(pending.host.as_ref())),
    field("host_disks", "Disks", |pending: &PendingNode| host::disks(pending.host.as_ref())),
    field("host_addresses", "Addresses", |pending: &PendingNode| {
        host::list(pending.host.as_ref(), |host| &host.addresses)
    }),
    field("os_name", "OS", |pending: &PendingNode| host::text(pending.host.as_ref(), |host| &host.os_name)),
    field("os_version", "OSVersion", |pending: &PendingNode| {
        host::text(pending.host.as_ref(), |host| &host.os_version)
    }),
    field("os_sp", "OSSP", |pending: &PendingNode| host::text(pending.host.as_ref(), |host| &host.os_sp)),
    field("os_string", "System", |pending: &PendingNode| {
        host::text(pending.host.as_ref(), |host| &host.os_string)
    }),
    field("kernel", "Kernel", |pending: &PendingNode| host::text(pending.host.as_ref(), |host| &host.kernel)),
    field("hypervisors", "Hypervisors", |pending: &PendingNode| {
        host::list(pending.host.as_ref(), |host| &host.hypervisors)
    }),
    field("qemu_version", "QEMU", |pending: &PendingNode| {
        host::text(pending.host.as_ref(), |host| &host.qemu_version)
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::ListFlags, output::fields::select};

    fn nodes() -> Vec<NodeInfo> {
        let state = NodeState {
            memory_total_mib: 4096,
            memory_free_mib: 512,
            disk_total_mib: 102_400,
            disk_free_mib: 1_000,
            cpus: 4,
            version: "0.1.0".to_owned(),
            certificate_days: -1,
            hook_set: Some("0123456789abcdef".to_owned()),
            guests: vec![GuestState {
                instance_uuid: "g".into(),
                state: 1,
                memory_mib: 512,
                vcpus: 1,
                ..GuestState::default()
            }],
            ..NodeState::default()
        };
        let node = |name: &str| NodeInfo {
            name: name.to_owned(),
            primary_ip: "192.0.2.1".into(),
            ..NodeInfo::default()
        };
        vec![
            NodeInfo {
                master: true,
                state: Some(state),
                state_age_ms: Some(250),
                primary_instances: vec!["web1".into(), "web2".into()],
                ..node("node1")
            },
            NodeInfo { offline: true, state_age_ms: Some(99), ..node("node2") },
            NodeInfo { drained: true, not_reached: Some("connection refused".into()), ..node("node3") },
        ]
    }

    #[test]
    fn a_silent_node_shows_question_marks() {
        let text = select(FIELDS, DEFAULT, &ListFlags::default()).unwrap().render(&nodes()).unwrap();
        let expected = "\
Node  DTotal DFree MTotal MFree Pinst Sinst Role HookSet         Age
node1 100.0G 1000M   4.0G  512M     2     0 M    0123456789ab 250 ms
node2      ?     ?      ?     ?     0     0 O    ?                 ?
node3      ?     ?      ?     ?     0     0 D    ?                 ?
";
        assert_eq!(text, expected);
    }

    #[test]
    fn json_has_typed_values_and_null_for_what_is_unknown() {
        let values: Vec<Json> = nodes().iter().map(node_json).collect();
        assert_eq!(values[0]["mtotal"], json!(4096));
        assert_eq!(values[0]["pinst_list"], json!(["web1", "web2"]));
        assert_eq!(values[0]["age"], json!(0.25));
        assert_eq!(values[0]["cert_days"], json!(-1));
        assert_eq!(values[0]["state"]["guests"][0]["state"], json!("running"));
        assert_eq!((&values[1]["mfree"], &values[1]["offline"]), (&Json::Null, &json!(true)));
        assert_eq!(values[2]["not_reached"], json!("connection refused"));
        assert_eq!(values[2]["state"], Json::Null);
    }

    #[test]
    fn default_fields_exist() {
        assert!(DEFAULT.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)));
        assert!(PENDING_DEFAULT.iter().all(|name| PENDING_FIELDS.iter().any(|field| field.name == *name)));
    }
}
