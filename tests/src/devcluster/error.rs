//! Why a verb of `muster-devcluster` failed.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::layout::Daemon;

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DevclusterError {
    /// Something could not be done with a file.
    #[error("could not {what} {path}")]
    File {
        /// What was being tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The directory's name makes socket paths too long.
    #[error(
        "directory {dir} is too long: the socket path {socket} would have {len} bytes, and a unix socket's path must stay under {limit}"
    )]
    PathTooLong {
        /// The directory.
        dir: PathBuf,
        /// The longest path in it.
        socket: PathBuf,
        /// Its length.
        len: usize,
        /// The bound.
        limit: usize,
    },
    /// The directory holds no cluster.
    #[error("{0} holds no cluster: `muster-devcluster up --dir` makes one")]
    NoCluster(PathBuf),
    /// The directory holds a cluster that runs.
    #[error("the cluster in {0} is up already: `muster-devcluster down --dir {0}` ends it")]
    AlreadyUp(PathBuf),
    /// The record of the cluster can't be read.
    #[error("the cluster's record {path} is damaged")]
    Record {
        /// The record.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
    /// No free addresses.
    #[error("no free 127.A.B.0/24 was found: {0} were tried")]
    NoAddresses(usize),
    /// Something that only root may do.
    #[error("{0} is for root only")]
    NotRoot(&'static str),
    /// A number out of its range.
    #[error("{what} must be {from} to {to}, not {got}")]
    Number {
        /// Which number.
        what: &'static str,
        /// Smallest.
        from: u32,
        /// Largest.
        to: u32,
        /// Given.
        got: u32,
    },
    /// No such daemon in this cluster.
    #[error("this cluster has no daemon {0}")]
    NoDaemon(Daemon),
    /// The daemon does not run.
    #[error("{0} does not run")]
    NotRunning(Daemon),
    /// The daemon runs.
    #[error("{0} runs already")]
    Running(Daemon),
    /// A program could not be started.
    #[error("could not start {program}")]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A signal could not be sent.
    #[error("could not signal {daemon}")]
    Signal {
        /// To whom.
        daemon: Daemon,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The daemon ended while it was waited for.
    #[error("{daemon} ended with {status}; the end of its log {log}:\n{tail}")]
    Ended {
        /// Which.
        daemon: Daemon,
        /// How.
        status: String,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// The daemon does not serve.
    #[error("{daemon} does not serve after {limit:?}; the end of its log {log}:\n{tail}")]
    NotServing {
        /// Which.
        daemon: Daemon,
        /// How long it was waited for.
        limit: Duration,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
    /// Something is still there after the limit.
    #[error("{what} after {limit:?}")]
    StillThere {
        /// What.
        what: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// A command that builds the cluster failed.
    #[error("`{command}` ended with {status}:\n{output}")]
    Command {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// What it printed.
        output: String,
    },
}

impl DevclusterError {
    /// For `map_err` on what is done with a file.
    pub(super) fn file(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| DevclusterError::File { what, path, source }
    }
}
