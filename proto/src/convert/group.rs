//! Groups of nodes, networks and tags as queries show them.

use muster_core::{
    groups::Group,
    model::Cluster,
    networks::Network,
    tags::{TagObject, Tags, tag_matches},
};

use crate::v1;

/// A group with its nodes, instances and networks.
pub fn group_info(cluster: &Cluster, group: &Group) -> v1::GroupInfo {
    let instances = cluster.nodes_in(group.uuid).flat_map(|node| cluster.primaries_on(&node.name));
    let mut primary_instances: Vec<String> = instances.map(|instance| instance.name.to_string()).collect();
    primary_instances.sort();
    let mut networks: Vec<v1::GroupNetwork> = cluster
        .networks
        .values()
        .flat_map(|network| connections(cluster, network))
        .filter(|connection| connection.group == group.name.as_str())
        .collect();
    networks.sort_by(|one, other| one.network.cmp(&other.network));
    v1::GroupInfo {
        name: group.name.to_string(),
        uuid: group.uuid.to_string(),
        alloc_policy: group.alloc_policy.as_str().to_owned(),
        nodes: cluster.nodes_in(group.uuid).map(|node| node.name.to_string()).collect(),
        primary_instances,
        networks,
        tags: group.tags.to_texts(),
    }
}

/// The groups that a network is connected to, by name.
fn connections(cluster: &Cluster, network: &Network) -> Vec<v1::GroupNetwork> {
    let connections = network.groups.iter().filter_map(|(group, connection)| {
        Some(v1::GroupNetwork {
            network: network.name.to_string(),
            group: cluster.groups.get(group)?.name.to_string(),
            mode: connection.mode.as_str().to_owned(),
            link: connection.link.clone(),
        })
    });
    let mut connections: Vec<v1::GroupNetwork> = connections.collect();
    connections.sort_by(|one, other| one.group.cmp(&other.group));
    connections
}

/// A network with its groups and instances.
pub fn network_info(cluster: &Cluster, network: &Network) -> v1::NetworkInfo {
    let instances = cluster.instances_in(network.uuid).map(|instance| v1::NetworkInstance {
        name: instance.name.to_string(),
        ip: instance.ip.map(|ip| ip.to_string()),
    });
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    v1::NetworkInfo {
        name: network.name.to_string(),
        uuid: network.uuid.to_string(),
        subnet: network.subnet.to_string(),
        gateway: network.gateway.map(|ip| ip.to_string()),
        subnet6: network.subnet6.map(|range| range.to_string()),
        gateway6: network.gateway6.map(|ip| ip.to_string()),
        mac_prefix: network.mac_prefix.as_ref().map(|prefix| prefix.as_str().to_owned()),
        reserved: network.reserved.iter().map(ToString::to_string).collect(),
        groups: connections(cluster, network),
        instances: instances.collect(),
        pool_count: count(network.pool().count()),
        free_count: count(cluster.free_addresses(network).count()),
        tags: network.tags.to_texts(),
    }
}

/// Tags that match, of everything or of one object.
pub fn found_tags(cluster: &Cluster, wanted: Option<&TagObject>, pattern: &str) -> Vec<v1::FoundTag> {
    let mut objects: Vec<(TagObject, &Tags)> = vec![(TagObject::Cluster, &cluster.tags)];
    objects.extend(cluster.nodes.iter().map(|(name, node)| (TagObject::Node(name.clone()), &node.tags)));
    objects.extend(cluster.instances.iter().map(|(name, it)| (TagObject::Instance(name.clone()), &it.tags)));
    objects.extend(cluster.groups.values().map(|group| (TagObject::Group(group.name.clone()), &group.tags)));
    objects.extend(cluster.networks.values().map(|it| (TagObject::Network(it.name.clone()), &it.tags)));
    objects.sort_by(|one, other| one.0.cmp(&other.0));
    let wanted = objects.into_iter().filter(|(object, _)| wanted.is_none_or(|wanted| wanted == object));
    let found = wanted.flat_map(|(object, tags)| {
        let matching = tags.iter().filter(|tag| tag_matches(pattern, tag.as_str()));
        let object = v1::TagObject::from(&object);
        matching.map(move |tag| v1::FoundTag { object: Some(object.clone()), tag: tag.to_string() })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    #[test]
    fn groups_and_networks_name_each_other() {
        let cluster = examples::networked();
        let group = cluster.groups.values().find(|group| group.name.as_str() == "default").unwrap();
        let info = group_info(&cluster, group);
        assert_eq!((info.nodes.join(" "), info.networks.len()), ("node1 node2".to_owned(), 1));
        assert_eq!(info.primary_instances, ["db1", "mail1", "null1", "web1"]);
        assert_eq!((info.networks[0].network.as_str(), info.networks[0].link.as_str()), ("lan", "br1"));
        let network = cluster.networks.values().find(|network| network.name.as_str() == "lan").unwrap();
        let info = network_info(&cluster, network);
        let groups: Vec<&str> = info.groups.iter().map(|group| group.group.as_str()).collect();
        assert_eq!(groups, ["default", "rack2"]);
        // Of 256: two for the network itself, the gateway, a reserved one; two instances.
        assert_eq!((info.pool_count, info.free_count), (252, 250));
        assert_eq!(info.instances[1].ip.as_deref(), Some("198.51.100.1"));
    }

    #[test]
    fn tags_are_found_by_object_and_form() {
        let cluster = examples::networked();
        let all = found_tags(&cluster, None, "ol");
        let kinds: Vec<String> =
            all.iter().map(|found| found.object.as_ref().unwrap().kind.clone()).collect();
        assert_eq!(kinds, ["cluster", "node", "instance", "group", "network"]);
        assert_eq!(found_tags(&cluster, None, "o?").len(), 0);
        assert_eq!(found_tags(&cluster, Some(&TagObject::Cluster), "").len(), 1);
    }
}
