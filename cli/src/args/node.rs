//! `gnt-node`.

use std::{net::IpAddr, time::Duration};

use clap::{ArgGroup, Subcommand};

use super::{
    common::{AsJson, ListFlags, OperationFlags},
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
