//! The node's key and certificate, and the CA's certificate.
//!
//! `node.pem` holds key and certificate together, so that a crash can't leave a pair that does not fit; `ca.pem` the CA;
//! `next.key` a key for which a certificate has been asked. Keys never leave the host.

use std::path::PathBuf;

use muster_proto::transport::{
    FileError, Fingerprint, Identity, IdentityKind, MODE_PRIVATE, MODE_PUBLIC, PkiError, PrivateKeyPem,
    TlsError, TlsState, new_key_and_csr, read_text, write_atomic,
};
use tokio::sync::watch;
use uuid::Uuid;

use super::files;

/// Why a certificate could not be asked for or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// No key could be made.
    #[error("could not make a key")]
    Key(#[from] PkiError),
    /// A file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file can't be removed.
    #[error("could not remove {}", .path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The certificate does not fit the key, or is none.
    #[error("the certificate can't be used")]
    Tls(#[from] TlsError),
    /// The certificate is somebody else's.
    #[error("the certificate is for {found}, not for {expected}")]
    OtherIdentity {
        /// In the certificate.
        found: Identity,
        /// Whom it must be for.
        expected: String,
    },
}

/// Whom a certificate must be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// The cluster.
    pub cluster: Uuid,
    /// The node, where it is known already.
    pub node: Option<Uuid>,
}

/// A certificate that was checked and is on disk, not yet in use.
#[derive(Debug)]
pub struct Stored {
    /// The node it is for.
    pub node: Uuid,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    ca_pem: String,
    certificate_pem: String,
    key: PrivateKeyPem,
    tls: TlsState,
}

/// The credentials on disk and in use.
#[derive(Debug)]
pub struct Credentials {
    folder: PathBuf,
    /// What connections are made with; `None` while the node has no certificate.
    tls: watch::Sender<Option<TlsState>>,
}

