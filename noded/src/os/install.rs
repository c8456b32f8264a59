//! Puts a system onto an instance's disks, and tells it of another name.

use std::{fs::File, ops::ControlFlow, path::Path};

use muster_core::{calls::Guest, names::InstanceName};

use super::{
    OsError, Oses,
    definition::{Definition, Scripts},
    environment::{Purpose, environment},
    failed,
    script::Run,
};
use crate::{
    cancel::Cancel,
    image::{ImageWriter, Target, bytes_u64, read_data},
    progress::{Copying, Tell},
    storage::DiskStore,
};

impl Oses {
    /// Installs a guest's system. The guest is down. May come again after it was broken off anywhere.
    pub(crate) fn create(
        &self,
        guest: &Guest,
        reinstall: bool,
        disks: &dyn DiskStore,
        tell: Tell<'_>,
        cancel: &Cancel,
    ) -> Result<(), OsError> {
        if guest.os.is_none() {
            return Ok(());
        }
        match self.definition(&guest.os)? {
            Definition::Image(definition) => match definition.image {
                Some(image) => copy(guest, &image, disks, tell, cancel),
                // A kernel and its initial file system are all of it.
                None => Ok(()),
            },
            Definition::Scripts(scripts) => {
                let purpose = if reinstall { Purpose::Reinstall } else { Purpose::Create };
                self.run_script(guest, &scripts, "create", purpose, disks, cancel)
            }
        }
    }

    /// Tells a guest's definition that the instance has another name. The guest is down.
    pub(crate) fn rename(
        &self,
        guest: &Guest,
        old_name: &InstanceName,
        disks: &dyn DiskStore,
        cancel: &Cancel,
    ) -> Result<(), OsError> {
        if guest.os.is_none() {
            return Ok(());
        }
        match self.definition(&guest.os)? {
            // Such a guest asks for its name at boot.
            Definition::Image(_) => Ok(()),
            Definition::Scripts(scripts) => {
                let purpose = Purpose::Rename { old_name: old_name.as_str() };
                self.run_script(guest, &scripts, "rename", purpose, disks, cancel)
            }
        }
    }

    fn run_script(
        &self,
        guest: &Guest,
        scripts: &Scripts,
        script: &'static str,
        purpose: Purpose<'_>,
        disks: &dyn DiskStore,
        cancel: &Cancel,
    ) -> Result<(), OsError> {
        let paths = guest.disks.iter().map(|(_, disk, _)| disks.path(*disk));
        let paths = paths.collect::<Result<Vec<_>, _>>()?;
        let env = environment(guest, &paths, scripts.version, purpose);
        self.run(&Run { instance: guest.uuid, name: &guest.os, scripts, script, env: &env }, cancel)
    }
}

