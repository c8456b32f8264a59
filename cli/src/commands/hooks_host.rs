//! What this host's node daemon is told by its configuration: where hooks are, and as whom it runs.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use muster_core::hooks::{HOOKS_VERSION_FILE, HooksVersion};

use crate::{args::HostFlags, exit::Failure};

/// Read where no file is named.
const CONFIG_FILE: &str = "/etc/muster/noded.toml";
/// Where hooks are unless the file says otherwise.
const HOOKS_DIR: &str = "/etc/ganeti/hooks";
/// Where the daemon's state is unless the file says otherwise.
const STATE_DIR: &str = "/var/lib/muster";

/// The node daemon of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Hook directories.
    pub(super) hooks_dir: PathBuf,
    /// The daemon's state.
    state_dir: PathBuf,
}

impl Host {
    /// Reads the file that was named, which must be there, or the default one, which need not.
    pub(super) fn load(flags: &HostFlags) -> Result<Self, Failure> {
        let path = flags.config.as_deref().unwrap_or(Path::new(CONFIG_FILE));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if flags.config.is_none() && error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => {
                return Err(Failure::Usage(format!("{} can't be read: {error}", path.display())));
            }
        };
        Self::parse(&text).map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))
    }

    /// Looks at two keys; whether all of the file is right is the daemon's business.
    fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let path = |key: &str, default: &str| match table.get(key) {
            None => Ok(PathBuf::from(default)),
            Some(value) => value.as_str().map(PathBuf::from).ok_or_else(|| format!("`{key}` is not text")),
        };
        Ok(Host { hooks_dir: path("hooks_dir", HOOKS_DIR)?, state_dir: path("state_dir", STATE_DIR)? })
    }

    /// The cluster's own hook set in use on this host, if there is one and it may be looked at.
    pub(super) fn hook_set(&self) -> Option<PathBuf> {
        let current = self.state_dir.join("node/hooks/current");
        current.is_dir().then_some(current)
    }

    /// The cluster's version of the hook interface as this node was told last, and the file that says it.
    pub(super) fn hooks_version(&self) -> Option<(HooksVersion, PathBuf)> {
        let file = self.state_dir.join("data").join(HOOKS_VERSION_FILE);
        let text = fs::read_to_string(&file).ok()?;
        Some((HooksVersion::parse(text.trim())?, file))
    }

    /// The users that scripts may belong to: root, and the daemon's, which owns its state. Before there is one it is
    /// whoever asks.
    pub(super) fn owners(&self, daemon_user: Option<u32>) -> [u32; 2] {
        let owner = || fs::metadata(self.state_dir.join("node")).ok().map(|state| state.uid());
        let own = || rustix::process::geteuid().as_raw();
        [0, daemon_user.or_else(owner).unwrap_or_else(own)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_file_is_read_and_need_not_be_there() {
        assert_eq!(Host::parse("").unwrap().hooks_dir, Path::new(HOOKS_DIR));
        let host = Host::parse("name = \"node1\"\nhooks_dir = \"/h\"\nstate_dir = \"/s\"").unwrap();
        assert_eq!((host.hooks_dir.as_path(), host.state_dir.as_path()), (Path::new("/h"), Path::new("/s")));
        assert!(Host::parse("hooks_dir = 1").unwrap_err().contains("hooks_dir"));
        assert!(Host::parse("hooks_dir").is_err());
        let flags = HostFlags { config: Some("/nonexistent/noded.toml".into()) };
        assert_eq!(Host::load(&flags).unwrap_err().code(), 2);
    }

    #[test]
    fn the_version_is_what_the_node_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let host = Host { hooks_dir: "/h".into(), state_dir: folder.path().to_owned() };
        assert_eq!(host.hooks_version(), None);
        fs::create_dir(folder.path().join("data")).unwrap();
        let file = folder.path().join("data/ssconf_hooks_version");
        for (text, right) in [("2\n", Some(HooksVersion::V2)), ("1\n", Some(HooksVersion::V1)), ("", None)] {
            fs::write(&file, text).unwrap();
            assert_eq!(host.hooks_version(), right.map(|version| (version, file.clone())));
        }
    }

    #[test]
    fn owners_are_root_and_the_daemons_user() {
        let host = Host { hooks_dir: "/h".into(), state_dir: "/nonexistent".into() };
        assert_eq!(host.owners(Some(7)), [0, 7]);
        assert_eq!(host.owners(None), [0, rustix::process::geteuid().as_raw()]);
    }
}
