//! Networks in listings, in `info` and in JSON.

use muster_proto::v1::{NetworkInfo, NetworkInstance};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, field, whole_object, whole_text},
    groups::connection_json,
};

/// The fields of `gnt-network list` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["name", "network", "gateway", "mac_prefix", "group_list", "free_count"];

/// All fields of a network.
pub(crate) const FIELDS: &[Field<NetworkInfo>] = &[
    field("name", "Network", |network: &NetworkInfo| Value::text(&network.name)),
    field("network", "Subnet", |network: &NetworkInfo| Value::text(&network.subnet)),
    field("gateway", "Gateway", |network: &NetworkInfo| {
        Value::text(network.gateway.as_deref().unwrap_or_default())
    }),
    field("network6", "IPv6Subnet", |network: &NetworkInfo| {
        Value::text(network.subnet6.as_deref().unwrap_or_default())
    }),
    field("gateway6", "IPv6Gateway", |network: &NetworkInfo| {
        Value::text(network.gateway6.as_deref().unwrap_or_default())
    }),
    field("mac_prefix", "MacPrefix", |network: &NetworkInfo| {
        Value::text(network.mac_prefix.as_deref().unwrap_or_default())
    }),
    field("group_cnt", "GroupCount", |network: &NetworkInfo| Value::number(network.groups.len())),
    field("group_list", "Groups", |network: &NetworkInfo| {
        Value::List(network.groups.iter().map(|connection| connection.group.clone()).collect())
    }),
    field("inst_cnt", "InstCount", |network: &NetworkInfo| Value::number(network.instances.len())),
    field("inst_list", "Instances", |network: &NetworkInfo| {
        Value::List(network.instances.iter().map(|instance| instance.name.clone()).collect())
    }),
    field("pool_count", "PoolCount", |network: &NetworkInfo| Value::number(network.pool_count)),
    field("free_count", "FreeCount", |network: &NetworkInfo| Value::number(network.free_count)),
    field("external_reservations", "Reserved", |network: &NetworkInfo| Value::List(network.reserved.clone())),
    field("tags", "Tags", |network: &NetworkInfo| Value::List(network.tags.clone())),
    field("uuid", "UUID", |network: &NetworkInfo| Value::text(&network.uuid)),
];

/// Everything of a network as JSON.
pub(crate) fn network_json(network: &NetworkInfo) -> Json {
    let mut object = whole_object(FIELDS, network);
    object.insert("groups".to_owned(), network.groups.iter().map(connection_json).collect());
    let instance = |instance: &NetworkInstance| json!({ "name": instance.name, "ip": instance.ip });
    object.insert("instances".to_owned(), network.instances.iter().map(instance).collect());
    Json::Object(object)
}

/// Everything of a network for people.
pub(crate) fn network_text(network: &NetworkInfo) -> String {
    let mut text = format!("Network {}\n{}", network.name, whole_text(FIELDS, network));
    for connection in &network.groups {
        text += &format!("  group {}, {}, link {}\n", connection.group, connection.mode, connection.link);
    }
    for instance in &network.instances {
        text += &format!("  instance {}, {}\n", instance.name, instance.ip.as_deref().unwrap_or("-"));
    }
    text
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::GroupNetwork;

    use super::*;
    use crate::{args::ListFlags, output::fields::select};

    #[test]
    fn columns_and_json() {
        let network = NetworkInfo {
            name: "lan".to_owned(),
            subnet: "198.51.100.0/24".to_owned(),
            groups: vec![GroupNetwork { group: "default".to_owned(), ..GroupNetwork::default() }],
            instances: vec![NetworkInstance { name: "web1".to_owned(), ip: None }],
            pool_count: 253,
            free_count: 252,
            ..NetworkInfo::default()
        };
        let text = select(FIELDS, DEFAULT, &ListFlags::default())
            .unwrap()
            .render(std::slice::from_ref(&network))
            .unwrap();
        let expected = "\
Network Subnet          Gateway MacPrefix Groups  FreeCount
lan     198.51.100.0/24 -       -         default       252
";
        assert_eq!(text, expected);
        let value = network_json(&network);
        assert_eq!((&value["gateway"], &value["inst_list"]), (&Json::Null, &json!(["web1"])));
        assert_eq!(value["instances"][0], json!({ "name": "web1", "ip": null }));
        assert!(network_text(&network).ends_with("  instance web1, -\n"));
        assert!(DEFAULT.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)));
    }
}
