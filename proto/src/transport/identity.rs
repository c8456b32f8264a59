//! Who a certificate stands for: one URI in its subject alternative names, never an address or a host's name.
//!
//! `muster:<cluster>/node/<node>`, `muster:<cluster>/master/<node>/<epoch>`, `muster:<cluster>/client/<client>/<role>`.
use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

use super::roles::{ClientRole, Role};

/// The name that every master's certificate carries, whatever address the master is reached by. It says nothing about which master
/// it is: that is for the URI.
pub const MASTER_DNS_NAME: &str = "muster-master";

/// What a certificate says about its holder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The cluster whose CA signed it.
    pub cluster: Uuid,
    /// The holder within the cluster.
    pub kind: IdentityKind,
}

/// The holder of a certificate within its cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdentityKind {
    /// A node daemon.
    Node {
        /// The node.
        node: Uuid,
    },
    /// A master daemon, in one of its terms of office.
    Master {
        /// The node it runs on.
        node: Uuid,
        /// The number of the term; grows at every start of a master.
        epoch: u64,
    },
    /// A person or program that uses the cluster from outside.
    Client {
        /// The client.
        client: Uuid,
        /// What it may do.
        role: ClientRole,
    },
}

/// Why a certificate names nobody in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The text is not in one of the three forms.
    #[error("{0:?} is not the identity of a cluster's member")]
    Malformed(String),
    /// The certificate can't be parsed.
    #[error("the certificate is not well-formed")]
    Certificate,
    /// The certificate has none or several subject alternative names.
    #[error("the certificate has {0} subject alternative names, not the one that a cluster's CA puts in")]
    NotOneName(usize),
    /// The only subject alternative name is no URI.
    #[error("the certificate's subject alternative name is not a URI")]
    NotUri,
}

impl Identity {
    /// A node daemon's identity.
    pub fn node(cluster: Uuid, node: Uuid) -> Self {
        Self { cluster, kind: IdentityKind::Node { node } }
    }

    /// A master daemon's identity.
    pub fn master(cluster: Uuid, node: Uuid, epoch: u64) -> Self {
        Self { cluster, kind: IdentityKind::Master { node, epoch } }
    }

    /// A remote client's identity.
    pub fn client(cluster: Uuid, client: Uuid, role: ClientRole) -> Self {
        Self { cluster, kind: IdentityKind::Client { client, role } }
    }

    /// The role that the certificate claims. Whether it is still accepted is for [`super::Admission`] to say.
    pub fn role(&self) -> Role {
        match self.kind {
            IdentityKind::Node { .. } => Role::Node,
            IdentityKind::Master { .. } => Role::Master,
            IdentityKind::Client { role, .. } => role.into(),
        }
    }

    /// Reads the identity from a certificate in DER.
    pub fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, certificate) =
            x509_parser::parse_x509_certificate(der).map_err(|_| IdentityError::Certificate)?;
        Self::from_parsed(&certificate)
    }

    fn from_parsed(certificate: &X509Certificate<'_>) -> Result<Self, IdentityError> {
        let names = certificate.subject_alternative_name().map_err(|_| IdentityError::Certificate)?;
        let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
        let [name, more @ ..] = names else { return Err(IdentityError::NotOneName(0)) };
        let GeneralName::URI(uri) = name else { return Err(IdentityError::NotUri) };
        let identity: Self = uri.parse()?;
        let for_clients =
            |name: &GeneralName<'_>| matches!(name, GeneralName::DNSName(_) | GeneralName::IPAddress(_));
        let master = matches!(identity.kind, IdentityKind::Master { .. });
        if !(more.is_empty() || master && more.iter().all(for_clients)) {
            return Err(IdentityError::NotOneName(names.len()));
        }
        Ok(identity)
    }

    /// The DNS name that stands beside the identity: clients that were not written here check a name and nothing else.
    pub(super) fn dns_name(&self) -> Option<&'static str> {
        match self.kind {
            IdentityKind::Master { .. } => Some(MASTER_DNS_NAME),
            IdentityKind::Node { .. } | IdentityKind::Client { .. } => None,
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "muster:{}/", self.cluster)?;
        match &self.kind {
            IdentityKind::Node { node } => write!(f, "node/{node}"),
            IdentityKind::Master { node, epoch } => write!(f, "master/{node}/{epoch}"),
            IdentityKind::Client { client, role } => write!(f, "client/{client}/{role}"),
        }
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        // Other spellings of the same identity (capitals, leading zeros) would be two names for one holder:
        // only the spelling that we write is read.
        match parse(text) {
            Some(identity) if identity.to_string() == text => Ok(identity),
            Some(_) | None => Err(IdentityError::Malformed(text.chars().take(200).collect())),
        }
    }
}

