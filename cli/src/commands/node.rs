//! `gnt-node`.

use std::{net::IpAddr, time::Duration};

use muster_proto::v1::{
    CreateTokenRequest, ListNodesRequest, ListPendingRequest, NodeAdd, NodeEvacuate, NodeMigrate, NodeModify,
    NodeRemove, operation::Operation,
};
use serde_json::json;

use super::{
    operation::{self, Asked},
    tags,
};
use crate::{
    args::{ConnectionFlags, NodeVerb, TokenVerb},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, nodes as render, one_or_array, print, print_json, text::rfc3339},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: NodeVerb) -> Result<(), Failure> {
    match verb {
        NodeVerb::Token(TokenVerb::Create { node, lifetime, json }) => {
            create_token(connection, node, lifetime, json.json).await
        }
        NodeVerb::Pending(list) => {
            let selection = select(render::PENDING_FIELDS, render::PENDING_DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let pending = answer(master.tokens().list_pending(ListPendingRequest {})).await?;
            print(&selection.render(&pending.nodes)?)
        }
        NodeVerb::List { names, live, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let nodes = answer(master.queries().list_nodes(ListNodesRequest { names, live })).await?.nodes;
            print(&selection.render(&nodes)?)
        }
        NodeVerb::Info { names, live, json } => info(connection, names, live, json.json).await,
        NodeVerb::Tags(verb) => tags::run(connection, "node", verb).await,
        operation @ (NodeVerb::Add { .. }
        | NodeVerb::Remove { .. }
        | NodeVerb::Migrate { .. }
        | NodeVerb::Evacuate { .. }
        | NodeVerb::Modify { .. }) => {
            let asked = asked(operation).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that is none.
pub(super) fn asked(verb: NodeVerb) -> Option<Asked> {
    Some(match verb {
        NodeVerb::Token(_) | NodeVerb::Pending(_) | NodeVerb::List { .. } | NodeVerb::Info { .. } => {
            return None;
        }
        NodeVerb::Tags(verb) => return tags::asked("node", verb),
        NodeVerb::Add { name, secondary_ip, address, readd, node_group, operation } => {
            let (primary_ip, secondary_ip) = (text(address), text(secondary_ip));
            let add = NodeAdd { name, primary_ip, secondary_ip, readd, group: node_group };
            Asked::one(Operation::NodeAdd(add), operation)
        }
        NodeVerb::Remove { name, operation } => {
            Asked::one(Operation::NodeRemove(NodeRemove { name }), operation)
        }
        NodeVerb::Migrate { name, force, ignore_unmovable, operation } => {
            let question = format!("This moves all instances away whose primary node {name} is.");
            let migrate = Operation::NodeMigrate(NodeMigrate { name, ignore_unmovable });
            Asked::one(migrate, operation).after(question, force)
        }
        NodeVerb::Evacuate {
            name,
            primary_only,
            secondary_only,
            all: _,
            new_secondary,
            force,
            ignore_consistency,
            fenced,
            ignore_unmovable,
            operation,
        } => {
            let which = match (primary_only, secondary_only) {
                (true, _) => "primaries",
                (false, true) => "secondaries",
                (false, false) => "all",
            };
            let question = match which {
                "primaries" => format!("This moves all instances away whose primary node {name} is."),
                "secondaries" => format!("This moves all copies away that node {name} has."),
                _ => format!("This moves all instances and copies off node {name}."),
            };
            let which = which.to_owned();
            let evacuate =
                NodeEvacuate { name, which, new_secondary, ignore_consistency, fenced, ignore_unmovable };
            Asked::one(Operation::NodeEvacuate(evacuate), operation).after(question, force)
        }
        NodeVerb::Modify { name, offline, drained, master_candidate, address, secondary_ip, operation } => {
            let change = NodeModify {
                name,
                offline,
                drained,
                master_candidate,
                primary_ip: text(address),
                secondary_ip: text(secondary_ip),
            };
            Asked::one(Operation::NodeModify(change), operation)
        }
    })
}

fn text(address: Option<IpAddr>) -> Option<String> {
    address.map(|address| address.to_string())
}

async fn create_token(
    connection: &ConnectionFlags,
    node_name: Option<String>,
    lifetime: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let lifetime_s = u32::try_from(lifetime.as_secs().max(1))
        .map_err(|_| Failure::Usage("--lifetime is too long: at most 4294967295 s".to_owned()))?;
    let master = Master::connect(connection).await?;
    let request = CreateTokenRequest { node_name, lifetime_s: Some(lifetime_s) };
    let made = answer(master.tokens().create_token(request)).await?;
    if as_json {
        print_json(&json!({ "token": made.token, "expires": rfc3339(made.expires_ms) }))
    } else {
        print(&made.token)
    }
}

async fn info(
    connection: &ConnectionFlags,
    names: Vec<String>,
    live: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let named = names.len();
    let nodes = answer(master.queries().list_nodes(ListNodesRequest { names, live })).await?.nodes;
    if as_json {
        print_json(&one_or_array(nodes.iter().map(render::node_json).collect(), named))
    } else {
        print(&nodes.iter().map(render::node_text).collect::<Vec<_>>().join("\n"))
    }
}
