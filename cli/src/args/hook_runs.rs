//! `gnt-hooks run` and `gnt-hooks history`.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use muster_core::history::{ScriptPattern, phase_of};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    common::{AsJson, ListFlags},
    values,
};

/// Flags of `gnt-hooks run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunFlags {
    /// Where it is run
    #[arg(value_name = "NODE", value_parser = values::node)]
    pub(crate) node: String,
    /// The script, for example instance-start-pre.d/10-quota; the directory is one of the job's
    #[arg(value_name = "DIR/SCRIPT", value_parser = script_path)]
    pub(crate) script: ScriptPath,
    /// The job with whose recorded environment it is run; an archived one will do
    #[arg(long, value_name = "JOB")]
    pub(crate) from_job: u64,
    #[command(flatten)]
    pub(crate) json: AsJson,
}

/// A script by its directory and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptPath {
    /// For example `node-add-pre.d`.
    pub(crate) directory: String,
    /// The file's name.
    pub(crate) script: String,
}

/// Flags of `gnt-hooks history`.
#[derive(Debug, Clone, Args)]
pub(crate) struct HistoryFlags {
    /// Only what ran on this node
    #[arg(long, value_name = "NODE", value_parser = values::node)]
    pub(crate) node: Option<String>,
    /// Only these scripts: SCRIPT or DIR/SCRIPT, with * for any characters and ? for one
    #[arg(long, value_name = "PATTERN", value_parser = pattern, allow_hyphen_values = true)]
    pub(crate) script: Option<String>,
    /// Only what failed: exit codes that are errors, limits, signals, scripts that could not run, nodes without an answer
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only what began then or later: 2026-11-30T08:00:00Z, or an age such as 90s, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = since, allow_hyphen_values = true)]
    pub(crate) since: Option<Since>,
    /// At most so many rows, the newest jobs' first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) list: ListFlags,
}

/// A moment, or how long ago it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// In ms since 1970.
    At(u64),
    /// In ms.
    Ago(u64),
}

impl Since {
    /// In ms since 1970.
    pub(crate) fn ms(self) -> u64 {
        match self {
            Since::At(ms) => ms,
            Since::Ago(ms) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::try_from(now.as_millis()).unwrap_or(u64::MAX).saturating_sub(ms)
            }
        }
    }
}

fn script_path(text: &str) -> Result<ScriptPath, String> {
    let wrong = || "expected DIR/SCRIPT, for example instance-start-pre.d/10-quota".to_owned();
    let (directory, script) = text.split_once('/').ok_or_else(wrong)?;
    if script.is_empty() || script.contains('/') {
        return Err(wrong());
    }
    if phase_of(directory).is_none() {
        return Err(format!(
            "{directory} is no hook directory: its name ends in -pre.d, -post.d or -failed.d"
        ));
    }
    Ok(ScriptPath { directory: directory.to_owned(), script: script.to_owned() })
}

fn pattern(text: &str) -> Result<String, String> {
    ScriptPattern::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(moment) = OffsetDateTime::parse(text, &Rfc3339) {
        let ms = moment.unix_timestamp_nanos() / 1_000_000;
        return u64::try_from(ms).map(Since::At).map_err(|_| "a moment after 1970 is expected".to_owned());
    }
    let age = values::age(text)
        .map_err(|why| format!("expected a moment like 2026-11-30T08:00:00Z, or an age: {why}"))?;
    Ok(Since::Ago(u64::try_from(age.0.as_millis()).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_a_hook_directory_and_a_name() {
        let path = script_path("node-add-pre.d/10-a").unwrap();
        assert_eq!((path.directory.as_str(), path.script.as_str()), ("node-add-pre.d", "10-a"));
        for (wrong, part) in [
            ("", "DIR/SCRIPT"),
            ("10-a", "DIR/SCRIPT"),
            ("node-add-pre.d/", "DIR/SCRIPT"),
            ("/etc/ganeti/hooks/node-add-pre.d/10-a", "DIR/SCRIPT"),
            ("node-add/10-a", "-pre.d, -post.d or -failed.d"),
            ("../10-a", "-pre.d, -post.d or -failed.d"),
        ] {
            assert!(script_path(wrong).unwrap_err().contains(part), "{wrong}");
        }
    }

    #[test]
    fn a_moment_is_one_of_the_calendar_or_an_age() {
        assert_eq!(since("1970-01-01T00:00:01.5Z"), Ok(Since::At(1_500)));
        assert_eq!(since("1970-01-01T01:00:01+01:00"), Ok(Since::At(1_000)));
        assert_eq!(since("90s"), Ok(Since::Ago(90_000)));
        assert_eq!(since("2h"), Ok(Since::Ago(7_200_000)));
        for wrong in ["", "yesterday", "1969-01-01T00:00:00Z", "2026-11-30", "-5"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
        assert!(Since::Ago(0).ms() > 1_600_000_000_000 && Since::Ago(u64::MAX).ms() == 0);
    }

    #[test]
    fn a_pattern_is_checked_here() {
        assert_eq!(pattern("10-*"), Ok("10-*".to_owned()));
        assert!(pattern("a/b/c").unwrap_err().contains("DIRECTORY/SCRIPT"));
    }
}
