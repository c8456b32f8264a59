//! The cluster's own hook set: a list of files and links, checked once, that every node is to have. Pure: who reads the
//! files hands in what was seen of them.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Most files and links in a set.
pub const SET_ENTRIES_MAX: usize = 10_000;
/// Most bytes in a set, all files together.
pub const SET_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Longest path of an entry in bytes; a link's target is bounded by the same.
pub const SET_PATH_BYTES_MAX: usize = 512;
/// Longest name in a path in bytes; the kernel's own bound.
const NAME_BYTES_MAX: usize = 255;
/// The bits of a file's mode that are kept.
pub const SET_MODE_MASK: u32 = 0o755;
/// Links that are followed until an entry is reached; the kernel's own bound.
const LINKS_MAX: u32 = 40;
/// The directory for what scripts share.
const LIB: &str = "lib";
/// Bytes of a SHA-256.
const DIGEST_BYTES: usize = 32;
/// Digits of a digest that are shown to people.
const SHORT_DIGITS: usize = 12;

/// A SHA-256, of a file or of a set's list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; DIGEST_BYTES]);

/// A text or a number of bytes is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256: 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// Of its bytes.
    pub fn new(bytes: [u8; DIGEST_BYTES]) -> Self {
        Digest(bytes)
    }

    /// Of bytes from the wire.
    ///
    /// # Errors
    /// When there are not 32.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, DigestError> {
        bytes.try_into().map(Digest).map_err(|_| DigestError)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its first digits, for people.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(SHORT_DIGITS);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Ok(byte - b'0'),
            b'a'..=b'f' => Ok(byte - b'a' + 10),
            _ => Err(DigestError),
        };
        if text.len() != 2 * DIGEST_BYTES {
            return Err(DigestError);
        }
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = digit(pair[0])? * 16 + digit(pair[1])?;
        }
        Ok(Digest(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        digest.to_string()
    }
}

/// What an entry of a set is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetEntry {
    /// A regular file.
    File {
        /// Of its content.
        digest: Digest,
        /// Its permission bits.
        mode: u32,
        /// Its length in bytes.
        size: u64,
    },
    /// A link.
    Link {
        /// Where it leads, from the directory that it is in.
        target: String,
    },
}

/// Why entries are no set. Each names the entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// The path is neither that of a script nor below `lib/`.
    #[error(
        "{0}: a hook set has scripts in DIRECTORY.d (lower-case letters, digits and -; names of letters, digits, _ and -), and what they share below lib/"
    )]
    Path(String),
    /// A path or a target is too long, or has characters that would be misread.
    #[error("{path}: {what}")]
    Text {
        /// The entry.
        path: String,
        /// What is wrong.
        what: &'static str,
    },
    /// An entry is there twice, or is a file and a directory.
    #[error("{0}: two entries can't have this path")]
    Twice(String),
    /// A link from the root.
    #[error("{path}: it is a link to {target}; only relative links are distributed")]
    AbsoluteLink {
        /// The link.
        path: String,
        /// Where it leads.
        target: String,
    },
    /// A link that leads out of the set.
    #[error("{path}: it is a link to {target}, which is not in the set")]
    LinkOutside {
        /// The link.
        path: String,
        /// Where it leads.
        target: String,
    },
    /// Too many entries.
    #[error(
        "{path}: a hook set has at most {SET_ENTRIES_MAX} files and links, and with this one there are more"
    )]
    TooMany {
        /// The first one too many.
        path: String,
    },
    /// Too many bytes.
    #[error("{path}: a hook set has at most 64 MiB, and with this file it would have {bytes} bytes")]
    TooLarge {
        /// The file that passes the bound.
        path: String,
        /// The sum up to it.
        bytes: u64,
    },
}

/// What a path in a set leads to, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTarget {
    /// A regular file.
    File {
        /// Of its content.
        digest: Digest,
        /// Its permission bits.
        mode: u32,
    },
    /// A directory.
    Directory,
}

/// A checked list of files and links, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, SetEntry)>", into = "Vec<(String, SetEntry)>")]
pub struct HookSet {
    entries: BTreeMap<String, SetEntry>,
    bytes: u64,
}

impl TryFrom<Vec<(String, SetEntry)>> for HookSet {
    type Error = SetError;

    fn try_from(entries: Vec<(String, SetEntry)>) -> Result<Self, SetError> {
        let mut set = HookSet::default();
        for (path, entry) in entries {
            set.add(path, entry)?;
        }
        set.check_links()?;
        Ok(set)
    }
}

impl From<HookSet> for Vec<(String, SetEntry)> {
    fn from(set: HookSet) -> Self {
        set.entries.into_iter().collect()
    }
}

