//! The master daemon's configuration file: the few things that must be known before there is a cluster.
//!
//! The node daemon reads the same keys from a file of its own; each passes over those that it has no use for, and both
//! refuse a key that neither knows.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use muster_core::names::{NameError, NodeName};
use muster_proto::transport::SOCKET_PATH_BYTES_MAX;
use serde::Deserialize;

/// Read when no other file is named; it need not exist.
pub const CONFIG_FILE: &str = "/etc/muster/masterd.toml";
/// A configuration has a dozen lines; a file longer than this is another file.
pub const CONFIG_BYTES_MAX: u64 = 64 * 1024;
/// Where masters listen.
const LISTEN: &str = "0.0.0.0:1810";
/// The host's name as the kernel knows it.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file can't be read.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is longer than [`CONFIG_BYTES_MAX`].
    #[error("{path} is longer than {CONFIG_BYTES_MAX} bytes: that is no configuration")]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file isn't TOML, or has an unknown key.
    #[error("{path} is not valid")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value is not what the key needs.
    #[error("{path}: {key} = {value:?}: {why}")]
    Value {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// No name is given, and the host's own does not serve.
    #[error("the host's name can't be this node's name; set `name` in {path}")]
    HostName {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: NameError,
    },
}

/// The file as it is written. One list of keys for all daemons.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: Option<String>,
    listen: Option<String>,
    advertise: Option<String>,
    state_dir: Option<String>,
    run_dir: Option<String>,
    hooks_dir: Option<String>,
    hooks_source: Option<String>,
    hooks_on_change: Option<bool>,
    storage_dir: Option<String>,
    os_dir: Option<String>,
    export_dir: Option<String>,
    host_root: Option<String>,
    log: Option<String>,
}

/// What the master daemon uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The name of the node on this host.
    pub name: NodeName,
    /// Where TLS connections are accepted once there is a cluster.
    pub listen: SocketAddr,
    /// The address by which other hosts reach this one, where it is not the one listened on.
    pub advertise: Option<IpAddr>,
    /// What must survive a restart.
    pub state_dir: PathBuf,
    /// Sockets.
    pub run_dir: PathBuf,
    /// The directory whose content `gnt-hooks sync` makes the cluster's own hook set.
    pub hooks_source: Option<PathBuf>,
    /// Whether that is done by itself when something in it has changed.
    pub hooks_on_change: bool,
    /// The log file; standard error where there is none.
    pub log: Option<PathBuf>,
}

