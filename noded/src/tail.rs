//! The end of a log, for errors: what a program said last is mostly why it failed.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

/// How much of a log an error holds: some lines, and far below a message's bound.
const TAIL_BYTES_MAX: u64 = 2000;

/// What a log ends with, from a line's start on where there is one; nothing where it can't be read.
pub(crate) fn tail(log: &Path) -> String {
    read(log).unwrap_or_default()
}

fn read(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL_BYTES_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = if from == 0 { &text } else { text.split_once('\n').map_or(&*text, |(_, lines)| lines) };
    Ok(whole.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(tail(&log), "");
        std::fs::write(&log, "one\ntwo\n").unwrap();
        assert_eq!(tail(&log), "one\ntwo");
        std::fs::write(&log, format!("{}\nlast\n", "x".repeat(3000))).unwrap();
        assert_eq!(tail(&log), "last");
        std::fs::write(&log, "y".repeat(3000)).unwrap();
        assert_eq!(tail(&log).len(), 2000);
    }
}
