//! The configuration as queries and node daemons see it. What only the master's memory holds (states, ages, epochs) is
//! left empty here and filled in there.

use muster_core::model::{Client, Cluster, Disk, Export, Instance, Node};

use super::{fields, hooks::version_to_wire};
use crate::v1;

fn names<'a>(instances: impl Iterator<Item = &'a Instance>) -> Vec<String> {
    instances.map(|instance| instance.name.to_string()).collect()
}

/// The cluster's own part of an answer.
pub fn cluster_info(cluster: &Cluster) -> v1::ClusterInfo {
    v1::ClusterInfo {
        name: cluster.name.to_string(),
        uuid: cluster.uuid.to_string(),
        master: cluster.master.to_string(),
        serial: cluster.serial,
        hooks: Some(cluster.hooks.clone().into()),
        nodes: u32::try_from(cluster.nodes.len()).unwrap_or(u32::MAX),
        instances: u32::try_from(cluster.instances.len()).unwrap_or(u32::MAX),
        tags: cluster.tags.to_texts(),
        groups: u32::try_from(cluster.groups.len()).unwrap_or(u32::MAX),
        networks: u32::try_from(cluster.networks.len()).unwrap_or(u32::MAX),
        clients: cluster.clients.values().map(client_info).collect(),
        hypervisor: cluster.hypervisor.kind.as_str().to_owned(),
        accel: cluster.hypervisor.accel.as_str().to_owned(),
        nic: cluster.hypervisor.nic.to_text(),
        fence_command: cluster.fence_command.clone(),
        allowed_commands: fields::all_texts(cluster.allowed.commands.iter().cloned()),
        allowed_files: fields::all_texts(cluster.allowed.files.iter().cloned()),
        ..v1::ClusterInfo::default()
    }
}

/// A client's certificate.
pub fn client_info(client: &Client) -> v1::ClientInfo {
    v1::ClientInfo {
        name: client.name.to_string(),
        role: client.role.as_str().to_owned(),
        fingerprint: client.fingerprint.clone(),
        created_ms: client.created_ms,
    }
}

/// A node, without its state.
pub fn node_info(cluster: &Cluster, node: &Node) -> v1::NodeInfo {
    v1::NodeInfo {
        name: node.name.to_string(),
        uuid: node.uuid.to_string(),
        primary_ip: node.primary_ip.to_string(),
        secondary_ip: node.secondary_ip.to_string(),
        port: u32::from(node.port),
        offline: node.offline,
        drained: node.drained,
        master_candidate: node.master_candidate,
        group: cluster.group_of(&node.name).map(|group| group.name.to_string()).unwrap_or_default(),
        tags: node.tags.to_texts(),
        master: node.name == cluster.master,
        primary_instances: names(cluster.primaries_on(&node.name)),
        secondary_instances: names(cluster.secondaries_on(&node.name)),
        state: None,
        state_age_ms: None,
        not_reached: None,
        fingerprints: node.fingerprints.clone(),
        blocked_by: None,
        host: None,
        host_age_ms: None,
    }
}

fn disk_info(disk: &Disk) -> v1::DiskInfo {
    let mirror = |mirror: &muster_core::model::Mirror| v1::MirrorInfo {
        disk_id: mirror.id,
        node: mirror.node.to_string(),
        uuid: mirror.uuid.to_string(),
        state: mirror.state.as_str().to_owned(),
        mirror: v1::MirrorStatus::Unspecified.into(),
        percent: None,
    };
    v1::DiskInfo {
        name: disk.name.as_str().to_owned(),
        uuid: disk.uuid.to_string(),
        size_mib: disk.size_mib,
        mirrors: disk.mirrors.iter().map(mirror).collect(),
    }
}

