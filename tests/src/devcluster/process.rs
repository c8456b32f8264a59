//! Daemons as processes: starting one so that it outlives the caller, finding it again, signalling it, waiting for its states.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::error::DevclusterError;
use super::layout::{Daemon, Layout};

/// Environment variable that marks every process started for a cluster, and what these start themselves.
pub(super) const MARK: &str = "MUSTER_DEVCLUSTER";
/// How often a state that is waited for is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A signal must have worked within this; a process in the middle of a disk write takes longest.
pub(super) const SIGNAL_LIMIT: Duration = Duration::from_secs(10);
/// How much of a log an error shows.
const TAIL_LINES: usize = 15;

/// Looks again and again whether something has come true, up to a limit.
pub(super) fn wait_until(limit: Duration, mut true_now: impl FnMut() -> bool) -> bool {
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

/// A program that stands beside this one.
pub(super) fn program(name: &str) -> Result<PathBuf, DevclusterError> {
    let own = std::env::current_exe().map_err(DevclusterError::file("find", "the running program"))?;
    let dir = own.parent().expect("a program's path has a directory");
    let path = dir.join(name);
    match fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(source) => Err(DevclusterError::File { what: "find", path, source }),
    }
}

/// Makes a command's process independent of its caller: own session, no descriptor but the three given.
pub(super) fn detach(command: &mut Command) -> &mut Command {
    let prepare = || {
        rustix::process::setsid()?;
        // SAFETY: the call only marks descriptors of the new process; no memory is involved.
        let marked = unsafe { libc::close_range(3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) };
        if marked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls, which allocate nothing and take no lock.
    unsafe { command.pre_exec(prepare) }
}

/// Gives a command's process, and what it starts, a host name of their own.
fn isolate(command: &mut Command, host_name: CString) -> &mut Command {
    let prepare = move || {
        // SAFETY: both calls only change the namespace of the new process; the name is valid for the second.
        let changed = unsafe {
            libc::unshare(libc::CLONE_NEWUTS) == 0
                && libc::sethostname(host_name.as_ptr(), host_name.count_bytes()) == 0
        };
        if changed { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls, which allocate nothing and take no lock.
    unsafe { command.pre_exec(prepare) }
}

/// `CLOSE_RANGE_CLOEXEC` of linux/close_range.h, in the type that the call takes.
const CLOSE_RANGE_CLOEXEC: libc::c_int = 1 << 2;

/// Starts a daemon in its own session, logging to its log file, and writes its pid file.
pub(super) fn spawn(layout: &Layout, daemon: Daemon, args: &[String]) -> Result<Child, DevclusterError> {
    let program = program(match daemon {
        Daemon::Node(_) => "muster-noded",
        Daemon::Master(_) => "muster-masterd",
    })?;
    let log_path = layout.log(daemon);
    let open = || OpenOptions::new().create(true).append(true).open(&log_path);
    let out = open().map_err(DevclusterError::file("open", &log_path))?;
    let err = open().map_err(DevclusterError::file("open", &log_path))?;
    let mut command = Command::new(&program);
    command.arg("--config").arg(layout.config(daemon)).args(args).env(MARK, layout.dir()).current_dir("/");
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    if layout.record()?.isolate {
        let (Daemon::Node(number) | Daemon::Master(number)) = daemon;
        isolate(&mut command, CString::new(format!("node{number}")).expect("a number holds no NUL"));
    }
    let child = detach(&mut command).spawn().map_err(|source| DevclusterError::Spawn { program, source })?;
    let pid_file = layout.pid_file(daemon);
    fs::write(&pid_file, format!("{}\n", child.id())).map_err(DevclusterError::file("write", pid_file))?;
    Ok(child)
}

/// The process that a pid file names, if it runs and one of its arguments is `argument` (a pid alone may have been used again).
pub(super) fn find(pid_file: &Path, argument: &Path) -> Option<Pid> {
    let raw: i32 = fs::read_to_string(pid_file).ok()?.trim().parse().ok()?;
    let line = fs::read(format!("/proc/{raw}/cmdline")).ok()?;
    let wanted = argument.as_os_str().as_encoded_bytes();
    line.split(|byte| *byte == 0).any(|part| part == wanted).then(|| Pid::from_raw(raw)).flatten()
}

/// The daemon's process, if it runs.
pub(super) fn running(layout: &Layout, daemon: Daemon) -> Option<Pid> {
    find(&layout.pid_file(daemon), &layout.config(daemon))
}

/// The state letter that the kernel gives for a process.
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process is stopped by a signal.
pub(super) fn stopped(pid: Pid) -> bool {
    state(pid) == Some('T')
}

/// Whether nobody can run in a process any more, but perhaps a thread that is on its way out.
fn is_zombie(pid: Pid) -> bool {
    state(pid).is_none_or(|state| state == 'Z' || state == 'X')
}

/// Whether a process has ended (one that nobody has waited for yet has ended too). The last thread to go closes the files, and with
/// them their locks: until then a successor would be told that another process has them.
pub(super) fn ended(pid: Pid) -> bool {
    let threads = || fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).map_or(0, Iterator::count);
    is_zombie(pid) && threads() <= 1
}

/// The daemon's process, if it died and some of its threads are still to go.
pub(super) fn dying(layout: &Layout, daemon: Daemon) -> Option<Pid> {
    let raw: i32 = fs::read_to_string(layout.pid_file(daemon)).ok()?.trim().parse().ok()?;
    Pid::from_raw(raw).filter(|pid| is_zombie(*pid) && !ended(*pid))
}

/// Sends a signal to a daemon that runs.
pub(super) fn signal(layout: &Layout, daemon: Daemon, signal: Signal) -> Result<Pid, DevclusterError> {
    let pid = running(layout, daemon).ok_or(DevclusterError::NotRunning(daemon))?;
    kill_process(pid, signal).map_err(|error| DevclusterError::Signal { daemon, source: error.into() })?;
    Ok(pid)
}

/// The last lines of a daemon's log.
pub(super) fn log_tail(layout: &Layout, daemon: Daemon) -> String {
    let bytes = fs::read(layout.log(daemon)).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
