//! The cluster's CA on this host, and the certificates it signs.
//!
//! Every signature is recorded durably before the certificate leaves this module's caller: [`Unrecorded`] gives the
//! certificate only to who writes its record. So what was given out is always known, and pinned, after a crash too. Data
//! certificates are the exception: no service accepts them, so that there is nothing to pin or withdraw.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use muster_core::{model, names::NodeName};
use muster_proto::transport::{
    Ca, ClientRole, FileError, Fingerprint, Identity, LEAF_LIFETIME, MASTER_DNS_NAME, MODE_PRIVATE, PkiError,
    PrivateKeyPem, Signed, TlsError, TlsState, new_key_and_csr, write_atomic,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::store::{Batch, RecordWriter, WriteError, encode, keys};

/// Names the note that the CA's cluster is not in a store yet.
const UNFINISHED: &str = "ca.unfinished";

/// Why the CA could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaError {
    /// The library refused it, or a file could not be read or written.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// There is no cluster.
    #[error("there is no certificate authority on this host: it is not the master of a cluster")]
    None,
    /// A file could not be removed.
    #[error("could not remove {path}")]
    Remove {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The master's own certificate is not usable.
    #[error("the master's own certificate can't be used")]
    Own(#[from] TlsError),
    /// The note that a cluster is being made.
    #[error("could not note that a cluster is being made")]
    Note(#[from] FileError),
    /// The record of a signature could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The record of a signed certificate that is not, or not yet, in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// For whom.
    pub identity: String,
    /// When, in milliseconds since 1970.
    pub issued_ms: u64,
}

/// A certificate whose record is not written yet.
#[derive(Debug)]
#[must_use = "a certificate that is not recorded is never accepted"]
pub struct Unrecorded {
    signed: Signed,
    record: (String, String),
}

impl Unrecorded {
    /// Writes the record, together with other changes, and gives the certificate once that is durable.
    pub async fn record(self, writer: &dyn RecordWriter, mut with: Batch) -> Result<Signed, WriteError> {
        let (key, value) = self.record;
        with.put(key, value);
        writer.write(with).await?;
        Ok(self.signed)
    }

    /// Which certificate it is.
    pub fn fingerprint(&self) -> Fingerprint {
        self.signed.fingerprint
    }

    /// The certificate in PEM, to stand in other records of the same batch.
    pub(crate) fn pem(&self) -> &str {
        &self.signed.pem
    }

    /// The record, and the certificate for the caller who puts the record into a batch and waits for that.
    fn into_parts(self) -> ((String, String), Signed) {
        (self.record, self.signed)
    }
}

/// The master's certificate for one term of office; its key is in this process's memory only.
pub struct OwnCertificate {
    /// What TLS needs.
    pub tls: TlsState,
    /// To be committed with the epoch, before anybody is shown the certificate.
    pub record: (String, String),
    ca_pem: String,
    certificate_pem: String,
    key: PrivateKeyPem,
}

impl OwnCertificate {
    /// Makes a running server and its channels use this certificate from their next connections on.
    pub fn put_into(&self, tls: &TlsState) -> Result<(), TlsError> {
        tls.replace(&self.ca_pem, &self.certificate_pem, &self.key)
    }
}

struct Held {
    cluster: Uuid,
    ca: Arc<Ca>,
}

/// The CA of the cluster whose master this is, in two files beside the store.
pub struct CaKeeper {
    certificate: PathBuf,
    key: PathBuf,
    /// Is there while the CA's cluster is being made: only such a CA may be removed when there is no store.
    unfinished: PathBuf,
    held: RwLock<Option<Held>>,
}

impl CaKeeper {
    /// Reads the CA of this cluster. Without a cluster, what an interrupted init left is removed.
    pub fn open(directory: &Path, cluster: Option<Uuid>) -> Result<Self, CaError> {
        let keeper = Self {
            certificate: directory.join("ca.pem"),
            key: directory.join("ca.key"),
            unfinished: directory.join(UNFINISHED),
            held: RwLock::new(None),
        };
        match cluster {
            Some(cluster) => {
                keeper.hold(cluster, Ca::load(&keeper.certificate, &keeper.key)?);
                keeper.finish()?;
            }
            None => keeper.remove()?,
        }
        Ok(keeper)
    }

    /// A file of a CA that no interrupted init left: its cluster's store must be somewhere.
    pub(crate) fn orphaned(directory: &Path) -> Option<PathBuf> {
        if directory.join(UNFINISHED).exists() {
            return None;
        }
        ["ca.key", "ca.pem"].map(|name| directory.join(name)).into_iter().find(|path| path.exists())
    }

    /// The CA's cluster is in the store.
    pub(crate) fn finish(&self) -> Result<(), CaError> {
        remove(&self.unfinished)
    }

    /// Makes the CA of a new cluster; one that was made for this cluster already stays.
    pub fn create(&self, cluster: Uuid, now_ms: u64) -> Result<(), CaError> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|held| held.cluster);
        if held == Some(cluster) {
            return Ok(());
        }
        let ca = Ca::create(cluster, moment(now_ms))?;
        write_atomic(&self.unfinished, cluster.to_string().as_bytes(), MODE_PRIVATE)?;
        ca.save(&self.certificate, &self.key)?;
        self.hold(cluster, ca);
        Ok(())
    }

    /// Stores the CA that the old master handed over.
    pub fn install(&self, cluster: Uuid, certificate_pem: &str, key: &PrivateKeyPem) -> Result<(), CaError> {
        let ca = Ca::from_pem(certificate_pem, key.as_str())?;
        ca.save(&self.certificate, &self.key)?;
        self.hold(cluster, ca);
        Ok(())
    }

    /// Removes the CA; that there is none is no error.
    pub fn remove(&self) -> Result<(), CaError> {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = None;
        // The key goes first: a certificate without a key can do no harm.
        [&self.key, &self.certificate, &self.unfinished].into_iter().try_for_each(|path| remove(path))
    }

    /// The certificate in PEM.
    pub fn certificate_pem(&self) -> Result<String, CaError> {
        Ok(self.ca()?.1.certificate_pem())
    }

    /// Certificate and key, for the master that takes over.
    pub fn material(&self) -> Result<(String, PrivateKeyPem), CaError> {
        let (_, ca) = self.ca()?;
        Ok((ca.certificate_pem(), ca.key_pem()))
    }

    /// SHA-256 of the certificate, as tokens carry it.
    pub fn digest(&self) -> Result<Fingerprint, CaError> {
        Ok(self.ca()?.1.digest())
    }

    /// Signs a node's request.
    pub fn sign_node(&self, csr_der: &[u8], node: Uuid, now_ms: u64) -> Result<Unrecorded, CaError> {
        self.sign(csr_der, now_ms, None, |cluster| Identity::node(cluster, node))
    }

    /// Signs a node's request for a data certificate. A node that has the name of masters' certificates gets none.
    pub fn sign_data(
        &self,
        csr_der: &[u8],
        node: &NodeName,
        addresses: &[IpAddr],
        now_ms: u64,
    ) -> Result<Option<String>, CaError> {
        if !may_have_data_certificate(node) {
            tracing::warn!(%node, "a node of this name gets no data certificate: it would pass for a master");
            return Ok(None);
        }
        let (_, ca) = self.ca()?;
        Ok(Some(ca.sign_data(csr_der, node, addresses, moment(now_ms), LEAF_LIFETIME)?.pem))
    }

    /// Signs a remote client's request.
    pub fn sign_client(
        &self,
        csr_der: &[u8],
        client: Uuid,
        role: model::ClientRole,
        now_ms: u64,
    ) -> Result<Unrecorded, CaError> {
        self.sign(csr_der, now_ms, None, |cluster| Identity::client(cluster, client, wire_role(role)))
    }

    /// Makes the master's own certificate for a term of office, with a new key.
    pub fn own_certificate(
        &self,
        name: &NodeName,
        node: Uuid,
        epoch: u64,
        address: Option<IpAddr>,
        now_ms: u64,
    ) -> Result<OwnCertificate, CaError> {
        let (key, csr) = new_key_and_csr(name.as_str())?;
        let unrecorded =
            self.sign(&csr, now_ms, address, |cluster| Identity::master(cluster, node, epoch))?;
        let (record, signed) = unrecorded.into_parts();
        let ca_pem = self.certificate_pem()?;
        let tls = TlsState::new(&ca_pem, &signed.pem, &key)?;
        Ok(OwnCertificate { tls, record, ca_pem, certificate_pem: signed.pem, key })
    }

    /// Days that the CA is still valid.
    ///
    /// # Errors
    /// When there is no CA, or its certificate can't be read.
    pub fn days_left(&self, now_ms: u64) -> Result<i64, CaError> {
        let (_, ca) = self.ca()?;
        Ok(ca.validity()?.days_left(moment(now_ms)))
    }

    fn sign(
        &self,
        csr_der: &[u8],
        now_ms: u64,
        address: Option<IpAddr>,
        identity: impl FnOnce(Uuid) -> Identity,
    ) -> Result<Unrecorded, CaError> {
        let (cluster, ca) = self.ca()?;
        let identity = identity(cluster);
        let signed = ca.sign_at(csr_der, &identity, address, moment(now_ms), LEAF_LIFETIME)?;
        let issued = Issued { identity: identity.to_string(), issued_ms: now_ms };
        let record = (keys::issued(&signed.fingerprint), encode(&issued));
        Ok(Unrecorded { signed, record })
    }

    fn ca(&self) -> Result<(Uuid, Arc<Ca>), CaError> {
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(|held| (held.cluster, held.ca.clone())).ok_or(CaError::None)
    }

    fn hold(&self, cluster: Uuid, ca: Ca) {
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = Some(Held { cluster, ca: Arc::new(ca) });
    }
}

fn remove(path: &Path) -> Result<(), CaError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(CaError::Remove { path: path.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Looks whether a request can be signed, without signing it for anybody: by a CA that is thrown away.
pub(crate) fn check_request(csr_der: &[u8], now_ms: u64) -> Result<(), PkiError> {
    let now = moment(now_ms);
    let nobody = Identity::node(Uuid::nil(), Uuid::nil());
    Ca::create(Uuid::nil(), now)?.sign(csr_der, &nobody, now, time::Duration::ZERO).map(drop)
}

/// Whether a data certificate may have this name: clients that were not written here know masters by theirs.
pub(crate) fn may_have_data_certificate(node: &NodeName) -> bool {
    node.as_str() != MASTER_DNS_NAME
}

/// The role as it stands in certificates.
pub(crate) fn wire_role(role: model::ClientRole) -> ClientRole {
    match role {
        model::ClientRole::Reader => ClientRole::Reader,
        model::ClientRole::Operator => ClientRole::Operator,
        model::ClientRole::Admin => ClientRole::Admin,
    }
}

fn moment(ms: u64) -> OffsetDateTime {
    // Beyond the year 9999 only for a clock that is broken anyway; certificates from 1970 are then refused.
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use muster_proto::transport::check_data_certificate;

    use super::*;
    use crate::store::decode;

    /// 2026-11-29.
    const NOW_MS: u64 = 1_795_910_400_000;

    fn keeper(folder: &Path) -> CaKeeper {
        let keeper = CaKeeper::open(folder, None).unwrap();
        keeper.create(Uuid::from_u128(1), NOW_MS).unwrap();
        keeper
    }

    #[test]
    fn the_ca_is_kept_in_two_files_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(folder.path());
        let mode = fs::metadata(folder.path().join("ca.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = CaKeeper::open(folder.path(), Some(Uuid::from_u128(1))).unwrap();
        assert_eq!(again.digest().unwrap(), keeper.digest().unwrap());
    }

    #[test]
    fn making_it_twice_for_one_cluster_keeps_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(folder.path());
        let first = keeper.digest().unwrap();
        keeper.create(Uuid::from_u128(1), NOW_MS + 5000).unwrap();
        assert_eq!(keeper.digest().unwrap(), first);
        keeper.create(Uuid::from_u128(2), NOW_MS).unwrap();
        assert_ne!(keeper.digest().unwrap(), first);
    }

    #[test]
    fn what_an_interrupted_init_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        drop(keeper(folder.path()));
        let keeper = CaKeeper::open(folder.path(), None).unwrap();
        assert!(matches!(keeper.digest(), Err(CaError::None)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        keeper.remove().unwrap();
        assert!(CaKeeper::open(folder.path(), Some(Uuid::from_u128(1))).is_err());
    }

    #[test]
    fn only_the_ca_of_an_interrupted_init_is_no_ones() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(CaKeeper::orphaned(folder.path()), None);
        let keeper = keeper(folder.path());
        assert_eq!(CaKeeper::orphaned(folder.path()), None);
        keeper.finish().unwrap();
        assert_eq!(CaKeeper::orphaned(folder.path()), Some(folder.path().join("ca.key")));
        // The note also goes when a start finds the cluster in the store.
        let folder = tempfile::tempdir().unwrap();
        drop(super::tests::keeper(folder.path()));
        drop(CaKeeper::open(folder.path(), Some(Uuid::from_u128(1))).unwrap());
        assert_eq!(CaKeeper::orphaned(folder.path()), Some(folder.path().join("ca.key")));
    }

    #[test]
    fn each_signature_has_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(folder.path());
        let (_, csr) = new_key_and_csr("node2").unwrap();
        let node = keeper.sign_node(&csr, Uuid::from_u128(2), NOW_MS).unwrap();
        let (key, value) = &node.record;
        assert_eq!(*key, format!("issued/{}", node.fingerprint()));
        let issued: Issued = decode(key, value).unwrap();
        let identity = Identity::node(Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(issued, Issued { identity: identity.to_string(), issued_ms: NOW_MS });
        assert_eq!(Identity::from_certificate(&node.signed.der), Ok(identity));
        assert!(keeper.sign_node(b"no request", Uuid::from_u128(2), NOW_MS).is_err());
    }

    #[test]
    fn a_data_certificate_is_nobodys_identity_and_no_masters_name() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(folder.path());
        let (key, csr) = new_key_and_csr("node2").unwrap();
        let node = NodeName::parse("node2").unwrap();
        let pem = keeper.sign_data(&csr, &node, &["192.0.2.2".parse().unwrap()], NOW_MS).unwrap().unwrap();
        check_data_certificate(&pem, &key, &node).unwrap();
        let ca = keeper.certificate_pem().unwrap();
        assert!(matches!(TlsState::new(&ca, &pem, &key), Err(TlsError::Identity(_))));
        let master = NodeName::parse(MASTER_DNS_NAME).unwrap();
        assert_eq!(keeper.sign_data(&csr, &master, &[], NOW_MS).unwrap(), None);
        assert!(keeper.sign_data(b"no request", &node, &[], NOW_MS).is_err());
    }

    #[test]
    fn the_masters_own_certificate_says_its_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = keeper(folder.path());
        let name = NodeName::parse("node1").unwrap();
        let own = keeper.own_certificate(&name, Uuid::from_u128(9), 7, None, NOW_MS).unwrap();
        assert_eq!(own.tls.identity(), Identity::master(Uuid::from_u128(1), Uuid::from_u128(9), 7));
        assert_eq!(own.record.0, format!("issued/{}", own.tls.fingerprint()));
        let next = keeper.own_certificate(&name, Uuid::from_u128(9), 8, None, NOW_MS).unwrap();
        next.put_into(&own.tls).unwrap();
        assert_eq!(own.tls.fingerprint(), next.tls.fingerprint());
    }

    #[test]
    fn a_ca_that_was_handed_over_signs_as_the_first_one_did() {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let old = keeper(old.path());
        let (certificate, key) = old.material().unwrap();
        let successor = CaKeeper::open(new.path(), None).unwrap();
        successor.install(Uuid::from_u128(1), &certificate, &key).unwrap();
        assert_eq!(successor.digest().unwrap(), old.digest().unwrap());
        assert!(CaKeeper::open(new.path(), Some(Uuid::from_u128(1))).is_ok());
    }

    #[test]
    fn a_request_can_be_checked_before_anybody_signs_it() {
        let (_, csr) = new_key_and_csr("node2").unwrap();
        check_request(&csr, NOW_MS).unwrap();
        let mut damaged = csr.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(check_request(&damaged, NOW_MS).is_err());
        assert!(check_request(&[], NOW_MS).is_err());
    }
}
