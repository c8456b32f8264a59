//! `gnt-cluster backup`: the master's store in a file here, whole and checked, or no file.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use muster_proto::v1::{BackupEnd, BackupRequest, backup_chunk::Part};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::{
    args::BackupStoreFlags,
    client::Master,
    exit::Failure,
    output::{note, print, print_json, text::visible},
};

/// The longest wait for a message: before the first one the master copies its store and reads the whole copy.
const MESSAGE_LIMIT: Duration = Duration::from_secs(300);

/// Fetches a backup.
pub(super) async fn run(master: &Master, flags: &BackupStoreFlags) -> Result<(), Failure> {
    let target = Target::new(&flags.file, flags.force)?;
    let begun = timeout(MESSAGE_LIMIT, master.backups().backup(BackupRequest {})).await;
    let chunks = begun.map_err(|_| too_late())??.into_inner();
    let end = match target.receive(chunks).await {
        Ok(end) => end,
        Err(failure) => {
            target.forget();
            return Err(failure);
        }
    };
    tell(&flags.file, &end, flags.output.json)
}

fn too_late() -> Status {
    Status::deadline_exceeded(format!("the limit is {} s", MESSAGE_LIMIT.as_secs()))
}

/// The file that is to be, and the one that is written until it is whole.
struct Target<'a> {
    file: &'a Path,
    part: PathBuf,
    replace: bool,
}

impl<'a> Target<'a> {
    fn new(file: &'a Path, replace: bool) -> Result<Self, Failure> {
        if file.file_name().is_none() {
            return Err(Failure::Usage(format!("{} is no file's name", file.display())));
        }
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let target = Target { file, part: PathBuf::from(part), replace };
        target.check()?;
        Ok(target)
    }

    fn check(&self) -> Result<(), Failure> {
        match self.file.symlink_metadata() {
            Ok(found) if found.is_dir() => {
                Err(Failure::Usage(format!("{} is a directory", self.file.display())))
            }
            Ok(_) if !self.replace => Err(Failure::Refused(format!(
                "{} exists already; give another name, or -f to replace it",
                self.file.display()
            ))),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Writes what comes, compares it with what the master says that it sent, and gives it its name.
    async fn receive(
        &self,
        mut chunks: Streaming<muster_proto::v1::BackupChunk>,
    ) -> Result<BackupEnd, Failure> {
        let failed = |error| failed("write", &self.part, &error);
        let mut out = self.open().map_err(failed)?;
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        let end = loop {
            let message = timeout(MESSAGE_LIMIT, chunks.message()).await.map_err(|_| too_late())??;
            match message.and_then(|chunk| chunk.part) {
                Some(Part::Data(data)) => {
                    out.write_all(&data).map_err(failed)?;
                    digest.update(&data);
                    bytes += u64::try_from(data.len()).unwrap_or(u64::MAX);
                }
                Some(Part::End(end)) => break end,
                None => return Err(Failure::Refused("the backup broke off; nothing was kept".to_owned())),
            }
        };
        let found = hex(&digest.finalize());
        if (bytes, &found) != (end.bytes, &end.sha256) {
            return Err(Failure::Refused(format!(
                "the backup arrived damaged ({bytes} bytes of {}); nothing was kept",
                end.bytes
            )));
        }
        out.sync_all().map_err(failed)?;
        self.check()?;
        self.publish().map_err(|error| self::failed("make", self.file, &error))?;
        Ok(end)
    }

    fn open(&self) -> io::Result<File> {
        // One that was left by an interrupted backup may have another mode.
        match fs::remove_file(&self.part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.part)
    }

    fn publish(&self) -> io::Result<()> {
        fs::rename(&self.part, self.file)?;
        let folder = self.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn forget(&self) {
        match fs::remove_file(&self.part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                note(&format!("warning: could not remove {}: {error}", self.part.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Refused(format!("could not {what} {}: {error}", path.display()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tell(file: &Path, end: &BackupEnd, as_json: bool) -> Result<(), Failure> {
    note(&format!(
        "the backup holds no keys: keep ca.pem and ca.key from {} as well, in a safe place",
        visible(&end.ca_directory)
    ));
    if as_json {
        return print_json(&json!({
            "file": file.display().to_string(),
            "cluster": end.cluster_name,
            "uuid": end.cluster_uuid,
            "serial": end.serial,
            "jobs": end.jobs,
            "archived_jobs": end.archived_jobs,
            "bytes": end.bytes,
            "sha256": end.sha256,
        }));
    }
    print(&format!(
        "{}: cluster {}, serial {}, {} jobs, {} archived jobs, {} bytes\n",
        file.display(),
        visible(&end.cluster_name),
        end.serial,
        end.jobs,
        end.archived_jobs,
        end.bytes
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_existing_file_is_replaced_on_demand_only() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dev.backup");
        assert_eq!(Target::new(folder.path(), true).map(drop).unwrap_err().code(), 2);
        let target = Target::new(&file, false).unwrap();
        fs::write(folder.path().join("dev.backup.part"), "left behind").unwrap();
        target.open().unwrap().write_all(b"new").unwrap();
        target.publish().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!folder.path().join("dev.backup.part").exists());
        let failure = Target::new(&file, false).map(drop).unwrap_err();
        assert!(failure.code() == 1 && failure.to_string().contains("-f to replace"), "{failure}");
        let target = Target::new(&file, true).unwrap();
        target.open().unwrap();
        target.forget();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
