//! `gnt-job`.

use clap::{Args, Subcommand};

use super::common::{AsJson, ListFlags};

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
