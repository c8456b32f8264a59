//! Guests under QEMU: each a process of its own that outlives this daemon, and is found again by its command line.

mod argv;
mod files;
mod guest;
mod mirror;
mod moving;
mod probe;
mod record;
mod snapshot;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use muster_hooksrv::spawn_detached;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout, timeout_at},
};
use uuid::Uuid;

use self::{
    argv::{Begin, Machine},
    files::GuestFiles,
    guest::{Guest, State},
    record::{Ended, Record},
};
use super::{
    Consoles, GuestReport, GuestSpec, Hypervisor, HypervisorError, Mirrors, Moves, RunState, all::Places,
};
use crate::{
    cancel::Cancel,
    process,
    qmp::{Qmp, QmpError},
    storage::{DiskStore, file_uuid, names},
    tail::tail,
};

/// The program.
const PROGRAM: &str = "qemu-system-x86_64";
/// How long QEMU may take to serve its control socket: it opens the disks before.
const SERVE_LIMIT: Duration = Duration::from_secs(30);
/// How long guests that are found again may take to tell what they do, all together; those that take longer are taken to
/// run.
const FOUND_LIMIT: Duration = Duration::from_secs(5);
/// Between two looks for a process that was just started: mostly it is there at the first.
const FOUND_AGAIN: Duration = Duration::from_millis(1);
/// How long QEMU may take to end once it was told to; then it is killed.
const QUIT_LIMIT: Duration = Duration::from_secs(5);
/// How long the mirrors of a guest that is stopped by force may take to end: long enough for a peer that hangs to be cut off.
const MIRRORS_LIMIT: Duration = Duration::from_secs(10);
/// A guest that is asked to shut down is asked again this often: one that still boots hears nothing.
const POWERDOWN_AGAIN: Duration = Duration::from_secs(5);
/// Between two looks whether a killed process is gone.
const GONE_AGAIN: Duration = Duration::from_millis(20);
/// The longest path of a socket: what its address has room for, without the NUL at the end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// All guests of this host.
pub(super) struct Qemu {
    /// Holds a directory for each guest.
    state: PathBuf,
    /// Holds their sockets.
    run: PathBuf,
    /// Leads to the certificates by which nodes know each other's data.
    certificates: PathBuf,
    disks: Arc<dyn DiskStore>,
    runtime: Handle,
    guests: Mutex<BTreeMap<Uuid, Arc<Guest>>>,
    /// What is known of copies of its guests' disks.
    records: Arc<mirror::Records>,
    changed: Arc<dyn Fn() + Send + Sync>,
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> HypervisorError {
    HypervisorError::File { doing, path: path.to_owned(), source }
}

impl Qemu {
    /// Finds the guests that run, and those that ended while no daemon was there. `changed` is called at each change of
    /// a guest's state.
    pub(super) async fn open(
        places: &Places,
        disks: Arc<dyn DiskStore>,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, HypervisorError> {
        let Places { run, certificates, .. } = places.clone();
        let state = places.state.join("qemu");
        for folder in [&state, &run] {
            fs::create_dir_all(folder).map_err(|source| file_error("make", folder, source))?;
        }
        let runtime = Handle::current();
        let records = Arc::new(mirror::Records::open(places.state.join("mirrors"), Arc::clone(&changed))?);
        let guests = Mutex::default();
        let qemu = Qemu { state, run, certificates, disks, runtime, guests, records, changed };
        for name in names(&qemu.state).map_err(|source| file_error("list", &qemu.state, source))? {
            if let Some(instance) = file_uuid(&name) {
                qemu.find(instance)?;
            }
        }
        let guests: Vec<Arc<Guest>> = qemu.lock().values().cloned().collect();
        let deadline = Instant::now() + FOUND_LIMIT;
        for guest in guests {
            if timeout_at(deadline, guest.known()).await.is_err() {
                tracing::warn!(guest = %guest.record.instance, "a guest does not tell what it does");
            }
        }
        Ok(qemu)
    }

    /// Takes a guest over from an earlier daemon.
    fn find(&self, instance: Uuid) -> Result<(), HypervisorError> {
        let files = self.files(instance);
        let record = match Record::read(&files) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(guest = %instance, %error, "a guest's record can't be read");
                Some(Record {
                    instance,
                    name: String::new(),
                    memory_mib: 0,
                    vcpus: 0,
                    // Of the past as soon as a master says which is the present: nobody knows that it is not.
                    generation: 0,
                    accel: None,
                    nic: None,
                    ended: None,
                })
            }
        };
        match record {
            Some(record) => drop(self.adopt(files, record)),
            // The daemon died before there was a process.
            None => self.forget(instance)?,
        }
        Ok(())
    }

