//! Operations on groups of nodes, networks and tags.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use muster_core::{
    groups::AllocPolicy,
    networks::{LinkMode, MacPrefix, RESERVED_MAX, RangeError, Subnet, Subnet6},
    ops::{Change, GroupAdd, GroupAssignNodes, GroupModify, NetworkAdd, NetworkConnect, NetworkModify},
    tags::{TAGS_MAX, Tag, TagObject, Tags},
};

use super::{
    super::{WireError, fields},
    v1,
};

/// The most nodes that one request names: as many as a cluster has.
const NODES_MAX: usize = 4096;

fn alloc_policy(text: &str) -> Result<AllocPolicy, WireError> {
    let right = "preferred, last_resort or unallocable is expected";
    AllocPolicy::parse(text).ok_or_else(|| WireError::wrong("alloc_policy", text, right))
}

pub(super) fn group_add(wire: &v1::GroupAdd) -> Result<GroupAdd, WireError> {
    let policy = match wire.alloc_policy.as_str() {
        "" => AllocPolicy::default(),
        word => alloc_policy(word)?,
    };
    Ok(GroupAdd { name: fields::group("name", &wire.name)?, alloc_policy: policy })
}

pub(super) fn group_modify(wire: &v1::GroupModify) -> Result<GroupModify, WireError> {
    let policy = wire.alloc_policy.as_deref().map(alloc_policy).transpose()?;
    Ok(GroupModify { name: fields::group("name", &wire.name)?, alloc_policy: policy })
}

pub(super) fn group_assign_nodes(wire: &v1::GroupAssignNodes) -> Result<GroupAssignNodes, WireError> {
    bounded("nodes", wire.nodes.len(), NODES_MAX)?;
    let nodes = wire.nodes.iter().map(|name| fields::node("nodes", name));
    Ok(GroupAssignNodes {
        group: fields::group("group", &wire.group)?,
        nodes: nodes.collect::<Result<_, _>>()?,
    })
}

fn bounded(field: &'static str, count: usize, most: usize) -> Result<(), WireError> {
    if count > most {
        return Err(WireError::wrong(field, &format!("{count} items"), "at most 4096 are expected"));
    }
    Ok(())
}

/// A range, or another value whose error says what is right.
fn range<T>(field: &'static str, parsed: Result<T, RangeError>) -> Result<T, WireError> {
    parsed.map_err(|source| WireError::Range { field, source })
}

fn ipv4(field: &'static str, text: &str) -> Result<Ipv4Addr, WireError> {
    match fields::ip(field, text)? {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(_) => Err(WireError::wrong(field, text, "an IPv4 address is expected")),
    }
}

fn ipv6(field: &'static str, text: &str) -> Result<Ipv6Addr, WireError> {
    match fields::ip(field, text)? {
        IpAddr::V6(ip) => Ok(ip),
        IpAddr::V4(_) => Err(WireError::wrong(field, text, "an IPv6 address is expected")),
    }
}

fn subnet6(text: &str) -> Result<Subnet6, WireError> {
    range("subnet6", Subnet6::parse(fields::present("subnet6", text)?))
}

fn mac_prefix(text: &str) -> Result<MacPrefix, WireError> {
    range("mac_prefix", MacPrefix::parse(fields::present("mac_prefix", text)?))
}

fn addresses(field: &'static str, texts: &[String]) -> Result<Vec<Ipv4Addr>, WireError> {
    bounded(field, texts.len(), RESERVED_MAX)?;
    texts.iter().map(|text| ipv4(field, text)).collect()
}

pub(super) fn network_add(wire: &v1::NetworkAdd) -> Result<NetworkAdd, WireError> {
    Ok(NetworkAdd {
        name: fields::network("name", &wire.name)?,
        subnet: range("subnet", Subnet::parse(fields::present("subnet", &wire.subnet)?))?,
        gateway: wire.gateway.as_deref().map(|text| ipv4("gateway", text)).transpose()?,
        subnet6: wire.subnet6.as_deref().map(subnet6).transpose()?,
        gateway6: wire.gateway6.as_deref().map(|text| ipv6("gateway6", text)).transpose()?,
        mac_prefix: wire.mac_prefix.as_deref().map(mac_prefix).transpose()?,
        reserved: addresses("reserved", &wire.reserved)?,
        tags: words(&wire.tags)?,
    })
}

/// A new value, or none for the word `none`.
fn change<T>(
    text: Option<&String>,
    parse: impl Fn(&str) -> Result<T, WireError>,
) -> Result<Option<Change<T>>, WireError> {
    match text.map(String::as_str) {
        None => Ok(None),
        Some("none") => Ok(Some(Change::Clear)),
        Some(text) => parse(text).map(Change::Set).map(Some),
    }
}

