//! OP_TAGS_DEL: takes tags from the cluster, a node, an instance, a group or a network.

use serde::{Deserialize, Serialize};

use super::{
    Given, HookNodes, Hooks2, ObjectKind, Operation, Plan, Refusal, Row, Submitter, examples, tags_set,
};
use crate::{
    edit::Edit,
    hooks::Env,
    locks::Locks,
    model::Cluster,
    names::nearest,
    tags::{Tag, TagObject, Tagged, Tags},
};

/// Takes tags away; each must be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagsDel {
    /// What loses them.
    pub object: TagObject,
    /// The tags.
    pub tags: Tags,
}

impl Operation for TagsDel {
    const ROW: Row = Row {
        op_id: "OP_TAGS_DEL",
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
        tags_set::locks(&self.object)
    }

    fn check(&self, given: Given<'_>) -> Result<Tagged, Refusal> {
        let (tagged, before) = tags_set::object(given.cluster, &self.object)?;
        if self.tags.is_empty() {
            return Err(Refusal("nothing to change: give at least one tag".to_owned()));
        }
        let Some(missing) = self.tags.iter().find(|tag| !before.contains(tag)) else { return Ok(tagged) };
        let near = match nearest(missing.as_str(), before.iter().map(Tag::as_str)) {
            Some(near) => format!("; the nearest one is {near}"),
            None => String::new(),
        };
        Err(Refusal(format!("{} has no tag {missing}{near}", tags_set::words(&self.object))))
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
        let (object, remove) = (tagged.clone(), self.tags.clone());
        Plan::new().edit(Edit::TagsChange { object, add: Tags::default(), remove })
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        // What every object of this example has.
        let tags = examples::tags(&["old"]);
        let example =
            |object| (examples::networked(), examples::fresh(), TagsDel { object, tags: tags.clone() });
        examples::tag_objects().map(example).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let cluster = examples::networked();
        let check = |object: TagObject, tags: &[&str], text: &str| {
            let op = TagsDel { object, tags: examples::tags(tags) };
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check(TagObject::Cluster, &[], "nothing to change: give at least one tag");
        check(TagObject::Cluster, &["old", "olf"], "the cluster has no tag olf; the nearest one is old");
        let web = TagObject::Instance(examples::instance_name("web1"));
        check(web, &["something-else"], "instance web1 has no tag something-else");
    }
}
