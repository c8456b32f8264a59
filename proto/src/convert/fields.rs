//! Single fields from the wire: each is parsed once, and an error names the field, its value and what would be right.

use std::{error::Error, net::IpAddr, str::FromStr};

use muster_core::{
    allowed::AllowedError,
    hypervisor::{Accel, HypervisorKind, NicMode},
    model::DiskName,
    names::{ClientName, ClusterName, GroupName, InstanceName, NameError, NetworkName, NodeName, OsName},
    networks::RangeError,
    tags::TagError,
};
use uuid::Uuid;

/// Longest part of a wrong value that an error repeats, in characters.
const VALUE_CHARS_MAX: usize = 80;

/// What is wrong with a message from the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A field without which the message has no meaning.
    #[error("{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A value that is not allowed.
    #[error("{field} is wrong: {value:?}: {right}")]
    Wrong {
        /// The field.
        field: &'static str,
        /// The value, cut when it is long.
        value: String,
        /// What would be right.
        right: &'static str,
    },
    /// A text that is no range of addresses and no beginning of them.
    #[error("{field} is wrong")]
    Range {
        /// The field.
        field: &'static str,
        /// Why.
        #[source]
        source: RangeError,
    },
    /// A text that is no tag.
    #[error("{field} is wrong")]
    Tag {
        /// The field.
        field: &'static str,
        /// Why.
        #[source]
        source: TagError,
    },
    /// A text that is no name.
    #[error("{field} is wrong")]
    Name {
        /// The field.
        field: &'static str,
        /// Why.
        #[source]
        source: NameError,
    },
    /// A text that is no pattern of a command, or no path of a file.
    #[error("{field} is wrong")]
    Allowed {
        /// The field.
        field: &'static str,
        /// Why.
        #[source]
        source: AllowedError,
    },
}

impl WireError {
    /// A wrong value; what is long is cut.
    pub(crate) fn wrong(field: &'static str, value: &str, right: &'static str) -> Self {
        WireError::Wrong { field, value: value.chars().take(VALUE_CHARS_MAX).collect(), right }
    }
}

/// Reads a hypervisor's name.
pub(crate) fn hypervisor(field: &'static str, text: &str) -> Result<HypervisorKind, WireError> {
    HypervisorKind::parse(text).ok_or_else(|| WireError::wrong(field, text, "fake or qemu is expected"))
}

/// Reads who computes.
pub(crate) fn accel(field: &'static str, text: &str) -> Result<Accel, WireError> {
    Accel::parse(text).ok_or_else(|| WireError::wrong(field, text, "auto, kvm or tcg is expected"))
}

/// Reads how a network card is connected.
pub(crate) fn nic(field: &'static str, text: &str) -> Result<NicMode, WireError> {
    let right =
        "none, user or bridge:NAME is expected, the name of at most 15 letters, digits, dots and hyphens";
    NicMode::parse(text).ok_or_else(|| WireError::wrong(field, text, right))
}

impl From<WireError> for tonic::Status {
    fn from(error: WireError) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            text = format!("{text}: {source}");
            cause = source.source();
        }
        tonic::Status::invalid_argument(text)
    }
}

/// Patterns of commands or paths of files.
pub(crate) fn all_parsed<T: FromStr<Err = AllowedError>>(
    field: &'static str,
    texts: &[String],
) -> Result<Vec<T>, WireError> {
    let parse = |text: &String| text.parse().map_err(|source| WireError::Allowed { field, source });
    texts.iter().map(parse).collect()
}

/// The same as texts.
pub(crate) fn all_texts<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(Into::into).collect()
}

/// A text that must not be empty.
pub(crate) fn present<'a>(field: &'static str, text: &'a str) -> Result<&'a str, WireError> {
    if text.is_empty() { Err(WireError::Missing { field }) } else { Ok(text) }
}

/// A node's name.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn node(field: &'static str, text: &str) -> Result<NodeName, WireError> {
    NodeName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// An instance's name.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn instance(field: &'static str, text: &str) -> Result<InstanceName, WireError> {
    InstanceName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// A cluster's name.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn cluster(field: &'static str, text: &str) -> Result<ClusterName, WireError> {
    ClusterName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// A client's name.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn client(field: &'static str, text: &str) -> Result<ClientName, WireError> {
    ClientName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// The name of a group of nodes.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn group(field: &'static str, text: &str) -> Result<GroupName, WireError> {
    GroupName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// A network's name. `none` is the word for no network.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn network(field: &'static str, text: &str) -> Result<NetworkName, WireError> {
    if text == "none" {
        return Err(WireError::wrong(field, text, "it is the word for no network"));
    }
    NetworkName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// The name of an OS definition.
///
/// # Errors
/// When it is missing or breaks the rules for names.
pub fn os(field: &'static str, text: &str) -> Result<OsName, WireError> {
    OsName::parse(present(field, text)?).map_err(|source| WireError::Name { field, source })
}

/// A uuid.
///
/// # Errors
/// When it is missing or no uuid.
pub fn uuid(field: &'static str, text: &str) -> Result<Uuid, WireError> {
    Uuid::try_parse(present(field, text)?).map_err(|_| WireError::wrong(field, text, "a uuid is expected"))
}

/// An address.
///
/// # Errors
/// When it is missing or no address.
pub fn ip(field: &'static str, text: &str) -> Result<IpAddr, WireError> {
    let right = "an IPv4 or IPv6 address is expected, for example 192.0.2.10";
    present(field, text)?.parse().map_err(|_| WireError::wrong(field, text, right))
}

/// A disk's name.
///
/// # Errors
/// When it is missing or no disk's name.
pub fn disk(field: &'static str, text: &str) -> Result<DiskName, WireError> {
    DiskName::parse(present(field, text)?)
        .ok_or_else(|| WireError::wrong(field, text, "sda or sdb is expected"))
}

/// A text for people and scripts: bounded, without NUL.
pub(crate) fn text(
    field: &'static str,
    text: String,
    bytes_max: usize,
    right: &'static str,
) -> Result<String, WireError> {
    if text.len() > bytes_max || text.contains('\0') {
        Err(WireError::wrong(field, &text, right))
    } else {
        Ok(text)
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits as bytes, or `None` where there are others.
pub fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high * 16 + low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_field_value_and_what_is_right() {
        let check = |error: WireError, text: &str| {
            let status = tonic::Status::from(error);
            assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, text));
        };
        check(
            ip("ip", "1.2.3").unwrap_err(),
            "ip is wrong: \"1.2.3\": an IPv4 or IPv6 address is expected, for example 192.0.2.10",
        );
        check(disk("disk", "").unwrap_err(), "disk is missing");
        check(
            node("primary", "a\0b").unwrap_err(),
            "primary is wrong: node name \"a\\0b\" is not valid: only lower-case letters, digits, hyphens and dots may stand in it",
        );
        let long = tonic::Status::from(uuid("disk_uuid", &"x".repeat(100_000)).unwrap_err());
        assert!(long.message().len() < 150, "{}", long.message());
    }

    #[test]
    fn hexadecimal_digits_are_bytes() {
        assert_eq!(hex_bytes(&hex(&[0, 1, 0xab, 0xff])), Some(vec![0, 1, 0xab, 0xff]));
        for bad in ["0", "zz", "é"] {
            assert_eq!(hex_bytes(bad), None, "{bad}");
        }
    }
}
