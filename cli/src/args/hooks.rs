//! `gnt-hooks`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    common::{AsJson, ListFlags},
    values,
};

/// Verbs of `gnt-hooks`.
#[derive(Debug, Subcommand)]
pub(crate) enum HooksVerb {
    /// List what would run on the nodes, what is skipped and why, and directories that no operation uses
    List {
        /// Only these nodes
        #[arg(value_name = "NODE", value_parser = values::node)]
        nodes: Vec<String>,
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show which scripts an operation would run, where, and with which environment; nothing is run or changed
    #[command(after_help = "\
Examples:
  gnt-hooks explain instance add -t file -n node1 -s 64M -o none web1
  gnt-hooks explain --json instance failover web1
  gnt-hooks explain --new-master node2 cluster master-failover

What is drawn when an operation is submitted stands in angle brackets: GANETI_JOB_ID=<the job's number>.")]
    Explain(ExplainFlags),
    /// Make every hook directory on this host, each with a README and a disabled example; what is there stays
    Init {
        /// The hooks directory; default: that of the node daemon's configuration
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        host: HostFlags,
        #[command(flatten)]
        json: AsJson,
    },
    /// Find what will surprise in a hooks directory on this host, without running anything; exit code 1 if there is something
    Lint {
        /// The hooks directory; default: that of the node daemon's configuration
        dir: Option<PathBuf>,
        /// Number of the user that the node daemon runs as; default: the owner of its state, else root and who asks
        #[arg(long, value_name = "UID")]
        daemon_user: Option<u32>,
        #[command(flatten)]
        host: HostFlags,
        #[command(flatten)]
        json: AsJson,
    },
}

/// Flags of `gnt-hooks explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExplainFlags {
    /// For cluster master-failover: the node that is to be the master
    #[arg(long, value_name = "NODE", value_parser = values::node)]
    pub(crate) new_master: Option<String>,
    #[command(flatten)]
    pub(crate) json: AsJson,
    /// The operation with its arguments, as it is typed after gnt
    #[arg(value_name = "OPERATION", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) operation: Vec<String>,
}

/// This host's node daemon.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostFlags {
    /// The node daemon's configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
