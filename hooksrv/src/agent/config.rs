//! The configuration file: which directories and addresses a daemon uses. All else is a parameter of the cluster.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use muster_core::names::{NameError, NodeName};
use serde::Deserialize;

use super::data_certificate;

/// Read where no file is named.
pub const CONFIG_FILE_DEFAULT: &str = "/etc/muster/noded.toml";
/// The port on which a node daemon listens.
pub const PORT_DEFAULT: u16 = 1811;
/// Where the kernel tells the host's name.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file can't be read.
    #[error("could not read configuration file {}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is no configuration.
    #[error("configuration file {} is not valid", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The cause, with its line.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// The host's name is no node name, and the file has none.
    #[error("the host's name can't be the node's name: set `name` in the configuration file")]
    HostName(#[source] NameError),
    /// The kernel does not tell the host's name.
    #[error("could not read the host's name: set `name` in the configuration file")]
    NoHostName(#[source] io::Error),
    /// A directory is not given from the root.
    #[error("`{key}` is {}, which does not start with /", .path.display())]
    Relative {
        /// The key.
        key: &'static str,
        /// Its value.
        path: PathBuf,
    },
}

/// A daemon's configuration. The file has the same keys for every daemon of a host; each ignores what it has no use for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name under which this host enrols.
    pub name: NodeName,
    /// Where the daemon listens once it is enrolled.
    pub listen: SocketAddr,
    /// The address under which others reach it, where that is not `listen`'s.
    pub advertise: Option<IpAddr>,
    /// What must survive a restart.
    pub state_dir: PathBuf,
    /// Sockets.
    pub run_dir: PathBuf,
    /// Directories of hook scripts.
    pub hooks_dir: PathBuf,
    /// Disks.
    pub storage_dir: PathBuf,
    /// OS definitions.
    pub os_dir: PathBuf,
    /// Exports.
    pub export_dir: PathBuf,
    /// Where the log goes; to standard error without it.
    pub log: Option<PathBuf>,
    /// The host's root directory as this process sees it; another one than `/` in a container. Facts are read below it.
    pub host_root: PathBuf,
    /// The configuration file.
    pub file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigFile {
    name: Option<NodeName>,
    listen: SocketAddr,
    advertise: Option<IpAddr>,
    state_dir: PathBuf,
    run_dir: PathBuf,
    hooks_dir: PathBuf,
    // The master's: what is known there is no mistake here.
    hooks_source: Option<PathBuf>,
    hooks_on_change: Option<bool>,
    storage_dir: PathBuf,
    os_dir: PathBuf,
    export_dir: PathBuf,
    log: Option<PathBuf>,
    host_root: PathBuf,
}

impl Default for ConfigFile {
    fn default() -> Self {
        ConfigFile {
            name: None,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT_DEFAULT),
            advertise: None,
            state_dir: "/var/lib/muster".into(),
            run_dir: "/run/muster".into(),
            hooks_dir: "/etc/ganeti/hooks".into(),
            hooks_source: None,
            hooks_on_change: None,
            storage_dir: "/srv/muster/storage".into(),
            os_dir: "/srv/muster/os".into(),
            export_dir: "/srv/muster/export".into(),
            log: None,
            host_root: "/".into(),
        }
    }
}

