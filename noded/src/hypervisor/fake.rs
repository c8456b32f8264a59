//! A hypervisor whose guests are state files: everything but the computing, for tests and demonstrations.
//!
//! `guests/<uuid>.json` says that a guest runs; it survives a restart of the daemon, as a real guest does. A guest that
//! was stopped has no file. Writing `"state": "stopped"` into one makes a guest that ended by itself, `"shutdown_ms": 5000`
//! one that needs so long to shut down.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use muster_proto::transport::{FileError, MODE_PRIVATE, write_atomic};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Consoles, GuestReport, GuestSpec, Hypervisor, HypervisorError, Mirrors, Moves, RunState};
use crate::{
    cancel::Cancel,
    storage::{DiskStore, file_uuid, names, sync_dir},
};

/// The state file's content.
#[derive(Serialize, Deserialize)]
struct Kept {
    state: KeptState,
    name: String,
    memory_mib: u64,
    vcpus: u32,
    disks: Vec<Uuid>,
    ip: Option<String>,
    mac: String,
    os: String,
    #[serde(default)]
    generation: u64,
    /// What its shutdown takes.
    #[serde(default)]
    shutdown_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeptState {
    Running,
    Paused,
    Stopped,
}

impl KeptState {
    fn is_up(self) -> bool {
        match self {
            KeptState::Running | KeptState::Paused => true,
            KeptState::Stopped => false,
        }
    }
}

pub(super) struct Fake {
    folder: PathBuf,
    disks: Arc<dyn DiskStore>,
}

impl Fake {
    pub(super) fn open(folder: PathBuf, disks: Arc<dyn DiskStore>) -> Result<Self, HypervisorError> {
        fs::create_dir_all(&folder).map_err(|source| file_error("make", &folder, source))?;
        Ok(Self { folder, disks })
    }

    fn path(&self, instance: Uuid) -> PathBuf {
        self.folder.join(format!("{instance}.json"))
    }

    fn read(&self, path: &Path) -> Result<Option<Kept>, HypervisorError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(file_error("read", path, source)),
        };
        let damaged = |source| HypervisorError::Damaged { path: path.to_owned(), source };
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    fn write(&self, instance: Uuid, kept: &Kept) -> Result<(), HypervisorError> {
        let path = self.path(instance);
        let text = serde_json::to_vec_pretty(kept).expect("plain data has a JSON form");
        write_atomic(&path, &text, MODE_PRIVATE).map_err(|error| write_error(error, &path))
    }

    fn forget(&self, instance: Uuid) -> Result<(), HypervisorError> {
        let path = self.path(instance);
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&self.folder).map_err(|source| file_error("sync", &self.folder, source)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(file_error("remove", &path, source)),
        }
    }
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> HypervisorError {
    HypervisorError::File { doing, path: path.to_owned(), source }
}

fn write_error(error: FileError, path: &Path) -> HypervisorError {
    file_error("write", path, io::Error::other(error))
}

impl Hypervisor for Fake {
    fn start(&self, guest: &GuestSpec, _cancel: &Cancel) -> Result<(), HypervisorError> {
        let is_that = |kept: &Kept| kept.state.is_up() && kept.generation >= guest.generation;
        if self.read(&self.path(guest.instance))?.as_ref().is_some_and(is_that) {
            return Ok(());
        }
        for disk in &guest.disks {
            let failed = |source| HypervisorError::Disk { instance: guest.instance, source };
            self.disks.open_write(*disk).map_err(failed)?;
        }
        let kept = Kept {
            state: if guest.paused { KeptState::Paused } else { KeptState::Running },
            name: guest.name.clone(),
            memory_mib: guest.memory_mib,
            vcpus: guest.vcpus,
            disks: guest.disks.clone(),
            ip: guest.ip.clone(),
            mac: guest.mac.clone(),
            os: guest.os.clone(),
            generation: guest.generation,
            shutdown_ms: 0,
        };
        self.write(guest.instance, &kept)
    }

    fn resume(&self, instance: Uuid, _cancel: &Cancel) -> Result<(), HypervisorError> {
        let kept = self.read(&self.path(instance))?.filter(|kept| kept.state.is_up());
        let kept = kept.ok_or(HypervisorError::NotRunning(instance))?;
        self.write(instance, &Kept { state: KeptState::Running, ..kept })
    }

