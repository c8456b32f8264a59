//! Addresses of nodes and instances: usable ones, each used once.

use std::net::IpAddr;

use super::Refusal;
use crate::{
    model::Cluster,
    names::{InstanceName, NodeName},
};

fn usable(ip: IpAddr) -> Result<(), Refusal> {
    let broadcast = match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    if ip.is_unspecified() || ip.is_multicast() || broadcast {
        return Err(Refusal(format!("{ip} is no address of one host")));
    }
    Ok(())
}

/// Refuses an address that can't be a node's, or that another node or an instance has.
pub(super) fn node_address_free(cluster: &Cluster, ip: IpAddr, own: &NodeName) -> Result<(), Refusal> {
    usable(ip)?;
    let used = |node: &&crate::model::Node| node.primary_ip == ip || node.secondary_ip == ip;
    if let Some(other) = cluster.nodes.values().filter(|node| node.name != *own).find(used) {
        return Err(Refusal(format!("node {} has the address {ip} already", other.name)));
    }
    match cluster.instances.values().find(|instance| instance.ip == Some(ip)) {
        Some(other) => Err(Refusal(format!("instance {} has the address {ip} already", other.name))),
        None => Ok(()),
    }
}

/// Refuses an address that can't be an instance's, or that a node or another instance has.
pub(super) fn instance_address_free(
    cluster: &Cluster,
    ip: IpAddr,
    own: &InstanceName,
) -> Result<(), Refusal> {
    usable(ip)?;
    let mut nodes = cluster.nodes.values();
    if let Some(other) = nodes.find(|node| node.primary_ip == ip || node.secondary_ip == ip) {
        return Err(Refusal(format!("node {} has the address {ip} already", other.name)));
    }
    let mut others = cluster.instances.values().filter(|instance| instance.name != *own);
    match others.find(|instance| instance.ip == Some(ip)) {
        Some(other) => Err(Refusal(format!("instance {} has the address {ip} already", other.name))),
        None => Ok(()),
    }
}
