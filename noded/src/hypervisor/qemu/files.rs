//! The files of a guest: everything that outlives the daemon is found by the instance's uuid.

use std::{
    fs,
    io::{self, Seek},
    path::{Path, PathBuf},
};

use uuid::Uuid;

/// How large the console's log may become before it begins anew: hours of what systems say, a moment of a flood.
const CONSOLE_LOG_BYTES_MAX: u64 = 1024 * 1024;
/// How much of a log that begins anew is kept.
const CONSOLE_LOG_BYTES_KEPT: i64 = 256 * 1024;

/// Where a guest's files are. Names hold uuids only, never a name from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GuestFiles {
    /// Its directory, which holds all files that are no sockets.
    pub(crate) folder: PathBuf,
    /// What the daemon knows of it.
    pub(crate) record: PathBuf,
    /// QEMU's process number.
    pub(crate) pid: PathBuf,
    /// There while the guest is to start anew when it has shut down.
    pub(crate) rebooting: PathBuf,
    /// There while the guest awaits, or has, the state of another, and was not resumed since.
    pub(crate) incoming: PathBuf,
    /// There while the guest is sent to another host.
    pub(crate) sending: PathBuf,
    /// What QEMU itself says.
    pub(crate) log: PathBuf,
    /// What the guest wrote to its serial console.
    pub(crate) console_log: PathBuf,
    /// What was in there before it was too much.
    pub(crate) console_log_old: PathBuf,
    /// The daemon's control socket.
    pub(crate) control: PathBuf,
    /// A second control socket, for people.
    pub(crate) operator: PathBuf,
    /// The serial console.
    pub(crate) console: PathBuf,
}

impl GuestFiles {
    /// The files of a guest, below a directory for state and one for sockets.
    pub(crate) fn of(state: &Path, run: &Path, guest: Uuid) -> Self {
        let folder = state.join(guest.to_string());
        let socket = |kind: &str| run.join(format!("{guest}.{kind}"));
        GuestFiles {
            record: folder.join("guest.json"),
            pid: folder.join("pid"),
            rebooting: folder.join("rebooting"),
            incoming: folder.join("incoming.json"),
            sending: folder.join("sending.json"),
            log: folder.join("qemu.log"),
            console_log: folder.join("console.log"),
            console_log_old: folder.join("console.log.old"),
            control: socket("q"),
            operator: socket("o"),
            console: socket("c"),
            folder,
        }
    }
    /// All sockets; each path must fit into an address.
    pub(crate) fn sockets(&self) -> [&Path; 3] {
        [&self.control, &self.operator, &self.console]
    }

    /// Keeps the console's log small: what is too much becomes the old log, in place of an older one. A guest can write
    /// without end, and QEMU keeps all of it. What it writes at this very moment is lost.
    pub(crate) fn trim_console_log(&self) -> io::Result<()> {
        match fs::metadata(&self.console_log) {
            Ok(metadata) if metadata.len() > CONSOLE_LOG_BYTES_MAX => {
                let mut log = fs::OpenOptions::new().read(true).write(true).open(&self.console_log)?;
                log.seek(io::SeekFrom::End(-CONSOLE_LOG_BYTES_KEPT))?;
                let mut old = fs::File::create(&self.console_log_old)?;
                io::copy(&mut log, &mut old)?;
                // QEMU appends: it goes on at the new end.
                log.set_len(0)
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_log_that_grew_too_much_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let files = GuestFiles::of(folder.path(), folder.path(), Uuid::nil());
        files.trim_console_log().unwrap();
        fs::create_dir(&files.folder).unwrap();
        let size = usize::try_from(CONSOLE_LOG_BYTES_MAX).unwrap();
        fs::write(&files.console_log, vec![b'x'; size]).unwrap();
        files.trim_console_log().unwrap();
        assert!(!files.console_log_old.exists(), "it may be as large as that");
        fs::write(&files.console_log, vec![b'y'; size + 1]).unwrap();
        files.trim_console_log().unwrap();
        assert_eq!(fs::metadata(&files.console_log).unwrap().len(), 0);
        let kept = u64::try_from(CONSOLE_LOG_BYTES_KEPT).unwrap();
        assert_eq!(fs::metadata(&files.console_log_old).unwrap().len(), kept);
    }
}
