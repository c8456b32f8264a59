//! The command line: what may be typed, parsed by clap into types that need no further check.
//!
//! A new verb is a variant in its group's file here and an arm in the group's file in `commands`; the compiler asks
//! for the second. `gnt GROUP VERB` and a link named `gnt-GROUP` lead to the same types.

mod backup;
mod cluster;
mod common;
mod group;
mod hook_policy;
mod hook_runs;
mod hooks;
mod instance;
mod job;
mod network;
mod node;
mod os;
mod policy_setting;
mod site;
mod tags;
mod values;

use std::{ffi::OsString, path::Path};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

pub(crate) use backup::BackupVerb;
pub(crate) use cluster::{
    AllowDenyValue, BackupStoreFlags, ClientCertVerb, ClusterVerb, ExitCodesValue, GuestParameters,
    HookParameters, OnErrorValue, QueueVerb,
};
pub(crate) use common::{AsJson, ConnectionFlags, ListFlags, OperationFlags};
pub(crate) use group::GroupVerb;
pub(crate) use hook_policy::PolicyVerb;
#[cfg(test)]
pub(crate) use hook_runs::ScriptPath;
pub(crate) use hook_runs::{HistoryFlags, RunFlags, Since};
pub(crate) use hooks::{ExplainFlags, HooksVerb, HostFlags, SyncFlags, VersionFlag};
pub(crate) use instance::{DiskVerb, Hardware, ImportedHardware, InstanceVerb, NewInstance};
pub(crate) use job::{JobStateFlags, JobVerb};
pub(crate) use network::{NetworkChanges, NetworkVerb, NewNetwork};
pub(crate) use node::{NodeVerb, TokenVerb};
pub(crate) use os::OsVerb;
pub(crate) use site::{AllowedParameters, CommandFlags, CopyfileFlags};
pub(crate) use tags::{ClusterTagsVerb, TagWords, TagsVerb};
pub(crate) use values::{Age, IpChange, duration, job as job_number, size as size_mib};

const EXAMPLES: &str = "\
Examples:
  gnt cluster init prod
  gnt node token create
  gnt instance add -t file -n node2 -s 10G -m 1G -p 2 -o none web1
  gnt instance list -o name,status,pnode
  gnt job info 17

`gnt-instance list` and `gnt instance list` are the same.

Exit codes: 0 done; 1 failed, refused or denied; 2 wrong usage; 3 the master can't be reached or is elsewhere.";

/// Operates a Muster cluster.
#[derive(Debug, Parser)]
#[command(name = "gnt", version, after_help = EXAMPLES, arg_required_else_help = true)]
#[command(infer_subcommands = false, disable_help_subcommand = true)]
struct Gnt {
    #[command(flatten)]
    connection: ConnectionFlags,
    #[command(subcommand)]
    group: Group,
}

/// The command's object.
#[derive(Debug, Subcommand)]
#[expect(clippy::enum_variant_names, reason = "groups of nodes are called so too")]
pub(crate) enum Group {
    /// The cluster as a whole: init, info, verify, parameters, certificates
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Nodes: tokens, adding, removing, listing
    #[command(subcommand)]
    Node(NodeVerb),
    /// Instances: adding, starting, consoles, moving, mirrors
    #[command(subcommand)]
    Instance(InstanceVerb),
    /// Exports of instances, and imports
    #[command(subcommand)]
    Backup(BackupVerb),
    /// Jobs: what became of submitted operations
    #[command(subcommand)]
    Job(JobVerb),
    /// Groups of nodes: making, filling, listing
    #[command(subcommand)]
    Group(GroupVerb),
    /// Networks out of which instances have addresses
    #[command(subcommand)]
    Network(NetworkVerb),
    /// OS definitions on the nodes
    #[command(subcommand)]
    Os(OsVerb),
    /// Hook scripts on the nodes
    #[command(subcommand)]
    Hooks(HooksVerb),
}

/// The form for a link named after a group.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Linked<V: Subcommand> {
    #[command(flatten)]
    connection: ConnectionFlags,
    #[command(subcommand)]
    verb: V,
}

/// A parsed command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    /// How the master is reached.
    pub(crate) connection: ConnectionFlags,
    /// What is to be done.
    pub(crate) group: Group,
}

/// Parses a command line, the program's name included.
pub(crate) fn parse(argv: Vec<OsString>) -> Result<CommandLine, clap::Error> {
    utf8_check(&argv)?;
    let link = argv.first().and_then(|name| Path::new(name).file_name()).and_then(|name| name.to_str());
    match link {
        Some("gnt-cluster") => linked(argv, "gnt-cluster", Group::Cluster),
        Some("gnt-node") => linked(argv, "gnt-node", Group::Node),
        Some("gnt-instance") => linked(argv, "gnt-instance", Group::Instance),
        Some("gnt-backup") => linked(argv, "gnt-backup", Group::Backup),
        Some("gnt-job") => linked(argv, "gnt-job", Group::Job),
        Some("gnt-group") => linked(argv, "gnt-group", Group::Group),
        Some("gnt-network") => linked(argv, "gnt-network", Group::Network),
        Some("gnt-os") => linked(argv, "gnt-os", Group::Os),
        Some("gnt-hooks") => linked(argv, "gnt-hooks", Group::Hooks),
        Some(_) | None => {
            let Gnt { connection, group } = Gnt::try_parse_from(argv)?;
            Ok(CommandLine { connection, group })
        }
    }
}

/// Parses the operation of `gnt-hooks explain`: `instance add ...`, `gnt-instance add ...` or `gnt instance add ...`.
pub(crate) fn parse_explained(words: &[String]) -> Result<CommandLine, clap::Error> {
    let first = words.first().map_or("", String::as_str);
    let is_whole = first == "gnt" || first.starts_with("gnt-");
    let program = (!is_whole).then(|| OsString::from("gnt"));
    parse(program.into_iter().chain(words.iter().map(OsString::from)).collect())
}

fn linked<V: Subcommand>(
    argv: Vec<OsString>,
    name: &'static str,
    group: fn(V) -> Group,
) -> Result<CommandLine, clap::Error> {
    let about = format!("Operates a Muster cluster; the same as `gnt {}`.", name.trim_start_matches("gnt-"));
    let mut command = Linked::<V>::command().name(name).bin_name(name).about(about);
    let mut matches = command.try_get_matches_from_mut(argv)?;
    let parsed =
        Linked::<V>::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    Ok(CommandLine { connection: parsed.connection, group: group(parsed.verb) })
}

/// Names, reasons and paths travel as text, so other bytes are refused before anything else is looked at.
fn utf8_check(argv: &[OsString]) -> Result<(), clap::Error> {
    match argv.iter().enumerate().find(|(_, argument)| argument.to_str().is_none()) {
        None => Ok(()),
        Some((index, argument)) => {
            let text = format!("argument {index} is not UTF-8 text: {argument:?}");
            Err(Gnt::command().error(ErrorKind::InvalidUtf8, text))
        }
    }
}

#[cfg(test)]
mod tests;
