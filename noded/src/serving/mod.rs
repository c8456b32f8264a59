//! Serving copies to the nodes that mirror disks to them: for each copy a storage daemon of QEMU, which outlives this
//! daemon and is found again, and lets one peer in, by the name in its certificate.

mod argv;
mod disks;

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use muster_core::calls::MirrorStatus;
use muster_hooksrv::spawn_detached;
use muster_proto::transport::{MODE_PRIVATE, write_atomic};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use uuid::Uuid;

use self::argv::Export;
pub(crate) use self::disks::UnservedDisks;
use crate::{
    process,
    qmp::Qmp,
    storage::{DiskStore, StorageError, file_uuid, names},
    tail::tail,
};

/// The program.
const PROGRAM: &str = "qemu-storage-daemon";
/// How long it may take to serve its control socket: it has opened the file and listens by then.
const SERVE_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to end once it was told to; then it is killed, and awaited once more.
const QUIT_LIMIT: Duration = Duration::from_secs(3);
/// Between two looks.
const AGAIN: Duration = Duration::from_millis(10);
/// A free port may be taken by another before it is used; so many at once are not.
const PORTS_TRIED: u32 = 5;
/// Bytes in a MiB.
const MIB: u64 = 1024 * 1024;

/// Why a copy is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServingError {
    /// The copy's file can't be used.
    #[error("copy {copy} can't be served")]
    Disk {
        /// The copy.
        copy: Uuid,
        /// The cause.
        #[source]
        source: StorageError,
    },
    /// The copy's file has another size than its disk.
    #[error("copy {copy} has {bytes} bytes, and its disk {size_mib} MiB")]
    Size {
        /// The copy.
        copy: Uuid,
        /// Of the file.
        bytes: u64,
        /// Of the disk.
        size_mib: u64,
    },
    /// A file of its own could not be used.
    #[error("could not {doing} {path}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The storage daemon does not serve.
    #[error("copy {copy} can't be served: {words}")]
    Start {
        /// The copy.
        copy: Uuid,
        /// The daemon's words.
        words: String,
    },
    /// The storage daemon outlives being killed.
    #[error("what serves copy {0} does not end")]
    StillThere(Uuid),
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> ServingError {
    ServingError::File { doing, path: path.to_owned(), source }
}

/// To whom a copy is served, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    peer: String,
    listen: IpAddr,
    port: u16,
    /// It was served until this daemon ended that for a guest of this node: nothing is missing since.
    #[serde(default)]
    handed_over: bool,
}

/// The files of what serves a copy.
struct Files {
    folder: PathBuf,
    record: PathBuf,
    pid: PathBuf,
    log: PathBuf,
    control: PathBuf,
}

/// All copies that this node serves. Calls block.
pub(crate) struct Serving {
    state: PathBuf,
    run: PathBuf,
    /// The link to the data certificate's directory.
    certificates: PathBuf,
    disks: Arc<dyn DiskStore>,
    runtime: Handle,
    /// One change of a copy at a time.
    turn: Mutex<()>,
}

impl Serving {
    /// Copies are served below a directory for state, with sockets in another. Must be called within a runtime.
    ///
    /// # Errors
    /// When the directory can't be made.
    pub(crate) fn open(
        state: PathBuf,
        run: PathBuf,
        certificates: PathBuf,
        disks: Arc<dyn DiskStore>,
    ) -> Result<Self, ServingError> {
        fs::create_dir_all(&state).map_err(|source| file_error("make", &state, source))?;
        let runtime = Handle::current();
        Ok(Serving { state, run, certificates, disks, runtime, turn: Mutex::default() })
    }

    fn files(&self, copy: Uuid) -> Files {
        let folder = self.state.join(copy.to_string());
        Files {
            record: folder.join("serving.json"),
            pid: folder.join("pid"),
            log: folder.join("log"),
            control: self.run.join(format!("{copy}.s")),
            folder,
        }
    }

