//! muster-masterd: reads its configuration and serves until it is told to stop.

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use muster_master::{
    config::Config,
    failpoint::{self, Failpoints},
    logging::{self, LogFormat},
    office::{Start, StartError},
    restore,
};

/// The master daemon of a Muster cluster.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Configuration file; default /etc/muster/masterd.toml
    #[arg(long)]
    config: Option<PathBuf>,
    /// How the log is written
    #[arg(long, value_name = "text|json", default_value = "text")]
    log_format: LogFormat,
    /// Wait to become master by `gnt-cluster master-failover` on this host
    #[arg(long, conflicts_with = "resume")]
    standby: bool,
    /// Take the office back that was given away and not taken over
    #[arg(long)]
    resume: bool,
    /// Serve although the nodes have seen a newer configuration than this store has
    #[arg(long)]
    accept_loss: bool,
    /// Check this backup, put it into the place of the store, and exit; no master may be running here
    #[arg(long, value_name = "FILE", conflicts_with_all = ["standby", "resume", "accept_loss"])]
    restore: Option<PathBuf>,
    /// List the places at which MUSTER_FAILPOINT can make the daemon kill itself, and exit
    #[arg(long)]
    failpoints: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.failpoints {
        use std::io::Write;
        let mut out = std::io::stdout().lock();
        return match writeln!(out, "{}", failpoint::NAMES.join("\n")) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", muster_master::chain(&*error));
            use std::io::Write;
            writeln!(std::io::stderr(), "muster-masterd: {}", muster_master::chain(&*error)).ok();
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::load(arguments.config.as_deref())?;
    logging::init(arguments.log_format, config.log.as_deref())?;
    if let Some(file) = &arguments.restore {
        let told = restore::run(&config, file)?;
        use std::io::Write;
        return Ok(writeln!(std::io::stdout(), "{told}")?);
    }
    let failpoints = Failpoints::from_env()?;
    let start =
        Start { standby: arguments.standby, resume: arguments.resume, accept_loss: arguments.accept_loss };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let result: Result<(), StartError> = muster_master::serve::run(config, start, failpoints).await;
        result
    })?;
    Ok(())
}
