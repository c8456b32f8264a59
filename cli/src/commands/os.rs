//! `gnt-os`.

use muster_proto::v1::{ListNodeOsesRequest, NodeOses};

use crate::{
    args::{ConnectionFlags, OsVerb},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, note, one_or_array, oses as render, print, print_json},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: OsVerb) -> Result<(), Failure> {
    match verb {
        OsVerb::List(list) => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let nodes = ask(connection).await?;
            for node in &nodes {
                if let Some(why) = &node.not_reached {
                    note(&format!("warning: {}: {why}", node.node));
                }
            }
            print(&selection.render(&render::definitions(&nodes))?)
        }
        OsVerb::Info { names, json } => {
            let nodes = ask(connection).await?;
            let found = named(render::definitions(&nodes), &names)?;
            if json.json {
                print_json(&one_or_array(found.iter().map(render::os_json).collect(), names.len()))
            } else {
                print(&found.iter().map(render::os_text).collect::<Vec<_>>().join("\n"))
            }
        }
        OsVerb::Diagnose { names, list } => {
            let selection = select(render::PLACE_FIELDS, render::PLACE_DEFAULT, &list)?;
            let nodes = ask(connection).await?;
            let mut places = Vec::new();
            for os in named(render::definitions(&nodes), &names)? {
                places.extend(os.places);
            }
            print(&selection.render(&places)?)
        }
    }
}

async fn ask(connection: &ConnectionFlags) -> Result<Vec<NodeOses>, Failure> {
    let master = Master::connect(connection).await?;
    let request = ListNodeOsesRequest { nodes: Vec::new() };
    Ok(answer(master.queries().list_node_oses(request)).await?.nodes)
}

/// Those with the names, or all; each name must be there on some node.
fn named(found: Vec<render::Definition>, names: &[String]) -> Result<Vec<render::Definition>, Failure> {
    if let Some(unknown) = names.iter().find(|name| !found.iter().any(|os| os.name == **name)) {
        return Err(Failure::Refused(format!("no node has an OS definition {unknown}")));
    }
    Ok(found.into_iter().filter(|os| names.is_empty() || names.contains(&os.name)).collect())
}
