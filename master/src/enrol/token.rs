//! Tokens: 128 random bits that let one host ask to join, once. Only their SHA-256 is kept.

use std::{net::SocketAddr, time::Duration};

use muster_core::names::NodeName;
use muster_proto::transport::Fingerprint;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hex;

/// How long a token is good unless its maker says otherwise.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// A token that is good for longer would rather be a password.
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Tokens at a time that are good: as many as hosts are ever added in one go.
pub const TOKENS_MAX: usize = 1000;
/// Bytes of a secret.
const SECRET_BYTES: usize = 16;
/// What the text of a token begins with: the version of its form.
const PREFIX: &str = "muster1";

/// A token's record; the secret's SHA-256 is in the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The token is good for this name only.
    pub node: Option<NodeName>,
    /// From then on it is good no more; milliseconds since 1970.
    pub expires_ms: u64,
}

/// A secret. Debug output does not show it.
pub(super) struct Secret(String);

impl Secret {
    /// Draws one from the system.
    pub(super) fn draw() -> std::io::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        // A request of so few bytes is answered whole, or not at all.
        let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
        assert_eq!(count, bytes.len(), "the system gives at least 256 bytes at once");
        Ok(Self(hex::hex_of(&bytes)))
    }

    /// Reads what a host presents: a token's whole text, or its last part.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let secret = text.trim().rsplit(':').next()?;
        let bytes = hex::bytes_of(secret)?;
        (bytes.len() == SECRET_BYTES).then(|| Self(secret.to_owned()))
    }

    /// What is kept of it.
    pub(super) fn hash(&self) -> String {
        hex::hex_of(&Sha256::digest(&self.0))
    }

    /// The text for `muster-noded join`: where the master is, by which CA it is known, and the secret.
    pub(super) fn text(&self, master: SocketAddr, ca: &Fingerprint) -> String {
        format!("{PREFIX}:{master}:{ca}:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_the_whole_text_and_alone() {
        let secret = Secret::draw().unwrap();
        assert_ne!(secret.hash(), Secret::draw().unwrap().hash());
        let ca = Fingerprint::of(b"");
        for address in ["192.0.2.1:1810", "[2001:db8::1]:1810"] {
            let text = secret.text(address.parse().unwrap(), &ca);
            assert!(text.starts_with(&format!("muster1:{address}:{ca}:")), "{text}");
            assert_eq!(Secret::parse(&format!("{text}\n")).unwrap().hash(), secret.hash());
        }
        assert_eq!(Secret::parse(&secret.0).unwrap().hash(), secret.hash());
        for wrong in ["", "muster1", "00", &"0".repeat(33), &"A".repeat(32)] {
            assert!(Secret::parse(wrong).is_none(), "{wrong}");
        }
    }
}
