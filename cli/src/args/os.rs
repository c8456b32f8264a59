//! `gnt-os`.

use clap::Subcommand;

use super::{
    common::{AsJson, ListFlags},
    values,
};

/// Verbs of `gnt-os`.
#[derive(Debug, Subcommand)]
pub(crate) enum OsVerb {
    /// List the OS definitions, and whether they can be used on all nodes
    List(ListFlags),
    /// Show where OS definitions are, and what is wrong with those that can't be used
    Info {
        /// Only these definitions
        #[arg(value_name = "OS", value_parser = values::os)]
        names: Vec<String>,
        #[command(flatten)]
        json: AsJson,
    },
    /// List each OS definition on each node: valid, broken and why, or missing
    Diagnose {
        /// Only these definitions
        #[arg(value_name = "OS", value_parser = values::os)]
        names: Vec<String>,
        #[command(flatten)]
        list: ListFlags,
    },
}
