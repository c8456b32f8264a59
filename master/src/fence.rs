//! Runs the site's command that makes sure that a node is off: `COMMAND NODE ADDRESS` on this host, without a shell.
//!
//! | environment | |
//! |---|---|
//! | `PATH` | as this daemon has it |
//! | `GANETI_CLUSTER` | the cluster's name |
//!
//! There is nothing else in it. The command is in a process group of its own, in `/`, with nothing to read. It may be run
//! again for the same failover (after a restart of the master), and must then be fine with a node that is off already. With
//! its end, and with its job's, whatever is left of its group is killed.

use std::{
    fs::File,
    io,
    net::IpAddr,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use muster_core::names::NodeName;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tokio::{
    io::{AsyncReadExt, Interest, unix::AsyncFd},
    net::unix::pipe::Receiver,
    process::{Child, Command},
    time::{sleep, timeout},
};

/// How long a command may take: power switches and management controllers answer within seconds, or not at all.
pub(crate) const FENCE_LIMIT: Duration = Duration::from_secs(60);
/// How long a killed command may take to be gone, and its output to end. One that a driver holds up is left alone then.
const END_LIMIT: Duration = Duration::from_secs(2);
/// A command that is being written is waited for this often and long.
const BUSY_RETRIES_MAX: u32 = 10;
const BUSY_RETRY: Duration = Duration::from_millis(100);
/// What is kept of the output's end.
const OUTPUT_BYTES_MAX: usize = 2048;
/// What is said of it.
const OUTPUT_LINES_MAX: usize = 8;
/// Where the daemon has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Why a node does not count as fenced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FenceError {
    /// It would be looked for somewhere.
    #[error("the fence command {0:?} is not the absolute path of a program")]
    NotAbsolute(String),
    /// It did not begin.
    #[error("could not run the fence command {command}")]
    NotRun {
        /// The program.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It said that the node may not be off.
    #[error("the fence command {command} for {node} {how}{output}")]
    Failed {
        /// The program.
        command: String,
        /// The node.
        node: NodeName,
        /// How it ended.
        how: String,
        /// The end of its output, in words.
        output: String,
    },
}

/// What is to be fenced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fencing<'a> {
    /// The program.
    pub(crate) command: &'a str,
    /// The node.
    pub(crate) node: &'a NodeName,
    /// Its address.
    pub(crate) address: IpAddr,
    /// The cluster's name.
    pub(crate) cluster: &'a str,
}

/// Runs the command once. Dropped before its end, it kills the command.
pub(crate) async fn fence(what: Fencing<'_>, limit: Duration) -> Result<(), FenceError> {
    if !Path::new(what.command).is_absolute() {
        return Err(FenceError::NotAbsolute(what.command.to_owned()));
    }
    let not_run = |source| FenceError::NotRun { command: what.command.to_owned(), source };
    let mut started = Run::start(what);
    for _ in 0..BUSY_RETRIES_MAX {
        if !started.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ExecutableFileBusy) {
            break;
        }
        sleep(BUSY_RETRY).await;
        started = Run::start(what);
    }
    let mut run = started.map_err(not_run)?;
    let in_time = run.until(limit).await;
    let (status, output) = run.end().await;
    let how = match (in_time, status) {
        (true, Some(status)) if status.success() => return Ok(()),
        (true, Some(status)) => ended(status),
        (true, None) => "ended, and nobody can say how".to_owned(),
        (false, _) => format!("did not end within {} s and was killed", limit.as_secs()),
    };
    let (command, node) = (what.command.to_owned(), what.node.clone());
    Err(FenceError::Failed { command, node, how, output: output.words() })
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// All that is in the command's process group, killed when this goes.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // Its first process was not reaped yet, so that the number is nobody else's; the group may be empty.
        kill_process_group(self.0, Signal::KILL).unwrap_or_default();
    }
}

/// A command that runs. The group goes before the child, whose number it must be.
struct Run {
    group: Group,
    child: Child,
    exited: AsyncFd<OwnedFd>,
    output: Receiver,
    tail: Tail,
}

