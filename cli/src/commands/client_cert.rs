//! `gnt-cluster client-cert`. The key is made here and never leaves this host.

use std::path::{Path, PathBuf};

use muster_proto::{
    transport::{MODE_PUBLIC, PrivateKeyPem, new_key_and_csr, write_atomic},
    v1::{ClientCertificateRevoke, ClientCertificateSign, Job, operation::Operation},
};

use super::{cluster, operation};
use crate::{
    args::{ClientCertVerb, ConnectionFlags, OperationFlags},
    client::{Master, chain},
    exit::Failure,
    output::{
        cluster::{CLIENT_DEFAULT, CLIENT_FIELDS},
        denial,
        fields::select,
        jobs::job_json,
        note, print, print_json,
    },
};

/// The job's result that holds the certificate.
const RESULT_CERTIFICATE: &str = "certificate_pem";
/// The job's result that holds the CA's certificate.
const RESULT_CA: &str = "ca_pem";

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: ClientCertVerb) -> Result<(), Failure> {
    match verb {
        ClientCertVerb::Sign { name, role, out, operation } => {
            let files = Files::new(&out, &name)?;
            let master = Master::connect(connection).await?;
            sign(&master, &name, role.word(), &files, &operation).await
        }
        ClientCertVerb::List(list) => {
            let selection = select(CLIENT_FIELDS, CLIENT_DEFAULT, &list)?;
            let cluster = cluster::get(&Master::connect(connection).await?).await?;
            print(&selection.render(&cluster.clients)?)
        }
        ClientCertVerb::Revoke { name, operation } => {
            let master = Master::connect(connection).await?;
            let revoke = Operation::ClientCertificateRevoke(ClientCertificateRevoke { name });
            operation::run(&master, revoke, &operation).await
        }
    }
}

/// The three files of a client.
struct Files {
    key: PathBuf,
    certificate: PathBuf,
    ca: PathBuf,
}

impl Files {
    /// Their paths; a key that is there already is never replaced.
    fn new(folder: &Path, name: &str) -> Result<Self, Failure> {
        if !folder.is_dir() {
            return Err(Failure::Usage(format!("--out {}: there is no such directory", folder.display())));
        }
        let file = |suffix: &str| folder.join(format!("{name}.{suffix}"));
        let files = Files { key: file("key"), certificate: file("pem"), ca: folder.join("ca.pem") };
        for path in [&files.key, &files.certificate] {
            if path.symlink_metadata().is_ok() {
                return Err(Failure::Refused(format!(
                    "{} exists already; move it away or give another --out DIR",
                    path.display()
                )));
            }
        }
        Ok(files)
    }

    /// Writes what a signed certificate needs beside its key.
    fn write(&self, job: &Job) -> Result<(), Failure> {
        let result = |name: &str| {
            job.result.get(name).ok_or_else(|| {
                Failure::Refused(format!("job {} ended without {name:?} in its result", job.id))
            })
        };
        for (path, text) in [(&self.certificate, result(RESULT_CERTIFICATE)?), (&self.ca, result(RESULT_CA)?)]
        {
            write_atomic(path, text.as_bytes(), MODE_PUBLIC)
                .map_err(|error| Failure::Refused(chain(&error)))?;
        }
        Ok(())
    }

    fn save_key(&self, key: &PrivateKeyPem) -> Result<(), Failure> {
        key.save(&self.key).map_err(|error| Failure::Refused(chain(&error)))
    }

    /// A key without a certificate is of no use.
    fn forget_key(&self) {
        if let Err(error) = std::fs::remove_file(&self.key) {
            note(&format!("warning: could not remove {}: {error}", self.key.display()));
        }
    }
}

async fn sign(
    master: &Master,
    name: &str,
    role: &str,
    files: &Files,
    flags: &OperationFlags,
) -> Result<(), Failure> {
    if flags.submit {
        return Err(Failure::Usage(
            "client-cert sign waits for the certificate: leave out --submit".to_owned(),
        ));
    }
    let (key, csr_der) = new_key_and_csr(name).map_err(|error| Failure::Refused(chain(&error)))?;
    // Before anything is signed: a certificate whose key could not be kept would have to be revoked.
    files.save_key(&key)?;
    let sign = ClientCertificateSign { name: name.to_owned(), role: role.to_owned(), csr_der };
    let job = match operation::submit(master, Operation::ClientCertificateSign(sign), flags).await {
        Ok(id) => operation::follow_or_leave(master, id).await?,
        Err(failure) => {
            // After a lost connection it may have been signed all the same.
            if failure.code() != 3 {
                files.forget_key();
            }
            return Err(failure);
        }
    };
    if !denial::succeeded(&job) || job.dry_run {
        files.forget_key();
        return operation::tell_ends(&[job], false, flags);
    }
    files.write(&job)?;
    if flags.json {
        return print_json(&job_json(&job));
    }
    print(&format!("{}\n{}\n{}\n", files.key.display(), files.certificate.display(), files.ca.display()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn files_are_written_once_and_the_key_is_private() {
        let folder = std::env::temp_dir().join(format!("gnt-test-{}", uuid::Uuid::new_v4()));
        assert_eq!(Files::new(&folder, "ci").map(|_| ()).unwrap_err().code(), 2);
        fs::create_dir(&folder).unwrap();
        let files = Files::new(&folder, "ci").unwrap();
        let (key, csr) = new_key_and_csr("ci").unwrap();
        assert!(!csr.is_empty());
        files.save_key(&key).unwrap();
        let mode = fs::metadata(folder.join("ci.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut job = Job { id: 3, ..Job::default() };
        assert!(files.write(&job).unwrap_err().to_string().contains("certificate_pem"));
        job.result =
            [("certificate_pem".to_owned(), "C".to_owned()), ("ca_pem".to_owned(), "A".to_owned())].into();
        files.write(&job).unwrap();
        assert_eq!(fs::read_to_string(folder.join("ci.pem")).unwrap(), "C");
        assert_eq!(fs::read_to_string(folder.join("ca.pem")).unwrap(), "A");
        let failure = Files::new(&folder, "ci").map(|_| ()).unwrap_err();
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains("ci.key"));
        files.forget_key();
        assert!(!folder.join("ci.key").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
