//! `gnt-hooks`.

use muster_proto::v1::ListNodeHooksRequest;

use crate::{
    args::{ConnectionFlags, HooksVerb},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, hooks as render, print},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: HooksVerb) -> Result<(), Failure> {
    match verb {
        HooksVerb::List { nodes, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let found = answer(master.queries().list_node_hooks(ListNodeHooksRequest { nodes })).await?.nodes;
            print(&selection.render(&found.iter().flat_map(render::rows).collect::<Vec<_>>()))
        }
    }
}
