//! Values as text for people: bytes made visible, times, sizes, durations.

use muster_core::hooks::Captured;
use muster_proto::v1;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Text from elsewhere, its control characters made visible; newlines and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let bytes = text.as_bytes().to_vec();
    let total_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    Captured { head: bytes, tail: Vec::new(), total_bytes, path: String::new() }.visible()
}

/// The same on one line: newlines and tabs are made visible too.
pub(crate) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// A line of at most about `chars_max` characters: its middle is left out, so that what follows a long value is told too.
pub(crate) fn shortened(line: &str, chars_max: usize) -> String {
    let count = line.chars().count();
    if count <= chars_max {
        return line.to_owned();
    }
    let half = chars_max / 2;
    let (begin, end): (String, String) =
        (line.chars().take(half).collect(), line.chars().skip(count - half).collect());
    format!("{begin} ... {end}")
}

/// A script's output as text, a cut noted.
pub(crate) fn captured(output: &v1::Captured) -> String {
    Captured::from(output.clone()).visible()
}

/// Whether bytes are missing from a script's output here.
pub(crate) fn is_cut(output: &v1::Captured) -> bool {
    Captured::from(output.clone()).cut()
}

/// Milliseconds since 1970 as RFC 3339 in UTC; `?` for what no calendar holds.
pub(crate) fn rfc3339(ms: u64) -> String {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000)
        .ok()
        .and_then(|time| time.format(&Rfc3339).ok())
        .unwrap_or_else(|| "?".to_owned())
}

/// A size in MiB with the unit that suits it: `512M`, `10.0G`, `1.5T`.
pub(crate) fn size(mib: u64) -> String {
    const GIB: u64 = 1 << 10;
    const TIB: u64 = 1 << 20;
    match mib {
        0..GIB => format!("{mib}M"),
        GIB..TIB => format!("{}G", tenths(mib, GIB)),
        TIB.. => format!("{}T", tenths(mib, TIB)),
    }
}

/// `value / unit` with one decimal, rounded.
fn tenths(value: u64, unit: u64) -> String {
    let tenths = (u128::from(value) * 10 + u128::from(unit) / 2) / u128::from(unit);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A duration that was measured: `41 ms`, `2.5 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{} s", tenths(ms, 1_000)),
        60_000..3_600_000 => two_units(ms / 1_000, 60, "min", "s"),
        3_600_000.. => two_units(ms / 60_000, 60, "h", "min"),
    }
}

fn two_units(value: u64, per_unit: u64, unit: &str, smaller: &str) -> String {
    match (value / per_unit, value % per_unit) {
        (whole, 0) => format!("{whole} {unit}"),
        (whole, rest) => format!("{whole} {unit} {rest} {smaller}"),
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn counted(count: impl Into<u64>, noun: &str) -> String {
    match count.into() {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_loses_its_middle() {
        assert_eq!(shortened("short", 10), "short");
        assert_eq!(
            shortened("wrong value aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: too long", 20),
            "wrong valu ... : too long"
        );
        assert_eq!(shortened(&"ä".repeat(30), 4), "ää ... ää");
    }

    #[test]
    fn sizes_and_durations_for_people() {
        for (mib, text) in [
            (0, "0M"),
            (1023, "1023M"),
            (1024, "1.0G"),
            (1536, "1.5G"),
            (1 << 20, "1.0T"),
            (u64::MAX, "17592186044416.0T"),
        ] {
            assert_eq!(size(mib), text);
        }
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (2_540, "2.5 s"),
            (60_000, "1 min"),
            (200_000, "3 min 20 s"),
            (3_600_000, "1 h"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(
            (counted(1_u32, "node"), counted(0_u32, "node")),
            ("1 node".to_owned(), "0 nodes".to_owned())
        );
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(1_764_453_600_123), "2025-11-29T22:00:00.123Z");
        assert_eq!(rfc3339(u64::MAX), "?");
    }

    #[test]
    fn x4_output_is_shown_with_control_bytes_made_visible_and_a_cut_noted() {
        let output = v1::Captured {
            head: b"caf\xe9 \x1b[31m\n".to_vec(),
            tail: b"end".to_vec(),
            total_bytes: 1000,
            path: "/out/1".to_owned(),
        };
        assert_eq!(captured(&output), "caf\\xe9 \\u{1b}[31m\n\n[cut: 986 bytes]\nend");
        assert!(is_cut(&output));
        assert_eq!(visible_line("a\nb\tc\r"), "a\\nb\\tc\\r");
    }
}
