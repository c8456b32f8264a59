//! What each verb does: a file for each group, and what operations have in common.

mod backup;
mod backup_store;
mod client_cert;
mod cluster;
mod confirm;
mod console;
mod group;
mod hook_points;
mod hook_policy;
mod hook_runs;
mod hooks;
mod hooks_host;
mod hooks_init;
mod hooks_lint;
mod hooks_sync;
mod instance;
mod job;
mod network;
mod node;
mod node_command;
mod operation;
mod os;
mod tag_files;
mod tags;
mod verify;

use crate::{
    args::{CommandLine, Group},
    client::naming_the_master,
    exit::Failure,
};

/// Carries out a command line.
pub(crate) async fn run(line: CommandLine) -> Result<(), Failure> {
    let CommandLine { connection, mut group } = line;
    tag_files::read(&mut group)?;
    let done = match group {
        Group::Cluster(verb) => cluster::run(&connection, verb).await,
        Group::Node(verb) => node::run(&connection, verb).await,
        Group::Instance(verb) => instance::run(&connection, verb).await,
        Group::Backup(verb) => backup::run(&connection, verb).await,
        Group::Job(verb) => job::run(&connection, verb).await,
        Group::Group(verb) => group::run(&connection, verb).await,
        Group::Network(verb) => network::run(&connection, verb).await,
        Group::Os(verb) => os::run(&connection, verb).await,
        Group::Hooks(verb) => hooks::run(&connection, verb).await,
    };
    done.map_err(|failure| naming_the_master(failure, &connection))
}
