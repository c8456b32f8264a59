//! A cluster of real daemons for one test: made by `muster-devcluster`, used through `gnt`, ended and deleted with its value.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No command of a test takes longer; a wait that the design allows (15 s and some probes) is far below.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// A state that is waited for comes within this, also on a busy machine.
pub(crate) const STATE_LIMIT: Duration = Duration::from_secs(60);
/// How often a state that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Log lines that a failed test prints for each daemon.
const TAIL_LINES: usize = 40;

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) line: String,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Output {
    /// Fails the test unless the command exited with `code`.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "unexpected exit: {self}");
        self
    }

    /// Fails the test unless stdout and stderr together contain each of the words.
    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        let all = format!("{}{}", self.stdout, self.stderr);
        for word in words {
            assert!(all.contains(word), "{word:?} is not said: {self}");
        }
        self
    }

    /// Fails the test if stdout or stderr contain the word.
    #[track_caller]
    pub(crate) fn does_not_say(self, word: &str) -> Self {
        assert!(!self.stdout.contains(word) && !self.stderr.contains(word), "{word:?} is said: {self}");
        self
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` {}\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.line, self.status, self.stdout, self.stderr
        )
    }
}

/// A command that runs.
pub(crate) struct Running {
    line: String,
    child: Child,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
}

impl Running {
    /// Whether the command has ended.
    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the command's end; one that passes the limit is killed and fails the test.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Output {
        let mut status = None;
        let ended = wait_until(COMMAND_LIMIT, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        if !ended {
            self.child.kill().unwrap();
            status = Some(self.child.wait().unwrap());
        }
        let (stdout, stderr) = (self.stdout.join().unwrap(), self.stderr.join().unwrap());
        let output = Output { line: self.line, status: status.unwrap(), stdout, stderr };
        assert!(ended, "not over after {COMMAND_LIMIT:?}: {output}");
        output
    }
}

fn reader(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Starts a command with `input` on its stdin.
pub(crate) fn start(mut command: Command, input: &str) -> Running {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    let line = parts.map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("could not start `{line}`: {error}"));
    // A command that ends without reading shows by its status what it thinks.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let (stdout, stderr) = (reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap()));
    Running { line, child, stdout, stderr }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(command: Command) -> Output {
    start(command, "").finish()
}

/// Looks again and again whether something has come true, up to a limit.
pub(crate) fn wait_until(limit: Duration, mut true_now: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if true_now() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits for a state and fails the test when it does not come.
#[track_caller]
pub(crate) fn wait_for(what: &str, true_now: impl FnMut() -> bool) {
    assert!(wait_until(STATE_LIMIT, true_now), "{what}: not so after {STATE_LIMIT:?}");
}

/// The devcluster program that was built with this test.
pub(crate) fn devcluster_program() -> PathBuf {
    let path = PathBuf::from(env!("CARGO_BIN_EXE_muster-devcluster"));
    for other in ["gnt", "muster-masterd", "muster-noded", "muster-hooksrv"] {
        let beside = path.with_file_name(other);
        assert!(beside.exists(), "{} is not built: cargo build --workspace --all-targets", beside.display());
    }
    path
}

/// A cluster. Ended and deleted when the value goes away, or by its own holder when the test process is killed.
pub(crate) struct Cluster {
    temp: tempfile::TempDir,
}

impl Cluster {
    /// The cluster `dev` with nodes node1 to nodeN.
    pub(crate) fn up(nodes: u32) -> Self {
        Self::with(&["--nodes", &nodes.to_string()])
    }

    /// Daemons without a cluster.
    pub(crate) fn bare(nodes: u32) -> Self {
        Self::with(&["--nodes", &nodes.to_string(), "--bare"])
    }

    /// `muster-devcluster up` with arguments.
    pub(crate) fn with(args: &[&str]) -> Self {
        Self::with_prepared(args, |_| {})
    }

    /// As [`Cluster::with`], with something done in the empty directory before.
    pub(crate) fn with_prepared(args: &[&str], prepare: impl FnOnce(&Self)) -> Self {
        Self::made(args, prepare, |command| command)
    }

    /// As [`Cluster::with_prepared`], its daemons in a network and a file system view of their own, which shell
    /// commands set up first; for root.
    pub(crate) fn isolated(args: &[&str], setup: &str, prepare: impl FnOnce(&Self)) -> Self {
        Self::made(args, prepare, |command| {
            let mut outer = Command::new("unshare");
            let setup = format!("set -e; ip link set lo up; {setup}; exec \"$@\"");
            outer.args(["--mount", "--net", "--propagation", "private", "sh", "-c", &setup, "sh"]);
            outer.arg(command.get_program()).args(command.get_args());
            outer
        })
    }

    fn made(args: &[&str], prepare: impl FnOnce(&Self), wrap: impl FnOnce(Command) -> Command) -> Self {
        // Socket paths are short, so the directory is not the target directory's.
        let cluster =
            Cluster { temp: tempfile::Builder::new().prefix("muster-").tempdir_in("/tmp").unwrap() };
        fs::create_dir(cluster.dumps()).unwrap();
        prepare(&cluster);
        let owner = std::process::id().to_string();
        let all: Vec<&str> = ["up", "--owner", &owner].iter().chain(args).copied().collect();
        run(wrap(cluster.devcluster_command(&all))).exits(0);
        cluster
    }

    /// The cluster's directory.
    pub(crate) fn dir(&self) -> &Path {
        self.temp.path()
    }

    /// A node's directory.
    pub(crate) fn node_dir(&self, node: u32) -> PathBuf {
        self.dir().join(format!("node{node}"))
    }

    /// The first master's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.node_dir(1).join("run/master.sock")
    }

    /// Where scripts put their dumps.
    pub(crate) fn dumps(&self) -> PathBuf {
        self.dir().join("dumps")
    }

    /// The cluster's network, for example `127.64.1`.
    pub(crate) fn net(&self) -> String {
        let text = fs::read_to_string(self.dir().join("devcluster.json")).unwrap();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        record["net"].as_str().unwrap().to_owned()
    }

    /// A node's address.
    pub(crate) fn address(&self, node: u32) -> String {
        format!("{}.{node}", self.net())
    }

    /// `muster-devcluster` on this cluster.
    #[track_caller]
    pub(crate) fn devcluster(&self, args: &[&str]) -> Output {
        run(self.devcluster_command(args))
    }

    /// The command, to change something about it.
    pub(crate) fn devcluster_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(devcluster_program());
        command.arg("--dir").arg(self.dir()).args(args);
        command
    }

    /// `gnt` with arguments as they are.
    pub(crate) fn gnt_command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(devcluster_program().with_file_name("gnt"));
        command.args(args).env("MUSTER_SOCKET", self.socket()).env_remove("RUST_LOG");
        command
    }

    /// `gnt` with a line of arguments that are parted by blanks.
    #[track_caller]
    pub(crate) fn gnt(&self, line: &str) -> Output {
        run(self.gnt_command(&line.split_whitespace().collect::<Vec<_>>()))
    }

    /// `gnt` against the master daemon of another node.
    #[track_caller]
    pub(crate) fn gnt_at(&self, node: u32, line: &str) -> Output {
        let mut command = self.gnt_command(&line.split_whitespace().collect::<Vec<_>>());
        command.env("MUSTER_SOCKET", self.node_dir(node).join("run/master.sock"));
        run(command)
    }

    /// [`Cluster::gnt`] that must succeed.
    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> Output {
        self.gnt(line).exits(0)
    }

    /// [`Cluster::gnt`] that is left running.
    pub(crate) fn begin(&self, line: &str) -> Running {
        start(self.gnt_command(&line.split_whitespace().collect::<Vec<_>>()), "")
    }

    /// Submits an operation and gives its job's id.
    #[track_caller]
    pub(crate) fn submit(&self, line: &str) -> u64 {
        let output = self.ok(&format!("{line} --submit"));
        let id = output.stdout.trim().strip_prefix("JobID: ").and_then(|id| id.parse().ok());
        id.unwrap_or_else(|| panic!("no job id: {output}"))
    }

    /// Makes a node's daemon ask to join.
    #[track_caller]
    pub(crate) fn join(&self, node: u32) -> Output {
        let token = self.ok("node token create").stdout;
        let mut command = Command::new(devcluster_program().with_file_name("muster-noded"));
        command.arg("join").arg("--config").arg(self.node_dir(node).join("noded.toml"));
        command.args(["--token-file", "-"]);
        start(command, &token).finish().exits(0)
    }

    /// Puts an executable script into a node's hook directory.
    pub(crate) fn script(&self, node: u32, directory: &str, name: &str, body: &str) {
        let dir = self.node_dir(node).join("hooks").join(directory);
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts an OS definition onto a node: its `create` has this body, and its other scripts do nothing.
    pub(crate) fn os(&self, node: u32, name: &str, create: &str) {
        for script in ["create", "import", "export", "rename"] {
            self.os_script(node, name, script, if script == "create" { create } else { "exit 0" });
        }
        fs::write(self.os_dir(node, name).join("ganeti_api_version"), "20\n").unwrap();
    }

    /// Puts one script of an OS definition onto a node.
    pub(crate) fn os_script(&self, node: u32, name: &str, script: &str, body: &str) {
        let dir = self.os_dir(node, name);
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(script);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// An OS definition's directory on a node.
    pub(crate) fn os_dir(&self, node: u32, name: &str) -> PathBuf {
        self.node_dir(node).join("os").join(name)
    }

    /// Takes a script away.
    pub(crate) fn unscript(&self, node: u32, directory: &str, name: &str) {
        fs::remove_file(self.node_dir(node).join("hooks").join(directory).join(name)).unwrap();
    }

    /// Whether the first master's process runs, going by what the kernel says: who does not reap it does not matter.
    pub(crate) fn master_lives(&self) -> bool {
        let pid = fs::read_to_string(self.dir().join("master/masterd.pid")).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    }

    /// A node daemon's whole log.
    pub(crate) fn log(&self, daemon: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.dir().join(daemon).join("log")).unwrap_or_default())
            .into_owned()
    }

    /// Sets faults of a node's fake hypervisor and disk store; none with an empty text.
    pub(crate) fn faults(&self, node: u32, text: &str) {
        let path = self.node_dir(node).join("state/node/faults.toml");
        if text.is_empty() {
            fs::remove_file(path).unwrap();
        } else {
            let new = path.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, path).unwrap();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        // Down before the directory goes. A second failure would hide the first one.
        let mut command = self.devcluster_command(&["down"]);
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Cluster {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn print_logs(&self) {
        let Ok(entries) = fs::read_dir(self.dir()) else { return };
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path().join("log"))).collect();
        paths.sort();
        for path in paths.iter().filter(|path| path.is_file()) {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
            eprintln!("=== {}\n{tail}", path.display());
        }
    }
}
