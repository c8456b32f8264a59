//! Hook sets between wire and core.

use muster_core::hooks::{Digest, SetEntry};

use crate::v1;

/// What is wrong with an entry from the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the entry {path:?} of a hook set can't be read")]
pub struct SetEntryWireError {
    path: String,
    #[source]
    source: muster_core::hooks::DigestError,
}

/// An entry with its path.
pub fn entry((path, entry): (&str, &SetEntry)) -> v1::HookSetEntry {
    let path = path.to_owned();
    match entry {
        SetEntry::File { digest, mode, size } => v1::HookSetEntry {
            path,
            sha256: digest.as_bytes().to_vec(),
            mode: *mode,
            size: *size,
            target: None,
        },
        SetEntry::Link { target } => {
            v1::HookSetEntry { path, target: Some(target.clone()), ..v1::HookSetEntry::default() }
        }
    }
}

/// Reads an entry; whether its path may be one is for the set to say.
///
/// # Errors
/// When a file has no digest.
pub fn parse_entry(wire: v1::HookSetEntry) -> Result<(String, SetEntry), SetEntryWireError> {
    let v1::HookSetEntry { path, sha256, mode, size, target } = wire;
    if let Some(target) = target {
        return Ok((path, SetEntry::Link { target }));
    }
    match Digest::from_slice(&sha256) {
        Ok(digest) => Ok((path, SetEntry::File { digest, mode, size })),
        Err(source) => Err(SetEntryWireError { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_went() {
        let file = SetEntry::File { digest: Digest::new([1; 32]), mode: 0o755, size: 7 };
        for sent in [file, SetEntry::Link { target: "../lib/x".to_owned() }] {
            let wire = entry(("node-add-pre.d/10-x", &sent));
            assert_eq!(parse_entry(wire), Ok(("node-add-pre.d/10-x".to_owned(), sent)));
        }
        assert!(parse_entry(v1::HookSetEntry::default()).is_err());
    }
}
