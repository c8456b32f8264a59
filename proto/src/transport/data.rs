//! Certificates of the role *data*: by them the QEMU processes of two nodes know each other when they copy disks and memory.
//!
//! Such a certificate names its node as QEMU and the library below it want it: in the common name, by which the serving
//! side says who may come, and in DNS name and addresses, by which the calling side knows whom it has reached. It has none
//! of the identities of [`Identity`](super::Identity), so that no service of ours ever takes it: a server refuses the
//! handshake, and so does a client.
use std::net::IpAddr;

use muster_core::names::NodeName;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyUsagePurpose, SanType};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use time::{Duration, OffsetDateTime};

use super::{
    identity::MASTER_DNS_NAME,
    pki::{Ca, PkiError, PrivateKeyPem, Signed, make},
    tls::{TlsError, provider},
};

impl Ca {
    /// Signs a node's data certificate, for the key in the request and for nothing else in it.
    ///
    /// # Errors
    /// When the request is not valid, or the node has the name that stands in masters' certificates.
    pub fn sign_data(
        &self,
        csr_der: &[u8],
        node: &NodeName,
        addresses: &[IpAddr],
        now: OffsetDateTime,
        lifetime: Duration,
    ) -> Result<Signed, PkiError> {
        if node.as_str() == MASTER_DNS_NAME {
            return Err(PkiError::ReservedName);
        }
        let mut params = CertificateParams::default();
        // Whole, though X.509 speaks of 64 characters: cut off, two nodes could have the same one.
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, node.as_str());
        params.subject_alt_names = vec![SanType::DnsName(node.as_str().try_into().map_err(make)?)];
        for address in addresses {
            let address = SanType::IpAddress(address.to_canonical());
            if !params.subject_alt_names.contains(&address) {
                params.subject_alt_names.push(address);
            }
        }
        // Newer QEMU refuses a certificate without the second one, whatever its key is.
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        self.sign_leaf(csr_der, params, now, lifetime)
    }
}

/// Looks whether a data certificate is this node's and fits the key.
///
/// # Errors
/// When it is another's, or one of them can't be read.
pub fn check_data_certificate(
    certificate_pem: &str,
    key: &PrivateKeyPem,
    node: &NodeName,
) -> Result<(), TlsError> {
    let pem = |what| move |source| TlsError::Pem { what, source };
    let certificate =
        CertificateDer::from_pem_slice(certificate_pem.as_bytes()).map_err(pem("data certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_str().as_bytes()).map_err(pem("private key"))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
        .map_err(|_| TlsError::Validity(PkiError::Certificate))?;
    let found = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    if found != Some(node.as_str()) {
        let found = found.unwrap_or_default().to_owned();
        return Err(TlsError::DataName { found, expected: node.clone() });
    }
    CertifiedKey::from_der(vec![certificate], key, &provider()).map_err(TlsError::Key)?;
    Ok(())
}
