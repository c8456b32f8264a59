//! Ids of calls and digests of their content, parsed once at the edge.

use std::fmt;

use muster_core::engine::END_STEP;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Longest call id in bytes; with a suffix it must stay a file name.
const CALL_ID_BYTES_MAX: usize = 120;

/// A call's id: job, step and attempt, for example `17/pre/1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CallId(String);

/// A text is no call id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a call id: lower-case letters, digits and hyphens, in parts with / between, at most 120 characters"
)]
pub struct CallIdError;

impl CallId {
    /// Parses a call id.
    ///
    /// # Errors
    /// When other characters stand in it, a part is empty, or it is too long.
    pub fn parse(text: &str) -> Result<Self, CallIdError> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let parts = text.split('/').all(|part| !part.is_empty() && part.bytes().all(good));
        if parts && text.len() <= CALL_ID_BYTES_MAX { Ok(CallId(text.to_owned())) } else { Err(CallIdError) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a call that tells scripts of a job's end.
    pub fn tells_of_end(&self) -> bool {
        self.0.split('/').nth(1) == Some(END_STEP)
    }

    /// The id as a file name. No dot stands in an id, so two ids have two names.
    pub(crate) fn file_name(&self) -> String {
        self.0.replace('/', ".")
    }

    /// The id that a file name stands for.
    pub(crate) fn from_file_name(name: &str) -> Result<Self, CallIdError> {
        if name.contains('/') { Err(CallIdError) } else { Self::parse(&name.replace('.', "/")) }
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CallId {
    type Error = CallIdError;
    fn try_from(text: String) -> Result<Self, CallIdError> {
        CallId::parse(&text)
    }
}

impl From<CallId> for String {
    fn from(id: CallId) -> String {
        id.0
    }
}

/// SHA-256 of a request's content, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestDigest(String);

impl RequestDigest {
    /// The digest of an encoded request. What may differ in a repeat (epoch, serial) is to be left out of the bytes.
    pub fn of(content: &[u8]) -> Self {
        RequestDigest(Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_ids_are_file_names_and_back() {
        for good in ["17/pre/1", "0", "a-b/c", "6f1c2a52-0000-4000-8000-000000000000/post/2"] {
            let id = CallId::parse(good).unwrap();
            assert_eq!(CallId::from_file_name(&id.file_name()), Ok(id), "{good}");
        }
        let long = "a".repeat(121);
        for bad in ["", "/", "a/", "/a", "a//b", "../x", "a.b", "A", "a b", "a\0", "a\n", long.as_str()] {
            assert_eq!(CallId::parse(bad), Err(CallIdError), "{bad:?}");
        }
    }

    #[test]
    fn the_digest_is_sha_256() {
        let RequestDigest(hex) = RequestDigest::of(b"abc");
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
