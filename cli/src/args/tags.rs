//! Verbs about tags: the same for nodes, instances, groups and networks, and others for the cluster.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{
    common::{AsJson, OperationFlags},
    values,
};

/// Verbs about the tags of something that has a name.
#[derive(Debug, Subcommand)]
pub(crate) enum TagsVerb {
    /// List its tags
    #[command(name = "list-tags")]
    List {
        /// What has them
        #[arg(value_parser = values::tagged)]
        name: String,
        #[command(flatten)]
        json: AsJson,
    },
    /// Add tags to it
    #[command(name = "add-tags")]
    Add {
        /// What gets them
        #[arg(value_parser = values::tagged)]
        name: String,
        #[command(flatten)]
        tags: TagWords,
    },
    /// Take tags from it; each must be there
    #[command(name = "remove-tags")]
    Remove {
        /// What loses them
        #[arg(value_parser = values::tagged)]
        name: String,
        #[command(flatten)]
        tags: TagWords,
    },
}

/// Verbs about the cluster's own tags, and the search in all.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterTagsVerb {
    /// List the cluster's tags
    #[command(name = "list-tags")]
    List(AsJson),
    /// Add tags to the cluster
    #[command(name = "add-tags")]
    Add(TagWords),
    /// Take tags from the cluster; each must be there
    #[command(name = "remove-tags")]
    Remove(TagWords),
    /// Find tags of the cluster, of nodes, instances, groups and networks
    #[command(after_help = "\
A pattern without * and ? is found anywhere in a tag. With them it is the form of the whole tag: * stands for any characters,
? for any one. It is no regular expression: where Ganeti wants '^site:.*', the pattern is 'site:*'.

Examples:
  gnt-cluster search-tags prod
  gnt-cluster search-tags 'site:*'")]
    #[command(name = "search-tags")]
    Search {
        /// A part of the tag, or its form
        #[arg(value_parser = values::tag_pattern)]
        pattern: String,
        #[command(flatten)]
        json: AsJson,
    },
}

/// Tags to be added or taken.
#[derive(Debug, Clone, Args)]
pub(crate) struct TagWords {
    /// Tags: at most 128 letters, digits and . + * / : @ _ - each
    #[arg(value_name = "TAG", required_unless_present = "from", value_parser = values::tag)]
    pub(crate) tags: Vec<String>,
    /// A file with tags, one a line; - is stdin
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) operation: OperationFlags,
}
