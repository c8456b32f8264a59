//! Runs a hook directory: its scripts one after another, each result told as it is made (HOOKS.md D1, D5, R2, R3).

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use muster_core::hooks::{Class, Env, HookPolicy, HookResult, OnError, Phase, ScriptOutcome, ScriptResult};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::call_id::CallId;
use crate::chain;
use crate::output::{CallOutput, OutputError, OutputStore, Retention};
use crate::processes::ProcessId;
use crate::scan::{self, Decision, ListedDirectory, ScanError};
use crate::script::{self, ScriptError, ScriptRun};
use crate::spawn::PreparedProcess;

/// A script whose output passes this is ended and failed (X4).
pub const OUTPUT_BYTES_MAX_DEFAULT: u64 = 256 << 20;
/// Longest prefix of a directory name.
const PREFIX_BYTES_MAX: usize = 100;

/// Where a node's hooks and their output are, and how much of it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerConfig {
    /// The directory of hook directories.
    pub hooks_dir: PathBuf,
    /// Where output is kept; created when first needed.
    pub output_dir: PathBuf,
    /// For how long.
    pub retention: Retention,
    /// Bound of one script's output, both streams together.
    pub output_bytes_max: u64,
}

impl RunnerConfig {
    /// The defaults for these directories.
    pub fn new(hooks_dir: PathBuf, output_dir: PathBuf) -> Self {
        RunnerConfig {
            hooks_dir,
            output_dir,
            retention: Retention::default(),
            output_bytes_max: OUTPUT_BYTES_MAX_DEFAULT,
        }
    }
}

/// The name of a hook directory, made of an operation's prefix and a phase: never a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirectoryName(String);

/// A text is no directory prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a hook directory prefix: lower-case letters, digits and hyphens, at most 100 characters")]
pub struct PrefixError;

impl DirectoryName {
    /// The directory of an operation's prefix in a phase: `node-add` gives `node-add-pre.d` (D1).
    ///
    /// # Errors
    /// When the prefix has other characters, is empty or too long.
    pub fn new(prefix: &str, phase: Phase) -> Result<Self, PrefixError> {
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.bytes().all(good) {
            return Err(PrefixError);
        }
        Ok(DirectoryName(phase.directory(prefix)))
    }
}

/// What the caller wants run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HookRequest {
    /// Which directory.
    pub directory: DirectoryName,
    /// Every variable but `HOOK_KILL_TIMEOUT_S`, which is each script's own.
    pub env: Env,
    /// The cluster's parameters.
    pub policy: HookPolicy,
}

/// A directory as it was read, once, for one run (D6).
#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    path: PathBuf,
    decision: Decision,
    failure: Option<String>,
}

impl Plan {
    /// The result, where no script would run: nothing is to be journaled then. The plan itself otherwise.
    pub fn result_or_scripts(self) -> Result<HookResult, Plan> {
        if self.decision.scripts.is_empty() {
            Ok(HookResult { scripts: Vec::new(), skipped: self.decision.skipped, failure: self.failure })
        } else {
            Err(self)
        }
    }
}

/// Hears of a run while it goes on.
pub trait RunWatch: Sync {
    /// A script's process was started; told before the script is waited for. To be recorded, so that after a crash
    /// of this process what is left of the script can be ended.
    fn started(&self, process: &ProcessId) -> impl Future<Output = ()> + Send;
    /// A script ended.
    fn ended(&self, result: &ScriptResult);
}

/// Why there is no runner.
#[derive(Debug, thiserror::Error)]
#[error("{what} is not usable as a path")]
pub struct RunnerError {
    what: &'static str,
    #[source]
    source: io::Error,
}

impl RunnerError {
    pub(crate) fn new(what: &'static str, source: io::Error) -> Self {
        RunnerError { what, source }
    }
}

/// Runs and lists the hooks of one node.
#[derive(Debug)]
pub struct HookRunner {
    hooks_dir: PathBuf,
    output: Arc<OutputStore>,
    output_bytes_max: u64,
}

impl HookRunner {
    /// A runner; `_process` shows that scripts will get the right umask.
    ///
    /// # Errors
    /// When a path is empty.
    pub fn new(_process: PreparedProcess, config: RunnerConfig) -> Result<Self, RunnerError> {
        let absolute = |what, path| script::absolute(path).map_err(|source| RunnerError::new(what, source));
        Ok(HookRunner {
            hooks_dir: absolute("hooks_dir", config.hooks_dir)?,
            output: OutputStore::new(absolute("output_dir", config.output_dir)?, config.retention),
            output_bytes_max: config.output_bytes_max,
        })
    }

    /// The directory of hook directories.
    pub fn hooks_dir(&self) -> &std::path::Path {
        &self.hooks_dir
    }

    /// What a runner of another process needs to run a plan of this one; it deletes no output, which is this one's part.
    pub(crate) fn config_for_keeper(&self) -> RunnerConfig {
        RunnerConfig {
            hooks_dir: self.hooks_dir.clone(),
            output_dir: self.output.root().to_owned(),
            retention: Retention::ALL,
            output_bytes_max: self.output_bytes_max,
        }
    }

