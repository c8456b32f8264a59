//! Runs one script to its end, whatever end that is (HOOKS.md X1 to X9).

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use muster_core::hooks::{Env, SCRIPT_PATH, ScriptLimits, ScriptOutcome, ScriptResult};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::extras::Budget;
use crate::output::{OutputError, OutputFile};
use crate::processes::{self, ProcessId};
use crate::run::RunWatch;
use crate::spawn::{self, Child, Exit, Program};
use crate::unexecutable;

/// How often the length of a script's output is looked at.
const OUTPUT_POLL: Duration = Duration::from_millis(200);
/// A script that is being written is waited for this often and long: one put there a moment ago counts (D6).
pub(crate) const BUSY_RETRIES_MAX: u32 = 10;
pub(crate) const BUSY_RETRY: Duration = Duration::from_millis(100);
/// Most names of left-over processes in a note.
const LEFT_BEHIND_SHOWN_MAX: usize = 5;

/// Why a node could not run a script that may have been fine (R3: a failure of the node).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ScriptError {
    /// Its output has nowhere to go.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The system has no room for a process.
    #[error("could not start a process for {name}")]
    Spawn { name: String, source: io::Error },
    /// The process was started and could not be watched.
    #[error("could not wait for the end of {name}")]
    Wait { name: String, source: io::Error },
    /// A value can't stand in an environment.
    #[error("the environment can't be handed to scripts")]
    Environment(#[from] muster_core::hooks::EnvError),
    /// A thread died.
    #[error("a task of {name} was given up")]
    Task { name: String, source: tokio::task::JoinError },
}

/// One script and what its run needs.
pub(crate) struct ScriptRun<'a, W> {
    pub(crate) name: &'a str,
    /// Absolute path of the directory entry.
    pub(crate) path: PathBuf,
    pub(crate) env: &'a Env,
    pub(crate) limits: ScriptLimits,
    pub(crate) budget: Option<Budget>,
    pub(crate) output_bytes_max: u64,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) watch: &'a W,
}

/// What ended a script.
enum End {
    Exited,
    Limit,
    Budget(Budget),
    Canceled,
    OutputTooLarge,
}

/// A script's two output files.
struct Outputs {
    stdout: OutputFile,
    stderr: OutputFile,
}

impl Outputs {
    fn bytes(&self) -> Result<u64, OutputError> {
        Ok(self.stdout.bytes()?.saturating_add(self.stderr.bytes()?))
    }
}

/// Runs a script; `files` are empty and its own.
///
/// # Errors
/// When the node is the trouble and not the script. Nothing of the script runs on then.
pub(crate) async fn run_script<W: RunWatch>(
    run: ScriptRun<'_, W>,
    files: (OutputFile, OutputFile),
) -> Result<ScriptResult, ScriptError> {
    let outputs = Outputs { stdout: files.0, stderr: files.1 };
    let mut notes = run.limits.notes.clone();
    let begin = Instant::now();
    let (outputs, started) = start(&run, outputs).await?;
    let outcome = match started {
        Ok(child) => supervise(&run, child, &outputs, &mut notes).await?,
        Err(error) => ScriptOutcome::NotExecutable { reason: unexecutable::reason(&run.path, &error) },
    };
    let duration = begin.elapsed();
    if duration > Duration::from_millis(run.limits.warn_ms) {
        let limit = Duration::from_millis(run.limits.warn_ms);
        notes.push(format!(
            "took {:.1} s, longer than its warning limit of {limit:?}",
            duration.as_secs_f64()
        ));
    }
    let duration_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let name = run.name.to_owned();
    blocking(run.name, move || {
        let (stdout, stderr) = (outputs.stdout.captured()?, outputs.stderr.captured()?);
        Ok(ScriptResult { name, outcome, duration_ms, stdout, stderr, notes })
    })
    .await?
}

/// Runs blocking work on a thread for such.
async fn blocking<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ScriptError> {
    let task = tokio::task::spawn_blocking(work).await;
    task.map_err(|source| ScriptError::Task { name: name.to_owned(), source })
}

/// Starts the script; the inner error is the script's own (X9).
async fn start<W: RunWatch>(
    run: &ScriptRun<'_, W>,
    mut outputs: Outputs,
) -> Result<(Outputs, io::Result<Child>), ScriptError> {
    run.env.validate()?;
    let strings = environment(run.env, run.limits.kill_ms);
    let path = c_string(run.path.clone().into_os_string().into_vec());
    for attempt in 0.. {
        let (strings, path) = (strings.clone(), path.clone());
        let started;
        (outputs, started) = blocking(run.name, move || {
            let (stdout, stderr) = (outputs.stdout.writer(), outputs.stderr.writer());
            let program =
                Program { path: &path, arguments: &[], env: &strings, directory: c"/", stdout, stderr };
            let child = spawn::spawn(&program);
            (outputs, child)
        })
        .await?;
        match started {
            Err(error) if is_busy(&error) && attempt < BUSY_RETRIES_MAX => {
                tokio::time::sleep(BUSY_RETRY).await
            }
            Err(source) if is_exhaustion(&source) => {
                return Err(ScriptError::Spawn { name: run.name.to_owned(), source });
            }
            Ok(_) | Err(_) => return Ok((outputs, started)),
        }
    }
    unreachable!("the last attempt returns")
}