    fn kill(&self, instance: Uuid) -> Result<(), HypervisorError> {
        self.forget(instance)
    }

    fn stop(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError> {
        // One whose file can't be read is stopped as well as one can.
        if let Ok(Some(Kept { state: KeptState::Running, shutdown_ms, .. })) = self.read(&self.path(instance))
        {
            let needed = Duration::from_millis(shutdown_ms).min(limit);
            cancel.wait(needed).map_err(|_| HypervisorError::Cancelled(instance))?;
        }
        self.forget(instance)
    }

    fn reboot(&self, instance: Uuid, limit: Duration, cancel: &Cancel) -> Result<(), HypervisorError> {
        match self.read(&self.path(instance))? {
            Some(Kept { state: KeptState::Running | KeptState::Paused, shutdown_ms, .. }) => {
                let needed = Duration::from_millis(shutdown_ms).min(limit);
                cancel.wait(needed).map_err(|_| HypervisorError::Cancelled(instance))
            }
            Some(Kept { state: KeptState::Stopped, .. }) | None => Err(HypervisorError::NotRunning(instance)),
        }
    }

    fn states(&self) -> Result<Vec<GuestReport>, HypervisorError> {
        let mut guests = Vec::new();
        for name in names(&self.folder).map_err(|source| file_error("list", &self.folder, source))? {
            let Some(instance) = name.strip_suffix(".json").and_then(file_uuid) else { continue };
            // One that was stopped since the listing is gone.
            let Some(kept) = self.read(&self.path(instance))? else { continue };
            let state = match kept.state {
                KeptState::Running => RunState::Running,
                KeptState::Paused => RunState::Paused,
                KeptState::Stopped => RunState::Stopped,
            };
            let Kept { memory_mib, vcpus, generation, .. } = kept;
            let (accel, nic) = (None, None);
            guests.push(GuestReport { instance, state, memory_mib, vcpus, generation, accel, nic });
        }
        guests.sort_by_key(|guest| guest.instance);
        Ok(guests)
    }

    fn consoles(&self) -> Option<&dyn Consoles> {
        None
    }

    fn moves(&self) -> Option<&dyn Moves> {
        None
    }

    fn mirrors(&self) -> Option<&dyn Mirrors> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{StorageKind, disk_store};

    struct Bench {
        folder: tempfile::TempDir,
        disks: Arc<dyn DiskStore>,
        guest: GuestSpec,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let disks = disk_store(StorageKind::File, &folder.path().join("storage")).unwrap();
            let guest = GuestSpec {
                instance: Uuid::from_u128(1),
                name: "web1".to_owned(),
                memory_mib: 512,
                vcpus: 2,
                disks: vec![Uuid::from_u128(2)],
                ip: None,
                mac: "aa:00:00:00:00:01".to_owned(),
                os: "none".to_owned(),
                boot: None,
                accel: None,
                nic: muster_core::hypervisor::NicMode::User,
                generation: 3,
                paused: false,
            };
            disks.create(guest.disks[0], 1).unwrap();
            Self { folder, disks, guest }
        }

        /// A hypervisor as a newly started daemon makes it.
        fn hypervisor(&self) -> Arc<dyn Hypervisor> {
            Arc::new(Fake::open(self.folder.path().join("guests"), self.disks.clone()).unwrap())
        }
    }

    #[test]
    fn each_call_may_come_twice() {
        let bench = Bench::new();
        let fake = bench.hypervisor();
        let (instance, state) = (bench.guest.instance, RunState::Running);
        let (memory_mib, vcpus, generation, accel, nic) = (512, 2, 3, None, None);
        let running = GuestReport { instance, state, memory_mib, vcpus, generation, accel, nic };
        for _ in 0..2 {
            fake.start(&bench.guest, &Cancel::default()).unwrap();
            assert_eq!(fake.states().unwrap(), vec![running.clone()]);
        }
        fake.reboot(instance, Duration::ZERO, &Cancel::default()).unwrap();
        for _ in 0..2 {
            fake.stop(bench.guest.instance, Duration::ZERO, &Cancel::default()).unwrap();
            assert_eq!(fake.states().unwrap(), vec![]);
        }
        let refused = fake.reboot(instance, Duration::ZERO, &Cancel::default());
        assert!(matches!(refused, Err(HypervisorError::NotRunning(of)) if of == instance));
    }

