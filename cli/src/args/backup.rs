//! `gnt-backup`.

use clap::Subcommand;

use super::{
    common::{ListFlags, OperationFlags},
    instance::{ImportedHardware, NewInstance},
    values,
};

/// Verbs of `gnt-backup`.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupVerb {
    /// Copy an instance's disks to a node
    Export {
        /// The instance
        #[arg(value_parser = values::instance)]
        name: String,
        /// The node that stores the export
        #[arg(short, long, value_name = "NODE", value_parser = values::node)]
        node: String,
        /// Copy while the instance runs
        #[arg(long)]
        noshutdown: bool,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Make an instance from an export
    #[command(after_help = "Example: gnt-backup import -t file -n node1 --src-node node2 web1")]
    Import {
        #[command(flatten)]
        new: Box<NewInstance>,
        #[command(flatten)]
        hardware: ImportedHardware,
        /// The node that stores the export
        #[arg(long, value_name = "NODE", value_parser = values::node)]
        src_node: String,
        /// The export there: the exported instance's name or the export's uuid; default: the new instance's name
        #[arg(long, value_name = "EXPORT")]
        src_dir: Option<String>,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// List exports
    List {
        /// Only those on this node (can be given several times)
        #[arg(long = "node", short = 'n', value_name = "NODE", value_parser = values::node, num_args = 1)]
        nodes: Vec<String>,
        #[command(flatten)]
        list: ListFlags,
    },
}
