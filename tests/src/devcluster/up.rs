//! `up`: directories and configuration files, daemons, and a cluster of all nodes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::error::DevclusterError;
use super::layout::{Daemon, Layout, Record};
use super::{address, down, env_file, holder, process, start};

/// What `up` is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) nodes: u32,
    pub(super) masters: u32,
    /// Give each daemon the host name of its node; for root.
    pub(super) isolate: bool,
    /// What runs instances.
    pub(super) hypervisor: &'static str,
    /// Start the daemons and make no cluster.
    pub(super) bare: bool,
    /// The process with which the cluster ends.
    pub(super) owner: Option<u32>,
}

/// Node numbers are an address's last number.
pub(super) const NODES_MAX: u32 = 250;
/// One master and one standby.
pub(super) const MASTERS_MAX: u32 = 2;
/// Directories of a node that `up` empties; hooks and OS definitions that somebody put there beforehand stay.
const NODE_DIRS_FRESH: [&str; 4] = ["state", "run", "storage", "export"];
const NODE_DIRS_KEPT: [&str; 2] = ["hooks", "os"];

/// Makes a cluster in the directory. When that fails half-way everything is ended again, and the logs stay.
pub(super) fn up(dir: &Path, wanted: Wanted) -> Result<Layout, DevclusterError> {
    if wanted.isolate && !rustix::process::geteuid().is_root() {
        return Err(DevclusterError::NotRoot("--isolate"));
    }
    fs::create_dir_all(dir).map_err(DevclusterError::file("make", dir))?;
    let layout = Layout::open(dir)?;
    layout.check_length(wanted.nodes)?;
    if layout.record_find()?.is_some() && holder::running(&layout).is_some() {
        return Err(DevclusterError::AlreadyUp(layout.dir().to_owned()));
    }
    let claim = address::claim()?;
    let Wanted { nodes, masters, isolate, .. } = wanted;
    let record = Record { net: claim.net.clone(), nodes, masters, isolate };
    layout.record_write(&record)?;
    holder::start(&layout, claim, wanted.owner)?;
    let made = make(&layout, &record, wanted);
    if made.is_err() {
        // The first error is the one to tell.
        let _ = down::down(&layout);
    }
    made.map(|()| layout)
}

fn make(layout: &Layout, record: &Record, wanted: Wanted) -> Result<(), DevclusterError> {
    for daemon in record.daemons() {
        prepare(layout, record, daemon)?;
    }
    env_file::write(layout)?;
    let started: Result<Vec<_>, _> =
        record.daemons().into_iter().map(|daemon| start::start(layout, daemon, &[])).collect();
    for one in started? {
        start::wait(layout, one)?;
    }
    if wanted.bare { Ok(()) } else { make_cluster(layout, record, wanted.hypervisor) }
}

/// A daemon's directories and its configuration file.
fn prepare(layout: &Layout, record: &Record, daemon: Daemon) -> Result<(), DevclusterError> {
    let make_dir = |path: &Path| fs::create_dir_all(path).map_err(DevclusterError::file("make", path));
    if let Daemon::Node(number) = daemon {
        let node = layout.node(number);
        for name in NODE_DIRS_FRESH {
            let path = node.join(name);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(DevclusterError::file("remove", &path))?;
            }
            make_dir(&path)?;
        }
        for name in NODE_DIRS_KEPT {
            make_dir(&node.join(name))?;
        }
    }
    let log = layout.log(daemon);
    make_dir(log.parent().expect("a log has a directory"))?;
    fs::write(&log, "").map_err(DevclusterError::file("write", log))?;
    let config = layout.config(daemon);
    fs::write(&config, config_text(layout, record, daemon)).map_err(DevclusterError::file("write", config))
}