impl Config {
    /// Reads the file that was named, which must exist, or the default one, which need not.
    ///
    /// # Errors
    /// When the file can't be read, or something in it is wrong or unknown.
    pub fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = named.unwrap_or(Path::new(CONFIG_FILE_DEFAULT));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(ConfigError::Read { path: path.to_owned(), source }),
        };
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let file: ConfigFile = toml::from_str(text)
            .map_err(|source| ConfigError::Parse { path: path.to_owned(), source: Box::new(source) })?;
        let directories = [
            ("state_dir", &file.state_dir),
            ("run_dir", &file.run_dir),
            ("hooks_dir", &file.hooks_dir),
            ("storage_dir", &file.storage_dir),
            ("os_dir", &file.os_dir),
            ("export_dir", &file.export_dir),
            ("host_root", &file.host_root),
        ];
        // Scripts run in `/`: a path that depends on the working directory would mean another place there.
        if let Some((key, path)) = directories.into_iter().find(|(_, path)| !path.is_absolute()) {
            return Err(ConfigError::Relative { key, path: path.clone() });
        }
        let name = match file.name {
            Some(name) => name,
            None => host_name()?,
        };
        Ok(Config {
            name,
            listen: file.listen,
            advertise: file.advertise,
            state_dir: file.state_dir,
            run_dir: file.run_dir,
            hooks_dir: file.hooks_dir,
            storage_dir: file.storage_dir,
            os_dir: file.os_dir,
            export_dir: file.export_dir,
            log: file.log,
            host_root: file.host_root,
            file: path.to_owned(),
        })
    }

    /// The node daemon's own state.
    pub fn node_dir(&self) -> PathBuf {
        self.state_dir.join("node")
    }

    /// The cluster's own hook set.
    pub fn hook_sets_dir(&self) -> PathBuf {
        self.node_dir().join("hooks")
    }

    /// The directory to give to QEMU as the `dir` of its TLS credentials: CA, the node's data certificate and its key, under
    /// the names that QEMU wants for both ends. To be asked for each time credentials are made, as a renewal brings another
    /// directory; the files in one never change, and one is there until the second renewal after it. Blocks.
    ///
    /// # Errors
    /// When there is no data certificate: the node is in no cluster, or its master has not renewed it since both know of such.
    pub fn data_certificates_dir(&self) -> io::Result<PathBuf> {
        fs::canonicalize(self.data_certificates_link())
    }

    /// What leads there: to be resolved at each use, as each renewal makes a new directory.
    pub fn data_certificates_link(&self) -> PathBuf {
        self.node_dir().join(data_certificate::LINK)
    }

    /// The plain-text facts for scripts (`GANETI_DATA_DIR`).
    pub fn data_dir(&self) -> PathBuf {
        self.state_dir.join("data")
    }

    /// The node daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("node.sock")
    }

    /// The socket of a master daemon on this host.
    pub fn master_socket(&self) -> PathBuf {
        self.run_dir.join("master.sock")
    }

    /// The address to tell the master, if one is known: `advertise`, else the address listened on.
    pub fn advertised(&self) -> Option<IpAddr> {
        self.advertise.or_else(|| Some(self.listen.ip()).filter(|ip| !ip.is_unspecified()))
    }
}

fn host_name() -> Result<NodeName, ConfigError> {
    let text = fs::read_to_string(HOST_NAME_FILE).map_err(ConfigError::NoHostName)?;
    NodeName::parse(&text.trim().to_ascii_lowercase()).map_err(ConfigError::HostName)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("noded.toml"))
    }

    #[test]
    fn every_key_has_a_default() {
        let config = parse("name = \"node1\"").unwrap();
        assert_eq!(config.listen.to_string(), "0.0.0.0:1811");
        assert_eq!(config.socket(), Path::new("/run/muster/node.sock"));
        assert_eq!(config.data_dir(), Path::new("/var/lib/muster/data"));
        assert_eq!(config.advertised(), None);
        let config = parse("name = \"node1\"\nlisten = \"127.0.0.9:1811\"").unwrap();
        assert_eq!(config.advertised(), Some("127.0.0.9".parse().unwrap()));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for text in [
            "nmae = \"node1\"",
            "name = \"Node 1\"",
            "name = \"node1\"\nlisten = \"1811\"",
            "name = \"node1\"\nstate_dir = \"state\"",
            "name = ",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_named_file_must_exist() {
        let missing = Path::new("/nonexistent/noded.toml");
        assert!(matches!(Config::load(Some(missing)), Err(ConfigError::Read { .. })));
    }
}
