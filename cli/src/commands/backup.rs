//! `gnt-backup`.

use muster_proto::v1::{BackupExport, ImportSource, ListExportsRequest, operation::Operation};

use super::{
    instance,
    operation::{self, Asked},
};
use crate::{
    args::{BackupVerb, ConnectionFlags},
    client::{Master, answer},
    exit::Failure,
    output::{exports as render, fields::select, print},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: BackupVerb) -> Result<(), Failure> {
    match verb {
        BackupVerb::List { nodes, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let exports = answer(master.queries().list_exports(ListExportsRequest { nodes })).await?.exports;
            print(&selection.render(&exports)?)
        }
        operation @ (BackupVerb::Export { .. } | BackupVerb::Import { .. }) => {
            let asked = asked(operation).expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that shows something.
pub(super) fn asked(verb: BackupVerb) -> Option<Asked> {
    Some(match verb {
        BackupVerb::List { .. } => return None,
        BackupVerb::Export { name, node, noshutdown, operation } => {
            let export = BackupExport { instance: name, node, no_shutdown: noshutdown };
            Asked::one(Operation::BackupExport(export), operation)
        }
        BackupVerb::Import { new, hardware, src_node, src_dir, operation } => {
            let export = src_dir.unwrap_or_else(|| new.name.clone());
            let add = instance::import(*new, hardware, ImportSource { node: src_node, export });
            Asked::one(Operation::InstanceAdd(add), operation)
        }
    })
}
