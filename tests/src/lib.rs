//! What the black-box suites stand on: clusters of real daemons on loopback addresses (`muster-devcluster`) and calls to them.

pub mod devcluster;
pub mod hook_reference;
pub mod rpc;

pub use muster_sim as sim;
