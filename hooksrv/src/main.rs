//! A daemon that runs hooks and nothing else: for hosts that authorise operations and have no instances.

use std::{process::ExitCode, sync::Arc};

use muster_hooksrv::agent::{self, Backends, HooksOnly};

fn main() -> ExitCode {
    agent::main(
        "muster-hooksrv",
        "Runs a cluster's hook scripts on a host without instances",
        true,
        async |_| {
            let nothing: Arc<dyn Backends> = Arc::new(HooksOnly);
            Ok(nothing)
        },
    )
}
