//! `gnt-hooks`.

use clap::Subcommand;

use super::{common::ListFlags, values};

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
}
