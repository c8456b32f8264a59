//! How it is made sure that a guest does not run on its primary any more, where that node is to be left or can't be asked.

use std::net::IpAddr;

use super::{Plan, Refusal, common};
use crate::{
    calls::{Call, MasterCall},
    hypervisor::HypervisorKind,
    model::{Cluster, Instance},
};

/// What makes sure of it.
#[derive(Debug)]
pub(super) enum OldPrimary {
    /// Its node stops it.
    Stops,
    /// The site's command is asked.
    Fence { address: IpAddr, command: String },
    /// Somebody says that it does not.
    Gone,
}

/// A guest must never run twice: a node that can't be asked must be known to be off. `fenced` is the operator's word for that.
pub(super) fn check_old_primary(
    cluster: &Cluster,
    instance: &Instance,
    fenced: bool,
) -> Result<OldPrimary, Refusal> {
    let node = common::node(cluster, &instance.primary)?;
    if !node.offline {
        return Ok(OldPrimary::Stops);
    }
    if fenced || cluster.hypervisor.kind == HypervisorKind::Fake {
        return Ok(OldPrimary::Gone);
    }
    match &cluster.fence_command {
        Some(command) => Ok(OldPrimary::Fence { address: node.primary_ip, command: command.clone() }),
        None => Err(Refusal(format!(
            "node {} is marked offline, and its guests may still run: name a fence command (gnt-cluster modify \
             --fence-command), or make sure that it is off and say --fenced",
            instance.primary
        ))),
    }
}

/// Asks the site's command.
pub(super) fn plan_fence(plan: Plan, instance: &Instance, address: IpAddr, command: &str) -> Plan {
    let (node, command) = (instance.primary.clone(), command.to_owned());
    plan.harmless(Call::Master(MasterCall::Fence { node, address, command }))
}
