//! The cluster's certificate authority, and keys with signing requests for it.
//!
//! From a signing request only the public key is taken: what a certificate says is decided by the signer alone.
use std::{net::IpAddr, path::Path};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
    SerialNumber,
};
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer, pem::PemObject};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{
    files::{FileError, MODE_PRIVATE, MODE_PUBLIC, read_text, write_atomic},
    identity::{Fingerprint, Identity, MASTER_DNS_NAME},
    tls::provider,
};

/// How long a CA lives.
pub const CA_LIFETIME: Duration = Duration::days(3650);
/// How long a certificate of a daemon or client lives.
pub const LEAF_LIFETIME: Duration = Duration::days(365);
/// Certificates start this long before they are made, so that a host whose clock is behind accepts them.
pub const START_EARLIER: Duration = Duration::hours(1);
/// A signing request by us has about 250 bytes; more than this isn't worth parsing.
pub const CSR_BYTES_MAX: usize = 8 * 1024;

/// The library refused to make a certificate.
pub(super) fn make(source: rcgen::Error) -> PkiError {
    PkiError::Make { what: "certificate", source }
}

/// Why a key or certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A file of the CA.
    #[error(transparent)]
    File(#[from] FileError),
    /// The text is not a certificate.
    #[error("the CA certificate can't be read")]
    CaCertificate,
    /// The text is not a private key.
    #[error("the private key can't be read")]
    Key(#[source] rcgen::Error),
    /// Certificate and key do not belong together.
    #[error("the CA's private key does not belong to its certificate")]
    KeyMismatch,
    /// The request is damaged, or its signature was made with another key.
    #[error("the signing request is not valid")]
    Request(#[source] rcgen::Error),
    /// The request is longer than [`CSR_BYTES_MAX`].
    #[error("the signing request has {0} bytes; at most {CSR_BYTES_MAX} are read")]
    RequestTooLong(usize),
    /// The request's key is not ECDSA P-256.
    #[error("the signing request's key is not an ECDSA P-256 key")]
    RequestKeyType,
    /// A certificate can't be parsed.
    #[error("the certificate can't be read")]
    Certificate,
    /// The library refused to make it.
    #[error("could not make the {what}")]
    Make {
        /// What was being made.
        what: &'static str,
        /// The cause.
        #[source]
        source: rcgen::Error,
    },
    /// A client that checks names would take the certificate's holder for a master.
    #[error("a data certificate can't have the name {MASTER_DNS_NAME}, which is that of every master")]
    ReservedName,
    /// The system's random numbers failed.
    #[error("no random numbers for a serial number")]
    Random,
}

/// A private key in PEM. It never leaves the host that made it.
#[derive(Clone)]
pub struct PrivateKeyPem(String);

impl PrivateKeyPem {
    /// Wraps a key read from a file.
    pub fn new(pem: String) -> Self {
        Self(pem)
    }

    /// The text, to be stored.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Stores the key, mode 0600.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        write_atomic(path, self.0.as_bytes(), MODE_PRIVATE)
    }
}

impl std::fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKeyPem(..)")
    }
}

/// Makes a new key and a signing request for it, in DER. The name is a remark for whoever looks at the request.
pub fn new_key_and_csr(name: &str) -> Result<(PrivateKeyPem, Vec<u8>), PkiError> {
    let make = |source| PkiError::Make { what: "signing request", source };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    let request = params.serialize_request(&key).map_err(make)?;
    Ok((PrivateKeyPem(key.serialize_pem()), request.der().to_vec()))
}

/// A certificate made by a [`Ca`].
#[derive(Debug, Clone)]
pub struct Signed {
    /// The certificate.
    pub pem: String,
    /// The certificate in DER.
    pub der: Vec<u8>,
    /// The certificate's fingerprint.
    pub fingerprint: Fingerprint,
    /// Start and end of its validity.
    pub validity: Validity,
}

/// The certificate authority of a cluster, with its key.
pub struct Ca {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    /// Makes the CA of a new cluster.
    pub fn create(cluster: Uuid, now: OffsetDateTime) -> Result<Self, PkiError> {
        let make = |source| PkiError::Make { what: "CA certificate", source };
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(make)?;
        let mut params = CertificateParams::default();
        params.not_before = now - START_EARLIER;
        params.not_after = now + CA_LIFETIME;
        params.serial_number = Some(new_serial()?);
        params.distinguished_name = common_name(&format!("muster CA {cluster}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(make)?;
        Ok(Self { certificate: certificate.der().clone(), issuer: Issuer::new(params, key) })
    }

    /// Reads a CA from the text of its two files.
    pub fn from_pem(certificate_pem: &str, key_pem: &str) -> Result<Self, PkiError> {
        let certificate = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|_| PkiError::CaCertificate)?;
        let key = KeyPair::from_pem(key_pem).map_err(PkiError::Key)?;
        let (_, parsed) =
            x509_parser::parse_x509_certificate(&certificate).map_err(|_| PkiError::CaCertificate)?;
        if *parsed.public_key().subject_public_key.data != *key.public_key_raw() {
            return Err(PkiError::KeyMismatch);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|_| PkiError::CaCertificate)?;
        Ok(Self { certificate, issuer })
    }

    /// Reads a CA from its two files.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, PkiError> {
        Self::from_pem(&read_text(certificate)?, &read_text(key)?)
    }

