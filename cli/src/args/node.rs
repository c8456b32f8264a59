//! `gnt-node`.

use std::{net::IpAddr, time::Duration};

use clap::{ArgGroup, Subcommand};

use super::{
    common::{AsJson, ListFlags, OperationFlags},
    tags::TagsVerb,
    values,
};

/// Verbs of `gnt-node`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeVerb {
    /// Tokens by which a new host may ask to join
    #[command(subcommand)]
    Token(TokenVerb),
    /// List the hosts that asked to join
    Pending(ListFlags),
    /// Take a pending host into the cluster
    Add {
        /// The pending host's name
        #[arg(value_parser = values::node)]
        name: String,
        /// Address for disk replication; default: the primary one
        #[arg(short = 's', long, value_name = "IP", value_parser = values::ip)]
        secondary_ip: Option<IpAddr>,
        /// Address for traffic between nodes; default: what the host advertised, else its source address
        #[arg(long, value_name = "IP", value_parser = values::ip)]
        address: Option<IpAddr>,
        /// It takes the place of the node of this name (new machine or new key)
        #[arg(long)]
        readd: bool,
        /// The group that it is in; needed where there are several
        #[arg(short = 'g', long, value_name = "GROUP", conflicts_with = "readd", value_parser = values::group)]
        node_group: Option<String>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Remove a node that carries no instance
    Remove {
        /// The node
        #[arg(value_parser = values::node)]
        name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Move all instances away whose primary a node is: those that run migrate where guests can, the others fail over
    #[command(
        after_help = "Makes a job for each instance and follows them all; exit code 1 if one of them fails."
    )]
    Migrate {
        /// The node
        #[arg(value_parser = values::node)]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        /// Leave where they are the instances that can't leave; without it one of them refuses the whole
        #[arg(long)]
        ignore_unmovable: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Move instances off a node, as primary, as secondary, or both
    #[command(
        group = ArgGroup::new("which").multiple(false).args(["primary_only", "secondary_only", "all"]),
        after_help = "Makes a job for each instance (two where it leaves the node wholly) and follows them all; exit code 1 if \
                      one of them fails."
    )]
    Evacuate {
        /// The node
        #[arg(value_parser = values::node)]
        name: String,
        /// Only instances whose primary it is; they change places with their secondaries
        #[arg(short = 'p', long)]
        primary_only: bool,
        /// Only instances whose copies it has
        #[arg(short = 's', long)]
        secondary_only: bool,
        /// All instances; this is the default
        #[arg(short = 'a', long)]
        all: bool,
        /// The node that gets the copies; default: for each, that of the same group with the least memory in use
        #[arg(short = 'n', long = "new-secondary", value_name = "NODE", value_parser = values::node, conflicts_with = "primary_only")]
        new_secondary: Option<String>,
        /// Do not ask for confirmation
        #[arg(short, long)]
        force: bool,
        /// Fail over also where a copy is not known to be good
        #[arg(long)]
        ignore_consistency: bool,
        /// The node is marked offline, and I have made sure that nothing runs there
        #[arg(long)]
        fenced: bool,
        /// Leave where they are the instances that can't leave; without it one of them refuses the whole
        #[arg(long)]
        ignore_unmovable: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// List nodes with memory, disk and number of instances
    List {
        /// Only these nodes
        #[arg(value_name = "NODE", value_parser = values::node)]
        names: Vec<String>,
        /// Ask the nodes now instead of showing what they last said
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show all about nodes
    Info {
        /// Only these nodes
        #[arg(value_name = "NODE", value_parser = values::node)]
        names: Vec<String>,
        /// Ask the nodes now instead of showing what they last said
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        json: AsJson,
    },
    /// Change a node's state or addresses
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args(
        ["offline", "drained", "master_candidate", "address", "secondary_ip"]
    ))]
    Modify {
        /// The node
        #[arg(value_parser = values::node)]
        name: String,
        /// Whether the cluster leaves the node alone (yes or no)
        #[arg(short = 'O', long, value_name = "yes|no", value_parser = values::yes_no)]
        offline: Option<bool>,
        /// Whether the node gets no new instances (yes or no)
        #[arg(short = 'D', long, value_name = "yes|no", value_parser = values::yes_no)]
        drained: Option<bool>,
        /// Whether the node's master daemon may take the office; the CA's key goes with it (yes or no)
        #[arg(short = 'C', long, value_name = "yes|no", value_parser = values::yes_no)]
        master_candidate: Option<bool>,
        /// New address for traffic between nodes
        #[arg(long, value_name = "IP", value_parser = values::ip)]
        address: Option<IpAddr>,
        /// New address for disk replication
        #[arg(short = 's', long, value_name = "IP", value_parser = values::ip)]
        secondary_ip: Option<IpAddr>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    #[command(flatten)]
    Tags(TagsVerb),
}

/// Verbs of `gnt-node token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token for `muster-noded join --token-file`; stdout has the token alone
    Create {
        /// The token is good for a host of this name only
        #[arg(long = "node", value_name = "NAME", value_parser = values::node)]
        node: Option<String>,
        /// How long it is good for
        #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "1h", allow_hyphen_values = true)]
        lifetime: Duration,
        #[command(flatten)]
        json: AsJson,
    },
}