impl Config {
    /// Reads the named file, or the default one, which may be missing.
    ///
    /// # Errors
    /// When a named file is missing, or a file can't be used.
    pub fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = named.unwrap_or(Path::new(CONFIG_FILE));
        let text = match read(path) {
            Err(ConfigError::Read { source, .. })
                if named.is_none() && source.kind() == io::ErrorKind::NotFound =>
            {
                String::new()
            }
            read => read?,
        };
        let host = fs::read_to_string(HOST_NAME_FILE)
            .map_err(|source| ConfigError::Read { path: HOST_NAME_FILE.into(), source })?;
        Self::parse(path, &text, host.trim())
    }

    fn parse(path: &Path, text: &str, host: &str) -> Result<Self, ConfigError> {
        let written: Written = toml::from_str(text)
            .map_err(|source| ConfigError::Syntax { path: path.to_owned(), source: Box::new(source) })?;
        let check = Check { path };
        let name = match &written.name {
            Some(name) => check.value("name", name, NodeName::parse(name))?,
            None => NodeName::parse(host)
                .map_err(|source| ConfigError::HostName { path: path.to_owned(), source })?,
        };
        let listen = written.listen.as_deref().unwrap_or(LISTEN);
        let listen = check.value("listen", listen, parse_listen(listen))?;
        let advertise = written.advertise.as_deref();
        let advertise =
            advertise.map(|text| check.value("advertise", text, parse_advertise(text))).transpose()?;
        let directory = |key, text: &Option<String>, default| {
            let text = text.as_deref().unwrap_or(default);
            check.value(key, text, parse_path(text))
        };
        let state_dir = directory("state_dir", &written.state_dir, "/var/lib/muster")?;
        let run_dir = directory("run_dir", &written.run_dir, "/run/muster")?;
        // Not used here, but a wrong one is an error whoever reads it.
        directory("hooks_dir", &written.hooks_dir, "/etc/ganeti/hooks")?;
        directory("storage_dir", &written.storage_dir, "/srv/muster/storage")?;
        directory("os_dir", &written.os_dir, "/srv/muster/os")?;
        directory("export_dir", &written.export_dir, "/srv/muster/export")?;
        directory("host_root", &written.host_root, "/")?;
        let log =
            written.log.as_deref().map(|text| check.value("log", text, parse_path(text))).transpose()?;
        let source = written.hooks_source.as_deref();
        let hooks_source =
            source.map(|text| check.value("hooks_source", text, parse_path(text))).transpose()?;
        let hooks_on_change = written.hooks_on_change.unwrap_or(false);
        let config = Self { name, listen, advertise, state_dir, run_dir, hooks_source, hooks_on_change, log };
        let longest = config.socket().as_os_str().len().max(config.node_socket().as_os_str().len());
        if longest > SOCKET_PATH_BYTES_MAX {
            let why = format!(
                "a socket's path would have {longest} bytes; at most {SOCKET_PATH_BYTES_MAX} are possible"
            );
            return Err(check.wrong("run_dir", &config.run_dir.to_string_lossy(), why));
        }
        Ok(config)
    }

    /// The master's own directory: store and CA.
    pub fn master_dir(&self) -> PathBuf {
        self.state_dir.join("master")
    }

    /// The store's file.
    pub fn store(&self) -> PathBuf {
        self.master_dir().join("cluster.db")
    }

    /// Copies of cluster facts for scripts, shared with the node daemon on this host.
    pub fn data_dir(&self) -> PathBuf {
        self.state_dir.join("data")
    }

    /// The master's socket.
    pub fn socket(&self) -> PathBuf {
        self.run_dir.join("master.sock")
    }

    /// The socket of the node daemon on this host.
    pub fn node_socket(&self) -> PathBuf {
        self.run_dir.join("node.sock")
    }

    /// The address by which other hosts reach this one, where the file says it.
    pub fn advertised_ip(&self) -> Option<IpAddr> {
        self.advertise.or_else(|| Some(self.listen.ip()).filter(|ip| !ip.is_unspecified()))
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let error = |source| ConfigError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(error)?.len() > CONFIG_BYTES_MAX {
        return Err(ConfigError::TooLong { path: path.to_owned() });
    }
    fs::read_to_string(path).map_err(error)
}

struct Check<'a> {
    path: &'a Path,
}

impl Check<'_> {
    fn value<T, E: ToString>(
        &self,
        key: &'static str,
        text: &str,
        parsed: Result<T, E>,
    ) -> Result<T, ConfigError> {
        parsed.map_err(|why| self.wrong(key, text, why.to_string()))
    }

    fn wrong(&self, key: &'static str, text: &str, why: String) -> ConfigError {
        ConfigError::Value { path: self.path.to_owned(), key, value: text.to_owned(), why }
    }
}

fn parse_listen(text: &str) -> Result<SocketAddr, &'static str> {
    let address: SocketAddr =
        text.parse().map_err(|_| "an IP address and a port are needed, as in 192.0.2.1:1810")?;
    // Port 0 would be another one at each start, and tokens carry it.
    if address.port() == 0 { Err("the port can't be 0") } else { Ok(address) }
}

fn parse_advertise(text: &str) -> Result<IpAddr, &'static str> {
    let ip: IpAddr = text.parse().map_err(|_| "an IP address is needed, without a port")?;
    match ip.is_unspecified() || ip.is_multicast() {
        true => Err("this is not the address of one host"),
        false => Ok(ip),
    }
}