fn config_text(layout: &Layout, record: &Record, daemon: Daemon) -> String {
    let (number, port) = match daemon {
        Daemon::Node(number) => (number, 1811),
        Daemon::Master(number) => (number, 1810),
    };
    let address = record.address(number);
    let node = layout.node(number);
    let path = |name: &str| toml::Value::String(node.join(name).display().to_string());
    let mut table = toml::Table::new();
    table.insert("name".to_owned(), format!("node{number}").into());
    table.insert("listen".to_owned(), format!("{address}:{port}").into());
    table.insert("advertise".to_owned(), address.into());
    for (key, name) in [
        ("state_dir", "state"),
        ("run_dir", "run"),
        ("hooks_dir", "hooks"),
        ("storage_dir", "storage"),
        ("os_dir", "os"),
        ("export_dir", "export"),
    ] {
        table.insert(key.to_owned(), path(name));
    }
    if let Daemon::Master(_) = daemon {
        let source = layout.hooks_source().display().to_string();
        table.insert("hooks_source".to_owned(), source.into());
    }
    table.to_string()
}

/// Initialises the cluster and adds all other nodes.
fn make_cluster(layout: &Layout, record: &Record, hypervisor: &str) -> Result<(), DevclusterError> {
    gnt(layout, &["cluster", "init", "--hypervisor", hypervisor, "dev"])?;
    for number in 2..=record.nodes {
        let name = format!("node{number}");
        let token = gnt(layout, &["node", "token", "create"])?;
        join(layout, number, &token)?;
        gnt(layout, &["node", "add", &name])?;
        if number <= record.masters {
            gnt(layout, &["node", "modify", "--master-candidate", "yes", &name])?;
        }
    }
    Ok(())
}

/// Runs `gnt` against the first master and gives its stdout.
fn gnt(layout: &Layout, args: &[&str]) -> Result<String, DevclusterError> {
    let mut command = Command::new(process::program("gnt")?);
    command.args(args).env("MUSTER_SOCKET", layout.master_socket(1));
    run(command, format!("gnt {}", args.join(" ")), "")
}

/// Gives a token to a node's daemon.
fn join(layout: &Layout, number: u32, token: &str) -> Result<String, DevclusterError> {
    let mut command = Command::new(process::program("muster-noded")?);
    command.arg("join").arg("--config").arg(layout.config(Daemon::Node(number))).args(["--token-file", "-"]);
    run(command, format!("muster-noded join (node{number})"), token)
}

/// Runs a command to its end, with `input` on its stdin.
fn run(mut command: Command, line: String, input: &str) -> Result<String, DevclusterError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let program = command.get_program().into();
    let mut child = command.spawn().map_err(|source| DevclusterError::Spawn { program, source })?;
    // A command that ends without reading tells why by its status.
    let _ = child.stdin.take().expect("stdin was asked for").write_all(input.as_bytes());
    let output = child.wait_with_output().map_err(DevclusterError::file("wait for", &line))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(out.into_owned());
    }
    Err(DevclusterError::Command {
        command: line,
        status: output.status.to_string(),
        output: format!("{out}{err}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_names_the_daemons_own_places() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::open(dir.path()).unwrap();
        let record = Record { net: "127.64.9".to_owned(), nodes: 3, masters: 1, isolate: false };
        let node: toml::Table = config_text(&layout, &record, Daemon::Node(3)).parse().unwrap();
        assert_eq!(node["name"].as_str(), Some("node3"));
        assert_eq!(node["listen"].as_str(), Some("127.64.9.3:1811"));
        assert_eq!(node["hooks_dir"].as_str(), layout.node(3).join("hooks").to_str());
        let master: toml::Table = config_text(&layout, &record, Daemon::Master(1)).parse().unwrap();
        assert_eq!(master["listen"].as_str(), Some("127.64.9.1:1810"));
        assert_eq!(master["hooks_source"].as_str(), layout.hooks_source().to_str());
        assert!(node.get("hooks_source").is_none());
        assert_eq!(master["state_dir"].as_str(), layout.node(1).join("state").to_str());
    }
}
