//! The node's key and certificate, and the CA's certificate.
//!
//! `node.pem` holds key and certificate together, so that a crash can't leave a pair that does not fit; `ca.pem` the CA;
//! `next.key` a key for which a certificate has been asked. Keys never leave the host.
//!
//! A node that runs guests has a data certificate beside it ([`DataCertificate`]), which is asked for, stored and cleared
//! together with its own. It is on disk first: a node with a new certificate of its own has a new data certificate too.

use std::path::PathBuf;

use muster_core::names::NodeName;
use muster_proto::transport::{
    FileError, Fingerprint, Identity, IdentityKind, MODE_PRIVATE, MODE_PUBLIC, PkiError, PrivateKeyPem,
    TlsError, TlsState, check_data_certificate, new_key_and_csr, read_text, write_atomic,
};
use time::OffsetDateTime;
use tokio::sync::watch;
use uuid::Uuid;

use super::{data_certificate::DataCertificate, files};

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
    /// The data certificate's directory can't be used.
    #[error("could not put the data certificate into {}", .path.display())]
    Data {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// There is no key for it.
    #[error("a data certificate came that this node has not asked for")]
    DataNotAsked,
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

/// Signing requests, PKCS#10 in DER.
#[derive(Debug, Clone)]
pub struct Requests {
    /// For the node's own certificate.
    pub own: Vec<u8>,
    /// For its data certificate; a node that runs hooks only has none.
    pub data: Option<Vec<u8>>,
}

/// What a master has signed for a node, in PEM.
#[derive(Debug, Clone)]
pub struct Signed {
    /// The CA's certificate.
    pub ca_pem: String,
    /// The node's own certificate.
    pub certificate_pem: String,
    /// Its data certificate, if one was asked for and the master knows of such.
    pub data_certificate_pem: Option<String>,
}

/// The keys that belong to what was signed.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Of the node's own certificate.
    pub own: PrivateKeyPem,
    /// Of its data certificate.
    pub data: Option<PrivateKeyPem>,
}

/// Certificates that were checked, not yet on disk or in use.
#[derive(Debug)]
pub struct Checked {
    /// The node they are for.
    pub node: Uuid,
    /// The fingerprint of its own certificate.
    pub fingerprint: Fingerprint,
    ca_pem: String,
    certificate_pem: String,
    key: PrivateKeyPem,
    data: Option<(String, PrivateKeyPem)>,
    tls: TlsState,
}

/// The credentials on disk and in use.
#[derive(Debug)]
pub struct Credentials {
    folder: PathBuf,
    /// What connections are made with; `None` while the node has no certificate.
    tls: watch::Sender<Option<TlsState>>,
    data: DataCertificate,
}