    #[test]
    fn a_guest_may_begin_paused_and_one_of_the_past_ends() {
        let bench = Bench::new();
        let (fake, cancel) = (bench.hypervisor(), Cancel::default());
        let instance = bench.guest.instance;
        let paused = GuestSpec { paused: true, ..bench.guest.clone() };
        fake.start(&paused, &cancel).unwrap();
        assert_eq!(fake.states().unwrap()[0].state, RunState::Paused);
        for _ in 0..2 {
            fake.resume(instance, &cancel).unwrap();
            assert_eq!(fake.states().unwrap()[0].state, RunState::Running);
        }
        fake.start(&paused, &cancel).unwrap();
        assert_eq!(fake.states().unwrap()[0].state, RunState::Running, "it is there already");
        fake.start(&GuestSpec { generation: 4, ..paused }, &cancel).unwrap();
        let report = fake.states().unwrap().remove(0);
        assert_eq!((report.state, report.generation), (RunState::Paused, 4), "that was another one");
        for _ in 0..2 {
            fake.kill(instance).unwrap();
            assert_eq!(fake.states().unwrap(), vec![]);
        }
        assert!(matches!(fake.resume(instance, &cancel), Err(HypervisorError::NotRunning(_))));
        // A file of an older version has no generation.
        fake.start(&bench.guest, &cancel).unwrap();
        let path = bench.folder.path().join(format!("guests/{instance}.json"));
        let old = fs::read_to_string(&path).unwrap().replace("\"generation\": 3,", "");
        fs::write(&path, old).unwrap();
        assert_eq!(fake.states().unwrap()[0].generation, 0);
    }

    #[test]
    fn guests_outlive_the_daemon() {
        let bench = Bench::new();
        bench.hypervisor().start(&bench.guest, &Cancel::default()).unwrap();
        assert_eq!(bench.hypervisor().states().unwrap().len(), 1);
    }

    #[test]
    fn a_guest_without_its_disk_does_not_start() {
        let bench = Bench::new();
        bench.disks.remove(bench.guest.disks[0]).unwrap();
        let fake = bench.hypervisor();
        assert!(matches!(fake.start(&bench.guest, &Cancel::default()), Err(HypervisorError::Disk { .. })));
        assert_eq!(fake.states().unwrap(), vec![]);
    }

    #[test]
    fn a_guest_that_ended_by_itself_is_reported_and_can_be_started() {
        let bench = Bench::new();
        let fake = bench.hypervisor();
        fake.start(&bench.guest, &Cancel::default()).unwrap();
        let path = bench.folder.path().join(format!("guests/{}.json", bench.guest.instance));
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("running", "stopped")).unwrap();
        assert_eq!(fake.states().unwrap()[0].state, RunState::Stopped);
        fake.start(&bench.guest, &Cancel::default()).unwrap();
        assert!(fake.states().unwrap()[0].is_up());
        fs::write(&path, "{").unwrap();
        assert!(matches!(fake.states(), Err(HypervisorError::Damaged { .. })));
    }

    #[test]
    fn a_guest_that_shuts_down_slowly_is_stopped_by_force_at_the_limit_or_left_when_it_is_cancelled() {
        let bench = Bench::new();
        let fake = bench.hypervisor();
        let (instance, cancel) = (bench.guest.instance, Cancel::default());
        fake.start(&bench.guest, &cancel).unwrap();
        let path = bench.folder.path().join(format!("guests/{instance}.json"));
        let slow =
            fs::read_to_string(&path).unwrap().replace("\"shutdown_ms\": 0", "\"shutdown_ms\": 3600000");
        fs::write(&path, slow).unwrap();
        let stopping = std::thread::spawn({
            let (fake, cancel) = (fake.clone(), cancel.clone());
            move || fake.stop(instance, Duration::from_secs(3600), &cancel)
        });
        cancel.cancel();
        assert!(matches!(stopping.join().unwrap(), Err(HypervisorError::Cancelled(of)) if of == instance));
        assert!(fake.states().unwrap()[0].is_up());
        fake.stop(instance, Duration::from_millis(2), &Cancel::default()).unwrap();
        assert_eq!(fake.states().unwrap(), vec![]);
    }
}
