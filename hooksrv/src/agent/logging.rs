//! Where the log goes and how it looks: standard error or a file, text or JSON, filtered by `RUST_LOG`.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Mutex,
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// What is logged where `RUST_LOG` does not say.
const FILTER_DEFAULT: &str = "info";

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The file can't be opened.
    #[error("could not open log file {}", .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// `RUST_LOG` is no filter.
    #[error("RUST_LOG is not a valid filter")]
    Filter(#[source] tracing_subscriber::filter::FromEnvError),
    /// A log was begun before.
    #[error("the log was set up twice")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Begins the log of this process.
///
/// # Errors
/// When the file can't be opened, or `RUST_LOG` is no filter.
pub fn begin_log(file: Option<&Path>, format: LogFormat) -> Result<(), LogError> {
    match file {
        None => begin(io::stderr, format),
        Some(path) => {
            let open = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            let file = open.map_err(|source| LogError::Open { path: path.to_owned(), source })?;
            begin(Mutex::new(file), format)
        }
    }
}

fn begin<W>(writer: W, format: LogFormat) -> Result<(), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    use tracing_subscriber::util::SubscriberInitExt;
    let filter = match std::env::var_os(EnvFilter::DEFAULT_ENV) {
        None => EnvFilter::new(FILTER_DEFAULT),
        Some(_) => EnvFilter::try_from_default_env().map_err(LogError::Filter)?,
    };
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Text => log.finish().try_init(),
        LogFormat::Json => log.json().finish().try_init(),
    }
    .map_err(LogError::Twice)
}
