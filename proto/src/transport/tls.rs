//! A daemon's own certificate and key, its cluster's CA, and what rustls needs of them. TLS 1.3 only.
//!
//! Sessions are never resumed: a resumed session would skip the check of the other side's certificate.
use std::{
    path::Path,
    sync::{Arc, LazyLock, PoisonError, RwLock},
};

use muster_core::names::NodeName;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        NoServerSessionStorage, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::{CertifiedKey, SingleCertAndKey},
    version::TLS13,
};

use super::{
    files::{FileError, read_text},
    identity::{Fingerprint, Identity, IdentityError},
    pki::{PkiError, PrivateKeyPem, Validity},
};

/// The only application protocol.
pub(crate) const ALPN: &[u8] = b"h2";

/// The one cryptography provider. Never taken from the process default, which another library could set.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    PROVIDER.clone()
}

/// Why a certificate, key and CA can't be used together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text is not a PEM file of this kind.
    #[error("the {what} can't be read")]
    Pem {
        /// What was being read.
        what: &'static str,
        /// The cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate names nobody in a cluster.
    #[error("the certificate can't be used")]
    Identity(#[from] IdentityError),
    /// The certificate's dates can't be read.
    #[error("the certificate can't be used")]
    Validity(#[source] PkiError),
    /// The data certificate is another node's.
    #[error("the data certificate is for {found:?}, not for {expected}")]
    DataName {
        /// In the certificate.
        found: String,
        /// Whom it must be for.
        expected: NodeName,
    },
    /// Key and certificate do not belong together, or one is not usable.
    #[error("the private key does not belong to the certificate")]
    Key(#[source] rustls::Error),
    /// The CA certificate is not usable as a trust anchor.
    #[error("the CA certificate can't be used")]
    Ca(#[source] rustls::Error),
    /// The verifier could not be made.
    #[error("the CA certificate can't be used")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// A daemon's or client's TLS material. Cheap to clone; clones see a replacement, which applies to the next connection.
#[derive(Clone, Debug)]
pub struct TlsState {
    current: Arc<RwLock<Arc<Material>>>,
}

#[derive(Debug)]
pub(crate) struct Material {
    identity: Identity,
    fingerprint: Fingerprint,
    validity: Validity,
    pub(crate) roots: Arc<RootCertStore>,
    pub(crate) key: Arc<CertifiedKey>,
    server: Arc<ServerConfig>,
}

impl TlsState {
    /// Takes certificates and key in PEM. Dates are not checked: a daemon with an expired certificate must start.
    pub fn new(ca_pem: &str, certificate_pem: &str, key: &PrivateKeyPem) -> Result<Self, TlsError> {
        let material = Material::new(ca_pem, certificate_pem, key)?;
        Ok(Self { current: Arc::new(RwLock::new(Arc::new(material))) })
    }

    /// Reads the three files.
    pub fn load(ca: &Path, certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        Self::new(&read_text(ca)?, &read_text(certificate)?, &PrivateKeyPem::new(read_text(key)?))
    }

    /// Uses another certificate and key from the next connection on; on an error nothing changes.
    pub fn replace(&self, ca_pem: &str, certificate_pem: &str, key: &PrivateKeyPem) -> Result<(), TlsError> {
        let material = Arc::new(Material::new(ca_pem, certificate_pem, key)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = material;
        Ok(())
    }

    /// Who the certificate stands for.
    pub fn identity(&self) -> Identity {
        self.material().identity.clone()
    }

    /// The certificate's fingerprint.
    pub fn fingerprint(&self) -> Fingerprint {
        self.material().fingerprint
    }

    /// From when to when the certificate is valid.
    pub fn validity(&self) -> Validity {
        self.material().validity
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        self.material().server.clone()
    }

    pub(crate) fn material(&self) -> Arc<Material> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Material {
    fn new(ca_pem: &str, certificate_pem: &str, key: &PrivateKeyPem) -> Result<Self, TlsError> {
        let pem = |what| move |source| TlsError::Pem { what, source };
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(pem("CA certificate"))?;
        let certificate =
            CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(pem("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_str().as_bytes()).map_err(pem("private key"))?;
        let identity = Identity::from_certificate(&certificate)?;
        let fingerprint = Fingerprint::of(&certificate);
        let validity = Validity::of(&certificate).map_err(TlsError::Validity)?;

        let mut roots = RootCertStore::empty();
        roots.add(ca.clone()).map_err(TlsError::Ca)?;
        let roots = Arc::new(roots);
        // The CA is sent along, so that a host that only knows its digest can check the chain.
        let key = CertifiedKey::from_der(vec![certificate, ca], key, &provider()).map_err(TlsError::Key)?;
        let key = Arc::new(key);
        let server = Arc::new(server_config(&roots, &key)?);
        Ok(Self { identity, fingerprint, validity, roots, key, server })
    }
}

fn server_config(roots: &Arc<RootCertStore>, key: &Arc<CertifiedKey>) -> Result<ServerConfig, TlsError> {
    let chain = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
        // A host that is about to enrol has no certificate; the roles table refuses it everything else.
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::Verifier)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("ring's suites include TLS 1.3")
        .with_client_cert_verifier(Arc::new(MemberVerifier { chain }))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Accepts certificates that chain to the cluster's CA, are valid now and name a member. Whether the member is
/// still accepted is asked again at each request.
#[derive(Debug)]
struct MemberVerifier {
    chain: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for MemberVerifier {
    fn offer_client_auth(&self) -> bool {
        self.chain.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.chain.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        Identity::from_certificate(end_entity).map_err(refusal)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// A certificate refused for a reason of our own.
pub(crate) fn refusal(reason: impl std::error::Error + Send + Sync + 'static) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(reason))))
}
