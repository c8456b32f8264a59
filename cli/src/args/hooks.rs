//! `gnt-hooks`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_core::hooks::HooksVersion;

use super::{
    common::{AsJson, ListFlags},
    hook_policy::PolicyVerb,
    hook_runs::{HistoryFlags, RunFlags},
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
    /// Run one script again on a node, with the environment that was recorded with a job. It is run for real, whatever it does;
    /// the job is left as it is. Exit code 1 if it would have been an error. For admins
    #[command(after_help = "\
Examples:
  gnt-hooks run node2 instance-start-pre.d/10-quota --from-job 17
  gnt-hooks run --json node1 global-post.d/50-log --from-job 17

The directory is one of the job's own (PREFIX-pre.d, -post.d, -failed.d) or global-pre.d or global-post.d. What the node adds
(GANETI_HOST_NAME, GANETI_DATA_DIR, ...) is as it is now; files such as GANETI_POST_NODES_PATH are made again.")]
    Run(RunFlags),
    /// List what scripts did, for archived jobs too: the newest job first, and what happened last in it first
    #[command(after_help = "\
Examples:
  gnt-hooks history --failed --since 24h
  gnt-hooks history --node node2 --script 'instance-*-pre.d/*'
  gnt-hooks history -o +detail --limit 20")]
    History(HistoryFlags),
    /// Make what is in hooks_source on the master the cluster's own hook set and bring it to the nodes; only what a node lacks
    /// travels. Exit code 1 where a node does not have it then
    Sync(SyncFlags),
    /// Compare the hook set that each node uses, file by file, with the one that it should; exit code 1 where one differs
    Diff {
        /// Only these nodes
        #[arg(value_name = "NODE", value_parser = values::node)]
        nodes: Vec<String>,
        #[command(flatten)]
        list: ListFlags,
    },
    /// What exit codes, limits and silence mean in single directories
    #[command(subcommand)]
    Policy(PolicyVerb),
    /// Make every hook directory on this host, each with a README and a disabled example; what is there stays
    Init {
        /// The hooks directory; default: that of the node daemon's configuration
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        version: VersionFlag,
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
        version: VersionFlag,
        #[command(flatten)]
        host: HostFlags,
        #[command(flatten)]
        json: AsJson,
    },
}

/// Flags of `gnt-hooks sync`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SyncFlags {
    /// Make it the set of this node alone, until the next sync without --node; may be repeated
    #[arg(long = "node", value_name = "NODE", value_parser = values::node)]
    pub(crate) nodes: Vec<String>,
    /// Send all files, also those that a node has
    #[arg(long)]
    pub(crate) full: bool,
    /// Go on: sync again whenever something in the directory has changed, until interrupted
    #[arg(long)]
    pub(crate) on_change: bool,
    #[command(flatten)]
    pub(crate) json: AsJson,
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

/// An interface version.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct VersionFlag {
    /// Version of the hook interface; default: the cluster's, as its master or this host's node daemon has it, else 1
    #[arg(long, value_name = "1|2", value_parser = values::hooks_version)]
    pub(crate) hooks_version: Option<HooksVersion>,
}

/// This host's node daemon.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct HostFlags {
    /// The node daemon's configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