fn parse_path(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if text.contains('\0') {
        return Err("a path can't contain a zero byte");
    }
    if path.is_absolute() { Ok(path) } else { Err("an absolute path is needed") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(Path::new("masterd.toml"), text, "host1")
    }

    #[test]
    fn every_key_has_a_default() {
        let config = parse("").unwrap();
        assert_eq!(config.name.as_str(), "host1");
        assert_eq!(config.listen, "0.0.0.0:1810".parse().unwrap());
        assert_eq!(config.advertised_ip(), None);
        assert_eq!(config.store(), Path::new("/var/lib/muster/master/cluster.db"));
        assert_eq!(config.data_dir(), Path::new("/var/lib/muster/data"));
        assert_eq!(config.socket(), Path::new("/run/muster/master.sock"));
        assert_eq!(config.node_socket(), Path::new("/run/muster/node.sock"));
        assert_eq!(config.log, None);
        assert_eq!((config.hooks_source, config.hooks_on_change), (None, false));
    }

    #[test]
    fn all_keys_of_all_daemons_are_read() {
        let text = r#"
            name = "node1"
            listen = "127.64.0.1:1810"
            advertise = "192.0.2.1"
            state_dir = "/a/state"
            run_dir = "/a/run"
            hooks_dir = "/a/hooks"
            hooks_source = "/a/source"
            hooks_on_change = true
            storage_dir = "/a/storage"
            os_dir = "/a/os"
            export_dir = "/a/export"
            log = "/a/log"
        "#;
        let config = parse(text).unwrap();
        assert_eq!((config.name.as_str(), config.advertised_ip()), ("node1", "192.0.2.1".parse().ok()));
        assert_eq!((config.hooks_source, config.hooks_on_change), (Some("/a/source".into()), true));
        assert_eq!((config.state_dir, config.log), ("/a/state".into(), Some("/a/log".into())));
        assert_eq!(parse("listen = '127.64.0.1:1'").unwrap().advertised_ip(), "127.64.0.1".parse().ok());
    }

    #[test]
    fn a_wrong_value_is_named_with_its_key() {
        let long = format!("run_dir = '/{}'", "x".repeat(120));
        for (text, why) in [
            ("name = 'Node1'", "only lower-case letters"),
            ("listen = '1810'", "an IP address and a port"),
            ("listen = 'localhost:1810'", "an IP address and a port"),
            ("listen = '127.0.0.1:0'", "can't be 0"),
            ("advertise = '0.0.0.0'", "not the address of one host"),
            ("advertise = '192.0.2.1:1810'", "without a port"),
            ("state_dir = 'state'", "an absolute path"),
            ("os_dir = ''", "an absolute path"),
            ("hooks_source = 'hooks'", "an absolute path"),
            ("log = 'stderr'", "an absolute path"),
            (&long, "at most 107 are possible"),
        ] {
            let key = text.split(' ').next().unwrap();
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("masterd.toml: {key} = ")) && error.contains(why), "{error}");
        }
    }

    #[test]
    fn unknown_keys_and_wrong_types_are_refused() {
        for (text, why) in
            [("hook_dir = '/a'", "unknown field `hook_dir`"), ("listen = 1810", "expected a string")]
        {
            let ConfigError::Syntax { source, .. } = parse(text).unwrap_err() else {
                panic!("{text} was read")
            };
            assert!(source.to_string().contains(why), "{source}");
        }
    }

    #[test]
    fn a_host_whose_name_is_no_node_name_is_told_what_to_set() {
        let error = Config::parse(Path::new("masterd.toml"), "", "Host_1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the host's name can't be this node's name; set `name` in masterd.toml"
        );
    }

    #[test]
    fn only_a_file_that_was_named_must_exist() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("masterd.toml");
        assert!(matches!(Config::load(Some(&path)), Err(ConfigError::Read { .. })));
        fs::write(&path, "name = 'node7'").unwrap();
        assert_eq!(Config::load(Some(&path)).unwrap().name.as_str(), "node7");
        fs::write(&path, "#".repeat(70_000)).unwrap();
        assert!(matches!(Config::load(Some(&path)), Err(ConfigError::TooLong { .. })));
    }
}