    /// Writes both files; the key is readable by its owner only.
    pub fn save(&self, certificate: &Path, key: &Path) -> Result<(), PkiError> {
        self.key_pem().save(key)?;
        write_atomic(certificate, self.certificate_pem().as_bytes(), MODE_PUBLIC)?;
        Ok(())
    }

    /// When the CA's certificate is valid.
    pub fn validity(&self) -> Result<Validity, PkiError> {
        Validity::of(&self.certificate)
    }

    /// SHA-256 of the certificate: what an enrolment token carries.
    pub fn digest(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// The certificate.
    pub fn certificate_pem(&self) -> String {
        certificate_pem(&self.certificate)
    }

    /// The key; leaves this host only towards a master candidate.
    pub fn key_pem(&self) -> PrivateKeyPem {
        PrivateKeyPem(self.issuer.key().serialize_pem())
    }

    /// Signs a certificate for the key in the request, which must be signed by that key. Everything else in the
    /// request is disregarded.
    pub fn sign(
        &self,
        csr_der: &[u8],
        identity: &Identity,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Signed, PkiError> {
        self.sign_at(csr_der, identity, None, now, lifetime)
    }

    /// The same, with the address at which a master is reached: clients that were not written here check that.
    pub fn sign_at(
        &self,
        csr_der: &[u8],
        identity: &Identity,
        address: Option<IpAddr>,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Signed, PkiError> {
        let uri = identity.to_string();
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().map_err(make)?)];
        if let Some(name) = identity.dns_name() {
            params.subject_alt_names.push(SanType::DnsName(name.try_into().map_err(make)?));
        }
        params.subject_alt_names.extend(address.map(SanType::IpAddress));
        params.distinguished_name =
            common_name(uri.split_once('/').map_or(uri.as_str(), |(_, holder)| holder));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        self.sign_leaf(csr_der, params, now, lifetime)
    }

    /// Signs a certificate of this kind for the key in the request; what all leaves have in common is filled in here.
    pub(super) fn sign_leaf(
        &self,
        csr_der: &[u8],
        mut params: CertificateParams,
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Signed, PkiError> {
        if csr_der.len() > CSR_BYTES_MAX {
            return Err(PkiError::RequestTooLong(csr_der.len()));
        }
        let request = CertificateSigningRequestParams::from_der(&CertificateSigningRequestDer::from(csr_der))
            .map_err(PkiError::Request)?;
        if *request.public_key.algorithm() != PKCS_ECDSA_P256_SHA256 {
            return Err(PkiError::RequestKeyType);
        }
        params.not_before = now - START_EARLIER;
        params.not_after = now + lifetime;
        params.serial_number = Some(new_serial()?);
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = CertificateSigningRequestParams { params, public_key: request.public_key }
            .signed_by(&self.issuer)
            .map_err(make)?;
        Ok(Signed {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            fingerprint: Fingerprint::of(certificate.der()),
            validity: Validity { not_before: now - START_EARLIER, not_after: now + lifetime },
        })
    }
}

impl std::fmt::Debug for Ca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ca").field("digest", &self.digest()).finish_non_exhaustive()
    }
}

/// From when to when a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// The first moment.
    pub not_before: OffsetDateTime,
    /// The last moment.
    pub not_after: OffsetDateTime,
}

impl Validity {
    /// Reads it from a certificate in DER.
    pub fn of(der: &[u8]) -> Result<Self, PkiError> {
        let (_, parsed) = x509_parser::parse_x509_certificate(der).map_err(|_| PkiError::Certificate)?;
        let moment =
            |seconds| OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| PkiError::Certificate);
        Ok(Self {
            not_before: moment(parsed.validity().not_before.timestamp())?,
            not_after: moment(parsed.validity().not_after.timestamp())?,
        })
    }

    /// Reads it from a certificate in PEM.
    pub fn of_pem(pem: &str) -> Result<Self, PkiError> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| PkiError::Certificate)?;
        Self::of(&der)
    }

    /// Whether two thirds of the lifetime have passed.
    pub fn renewal_due(&self, now: OffsetDateTime) -> bool {
        now >= self.not_before + (self.not_after - self.not_before) * 2 / 3
    }

    /// Whole days until the end; negative after it.
    pub fn days_left(&self, now: OffsetDateTime) -> i64 {
        (self.not_after - now).whole_seconds().div_euclid(Duration::DAY.whole_seconds())
    }
}

/// Puts a certificate in DER into PEM.
pub fn certificate_pem(der: &[u8]) -> String {
    pem::encode_config(
        &pem::Pem::new("CERTIFICATE", der),
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    // X.509 allows 64 characters.
    distinguished.push(DnType::CommonName, name.chars().take(64).collect::<String>());
    distinguished
}

fn new_serial() -> Result<SerialNumber, PkiError> {
    let mut bytes = [0; 16];
    provider().secure_random.fill(&mut bytes).map_err(|_| PkiError::Random)?;
    // Positive, and of full length whatever was drawn.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}