impl Run {
    fn start(what: Fencing<'_>) -> Result<Self, io::Error> {
        let (reader, writer) = io::pipe()?;
        let output = Receiver::from_file(File::from(OwnedFd::from(reader)))?;
        let child = Command::new(what.command)
            .arg(what.node.as_str())
            .arg(what.address.to_string())
            .current_dir("/")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into()))
            .env("GANETI_CLUSTER", what.cluster)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = Group(pid.ok_or_else(|| io::Error::other("it has no process id"))?);
        let exited = pidfd_open(group.0, PidfdFlags::empty())?;
        // SAFETY: it is a valid descriptor that nothing else owns, and `AsyncFd` closes it.
        let exited = unsafe { AsyncFd::register_with_interest(exited, Interest::READABLE)? };
        Ok(Run { group, child, exited, output, tail: Tail::default() })
    }

    /// Waits for the end of the command's first process; false when that did not come in time.
    async fn until(&mut self, limit: Duration) -> bool {
        let exit = async {
            let exit = self.exited.readable();
            tokio::pin!(exit);
            let mut open = true;
            loop {
                tokio::select! {
                    exited = &mut exit => return exited.is_ok(),
                    more = self.tail.read(&mut self.output), if open => open = more,
                }
            }
        };
        timeout(limit, exit).await.unwrap_or(false)
    }

    /// Kills what is left, and gives how the first process ended and what was said.
    async fn end(self) -> (Option<ExitStatus>, Tail) {
        let Run { group, mut child, mut output, mut tail, .. } = self;
        drop(group);
        let status = timeout(END_LIMIT, child.wait()).await;
        // A process that left the group may hold the output open.
        let rest = async { while tail.read(&mut output).await {} };
        timeout(END_LIMIT, rest).await.unwrap_or_default();
        (status.ok().and_then(Result::ok), tail)
    }
}

