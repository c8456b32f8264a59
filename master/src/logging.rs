//! What the daemon writes for its operator: to standard error or a file, as text or JSON, as much as `RUST_LOG` says.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// What is written without `RUST_LOG`.
const DEFAULT_FILTER: &str = "info";

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoggingError {
    /// The log file can't be opened.
    #[error("could not open the log file {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// `RUST_LOG` is set and wrong.
    #[error("RUST_LOG={text:?} is not valid")]
    Filter {
        /// Its value.
        text: String,
        /// The cause.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else in this process logs already.
    #[error("logging was set up before")]
    Twice(#[from] tracing::subscriber::SetGlobalDefaultError),
}

/// Sets up logging for the whole process; to standard error where no file is named.
///
/// # Errors
/// When the file can't be opened or `RUST_LOG` can't be read: a daemon that logs nothing should not run.
pub fn init(format: LogFormat, file: Option<&Path>) -> Result<(), LoggingError> {
    let wanted = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = filter(wanted.as_deref().unwrap_or(DEFAULT_FILTER))?;
    match file {
        Some(path) => {
            let log = open(path).map_err(|source| LoggingError::Open { path: path.to_owned(), source })?;
            install(format, filter, Arc::new(log), Colours::Never)
        }
        None => {
            let colours = if io::stderr().is_terminal() { Colours::OnTerminal } else { Colours::Never };
            install(format, filter, io::stderr, colours)
        }
    }
}

/// Appends, so that a log that is truncated from outside starts again at its beginning.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

fn filter(text: &str) -> Result<EnvFilter, LoggingError> {
    let parsed = EnvFilter::builder().parse(text);
    parsed.map_err(|source| LoggingError::Filter { text: text.to_owned(), source })
}

#[derive(Clone, Copy, PartialEq)]
enum Colours {
    OnTerminal,
    Never,
}

fn install<W>(format: LogFormat, filter: EnvFilter, writer: W, colours: Colours) -> Result<(), LoggingError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    Ok(tracing::subscriber::set_global_default(subscriber(format, filter, writer, colours))?)
}

fn subscriber<W>(
    format: LogFormat,
    filter: EnvFilter,
    writer: W,
    colours: Colours,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Text => Box::new(lines.with_ansi(colours == Colours::OnTerminal).finish()),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).finish()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(format: LogFormat, wanted: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "an earlier line\n").unwrap();
        let log = Arc::new(open(&path).unwrap());
        let subscriber = subscriber(format, filter(wanted).unwrap(), log, Colours::Never);
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(node = "node1", "joined");
            tracing::debug!("a detail");
        });
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn lines_are_appended_as_text() {
        let log = logged(LogFormat::Text, DEFAULT_FILTER);
        assert!(log.starts_with("an earlier line\n") && log.contains("INFO"), "{log}");
        assert!(log.trim_end().ends_with("joined node=\"node1\"") && !log.contains('\x1b'), "{log}");
    }

    #[test]
    fn json_has_an_object_a_line_and_rust_log_says_how_much() {
        let log = logged(LogFormat::Json, "debug");
        let lines: Vec<serde_json::Value> =
            log.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["message"], &lines[0]["node"]), (&"joined".into(), &"node1".into()));
        assert_eq!((&lines[1]["level"], &lines[1]["message"]), (&"DEBUG".into(), &"a detail".into()));
    }

    #[test]
    fn a_target_can_be_shown_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let log = Arc::new(open(&path).unwrap());
        let filter = filter("muster.job.timing=info").unwrap();
        tracing::subscriber::with_default(subscriber(LogFormat::Text, filter, log, Colours::Never), || {
            tracing::info!("something else");
            tracing::info!(target: "muster.job.timing", "job 1: begins");
        });
        let log = std::fs::read_to_string(path).unwrap();
        assert!(
            log.trim_end().ends_with("INFO muster.job.timing: job 1: begins") && log.lines().count() == 1,
            "{log}"
        );
    }

    #[test]
    fn a_wrong_filter_or_format_is_an_error() {
        assert!(filter("info,muster_master=debug").is_ok());
        assert_eq!(
            filter("muster=loudly").unwrap_err().to_string(),
            "RUST_LOG=\"muster=loudly\" is not valid"
        );
        assert_eq!(LogFormat::from_str("json", false), Ok(LogFormat::Json));
        assert!(LogFormat::from_str("xml", false).is_err());
    }
}