    fn files(&self, instance: Uuid) -> GuestFiles {
        GuestFiles::of(&self.state, &self.run, instance)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Arc<Guest>>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adopt(&self, files: GuestFiles, record: Record) -> Arc<Guest> {
        let changed = Arc::clone(&self.changed);
        let instance = record.instance;
        let guest = Guest::watch(files, record, Arc::clone(&self.records), move || changed());
        self.lock().insert(instance, Arc::clone(&guest));
        guest
    }

    fn guest(&self, instance: Uuid) -> Option<Arc<Guest>> {
        self.lock().get(&instance).cloned()
    }

    /// Whether this guest was started here and not stopped since.
    pub(super) fn knows(&self, instance: Uuid) -> bool {
        self.lock().contains_key(&instance)
    }

    /// Starts QEMU and waits until it has told what it does.
    async fn launch(&self, spec: &GuestSpec, begin: Begin, cancel: &Cancel) -> Result<(), HypervisorError> {
        let files = self.files(spec.instance);
        for socket in files.sockets() {
            if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
                let path = socket.to_owned();
                return Err(HypervisorError::SocketPath { path, bytes_max: SOCKET_PATH_BYTES_MAX });
            }
        }
        fs::create_dir_all(&files.folder).map_err(|source| file_error("make", &files.folder, source))?;
        self.records.break_off(spec.instance, |_| true)?;
        let mut disks = Vec::new();
        for disk in &spec.disks {
            let failed = |source| HypervisorError::Disk { instance: spec.instance, source };
            disks.push(self.disks.path(*disk).map_err(failed)?);
        }
        let accel = spec.accel.unwrap_or_else(probe::accel);
        let arguments = argv::arguments(&Machine {
            uuid: spec.instance,
            name: &spec.name,
            memory_mib: spec.memory_mib,
            vcpus: spec.vcpus,
            accel,
            disks: disks.iter().map(PathBuf::as_path).collect(),
            nic: &spec.nic,
            mac: &spec.mac,
            boot: spec.boot.as_ref(),
            files: &files,
            begin,
        });
        let record = Record {
            instance: spec.instance,
            name: spec.name.clone(),
            memory_mib: spec.memory_mib,
            vcpus: spec.vcpus,
            generation: spec.generation,
            accel: Some(accel.into()),
            nic: Some(spec.nic.clone()),
            ended: None,
        };
        // Before the process: whatever dies in between, the guest is found.
        record.write(&files).map_err(|source| file_error("write", &files.record, source))?;
        let log = fs::File::create(&files.log).map_err(|source| file_error("write", &files.log, source))?;
        let started = spawn_detached(PROGRAM, &arguments, &log);
        let mut process = started.map_err(|source| HypervisorError::Program { program: PROGRAM, source })?;
        // The kernel lets the starter go on a moment before the new command line can be read.
        let found = async {
            while process::find(&files.pid).is_none() {
                sleep(FOUND_AGAIN).await;
            }
        };
        tokio::select! {
            () = found => {}
            _ended = process.exited() => {}
        }
        // It is reaped when it ends, if this daemon is still there.
        tokio::spawn(async move {
            let _ended = process.exited().await;
            process.exit()
        });
        let guest = self.adopt(files, record);
        self.serves(&guest, cancel).await
    }

