//! The checksums of an export's images: `SHA256SUMS`, as `sha256sum` writes and checks it.

use std::{collections::BTreeMap, fs::File, io, ops::ControlFlow};

use sha2::{Digest, Sha256};

use super::super::ImageName;
use crate::{
    cancel::Cancel,
    image::{CHUNK_BYTES_MAX, read_data},
};

/// The file's name.
pub(super) const CHECKSUMS: &str = "SHA256SUMS";

/// Why a file has no digest.
#[derive(Debug)]
pub(super) enum DigestError {
    /// It can't be read.
    Read(io::Error),
    /// The call was told to end.
    Cancelled,
}

/// The digest of a file's whole content, hexadecimal; its holes are not read.
pub(super) fn digest(file: &File, cancel: &Cancel) -> Result<String, DigestError> {
    let length = file.metadata().map_err(DigestError::Read)?.len();
    let (mut hasher, mut position) = (Sha256::new(), 0);
    let mut going_on = Ok(());
    let read = read_data(file, length, |offset, data| {
        going_on = zeros(&mut hasher, offset - position, cancel);
        hasher.update(&data);
        position = offset + u64::try_from(data.len()).expect("usize fits into u64 on all our platforms");
        if going_on.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    going_on?;
    read.map_err(DigestError::Read)?;
    zeros(&mut hasher, length - position, cancel)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Takes so many zeros in.
fn zeros(hasher: &mut Sha256, mut count: u64, cancel: &Cancel) -> Result<(), DigestError> {
    let zeros = [0; 64 * 1024];
    let piece = u64::try_from(CHUNK_BYTES_MAX).expect("usize fits into u64 on all our platforms");
    loop {
        if cancel.is_cancelled() {
            return Err(DigestError::Cancelled);
        }
        let mut now = count.min(piece);
        count -= now;
        while now > 0 {
            let size = usize::try_from(now).unwrap_or(usize::MAX).min(zeros.len());
            hasher.update(&zeros[..size]);
            now -= u64::try_from(size).expect("usize fits into u64 on all our platforms");
        }
        if count == 0 {
            return Ok(());
        }
    }
}

/// The file's text.
pub(super) fn text(digests: &BTreeMap<String, String>) -> String {
    digests.iter().map(|(name, digest)| format!("{digest}  {name}\n")).collect()
}

/// Reads the file: the digest of each image. `None` where a line is not as [`text`] writes it.
pub(super) fn parse(text: &str) -> Option<BTreeMap<String, String>> {
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        let name = ImageName::parse(name).ok().filter(|_| is_digest)?;
        Some((name.as_str().to_owned(), digest.to_ascii_lowercase()))
    };
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_digest_is_of_the_whole_content_with_its_holes() {
        let file = tempfile::tempfile().unwrap();
        let size = 3 * CHUNK_BYTES_MAX + 5;
        file.set_len(u64::try_from(size).unwrap()).unwrap();
        file.write_all_at(b"in the middle", 2_000_003).unwrap();
        let mut content = vec![0; size];
        content[2_000_003..2_000_016].copy_from_slice(b"in the middle");
        let expected: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let cancel = Cancel::default();
        assert_eq!(digest(&file, &cancel).unwrap(), expected);
        cancel.cancel();
        assert!(matches!(digest(&file, &cancel), Err(DigestError::Cancelled)));
        let empty = digest(&tempfile::tempfile().unwrap(), &Cancel::default()).unwrap();
        assert_eq!(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn the_file_is_read_as_it_is_written() {
        let digests = BTreeMap::from([
            ("sda.raw".to_owned(), "0a".repeat(32)),
            ("sdb.raw".to_owned(), "0b".repeat(32)),
        ]);
        let written = text(&digests);
        assert!(written.starts_with(&format!("{}  sda.raw\n", "0a".repeat(32))), "{written}");
        assert_eq!(parse(&written), Some(digests));
        assert_eq!(parse(""), Some(BTreeMap::new()));
        for wrong in [
            "sda.raw",
            "0a  sda.raw",
            &format!("{}  ../x.raw", "0a".repeat(32)),
            &format!("{} sda.raw", "0a".repeat(32)),
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