/// The end of an output.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    /// Takes in what there is; false once there is nothing more. May be dropped at any time.
    async fn read(&mut self, output: &mut Receiver) -> bool {
        let mut chunk = [0; 4096];
        match output.read(&mut chunk).await {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.0.extend_from_slice(chunk.get(..length).unwrap_or_default());
                self.0.drain(..self.0.len().saturating_sub(OUTPUT_BYTES_MAX));
                true
            }
        }
    }

    /// The last lines in one, after a colon; empty where nothing was said.
    fn words(&self) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let lines = text.lines().map(|line| line.trim().replace(char::is_control, " "));
        let mut last: Vec<String> =
            lines.rev().filter(|line| !line.is_empty()).take(OUTPUT_LINES_MAX).collect();
        last.reverse();
        if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

    use super::*;

    /// No wait of a test takes longer.
    const TEST_LIMIT: Duration = Duration::from_secs(30);

    struct Site(tempfile::TempDir);

    impl Site {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let script = folder.path().join("fence");
            fs::write(&script, format!("#!/bin/sh\ncd {}\n{text}\n", folder.path().display())).unwrap();
            fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
            Site(folder)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        async fn fence(&self, limit: Duration) -> Result<(), String> {
            let command = self.file("fence").display().to_string();
            let node = NodeName::parse("node2").unwrap();
            let address = "192.0.2.2".parse().unwrap();
            let what = Fencing { command: &command, node: &node, address, cluster: "dev" };
            fence(what, limit).await.map_err(|error| crate::chain(&error).replace(&command, "COMMAND"))
        }

        /// The number that the script wrote of one of its processes.
        async fn process(&self) -> Pid {
            let read = || fs::read_to_string(self.file("pid")).ok()?.strip_suffix('\n')?.parse().ok();
            Pid::from_raw(eventually(read).await).unwrap()
        }
    }

    #[tokio::test]
    async fn a_command_that_is_being_written_is_waited_for() {
        let site = Site::new("true");
        // Keeps it open for a while, and says when it has it.
        let mut writer = std::process::Command::new("sh")
            .args(["-c", "exec 3>>\"$0\"; echo open; exec sleep 0.3"])
            .arg(site.file("fence"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(writer.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
        site.fence(TEST_LIMIT).await.unwrap();
        writer.wait().unwrap();
    }

    async fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let wait = async {
            loop {
                match look() {
                    Some(found) => return found,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        timeout(TEST_LIMIT, wait).await.expect("the test's limit has passed")
    }

    /// Nobody reaps a grandchild but init, which may not do so at once.
    async fn gone(process: Pid) {
        let stat = PathBuf::from(format!("/proc/{}/stat", process.as_raw_pid()));
        let dead = || match fs::read_to_string(&stat) {
            Ok(text) => text.rsplit(") ").next()?.starts_with(['Z', 'X']).then_some(()),
            Err(_) => Some(()),
        };
        eventually(dead).await;
    }

    #[tokio::test]
    async fn exit_0_is_fenced_and_the_command_sees_only_what_is_documented() {
        let site = Site::new("echo \"$@\" > args; env > env; cat > stdin; pwd -P > /dev/null");
        assert_eq!(site.fence(FENCE_LIMIT).await, Ok(()));
        assert_eq!(fs::read_to_string(site.file("args")).unwrap(), "node2 192.0.2.2\n");
        assert_eq!(fs::read_to_string(site.file("stdin")).unwrap(), "");
        let env = fs::read_to_string(site.file("env")).unwrap();
        let names = env.lines().map(|line| line.split_once('=').unwrap().0);
        // The shell sets these three by itself.
        let mut names: Vec<&str> =
            names.filter(|name| !["PWD", "OLDPWD", "_", "SHLVL"].contains(name)).collect();
        names.sort_unstable();
        assert_eq!(names, ["GANETI_CLUSTER", "PATH"]);
        assert!(env.contains("GANETI_CLUSTER=dev\n"), "{env}");
        // A master that was restarted in the middle runs it again.
        assert_eq!(site.fence(FENCE_LIMIT).await, Ok(()));
    }

    #[tokio::test]
    async fn a_failure_shows_the_last_lines() {
        let loud = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done";
        let site = Site::new(&format!("{loud}; printf 'no \\033 power switch\\n\\n' >&2; exit 3"));
        let error = site.fence(FENCE_LIMIT).await.unwrap_err();
        assert!(
            error.starts_with("the fence command COMMAND for node2 failed with exit code 3: "),
            "{error}"
        );
        assert!(error.ends_with("line 19998; line 19999; no   power switch"), "{error}");
        assert!(!error.contains("line 19900"), "{error}");
        let error = Site::new("exit 1").fence(FENCE_LIMIT).await.unwrap_err();
        assert_eq!(error, "the fence command COMMAND for node2 failed with exit code 1");
        let error = Site::new("kill -9 $$").fence(FENCE_LIMIT).await.unwrap_err();
        assert_eq!(error, "the fence command COMMAND for node2 was ended by signal 9");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_its_group() {
        let site = Site::new("echo asking; sleep 600 & echo $! > pid; wait");
        let error = site.fence(Duration::from_secs(1)).await.unwrap_err();
        let expected = "the fence command COMMAND for node2 did not end within 1 s and was killed: asking";
        assert_eq!(error, expected);
        gone(site.process().await).await;
    }

    #[tokio::test]
    async fn what_a_command_leaves_behind_does_not_hold_the_job() {
        let site = Site::new("sleep 600 & echo $! > pid");
        assert_eq!(timeout(TEST_LIMIT, site.fence(FENCE_LIMIT)).await.unwrap(), Ok(()));
        gone(site.process().await).await;
        // One that has left the group holds the output open.
        let site = Site::new("setsid -f sh -c 'echo $$ > pid; exec sleep 600'; sleep 0.2");
        assert_eq!(timeout(TEST_LIMIT, site.fence(FENCE_LIMIT)).await.unwrap(), Ok(()));
        rustix::process::kill_process(site.process().await, Signal::KILL).unwrap();
    }

    #[tokio::test]
    async fn a_command_ends_with_its_job() {
        let site = Site::new("sleep 600 & echo $! > pid; wait");
        let process = tokio::select! {
            ended = site.fence(FENCE_LIMIT) => panic!("{ended:?}"),
            process = site.process() => process,
        };
        gone(process).await;
    }

    #[tokio::test]
    async fn a_program_that_is_missing_or_no_path_is_told() {
        let site = Site::new("exit 0");
        fs::remove_file(site.file("fence")).unwrap();
        let error = site.fence(FENCE_LIMIT).await.unwrap_err();
        assert!(error.starts_with("could not run the fence command COMMAND: No such file"), "{error}");
        let node = NodeName::parse("node2").unwrap();
        let address = "192.0.2.2".parse().unwrap();
        let what = Fencing { command: "sh", node: &node, address, cluster: "dev" };
        assert!(matches!(fence(what, FENCE_LIMIT).await, Err(FenceError::NotAbsolute(_))));
    }
}
