//! OP_TAGS_SET: adds tags to the cluster, a node, an instance, a group or a network.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, common, examples, groups,
    networks,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    tags::{TagObject, Tagged, Tags},
};

/// Adds tags; those that are there already stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagsSet {
    /// What gets them.
    pub object: TagObject,
    /// The tags.
    pub tags: Tags,
}

/// The locks of whoever changes an object's tags. Whoever writes the whole record of a node holds the node alone.
pub(super) fn locks(object: &TagObject) -> Locks {
    match object {
        TagObject::Cluster => Locks::part().exclusive("cluster-tags", ""),
        TagObject::Node(name) => Locks::part().shared("node", name).exclusive("node-tags", name),
        TagObject::Instance(name) => Locks::part().exclusive("instance", name),
        TagObject::Group(name) => Locks::part().exclusive("group", name),
        TagObject::Network(name) => Locks::part().exclusive("network", name),
    }
}

/// The object by its record's name, and its tags.
pub(super) fn object<'a>(cluster: &'a Cluster, object: &TagObject) -> Result<(Tagged, &'a Tags), Refusal> {
    Ok(match object {
        TagObject::Cluster => (Tagged::Cluster, &cluster.tags),
        TagObject::Node(name) => (Tagged::Node(name.clone()), &common::node(cluster, name)?.tags),
        TagObject::Instance(name) => (Tagged::Instance(name.clone()), &common::instance(cluster, name)?.tags),
        TagObject::Group(name) => {
            let group = groups::group(cluster, name)?;
            (Tagged::Group(group.uuid), &group.tags)
        }
        TagObject::Network(name) => {
            let network = networks::network(cluster, name)?;
            (Tagged::Network(network.uuid), &network.tags)
        }
    })
}

/// `node node1`, or `the cluster`.
pub(super) fn words(object: &TagObject) -> String {
    match object {
        TagObject::Cluster => "the cluster".to_owned(),
        TagObject::Node(_) | TagObject::Instance(_) | TagObject::Group(_) | TagObject::Network(_) => {
            format!("{} {}", object.kind(), object.name())
        }
    }
}

impl Operation for TagsSet {
    const ROW: Row = Row {
        op_id: "OP_TAGS_SET",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: None,
        submitter: Submitter::Operator,
    };
    type Checked = Tagged;

    fn target(&self) -> String {
        self.object.name().to_owned()
    }

    fn locks(&self) -> Locks {
        locks(&self.object)
    }

    fn check(&self, given: Given<'_>) -> Result<Tagged, Refusal> {
        let (tagged, before) = object(given.cluster, &self.object)?;
        if self.tags.is_empty() {
            return Err(Refusal("nothing to change: give at least one tag".to_owned()));
        }
        match before.with(&self.tags) {
            Ok(_) => Ok(tagged),
            Err(why) => Err(Refusal(format!("{} can't have these tags: {why}", words(&self.object)))),
        }
    }

    fn hook_nodes(&self, _given: Given<'_>, _tagged: &Tagged) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _tagged: &Tagged) -> Env {
        Env::new()
    }

    fn hooks2(&self, _given: Given<'_>, _tagged: &Tagged) -> Hooks2 {
        Hooks2::none()
    }

    fn plan(&self, _given: Given<'_>, tagged: &Tagged) -> Plan {
        let (object, add) = (tagged.clone(), self.tags.clone());
        Plan::new().edit(Edit::TagsChange { object, add, remove: Tags::default() })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let tags = examples::tags(&["prod", "site:north"]);
        let example =
            |object| (examples::networked(), examples::fresh(), TagsSet { object, tags: tags.clone() });
        examples::tag_objects().map(example).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tags::{TAGS_MAX, Tag};

    #[test]
    fn refusals() {
        let cluster = examples::networked();
        let check = |object: TagObject, tags: Tags, text: &str| {
            examples::refused(&TagsSet { object, tags }, &cluster, &examples::fresh(), &cluster.master, text);
        };
        let prod = || examples::tags(&["prod"]);
        check(TagObject::Cluster, Tags::default(), "nothing to change: give at least one tag");
        check(TagObject::Node(examples::node_name("node4")), prod(), "there is no node node4; the nearest");
        check(TagObject::Instance(examples::instance_name("web2")), prod(), "there is no instance web2");
        check(TagObject::Group(examples::group_name("rack3")), prod(), "there is no group rack3");
        check(TagObject::Network(examples::network_name("lax")), prod(), "there is no network lax");
        let many = (0..=TAGS_MAX).map(|number| Tag::parse(&number.to_string()).unwrap()).collect();
        check(TagObject::Cluster, many, "the cluster can't have these tags: it would have 4098 tags");
    }
}
