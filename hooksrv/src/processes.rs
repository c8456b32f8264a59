//! Processes of a script beside its main one: who belongs to its session, and the end of all of them (HOOKS.md X7, X8).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Between TERM and KILL (HOOKS.md X8).
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Longest wait for the end after KILL: only a process stuck in the kernel takes longer than an instant.
const KILL_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often `/proc` is read while an end is awaited; short against the grace, long against the reading.
const POLL: Duration = Duration::from_millis(20);
/// KILL is sent again this often, for a member that moved to another group at the wrong moment.
const KILL_AGAIN: Duration = Duration::from_millis(200);

/// A session leader that can be told from a later process with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Number of the process, its group and its session.
    pub pid: i32,
    /// Start in clock ticks since the machine's start.
    pub start_ticks: u64,
    /// Which start of the machine.
    pub boot_id: String,
}

impl ProcessId {
    /// Describes a process that exists; `None` if it does not.
    pub fn of(pid: i32) -> Option<Self> {
        let start_ticks = Status::read(pid)?.start_ticks;
        Some(ProcessId { pid, start_ticks, boot_id: boot_id()? })
    }
}

fn boot_id() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Some processes did not end although they got KILL.
#[derive(Debug, thiserror::Error)]
#[error("{count} processes of session {session} are still there 5 s after KILL")]
pub struct StillThere {
    session: i32,
    count: usize,
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) pid: i32,
    pub(crate) name: String,
    alive: bool,
    group: i32,
    session: i32,
    start_ticks: u64,
}

impl Status {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name stands in parentheses and may itself hold some, and blanks.
    fn parse(stat: &[u8]) -> Option<Self> {
        let open = stat.iter().position(|byte| *byte == b'(')?;
        let close = stat.iter().rposition(|byte| *byte == b')')?;
        let pid = std::str::from_utf8(stat.get(..open)?).ok()?.trim().parse().ok()?;
        let name = stat.get(open + 1..close)?.escape_ascii().to_string();
        let fields: Vec<&str> =
            std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace().collect();
        Some(Status {
            pid,
            name,
            alive: !matches!(*fields.first()?, "Z" | "X" | "x"),
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

/// All processes; one that ends meanwhile is left out.
fn all() -> Vec<Status> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Status::read)
        .collect()
}

/// Living members of a script's session or group. Zombies don't count: their parent may never fetch them.
pub(crate) fn members(leader: Pid) -> Vec<Status> {
    let number = leader.as_raw_pid();
    let mut members = all();
    members.retain(|process| process.alive && (process.session == number || process.group == number));
    members
}

/// Living members that are left after a normal end; cheap where there are none.
pub(crate) fn left_behind(leader: Pid) -> Vec<Status> {
    match rustix::process::test_kill_process_group(leader) {
        Err(rustix::io::Errno::SRCH) => Vec::new(),
        Ok(()) | Err(_) => members(leader),
    }
}

/// Ends a session: TERM, grace, KILL, until none of it is alive.
///
/// Blocks up to [`GRACE`] and [`KILL_WAIT_MAX`]: to be called where that is allowed. The leader should not have been
/// reaped, so that its number can't be another's.
///
/// # Errors
/// When some process outlives KILL.
pub(crate) fn end_session(leader: Pid) -> Result<(), StillThere> {
    if ended_by(leader, Signal::TERM, GRACE) {
        return Ok(());
    }
    let deadline = Instant::now() + KILL_WAIT_MAX;
    while Instant::now() < deadline {
        if ended_by(leader, Signal::KILL, KILL_AGAIN) {
            return Ok(());
        }
    }
    Err(StillThere { session: leader.as_raw_pid(), count: members(leader).len() })
}

/// Sends a signal to every group of the session and waits for all to be gone; false if some are not.
fn ended_by(leader: Pid, signal: Signal, limit: Duration) -> bool {
    let _may_be_gone = rustix::process::kill_process_group(leader, signal);
    let groups: BTreeSet<i32> = members(leader).iter().map(|process| process.group).collect();
    for group in groups.into_iter().filter(|group| *group != leader.as_raw_pid()).filter_map(Pid::from_raw) {
        let _may_be_gone = rustix::process::kill_process_group(group, signal);
    }
    let deadline = Instant::now() + limit;
    loop {
        if members(leader).is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until no process is left that was started with this argument, 5 s at most. A process that is about to become a
/// script has its parent's command line still: so long it can't be found by where it writes.
pub(crate) fn await_without_argument(argument: &OsStr) -> bool {
    let deadline = Instant::now() + KILL_WAIT_MAX;
    loop {
        if !all().iter().any(|process| process.alive && has_argument(process.pid, argument)) {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

fn has_argument(pid: i32, argument: &OsStr) -> bool {
    fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes()))
}

/// Ends what is left of a call that an earlier daemon process began: the session it recorded, and every session
/// with a process whose standard output or error is a file in the call's output directory (a daemon may have died
/// between the start of a script and the recording of it).
///
/// # Errors
/// When some process outlives KILL.
pub(crate) fn end_remains(recorded: Option<&ProcessId>, output_dir: Option<&Path>) -> Result<(), StillThere> {
    let mut sessions: BTreeSet<i32> =
        recorded.filter(|process| is_current(process)).map(|p| p.pid).into_iter().collect();
    if let Some(dir) = output_dir {
        let own = Status::read(rustix::process::getpid().as_raw_pid()).map(|status| status.session);
        sessions.extend(writers(dir).into_iter().filter(|session| Some(*session) != own));
    }
    for leader in sessions.into_iter().filter_map(Pid::from_raw) {
        end_session(leader)?;
    }
    Ok(())
}

/// Whether the number still means the recorded session. A number stays taken while a process of its session lives,
/// so members without a leader are those of the session recorded.
fn is_current(recorded: &ProcessId) -> bool {
    boot_id().as_ref() == Some(&recorded.boot_id)
        && Status::read(recorded.pid).is_none_or(|status| status.start_ticks == recorded.start_ticks)
}

/// The sessions of living processes whose descriptor 1 or 2 is a file in the directory.
fn writers(dir: &Path) -> BTreeSet<i32> {
    let is_within = |process: &Status| {
        [1, 2].iter().any(|descriptor| {
            fs::read_link(format!("/proc/{}/fd/{descriptor}", process.pid))
                .is_ok_and(|file| Path::new(OsStr::from_bytes(file.as_os_str().as_bytes())).starts_with(dir))
        })
    };
    all()
        .into_iter()
        .filter(|process| process.alive && is_within(process))
        .map(|process| process.session)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_parentheses_and_blanks() {
        let line = b"42 (a) (b c) S 1 40 39 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        let expected = Status {
            pid: 42,
            name: "a) (b c".to_owned(),
            alive: true,
            group: 40,
            session: 39,
            start_ticks: 777,
        };
        assert_eq!(Status::parse(line), Some(expected));
        assert!(!Status::parse(b"1 (x) Z 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5").expect("whole").alive);
        assert_eq!(Status::parse(b"1 (x"), None);
    }

    #[test]
    fn a_number_used_again_is_not_the_recorded_process() {
        let own = ProcessId::of(rustix::process::getpid().as_raw_pid()).expect("this process exists");
        assert!(is_current(&own));
        assert!(!is_current(&ProcessId { start_ticks: own.start_ticks + 1, ..own.clone() }));
        assert!(!is_current(&ProcessId { boot_id: "another".to_owned(), ..own }));
    }
}
