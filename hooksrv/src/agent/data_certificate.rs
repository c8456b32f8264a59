//! The data certificate's files, by the names that QEMU wants: `ca-cert.pem`, `server-cert.pem` and `server-key.pem`, and
//! the same certificate and key again as `client-cert.pem` and `client-key.pem`. And `dh-params.pem`: without it QEMU 7 seeks
//! a prime of its own for each server that it begins, mostly in half a second, at times in many on a busy host.
//!
//! ```text
//! node/data -> data.1f0c5e77a2b94d03      the one to use
//! node/data.1f0c5e77a2b94d03/*.pem        named by the certificate, never changed
//! node/data.9b20c4d1e86f3a55/*.pem        the one before
//! node/next-data.key                      a key for which a certificate has been asked
//! ```
//!
//! QEMU reads the files one after the other whenever credentials are made. A new certificate therefore gets a directory of
//! its own, complete and durable before the link is renamed into place; whoever resolved the link before
//! ([`data_certificates_dir`](super::Config::data_certificates_dir) does) still reads certificate and key that belong
//! together, as the directory before stays until the next renewal.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use muster_proto::transport::{
    FileError, Fingerprint, MODE_PUBLIC, PrivateKeyPem, Validity, new_key_and_csr, read_text, write_atomic,
};
use time::OffsetDateTime;

use super::{CredentialError, files, join::NODE_DIR_MODE};

/// The link to the directory in use; the directories' names start with it too.
pub(super) const LINK: &str = "data";
/// What the link is made as before it is renamed.
const LINK_NEW: &str = "data.new";
const NEXT_KEY: &str = "next-data.key";
const DH_PARAMETERS: &str = "dh-params.pem";
/// The group ffdhe2048 of RFC 7919.
const FFDHE2048: &str = "\
-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
";
/// So much of a certificate's fingerprint tells two of them apart.
const VERSION_CHARS: usize = 16;

/// The data certificate on disk.
#[derive(Debug)]
pub(super) struct DataCertificate {
    folder: PathBuf,
}

