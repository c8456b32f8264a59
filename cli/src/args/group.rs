//! `gnt-group`.

use clap::{Subcommand, ValueEnum};

use super::{
    common::{AsJson, ListFlags, OperationFlags},
    tags::TagsVerb,
    values,
};

/// Verbs of `gnt-group`.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupVerb {
    /// List groups with their nodes, instances and policy
    List {
        /// Only these groups
        #[arg(value_name = "GROUP", value_parser = values::group)]
        names: Vec<String>,
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show all about groups
    Info {
        /// Only these groups
        #[arg(value_name = "GROUP", value_parser = values::group)]
        names: Vec<String>,
        #[command(flatten)]
        json: AsJson,
    },
    /// Make a group, still without nodes
    Add {
        /// The group's name
        #[arg(value_parser = values::group)]
        name: String,
        /// Whether its nodes get new instances
        #[arg(long, value_enum, value_name = "POLICY", default_value_t = AllocPolicy::Preferred)]
        alloc_policy: AllocPolicy,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Change whether a group's nodes get new instances
    Modify {
        /// The group
        #[arg(value_parser = values::group)]
        name: String,
        /// Whether its nodes get new instances
        #[arg(long, value_enum, value_name = "POLICY", required = true)]
        alloc_policy: AllocPolicy,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Remove a group without nodes; the last one stays
    Remove {
        /// The group
        #[arg(value_parser = values::group)]
        name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Give a group another name
    Rename {
        /// The group
        #[arg(value_parser = values::group)]
        name: String,
        /// Its new name
        #[arg(value_parser = values::group)]
        new_name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Put nodes into a group; each leaves the one that it was in
    AssignNodes {
        /// The group
        #[arg(value_name = "GROUP", value_parser = values::group)]
        name: String,
        /// The nodes
        #[arg(value_name = "NODE", required = true, value_parser = values::node)]
        nodes: Vec<String>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    #[command(flatten)]
    Tags(TagsVerb),
}

/// Values of `--alloc-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AllocPolicy {
    /// They do
    Preferred,
    /// They do; whoever chooses a place takes another one first
    #[value(name = "last_resort")]
    LastResort,
    /// They do not, neither as primary nor as secondary node
    Unallocable,
}

impl AllocPolicy {
    /// The word on the wire.
    pub(crate) fn word(self) -> &'static str {
        match self {
            AllocPolicy::Preferred => "preferred",
            AllocPolicy::LastResort => "last_resort",
            AllocPolicy::Unallocable => "unallocable",
        }
    }
}