/// Somebody has the file open for writing.
pub(crate) fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ETXTBSY)
}

/// The node has no room for a process, whatever the script.
fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE))
}

/// The whole environment of a script (X5): the caller's variables and the script's own kill limit, rounded up.
fn environment(env: &Env, kill_ms: u64) -> Vec<CString> {
    let env = env.clone().for_script(kill_ms);
    let variables = env.iter().map(|(name, value)| c_string(format!("GANETI_{name}={value}").into_bytes()));
    std::iter::once(c_string(format!("PATH={SCRIPT_PATH}").into_bytes())).chain(variables).collect()
}

fn c_string(bytes: Vec<u8>) -> CString {
    CString::new(bytes).expect("paths hold no NUL and the environment was validated")
}

/// Waits for the script's end, or brings it about.
async fn supervise<W: RunWatch>(
    run: &ScriptRun<'_, W>,
    mut child: Child,
    outputs: &Outputs,
    notes: &mut Vec<String>,
) -> Result<ScriptOutcome, ScriptError> {
    let leader = child.pid();
    if let Some(process) = ProcessId::of(leader.as_raw_pid()) {
        run.watch.started(&process).await;
    }
    let end = match wait(run, &child, outputs).await {
        Ok(End::Exited) if outputs.bytes()? > run.output_bytes_max => End::OutputTooLarge,
        Ok(end) => end,
        Err(error) => {
            // What can't be watched must not run on.
            let _told = blocking(run.name, move || processes::end_session(leader)).await?;
            return Err(error);
        }
    };
    let outcome = match end {
        End::Exited => None,
        End::Limit => Some(ScriptOutcome::TimedOut { limit_ms: run.limits.kill_ms }),
        End::Budget(budget) => Some(budget.over()),
        End::Canceled => Some(ScriptOutcome::Ended),
        End::OutputTooLarge => Some(ScriptOutcome::OutputTooLarge { limit_bytes: run.output_bytes_max }),
    };
    if outcome.is_some()
        && let Err(error) = blocking(run.name, move || processes::end_session(leader)).await?
    {
        notes.push(error.to_string());
    }
    let exit = child.reap().map_err(|source| ScriptError::Wait { name: run.name.to_owned(), source })?;
    if let Some(outcome) = outcome {
        return Ok(outcome);
    }
    notes.extend(blocking(run.name, move || left_behind_note(leader)).await?);
    Ok(match exit {
        Some(Exit::Code(0)) => ScriptOutcome::Passed,
        Some(Exit::Code(code)) => ScriptOutcome::Failed { code },
        Some(Exit::Signal(signal)) => ScriptOutcome::Killed { signal },
        None => unreachable!("it was seen to have ended"),
    })
}

/// Waits for what ends the script first; its own exit wins over a limit passed at the same moment.
async fn wait<W>(run: &ScriptRun<'_, W>, child: &Child, outputs: &Outputs) -> Result<End, ScriptError> {
    let exited = child.exited();
    let limit = tokio::time::sleep(Duration::from_millis(run.limits.kill_ms));
    let budget = async {
        match run.budget {
            Some(budget) => {
                tokio::time::sleep_until(budget.ends_at()).await;
                budget
            }
            None => std::future::pending().await,
        }
    };
    tokio::pin!(exited, limit, budget);
    let mut poll = tokio::time::interval(OUTPUT_POLL);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            exit = &mut exited => {
                exit.map_err(|source| ScriptError::Wait { name: run.name.to_owned(), source })?;
                return Ok(End::Exited);
            }
            () = run.cancel.cancelled() => return Ok(End::Canceled),
            () = &mut limit => return Ok(End::Limit),
            budget = &mut budget => return Ok(End::Budget(budget)),
            _ = poll.tick() => if outputs.bytes()? > run.output_bytes_max {
                return Ok(End::OutputTooLarge);
            }
        }
    }
}

/// A remark on processes that a script left behind (X7).
fn left_behind_note(leader: rustix::process::Pid) -> Option<String> {
    let left = processes::left_behind(leader);
    let shown: Vec<String> = left
        .iter()
        .take(LEFT_BEHIND_SHOWN_MAX)
        .map(|process| format!("{} (process {})", process.name, process.pid))
        .collect();
    let more = left.len().saturating_sub(LEFT_BEHIND_SHOWN_MAX);
    match (left.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(format!("left running: {}", shown.join(", "))),
        (false, more) => Some(format!("left running: {} and {more} more", shown.join(", "))),
    }
}

/// An absolute form of a path, so that the script's directory `/` does not matter.
pub(crate) fn absolute(path: PathBuf) -> io::Result<PathBuf> {
    std::path::absolute(OsString::from(path))
}
