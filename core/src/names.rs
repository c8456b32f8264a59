//! Names and sizes: parsed once at the edge, never checked again.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name in bytes.
pub const NAME_BYTES_MAX: usize = 253;

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {why}")]
pub struct NameError {
    what: &'static str,
    text: String,
    why: &'static str,
}

/// Longest part of a refused text that an error repeats, in characters.
const ERROR_TEXT_CHARS_MAX: usize = 80;

fn name_check(what: &'static str, text: &str) -> Result<(), NameError> {
    let why = if text.is_empty() {
        "it is empty"
    } else if text.len() > NAME_BYTES_MAX {
        "it is longer than 253 characters"
    } else if !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.') {
        "only lower-case letters, digits, hyphens and dots may stand in it"
    } else if text.split('.').any(str::is_empty) {
        "dots stand between labels only"
    } else if text.starts_with('-') {
        "it starts with a hyphen"
    } else {
        return Ok(());
    };
    Err(NameError { what, text: text.chars().take(ERROR_TEXT_CHARS_MAX).collect(), why })
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// When the text breaks the rules for names.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                name_check($what, text)?;
                Ok($name(text.to_owned()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                $name::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

name_type!(
    /// A node's name: a label, never resolved by DNS.
    NodeName,
    "node name"
);
name_type!(
    /// An instance's name.
    InstanceName,
    "instance name"
);
name_type!(
    /// The cluster's name.
    ClusterName,
    "cluster name"
);
name_type!(
    /// The name of an OS definition; `none` makes empty disks.
    OsName,
    "OS name"
);
name_type!(
    /// The name of a remote client's certificate.
    ClientName,
    "client name"
);

name_type!(
    /// The name of a group of nodes.
    GroupName,
    "group name"
);
name_type!(
    /// The name of a network.
    NetworkName,
    "network name"
);

impl OsName {
    /// Whether this is the name of no definition at all.
    pub fn is_none(&self) -> bool {
        self.0 == "none"
    }
}

/// The known name nearest to an unknown one, if any is near enough to be meant.
pub fn nearest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (unknown.chars().count() / 3).max(2);
    known.map(|name| (distance(unknown, name), name)).filter(|(d, _)| *d <= limit).min().map(|(_, name)| name)
}

/// Number of single-character edits between two texts.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_with_dots_between() {
        for good in ["a", "web1", "web-1.example.org", "0"] {
            assert!(NodeName::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(254);
        for bad in ["", "-a", ".a", "a.", "a..b", "A", "a b", "a\n", "a\0", "ä", long.as_str()] {
            assert!(NodeName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nearest_names_what_was_meant() {
        let known = ["node1", "node2", "storage"];
        assert_eq!(nearest("nodee1", known.into_iter()), Some("node1"));
        assert_eq!(nearest("storag", known.into_iter()), Some("storage"));
        assert_eq!(nearest("completely-other", known.into_iter()), None);
    }
}