impl Credentials {
    /// Credentials in `folder`, none of them in use.
    pub fn new(folder: PathBuf) -> Self {
        Credentials { folder, tls: watch::Sender::new(None) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Uses what is on disk.
    ///
    /// # Errors
    /// When it can't be read or does not fit together.
    pub fn load(&self) -> Result<(), CredentialError> {
        let pair = self.path("node.pem");
        let tls = TlsState::load(&self.path("ca.pem"), &pair, &pair)?;
        self.tls.send_replace(Some(tls));
        Ok(())
    }

    /// What is in use.
    pub fn tls(&self) -> Option<TlsState> {
        self.tls.borrow().clone()
    }

    /// The fingerprint of the certificate in use, if it is this one.
    pub fn current(&self, certificate_pem: &str) -> Option<Fingerprint> {
        let pair = read_text(&self.path("node.pem")).ok()?;
        let same = !certificate_pem.trim().is_empty() && pair.trim_end().ends_with(certificate_pem.trim());
        self.tls().filter(|_| same).map(|tls| tls.fingerprint())
    }

    /// Tells when the node gets its first certificate, another one, or loses it.
    pub fn changes(&self) -> watch::Receiver<Option<TlsState>> {
        self.tls.subscribe()
    }

    /// Makes a new key, of which the newest counts, and a signing request for it. Blocks.
    ///
    /// # Errors
    /// When no key can be made or kept.
    pub fn make_request(&self, name: &str) -> Result<Vec<u8>, CredentialError> {
        let (key, request) = new_key_and_csr(name)?;
        key.save(&self.path("next.key"))?;
        Ok(request)
    }

    /// The key for which a certificate was asked last. Blocks.
    ///
    /// # Errors
    /// When there is none.
    pub fn next_key(&self) -> Result<PrivateKeyPem, CredentialError> {
        Ok(PrivateKeyPem::new(read_text(&self.path("next.key"))?))
    }

    /// Checks a certificate and puts it on disk with its key. Blocks.
    ///
    /// # Errors
    /// When it is not for that holder or does not fit the key, or the disk fails; nothing is changed then.
    pub fn store(
        &self,
        ca_pem: String,
        certificate_pem: String,
        key: PrivateKeyPem,
        holder: Holder,
    ) -> Result<Stored, CredentialError> {
        let tls = TlsState::new(&ca_pem, &certificate_pem, &key)?;
        let found = tls.identity();
        let node = match found.kind {
            IdentityKind::Node { node } => Some(node),
            IdentityKind::Master { .. } | IdentityKind::Client { .. } => None,
        };
        let node = node.filter(|node| {
            found.cluster == holder.cluster && holder.node.is_none_or(|expected| expected == *node)
        });
        let Some(node) = node else {
            let who = holder.node.map_or("a node".to_owned(), |node| format!("node {node}"));
            let expected = format!("{who} of cluster {}", holder.cluster);
            return Err(CredentialError::OtherIdentity { found, expected });
        };
        let pair = format!("{}\n{certificate_pem}", key.as_str().trim_end());
        write_atomic(&self.path("ca.pem"), ca_pem.as_bytes(), MODE_PUBLIC)?;
        write_atomic(&self.path("node.pem"), pair.as_bytes(), MODE_PRIVATE)?;
        let fingerprint = tls.fingerprint();
        Ok(Stored { node, fingerprint, ca_pem, certificate_pem, key, tls })
    }

    /// Uses a stored certificate from the next connection on.
    ///
    /// # Errors
    /// None that [`Credentials::store`] would not have found.
    pub fn activate(&self, stored: Stored) -> Result<(), CredentialError> {
        match self.tls() {
            // The server reads it anew for each connection.
            Some(current) => current.replace(&stored.ca_pem, &stored.certificate_pem, &stored.key)?,
            None => {
                self.tls.send_replace(Some(stored.tls));
            }
        }
        self.remove("next.key")
    }

    /// Uses no certificate any more and deletes all of it. Blocks.
    ///
    /// # Errors
    /// When a file can't be removed.
    pub fn clear(&self) -> Result<(), CredentialError> {
        self.tls.send_replace(None);
        ["node.pem", "ca.pem", "next.key"].into_iter().try_for_each(|name| self.remove(name))
    }

    fn remove(&self, name: &str) -> Result<(), CredentialError> {
        let path = self.path(name);
        files::remove(&path).map_err(|source| CredentialError::Remove { path, source })
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use muster_proto::transport::{Ca, LEAF_LIFETIME, Signed};
    use time::OffsetDateTime;

    use super::*;

    const CLUSTER: Uuid = Uuid::from_u128(1);
    const NODE: Uuid = Uuid::from_u128(2);

    fn sign(ca: &Ca, request: &[u8], node: Uuid) -> Signed {
        ca.sign(request, &Identity::node(CLUSTER, node), OffsetDateTime::now_utc(), LEAF_LIFETIME).unwrap()
    }

    #[test]
    fn a_certificate_is_used_when_it_fits_key_and_holder() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(folder.path().to_owned());
        let ca = Ca::create(CLUSTER, OffsetDateTime::now_utc()).unwrap();
        assert!(credentials.next_key().is_err());
        let old = credentials.make_request("node1").unwrap();
        let newest = credentials.make_request("node1").unwrap();
        let store = |signed: Signed, holder| {
            credentials.store(ca.certificate_pem(), signed.pem, credentials.next_key().unwrap(), holder)
        };
        let holder = Holder { cluster: CLUSTER, node: None };
        assert!(matches!(store(sign(&ca, &old, NODE), holder), Err(CredentialError::Tls(_))));
        for wrong in [
            Holder { cluster: CLUSTER, node: Some(Uuid::from_u128(3)) },
            Holder { cluster: Uuid::from_u128(3), node: Some(NODE) },
        ] {
            let refused = store(sign(&ca, &newest, NODE), wrong);
            assert!(matches!(refused, Err(CredentialError::OtherIdentity { .. })), "{refused:?}");
        }
        assert!(!folder.path().join("node.pem").exists(), "a refused certificate leaves nothing");

        let stored = store(sign(&ca, &newest, NODE), holder).unwrap();
        let fingerprint = stored.fingerprint;
        assert_eq!(stored.node, NODE);
        credentials.activate(stored).unwrap();
        assert_eq!(credentials.tls().unwrap().fingerprint(), fingerprint);
        let mode = fs::metadata(folder.path().join("node.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let restarted = Credentials::new(folder.path().to_owned());
        restarted.load().unwrap();
        assert_eq!(restarted.tls().unwrap().fingerprint(), fingerprint);
        restarted.clear().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