    /// Serves copies, with their sizes in MiB, to a peer; gives their ports. One that is served to it is left alone.
    /// On failure some may be served.
    pub(crate) fn serve(
        &self,
        copies: &[(Uuid, u64)],
        peer: &str,
        listen: IpAddr,
    ) -> Result<BTreeMap<Uuid, u16>, ServingError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ports = BTreeMap::new();
        for (copy, size_mib) in copies {
            ports.insert(*copy, self.serve_one(*copy, *size_mib, peer, listen)?);
        }
        Ok(ports)
    }

    fn serve_one(&self, copy: Uuid, size_mib: u64, peer: &str, listen: IpAddr) -> Result<u16, ServingError> {
        let disk = |source| ServingError::Disk { copy, source };
        let bytes = self.disks.open_read(copy).map_err(disk)?.metadata();
        let path = self.disks.path(copy).map_err(disk)?;
        let bytes = bytes.map_err(|source| file_error("look at", &path, source))?.len();
        if bytes != size_mib * MIB {
            return Err(ServingError::Size { copy, bytes, size_mib });
        }
        let files = self.files(copy);
        // One that hangs would make the peer's guest hang, and one that is being handed over ends.
        if let Some(known) = read(&files.record)
            && (known.peer.as_str(), known.listen, known.handed_over) == (peer, listen, false)
            && self.lives(&files)
        {
            return Ok(known.port);
        }
        self.end(copy, &files)?;
        let mut last = String::new();
        for _ in 0..PORTS_TRIED {
            let port = free_port(listen).map_err(|source| ServingError::Start {
                copy,
                words: format!("{listen} can't be listened on: {source}"),
            })?;
            let record = Record { peer: peer.to_owned(), listen, port, handed_over: false };
            match self.launch(copy, &files, &path, &record)? {
                None => return Ok(port),
                Some(words) => {
                    self.end(copy, &files)?;
                    last = words;
                    if !last.contains("in use") {
                        break;
                    }
                }
            }
        }
        Err(ServingError::Start { copy, words: last })
    }

    /// Starts a storage daemon and waits until it serves; gives its words where it does not.
    fn launch(
        &self,
        copy: Uuid,
        files: &Files,
        path: &Path,
        record: &Record,
    ) -> Result<Option<String>, ServingError> {
        fs::create_dir_all(&files.folder).map_err(|source| file_error("make", &files.folder, source))?;
        // The link is resolved once: the daemon reads one file after the other, and a renewal must not come in between.
        let certificates = fs::canonicalize(&self.certificates)
            .map_err(|source| file_error("find the data certificate", &self.certificates, source))?;
        // Before the process: whatever dies in between, it is found.
        write(&files.record, record)?;
        let log = fs::File::create(&files.log).map_err(|source| file_error("write", &files.log, source))?;
        let arguments = argv::arguments(&Export {
            copy,
            file: path,
            peer: &record.peer,
            listen: record.listen,
            port: record.port,
            certificates: &certificates,
            control: &files.control,
            pid: &files.pid,
        });
        let started = spawn_detached(PROGRAM, &arguments, &log);
        let mut process =
            started.map_err(|source| ServingError::Start { copy, words: source.to_string() })?;
        self.runtime.block_on(async {
            let serves = async {
                while Qmp::connect(&files.control).await.is_err() {
                    sleep(AGAIN).await;
                }
            };
            let served = tokio::select! {
                served = timeout(SERVE_LIMIT, serves) => served.map_err(|_| "it does not serve in time".to_owned()),
                _ended = process.exited() => {
                    let words = tail(&files.log);
                    Err(if words.is_empty() { format!("{PROGRAM} ended and said nothing") } else { words })
                }
            };
            // It is reaped when it ends, if this daemon is still there.
            tokio::spawn(async move {
                let _ended = process.exited().await;
                process.exit()
            });
            Ok(served.err())
        })
    }

    /// Ends serving copies; one that is not served is fine.
    pub(crate) fn release(&self, copies: &[Uuid]) -> Result<(), ServingError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        copies.iter().try_for_each(|copy| self.end(*copy, &self.files(*copy)))
    }

    /// Ends serving copies, as their peer's guest is to run here: as [`Serving::release`], but that they had all of its writes
    /// until now is remembered, in case the guest can't be started and somebody asks again.
    pub(crate) fn hand_over(&self, copies: &[Uuid]) -> Result<(), ServingError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        for copy in copies {
            let files = self.files(*copy);
            let served = read(&files.record).filter(|known| known.handed_over || self.lives(&files));
            let Some(known) = served else {
                self.end(*copy, &files)?;
                continue;
            };
            // Before it ends: whatever breaks off in between, the next attempt finds it.
            write(&files.record, &Record { handed_over: true, ..known })?;
            self.end_process(*copy, &files)?;
            for path in [&files.control, &files.pid, &files.log] {
                removed(path, fs::remove_file(path))?;
            }
        }
        Ok(())
    }

    fn lives(&self, files: &Files) -> bool {
        process::find(&files.pid).is_some() && self.runtime.block_on(Qmp::connect(&files.control)).is_ok()
    }

    fn end(&self, copy: Uuid, files: &Files) -> Result<(), ServingError> {
        if !files.folder.exists() {
            return Ok(());
        }
        self.end_process(copy, files)?;
        removed(&files.control, fs::remove_file(&files.control))?;
        removed(&files.folder, fs::remove_dir_all(&files.folder))
    }

    fn end_process(&self, copy: Uuid, files: &Files) -> Result<(), ServingError> {
        let gone = async {
            while process::find(&files.pid).is_some() {
                sleep(AGAIN).await;
            }
        };
        self.runtime.block_on(async {
            let quit = async {
                if let Ok(client) = Qmp::connect(&files.control).await {
                    let _ends_before_it_answers = client.execute("quit", Value::Null).await;
                }
                gone.await;
            };
            if process::find(&files.pid).is_none() || timeout(QUIT_LIMIT, quit).await.is_ok() {
                return Ok(());
            }
            tracing::warn!(%copy, "what serves a copy does not end when it is told to: it is killed");
            process::kill(&files.pid)
                .map_err(|source| file_error("kill the process of", &files.pid, source))?;
            let killed = async {
                while process::find(&files.pid).is_some() {
                    sleep(AGAIN).await;
                }
            };
            timeout(QUIT_LIMIT, killed).await.map_err(|_| ServingError::StillThere(copy))
        })
    }

    /// Which of these copies are served to a peer by what was started for it, or were until they were handed over, as ready,
    /// and all others as broken: what the peer's guest wrote since something else served them, or nothing, is not there. One
    /// that hangs may have been cut off.
    pub(crate) fn serves(&self, copies: &[Uuid], peer: &str) -> BTreeMap<Uuid, MirrorStatus> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let is_served = |copy: Uuid| {
            let files = self.files(copy);
            read(&files.record)
                .is_some_and(|known| known.peer == peer && (known.handed_over || self.lives(&files)))
        };
        let status = |served: bool| if served { MirrorStatus::Ready } else { MirrorStatus::Broken };
        copies.iter().map(|copy| (*copy, status(is_served(*copy)))).collect()
    }

    /// The copies that are served, by uuid.
    ///
    /// # Errors
    /// When the directory can't be read.
    pub(crate) fn served(&self) -> Result<Vec<Uuid>, ServingError> {
        let names = names(&self.state).map_err(|source| file_error("list", &self.state, source))?;
        let copies = names.iter().filter_map(|name| file_uuid(name));
        Ok(copies.filter(|copy| process::find(&self.files(*copy).pid).is_some()).collect())
    }
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, record: &Record) -> Result<(), ServingError> {
    let text = serde_json::to_vec(record).expect("plain data has a JSON form");
    let written = write_atomic(path, &text, MODE_PRIVATE);
    written.map_err(|error| file_error("write", path, io::Error::other(error)))
}

/// What is not there need not be removed.
fn removed(path: &Path, result: io::Result<()>) -> Result<(), ServingError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error("remove", path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A port that nobody listens on at this moment.
fn free_port(listen: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((listen, 0))?.local_addr()?.port())
}
