//! How a daemon follows a keeper: reads its report as it grows, tells it to end, sees its death.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use muster_core::hooks::{HookResult, ScriptResult};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::place::{KeeperError, Place};
use super::report::{Record, ReportReader};
use crate::processes::ProcessId;
use crate::spawn::{self, Child};

/// The signal that asks a keeper to end its run and to report that.
const END_RUN: Signal = Signal::USR1;
/// A keeper that was told to end its run has reported that after 2 s of grace and 5 s of KILL at most.
const END_RUN_MAX: Duration = Duration::from_millis(7_500);
/// Only a process stuck in the kernel outlives KILL so long.
const KILL_MAX: Duration = Duration::from_secs(5);

/// A keeper's process.
#[derive(Debug)]
pub(super) enum Keeper {
    /// Started by this daemon, and reaped with this value.
    Own(Child),
    /// Started by an earlier one.
    Found(OwnedFd),
}

impl Keeper {
    fn pidfd(&self) -> BorrowedFd<'_> {
        match self {
            Keeper::Own(child) => child.pidfd(),
            Keeper::Found(pidfd) => pidfd.as_fd(),
        }
    }

    pub(super) async fn exited(&self) -> io::Result<()> {
        spawn::exited(self.pidfd()).await
    }

    fn signal(&self, signal: Signal) {
        // An error says that it has ended.
        let _may_be_gone = rustix::process::pidfd_send_signal(self.pidfd(), signal);
    }

    /// Kills the keeper and waits for its end; false if it outlives that.
    pub(super) async fn kill(&self) -> bool {
        self.signal(Signal::KILL);
        matches!(tokio::time::timeout(KILL_MAX, self.exited()).await, Ok(Ok(())))
    }

    /// Asks the keeper to end its run, and kills it if it does not; false if it outlives that.
    pub(super) async fn end(&self) -> bool {
        self.signal(END_RUN);
        match tokio::time::timeout(END_RUN_MAX, self.exited()).await {
            Ok(Ok(())) => true,
            Ok(Err(_)) | Err(_) => self.kill().await,
        }
    }
}

/// What a report says so far.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// A script may have been started.
    pub(super) begun: bool,
    /// The script that was started last and did not end.
    pub(super) process: Option<ProcessId>,
    scripts: Vec<ScriptResult>,
    /// Without the scripts.
    done: Option<HookResult>,
}

impl Told {
    /// Reads all of a report.
    pub(super) fn read(place: &Place) -> Result<Self, KeeperError> {
        let mut told = Told::default();
        told.add(ReportReader::open(place)?.read()?, &mut |_| {});
        Ok(told)
    }

    fn add(&mut self, records: Vec<Record>, tell: &mut impl FnMut(&ScriptResult)) {
        for record in records {
            match record {
                Record::Begun { .. } => self.begun = true,
                Record::Started(process) => self.process = Some(process),
                Record::Ended(script) => {
                    self.process = None;
                    tell(&script);
                    self.scripts.push(script);
                }
                Record::Done { skipped, failure, global_post_absent } => {
                    let scripts = Vec::new();
                    self.done = Some(HookResult { scripts, skipped, failure, global_post_absent });
                }
            }
        }
    }

    /// The whole result, if the run has ended.
    pub(super) fn into_result(self) -> Result<HookResult, Box<Told>> {
        match self.done {
            Some(done) => Ok(HookResult { scripts: self.scripts, ..done }),
            None => Err(Box::new(self)),
        }
    }
}

/// How far the end of a run was brought about.
enum Stage {
    Runs,
    /// The keeper was told; it is killed at this time.
    Told(Instant),
    /// It was killed; it is given up at this time.
    Killed(Instant),
}

/// Follows a run to the keeper's last record or its death; `told` is what it told until then.
///
/// # Errors
/// When the report can't be read, which says nothing of the keeper's life.
pub(super) async fn follow(
    place: &Place,
    keeper: &Keeper,
    cancel: &CancellationToken,
    told: &mut Told,
    mut tell: impl FnMut(&ScriptResult),
) -> Result<(), KeeperError> {
    let mut wake = place.wake_receiver()?;
    let mut reader = ReportReader::open(place)?;
    let mut stage = Stage::Runs;
    let exited = keeper.exited();
    tokio::pin!(exited);
    let mut is_gone = false;
    let mut woken = [0; 64];
    loop {
        let records;
        (reader, records) = read(reader, place).await?;
        told.add(records, &mut tell);
        if told.done.is_some() || is_gone {
            return Ok(());
        }
        let deadline = match stage {
            Stage::Runs => None,
            Stage::Told(at) | Stage::Killed(at) => Some(at),
        };
        tokio::select! {
            // What it wrote before its end is read once more.
            _ = &mut exited => is_gone = true,
            _ = wake.read(&mut woken) => {}
            () = cancel.cancelled(), if deadline.is_none() => {
                keeper.signal(END_RUN);
                stage = Stage::Told(Instant::now() + END_RUN_MAX);
            }
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                if matches!(stage, Stage::Killed(_)) {
                    is_gone = true;
                } else {
                    tracing::error!(place = %place.dir().display(), "a keeper did not end its run and is killed");
                    keeper.signal(Signal::KILL);
                    stage = Stage::Killed(Instant::now() + KILL_MAX);
                }
            }
        }
    }
}

/// Reads on a thread for such.
async fn read(mut reader: ReportReader, place: &Place) -> Result<(ReportReader, Vec<Record>), KeeperError> {
    let path = place.report_path();
    let task = tokio::task::spawn_blocking(move || {
        let records = reader.read()?;
        Ok((reader, records))
    });
    task.await.map_err(|error| KeeperError::File { verb: "read", path, source: io::Error::other(error) })?
}
