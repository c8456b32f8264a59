//! `gnt-job`.

use clap::{Args, Subcommand};

use super::{
    common::{AsJson, ListFlags, OperationFlags},
    values::{self, Age},
};

/// Verbs of `gnt-job`.
#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// List jobs
    List {
        /// Only these jobs
        #[arg(value_name = "ID")]
        ids: Vec<u64>,
        #[command(flatten)]
        states: JobStateFlags,
        #[command(flatten)]
        list: ListFlags,
    },
    /// Show all about jobs: hooks by node and script, timings, log
    Info {
        /// The jobs
        #[arg(value_name = "ID", required = true)]
        ids: Vec<u64>,
        /// Also the environment of the hooks and the output of every script
        #[arg(short, long)]
        verbose: bool,
        #[command(flatten)]
        json: AsJson,
    },
    /// Cancel jobs: at once if queued or waiting, else at the next safe point
    Cancel {
        /// The jobs
        #[arg(value_name = "ID", required = true)]
        ids: Vec<u64>,
        /// End their scripts and calls on all nodes now, and do not wait for them
        #[arg(long)]
        kill: bool,
        #[command(flatten)]
        json: AsJson,
    },
    /// Do what a job's undo could not, where it is still wanted; frees the locks of a blocked job
    Repair {
        /// The job
        #[arg(value_name = "ID", value_parser = values::job)]
        id: u64,
        #[command(flatten)]
        operation: OperationFlags,
    },
    /// Move jobs that are over to the archive: they leave the list, `gnt-job info` still shows them
    Archive {
        /// The jobs
        #[arg(value_name = "ID", required = true, value_parser = values::job)]
        ids: Vec<u64>,
        #[command(flatten)]
        json: AsJson,
    },
    /// Move all jobs to the archive that were over so long ago
    Autoarchive {
        /// Seconds, or a number with s, m, h, d or w, for example 7d; or all
        #[arg(value_name = "AGE", value_parser = values::age, allow_hyphen_values = true)]
        age: Age,
        #[command(flatten)]
        json: AsJson,
    },
    /// Follow a job's log to its end; ends with the job's exit code
    Watch {
        /// The job
        #[arg(value_name = "ID")]
        id: u64,
        #[command(flatten)]
        json: AsJson,
    },
    /// Wait for a job's end without a word; ends with the job's exit code
    Wait {
        /// The job
        #[arg(value_name = "ID")]
        id: u64,
        #[command(flatten)]
        json: AsJson,
    },
}

/// Which jobs are listed; none of them means all.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct JobStateFlags {
    /// Only queued and waiting jobs
    #[arg(long)]
    pub(crate) pending: bool,
    /// Only jobs that run
    #[arg(long)]
    pub(crate) running: bool,
    /// Only failed jobs
    #[arg(long)]
    pub(crate) error: bool,
    /// Only ended jobs
    #[arg(long)]
    pub(crate) finished: bool,
}
