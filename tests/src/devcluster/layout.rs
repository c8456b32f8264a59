//! Where things are in a cluster's directory, and the record of what the cluster is.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::DevclusterError;

/// A daemon of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Daemon {
    /// `nodeK`: the node daemon of node K.
    Node(u32),
    /// `master` (on node1) and `master2` (on node2).
    Master(u32),
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Daemon::Node(number) => write!(f, "node{number}"),
            Daemon::Master(1) => f.write_str("master"),
            Daemon::Master(number) => write!(f, "master{number}"),
        }
    }
}

impl FromStr for Daemon {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|number| *number > 0);
        let daemon = if text == "master" {
            Some(Daemon::Master(1))
        } else if let Some(digits) = text.strip_prefix("master") {
            number(digits).map(Daemon::Master)
        } else {
            text.strip_prefix("node").and_then(number).map(Daemon::Node)
        };
        daemon
            .filter(|daemon| daemon.to_string() == text)
            .ok_or_else(|| format!("`{text}` is no daemon: say node1, node2, ..., master or master2"))
    }
}

/// What a cluster's directory says about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// First three numbers of the addresses, for example `127.64.1`.
    pub(super) net: String,
    pub(super) nodes: u32,
    pub(super) masters: u32,
    /// Each daemon has the host name of its node.
    #[serde(default)]
    pub(super) isolate: bool,
}

impl Record {
    /// Address of a node.
    pub(super) fn address(&self, node: u32) -> String {
        format!("{}.{node}", self.net)
    }

    /// All daemons, in the order they are started in.
    pub(super) fn daemons(&self) -> Vec<Daemon> {
        (1..=self.nodes).map(Daemon::Node).chain((1..=self.masters).map(Daemon::Master)).collect()
    }
}

/// A unix socket's path must be shorter than this (`sun_path`, its final NUL included).
const SOCKET_PATH_LIMIT: usize = 108;

/// The paths in a cluster's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// The layout of a directory that exists.
    ///
    /// # Errors
    /// When the directory can't be found.
    pub fn open(dir: &Path) -> Result<Self, DevclusterError> {
        let dir = dir.canonicalize().map_err(DevclusterError::file("find", dir))?;
        Ok(Layout { dir })
    }

    /// Refuses a directory in which a socket of one of `nodes` nodes would have too long a path.
    pub(super) fn check_length(&self, nodes: u32) -> Result<(), DevclusterError> {
        let socket = self.master_socket(nodes);
        let len = socket.as_os_str().len();
        if len >= SOCKET_PATH_LIMIT {
            return Err(DevclusterError::PathTooLong {
                dir: self.dir.clone(),
                socket,
                len,
                limit: SOCKET_PATH_LIMIT,
            });
        }
        Ok(())
    }

    /// The cluster's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Directory of a node.
    #[must_use]
    pub fn node(&self, number: u32) -> PathBuf {
        self.dir.join(format!("node{number}"))
    }

    /// What `gnt-hooks sync` distributes; not made here.
    #[must_use]
    pub fn hooks_source(&self) -> PathBuf {
        self.dir.join("hooks-source")
    }

    /// Socket of a master daemon on a node.
    #[must_use]
    pub fn master_socket(&self, node: u32) -> PathBuf {
        self.node(node).join("run/master.sock")
    }

    /// Socket that a daemon serves.
    #[must_use]
    pub fn socket(&self, daemon: Daemon) -> PathBuf {
        match daemon {
            Daemon::Node(number) => self.node(number).join("run/node.sock"),
            Daemon::Master(number) => self.master_socket(number),
        }
    }

    /// Configuration file of a daemon.
    #[must_use]
    pub fn config(&self, daemon: Daemon) -> PathBuf {
        match daemon {
            Daemon::Node(number) => self.node(number).join("noded.toml"),
            Daemon::Master(number) => self.node(number).join("masterd.toml"),
        }
    }

    fn daemon_dir(&self, daemon: Daemon) -> PathBuf {
        self.dir.join(daemon.to_string())
    }

    /// Log of a daemon.
    #[must_use]
    pub fn log(&self, daemon: Daemon) -> PathBuf {
        self.daemon_dir(daemon).join("log")
    }

    /// File with the daemon's process id.
    #[must_use]
    pub fn pid_file(&self, daemon: Daemon) -> PathBuf {
        match daemon {
            Daemon::Node(_) => self.daemon_dir(daemon).join("noded.pid"),
            Daemon::Master(_) => self.daemon_dir(daemon).join("masterd.pid"),
        }
    }

    /// The programs and their links.
    #[must_use]
    pub fn bin(&self) -> PathBuf {
        self.dir.join("bin")
    }

    /// File with the holder's process id.
    pub(super) fn holder_pid_file(&self) -> PathBuf {
        self.dir.join("holder.pid")
    }

    /// The cluster's record.
    pub(super) fn record_file(&self) -> PathBuf {
        self.dir.join("devcluster.json")
    }

    /// Reads the record; none when the directory holds no cluster.
    pub(super) fn record_find(&self) -> Result<Option<Record>, DevclusterError> {
        let path = self.record_file();
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(DevclusterError::file("read", &path))?;
        serde_json::from_str(&text).map(Some).map_err(|source| DevclusterError::Record { path, source })
    }

    /// Reads the record of a cluster that must be there.
    pub(super) fn record(&self) -> Result<Record, DevclusterError> {
        self.record_find()?.ok_or_else(|| DevclusterError::NoCluster(self.dir.clone()))
    }

    /// Writes the record.
    pub(super) fn record_write(&self, record: &Record) -> Result<(), DevclusterError> {
        let path = self.record_file();
        let text =
            serde_json::to_string_pretty(record).expect("a record of numbers and text has a JSON form");
        fs::write(&path, text + "\n").map_err(DevclusterError::file("write", path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_named_as_operators_type_them() {
        for (text, daemon) in [
            ("node1", Daemon::Node(1)),
            ("node12", Daemon::Node(12)),
            ("master", Daemon::Master(1)),
            ("master2", Daemon::Master(2)),
        ] {
            assert_eq!(text.parse::<Daemon>(), Ok(daemon));
            assert_eq!(daemon.to_string(), text);
        }
        for text in ["", "node", "node0", "node01", "node-1", "master0", "master1", "masterx", "web1"] {
            assert!(text.parse::<Daemon>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_directory_too_long_for_sockets_is_refused() {
        let layout = Layout { dir: PathBuf::from(format!("/{}", "d".repeat(90))) };
        let error = layout.check_length(3).expect_err("114 bytes are too many").to_string();
        assert!(error.contains("108"), "{error}");
        assert!(Layout { dir: PathBuf::from("/tmp/short") }.check_length(250).is_ok());
    }
}