impl Credentials {
    /// Credentials in `folder`, none of them in use.
    pub fn new(folder: PathBuf) -> Self {
        let data = DataCertificate::new(folder.clone());
        Credentials { folder, tls: watch::Sender::new(None), data }
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

    /// Makes new keys, of which the newest count, and signing requests for them; one for a data certificate is among them
    /// unless the node runs hooks only. Blocks.
    ///
    /// # Errors
    /// When no key can be made or kept.
    pub fn make_requests(&self, name: &str, hooks_only: bool) -> Result<Requests, CredentialError> {
        let (key, own) = new_key_and_csr(name)?;
        let data = (!hooks_only).then(|| self.data.make_request(name)).transpose()?;
        key.save(&self.path("next.key"))?;
        Ok(Requests { own, data })
    }

    /// The keys for which certificates were asked last. Blocks.
    ///
    /// # Errors
    /// When there is none for the node's own.
    pub fn next_keys(&self) -> Result<Keys, CredentialError> {
        let own = PrivateKeyPem::new(read_text(&self.path("next.key"))?);
        Ok(Keys { own, data: self.data.next_key()? })
    }

    /// Whether the node needs a data certificate: it has none, or one in the last third of its life. Blocks.
    pub fn data_is_due(&self, now: OffsetDateTime) -> bool {
        self.data.is_due(now)
    }

    /// Checks what was signed; nothing is changed.
    ///
    /// # Errors
    /// When it is not for that holder, or does not fit the keys.
    pub fn check(
        signed: Signed,
        keys: Keys,
        holder: Holder,
        name: &NodeName,
    ) -> Result<Checked, CredentialError> {
        let Signed { ca_pem, certificate_pem, data_certificate_pem } = signed;
        let key = keys.own;
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
        let data = match data_certificate_pem {
            Some(pem) => {
                let key = keys.data.ok_or(CredentialError::DataNotAsked)?;
                check_data_certificate(&pem, &key, name)?;
                Some((pem, key))
            }
            None => None,
        };
        let fingerprint = tls.fingerprint();
        Ok(Checked { node, fingerprint, ca_pem, certificate_pem, key, data, tls })
    }

    /// Puts certificates on disk with their keys. Blocks.
    ///
    /// # Errors
    /// When the disk fails; the node's own certificate is not changed then.
    pub fn store(&self, checked: &Checked) -> Result<(), CredentialError> {
        if let Some((certificate_pem, key)) = &checked.data {
            self.data.store(&checked.ca_pem, certificate_pem, key)?;
        }
        let pair = format!("{}\n{}", checked.key.as_str().trim_end(), checked.certificate_pem);
        write_atomic(&self.path("ca.pem"), checked.ca_pem.as_bytes(), MODE_PUBLIC)?;
        Ok(write_atomic(&self.path("node.pem"), pair.as_bytes(), MODE_PRIVATE)?)
    }

    /// Uses a stored certificate from the next connection on.
    ///
    /// # Errors
    /// None that [`Credentials::check`] would not have found.
    pub fn activate(&self, stored: Checked) -> Result<(), CredentialError> {
        match self.tls() {
            // The server reads it anew for each connection.
            Some(current) => current.replace(&stored.ca_pem, &stored.certificate_pem, &stored.key)?,
            None => {
                self.tls.send_replace(Some(stored.tls));
            }
        }
        self.data.forget_next_key()?;
        self.remove("next.key")
    }

    /// Uses no certificate any more and deletes all of it. Blocks.
    ///
    /// # Errors
    /// When a file can't be removed.
    pub fn clear(&self) -> Result<(), CredentialError> {
        self.tls.send_replace(None);
        self.data.clear()?;
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

    use muster_proto::transport::{Ca, LEAF_LIFETIME};

    use super::*;

    const CLUSTER: Uuid = Uuid::from_u128(1);
    const NODE: Uuid = Uuid::from_u128(2);

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    /// What a master signs, the data certificate for the node of this name.
    fn sign(ca: &Ca, requests: &Requests, node: Uuid, data: &str) -> Signed {
        let now = OffsetDateTime::now_utc();
        let own = ca.sign(&requests.own, &Identity::node(CLUSTER, node), now, LEAF_LIFETIME).unwrap();
        let sign_data = |csr: &Vec<u8>| ca.sign_data(csr, &name(data), &[], now, LEAF_LIFETIME).unwrap().pem;
        Signed {
            ca_pem: ca.certificate_pem(),
            certificate_pem: own.pem,
            data_certificate_pem: requests.data.as_ref().map(sign_data),
        }
    }

    #[test]
    fn a_certificate_is_used_when_it_fits_key_and_holder() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(folder.path().to_owned());
        let ca = Ca::create(CLUSTER, OffsetDateTime::now_utc()).unwrap();
        assert!(credentials.next_keys().is_err());
        let old = credentials.make_requests("node1", false).unwrap();
        let newest = credentials.make_requests("node1", false).unwrap();
        let check = |signed: Signed, holder| {
            Credentials::check(signed, credentials.next_keys().unwrap(), holder, &name("node1"))
        };
        let holder = Holder { cluster: CLUSTER, node: None };
        let mixed =
            |own: &Requests, data: &Requests| Requests { own: own.own.clone(), data: data.data.clone() };
        for requests in [&old, &mixed(&old, &newest), &mixed(&newest, &old)] {
            let refused = check(sign(&ca, requests, NODE, "node1"), holder);
            assert!(matches!(refused, Err(CredentialError::Tls(TlsError::Key(_)))), "{refused:?}");
        }
        let refused = check(sign(&ca, &newest, NODE, "node2"), holder);
        assert!(matches!(refused, Err(CredentialError::Tls(TlsError::DataName { .. }))), "{refused:?}");
        for wrong in [
            Holder { cluster: CLUSTER, node: Some(Uuid::from_u128(3)) },
            Holder { cluster: Uuid::from_u128(3), node: Some(NODE) },
        ] {
            let refused = check(sign(&ca, &newest, NODE, "node1"), wrong);
            assert!(matches!(refused, Err(CredentialError::OtherIdentity { .. })), "{refused:?}");
        }

        let checked = check(sign(&ca, &newest, NODE, "node1"), holder).unwrap();
        let fingerprint = checked.fingerprint;
        assert_eq!(checked.node, NODE);
        credentials.store(&checked).unwrap();
        credentials.activate(checked).unwrap();
        assert_eq!(credentials.tls().unwrap().fingerprint(), fingerprint);
        assert!(!credentials.data_is_due(OffsetDateTime::now_utc()));
        let mode = fs::metadata(folder.path().join("node.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let restarted = Credentials::new(folder.path().to_owned());
        restarted.load().unwrap();
        assert_eq!(restarted.tls().unwrap().fingerprint(), fingerprint);
        restarted.clear().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_node_that_runs_hooks_only_asks_for_no_data_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(folder.path().to_owned());
        let ca = Ca::create(CLUSTER, OffsetDateTime::now_utc()).unwrap();
        let requests = credentials.make_requests("node1", true).unwrap();
        assert!(requests.data.is_none());
        let holder = Holder { cluster: CLUSTER, node: None };
        let keys = || credentials.next_keys().unwrap();
        let signed = sign(&ca, &requests, NODE, "node1");
        Credentials::check(signed.clone(), keys(), holder, &name("node1")).unwrap();
        let (_, data) = new_key_and_csr("node1").unwrap();
        let data = sign(&ca, &Requests { data: Some(data), ..requests }, NODE, "node1").data_certificate_pem;
        let unasked = Signed { data_certificate_pem: data, ..signed };
        let refused = Credentials::check(unasked, keys(), holder, &name("node1"));
        assert!(matches!(refused, Err(CredentialError::DataNotAsked)), "{refused:?}");
    }
}
