//! A small client of QEMU's machine protocol (QMP), for guests and for storage daemons.
//!
//! One connection a socket: QEMU serves one client at a time. Commands go out with an id and may be answered in any order;
//! out-of-band ones overtake those that wait. Fields that are not known are ignored, so that every version will do.

mod client;
#[cfg(test)]
mod tests;
mod wire;

use std::{path::PathBuf, time::Duration};

pub use client::Qmp;
pub use wire::Event;

/// How long a connection may take, greeting and capabilities included. A QEMU that serves another client accepts, and
/// greets nobody.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long an ordinary command may take: QEMU answers within milliseconds, unless its main loop hangs.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// Why QMP did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QmpError {
    /// The socket can't be reached.
    #[error("could not connect to {}", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No answer in time.
    #[error("no answer to {what} within {} s", .limit.as_secs())]
    Silent {
        /// The command, or the greeting.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// The other side ended the connection, or it was never made.
    #[error("the connection ended before {what} was answered")]
    Ended {
        /// The command, or the greeting.
        what: String,
    },
    /// What came is not QMP.
    #[error("not QMP: {0}")]
    Protocol(String),
    /// QEMU refused the command.
    #[error("{command} was refused: {description}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's class, for example `GenericError` or `DeviceNotFound`.
        class: String,
        /// QEMU's words.
        description: String,
    },
}
