//! Networks: a range of addresses, connected to groups of nodes, out of which instances have theirs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    model::{Cluster, Instance},
    names::NetworkName,
    tags::Tags,
};

/// The longest and the shortest prefix of a network's IPv4 addresses: from 2 to 65534 hosts.
const PREFIX4: std::ops::RangeInclusive<u8> = 16..=30;
/// The same of its IPv6 addresses.
const PREFIX6: std::ops::RangeInclusive<u8> = 8..=126;

/// The most addresses that are reserved in one network.
pub const RESERVED_MAX: usize = 4096;

/// Why a text is no range of addresses or no beginning of MAC addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not valid: {why}")]
pub struct RangeError {
    text: String,
    why: String,
}

/// Longest part of a refused text that an error repeats, in characters.
const ERROR_TEXT_CHARS_MAX: usize = 80;

fn wrong(text: &str, why: impl Into<String>) -> RangeError {
    RangeError { text: text.chars().take(ERROR_TEXT_CHARS_MAX).collect(), why: why.into() }
}

/// Address and prefix length of `ADDRESS/LENGTH`.
fn split<A: std::str::FromStr>(
    text: &str,
    prefixes: &std::ops::RangeInclusive<u8>,
    right: &str,
) -> Result<(A, u8), RangeError> {
    let (address, prefix) = text.split_once('/').ok_or_else(|| wrong(text, right))?;
    let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    let prefix = prefix.parse::<u8>().ok().filter(|_| digits).ok_or_else(|| wrong(text, right))?;
    let address = address.parse().map_err(|_| wrong(text, right))?;
    if !prefixes.contains(&prefix) {
        return Err(wrong(
            text,
            format!("its prefix is not from /{} to /{}", prefixes.start(), prefixes.end()),
        ));
    }
    Ok((address, prefix))
}

macro_rules! range_type {
    ($(#[$doc:meta])* $name:ident, $address:ty, $number:ty, $prefixes:ident, $right:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name {
            first: $address,
            prefix: u8,
        }

        impl $name {
            /// Parses `ADDRESS/LENGTH`, the address being the range's first.
            ///
            /// # Errors
            /// When it is none, or its length is out of bounds.
            pub fn parse(text: &str) -> Result<Self, RangeError> {
                let (first, prefix) = split::<$address>(text, &$prefixes, $right)?;
                let range = $name { first, prefix };
                let begin = <$address>::from(<$number>::from(first) & !range.host_mask());
                if begin != first {
                    return Err(wrong(text, format!("the range begins with {begin}, not with {first}")));
                }
                Ok(range)
            }

            fn host_mask(self) -> $number {
                <$number>::MAX >> self.prefix
            }

            /// Its first address, which names it.
            pub fn first(self) -> $address {
                self.first
            }

            /// Its last address.
            pub fn last(self) -> $address {
                <$address>::from(<$number>::from(self.first) | self.host_mask())
            }

            /// Whether an address lies in it.
            pub fn contains(self, address: $address) -> bool {
                (self.first..=self.last()).contains(&address)
            }

            /// Whether both have addresses in common.
            pub fn overlaps(self, other: Self) -> bool {
                self.contains(other.first) || other.contains(self.first)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.first, self.prefix)
            }
        }

        impl TryFrom<String> for $name {
            type Error = RangeError;
            fn try_from(text: String) -> Result<Self, RangeError> {
                $name::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(range: $name) -> String {
                range.to_string()
            }
        }
    };
}

range_type!(
    /// A range of IPv4 addresses.
    Subnet,
    Ipv4Addr,
    u32,
    PREFIX4,
    "an IPv4 range is expected, for example 198.51.100.0/24"
);
range_type!(
    /// A range of IPv6 addresses.
    Subnet6,
    Ipv6Addr,
    u128,
    PREFIX6,
    "an IPv6 range is expected, for example 2001:db8:1::/64"
);

