//! `muster-devcluster`: a cluster of real daemons on loopback addresses, for trying things and for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    muster_tests::devcluster::main()
}
