//! Which names of directory entries are names of scripts (HOOKS.md D3).

use super::SkipReason;

/// Whether a byte may stand in a script's name.
pub fn is_good_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Why an entry of this name is not run, whatever it is.
pub fn skipped_by_name(name: &[u8]) -> Option<SkipReason> {
    if name.ends_with(b".disabled") {
        return Some(SkipReason::Disabled);
    }
    let is_good = !name.is_empty() && name.iter().all(|byte| is_good_byte(*byte));
    (!is_good).then_some(SkipReason::BadName)
}