    /// Waits until a guest that was started has told what it does.
    async fn serves(&self, guest: &Guest, cancel: &Cancel) -> Result<(), HypervisorError> {
        let instance = guest.record.instance;
        let failed = |words: String| HypervisorError::Start { instance, words };
        tokio::select! {
            served = timeout(SERVE_LIMIT, guest.qmp()) => match served {
                Ok(Some(_)) => Ok(()),
                Ok(None) => {
                    let words = tail(&guest.files.log);
                    let silent = || format!("{PROGRAM} ended and said nothing");
                    Err(failed(Some(words).filter(|words| !words.is_empty()).unwrap_or_else(silent)))
                }
                Err(_) => {
                    let seconds = SERVE_LIMIT.as_secs();
                    Err(failed(format!("it does not serve its control socket within {seconds} s")))
                }
            },
            () = cancel.told() => Err(HypervisorError::Cancelled(instance)),
        }
    }

    /// Whether a guest that was started before runs.
    async fn still_runs(&self, guest: &Guest, cancel: &Cancel) -> Result<bool, HypervisorError> {
        if guest.has_ended() {
            return Ok(false);
        }
        match self.serves(guest, cancel).await {
            Ok(()) => Ok(true),
            // It has shut down at this moment.
            Err(HypervisorError::Start { .. }) if guest.has_ended() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks a guest to shut down, again and again.
    async fn ask(guest: &Guest) -> std::convert::Infallible {
        loop {
            if let Some(client) = guest.qmp().await {
                let _refused_where_it_is_down = client.execute("system_powerdown", Value::Null).await;
            }
            sleep(POWERDOWN_AGAIN).await;
        }
    }

    /// Asks a guest to shut down until it has.
    async fn shut_down(guest: &Guest) {
        tokio::select! {
            () = guest.ended() => {}
            never = Self::ask(guest) => match never {},
        }
    }

    /// Ends the mirrors of a guest that is about to be ended by force: it computes no more, so its copies are the same.
    async fn end_mirrors_in_order(guest: &Guest) {
        if guest.mirrors.is_idle(guest) {
            return;
        }
        if let Some(client) = guest.qmp().await
            && client.execute("stop", Value::Null).await.is_ok()
        {
            guest.mirrors.end_in_order(guest, &client).await;
        }
    }

    /// Ends QEMU, whatever the guest does.
    async fn force(guest: &Guest) -> Result<(), HypervisorError> {
        let quit = async {
            if let Some(client) = guest.qmp().await {
                let _ends_before_it_answers = client.execute("quit", Value::Null).await;
            }
            guest.ended().await;
        };
        let instance = guest.record.instance;
        if timeout(QUIT_LIMIT, quit).await.is_err() {
            tracing::warn!(guest = %instance, "QEMU does not end when it is told to: it is killed");
        }
        Self::killed(guest).await
    }

    /// Ends QEMU without asking it.
    async fn killed(guest: &Guest) -> Result<(), HypervisorError> {
        let instance = guest.record.instance;
        let killing = async {
            // Also one that was not known to run: it was being started when an earlier daemon died.
            while process::find(&guest.files.pid).is_some() {
                if let Err(error) = process::kill(&guest.files.pid) {
                    tracing::warn!(guest = %instance, %error, "QEMU can't be killed");
                }
                sleep(GONE_AGAIN).await;
            }
            guest.ended().await;
        };
        let seconds = QUIT_LIMIT.as_secs();
        timeout(QUIT_LIMIT, killing).await.map_err(|_| HypervisorError::StillThere { instance, seconds })
    }

    /// Makes a guest start anew, by a clean shutdown if it follows within the limit.
    async fn start_anew(guest: &Guest, limit: Duration) -> Result<(), HypervisorError> {
        let instance = guest.record.instance;
        let client = Self::control(guest).await?;
        if !limit.is_zero() {
            let marked = guest.begin_reboot();
            marked.map_err(|source| file_error("write", &guest.files.rebooting, source))?;
            let mut restarts = guest.restarts();
            tokio::select! {
                _ = restarts.changed() => return Ok(()),
                () = guest.ended() => return Err(HypervisorError::NotRunning(instance)),
                never = Self::ask(guest) => match never {},
                () = sleep(limit) => {}
            }
        }
        ask(guest, &client, "system_reset", Value::Null).await?;
        // One that was stopped in the middle goes on, too.
        ask(guest, &client, "cont", Value::Null).await.map(drop)
    }

    /// Ends and forgets a guest.
    async fn end(&self, guest: &Guest) -> Result<(), HypervisorError> {
        Self::force(guest).await?;
        self.forget(guest.record.instance)
    }

    /// Launches a guest; one that does not start is forgotten.
    async fn launch_or_none(
        &self,
        spec: &GuestSpec,
        begin: Begin,
        cancel: &Cancel,
    ) -> Result<(), HypervisorError> {
        let launched = self.launch(spec, begin, cancel).await;
        if launched.is_err() {
            // The log goes with it; the error holds its words.
            match self.guest(spec.instance) {
                Some(guest) => self.end(&guest).await?,
                None => self.forget(spec.instance)?,
            }
        }
        launched
    }

    /// Whether a guest that is up is the one that is to be: no earlier one, and none that awaits another's state.
    async fn is_that(guest: &Guest, spec: &GuestSpec) -> Result<bool, HypervisorError> {
        if guest.record.generation < spec.generation {
            tracing::warn!(guest = %spec.instance, "a guest of the past is ended, as it is started anew");
            return Ok(false);
        }
        let client = Self::control(guest).await?;
        Ok(status(guest, &client).await? != "inmigrate")
    }

    /// Whether a guest can hear that it is to shut down: one that has not begun, or is gone to another host, can't.
    async fn can_follow(guest: &Guest) -> bool {
        let asked = async { status(guest, &*Self::control(guest).await?).await };
        asked.await.is_ok_and(|status| !matches!(status.as_str(), "prelaunch" | "inmigrate" | "postmigrate"))
    }

    /// The control connection of a guest that is up.
    async fn control(guest: &Guest) -> Result<Arc<Qmp>, HypervisorError> {
        let instance = guest.record.instance;
        let silent = |_| {
            let words = format!("it does not serve its control socket within {} s", SERVE_LIMIT.as_secs());
            HypervisorError::Control { instance, words }
        };
        let client = timeout(SERVE_LIMIT, guest.qmp()).await.map_err(silent)?;
        client.ok_or(HypervisorError::NotRunning(instance))
    }

    /// Forgets a guest that is down.
    fn forget(&self, instance: Uuid) -> Result<(), HypervisorError> {
        let files = self.files(instance);
        for socket in files.sockets() {
            gone(fs::remove_file(socket)).map_err(|source| file_error("remove", socket, source))?;
        }
        gone(fs::remove_dir_all(&files.folder))
            .map_err(|source| file_error("remove", &files.folder, source))?;
        self.lock().remove(&instance);
        Ok(())
    }
}

/// Executes a command; what QEMU refuses is told as the guest's.
async fn ask(guest: &Guest, client: &Qmp, command: &str, arguments: Value) -> Result<Value, HypervisorError> {
    let instance = guest.record.instance;
    let failed = |error: QmpError| HypervisorError::Control { instance, words: error.to_string() };
    client.execute(command, arguments).await.map_err(failed)
}

/// What QEMU says that a guest does, for example `running`.
async fn status(guest: &Guest, client: &Qmp) -> Result<String, HypervisorError> {
    let status = ask(guest, client, "query-status", Value::Null).await?;
    Ok(status.get("status").and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Hypervisor for Qemu {
    fn start(&self, spec: &GuestSpec, cancel: &Cancel) -> Result<(), HypervisorError> {
        let begin = if spec.paused { Begin::Paused } else { Begin::Running };
        self.runtime.block_on(async {
            if let Some(guest) = self.guest(spec.instance) {
                if self.still_runs(&guest, cancel).await? && Self::is_that(&guest, spec).await? {
                    return Ok(());
                }
                self.end(&guest).await?;
            }
            self.launch_or_none(spec, begin, cancel).await
        })
    }

    fn resume(&self, instance: Uuid, cancel: &Cancel) -> Result<(), HypervisorError> {
        let guest = self.guest(instance).ok_or(HypervisorError::NotRunning(instance))?;
        self.runtime.block_on(async {
            tokio::select! {
                resumed = moving::resume(&guest) => resumed,
                () = cancel.told() => Err(HypervisorError::Cancelled(instance)),
            }
        })
    }

    fn kill(&self, instance: Uuid) -> Result<(), HypervisorError> {
        let Some(guest) = self.guest(instance) else { return Ok(()) };
        self.runtime.block_on(Self::killed(&guest))?;
        // Its copies are what another node's guest has made of them.
        self.records.forget(|_, known| known.instance == instance)?;
        self.forget(instance)
    }

    fn stop(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError> {
        let Some(guest) = self.guest(instance) else { return Ok(()) };
        guest.end_reboot();
        self.runtime.block_on(async {
            let limit = if Self::can_follow(&guest).await { limit } else { Duration::ZERO };
            tokio::select! {
                ended = timeout(limit, Self::shut_down(&guest)) => {
                    if ended.is_err() {
                        tracing::info!(guest = %instance, "a guest does not shut down in time: it is stopped by force");
                        let _not_clean_where_late = timeout(MIRRORS_LIMIT, Self::end_mirrors_in_order(&guest)).await;
                    }
                    Self::force(&guest).await
                }
                () = cancel.told() => Err(HypervisorError::Cancelled(instance)),
            }
        })?;
        self.forget(instance)
    }

    fn reboot(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError> {
        let guest = self.guest(instance).filter(|guest| !guest.has_ended());
        let guest = guest.ok_or(HypervisorError::NotRunning(instance))?;
        let rebooted = self.runtime.block_on(async {
            tokio::select! {
                rebooted = Self::start_anew(&guest, limit) => rebooted,
                () = cancel.told() => Err(HypervisorError::Cancelled(instance)),
            }
        });
        guest.end_reboot();
        rebooted
    }

    fn states(&self) -> Result<Vec<GuestReport>, HypervisorError> {
        let report = |guest: &Arc<Guest>| {
            let state = match guest.state() {
                State::Unknown | State::Running => RunState::Running,
                State::Paused => RunState::Paused,
                State::Ended(Ended::ShutDown) => RunState::ShutDown,
                State::Ended(Ended::Crashed) => RunState::Crashed,
            };
            let Record { instance, memory_mib, vcpus, generation, accel, .. } = guest.record;
            let nic = guest.record.nic.clone();
            GuestReport { instance, state, memory_mib, vcpus, generation, accel, nic }
        };
        Ok(self.lock().values().map(report).collect())
    }

    fn consoles(&self) -> Option<&dyn Consoles> {
        Some(self)
    }

    fn moves(&self) -> Option<&dyn Moves> {
        Some(self)
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        Some(self)
    }
}

impl Consoles for Qemu {
    fn console(&self, instance: Uuid) -> Result<PathBuf, HypervisorError> {
        let guest = self.guest(instance).filter(|guest| !guest.has_ended());
        guest.map(|guest| guest.files.console.clone()).ok_or(HypervisorError::NotRunning(instance))
    }
}
