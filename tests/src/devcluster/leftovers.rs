//! What a cluster's daemons may leave behind when they end: scripts, children of scripts, guests.
//!
//! They are known by their environment: what a daemon starts inherits its mark, and a hook script, whose environment is cleared,
//! has a `GANETI_DATA_DIR` in the cluster's directory. A guest's process is known by the files that its command line names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use super::error::DevclusterError;
use super::process::{MARK, SIGNAL_LIMIT, ended, wait_until};

/// Kills everything that belongs to the cluster in `dir`, the caller and process `spare` excepted, until nothing is left.
pub(super) fn kill_all(dir: &Path, spare: Option<Pid>) -> Result<(), DevclusterError> {
    let gone = wait_until(SIGNAL_LIMIT, || {
        let found: Vec<Pid> = members(dir, spare).into_iter().filter(|pid| !ended(*pid)).collect();
        for pid in &found {
            // One that ended by itself in between is what is wanted.
            let _ = kill_process(*pid, Signal::KILL);
        }
        found.is_empty()
    });
    if gone {
        return Ok(());
    }
    Err(DevclusterError::StillThere {
        what: format!("processes of {} are left", dir.display()),
        limit: SIGNAL_LIMIT,
    })
}

fn members(dir: &Path, spare: Option<Pid>) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter(|pid| *pid != own && Some(*pid) != spare)
        .filter(|pid| {
            // A process of another user can't be read, and is none of ours.
            let read = |name: &str| fs::read(format!("/proc/{}/{name}", pid.as_raw_nonzero()));
            read("environ").is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| belongs(entry, dir)))
                || read("cmdline").is_ok_and(|line| is_guest(&line, dir))
        })
        .collect()
}

/// Whether a command line is one of QEMU that names a file in the cluster's directory.
fn is_guest(line: &[u8], dir: &Path) -> bool {
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next().map(|program| Path::new(OsStr::from_bytes(program)));
    let name = program.and_then(Path::file_name).unwrap_or_default();
    let inside = [dir.as_os_str().as_bytes(), b"/"].concat();
    name.as_bytes().starts_with(b"qemu-")
        && words.any(|word| word.windows(inside.len()).any(|part| part == inside))
}

/// Whether an environment entry says that its process belongs to the cluster in `dir`.
fn belongs(entry: &[u8], dir: &Path) -> bool {
    let Some(at) = entry.iter().position(|byte| *byte == b'=') else { return false };
    let (name, value) = (&entry[..at], Path::new(OsStr::from_bytes(&entry[at + 1..])));
    (name == MARK.as_bytes() && value == dir) || (name == b"GANETI_DATA_DIR" && value.starts_with(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_known_by_the_files_that_it_has_open() {
        let dir = Path::new("/tmp/c1");
        for (line, expected) in [
            ("/usr/bin/qemu-system-x86_64\0-blockdev\0driver=file,filename=/tmp/c1/node1/storage/d", true),
            ("qemu-storage-daemon\0--blockdev\0filename=/tmp/c1/node1/storage/d", true),
            ("/usr/bin/qemu-system-x86_64\0-blockdev\0driver=file,filename=/tmp/c10/node1/storage/d", false),
            ("/usr/bin/less\0/tmp/c1/node1/log", false),
            ("", false),
        ] {
            assert_eq!(is_guest(line.as_bytes(), dir), expected, "{line}");
        }
    }

    #[test]
    fn only_the_clusters_own_processes_are_taken_for_leftovers() {
        let dir = Path::new("/tmp/c1");
        for (entry, expected) in [
            ("MUSTER_DEVCLUSTER=/tmp/c1", true),
            ("MUSTER_DEVCLUSTER=/tmp/c10", false),
            ("GANETI_DATA_DIR=/tmp/c1/node2/state/data", true),
            ("GANETI_DATA_DIR=/tmp/c10/node2/state/data", false),
            ("MUSTER_DIR=/tmp/c1", false),
            ("PWD=/tmp/c1", false),
            ("no entry", false),
        ] {
            assert_eq!(belongs(entry.as_bytes(), dir), expected, "{entry}");
        }
    }
}
