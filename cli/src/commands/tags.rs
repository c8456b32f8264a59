//! Tags of the cluster, nodes, instances, groups and networks.

use muster_proto::v1::{FoundTag, ListTagsRequest, TagObject, TagsDel, TagsSet, operation::Operation};

use super::operation::{self, Asked};
use crate::{
    args::{ClusterTagsVerb, ConnectionFlags, TagWords, TagsVerb},
    client::{Master, answer},
    exit::Failure,
    output::{print, print_json, tags as render},
};

/// Carries out a verb on something of this kind.
pub(super) async fn run(connection: &ConnectionFlags, kind: &str, verb: TagsVerb) -> Result<(), Failure> {
    match verb {
        TagsVerb::List { name, json } => list(connection, object(kind, name), json.json).await,
        change @ (TagsVerb::Add { .. } | TagsVerb::Remove { .. }) => {
            let asked = asked(kind, change).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that shows something.
pub(super) fn asked(kind: &str, verb: TagsVerb) -> Option<Asked> {
    match verb {
        TagsVerb::List { .. } => None,
        TagsVerb::Add { name, tags } => Some(add(object(kind, name), tags)),
        TagsVerb::Remove { name, tags } => Some(remove(object(kind, name), tags)),
    }
}

/// Carries out a verb on the cluster's tags.
pub(super) async fn run_cluster(connection: &ConnectionFlags, verb: ClusterTagsVerb) -> Result<(), Failure> {
    match verb {
        ClusterTagsVerb::List(output) => list(connection, cluster(), output.json).await,
        ClusterTagsVerb::Search { pattern, json } => {
            let found = ask(connection, ListTagsRequest { object: None, pattern }).await?;
            if json.json { print_json(&render::json(&found)) } else { print(&render::search_text(&found)) }
        }
        change @ (ClusterTagsVerb::Add(_) | ClusterTagsVerb::Remove(_)) => {
            let asked = asked_cluster(change).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that shows something.
pub(super) fn asked_cluster(verb: ClusterTagsVerb) -> Option<Asked> {
    match verb {
        ClusterTagsVerb::List(_) | ClusterTagsVerb::Search { .. } => None,
        ClusterTagsVerb::Add(tags) => Some(add(cluster(), tags)),
        ClusterTagsVerb::Remove(tags) => Some(remove(cluster(), tags)),
    }
}

fn cluster() -> TagObject {
    object("cluster", String::new())
}

fn object(kind: &str, name: String) -> TagObject {
    TagObject { kind: kind.to_owned(), name }
}

fn add(object: TagObject, words: TagWords) -> Asked {
    let set = TagsSet { object: Some(object), tags: words.tags };
    Asked::one(Operation::TagsSet(set), words.operation)
}

fn remove(object: TagObject, words: TagWords) -> Asked {
    let del = TagsDel { object: Some(object), tags: words.tags };
    Asked::one(Operation::TagsDel(del), words.operation)
}

async fn list(connection: &ConnectionFlags, object: TagObject, as_json: bool) -> Result<(), Failure> {
    let request = ListTagsRequest { object: Some(object), pattern: String::new() };
    let found = ask(connection, request).await?;
    if as_json { print_json(&render::json(&found)) } else { print(&render::list_text(&found)) }
}

async fn ask(connection: &ConnectionFlags, request: ListTagsRequest) -> Result<Vec<FoundTag>, Failure> {
    let master = Master::connect(connection).await?;
    Ok(answer(master.queries().list_tags(request)).await?.tags)
}