pub(super) fn network_modify(wire: &v1::NetworkModify) -> Result<NetworkModify, WireError> {
    Ok(NetworkModify {
        name: fields::network("name", &wire.name)?,
        gateway: change(wire.gateway.as_ref(), |text| ipv4("gateway", text))?,
        subnet6: change(wire.subnet6.as_ref(), subnet6)?,
        gateway6: change(wire.gateway6.as_ref(), |text| ipv6("gateway6", text))?,
        mac_prefix: change(wire.mac_prefix.as_ref(), mac_prefix)?,
        reserve: addresses("reserve", &wire.reserve)?,
        release: addresses("release", &wire.release)?,
    })
}

pub(super) fn network_connect(wire: v1::NetworkConnect) -> Result<NetworkConnect, WireError> {
    let mode = fields::present("mode", &wire.mode)?;
    let right =
        "an interface's name is expected, of at most 15 letters, digits, dots, hyphens and underscores";
    if !muster_core::hypervisor::is_interface(&wire.link) {
        return Err(WireError::wrong("link", &wire.link, right));
    }
    Ok(NetworkConnect {
        network: fields::network("network", &wire.network)?,
        group: fields::group("group", &wire.group)?,
        mode: LinkMode::parse(mode)
            .ok_or_else(|| WireError::wrong("mode", mode, "bridged or routed is expected"))?,
        link: wire.link,
    })
}

pub(super) fn words(wire: &[String]) -> Result<Tags, WireError> {
    bounded("tags", wire.len(), TAGS_MAX)?;
    let tag = |text: &String| Tag::parse(text).map_err(|source| WireError::Tag { field: "tags", source });
    wire.iter().map(tag).collect()
}

/// An object and its tags.
pub(super) fn tags(object: Option<v1::TagObject>, wire: &[String]) -> Result<(TagObject, Tags), WireError> {
    let object = object.ok_or(WireError::Missing { field: "object" })?;
    Ok((tag_object(&object)?, words(wire)?))
}

/// Something that has tags.
///
/// # Errors
/// Names the field, its value and what would be right.
pub fn tag_object(wire: &v1::TagObject) -> Result<TagObject, WireError> {
    let field = "object.name";
    Ok(match wire.kind.as_str() {
        "cluster" if wire.name.is_empty() => TagObject::Cluster,
        "cluster" => return Err(WireError::wrong(field, &wire.name, "the cluster has no name here")),
        "node" => TagObject::Node(fields::node(field, &wire.name)?),
        "instance" => TagObject::Instance(fields::instance(field, &wire.name)?),
        "group" => TagObject::Group(fields::group(field, &wire.name)?),
        "network" => TagObject::Network(fields::network(field, &wire.name)?),
        other => {
            let right = "cluster, node, instance, group or network is expected";
            return Err(WireError::wrong("object.kind", other, right));
        }
    })
}

impl From<&TagObject> for v1::TagObject {
    fn from(object: &TagObject) -> Self {
        v1::TagObject { kind: object.kind().to_owned(), name: object.name().to_owned() }
    }
}

impl From<GroupAdd> for v1::GroupAdd {
    fn from(op: GroupAdd) -> Self {
        v1::GroupAdd { name: op.name.into(), alloc_policy: op.alloc_policy.as_str().to_owned() }
    }
}

impl From<GroupModify> for v1::GroupModify {
    fn from(op: GroupModify) -> Self {
        let alloc_policy = op.alloc_policy.map(|policy| policy.as_str().to_owned());
        v1::GroupModify { name: op.name.into(), alloc_policy }
    }
}

