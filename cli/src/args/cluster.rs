//! `gnt-cluster`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use muster_core::hooks::HooksVersion;

use super::{
    common::{AsJson, ListFlags, OperationFlags},
    site::{AllowedParameters, CommandFlags, CopyfileFlags},
    tags::ClusterTagsVerb,
    values,
};

/// Verbs of `gnt-cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Make this host the master of a new cluster
    Init {
        /// The cluster's name
        #[arg(value_parser = values::cluster)]
        name: String,
        /// What runs instances on all its nodes
        #[arg(long, value_enum, default_value_t = HypervisorValue::Qemu)]
        hypervisor: HypervisorValue,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Show the cluster and its parameters
    Info(AsJson),
    /// Check the whole cluster, and run the site's own checks; exit code 1 if there is an error
    Verify(AsJson),
    /// Print the master node's name
    Getmaster(AsJson),
    /// Make this host the master; its `muster-masterd --standby` must be running
    MasterFailover {
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Renew the certificates of nodes (of all, without names)
    RenewCerts {
        /// Nodes
        #[arg(value_name = "NODE", value_parser = values::node)]
        nodes: Vec<String>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Change the cluster's parameters
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(
        ["hooks_version", "hook_exit_codes", "hook_on_error", "hook_unreachable", "hook_timeout", "hook_master_required", "hook_timeout_max",
            "hook_warn_limit", "hook_kill_limit", "hook_phase_budget",
            "accel", "nic", "fence_command",
            "allow_command", "disallow_command", "allow_file", "disallow_file"]
    ))]
    Modify {
        #[command(flatten)]
        hooks: HookParameters,
        #[command(flatten)]
        guests: GuestParameters,
        #[command(flatten)]
        allowed: AllowedParameters,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Give the cluster another name
    Rename {
        /// The new name
        #[arg(value_name = "NAME", value_parser = values::cluster)]
        new_name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Give up the cluster; all instances and all nodes but the master must be gone
    Destroy {
        /// The cluster's name, as a safeguard
        #[arg(value_parser = values::cluster)]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// The job queue: what it holds, and whether it takes and starts jobs
    #[command(subcommand)]
    Queue(QueueVerb),
    /// Copy the master's store to a file, while jobs go on; it holds no keys
    Backup(BackupStoreFlags),
    /// Certificates of remote clients
    #[command(subcommand)]
    ClientCert(ClientCertVerb),
    /// Run a program on nodes, of those that the cluster's parameters allow
    Command(CommandFlags),
    /// Copy files to nodes, of those that the cluster's parameters allow
    Copyfile(CopyfileFlags),
    #[command(flatten)]
    Tags(ClusterTagsVerb),
}

/// Verbs of `gnt-cluster queue`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum QueueVerb {
    /// Take no jobs any more; those that are there go on
    Drain(AsJson),
    /// Take jobs again
    Undrain(AsJson),
    /// Start no job that waits; those that run go on
    Pause(AsJson),
    /// Start jobs again
    Resume(AsJson),
    /// Show the queue
    Info(AsJson),
}

/// Flags of `gnt-cluster backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupStoreFlags {
    /// The file to be made
    pub(crate) file: PathBuf,
    /// Replace a file that exists
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) output: AsJson,
}

