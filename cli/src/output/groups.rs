//! Groups of nodes in listings, in `info` and in JSON.

use muster_proto::v1::{GroupInfo, GroupNetwork};
use serde_json::{Value as Json, json};

use super::fields::{Field, Value, field, whole_object, whole_text};

/// The fields of `gnt-group list` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["name", "node_cnt", "pinst_cnt", "alloc_policy", "network_list"];

/// All fields of a group.
pub(crate) const FIELDS: &[Field<GroupInfo>] = &[
    field("name", "Group", |group: &GroupInfo| Value::text(&group.name)),
    field("node_cnt", "Nodes", |group: &GroupInfo| Value::number(group.nodes.len())),
    field("node_list", "NodeList", |group: &GroupInfo| Value::List(group.nodes.clone())),
    field("pinst_cnt", "Instances", |group: &GroupInfo| Value::number(group.primary_instances.len())),
    field("pinst_list", "InstanceList", |group: &GroupInfo| Value::List(group.primary_instances.clone())),
    field("alloc_policy", "AllocPolicy", |group: &GroupInfo| Value::text(&group.alloc_policy)),
    field("network_list", "Networks", |group: &GroupInfo| {
        Value::List(group.networks.iter().map(|connection| connection.network.clone()).collect())
    }),
    field("tags", "Tags", |group: &GroupInfo| Value::List(group.tags.clone())),
    field("uuid", "UUID", |group: &GroupInfo| Value::text(&group.uuid)),
];

/// How a network is connected to a group.
pub(super) fn connection_json(connection: &GroupNetwork) -> Json {
    json!({
        "network": connection.network,
        "group": connection.group,
        "mode": connection.mode,
        "link": connection.link,
    })
}

/// Everything of a group as JSON.
pub(crate) fn group_json(group: &GroupInfo) -> Json {
    let mut object = whole_object(FIELDS, group);
    object.insert("networks".to_owned(), group.networks.iter().map(connection_json).collect());
    Json::Object(object)
}

/// Everything of a group for people.
pub(crate) fn group_text(group: &GroupInfo) -> String {
    let mut text = format!("Group {}\n{}", group.name, whole_text(FIELDS, group));
    for connection in &group.networks {
        text += &format!("  network {}, {}, link {}\n", connection.network, connection.mode, connection.link);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::ListFlags, output::fields::select};

    #[test]
    fn columns_and_json() {
        let group = GroupInfo {
            name: "default".to_owned(),
            alloc_policy: "preferred".to_owned(),
            nodes: vec!["node1".to_owned(), "node2".to_owned()],
            networks: vec![GroupNetwork { network: "lan".to_owned(), ..GroupNetwork::default() }],
            ..GroupInfo::default()
        };
        let text = select(FIELDS, DEFAULT, &ListFlags::default())
            .unwrap()
            .render(std::slice::from_ref(&group))
            .unwrap();
        let expected = "\
Group   Nodes Instances AllocPolicy Networks
default     2         0 preferred   lan
";
        assert_eq!(text, expected);
        let value = group_json(&group);
        assert_eq!((&value["node_list"], &value["tags"]), (&json!(["node1", "node2"]), &json!([])));
        assert_eq!(value["networks"][0]["network"], json!("lan"));
        assert!(DEFAULT.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)));
    }
}
