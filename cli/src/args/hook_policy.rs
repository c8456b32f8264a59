//! `gnt-hooks policy`.

use clap::Subcommand;

use super::{
    common::{ListFlags, OperationFlags},
    policy_setting::{PolicySetting, policy_setting},
};

/// Verbs of `gnt-hooks policy`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum PolicyVerb {
    /// List what holds in single directories where that differs from the cluster's parameters
    List {
        #[command(flatten)]
        list: ListFlags,
    },
    /// Set what holds in a directory; what is not named stays as it is
    #[command(after_help = "\
Settings:
  exit_codes=strict|graded     strict: 0 allows, all else denies; graded: 1-31 deny, 32-63 warn
  on_error=continue|stop       after the first error of the directory
  unreachable=allow|deny       what a node out of reach means before an operation (in -pre.d directories only)
  timeout=allow|deny           what a script over its time limit, or over the budget, means before an operation
  warn_limit=DURATION          of scripts that set none themselves
  kill_limit=DURATION          of scripts that set none themselves
  phase_budget=DURATION        for all scripts of a phase on a node, the grace of an ended one included; none: no
                               budget there, whatever the cluster has

A key may also be given by the name of the cluster's parameter: hook_timeout=allow.

Example:
  gnt-hooks policy set instance-add-pre.d exit_codes=graded kill_limit=5s phase_budget=10s")]
    Set {
        /// For example instance-add-pre.d
        #[arg(value_name = "DIRECTORY")]
        directory: String,
        /// KEY=VALUE
        #[arg(value_name = "SETTING", required = true, value_parser = policy_setting)]
        settings: Vec<PolicySetting>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Let the cluster's parameters hold in a directory again
    Reset {
        /// For example instance-add-pre.d
        #[arg(value_name = "DIRECTORY")]
        directory: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
}
