//! `gnt-backup`.

use muster_proto::v1::{BackupExport, ImportSource, ListExportsRequest, operation::Operation};

use super::{instance, operation};
use crate::{
    args::{BackupVerb, ConnectionFlags},
    client::{Master, answer},
    exit::Failure,
    output::{exports as render, fields::select, print},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: BackupVerb) -> Result<(), Failure> {
    match verb {
        BackupVerb::Export { name, node, noshutdown, operation } => {
            let export = BackupExport { instance: name, node, no_shutdown: noshutdown };
            let master = Master::connect(connection).await?;
            operation::run(&master, Operation::BackupExport(export), &operation).await
        }
        BackupVerb::Import { new, hardware, src_node, src_dir, operation } => {
            let export = src_dir.unwrap_or_else(|| new.name.clone());
            let add = instance::import(new, hardware, ImportSource { node: src_node, export });
            let master = Master::connect(connection).await?;
            operation::run(&master, Operation::InstanceAdd(add), &operation).await
        }
        BackupVerb::List { nodes, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let exports = answer(master.queries().list_exports(ListExportsRequest { nodes })).await?.exports;
            print(&selection.render(&exports))
        }
    }
}
