//! Tags, alone and with what has them.

use muster_proto::v1::FoundTag;
use serde_json::{Value as Json, json};

/// One tag a line.
pub(crate) fn list_text(found: &[FoundTag]) -> String {
    found.iter().map(|found| format!("{}\n", found.tag)).collect()
}

/// What has it, as a path, and the tag.
pub(crate) fn search_text(found: &[FoundTag]) -> String {
    found.iter().map(|found| format!("{} {}\n", path(found), found.tag)).collect()
}

/// An array of objects.
pub(crate) fn json(found: &[FoundTag]) -> Json {
    let object = |found: &FoundTag| {
        let object = found.object.clone().unwrap_or_default();
        json!({ "kind": object.kind, "name": Some(object.name).filter(|name| !name.is_empty()), "tag": found.tag })
    };
    Json::Array(found.iter().map(object).collect())
}

/// In the words that Ganeti has for it.
fn path(found: &FoundTag) -> String {
    let Some(object) = &found.object else { return "?".to_owned() };
    let folder = match object.kind.as_str() {
        "cluster" => return "/cluster".to_owned(),
        "node" => "nodes",
        "instance" => "instances",
        "group" => "nodegroup",
        "network" => "networks",
        other => other,
    };
    format!("/{folder}/{}", object.name)
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::TagObject;

    use super::*;

    #[test]
    fn tags_stand_with_what_has_them() {
        let found = |kind: &str, name: &str| FoundTag {
            object: Some(TagObject { kind: kind.to_owned(), name: name.to_owned() }),
            tag: "prod".to_owned(),
        };
        let found = [found("cluster", ""), found("group", "rack2")];
        assert_eq!(list_text(&found), "prod\nprod\n");
        assert_eq!(search_text(&found), "/cluster prod\n/nodegroup/rack2 prod\n");
        let expected = json!([
            { "kind": "cluster", "name": null, "tag": "prod" },
            { "kind": "group", "name": "rack2", "tag": "prod" },
        ]);
        assert_eq!(json(&found), expected);
    }
}
