//! What a client expects of the server it dials: who it must be, by certificate; the address plays no part.
use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
    sign::SingleCertAndKey,
    version::TLS13,
};
use uuid::Uuid;

use super::{
    identity::{Fingerprint, Identity, IdentityError, IdentityKind},
    pki::certificate_pem,
    tls::{ALPN, Material, TlsState, provider, refusal},
};

/// The fingerprints by which a node is accepted: the current certificate, and the next one until it is confirmed.
/// Clones share the set, so that a channel's later reconnects see what changed.
#[derive(Debug, Clone, Default)]
pub struct Pins(Arc<RwLock<BTreeSet<Fingerprint>>>);

impl Pins {
    /// A set of accepted fingerprints.
    pub fn new(fingerprints: impl IntoIterator<Item = Fingerprint>) -> Self {
        Self(Arc::new(RwLock::new(fingerprints.into_iter().collect())))
    }

    /// Accepts these and no others, from the next connection on.
    pub fn replace(&self, fingerprints: impl IntoIterator<Item = Fingerprint>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fingerprints.into_iter().collect();
    }

    /// Whether the fingerprint is accepted.
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(fingerprint)
    }
}

/// The CA certificate that the server showed during enrolment, once its digest was found right.
#[derive(Debug, Clone, Default)]
pub struct LearntCa(Arc<OnceLock<String>>);

impl LearntCa {
    /// The certificate in PEM; `None` before a connection was made.
    pub fn pem(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Who the server must be.
#[derive(Debug, Clone)]
pub enum Expect {
    /// This node, with one of these certificates.
    Node {
        /// The node.
        node: Uuid,
        /// Its certificates.
        accepted: Pins,
    },
    /// A master of this cluster.
    Master {
        /// The cluster.
        cluster: Uuid,
    },
    /// The master of the cluster whose CA has this digest: all that a host knows that is about to enrol.
    CaDigest {
        /// SHA-256 of the CA's certificate.
        digest: Fingerprint,
        /// Where the CA's certificate is put.
        learnt: LearntCa,
    },
}

/// Why the server is not the one expected.
#[derive(Debug, thiserror::Error)]
enum Unexpected {
    #[error("the server is {found}, not node {node}")]
    NotNode { node: Uuid, found: Identity },
    #[error("the server is {found}, not a master of cluster {cluster}")]
    NotMaster { cluster: Uuid, found: Identity },
    #[error("the server is {found}, not a master")]
    NotAnyMaster { found: Identity },
    #[error("the certificate {fingerprint} of node {node} is not, or no longer, accepted")]
    Fingerprint { node: Uuid, fingerprint: Fingerprint },
    #[error("the server's CA is not the one that the token names (digest {digest})")]
    CaDigest { digest: Fingerprint },
    #[error(transparent)]
    Identity(IdentityError),
}

/// How a client presents itself and whom it expects. Read anew for each connection.
#[derive(Debug, Clone)]
pub struct ClientTls {
    own: Option<TlsState>,
    expect: Expect,
}

impl ClientTls {
    /// A client with a certificate.
    pub fn new(own: &TlsState, expect: Expect) -> Self {
        Self { own: Some(own.clone()), expect }
    }

    /// A host that is about to enrol: no certificate yet, and only the CA's digest to go by.
    pub fn enrolment(digest: Fingerprint) -> (Self, LearntCa) {
        let learnt = LearntCa::default();
        (Self { own: None, expect: Expect::CaDigest { digest, learnt: learnt.clone() } }, learnt)
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let material = self.own.as_ref().map(TlsState::material);
        let roots = material.as_ref().map(|material| material.roots.clone());
        let verifier = ServerVerifier { roots, expect: self.expect.clone() };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .expect("ring's suites include TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match material.as_deref() {
            Some(Material { key, .. }) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }
}

#[derive(Debug)]
struct ServerVerifier {
    roots: Option<Arc<RootCertStore>>,
    expect: Expect,
}

impl ServerVerifier {
    /// The trust anchor: our own cluster's CA, or during enrolment the CA in the server's chain with the right digest.
    fn anchor(&self, intermediates: &[CertificateDer<'_>]) -> Result<Arc<RootCertStore>, rustls::Error> {
        match &self.expect {
            Expect::Node { .. } | Expect::Master { .. } => {
                let roots = self.roots.clone();
                roots.ok_or(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            Expect::CaDigest { digest, .. } => {
                let ca = intermediates.iter().find(|certificate| Fingerprint::of(certificate) == *digest);
                let ca = ca.ok_or_else(|| refusal(Unexpected::CaDigest { digest: *digest }))?;
                let mut roots = RootCertStore::empty();
                roots.add(ca.clone().into_owned())?;
                Ok(Arc::new(roots))
            }
        }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Unexpected> {
        let found = Identity::from_certificate(certificate);
        let fingerprint = Fingerprint::of(certificate);
        match &self.expect {
            Expect::Node { node, accepted } => match found {
                Ok(Identity { kind: IdentityKind::Node { node: found }, .. }) if found == *node => {
                    let known = accepted.contains(&fingerprint);
                    known.then_some(()).ok_or(Unexpected::Fingerprint { node: *node, fingerprint })
                }
                Ok(found) => Err(Unexpected::NotNode { node: *node, found }),
                Err(error) => Err(Unexpected::Identity(error)),
            },
            Expect::Master { cluster } => match found {
                Ok(Identity { cluster: found, kind: IdentityKind::Master { .. } }) if found == *cluster => {
                    Ok(())
                }
                Ok(found) => Err(Unexpected::NotMaster { cluster: *cluster, found }),
                Err(error) => Err(Unexpected::Identity(error)),
            },
            Expect::CaDigest { .. } => match found {
                Ok(Identity { kind: IdentityKind::Master { .. }, .. }) => Ok(()),
                Ok(found) => Err(Unexpected::NotAnyMaster { found }),
                Err(error) => Err(Unexpected::Identity(error)),
            },
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let anchor = self.anchor(intermediates)?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = provider().signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &anchor, intermediates, now, algorithms)?;
        self.check(end_entity).map_err(refusal)?;
        if let Expect::CaDigest { digest, learnt } = &self.expect
            && let Some(ca) = intermediates.iter().find(|ca| Fingerprint::of(ca) == *digest)
        {
            // A reconnect finds the same certificate there, since the digest is the same.
            learnt.0.get_or_init(|| certificate_pem(ca));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