/// The first three octets of the MAC addresses of a network's instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacPrefix(String);

impl MacPrefix {
    /// Parses `aa:00:55`.
    ///
    /// # Errors
    /// When it is none, or one of addresses of many receivers.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let octets: Vec<&str> = text.split(':').collect();
        let octet = |octet: &&str| octet.len() == 2 && octet.bytes().all(|b| b.is_ascii_hexdigit());
        if octets.len() != 3 || !octets.iter().all(octet) {
            return Err(wrong(text, "three octets are expected, for example aa:00:55"));
        }
        if u8::from_str_radix(octets[0], 16).is_ok_and(|first| first & 1 == 1) {
            return Err(wrong(text, "with an odd first octet it is of addresses of many receivers"));
        }
        Ok(MacPrefix(text.to_ascii_lowercase()))
    }

    /// The octets as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A MAC address with this beginning and the end of another.
    #[must_use]
    pub fn instead_of(&self, mac: &str) -> String {
        let end: Vec<&str> = mac.rsplitn(4, ':').take(3).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        format!("{}:{}", self.0, end.join(":"))
    }
}

impl TryFrom<String> for MacPrefix {
    type Error = RangeError;
    fn try_from(text: String) -> Result<Self, RangeError> {
        MacPrefix::parse(&text)
    }
}

impl From<MacPrefix> for String {
    fn from(prefix: MacPrefix) -> String {
        prefix.0
    }
}

/// How a network's instances are connected on a group's nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkMode {
    /// Their cards are ports of the link, which is a bridge.
    Bridged,
    /// The site's scripts make routes; the link is theirs to understand.
    Routed,
}

impl LinkMode {
    /// `bridged` or `routed`.
    pub fn as_str(self) -> &'static str {
        match self {
            LinkMode::Bridged => "bridged",
            LinkMode::Routed => "routed",
        }
    }

    /// Parses one of these words.
    pub fn parse(text: &str) -> Option<Self> {
        [LinkMode::Bridged, LinkMode::Routed].into_iter().find(|mode| mode.as_str() == text)
    }
}

/// A network on a group's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// How cards are connected.
    pub mode: LinkMode,
    /// An interface of each node.
    pub link: String,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Stays when the name is a label only.
    pub uuid: Uuid,
    /// The label.
    pub name: NetworkName,
    /// Its addresses.
    pub subnet: Subnet,
    /// The router among them.
    pub gateway: Option<Ipv4Addr>,
    /// Its IPv6 addresses.
    pub subnet6: Option<Subnet6>,
    /// The router among those.
    pub gateway6: Option<Ipv6Addr>,
    /// What its instances' MAC addresses begin with.
    pub mac_prefix: Option<MacPrefix>,
    /// Addresses that no instance gets.
    pub reserved: BTreeSet<Ipv4Addr>,
    /// The groups that it is connected to, by uuid.
    pub groups: BTreeMap<Uuid, Connection>,
    /// The site's words.
    #[serde(default)]
    pub tags: Tags,
}

impl Network {
    /// Whether an address lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.subnet.contains(ip),
            IpAddr::V6(ip) => self.subnet6.is_some_and(|range| range.contains(ip)),
        }
    }

    /// Why an address of it is for no instance, if that is so.
    pub fn withheld(&self, ip: IpAddr) -> Option<&'static str> {
        let gateway =
            self.gateway.map(IpAddr::from) == Some(ip) || self.gateway6.map(IpAddr::from) == Some(ip);
        match ip {
            _ if gateway => Some("its gateway"),
            IpAddr::V4(ip) if ip == self.subnet.first() => Some("its own address"),
            IpAddr::V4(ip) if ip == self.subnet.last() => Some("its broadcast address"),
            IpAddr::V4(ip) if self.reserved.contains(&ip) => Some("reserved"),
            IpAddr::V6(ip) if self.subnet6.is_some_and(|range| range.first() == ip) => {
                Some("its own address")
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }

    /// Its addresses that instances may have, in order, whether they have them or not.
    pub fn pool(&self) -> impl Iterator<Item = Ipv4Addr> {
        let (first, last) = (u32::from(self.subnet.first()), u32::from(self.subnet.last()));
        (first..=last).map(Ipv4Addr::from).filter(|ip| self.withheld(IpAddr::V4(*ip)).is_none())
    }
}

