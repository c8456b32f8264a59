//! Groups of nodes, networks and tags, by the configuration alone.

use muster_core::{
    groups::Group,
    model::Cluster,
    names::{GroupName, InstanceName, NetworkName, NodeName, nearest},
    networks::Network,
    tags::TagObject,
};
use muster_proto::{
    convert::{
        group::{found_tags, group_info, network_info},
        operation::tag_object,
    },
    v1,
};
use tonic::Status;

use super::query::unknown;

/// The groups that are named, or all.
pub(super) fn groups(cluster: &Cluster, names: &[String]) -> Result<Vec<v1::GroupInfo>, Status> {
    let mut known: Vec<&Group> = cluster.groups.values().collect();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    let found = if names.is_empty() {
        known
    } else {
        let find = |text: &String| {
            let name = GroupName::parse(text).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let near = || nearest(text, cluster.groups.values().map(|group| group.name.as_str()));
            cluster.group_named(&name).ok_or_else(|| unknown("group", text, near()))
        };
        names.iter().map(find).collect::<Result<_, _>>()?
    };
    Ok(found.into_iter().map(|group| group_info(cluster, group)).collect())
}

/// The networks that are named, or all.
pub(super) fn networks(cluster: &Cluster, names: &[String]) -> Result<Vec<v1::NetworkInfo>, Status> {
    let mut known: Vec<&Network> = cluster.networks.values().collect();
    known.sort_by(|one, other| one.name.cmp(&other.name));
    let found = if names.is_empty() {
        known
    } else {
        let find = |text: &String| {
            let name =
                NetworkName::parse(text).map_err(|error| Status::invalid_argument(error.to_string()))?;
            let near = || nearest(text, cluster.networks.values().map(|network| network.name.as_str()));
            cluster.network_named(&name).ok_or_else(|| unknown("network", text, near()))
        };
        names.iter().map(find).collect::<Result<_, _>>()?
    };
    Ok(found.into_iter().map(|network| network_info(cluster, network)).collect())
}

/// Tags of one object or of all, with what has them.
pub(super) fn tags(cluster: &Cluster, request: &v1::ListTagsRequest) -> Result<Vec<v1::FoundTag>, Status> {
    let object = request.object.as_ref().map(tag_object).transpose()?;
    if let Some(object) = &object {
        known(cluster, object)?;
    }
    Ok(found_tags(cluster, object.as_ref(), &request.pattern))
}

/// Refuses an object that is not there.
fn known(cluster: &Cluster, object: &TagObject) -> Result<(), Status> {
    let near: Option<&str> = match object {
        TagObject::Cluster => return Ok(()),
        TagObject::Node(name) if cluster.nodes.contains_key(name) => return Ok(()),
        TagObject::Instance(name) if cluster.instances.contains_key(name) => return Ok(()),
        TagObject::Group(name) if cluster.group_named(name).is_some() => return Ok(()),
        TagObject::Network(name) if cluster.network_named(name).is_some() => return Ok(()),
        TagObject::Node(name) => nearest(name.as_str(), cluster.nodes.keys().map(NodeName::as_str)),
        TagObject::Instance(name) => {
            nearest(name.as_str(), cluster.instances.keys().map(InstanceName::as_str))
        }
        TagObject::Group(name) => nearest(name.as_str(), cluster.groups.values().map(|it| it.name.as_str())),
        TagObject::Network(name) => {
            nearest(name.as_str(), cluster.networks.values().map(|it| it.name.as_str()))
        }
    };
    Err(unknown(object.kind(), object.name(), near))
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    #[test]
    fn names_are_found_or_refused_with_the_nearest() {
        let cluster = examples::networked();
        let names: Vec<String> = groups(&cluster, &[]).unwrap().into_iter().map(|group| group.name).collect();
        assert_eq!(names, ["default", "rack2", "spare"]);
        let error = groups(&cluster, &["rack3".to_owned()]).unwrap_err();
        assert_eq!(error.message(), "there is no group rack3; the nearest name is rack2");
        assert_eq!(networks(&cluster, &["lan".to_owned()]).unwrap()[0].subnet, "198.51.100.0/24");
        let error = networks(&cluster, &["lon".to_owned()]).unwrap_err();
        assert_eq!(error.message(), "there is no network lon; the nearest name is lan");
        let request = |kind: &str, name: &str| v1::ListTagsRequest {
            object: Some(v1::TagObject { kind: kind.to_owned(), name: name.to_owned() }),
            pattern: String::new(),
        };
        assert_eq!(tags(&cluster, &request("group", "rack2")).unwrap().len(), 1);
        for (kind, name) in [("node", "node9"), ("instance", "web9"), ("group", "rack9"), ("network", "lam")]
        {
            let error = tags(&cluster, &request(kind, name)).unwrap_err();
            assert!(
                error.message().starts_with(&format!("there is no {kind} {name}; the nearest")),
                "{error}"
            );
        }
    }
}