/// An instance, without its status.
pub fn instance_info(cluster: &Cluster, instance: &Instance) -> v1::InstanceInfo {
    v1::InstanceInfo {
        name: instance.name.to_string(),
        uuid: instance.uuid.to_string(),
        primary: instance.primary.to_string(),
        secondaries: instance.secondaries().into_iter().map(Into::into).collect(),
        disk_template: instance.template.as_str().to_owned(),
        memory_mib: instance.memory_mib,
        vcpus: instance.vcpus,
        ip: instance.ip.map(|ip| ip.to_string()),
        mac: instance.mac.clone(),
        network: cluster.network_of(instance).map(|network| network.name.to_string()),
        tags: instance.tags.to_texts(),
        os: instance.os.to_string(),
        admin_up: instance.up,
        status: String::new(),
        disks: instance.disks.iter().map(disk_info).collect(),
        created_ms: instance.created_ms,
        state_age_ms: None,
        blocked_by: None,
        degraded: false,
    }
}

/// An export.
pub fn export_info(export: &Export) -> v1::ExportInfo {
    v1::ExportInfo {
        uuid: export.uuid.to_string(),
        instance: export.instance.to_string(),
        node: export.node.to_string(),
        path: export.path.clone(),
        created_ms: export.created_ms,
        size_mib: export.disks.iter().fold(0, |sum, (_, size_mib)| sum.saturating_add(*size_mib)),
        did_shutdown: export.did_shutdown,
    }
}

/// The facts that node daemons keep in DATA_DIR, and the clients that they accept.
pub fn facts(cluster: &Cluster) -> v1::Facts {
    let node = |node: &Node| v1::NodeFact {
        name: node.name.to_string(),
        primary_ip: node.primary_ip.to_string(),
        secondary_ip: node.secondary_ip.to_string(),
    };
    let client = |client: &Client| v1::AcceptedClient {
        fingerprint: client.fingerprint.clone(),
        role: client.role.as_str().to_owned(),
    };
    v1::Facts {
        serial: cluster.serial,
        cluster_name: cluster.name.to_string(),
        master_node: cluster.master.to_string(),
        nodes: cluster.nodes.values().map(node).collect(),
        instances: cluster.instances.keys().map(ToString::to_string).collect(),
        clients: cluster.clients.values().map(client).collect(),
        hooks_version: Some(version_to_wire(cluster.hooks.version)),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    #[test]
    fn nodes_name_their_instances() {
        let cluster = examples::cluster();
        let nodes: Vec<v1::NodeInfo> = cluster.nodes.values().map(|node| node_info(&cluster, node)).collect();
        let found: Vec<(bool, String, String)> = nodes
            .iter()
            .map(|node| (node.master, node.primary_instances.join(" "), node.secondary_instances.join(" ")))
            .collect();
        let expected = [(true, "db1 null1 web1", ""), (false, "mail1", ""), (false, "", "db1 mail1")];
        assert_eq!(found, expected.map(|(master, p, s)| (master, p.to_owned(), s.to_owned())));
    }

    #[test]
    fn instances_show_their_disk_ids() {
        let cluster = examples::cluster();
        let mail = cluster.instances.values().find(|instance| instance.name.as_str() == "mail1").unwrap();
        let info = instance_info(&cluster, mail);
        let ids: Vec<(&str, u32, &str)> = info
            .disks
            .iter()
            .flat_map(|disk| disk.mirrors.iter().map(|m| (disk.name.as_str(), m.disk_id, m.state.as_str())))
            .collect();
        assert_eq!(ids, [("sda", 1, "stale"), ("sdb", 2, "stale")]);
        assert_eq!((info.secondaries, info.admin_up), (vec!["node3".to_owned()], true));
    }

    #[test]
    fn an_exports_size_is_that_of_all_its_disks() {
        let cluster = examples::cluster();
        let export = cluster.exports.values().next().unwrap();
        assert_eq!(export_info(export).size_mib, 192);
        assert_eq!(cluster_info(&cluster).clients[0].role, "reader");
    }

    #[test]
    fn facts_hold_all_nodes_and_instances() {
        let facts = facts(&examples::offline("node3"));
        assert_eq!(facts.nodes.len(), 3);
        assert_eq!(facts.instances, ["db1", "mail1", "null1", "web1"]);
        assert_eq!((facts.serial, facts.master_node.as_str()), (7, "node1"));
    }
}
