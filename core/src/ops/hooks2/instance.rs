//! Variables of an instance, named as Ganeti 3 names them: its manual and its code differ in places, and both spellings
//! are set where they do.

use super::{Plan, network};
use crate::{
    edit::Edit,
    hooks::Env,
    hypervisor::{HypervisorKind, NicMode},
    model::{Cluster, Disk, DiskTemplate, Instance},
    networks::LinkMode,
};

/// An instance's variables.
pub(super) fn env(cluster: &Cluster, instance: &Instance) -> Env {
    let secondaries = instance.secondaries();
    let memory = instance.memory_mib.to_string();
    let status = if instance.up { "up" } else { "down" };
    Env::new()
        .set("INSTANCE_NAME", instance.name.as_str())
        .set("INSTANCE_PRIMARY", instance.primary.as_str())
        .list("INSTANCE_SECONDARY", &secondaries)
        .list("INSTANCE_SECONDARIES", &secondaries)
        .set("INSTANCE_OS_TYPE", instance.os.as_str())
        .set("INSTANCE_STATUS", status)
        .set("INSTANCE_MINMEM", memory.as_str())
        .set("INSTANCE_MAXMEM", memory.as_str())
        .set("INSTANCE_MEMORY", memory)
        .set("INSTANCE_VCPUS", instance.vcpus.to_string())
        .list("INSTANCE_TAGS", &instance.tags.to_texts())
        .with(disks_env(instance))
        .with(nics_env(cluster, instance))
        .with(parameters_env(cluster, instance))
}

/// The instance as the plan's edits leave it; one that is removed as it was last: down.
pub(super) fn after(before: &Instance, plan: &Plan) -> Instance {
    let puts = plan
        .edits
        .iter()
        .filter_map(|edit| if let Edit::InstancePut { instance } = edit { Some(instance) } else { None });
    // By its uuid: a rename removes the old name and puts the new one.
    if let Some(put) = puts.rev().find(|put| put.uuid == before.uuid) {
        return (**put).clone();
    }
    let is_removed = plan
        .edits
        .iter()
        .any(|edit| matches!(edit, Edit::InstanceRemove { instance } if *instance == before.name));
    Instance { up: before.up && !is_removed, ..before.clone() }
}

/// Names of templates in version 2.
pub(super) fn template(template: DiskTemplate) -> &'static str {
    match template {
        DiskTemplate::Diskless => "diskless",
        DiskTemplate::File => "file",
        DiskTemplate::Mirror => "drbd",
    }
}

fn disks_env(instance: &Instance) -> Env {
    let sizes: Vec<u64> = instance.disks.iter().map(|disk| disk.size_mib).collect();
    let template = template(instance.template);
    let disk_env = |env: Env, (index, disk): (usize, &Disk)| {
        let name = |what: &str| format!("INSTANCE_DISK{index}_{what}");
        env.set(&name("NAME"), disk.name.as_str())
            .set(&name("UUID"), disk.uuid.to_string())
            .set(&name("SIZE"), disk.size_mib.to_string())
            .set(&name("MODE"), "rw")
            .set(&name("DEV_TYPE"), template)
    };
    let env = Env::new()
        .set("INSTANCE_DISK_TEMPLATE", template)
        .set("INSTANCE_DISK_COUNT", instance.disks.len().to_string())
        .list("INSTANCE_DISK_SIZES", &sizes);
    instance.disks.iter().enumerate().fold(env, disk_env)
}