fn parse(text: &str) -> Option<Identity> {
    let mut parts = text.strip_prefix("muster:")?.split('/');
    let cluster = parts.next()?.parse().ok()?;
    let kind = match parts.next()? {
        "node" => IdentityKind::Node { node: parts.next()?.parse().ok()? },
        "master" => {
            IdentityKind::Master { node: parts.next()?.parse().ok()?, epoch: parts.next()?.parse().ok()? }
        }
        "client" => {
            IdentityKind::Client { client: parts.next()?.parse().ok()?, role: parts.next()?.parse().ok()? }
        }
        _ => return None,
    };
    parts.next().is_none().then_some(Identity { cluster, kind })
}

/// SHA-256 of a certificate's DER, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fingerprint([u8; 32]);

/// The text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 64 lower-case hexadecimal digits")]
pub struct FingerprintError;

impl Fingerprint {
    /// The fingerprint of a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let lower = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        if text.len() != 64 || !text.bytes().all(lower) {
            return Err(FingerprintError);
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).map_err(|_| FingerprintError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| FingerprintError)?;
        }
        Ok(Self(bytes))
    }
}

impl From<Fingerprint> for String {
    fn from(fingerprint: Fingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = FingerprintError;

    fn try_from(text: String) -> Result<Self, FingerprintError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const C: &str = "00000000-0000-0000-0000-0000000000c1";
    const N: &str = "0a000000-0000-0000-0000-0000000000a2";

    #[test]
    fn identities_are_read_as_they_are_written() {
        let (cluster, other) = (C.parse().unwrap(), N.parse().unwrap());
        for identity in [
            Identity::node(cluster, other),
            Identity::master(cluster, other, u64::MAX),
            Identity::client(cluster, other, ClientRole::Operator),
        ] {
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
    }

    #[test]
    fn only_the_exact_spelling_is_read() {
        for text in [
            "".to_owned(),
            format!("muster:{C}"),
            format!("muster:{C}/node"),
            format!("muster:{C}/node/{N}/"),
            format!("muster:{C}/node/{N}/1"),
            format!("Muster:{C}/node/{N}"),
            format!("muster:{C}/Node/{N}"),
            format!("muster:{C}/node/{}", N.to_uppercase()),
            format!("muster:{C}/node/{}", N.replace('-', "")),
            format!("muster:{C}/master/{N}"),
            format!("muster:{C}/master/{N}/01"),
            format!("muster:{C}/master/{N}/+1"),
            format!("muster:{C}/master/{N}/-1"),
            format!("muster:{C}/client/{N}/node"),
            format!("muster:{C}/client/{N}/master"),
            format!("muster:{C}/client/{N}/none"),
            format!("muster:{C}/client/{N}/Admin"),
            format!(" muster:{C}/node/{N}"),
        ] {
            assert_eq!(text.parse::<Identity>(), Err(IdentityError::Malformed(text.clone())));
        }
    }

    #[test]
    fn fingerprints_are_read_as_they_are_written() {
        let fingerprint = Fingerprint::of(b"");
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(fingerprint.to_string(), text);
        assert_eq!(text.parse(), Ok(fingerprint));
        assert_eq!(serde_json::from_str::<Fingerprint>(&format!("{text:?}")).unwrap(), fingerprint);
        for wrong in ["", &text[1..], &text.to_uppercase(), &text.replace('e', "+"), &text.replace('e', "é")]
        {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError));
        }
    }
}
