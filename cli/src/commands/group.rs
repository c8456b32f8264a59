//! `gnt-group`.

use muster_proto::v1::{
    GroupAdd, GroupAssignNodes, GroupInfo, GroupModify, GroupRemove, GroupRename, ListGroupsRequest,
    operation::Operation,
};

use super::{
    operation::{self, Asked},
    tags,
};
use crate::{
    args::{ConnectionFlags, GroupVerb},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, groups as render, one_or_array, print, print_json},
};

/// What its tags are of.
const KIND: &str = "group";

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: GroupVerb) -> Result<(), Failure> {
    match verb {
        GroupVerb::List { names, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            print(&selection.render(&ask(connection, names).await?)?)
        }
        GroupVerb::Info { names, json } => {
            let named = names.len();
            let groups = ask(connection, names).await?;
            if json.json {
                print_json(&one_or_array(groups.iter().map(render::group_json).collect(), named))
            } else {
                print(&groups.iter().map(render::group_text).collect::<Vec<_>>().join("\n"))
            }
        }
        GroupVerb::Tags(verb) => tags::run(connection, KIND, verb).await,
        operation @ (GroupVerb::Add { .. }
        | GroupVerb::Modify { .. }
        | GroupVerb::Remove { .. }
        | GroupVerb::Rename { .. }
        | GroupVerb::AssignNodes { .. }) => {
            let asked = asked(operation).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that shows something.
pub(super) fn asked(verb: GroupVerb) -> Option<Asked> {
    let (change, flags) = match verb {
        GroupVerb::List { .. } | GroupVerb::Info { .. } => return None,
        GroupVerb::Tags(verb) => return tags::asked(KIND, verb),
        GroupVerb::Add { name, alloc_policy, operation } => {
            let add = GroupAdd { name, alloc_policy: alloc_policy.word().to_owned() };
            (Operation::GroupAdd(add), operation)
        }
        GroupVerb::Modify { name, alloc_policy, operation } => {
            let modify = GroupModify { name, alloc_policy: Some(alloc_policy.word().to_owned()) };
            (Operation::GroupModify(modify), operation)
        }
        GroupVerb::Remove { name, operation } => (Operation::GroupRemove(GroupRemove { name }), operation),
        GroupVerb::Rename { name, new_name, operation } => {
            (Operation::GroupRename(GroupRename { name, new_name }), operation)
        }
        GroupVerb::AssignNodes { name, nodes, operation } => {
            (Operation::GroupAssignNodes(GroupAssignNodes { group: name, nodes }), operation)
        }
    };
    Some(Asked::one(change, flags))
}

async fn ask(connection: &ConnectionFlags, names: Vec<String>) -> Result<Vec<GroupInfo>, Failure> {
    let master = Master::connect(connection).await?;
    Ok(answer(master.queries().list_groups(ListGroupsRequest { names })).await?.groups)
}
