//! `gnt-cluster command` and `gnt-cluster copyfile`, and what the cluster allows of both.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{common::AsJson, values};

/// What the cluster's parameters allow on nodes, as changes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Parameters")]
pub(crate) struct AllowedParameters {
    /// Allow `gnt-cluster command` this command line: an absolute program and its arguments, * for any one; may be repeated
    #[arg(long, value_name = "COMMAND", value_parser = values::command_pattern)]
    pub(crate) allow_command: Vec<String>,
    /// Allow it no more
    #[arg(long, value_name = "COMMAND", value_parser = values::command_pattern)]
    pub(crate) disallow_command: Vec<String>,
    /// Allow `gnt-cluster copyfile` to write this file on nodes; may be repeated
    #[arg(long, value_name = "PATH", value_parser = values::file_path)]
    pub(crate) allow_file: Vec<String>,
    /// Allow it no more
    #[arg(long, value_name = "PATH", value_parser = values::file_path)]
    pub(crate) disallow_file: Vec<String>,
}

/// Flags of `gnt-cluster command`.
#[derive(Debug, Args)]
pub(crate) struct CommandFlags {
    /// Only on this node; may be repeated [default: all that are not marked offline]
    #[arg(short, long = "node", value_name = "NODE", value_parser = values::node)]
    pub(crate) nodes: Vec<String>,
    /// How long it may run, at most 1h
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "60s", allow_hyphen_values = true)]
    pub(crate) timeout: Duration,
    /// Show equal outputs once, with the names of their nodes
    #[arg(long)]
    pub(crate) fold: bool,
    #[command(flatten)]
    pub(crate) output: AsJson,
    /// The program, by its absolute path, and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) argv: Vec<String>,
}

/// Flags of `gnt-cluster copyfile`.
#[derive(Debug, Args)]
pub(crate) struct CopyfileFlags {
    /// Only to this node; may be repeated [default: all that are not marked offline]
    #[arg(short, long = "node", value_name = "NODE", value_parser = values::node)]
    pub(crate) nodes: Vec<String>,
    /// Where the file is to be on the nodes [default: its own path]
    #[arg(long, value_name = "PATH", value_parser = values::file_path)]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) output: AsJson,
    /// Files of this host, at most 16 MiB each
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}
