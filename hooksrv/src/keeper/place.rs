//! The directory that a run's keeper and the daemon share: who holds it, what is to be run, the signs of life.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, fcntl_lock, mkfifoat};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, PidfdFlags, fcntl_getlk, pidfd_open};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe;

use crate::call_id::CallId;
use crate::run::{HookRequest, Plan, RunnerConfig};

/// Format of the request and the report.
pub(super) const VERSION: u32 = 1;
/// A lock is either free or held by a process that can be named; in between lies the end of its holder.
const LOOK_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why a keeper's directory could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// A file or directory of a run.
    #[error("could not {verb} {}", .path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A record is no record, or has no form as text.
    #[error("a record of {} is damaged", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Another program wrote it.
    #[error("{} has version {version}, which is not known", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The keeper's process could not be started.
    #[error("could not start a keeper by {}", .program.display())]
    Start {
        /// Its program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The lock is held, and its holder can't be told.
    #[error("the holder of {} can't be told", .path.display())]
    Holder {
        /// The lock.
        path: PathBuf,
    },
}

/// What a keeper is to do. It holds the scripts' environment, so the file is private and gone once it was read.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeeperRequest {
    pub(super) version: u32,
    pub(super) call: CallId,
    pub(super) plan: Plan,
    pub(super) request: HookRequest,
    pub(super) config: RunnerConfig,
}

/// A directory of a run.
#[derive(Debug, Clone)]
pub(super) struct Place {
    dir: PathBuf,
}

/// A place's lock, held by this process until it is dropped. The lock is the process's: no second handle of the file
/// may be opened and closed meanwhile.
#[derive(Debug)]
pub(super) struct PlaceLock {
    _file: File,
}

/// Who has a place.
#[derive(Debug)]
pub(super) enum Holder {
    /// There is no such place.
    Nothing,
    /// Nobody, and this process has it now.
    Free(PlaceLock),
    /// A keeper.
    Keeper(OwnedFd),
}

impl Place {
    pub(super) fn new(dir: PathBuf) -> Self {
        Place { dir }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn report_path(&self) -> PathBuf {
        self.dir.join("report")
    }

    fn request_path(&self) -> PathBuf {
        self.dir.join("request")
    }

    fn lock_path(&self) -> PathBuf {
        self.dir.join("lock")
    }

    fn wake_path(&self) -> PathBuf {
        self.dir.join("wake")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Makes the directory with a request. One that is there is of a call that was forgotten.
    pub(super) fn make(&self, request: &KeeperRequest) -> Result<(), KeeperError> {
        self.remove()?;
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.dir).map_err(failed("create", &self.dir))?;
        for path in [self.lock_path(), self.report_path(), self.log_path()] {
            create(&path)?;
        }
        let wake = self.wake_path();
        mkfifoat(CWD, &wake, Mode::RUSR | Mode::WUSR)
            .map_err(|error| failed("create", &wake)(error.into()))?;
        let path = self.request_path();
        let text = serde_json::to_vec(request)
            .map_err(|source| KeeperError::Record { path: path.clone(), source })?;
        create(&path)?.write_all(&text).map_err(failed("write", &path))
    }

    /// Removes the directory; it may be missing.
    pub(super) fn remove(&self) -> Result<(), KeeperError> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &self.dir)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Takes the lock if it is free; `None` if it is not.
    pub(super) fn lock(&self) -> Result<Option<PlaceLock>, KeeperError> {
        let path = self.lock_path();
        let file = open_lock(&path).map_err(failed("open", &path))?;
        let locked = try_lock(&file).map_err(failed("lock", &path))?;
        Ok(locked.then_some(PlaceLock { _file: file }))
    }

    /// Takes the request away and gives it; `None` if the run was given up before.
    pub(super) fn take_request(&self, _held: &PlaceLock) -> Result<Option<KeeperRequest>, KeeperError> {
        let path = self.request_path();
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path)(error)),
        };
        fs::remove_file(&path).map_err(failed("remove", &path))?;
        let request: KeeperRequest = serde_json::from_slice(&text)
            .map_err(|source| KeeperError::Record { path: path.clone(), source })?;
        if request.version != VERSION {
            return Err(KeeperError::Version { path, version: request.version });
        }
        Ok(Some(request))
    }

    /// Takes the request away, so that nobody runs it any more.
    pub(super) fn withdraw_request(&self, _held: &PlaceLock) -> Result<(), KeeperError> {
        let path = self.request_path();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path)(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Looks who has the place, and takes it if nobody does. Blocks for an instant.
    pub(super) fn look(&self) -> Result<Holder, KeeperError> {
        let path = self.lock_path();
        let file = match open_lock(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Holder::Nothing),
            Err(error) => return Err(failed("open", &path)(error)),
        };
        let deadline = Instant::now() + LOOK_MAX;
        while Instant::now() < deadline {
            if try_lock(&file).map_err(failed("lock", &path))? {
                return Ok(Holder::Free(PlaceLock { _file: file }));
            }
            if let Some(keeper) = holder(&file).map_err(|error| failed("look at", &path)(error.into()))? {
                return Ok(Holder::Keeper(keeper));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(KeeperError::Holder { path })
    }

    /// Where the keeper wakes the daemon. Neither end waits for the other: both open it for both.
    pub(super) fn wake_receiver(&self) -> Result<pipe::Receiver, KeeperError> {
        let path = self.wake_path();
        pipe::OpenOptions::new().read_write(true).open_receiver(&path).map_err(failed("open", &path))
    }

    /// The other end.
    pub(super) fn wake_sender(&self) -> Result<File, KeeperError> {
        let path = self.wake_path();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        options.open(&path).map_err(failed("open", &path))
    }

    /// What becomes a keeper's standard output and error.
    pub(super) fn log_writer(&self) -> Result<File, KeeperError> {
        let path = self.log_path();
        OpenOptions::new().append(true).open(&path).map_err(failed("open", &path))
    }

    /// What a keeper said, at most so much; nothing where it can't be read.
    pub(super) fn log(&self, bytes_max: usize) -> String {
        let mut bytes = fs::read(self.log_path()).unwrap_or_default();
        bytes.truncate(bytes_max);
        String::from_utf8_lossy(&bytes).trim_end().to_owned()
    }

    /// Makes the names of the files durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

pub(super) fn failed(verb: &'static str, path: &Path) -> impl Fn(io::Error) -> KeeperError {
    move |source| KeeperError::File { verb, path: path.to_owned(), source }
}

fn create(path: &Path) -> Result<File, KeeperError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path).map_err(failed("create", path))
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn try_lock(file: &File) -> io::Result<bool> {
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The process that holds the lock. Asked for again once the process is at hand: what holds it then is no later process
/// with the same number.
fn holder(file: &File) -> Result<Option<OwnedFd>, Errno> {
    let holder_now =
        || Ok::<_, Errno>(fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?.and_then(|lock| lock.pid));
    let Some(pid) = holder_now()? else {
        return Ok(None);
    };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => Ok((holder_now()? == Some(pid)).then_some(process)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}