    /// Spares the output of a call that another process runs, until the value is closed or dropped.
    pub(crate) fn spare_output(&self, call: &CallId) -> CallOutput {
        self.output.spare(call)
    }

    /// Where a call's output goes.
    pub fn output_dir(&self, call: &CallId) -> PathBuf {
        self.output.directory_of(call)
    }

    /// Every hook directory with what would run, and what would not and why. Blocks.
    ///
    /// # Errors
    /// When `hooks_dir` exists and can't be read.
    pub fn list(&self) -> Result<Vec<ListedDirectory>, ScanError> {
        scan::list(&self.hooks_dir)
    }

    /// Deletes output that is too old or too much. Blocks; also done by itself as runs end.
    ///
    /// # Errors
    /// When the files can't be read or deleted.
    pub fn prune(&self) -> Result<(), OutputError> {
        self.output.prune(std::time::SystemTime::now())
    }

    /// Reads a directory for a run.
    pub async fn plan(&self, directory: &DirectoryName) -> Plan {
        let path = self.hooks_dir.join(&directory.0);
        let scanned = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || scan::scan(&path)).await
        };
        let (decision, failure) = match scanned {
            Ok(Ok(decision)) => (decision, None),
            Ok(Err(error)) => (Decision::default(), Some(chain(&error))),
            Err(error) => (Decision::default(), Some(chain(&error))),
        };
        Plan { path, decision, failure }
    }

    /// Runs a plan's scripts in order. To be awaited by a task that no connection owns: if this future is dropped,
    /// the running script goes on unwatched.
    pub async fn run<W: RunWatch>(
        &self,
        plan: Plan,
        call: &CallId,
        request: &HookRequest,
        watch: &W,
        cancel: &CancellationToken,
    ) -> HookResult {
        let (path, scripts) = (plan.path, plan.decision.scripts);
        let mut result =
            HookResult { scripts: Vec::new(), skipped: plan.decision.skipped, failure: plan.failure };
        if scripts.is_empty() {
            return result;
        }
        let output = match self.create_output(call).await {
            Ok(output) => Arc::new(output),
            Err(failure) => return HookResult { failure: Some(failure), ..result },
        };
        for (index, name) in scripts.iter().map(|script| script.name.as_str()).enumerate() {
            if cancel.is_cancelled() {
                // Else a run that was ended between two scripts would look like one that passed.
                result.failure = Some(format!("the run was ended before {name}"));
                break;
            }
            let place = ScriptPlace { name, path: path.join(name), number: index + 1, output: &output };
            match self.run_one(place, request, watch, cancel).await {
                Ok(script) => {
                    watch.ended(&script);
                    let is_last = ends_directory(&script.outcome, &request.policy);
                    result.scripts.push(script);
                    if is_last {
                        break;
                    }
                }
                Err(error) => {
                    result.failure = Some(chain(&error));
                    break;
                }
            }
        }
        close_output(output).await;
        result
    }

    async fn create_output(&self, call: &CallId) -> Result<CallOutput, String> {
        let (store, call) = (Arc::clone(&self.output), call.clone());
        match tokio::task::spawn_blocking(move || store.create(&call)).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(error)) => Err(chain(&error)),
            Err(error) => Err(chain(&error)),
        }
    }

    async fn run_one<W: RunWatch>(
        &self,
        place: ScriptPlace<'_>,
        request: &HookRequest,
        watch: &W,
        cancel: &CancellationToken,
    ) -> Result<ScriptResult, ScriptError> {
        let (output, number, path) = (Arc::clone(place.output), place.number, place.path.clone());
        let max_ms = request.policy.timeout_max_ms;
        let prepared = tokio::task::spawn_blocking(move || {
            Ok::<_, OutputError>((output.files(number)?, scan::limits_of(&path, max_ms)))
        });
        let (files, limits) =
            prepared.await.map_err(|source| ScriptError::Task { name: place.name.to_owned(), source })??;
        let run = ScriptRun {
            name: place.name,
            path: place.path,
            env: &request.env,
            limits,
            output_bytes_max: self.output_bytes_max,
            cancel,
            watch,
        };
        script::run_script(run, files).await
    }
}

/// A script's place in its run.
struct ScriptPlace<'a> {
    name: &'a str,
    path: PathBuf,
    number: usize,
    output: &'a Arc<CallOutput>,
}

/// Whether nothing of the directory runs after this (R2, R9).
fn ends_directory(outcome: &ScriptOutcome, policy: &HookPolicy) -> bool {
    let stops = match policy.on_error() {
        OnError::Stop => policy.class(outcome) == Class::Error,
        OnError::Continue => false,
    };
    stops || *outcome == ScriptOutcome::Ended
}

async fn close_output(output: Arc<CallOutput>) {
    if let Some(output) = Arc::into_inner(output)
        && let Err(error) = tokio::task::spawn_blocking(move || output.close()).await
    {
        tracing::warn!(%error, "old hook output was not looked over");
    }
}
