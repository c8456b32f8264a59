//! Runs a definition's script. It has no limit of time, since nobody knows what a system needs; it ends with its call.

use std::{fs, fs::File, io, path::Path, time::Duration};

use muster_core::names::OsName;
use muster_hooksrv::{Exit, Tool, end_writers};
use tokio::time::interval;
use uuid::Uuid;

use super::{OsError, Oses, definition::Scripts, failed};
use crate::{cancel::Cancel, tail::tail};

/// How much a script may say; one that says more is taken to be in a loop.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How often that is looked at.
const LOG_PERIOD: Duration = Duration::from_secs(1);

/// Holds what the last script said that failed.
const FAILED_LOG: &str = "failed.log";

/// A run of a script.
pub(super) struct Run<'a> {
    pub(super) instance: Uuid,
    pub(super) name: &'a OsName,
    pub(super) scripts: &'a Scripts,
    /// `create` or `rename`.
    pub(super) script: &'static str,
    pub(super) env: &'a [(String, String)],
}

/// Why a run came to its end.
enum Stop {
    Exit(io::Result<()>),
    Cancelled,
    SaysTooMuch,
}

impl Oses {
    /// Runs a script. Blocks until it has ended, with all that it started where that is left behind.
    pub(super) fn run(&self, run: &Run<'_>, cancel: &Cancel) -> Result<(), OsError> {
        let folder = self.work.join(run.instance.to_string());
        let still_there = |source| OsError::StillThere { script: run.script, name: run.name.clone(), source };
        // An attempt that was broken off must not write to the disks any more.
        end_writers(&folder).map_err(still_there)?;
        fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
        let path = folder.join(run.script);
        let log = File::create(&path).map_err(failed("write", &path))?;
        let (program, directory) = (run.scripts.folder.join(run.script), &run.scripts.folder);
        let tool = Tool { program: &program, arguments: &[], env: run.env, directory, log: &log };
        let ended = |ended: String| {
            let said = Some(tail(&path)).filter(|said| !said.is_empty());
            let said = said.map_or_else(String::new, |said| format!(": {said}"));
            self.keep_failed(&path);
            OsError::Script { script: run.script, name: run.name.clone(), ended, said }
        };
        let spawned = tool.spawn().map_err(|error| ended(format!("can't be executed: {error}")));
        let forget = || fs::remove_dir_all(&folder).map_err(failed("remove", &folder));
        let mut process = match spawned {
            Ok(process) => process,
            Err(error) => return forget().and(Err(error)),
        };
        let stop = self.runtime.block_on(async {
            tokio::select! {
                exited = process.exited() => Stop::Exit(exited),
                () = cancel.told() => Stop::Cancelled,
                () = too_much(&path) => Stop::SaysTooMuch,
            }
        });
        // What it left in the background would hold the disks: loop devices and mounts are busy as long as it runs.
        process.end().map_err(still_there)?;
        let done = match stop {
            Stop::Exit(exited) => match exited.and_then(|()| process.exit()) {
                Ok(Exit::Code(0)) => Ok(()),
                Ok(Exit::Code(code)) => Err(ended(format!("failed with exit status {code}"))),
                Ok(Exit::Signal(signal)) => Err(ended(format!("was killed by signal {signal}"))),
                Err(error) => Err(ended(format!("can't be watched: {error}"))),
            },
            Stop::Cancelled => Err(OsError::Cancelled),
            Stop::SaysTooMuch => {
                Err(ended(format!("was ended: it said more than {} MiB", LOG_BYTES_MAX / (1024 * 1024))))
            }
        };
        forget().and(done)
    }

    /// Keeps all that a script said which failed, in place of that of the last such: an error holds but its end.
    fn keep_failed(&self, log: &Path) {
        let kept = self.work.join(FAILED_LOG);
        match fs::rename(log, &kept) {
            Ok(()) => tracing::warn!(log = %kept.display(), "a script of an OS definition failed"),
            Err(error) => tracing::warn!(%error, "could not keep what a failed script said"),
        }
    }
}

/// Comes when a log is larger than a script's may be.
async fn too_much(log: &Path) {
    let mut period = interval(LOG_PERIOD);
    loop {
        period.tick().await;
        if fs::metadata(log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
            return;
        }
    }
}
