//! What can run instances on this host, and QEMU's version: asked of the program itself, again only when its file changed.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{process::Command, time::timeout};

/// The program that runs guests.
const PROGRAM: &str = "qemu-system-x86_64";
/// Where it is looked for; guests are started from the same places.
const PLACES: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// It tells its version within a moment; on a machine that swaps, within some seconds.
const VERSION_LIMIT: Duration = Duration::from_secs(5);
/// The device of KVM.
const KVM: &str = "/dev/kvm";

/// What tells a program from another one that took its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    inode: u64,
    bytes: u64,
    changed_s: i64,
}

impl Stamp {
    fn of(path: PathBuf) -> Option<Self> {
        let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
        Some(Stamp { path, inode: metadata.ino(), bytes: metadata.len(), changed_s: metadata.mtime() })
    }
}

/// What is known of QEMU.
#[derive(Debug, Default)]
pub(super) struct Qemu(Mutex<Option<(Stamp, String)>>);

/// Hypervisors and QEMU's version.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) hypervisors: Vec<String>,
    pub(super) version: String,
}

/// What lies on this host.
#[derive(Debug)]
pub(super) struct Seen {
    stamp: Option<Stamp>,
    kvm: bool,
}

impl Seen {
    /// Looks for the program and the device. Blocks, for as long as a filesystem hangs.
    pub(super) fn look() -> Self {
        let stamp = PLACES.iter().find_map(|place| Stamp::of(Path::new(place).join(PROGRAM)));
        Seen { kvm: stamp.is_some() && kvm_is_usable(), stamp }
    }
}

impl Qemu {
    /// What can run instances, by what was seen.
    pub(super) async fn ask(&self, seen: Seen) -> Found {
        let mut found = Found { hypervisors: vec!["fake".to_owned()], version: String::new() };
        let Some(stamp) = seen.stamp else { return found };
        found.hypervisors.push("qemu".to_owned());
        if seen.kvm {
            found.hypervisors.push("kvm".to_owned());
        }
        found.version = self.version(stamp).await;
        found
    }

    async fn version(&self, stamp: Stamp) -> String {
        let known = self.known().clone();
        if let Some((of, version)) = known
            && of == stamp
        {
            return version;
        }
        let version = asked_version(&stamp.path).await;
        // One that did not answer is asked again.
        if !version.is_empty() {
            *self.known() = Some((stamp, version.clone()));
        }
        version
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<(Stamp, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn asked_version(program: &Path) -> String {
    let path: OsString = PLACES.join(":").into();
    let asked = Command::new(program)
        .arg("--version")
        .env_clear()
        .env("PATH", path)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .output();
    match timeout(VERSION_LIMIT, asked).await {
        Ok(Ok(output)) => version_in(&String::from_utf8_lossy(&output.stdout)),
        Ok(Err(error)) => {
            tracing::debug!(program = %program.display(), %error, "does not tell its version");
            String::new()
        }
        Err(_) => String::new(),
    }
}

/// `7.2.15` of `QEMU emulator version 7.2.15 (...)`.
fn version_in(text: &str) -> String {
    let words = text.lines().next().unwrap_or_default().split_whitespace();
    words.skip_while(|word| *word != "version").nth(1).unwrap_or_default().to_owned()
}

/// Whether this host can run guests by KVM. Blocks for a moment.
///
/// A device that opens is not enough: some hosts without hardware virtualisation have one, and guests hang on it. So the
/// processor must say that it can, too.
pub fn kvm_is_usable() -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    decide(&processor, fs::OpenOptions::new().read(true).write(true).open(KVM).is_ok())
}

fn decide(processor: &str, device_opens: bool) -> bool {
    let flags = processor.lines().find(|line| line.starts_with("flags"));
    let virtualises =
        flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| matches!(flag, "vmx" | "svm")));
    virtualises && device_opens
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn kvm_needs_the_processor_and_the_device() {
        let with = "processor : 0\nflags\t\t: fpu vme svm nx\n";
        let without = "processor : 0\nflags\t\t: fpu vme svm_lock nx\n";
        assert!(decide(with, true));
        for (processor, opens) in [(with, false), (without, true), ("", true)] {
            assert!(!decide(processor, opens), "{processor:?} {opens}");
        }
    }

    #[test]
    fn the_version_is_the_word_after_version() {
        assert_eq!(version_in("QEMU emulator version 7.2.15 (Debian 1:7.2+dfsg-7)\nCopyright\n"), "7.2.15");
        assert_eq!(version_in("QEMU emulator\n"), "");
        assert_eq!(version_in(""), "");
    }

    #[tokio::test]
    async fn a_program_is_asked_once_until_its_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qemu");
        let put = |version: &str| {
            let said = folder.path().join("asked");
            let text =
                format!("#!/bin/sh\necho x >>{}\necho QEMU emulator version {version}\n", said.display());
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        };
        let qemu = Qemu::default();
        put("1.0");
        for _ in 0..3 {
            assert_eq!(qemu.version(Stamp::of(path.clone()).unwrap()).await, "1.0");
        }
        put("2.0.10");
        assert_eq!(qemu.version(Stamp::of(path.clone()).unwrap()).await, "2.0.10");
        assert_eq!(fs::read_to_string(folder.path().join("asked")).unwrap(), "x\nx\n");
    }
}
