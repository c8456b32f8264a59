//! The command line of `muster-devcluster`.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use super::error::DevclusterError;
use super::layout::{Daemon, Layout};
use super::up::{MASTERS_MAX, NODES_MAX, Wanted};
use super::{down, holder, up, verbs};

/// A cluster of real daemons on loopback addresses, for trying things and for tests. Needs no root.
#[derive(Debug, Parser)]
#[command(name = "muster-devcluster", version)]
struct Args {
    /// The cluster's directory.
    #[arg(long, global = true, env = "MUSTER_DIR", default_value = "muster-dev")]
    dir: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start a master and node daemons, make the cluster `dev` of them, write DIR/env.
    Up {
        /// Number of nodes, node1 to nodeN.
        #[arg(long, default_value_t = 3)]
        nodes: u32,
        /// What runs instances.
        #[arg(long, value_enum, default_value_t = Hypervisor::Fake)]
        hypervisor: Hypervisor,
        /// Number of master daemons: with 2, a standby on node2.
        #[arg(long, default_value_t = 1)]
        masters: u32,
        /// Give each daemon the host name of its node, for scripts that compare it; for root.
        #[arg(long)]
        isolate: bool,
        /// Start the daemons only; make no cluster.
        #[arg(long)]
        bare: bool,
        /// End and delete the cluster when this process ends.
        #[arg(long, hide = true)]
        owner: Option<u32>,
    },
    /// End everything: daemons (paused ones too), scripts, guests. The directory stays.
    Down,
    /// Kill a daemon (SIGKILL).
    Kill {
        /// node1, node2, ..., master or master2.
        node: Daemon,
    },
    /// Stop a daemon (SIGSTOP).
    Pause {
        /// node1, node2, ..., master or master2.
        node: Daemon,
    },
    /// Let a paused daemon go on (SIGCONT).
    Resume {
        /// node1, node2, ..., master or master2.
        node: Daemon,
    },
    /// Start a daemon that was killed; returns when it serves.
    Start {
        /// node1, node2, ..., master or master2.
        node: Daemon,
        /// More arguments for the daemon, after `--`.
        #[arg(last = true)]
        extra: Vec<String>,
    },
    /// A line for each daemon: name, process, state.
    Status,
    /// Holds the cluster's addresses.
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        owner: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Hypervisor {
    /// Instances are files that say what would run.
    Fake,
    /// Virtual machines.
    Qemu,
}

impl Hypervisor {
    /// The word for `gnt-cluster init`.
    fn word(self) -> &'static str {
        match self {
            Hypervisor::Fake => "fake",
            Hypervisor::Qemu => "qemu",
        }
    }
}

/// The program: reads the command line, does the verb, tells what went wrong.
#[must_use]
pub fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(text) => {
            // A closed stdout changes nothing about what was done.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "muster-devcluster: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn run(args: Args) -> Result<String, DevclusterError> {
    let open = || Layout::open(&args.dir);
    let done = |result: Result<(), DevclusterError>| result.map(|()| String::new());
    match args.verb {
        Verb::Up { nodes, hypervisor, masters, isolate, bare, owner } => {
            check(nodes, masters)?;
            let hypervisor = hypervisor.word();
            let layout = up::up(&args.dir, Wanted { nodes, masters, isolate, hypervisor, bare, owner })?;
            let what = if bare { "daemons serve" } else { "cluster dev is up" };
            Ok(format!("{what} in {0}; to use it: . {0}/env\n", layout.dir().display()))
        }
        Verb::Down => done(down::down(&open()?)),
        Verb::Kill { node } => done(verbs::kill(&open()?, node)),
        Verb::Pause { node } => done(verbs::pause(&open()?, node)),
        Verb::Resume { node } => done(verbs::resume(&open()?, node)),
        Verb::Start { node, extra } => done(verbs::start_again(&open()?, node, &extra)),
        Verb::Status => verbs::status(&open()?),
        Verb::Hold { owner } => done(holder::hold(&args.dir, owner)),
    }
}

fn check(nodes: u32, masters: u32) -> Result<(), DevclusterError> {
    let range = |what, from, to, got| {
        let fine = (from..=to).contains(&got);
        if fine { Ok(()) } else { Err(DevclusterError::Number { what, from, to, got }) }
    };
    range("--nodes", 1, NODES_MAX, nodes)?;
    range("--masters", 1, MASTERS_MAX.min(nodes), masters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dir_stands_before_or_after_the_verb() {
        for line in [["x", "--dir", "/d", "down"], ["x", "down", "--dir", "/d"]] {
            assert_eq!(Args::try_parse_from(line).unwrap().dir, PathBuf::from("/d"));
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert!(check(3, 1).is_ok());
        assert!(check(3, 2).is_ok());
        for (nodes, masters) in [(0, 1), (251, 1), (3, 3), (1, 2), (3, 0)] {
            assert!(check(nodes, masters).is_err(), "{nodes} {masters}");
        }
    }
}