/// Whether a path may be an entry's.
///
/// # Errors
/// What is wrong with it.
pub fn check_set_path(path: &str) -> Result<(), SetError> {
    check_text(path, path)?;
    let good_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= NAME_BYTES_MAX;
    let mut names = path.split('/');
    let is_script = |directory: &str, name: &str| {
        let stem = directory.strip_suffix(".d").unwrap_or_default();
        let lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !stem.is_empty() && stem.bytes().all(lower) && name.bytes().all(super::is_good_byte)
    };
    let good = match (names.next(), names.next(), names.next()) {
        (Some(LIB), Some(_), _) => path.split('/').all(good_name),
        (Some(directory), Some(name), None) => {
            good_name(directory) && good_name(name) && is_script(directory, name)
        }
        _ => false,
    };
    if good { Ok(()) } else { Err(SetError::Path(path.to_owned())) }
}

fn check_text(path: &str, text: &str) -> Result<(), SetError> {
    let wrong = |what| Err(SetError::Text { path: path.escape_default().to_string(), what });
    if text.len() > SET_PATH_BYTES_MAX {
        return wrong("a path or a link's target has at most 512 bytes");
    }
    if text.chars().any(char::is_control) {
        return wrong("control characters are not distributed in paths and targets of links");
    }
    Ok(())
}

impl HookSet {
    fn add(&mut self, path: String, entry: SetEntry) -> Result<(), SetError> {
        check_set_path(&path)?;
        let entry = match entry {
            SetEntry::File { digest, mode, size } => {
                self.bytes = self.bytes.saturating_add(size);
                if self.bytes > SET_BYTES_MAX {
                    return Err(SetError::TooLarge { path, bytes: self.bytes });
                }
                SetEntry::File { digest, mode: mode & SET_MODE_MASK, size }
            }
            SetEntry::Link { target } => {
                check_text(&path, &target)?;
                if target.starts_with('/') {
                    return Err(SetError::AbsoluteLink { path, target });
                }
                SetEntry::Link { target }
            }
        };
        if self.entries.len() == SET_ENTRIES_MAX {
            return Err(SetError::TooMany { path });
        }
        let above = path.match_indices('/').map(|(end, _)| &path[..end]);
        if self.is_directory(&path) || above.into_iter().any(|above| self.entries.contains_key(above)) {
            return Err(SetError::Twice(path));
        }
        match self.entries.insert(path.clone(), entry) {
            None => Ok(()),
            Some(_) => Err(SetError::Twice(path)),
        }
    }

    fn check_links(&self) -> Result<(), SetError> {
        for (path, entry) in &self.entries {
            if let SetEntry::Link { target } = entry
                && self.target(path).is_none()
            {
                return Err(SetError::LinkOutside { path: path.clone(), target: target.clone() });
            }
        }
        Ok(())
    }

    fn is_directory(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.entries.range(below.clone()..).next().is_some_and(|(found, _)| found.starts_with(&below))
    }

    /// What a path leads to, by the steps that the kernel takes; `None` where that is nothing, or not in the set.
    pub fn target(&self, path: &str) -> Option<SetTarget> {
        let mut left: Vec<&str> = path.split('/').rev().collect();
        let mut here = String::new();
        let mut links = 0;
        while let Some(name) = left.pop() {
            match name {
                "" | "." => {}
                ".." => {
                    let above = here.rfind('/').or(Some(0)).filter(|_| !here.is_empty())?;
                    here.truncate(above);
                }
                name => {
                    let length = here.len();
                    here += if length == 0 { "" } else { "/" };
                    here += name;
                    match self.entries.get(&here) {
                        Some(SetEntry::Link { target }) => {
                            links += 1;
                            if links > LINKS_MAX {
                                return None;
                            }
                            here.truncate(length);
                            left.extend(target.split('/').rev());
                        }
                        Some(SetEntry::File { digest, mode, .. }) => {
                            // Nothing is below a file.
                            return left
                                .is_empty()
                                .then_some(SetTarget::File { digest: *digest, mode: *mode });
                        }
                        None if self.is_directory(&here) => {}
                        None => return None,
                    }
                }
            }
        }
        (!here.is_empty()).then_some(SetTarget::Directory)
    }

    /// The entries, by path bytewise.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &SetEntry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Whether a path is an entry's.
    pub fn has(&self, path: &str) -> bool {
        self.entries.contains_key(path)
    }

    /// Whether entries lie below a path.
    pub fn has_below(&self, path: &str) -> bool {
        self.is_directory(path)
    }

    /// How many files and links there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Each content with its length, once.
    pub fn contents(&self) -> BTreeMap<Digest, u64> {
        let content = |entry: &SetEntry| match entry {
            SetEntry::File { digest, size, .. } => Some((*digest, *size)),
            SetEntry::Link { .. } => None,
        };
        self.entries.values().filter_map(content).collect()
    }

    /// The text of which a set's digest is made: two sets have the same if and only if they are the same. No path and no
    /// target has a control character.
    pub fn canonical(&self) -> String {
        let line = |(path, entry): (&String, &SetEntry)| match entry {
            SetEntry::File { digest, mode, size } => format!("file\t{path}\t{digest}\t{mode:o}\t{size}\n"),
            SetEntry::Link { target } => format!("link\t{path}\t{target}\n"),
        };
        self.entries.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests;
