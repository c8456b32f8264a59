//! The time limits that a script sets for itself in its first characters (HOOKS.md X8).

/// A script that takes longer is remarked on, in milliseconds.
pub const WARN_DEFAULT_MS: u64 = 30_000;
/// A script that takes longer is ended, in milliseconds.
pub const KILL_DEFAULT_MS: u64 = 300_000;
/// The default of the cluster parameter `hook_timeout_max`, in milliseconds: 24 h.
pub const TIMEOUT_MAX_DEFAULT_MS: u64 = 24 * 3_600_000;
/// How much of a script is read for its limits, in characters.
const HEAD_CHARS_MAX: usize = 1000;

/// A script's limits and what was wrong with the lines that set them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLimits {
    /// Warning limit in milliseconds.
    pub warn_ms: u64,
    /// Kill limit in milliseconds.
    pub kill_ms: u64,
    /// What the script set itself, unbounded.
    pub own: OwnLimits,
    /// Lines that were reported and ignored.
    pub notes: Vec<String>,
}

/// The limits that a script sets for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnLimits {
    /// Warning limit in milliseconds.
    pub warn_ms: Option<u64>,
    /// Kill limit in milliseconds.
    pub kill_ms: Option<u64>,
}

/// The limits of scripts that set none, and the bound of those that scripts set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitBounds {
    /// Warning limit in milliseconds.
    pub warn_ms: u64,
    /// Kill limit in milliseconds.
    pub kill_ms: u64,
    /// Bound of both.
    pub max_ms: u64,
}

impl LimitBounds {
    /// The warning and the kill limit that hold for a script.
    pub fn applied(self, own: OwnLimits) -> (u64, u64) {
        let bounded = |own: Option<u64>, default: u64| own.unwrap_or(default).min(self.max_ms);
        (bounded(own.warn_ms, self.warn_ms), bounded(own.kill_ms, self.kill_ms))
    }
}

impl Default for LimitBounds {
    fn default() -> Self {
        LimitBounds { warn_ms: WARN_DEFAULT_MS, kill_ms: KILL_DEFAULT_MS, max_ms: TIMEOUT_MAX_DEFAULT_MS }
    }
}

/// Reads the limits from a script's first bytes (HOOKS.md X8).
pub fn script_limits(head: &[u8], bounds: LimitBounds) -> ScriptLimits {
    let mut own = OwnLimits::default();
    let mut notes = Vec::new();
    let text: String = String::from_utf8_lossy(head).chars().take(HEAD_CHARS_MAX).collect();
    for line in text.lines() {
        for (key, slot) in [("HOOK_WARN_TIMEOUT", &mut own.warn_ms), ("HOOK_KILL_TIMEOUT", &mut own.kill_ms)]
        {
            match line_value(line, key) {
                None => {}
                Some(Ok(ms)) => *slot = Some(ms),
                Some(Err(why)) => notes.push(format!("{key} ignored: {why}")),
            }
        }
    }
    let (warn_ms, kill_ms) = bounds.applied(own);
    ScriptLimits { warn_ms, kill_ms, own, notes }
}

/// The value of a line that ends with `KEY = VALUE`, or `None` where the line sets no such thing.
fn line_value(line: &str, key: &str) -> Option<Result<u64, String>> {
    let (_, rest) = line.rsplit_once(key)?;
    let value = rest.trim_start().strip_prefix('=')?.trim();
    Some(duration_ms(value))
}

/// A duration in milliseconds, rounded up so that none becomes zero.
fn duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let count: u64 = number.parse().map_err(|_| format!("`{text}` is no whole number with a unit"))?;
    if count == 0 {
        return Err(format!("`{text}` is zero"));
    }
    let micros: u64 = match unit.trim() {
        "micro" | "micros" => 1,
        "ms" | "millisecond" | "milliseconds" => 1_000,
        "s" | "second" | "seconds" => 1_000_000,
        "m" | "minute" | "minutes" => 60_000_000,
        "h" | "hour" | "hours" => 3_600_000_000,
        other => {
            return Err(format!(
                "`{other}` is no unit: micro(s), ms, millisecond(s), s, second(s), m, minute(s), h, hour(s)"
            ));
        }
    };
    Ok(count.saturating_mul(micros).div_ceil(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, warn_ms: u64, kill_ms: u64, notes: usize) {
        let limits = script_limits(head.as_bytes(), LimitBounds::default());
        assert_eq!(
            (limits.warn_ms, limits.kill_ms, limits.notes.len()),
            (warn_ms, kill_ms, notes),
            "{head:?}"
        );
    }

    #[test]
    fn x8_limits_from_the_first_characters() {
        check("#!/bin/sh\n", WARN_DEFAULT_MS, KILL_DEFAULT_MS, 0);
        check("#!/bin/sh\n# HOOK_WARN_TIMEOUT = 10 s\n# HOOK_KILL_TIMEOUT=2minutes\n", 10_000, 120_000, 0);
        check(
            "-- HOOK_KILL_TIMEOUT=500 ms\nrem HOOK_KILL_TIMEOUT = 1 hour  \n",
            WARN_DEFAULT_MS,
            3_600_000,
            0,
        );
        check("# HOOK_KILL_TIMEOUT=1 micro\n", WARN_DEFAULT_MS, 1, 0);
        check("# HOOK_KILL_TIMEOUT=0 s\n", WARN_DEFAULT_MS, KILL_DEFAULT_MS, 1);
        check("# HOOK_KILL_TIMEOUT=5 fortnights\n", WARN_DEFAULT_MS, KILL_DEFAULT_MS, 1);
        check("# HOOK_KILL_TIMEOUT=99 h\n", WARN_DEFAULT_MS, TIMEOUT_MAX_DEFAULT_MS, 0);
        check(
            &format!("{}\n# HOOK_KILL_TIMEOUT=1 s\n", "x".repeat(1000)),
            WARN_DEFAULT_MS,
            KILL_DEFAULT_MS,
            0,
        );
    }

    #[test]
    fn x8_a_script_that_sets_none_has_the_directorys_limits() {
        let bounds = LimitBounds { warn_ms: 1_000, kill_ms: 5_000, max_ms: 60_000 };
        let limits = |head: &str| {
            let limits = script_limits(head.as_bytes(), bounds);
            (limits.warn_ms, limits.kill_ms)
        };
        assert_eq!(limits("#!/bin/sh\n"), (1_000, 5_000));
        assert_eq!(limits("# HOOK_KILL_TIMEOUT=20 s\n"), (1_000, 20_000));
        assert_eq!(limits("# HOOK_KILL_TIMEOUT=20 h\n"), (1_000, 60_000));
    }
}
