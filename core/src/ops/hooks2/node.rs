//! Variables of a node.

use crate::{hooks::Env, model::Node};

/// A node's variables.
pub(super) fn env(node: &Node) -> Env {
    // A daemon that runs hooks only has neither guests nor a master daemon beside it.
    let capable = !node.hooks_only;
    Env::new()
        .set("NODE_NAME", node.name.as_str())
        .set("NODE_PIP", node.primary_ip.to_string())
        .set("NODE_SIP", node.secondary_ip.to_string())
        .boolean("MASTER_CAPABLE", capable)
        .boolean("VM_CAPABLE", capable)
}
