//! How far a call is that takes long, in words and percent.

use std::time::{Duration, Instant};

/// How far a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// In a few words, with the rate where something is copied.
    pub text: String,
    /// From 0 to 100.
    pub percent: Option<u32>,
}

/// Hears how far a call is, as often as it changes.
pub type Tell<'a> = &'a (dyn Fn(Progress) + Sync);

/// Bytes in a MiB.
const MIB: u64 = 1024 * 1024;

/// The part that is done, in percent; all where there is nothing to do.
pub(crate) fn percent(done: u64, total: u64) -> u32 {
    let percent = done.min(total).saturating_mul(100).checked_div(total).unwrap_or(100);
    u32::try_from(percent).unwrap_or(100)
}

/// How far a copy is: `12 of 64 MiB, 30 MiB/s`.
pub(crate) fn copied(done: u64, total: u64, bytes_per_second: u64) -> Progress {
    let (done_mib, total_mib, rate) = (done / MIB, total.div_ceil(MIB), bytes_per_second / MIB);
    let text = format!("{done_mib} of {total_mib} MiB, {rate} MiB/s");
    Progress { text, percent: Some(percent(done, total)) }
}

/// Between two reports of a copy.
const TELL_PERIOD: Duration = Duration::from_millis(500);

/// Tells how far a copy is, now and then.
pub(crate) struct Copying<'a> {
    tell: Tell<'a>,
    total: u64,
    /// What was carried, holes left out.
    bytes: u64,
    begun: Instant,
    told: Option<Instant>,
}

impl<'a> Copying<'a> {
    /// A copy of so many bytes, holes included, begins.
    pub(crate) fn begin(tell: Tell<'a>, total: u64) -> Self {
        Copying { tell, total, bytes: 0, begun: Instant::now(), told: None }
    }

    /// So many bytes more were carried, and all up to `position` is done.
    pub(crate) fn carried(&mut self, bytes: u64, position: u64) {
        self.bytes += bytes;
        if self.told.is_none_or(|told| told.elapsed() > TELL_PERIOD) {
            self.told = Some(Instant::now());
            let seconds = self.begun.elapsed().as_secs().max(1);
            (self.tell)(copied(position, self.total, self.bytes / seconds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_told_in_percent() {
        for (done, total, expected) in [(0, 0, 100), (0, 5, 0), (1, 3, 33), (5, 5, 100), (9, 5, 100)] {
            assert_eq!(percent(done, total), expected, "{done} of {total}");
        }
        let progress = copied(12 * MIB + 5, 64 * MIB, 30 * MIB);
        assert_eq!((progress.text.as_str(), progress.percent), ("12 of 64 MiB, 30 MiB/s", Some(18)));
    }
}