impl Cluster {
    /// A network by its name.
    pub fn network_named(&self, name: &NetworkName) -> Option<&Network> {
        self.networks.values().find(|network| network.name == *name)
    }

    /// The network that an instance is in.
    pub fn network_of(&self, instance: &Instance) -> Option<&Network> {
        self.networks.get(&instance.network?)
    }

    /// How an instance is connected to its network on its primary node.
    pub fn connection_of(&self, instance: &Instance) -> Option<&Connection> {
        let group = self.nodes.get(&instance.primary)?.group;
        self.network_of(instance)?.groups.get(&group)
    }

    /// The instances of a network.
    pub fn instances_in(&self, network: Uuid) -> impl Iterator<Item = &Instance> {
        self.instances.values().filter(move |instance| instance.network == Some(network))
    }

    /// The addresses of a network that instances may have and nobody has, in order.
    pub fn free_addresses<'a>(&'a self, network: &'a Network) -> impl Iterator<Item = Ipv4Addr> + 'a {
        let of_nodes = self.nodes.values().flat_map(|node| [node.primary_ip, node.secondary_ip]);
        let used: BTreeSet<IpAddr> =
            of_nodes.chain(self.instances.values().filter_map(|instance| instance.ip)).collect();
        network.pool().filter(move |ip| !used.contains(&IpAddr::V4(*ip)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, word: &str) {
        let error = Subnet::parse(text).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }

    #[test]
    fn a_range_begins_with_its_address_and_has_a_bounded_length() {
        let range = Subnet::parse("198.51.100.64/26").unwrap();
        assert_eq!((range.first(), range.last()), ([198, 51, 100, 64].into(), [198, 51, 100, 127].into()));
        assert!(range.contains([198, 51, 100, 100].into()) && !range.contains([198, 51, 100, 128].into()));
        assert!(range.overlaps(Subnet::parse("198.51.0.0/16").unwrap()));
        assert!(!range.overlaps(Subnet::parse("198.51.100.0/26").unwrap()));
        assert_eq!(Subnet::try_from(String::from(range)), Ok(range));
        refused("198.51.100.1/24", "begins with 198.51.100.0");
        refused("198.51.100.0/31", "not from /16 to /30");
        refused("10.0.0.0/8", "not from /16 to /30");
        for text in
            ["", "198.51.100.0", "198.51.100.0/", "198.51.100.0/+24", "198.51.100/24", "2001:db8::/64"]
        {
            refused(text, "for example 198.51.100.0/24");
        }
        let range = Subnet6::parse("2001:db8:1::/64").unwrap();
        assert!(range.contains("2001:db8:1::5".parse().unwrap()));
        assert!(Subnet6::parse("2001:db8:1::1/64").is_err() && Subnet6::parse("198.51.100.0/24").is_err());
    }

    #[test]
    fn a_prefix_is_three_octets_of_one_receiver() {
        assert_eq!(MacPrefix::parse("AA:00:55").unwrap().as_str(), "aa:00:55");
        assert_eq!(
            MacPrefix::parse("aa:00:55").unwrap().instead_of("aa:00:00:01:02:03"),
            "aa:00:55:01:02:03"
        );
        for wrong in ["", "aa:00", "aa:00:5", "aa:00:55:01", "ag:00:55", "ab:00:55", "aa-00-55", "+a:00:55"] {
            assert!(MacPrefix::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(LinkMode::parse("bridged"), Some(LinkMode::Bridged));
        assert_eq!(LinkMode::parse("ovs"), None);
    }
}