/// An instance has one network card, or none where guests of the cluster have none. Where guests have bridges, what its
/// network says on the primary's group goes before what the cluster says; the bridge is always the one that the card is on,
/// which of a routed network is the cluster's.
fn nics_env(cluster: &Cluster, instance: &Instance) -> Env {
    let (mode, link, bridge) = match (&cluster.hypervisor.nic, cluster.connection_of(instance)) {
        (NicMode::None, _) => return Env::new().set("INSTANCE_NIC_COUNT", "0"),
        (NicMode::User, _) => ("user", "", ""),
        (NicMode::Bridge(bridge), None) => (LinkMode::Bridged.as_str(), bridge.as_str(), bridge.as_str()),
        (NicMode::Bridge(bridge), Some(connection)) => {
            let (mode, link) = (connection.mode.as_str(), connection.link.as_str());
            match connection.mode {
                LinkMode::Bridged => (mode, link, link),
                LinkMode::Routed => (mode, link, bridge.as_str()),
            }
        }
    };
    Env::new()
        .set("INSTANCE_NIC_COUNT", "1")
        .set("INSTANCE_NIC0_IP", instance.ip.map(|ip| ip.to_string()).unwrap_or_default())
        .set("INSTANCE_NIC0_MAC", instance.mac.as_str())
        .set("INSTANCE_NIC0_MODE", mode)
        .set("INSTANCE_NIC0_LINK", link)
        .set("INSTANCE_NIC0_BRIDGE", bridge)
        .with(nic_network_env(cluster, instance))
}

/// What is known of the card's network: its name, empty where it has none, and the rest only where it has one.
fn nic_network_env(cluster: &Cluster, instance: &Instance) -> Env {
    match cluster.network_of(instance) {
        None => Env::new().set("INSTANCE_NIC0_NETWORK", ""),
        Some(network) => {
            network::env("INSTANCE_NIC0_", network).set("INSTANCE_NIC0_NETWORK", network.name.as_str())
        }
    }
}

/// Parameters of the guest (`BE`) and of what runs it (`HV`), in the spelling of Ganeti's own parameters.
fn parameters_env(cluster: &Cluster, instance: &Instance) -> Env {
    let (hypervisor, migrates) = match cluster.hypervisor.kind {
        HypervisorKind::Fake => ("fake", false),
        HypervisorKind::Qemu => ("kvm", instance.template == DiskTemplate::Mirror),
    };
    let memory = instance.memory_mib.to_string();
    Env::new()
        .set("INSTANCE_HYPERVISOR", hypervisor)
        .set("INSTANCE_HV_accel", cluster.hypervisor.accel.as_str())
        .boolean("INSTANCE_BE_always_failover", !migrates)
        // Nothing moves instances by itself.
        .boolean("INSTANCE_BE_auto_balance", false)
        .set("INSTANCE_BE_maxmem", memory.as_str())
        .set("INSTANCE_BE_memory", memory.as_str())
        .set("INSTANCE_BE_minmem", memory.as_str())
        .set("INSTANCE_BE_spindle_use", "1")
        .set("INSTANCE_BE_vcpus", instance.vcpus.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{common, examples};

    #[test]
    fn a_card_is_told_to_be_where_the_guest_has_it() {
        let mut cluster = examples::networked();
        let web = cluster.instances[&examples::instance_name("web1")].clone();
        let told = |cluster: &Cluster| {
            let env = env(cluster, &web);
            ["MODE", "LINK", "BRIDGE"]
                .map(|what| env.get(&format!("INSTANCE_NIC0_{what}")).unwrap().to_owned())
        };
        let guests = |cluster: &Cluster| common::guest(cluster, &web).hypervisor.nic;
        assert_eq!(told(&cluster), ["bridged", "br1", "br1"]);
        assert_eq!(guests(&cluster), NicMode::Bridge("br1".to_owned()));
        let lan = cluster.networks.get_mut(&web.network.unwrap()).unwrap();
        lan.groups.values_mut().for_each(|connection| connection.mode = LinkMode::Routed);
        assert_eq!(told(&cluster), ["routed", "br1", "br0"], "the cluster's bridge is the card's");
        assert_eq!(guests(&cluster), NicMode::Bridge("br0".to_owned()));
        cluster.hypervisor.nic = NicMode::User;
        assert_eq!(told(&cluster), ["user", "", ""]);
        assert_eq!(guests(&cluster), NicMode::User);
    }
}
