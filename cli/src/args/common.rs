//! Flags that many verbs share.

use std::path::PathBuf;

use clap::Args;
use muster_core::engine::{Dependency, Priority};

use super::values;

/// How the master is reached; by default through its local socket.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionFlags {
    /// A master elsewhere, reached by TLS [env: MUSTER_MASTER]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub(crate) master: Option<String>,
    /// Own certificate for it [env: MUSTER_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Own key for it [env: MUSTER_KEY]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Certificate of the cluster's CA [env: MUSTER_CA]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
}

impl ConnectionFlags {
    /// What was given here, and the rest of another command line.
    pub(crate) fn or(self, other: &ConnectionFlags) -> ConnectionFlags {
        ConnectionFlags {
            master: self.master.or_else(|| other.master.clone()),
            cert: self.cert.or_else(|| other.cert.clone()),
            key: self.key.or_else(|| other.key.clone()),
            ca: self.ca.or_else(|| other.ca.clone()),
        }
    }
}

/// Flags of every operation.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Operation")]
pub(crate) struct OperationFlags {
    /// Print the job's id and do not wait for its end
    #[arg(long)]
    pub(crate) submit: bool,
    /// Why this is done, at most 1 KiB; hook scripts see it
    #[arg(long, value_name = "TEXT", value_parser = values::reason, allow_hyphen_values = true)]
    pub(crate) reason: Option<String>,
    /// Take locks, check and run pre scripts, but change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Start only when this job has ended as wanted; STATES: success (the default), error, canceled, with commas; may be repeated
    #[arg(long, value_name = "JOB[:STATES]", value_parser = values::dependency, allow_hyphen_values = true)]
    pub(crate) depend: Vec<Dependency>,
    /// Its place among the jobs that wait: low, normal, high, or -20 (first) to 19 (last)
    #[arg(long, value_name = "PRIORITY", value_parser = values::priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
    /// Print the ended job as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of every listing.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ListFlags {
    /// Fields to print, with commas; +FIELDS adds to the default ones
    #[arg(short = 'o', long, value_name = "FIELDS", allow_hyphen_values = true)]
    pub(crate) output: Option<String>,
    /// Only rows of which this holds, for example 'os_name == debian and mfree > 2G'; operators: == != < <= > >= =~ (contains)
    #[arg(short = 'F', long, value_name = "FILTER", allow_hyphen_values = true)]
    pub(crate) filter: Option<String>,
    /// Leave out the line of titles
    #[arg(long)]
    pub(crate) no_headers: bool,
    /// Put SEP between fields instead of aligning them; sizes are then plain MiB
    #[arg(long, value_name = "SEP", allow_hyphen_values = true)]
    pub(crate) separator: Option<String>,
    /// Print an array of JSON objects
    #[arg(long, conflicts_with_all = ["separator", "no_headers"])]
    pub(crate) json: bool,
}

/// The one flag of commands that show something.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct AsJson {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
