//! The node daemon.

use std::{process::ExitCode, sync::Arc};

use muster_hooksrv::agent::{self, Backends};
use muster_noded::Node;

fn main() -> ExitCode {
    agent::main(
        "muster-noded",
        "Runs a cluster's instances and hook scripts on this host",
        false,
        async |config| {
            let node: Arc<dyn Backends> = Arc::new(Node::open(config).await?);
            Ok(node)
        },
    )
}