/// Makes an image the content of the first disk; holes stay holes.
fn copy(
    guest: &Guest,
    image: &Path,
    disks: &dyn DiskStore,
    tell: Tell<'_>,
    cancel: &Cancel,
) -> Result<(), OsError> {
    let Some((_, disk, _)) = guest.disks.first() else {
        return Err(OsError::NoDisk { name: guest.os.clone(), instance: guest.name.to_string() });
    };
    let image_error = |source| OsError::Image { name: guest.os.clone(), source };
    let from = File::open(image).map_err(failed("open", image))?;
    let length = from.metadata().map_err(failed("look at", image))?.len();
    let to = disks.open_write(*disk)?;
    let mut writer = ImageWriter::begin(to, Target::Disk, length).map_err(image_error)?;
    let mut stopped = None;
    let mut copying = Copying::begin(tell, length);
    read_data(&from, length, |offset, data| {
        let written = if cancel.is_cancelled() {
            Err(OsError::Cancelled)
        } else {
            writer.piece(offset, &data).map_err(image_error)
        };
        match written {
            Ok(()) => {
                let bytes = bytes_u64(data.len());
                copying.carried(bytes, offset + bytes);
                ControlFlow::Continue(())
            }
            Err(error) => {
                stopped = Some(error);
                ControlFlow::Break(())
            }
        }
    })
    .map_err(failed("read", image))?;
    match stopped {
        Some(error) => Err(error),
        None => writer.end().map(drop).map_err(image_error),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileExt, PermissionsExt},
        sync::{Arc, Mutex},
        time::{Duration, Instant},
    };

    use muster_core::{hypervisor::HypervisorParams, model::DiskName, names::OsName};
    use muster_hooksrv::agent::words;
    use uuid::Uuid;

    use super::*;
    use crate::{
        progress::Progress,
        storage::{StorageKind, disk_store},
    };

    struct Bench {
        folder: tempfile::TempDir,
        oses: Oses,
        disks: Arc<dyn DiskStore>,
        guest: Guest,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let disks = disk_store(StorageKind::File, &folder.path().join("storage")).unwrap();
            let disk = Uuid::from_u128(2);
            disks.create(disk, 2).unwrap();
            let guest = Guest {
                uuid: Uuid::from_u128(1),
                name: InstanceName::parse("web1").unwrap(),
                memory_mib: 96,
                vcpus: 1,
                disks: vec![(DiskName::Sda, disk, 2)],
                ip: None,
                mac: "aa:00:00:00:00:01".to_owned(),
                os: OsName::parse("os1").unwrap(),
                hypervisor: HypervisorParams::default(),
                generation: 0,
            };
            fs::create_dir_all(folder.path().join("os/os1")).unwrap();
            let oses = Oses::open(folder.path().join("os"), folder.path().join("work")).unwrap();
            Bench { folder, oses, disks, guest }
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.folder.path().join("os/os1").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }

        fn scripts(&self, create: &str) {
            for script in ["create", "import", "export", "rename"] {
                self.write(script, &format!("#!/bin/sh\n{create}\n"));
            }
            self.write("ganeti_api_version", "20\n");
        }

        fn create(&self, cancel: &Cancel) -> Result<(), String> {
            self.create_telling(&|_| (), cancel)
        }

        fn create_telling(&self, tell: Tell<'_>, cancel: &Cancel) -> Result<(), String> {
            let created = self.oses.create(&self.guest, false, &*self.disks, tell, cancel);
            created.map_err(|error| words(&error))
        }

        fn left(&self) -> usize {
            fs::read_dir(self.folder.path().join("work")).unwrap().count()
        }
    }

    /// These calls block, and need a runtime beside them.
    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(work).await.unwrap()
    }

    #[tokio::test]
    async fn a_script_works_on_the_disks_in_its_own_directory() {
        let bench = Bench::new();
        bench.scripts(
            "printf \"$INSTANCE_NAME $OLD_INSTANCE_NAME $(cat word) $#\" | dd of=$DISK_0_PATH conv=notrunc",
        );
        bench.write("word", "hello");
        blocking(move || {
            bench.create(&Cancel::default()).unwrap();
            let content = |length: usize| {
                let mut content = vec![0; length];
                bench.disks.open_read(Uuid::from_u128(2)).unwrap().read_exact_at(&mut content, 0).unwrap();
                String::from_utf8(content).unwrap()
            };
            assert_eq!(content(14), "web1  hello 0\0");
            let old = InstanceName::parse("old1").unwrap();
            bench.oses.rename(&bench.guest, &old, &*bench.disks, &Cancel::default()).unwrap();
            assert_eq!(content(17), "web1 old1 hello 0");
            assert_eq!(bench.left(), 0);
        })
        .await;
    }

    #[tokio::test]
    async fn a_script_that_fails_is_told_with_its_last_words() {
        let bench = Bench::new();
        bench.scripts("echo one; echo no mirror found >&2; exit 3");
        blocking(move || {
            let error = bench.create(&Cancel::default()).unwrap_err();
            assert_eq!(error, "create of OS definition os1 failed with exit status 3: one\nno mirror found");
            bench.write("create", "#!/nonexistent/sh\n");
            let error = bench.create(&Cancel::default()).unwrap_err();
            assert!(error.contains("interpreter \"/nonexistent/sh\" not found"), "{error}");
            bench.scripts("kill -9 $$");
            assert!(bench.create(&Cancel::default()).unwrap_err().ends_with("was killed by signal 9"));
            assert_eq!(bench.left(), 1, "what the last one said is kept");
        })
        .await;
    }

    #[tokio::test]
    async fn a_script_ends_with_its_call_and_with_all_that_it_started() {
        let bench = Bench::new();
        let pids = bench.folder.path().join("pids");
        bench.scripts(&format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait", pids.display()));
        let cancel = Cancel::default();
        let creating = tokio::spawn(blocking({
            let cancel = cancel.clone();
            move || bench.create(&cancel)
        }));
        let begun = Instant::now();
        while !pids.exists() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the script does not begin");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let pid = fs::read_to_string(&pids).unwrap();
        cancel.cancel();
        assert_eq!(creating.await.unwrap().unwrap_err(), crate::cancel::ENDED);
        // One that waits to be reaped does not run.
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        assert!(stat.is_err() || stat.unwrap().contains(") Z "), "it still runs");
    }

    #[tokio::test]
    async fn an_image_becomes_the_first_disk_and_must_fit() {
        let bench = Bench::new();
        bench.write("os.toml", "image = \"disk.raw\"\n");
        bench.write("disk.raw", "system");
        blocking(move || {
            let disk = bench.disks.open_write(Uuid::from_u128(2)).unwrap();
            disk.write_all_at(b"older system", 1024 * 1024).unwrap();
            let told = Mutex::new(Vec::new());
            let tell = |progress: Progress| told.lock().unwrap().push((progress.text, progress.percent));
            bench.create_telling(&tell, &Cancel::default()).unwrap();
            assert_eq!(told.into_inner().unwrap(), [("0 of 1 MiB, 0 MiB/s".to_owned(), Some(100))]);
            let content = fs::read(bench.disks.path(Uuid::from_u128(2)).unwrap()).unwrap();
            assert_eq!((content.len(), &content[..6]), (2 * 1024 * 1024, &b"system"[..]));
            assert!(content[6..].iter().all(|byte| *byte == 0));
            let cancelled = Cancel::default();
            cancelled.cancel();
            assert_eq!(bench.create(&cancelled).unwrap_err(), crate::cancel::ENDED);
            let image = bench.folder.path().join("os/os1/disk.raw");
            File::options().write(true).open(image).unwrap().set_len(2 * 1024 * 1024 + 1).unwrap();
            let error = bench.create(&Cancel::default()).unwrap_err();
            assert!(error.contains("does not fit"), "{error}");
            let diskless = Guest { disks: Vec::new(), ..bench.guest.clone() };
            let created = bench.oses.create(&diskless, true, &*bench.disks, &|_| (), &Cancel::default());
            let error = created.unwrap_err();
            assert!(error.to_string().contains("has no disk"), "{error}");
        })
        .await;
    }
}
