//! The keeper's process: runs one plan, reports, ends.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use muster_core::hooks::{HookResult, ScriptResult};
use rustix::process::{Pid, getppid};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::place::{KeeperError, KeeperRequest, Place, VERSION};
use super::report::{Record, ReportWriter};
use crate::agent::{LogFormat, begin_log};
use crate::chain;
use crate::processes::ProcessId;
use crate::run::{HookRunner, RunWatch};
use crate::spawn::PreparedProcess;

/// The argument that makes a daemon's program a keeper.
pub(super) const ARGUMENT: &str = "hook-keeper";
/// How the process is called where processes are listed; else it would have the name of the link it was started by.
const PROCESS_NAME: &str = "hook-keeper";

/// Runs a keeper where the arguments (without the program's own name) ask for one.
pub fn keeper_main(
    process: PreparedProcess,
    arguments: impl IntoIterator<Item = OsString>,
) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let (Some(dir), None) = (arguments.next(), arguments.next()) else {
        return None;
    };
    Some(run_keeper(process, Path::new(&dir)))
}

/// Runs the keeper of a directory to its end.
pub(super) fn run_keeper(process: PreparedProcess, dir: &Path) -> ExitCode {
    let _only_a_name = std::fs::write("/proc/self/comm", PROCESS_NAME);
    // Standard error is a file that the daemon copies to its log.
    let _without_log = begin_log(None, LogFormat::default());
    match keep(process, &Place::new(dir.to_owned())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_reads = writeln!(io::stderr(), "{}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn keep(process: PreparedProcess, place: &Place) -> Result<(), Failure> {
    let daemon = getppid();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _entered = runtime.enter();
    // First: from now on a signal ends the process in an orderly way.
    let orders = Orders::listen()?;
    let Some(lock) = place.lock()? else {
        return Err("another keeper has this run".into());
    };
    let Some(mut request) = place.take_request(&lock)? else {
        return Err("the run was given up before it began".into());
    };
    request.plan.hold_set()?;
    let ended = runtime.block_on(run(process, request, ReportWriter::open(place)?, orders))?;
    // The daemon that started this process has been woken and makes its own copy durable, if it lives; both at once would
    // wait for each other's disk.
    if getppid() != daemon || daemon == Some(Pid::INIT) {
        ended.sync()?;
        place.sync()?;
    }
    drop(lock);
    Ok(())
}

async fn run(
    process: PreparedProcess,
    request: KeeperRequest,
    mut report: ReportWriter,
    orders: Orders,
) -> Result<ReportWriter, Failure> {
    let runner = HookRunner::new(process, request.config)?;
    report.write(&Record::Begun { version: VERSION })?;
    let Orders { cancel, broken_off } = orders;
    let watch = Reporter::new(report, cancel.clone());
    let result = runner.run(request.plan, &request.call, &request.request, &watch, &cancel).await;
    if broken_off.is_cancelled() {
        return Err("the run was broken off by a signal to its keeper".into());
    }
    let (mut writer, failure) = watch.into_parts();
    let HookResult { scripts: _, skipped, failure: of_run, global_post_absent } = result;
    writer.write(&Record::Done { skipped, failure: failure.or(of_run), global_post_absent })?;
    Ok(writer)
}

/// What signals tell a keeper.
struct Orders {
    /// To end the run.
    cancel: CancellationToken,
    /// Not to answer either.
    broken_off: CancellationToken,
}

impl Orders {
    fn listen() -> io::Result<Self> {
        let orders = Orders { cancel: CancellationToken::new(), broken_off: CancellationToken::new() };
        let (cancel, broken_off) = (orders.cancel.clone(), orders.broken_off.clone());
        let mut asked = signal(SignalKind::user_defined1())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            tokio::select! {
                _ = asked.recv() => {}
                _ = terminated.recv() => broken_off.cancel(),
                _ = interrupted.recv() => broken_off.cancel(),
                _ = hung_up.recv() => broken_off.cancel(),
            }
            cancel.cancel();
        });
        Ok(orders)
    }
}

/// Reports a run as it goes on, and ends it where that is not possible: nobody could learn of its result.
pub(super) struct Reporter {
    report: Mutex<Reporting>,
    cancel: CancellationToken,
}

struct Reporting {
    writer: ReportWriter,
    failure: Option<String>,
}

impl Reporter {
    pub(super) fn new(writer: ReportWriter, cancel: CancellationToken) -> Self {
        Reporter { report: Mutex::new(Reporting { writer, failure: None }), cancel }
    }

    /// The report, and why it is not whole if it is not.
    pub(super) fn into_parts(self) -> (ReportWriter, Option<String>) {
        let Reporting { writer, failure } = self.report.into_inner().unwrap_or_else(PoisonError::into_inner);
        (writer, failure)
    }

    fn tell(&self, record: &Record) {
        let mut report = self.lock();
        if let Err(error) = report.writer.write(record) {
            self.give_up(&mut report, &error);
        }
    }

    fn give_up(&self, report: &mut Reporting, error: &KeeperError) {
        let why = format!("the run was ended because its results could not be kept: {}", chain(error));
        tracing::error!("{why}");
        report.failure.get_or_insert(why);
        self.cancel.cancel();
    }

    fn lock(&self) -> MutexGuard<'_, Reporting> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunWatch for Reporter {
    async fn started(&self, process: &ProcessId) {
        self.tell(&Record::Started(process.clone()));
    }

    fn ended(&self, result: &ScriptResult) {
        self.tell(&Record::Ended(result.clone()));
    }
}
