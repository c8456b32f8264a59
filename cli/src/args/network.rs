//! `gnt-network`.

use clap::{ArgGroup, Args, Subcommand};

use super::{
    common::{AsJson, ListFlags, OperationFlags},
    tags::TagsVerb,
    values::{self, NicParameters},
};

/// Verbs of `gnt-network`.
#[derive(Debug, Subcommand)]
pub(crate) enum NetworkVerb {
    /// List networks with their addresses and groups
    List {
        /// Only these networks
        #[arg(value_name = "NETWORK", value_parser = values::network)]
        names: Vec<String>,
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show all about networks, each instance's address included
    Info {
        /// Only these networks
        #[arg(value_name = "NETWORK", value_parser = values::network)]
        names: Vec<String>,
        #[command(flatten)]
        json: AsJson,
    },
    /// Make a network, still without groups
    #[command(
        after_help = "Example: gnt-network add --network 198.51.100.0/24 --gateway 198.51.100.254 --mac-prefix aa:00:55 lan"
    )]
    Add {
        #[command(flatten)]
        new: NewNetwork,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Change a network's gateways, IPv6 addresses, MAC prefix or reserved addresses
    #[command(group = ArgGroup::new("change").required(true).multiple(true).args(
        ["gateway", "network6", "gateway6", "mac_prefix", "add_reserved_ips", "remove_reserved_ips"]
    ))]
    Modify {
        #[command(flatten)]
        change: NetworkChanges,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Remove a network that no group is connected to
    Remove {
        /// The network
        #[arg(value_parser = values::network)]
        name: String,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Connect a network to groups, one job each: instances on their nodes can be in it
    #[command(after_help = "Example: gnt-network connect -N mode=bridged,link=br0 lan default rack2")]
    Connect {
        /// The network
        #[arg(value_parser = values::network)]
        network: String,
        /// The groups
        #[arg(value_name = "GROUP", required = true, value_parser = values::group)]
        groups: Vec<String>,
        /// How instances are connected there: mode=bridged (the default) with link=BRIDGE, or mode=routed with link=INTERFACE
        #[arg(short = 'N', long, value_name = "mode=MODE,link=LINK", required = true, value_parser = values::nic_parameters)]
        nic_parameters: NicParameters,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Disconnect a network from groups, one job each; no instance on their nodes is in it
    Disconnect {
        /// The network
        #[arg(value_parser = values::network)]
        network: String,
        /// The groups
        #[arg(value_name = "GROUP", required = true, value_parser = values::group)]
        groups: Vec<String>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    #[command(flatten)]
    Tags(TagsVerb),
}

/// A new network.
#[derive(Debug, Clone, Args)]
pub(crate) struct NewNetwork {
    /// The network's name
    #[arg(value_parser = values::network)]
    pub(crate) name: String,
    /// Its addresses, from /16 to /30, for example 198.51.100.0/24
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = values::subnet)]
    pub(crate) network: String,
    /// The router among them
    #[arg(long, value_name = "IP", value_parser = values::ipv4)]
    pub(crate) gateway: Option<String>,
    /// Its IPv6 addresses
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = values::subnet6)]
    pub(crate) network6: Option<String>,
    /// The router among those
    #[arg(long, value_name = "IP", requires = "network6", value_parser = values::ipv6)]
    pub(crate) gateway6: Option<String>,
    /// The first three octets of its instances' MAC addresses, for example aa:00:55
    #[arg(long, value_name = "PREFIX", value_parser = values::mac_prefix)]
    pub(crate) mac_prefix: Option<String>,
    /// Addresses that no instance gets, with commas
    #[arg(long, value_name = "IPS", value_delimiter = ',', value_parser = values::ipv4)]
    pub(crate) add_reserved_ips: Vec<String>,
    /// Tags, with commas
    #[arg(long, value_name = "TAGS", value_delimiter = ',', value_parser = values::tag)]
    pub(crate) tags: Vec<String>,
}

/// What changes in a network.
#[derive(Debug, Clone, Args)]
pub(crate) struct NetworkChanges {
    /// The network
    #[arg(value_parser = values::network)]
    pub(crate) name: String,
    /// New router, or none
    #[arg(long, value_name = "IP", value_parser = values::or_none(values::ipv4))]
    pub(crate) gateway: Option<String>,
    /// New IPv6 addresses, or none
    #[arg(long, value_name = "ADDRESS/LENGTH", value_parser = values::or_none(values::subnet6))]
    pub(crate) network6: Option<String>,
    /// New router among those, or none
    #[arg(long, value_name = "IP", value_parser = values::or_none(values::ipv6))]
    pub(crate) gateway6: Option<String>,
    /// New first octets of MAC addresses, or none; of instances that come into the network from now on
    #[arg(long, value_name = "PREFIX", value_parser = values::or_none(values::mac_prefix))]
    pub(crate) mac_prefix: Option<String>,
    /// Addresses that no instance gets any more, with commas
    #[arg(long, value_name = "IPS", value_delimiter = ',', value_parser = values::ipv4)]
    pub(crate) add_reserved_ips: Vec<String>,
    /// Addresses that instances may get again, with commas
    #[arg(long, value_name = "IPS", value_delimiter = ',', value_parser = values::ipv4)]
    pub(crate) remove_reserved_ips: Vec<String>,
}