impl From<GroupAssignNodes> for v1::GroupAssignNodes {
    fn from(op: GroupAssignNodes) -> Self {
        v1::GroupAssignNodes { group: op.group.into(), nodes: op.nodes.into_iter().map(Into::into).collect() }
    }
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

impl From<NetworkAdd> for v1::NetworkAdd {
    fn from(op: NetworkAdd) -> Self {
        v1::NetworkAdd {
            name: op.name.into(),
            subnet: op.subnet.to_string(),
            gateway: op.gateway.map(|ip| ip.to_string()),
            subnet6: op.subnet6.map(|range| range.to_string()),
            gateway6: op.gateway6.map(|ip| ip.to_string()),
            mac_prefix: op.mac_prefix.map(Into::into),
            reserved: texts(&op.reserved),
            tags: op.tags.to_texts(),
        }
    }
}

fn change_text<T>(change: Option<Change<T>>, text: impl Fn(T) -> String) -> Option<String> {
    change.map(|change| match change {
        Change::Set(value) => text(value),
        Change::Clear => "none".to_owned(),
    })
}

impl From<NetworkModify> for v1::NetworkModify {
    fn from(op: NetworkModify) -> Self {
        v1::NetworkModify {
            name: op.name.into(),
            gateway: change_text(op.gateway, |ip| ip.to_string()),
            subnet6: change_text(op.subnet6, |range| range.to_string()),
            gateway6: change_text(op.gateway6, |ip| ip.to_string()),
            mac_prefix: change_text(op.mac_prefix, Into::into),
            reserve: texts(&op.reserve),
            release: texts(&op.release),
        }
    }
}

impl From<NetworkConnect> for v1::NetworkConnect {
    fn from(op: NetworkConnect) -> Self {
        v1::NetworkConnect {
            network: op.network.into(),
            group: op.group.into(),
            mode: op.mode.as_str().to_owned(),
            link: op.link,
        }
    }
}

#[cfg(test)]
mod tests {
    use v1::operation::Operation as Wire;

    use super::{
        super::{NodeName, operation_from_wire},
        *,
    };

    fn check(wire: Wire, expected: &str) {
        let local = NodeName::parse("node1").unwrap();
        let error = operation_from_wire(v1::Operation { operation: Some(wire) }, &local).unwrap_err();
        let status = tonic::Status::from(error);
        assert!(status.message().contains(expected), "{:?} does not hold {expected:?}", status.message());
        assert!(status.message().len() < 500, "too long: {}", status.message().len());
    }

    fn network(change: impl FnOnce(&mut v1::NetworkAdd)) -> Wire {
        let mut add = v1::NetworkAdd {
            name: "lan".to_owned(),
            subnet: "198.51.100.0/24".to_owned(),
            ..v1::NetworkAdd::default()
        };
        change(&mut add);
        Wire::NetworkAdd(add)
    }

    #[test]
    fn bad_input_is_named() {
        let some = |text: &str| Some(text.to_owned());
        check(Wire::GroupAdd(v1::GroupAdd { name: "Rack".into(), ..Default::default() }), "name is wrong");
        let policy = v1::GroupAdd { name: "rack".into(), alloc_policy: "always".into() };
        check(Wire::GroupAdd(policy), "alloc_policy is wrong: \"always\": preferred, last_resort or");
        check(
            network(|add| add.name = "none".into()),
            "name is wrong: \"none\": it is the word for no network",
        );
        check(network(|add| add.subnet = String::new()), "subnet is missing");
        check(
            network(|add| add.subnet = "198.51.100.9/24".into()),
            "subnet is wrong: \"198.51.100.9/24\" is not",
        );
        check(network(|add| add.gateway = some("2001:db8::1")), "gateway is wrong: \"2001:db8::1\": an IPv4");
        check(
            network(|add| add.gateway6 = some("198.51.100.1")),
            "gateway6 is wrong: \"198.51.100.1\": an IPv6",
        );
        check(network(|add| add.subnet6 = some("2001:db8::/129")), "subnet6 is wrong");
        check(
            network(|add| add.mac_prefix = some("01:00:00")),
            "mac_prefix is wrong: \"01:00:00\" is not valid",
        );
        check(network(|add| add.reserved = vec!["x".into()]), "reserved is wrong: \"x\"");
        check(network(|add| add.tags = vec!["a b".into()]), "tags is wrong: tag \"a b\" is not valid");
        check(
            network(|add| add.tags = vec!["a".into(); 5000]),
            "tags is wrong: \"5000 items\": at most 4096",
        );
        let connect = |mode: &str, link: &str| {
            let (mode, link) = (mode.to_owned(), link.to_owned());
            let (network, group) = ("lan".to_owned(), "rack".to_owned());
            Wire::NetworkConnect(v1::NetworkConnect { network, group, mode, link })
        };
        check(connect("ovs", "br0"), "mode is wrong: \"ovs\": bridged or routed");
        check(connect("bridged", "an interface"), "link is wrong: \"an interface\"");
        let tags = |kind: &str, name: &str| {
            let object = Some(v1::TagObject { kind: kind.to_owned(), name: name.to_owned() });
            Wire::TagsSet(v1::TagsSet { object, tags: vec!["a".to_owned()] })
        };
        check(
            tags("disk", "sda"),
            "object.kind is wrong: \"disk\": cluster, node, instance, group or network",
        );
        check(tags("cluster", "dev"), "object.name is wrong: \"dev\": the cluster has no name here");
        check(tags("node", ""), "object.name is missing");
        check(Wire::TagsDel(v1::TagsDel::default()), "object is missing");
    }
}