/// Verbs of `gnt-cluster client-cert`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCertVerb {
    /// Make a key here and have a certificate signed for it: NAME.key, NAME.pem, ca.pem
    Sign {
        /// The client's name
        #[arg(value_parser = values::client)]
        name: String,
        /// What the client may do
        #[arg(long, value_enum)]
        role: ClientRoleValue,
        /// Directory for the three files
        #[arg(long, value_name = "DIR", default_value = ".")]
        out: PathBuf,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// List the certificates that are accepted
    List(ListFlags),
    /// Accept a certificate no longer, open connections included
    Revoke {
        /// The client's name
        #[arg(value_parser = values::client)]
        name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
}

/// The cluster's parameters on hooks.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Parameters")]
pub(crate) struct HookParameters {
    /// The interface that scripts see: 1, or 2 as scripts for Ganeti 2 and 3 expect it
    #[arg(long, value_name = "1|2", value_parser = values::hooks_version)]
    pub(crate) hooks_version: Option<HooksVersion>,
    /// strict: 0 allows, all else denies; graded: 1-31 deny, 32-63 warn
    #[arg(long, value_enum, value_name = "strict|graded", hide_possible_values = true)]
    pub(crate) hook_exit_codes: Option<ExitCodesValue>,
    /// After the first error of a directory; default: continue if strict, stop if graded
    #[arg(long, value_enum, value_name = "continue|stop|default", hide_possible_values = true)]
    pub(crate) hook_on_error: Option<OnErrorValue>,
    /// What a node out of reach means before an operation
    #[arg(long, value_enum, value_name = "allow|deny", hide_possible_values = true)]
    pub(crate) hook_unreachable: Option<AllowDenyValue>,
    /// What a script over its time limit means before an operation
    #[arg(long, value_enum, value_name = "allow|deny", hide_possible_values = true)]
    pub(crate) hook_timeout: Option<AllowDenyValue>,
    /// Whether the master's own node must answer (yes or no)
    #[arg(long, value_name = "yes|no", value_parser = values::yes_no)]
    pub(crate) hook_master_required: Option<bool>,
    /// Bound of the limit that a script sets for itself, for example 24h
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) hook_timeout_max: Option<Duration>,
    /// Warning limit of scripts that set none themselves
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) hook_warn_limit: Option<Duration>,
    /// Time limit of scripts that set none themselves
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) hook_kill_limit: Option<Duration>,
    /// Time for all scripts of a phase on a node together, or none
    #[arg(long, value_name = "DURATION|none", value_parser = values::duration_or_none, allow_hyphen_values = true)]
    pub(crate) hook_phase_budget: Option<Duration>,
}

/// The cluster's parameters on guests; they count from each guest's next start.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Parameters")]
pub(crate) struct GuestParameters {
    /// Who computes for guests; auto: kvm where a node's processor allows it
    #[arg(long, value_enum, value_name = "auto|kvm|tcg", hide_possible_values = true)]
    pub(crate) accel: Option<AccelValue>,
    /// How the network cards of guests are connected
    #[arg(long, value_name = "none|user|bridge:NAME", value_parser = values::nic)]
    pub(crate) nic: Option<String>,
    /// Program that makes sure that a node is off, run on the master as COMMAND NODE ADDRESS; none for none
    #[arg(long, value_name = "COMMAND")]
    pub(crate) fence_command: Option<String>,
}

/// Values of `--accel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccelValue {
    Auto,
    Kvm,
    Tcg,
}

impl AccelValue {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            AccelValue::Auto => "auto",
            AccelValue::Kvm => "kvm",
            AccelValue::Tcg => "tcg",
        }
    }
}

/// Values of `--hypervisor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HypervisorValue {
    /// Virtual machines
    Qemu,
    /// Files that say what would run
    Fake,
}

impl HypervisorValue {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            HypervisorValue::Qemu => "qemu",
            HypervisorValue::Fake => "fake",
        }
    }
}

/// Values of `--hook-exit-codes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExitCodesValue {
    Strict,
    Graded,
}

/// Values of `--hook-on-error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnErrorValue {
    Continue,
    Stop,
    Default,
}

/// Values of `--hook-unreachable` and `--hook-timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllowDenyValue {
    Allow,
    Deny,
}

/// Values of `--role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientRoleValue {
    /// Lists, shows and follows
    Reader,
    /// Also submits and cancels
    Operator,
    /// Also tokens, certificates, parameters, destroy
    Admin,
}

impl ClientRoleValue {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ClientRoleValue::Reader => "reader",
            ClientRoleValue::Operator => "operator",
            ClientRoleValue::Admin => "admin",
        }
    }
}
