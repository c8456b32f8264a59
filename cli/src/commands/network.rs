//! `gnt-network`.

use muster_proto::v1::{
    ListNetworksRequest, NetworkAdd, NetworkConnect, NetworkDisconnect, NetworkInfo, NetworkModify,
    NetworkRemove, operation::Operation,
};

use super::{
    operation::{self, Asked},
    tags,
};
use crate::{
    args::{ConnectionFlags, NetworkChanges, NetworkVerb, NewNetwork},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, networks as render, one_or_array, print, print_json},
};

/// What its tags are of.
const KIND: &str = "network";

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: NetworkVerb) -> Result<(), Failure> {
    match verb {
        NetworkVerb::List { names, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            print(&selection.render(&ask(connection, names).await?)?)
        }
        NetworkVerb::Info { names, json } => {
            let named = names.len();
            let networks = ask(connection, names).await?;
            if json.json {
                print_json(&one_or_array(networks.iter().map(render::network_json).collect(), named))
            } else {
                print(&networks.iter().map(render::network_text).collect::<Vec<_>>().join("\n"))
            }
        }
        NetworkVerb::Tags(verb) => tags::run(connection, KIND, verb).await,
        operation @ (NetworkVerb::Add { .. }
        | NetworkVerb::Modify { .. }
        | NetworkVerb::Remove { .. }
        | NetworkVerb::Connect { .. }
        | NetworkVerb::Disconnect { .. }) => {
            let asked = asked(operation).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operations that a verb asks for; `None` for one that shows something.
pub(super) fn asked(verb: NetworkVerb) -> Option<Asked> {
    Some(match verb {
        NetworkVerb::List { .. } | NetworkVerb::Info { .. } => return None,
        NetworkVerb::Tags(verb) => return tags::asked(KIND, verb),
        NetworkVerb::Add { new, operation } => Asked::one(Operation::NetworkAdd(add(new)), operation),
        NetworkVerb::Modify { change, operation } => {
            Asked::one(Operation::NetworkModify(modify(change)), operation)
        }
        NetworkVerb::Remove { name, operation } => {
            Asked::one(Operation::NetworkRemove(NetworkRemove { name }), operation)
        }
        NetworkVerb::Connect { network, groups, nic_parameters, operation } => {
            let connect = |group| {
                let (mode, link) = (nic_parameters.mode.clone(), nic_parameters.link.clone());
                Operation::NetworkConnect(NetworkConnect { network: network.clone(), group, mode, link })
            };
            Asked::all(groups.into_iter().map(connect).collect(), operation)
        }
        NetworkVerb::Disconnect { network, groups, operation } => {
            let disconnect =
                |group| Operation::NetworkDisconnect(NetworkDisconnect { network: network.clone(), group });
            Asked::all(groups.into_iter().map(disconnect).collect(), operation)
        }
    })
}

fn add(new: NewNetwork) -> NetworkAdd {
    NetworkAdd {
        name: new.name,
        subnet: new.network,
        gateway: new.gateway,
        subnet6: new.network6,
        gateway6: new.gateway6,
        mac_prefix: new.mac_prefix,
        reserved: new.add_reserved_ips,
        tags: new.tags,
    }
}

fn modify(change: NetworkChanges) -> NetworkModify {
    NetworkModify {
        name: change.name,
        gateway: change.gateway,
        subnet6: change.network6,
        gateway6: change.gateway6,
        mac_prefix: change.mac_prefix,
        reserve: change.add_reserved_ips,
        release: change.remove_reserved_ips,
    }
}

async fn ask(connection: &ConnectionFlags, names: Vec<String>) -> Result<Vec<NetworkInfo>, Failure> {
    let master = Master::connect(connection).await?;
    Ok(answer(master.queries().list_networks(ListNetworksRequest { names })).await?.networks)
}