impl DataCertificate {
    /// The one in the node's directory.
    pub(super) fn new(folder: PathBuf) -> Self {
        DataCertificate { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a new key, of which the newest counts, and a signing request for it.
    pub(super) fn make_request(&self, name: &str) -> Result<Vec<u8>, CredentialError> {
        let (key, request) = new_key_and_csr(name)?;
        key.save(&self.path(NEXT_KEY))?;
        Ok(request)
    }

    /// The key for which a certificate was asked last, if there is one.
    pub(super) fn next_key(&self) -> Result<Option<PrivateKeyPem>, CredentialError> {
        match read_text(&self.path(NEXT_KEY)) {
            Ok(text) => Ok(Some(PrivateKeyPem::new(text))),
            Err(FileError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The certificate came: its key is beside it now.
    pub(super) fn forget_next_key(&self) -> Result<(), CredentialError> {
        let path = self.path(NEXT_KEY);
        files::remove(&path).map_err(|source| CredentialError::Remove { path, source })
    }

    /// Puts certificate and key, which belong together, into place. One that is there already stays.
    pub(super) fn store(
        &self,
        ca_pem: &str,
        certificate_pem: &str,
        key: &PrivateKeyPem,
    ) -> Result<(), CredentialError> {
        let fingerprint = Fingerprint::of(certificate_pem.as_bytes()).to_string();
        let short: String = fingerprint.chars().take(VERSION_CHARS).collect();
        let version = format!("{LINK}.{short}");
        let before = self.linked();
        if before.as_deref() == Some(version.as_str()) {
            return Ok(());
        }
        let folder = self.path(&version);
        // Half of it, left by a crash.
        self.remove_folder(&version)?;
        let failed = |source| CredentialError::Data { path: folder.clone(), source };
        files::make_dir(&folder, NODE_DIR_MODE).map_err(failed)?;
        write_atomic(&folder.join("ca-cert.pem"), ca_pem.as_bytes(), MODE_PUBLIC)?;
        write_atomic(&folder.join(DH_PARAMETERS), FFDHE2048.as_bytes(), MODE_PUBLIC)?;
        write_atomic(&folder.join("server-cert.pem"), certificate_pem.as_bytes(), MODE_PUBLIC)?;
        key.save(&folder.join("server-key.pem"))?;
        for file in ["cert.pem", "key.pem"] {
            let end = |end| folder.join(format!("{end}-{file}"));
            fs::hard_link(end("server"), end("client")).map_err(failed)?;
        }
        sync(&folder).map_err(failed)?;
        self.link(&version).map_err(failed)?;
        self.remove_folders(&[Some(version), before])
    }

    /// Whether there is none, or one in the last third of its life.
    pub(super) fn is_due(&self, now: OffsetDateTime) -> bool {
        let text = read_text(&self.path(LINK).join("server-cert.pem")).ok();
        text.and_then(|pem| Validity::of_pem(&pem).ok()).is_none_or(|validity| validity.renewal_due(now))
    }

    /// Deletes everything.
    pub(super) fn clear(&self) -> Result<(), CredentialError> {
        for name in [LINK, LINK_NEW, NEXT_KEY] {
            let path = self.path(name);
            files::remove(&path).map_err(|source| CredentialError::Remove { path, source })?;
        }
        self.remove_folders(&[])
    }

    /// The name of the directory in use.
    fn linked(&self) -> Option<String> {
        let target = fs::read_link(self.path(LINK)).ok()?;
        Some(target.to_str()?.to_owned())
    }

    /// Makes this directory the one in use.
    fn link(&self, version: &str) -> io::Result<()> {
        let new = self.path(LINK_NEW);
        files::remove(&new)?;
        symlink(version, &new)?;
        fs::rename(&new, self.path(LINK))?;
        sync(&self.folder)
    }

    /// Removes the directories of all certificates but these.
    fn remove_folders(&self, keep: &[Option<String>]) -> Result<(), CredentialError> {
        let failed = |source| CredentialError::Data { path: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let Ok(name) = entry.map_err(failed)?.file_name().into_string() else { continue };
            let of_certificate = name.strip_prefix(LINK).is_some_and(|rest| rest.starts_with('.'));
            if of_certificate && !keep.iter().flatten().any(|kept| *kept == name) {
                self.remove_folder(&name)?;
            }
        }
        Ok(())
    }

    /// Removes one certificate's directory, durably: a key is in it.
    fn remove_folder(&self, version: &str) -> Result<(), CredentialError> {
        let path = self.path(version);
        let removed = match fs::remove_dir_all(&path) {
            Ok(()) => sync(&self.folder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        removed.map_err(|source| CredentialError::Remove { path, source })
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use muster_core::names::NodeName;
    use muster_proto::transport::{Ca, LEAF_LIFETIME, check_data_certificate};
    use uuid::Uuid;

    use super::*;

    struct Bench {
        folder: tempfile::TempDir,
        ca: Ca,
        node: NodeName,
        data: DataCertificate,
    }

    impl Bench {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let ca = Ca::create(Uuid::from_u128(1), OffsetDateTime::now_utc()).unwrap();
            let data = DataCertificate::new(folder.path().to_owned());
            Bench { folder, ca, node: NodeName::parse("node1").unwrap(), data }
        }

        fn renew(&self, start: OffsetDateTime) -> String {
            let request = self.data.make_request("node1").unwrap();
            let signed = self.ca.sign_data(&request, &self.node, &[], start, LEAF_LIFETIME).unwrap();
            let key = self.data.next_key().unwrap().unwrap();
            self.data.store(&self.ca.certificate_pem(), &signed.pem, &key).unwrap();
            self.data.forget_next_key().unwrap();
            signed.pem
        }

        /// The directory in use.
        fn used(&self) -> PathBuf {
            fs::canonicalize(self.folder.path().join(LINK)).unwrap()
        }

        fn names(folder: &Path) -> Vec<String> {
            let entries = fs::read_dir(folder).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        /// Both ends' files have this certificate and a key that fits.
        fn holds(&self, folder: &Path, certificate_pem: &str) {
            let all = [
                "ca-cert.pem",
                "client-cert.pem",
                "client-key.pem",
                DH_PARAMETERS,
                "server-cert.pem",
                "server-key.pem",
            ];
            assert_eq!(Self::names(folder), all);
            let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
            assert_eq!(read("ca-cert.pem"), self.ca.certificate_pem());
            for end in ["server", "client"] {
                assert_eq!(read(&format!("{end}-cert.pem")), certificate_pem);
                let key = PrivateKeyPem::new(read(&format!("{end}-key.pem")));
                check_data_certificate(certificate_pem, &key, &self.node).unwrap();
                let mode = fs::metadata(folder.join(format!("{end}-key.pem"))).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
    }

    #[test]
    fn who_reads_while_a_certificate_is_renewed_finds_a_pair_that_fits() {
        let bench = Bench::new();
        let now = OffsetDateTime::now_utc();
        assert!(bench.data.is_due(now), "there is none");
        assert!(bench.data.next_key().unwrap().is_none());
        let first = bench.renew(now);
        assert!(!bench.data.is_due(now));
        let reading = bench.used();
        let second = bench.renew(now);
        bench.holds(&reading, &first);
        bench.holds(&bench.used(), &second);
        let third = bench.renew(now);
        assert!(!reading.exists(), "at most one before is kept");
        bench.holds(&bench.used(), &third);
        assert_eq!(Bench::names(bench.folder.path()).len(), 3);

        // A repeat changes nothing, whatever key comes with it.
        let (other, _) = new_key_and_csr("node1").unwrap();
        bench.data.store(&bench.ca.certificate_pem(), &third, &other).unwrap();
        bench.holds(&bench.used(), &third);
        bench.data.make_request("node1").unwrap();
        bench.data.clear().unwrap();
        assert_eq!(Bench::names(bench.folder.path()), Vec::<String>::new());
        bench.data.clear().unwrap();
    }

    #[test]
    fn what_a_crash_left_is_made_anew() {
        let bench = Bench::new();
        let now = OffsetDateTime::now_utc();
        let request = bench.data.make_request("node1").unwrap();
        let signed = bench.ca.sign_data(&request, &bench.node, &[], now, LEAF_LIFETIME).unwrap();
        let key = bench.data.next_key().unwrap().unwrap();
        let store = || bench.data.store(&bench.ca.certificate_pem(), &signed.pem, &key);
        store().unwrap();
        // It died with half of the files written, and with the next link made and not renamed.
        fs::remove_file(bench.folder.path().join(LINK)).unwrap();
        symlink("data.0000", bench.folder.path().join(LINK_NEW)).unwrap();
        let folder = bench.folder.path().join(&Bench::names(bench.folder.path())[0]);
        fs::remove_file(folder.join("client-key.pem")).unwrap();
        store().unwrap();
        bench.holds(&bench.used(), &signed.pem);
    }

    #[test]
    fn it_is_due_in_the_last_third_of_its_life() {
        let bench = Bench::new();
        let now = OffsetDateTime::now_utc();
        bench.renew(now - time::Duration::days(200));
        assert!(!bench.data.is_due(now));
        bench.renew(now - time::Duration::days(250));
        assert!(bench.data.is_due(now));
    }
}
