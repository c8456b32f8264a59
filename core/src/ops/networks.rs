//! What an instance's network means: look-ups, where it can be, which address and MAC address it gets.
//!
//! Locks. `instance-networks`: shared by whoever brings an instance of a network to a node or a network to an instance,
//! alone for whoever takes a network away from a group or a node to another group. `subnets`: shared by whoever gives an
//! address outside networks, alone for whoever makes a range of a network. `network:NAME`: shared by whoever gives one of
//! its addresses by name, which `ip:ADDRESS` claims; alone for whoever draws one, since that address is not known yet.

use std::{collections::BTreeSet, net::IpAddr};

use super::{Given, Refusal, addresses, common};
use crate::{
    locks::Locks,
    model::{Cluster, Instance},
    names::{InstanceName, NetworkName, NodeName},
    networks::Network,
};

/// A network by its name, or a refusal with the nearest known name.
pub(super) fn network<'a>(cluster: &'a Cluster, name: &NetworkName) -> Result<&'a Network, Refusal> {
    let known = || cluster.networks.values().map(|network| network.name.as_str());
    cluster.network_named(name).ok_or_else(|| common::unknown("network", name.as_str(), known()))
}

/// Where an instance's address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// It has none.
    None,
    /// This one.
    Address(IpAddr),
    /// The first of its network that nobody has.
    Pool,
}

/// The locks for an address in a network, or outside all of them.
pub(super) fn lock(locks: Locks, network: Option<&NetworkName>, wanted: Wanted) -> Locks {
    let locks = match wanted {
        // No node may get the address in the meantime.
        Wanted::Address(ip) => locks.exclusive("ip", ip).shared("node-addresses", ""),
        Wanted::Pool => locks.shared("node-addresses", ""),
        Wanted::None => locks,
    };
    match (network, wanted) {
        (Some(network), Wanted::Pool) => locks.exclusive("network", network).shared("instance-networks", ""),
        (Some(network), Wanted::Address(_) | Wanted::None) => {
            locks.shared("network", network).shared("instance-networks", "")
        }
        (None, Wanted::Address(_)) => locks.shared("subnets", ""),
        (None, Wanted::Pool | Wanted::None) => locks,
    }
}

/// Refuses a node on which a network can't be had.
pub(super) fn reaches(cluster: &Cluster, network: &Network, node: &NodeName) -> Result<(), Refusal> {
    let group = cluster.group_of(node);
    if group.is_some_and(|group| network.groups.contains_key(&group.uuid)) {
        return Ok(());
    }
    let group = group.map(|group| group.name.to_string()).unwrap_or_default();
    Err(Refusal(format!(
        "network {} is not connected to group {group}, which node {node} is in: gnt-network connect {} {group}",
        network.name, network.name
    )))
}

/// Refuses a node on which an instance could not have its network.
pub(super) fn node_for(cluster: &Cluster, instance: &Instance, node: &NodeName) -> Result<(), Refusal> {
    match cluster.network_of(instance) {
        Some(network) => reaches(cluster, network, node),
        None => Ok(()),
    }
}

/// The address of an instance in a network, or outside all of them.
pub(super) fn address(
    given: Given<'_>,
    network: Option<&Network>,
    wanted: Wanted,
    own: &InstanceName,
) -> Result<Option<IpAddr>, Refusal> {
    let cluster = given.cluster;
    match (wanted, network) {
        (Wanted::None, _) => Ok(None),
        (Wanted::Pool, None) => {
            Err(Refusal("an address from the pool is one of a network: name it (--network)".to_owned()))
        }
        (Wanted::Pool, Some(network)) => match cluster.free_addresses(network).next() {
            Some(ip) => Ok(Some(ip.into())),
            None => {
                Err(Refusal(format!("network {} ({}) has no free address", network.name, network.subnet)))
            }
        },
        (Wanted::Address(ip), Some(network)) => {
            fits(network, ip)?;
            addresses::instance_address_free(cluster, ip, own)?;
            Ok(Some(ip))
        }
        (Wanted::Address(ip), None) => {
            addresses::instance_address_free(cluster, ip, own)?;
            match cluster.networks.values().find(|network| network.contains(ip)) {
                Some(network) => Err(Refusal(format!(
                    "the address {ip} is one of network {}: name it with the address (--network {})",
                    network.name, network.name
                ))),
                None => Ok(Some(ip)),
            }
        }
    }
}

/// Refuses an address that is not one for a network's instances.
pub(super) fn fits(network: &Network, ip: IpAddr) -> Result<(), Refusal> {
    if !network.contains(ip) {
        let range = match (ip, network.subnet6) {
            (IpAddr::V4(_), _) => network.subnet.to_string(),
            (IpAddr::V6(_), Some(range)) => range.to_string(),
            (IpAddr::V6(_), None) => "it has no IPv6 addresses".to_owned(),
        };
        return Err(Refusal(format!("the address {ip} is not in network {} ({range})", network.name)));
    }
    match network.withheld(ip) {
        Some(why) => Err(Refusal(format!(
            "the address {ip} is for no instance: it is {why} in network {}",
            network.name
        ))),
        None => Ok(()),
    }
}

/// The MAC address of an instance that comes into a network: with the network's beginning and its own end or, where that is
/// taken, the drawn one's.
pub(super) fn mac(
    given: Given<'_>,
    network: &Network,
    own: &str,
    name: &InstanceName,
) -> Result<String, Refusal> {
    let Some(prefix) = &network.mac_prefix else { return Ok(own.to_owned()) };
    let others: BTreeSet<&str> = given
        .cluster
        .instances
        .values()
        .filter(|instance| instance.name != *name)
        .map(|instance| instance.mac.as_str())
        .collect();
    let candidates = [own, given.fresh.mac.as_str()].map(|end| prefix.instead_of(end));
    let taken = format!("the drawn address {} is taken: submit again", candidates[1]);
    candidates.into_iter().find(|mac| !others.contains(mac.as_str())).ok_or(Refusal(taken))
}
