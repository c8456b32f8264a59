//! Runs a hook directory: its scripts one after another, each result told as it is made (HOOKS.md D1, D5, R2, R3).

mod only;

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use muster_core::hooks::{
    Class, Env, HookPolicy, HookResult, LimitBounds, OnError, Phase, ScriptOutcome, ScriptResult, Skipped,
};
use muster_core::ops::GLOBAL_PREFIX;
use muster_proto::hookset::HookStoreError;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call_id::CallId;
use crate::chain;
use crate::extras::{Budget, Extras, GlobalRequest, RunFiles};
use crate::hookset::{HookSets, SetInUse};
use crate::output::{CallOutput, OutputError, OutputStore, Retention};
use crate::processes::ProcessId;
use crate::scan::{self, Decision, ListedDirectory, ScanError};
use crate::script::{self, ScriptError, ScriptRun};
use crate::spawn::PreparedProcess;

pub(crate) use only::NotThere;

/// A script whose output passes this is ended and failed (X4).
pub const OUTPUT_BYTES_MAX_DEFAULT: u64 = 256 << 20;
/// Longest prefix of a directory name.
const PREFIX_BYTES_MAX: usize = 100;

/// Where a node's hooks and their output are, and how much of it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunnerConfig {
    /// The directory of hook directories.
    pub hooks_dir: PathBuf,
    /// Where the cluster's own hook set is; none for a runner of hooks_dir alone.
    #[serde(default)]
    pub sets_dir: Option<PathBuf>,
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
            sets_dir: None,
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

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the caller wants run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HookRequest {
    /// Which directory.
    pub directory: DirectoryName,
    /// Every variable but `HOOK_KILL_TIMEOUT_S`, which is each script's own.
    pub env: Env,
    /// What holds in the directory.
    pub policy: HookPolicy,
    /// What runs or is there beside it.
    #[serde(default)]
    pub extras: Extras,
}

impl HookRequest {
    /// One directory, and nothing beside it.
    pub fn new(directory: DirectoryName, env: Env, policy: HookPolicy) -> Self {
        HookRequest { directory, env, policy, extras: Extras::default() }
    }
}

/// A directory as it was read.
#[derive(Debug, Serialize, Deserialize)]
struct PlannedDirectory {
    name: DirectoryName,
    decision: Decision,
    /// Set for a global one.
    global: Option<GlobalRequest>,
}

impl PlannedDirectory {
    /// A script's or entry's name in the run: one of a global directory is named with it.
    fn name_of(&self, entry: &str) -> String {
        match self.global {
            Some(_) => format!("{}/{entry}", self.name.0),
            None => entry.to_owned(),
        }
    }
}

/// A directory as it was read, once, for one run (D6).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// In the order in which they run.
    directories: Vec<PlannedDirectory>,
    /// The set whose directory of the same name is merged in.
    #[serde(default)]
    set: Option<PathBuf>,
    /// Keeps that set for as long as the run goes on.
    #[serde(skip)]
    in_use: Option<Arc<SetInUse>>,
    failure: Option<String>,
    global_post_absent: bool,
}

impl Plan {
    /// What keeps the plan's set from being removed.
    pub(crate) fn in_use(&self) -> Option<Arc<SetInUse>> {
        self.in_use.clone()
    }

    /// Takes hold of the plan's set, in a process that got the plan from another.
    ///
    /// # Errors
    /// When the set is not there any more.
    pub(crate) fn hold_set(&mut self) -> io::Result<()> {
        let Some(set) = &self.set else { return Ok(()) };
        let held = SetInUse::hold(set)?;
        let gone =
            || io::Error::new(io::ErrorKind::NotFound, format!("the hook set {} is gone", set.display()));
        self.in_use = Some(Arc::new(held.ok_or_else(gone)?));
        Ok(())
    }

    /// The result, where no script would run: nothing is to be journaled then. The plan itself otherwise.
    pub fn result_or_scripts(self) -> Result<HookResult, Plan> {
        if self.has_scripts() { Err(self) } else { Ok(self.without_scripts()) }
    }

    fn has_scripts(&self) -> bool {
        self.directories.iter().any(|directory| !directory.decision.scripts.is_empty())
    }

    /// What is known before the first script runs.
    fn without_scripts(&self) -> HookResult {
        let skipped = self.directories.iter().flat_map(|directory| {
            let named =
                |entry: &Skipped| Skipped { name: directory.name_of(&entry.name), reason: entry.reason };
            directory.decision.skipped.iter().map(named)
        });
        HookResult {
            scripts: Vec::new(),
            skipped: skipped.collect(),
            failure: self.failure.clone(),
            global_post_absent: self.global_post_absent,
        }
    }
}

/// Reads what a request wants run; a directory that can't be read is a failure, and the others run.
fn plan_directories(
    plan: &mut Plan,
    request: &HookRequest,
    scan: impl Fn(&DirectoryName) -> Result<Decision, ScanError>,
) {
    let mut add = |name: &DirectoryName, global: Option<&GlobalRequest>| match scan(name) {
        Ok(decision) => {
            plan.directories.push(PlannedDirectory { name: name.clone(), decision, global: global.cloned() });
        }
        Err(error) => drop(plan.failure.get_or_insert(chain(&error))),
    };
    let Extras { global, only_global, .. } = &request.extras;
    let is_first = global.as_ref().filter(|global| global.phase == Phase::Pre);
    if let Some(global) = is_first {
        add(&global.directory, Some(global));
    }
    if !only_global {
        add(&request.directory, None);
    }
    if let (Some(global), None) = (global, is_first) {
        add(&global.directory, Some(global));
    }
    if global.is_some() {
        let post = DirectoryName(Phase::Post.directory(GLOBAL_PREFIX));
        plan.global_post_absent = scan(&post).is_ok_and(|decision| decision == Decision::default());
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

/// Why a directory could not be read for a run or a listing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A directory.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The cluster's set.
    #[error("the cluster's hook set can't be used")]
    Set(#[from] HookStoreError),
}

fn held(sets: Option<&HookSets>) -> Result<Option<SetInUse>, HookStoreError> {
    sets.map_or(Ok(None), HookSets::hold_current)
}

/// Runs and lists the hooks of one node.
#[derive(Debug)]
pub struct HookRunner {
    hooks_dir: PathBuf,
    sets: Option<Arc<HookSets>>,
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
            sets: match config.sets_dir {
                Some(dir) => Some(Arc::new(HookSets::new(absolute("sets_dir", dir)?))),
                None => None,
            },
            output: OutputStore::new(absolute("output_dir", config.output_dir)?, config.retention),
            output_bytes_max: config.output_bytes_max,
        })
    }

    /// The directory of hook directories.
    pub fn hooks_dir(&self) -> &std::path::Path {
        &self.hooks_dir
    }

    /// The cluster's own sets, where this runner has them.
    pub(crate) fn sets(&self) -> Option<&Arc<HookSets>> {
        self.sets.as_ref()
    }

    /// What a runner of another process needs to run a plan of this one; it deletes no output, which is this one's part.
    pub(crate) fn config_for_keeper(&self) -> RunnerConfig {
        RunnerConfig {
            hooks_dir: self.hooks_dir.clone(),
            sets_dir: None,
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
    /// When `hooks_dir` or the cluster's set exists and can't be read.
    pub fn list(&self) -> Result<Vec<ListedDirectory>, PlanError> {
        let set = held(self.sets.as_deref())?;
        Ok(scan::list(&self.hooks_dir, set.as_ref().map(SetInUse::path))?)
    }

    /// Deletes output that is too old or too much. Blocks; also done by itself as runs end.
    ///
    /// # Errors
    /// When the files can't be read or deleted.
    pub fn prune(&self) -> Result<(), OutputError> {
        self.output.prune(std::time::SystemTime::now())
    }

    /// Reads the directories of a run: the node's own, and those of the set which is in use at this moment.
    pub async fn plan(&self, request: &HookRequest) -> Plan {
        let (hooks_dir, sets, request) = (self.hooks_dir.clone(), self.sets.clone(), request.clone());
        let read = tokio::task::spawn_blocking(move || {
            let set = held(sets.as_deref())?;
            let mut plan = Plan { set: set.as_ref().map(|set| set.path().to_owned()), ..Plan::default() };
            let scan = |name: &DirectoryName| {
                let cluster = set.as_ref().map(|set| set.path().join(&name.0));
                scan::scan_both(&hooks_dir.join(&name.0), cluster.as_deref())
            };
            plan_directories(&mut plan, &request, scan);
            plan.in_use = set.map(Arc::new);
            Ok::<_, PlanError>(plan)
        });
        let failure = match read.await {
            Ok(Ok(plan)) => return plan,
            Ok(Err(error)) => chain(&error),
            Err(error) => chain(&error),
        };
        Plan { failure: Some(failure), ..Plan::default() }
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
        // Held to the end of the run.
        let _in_use = plan.in_use();
        let mut result = plan.without_scripts();
        if !plan.has_scripts() {
            return result;
        }
        let begin = Instant::now();
        let output = match self.create_output(call).await {
            Ok(output) => Arc::new(output),
            Err(failure) => return HookResult { failure: Some(failure), ..result },
        };
        match make_files(&output, request).await {
            Ok((files, files_env)) => {
                let set = plan.set.as_deref();
                let mut run =
                    Going { begin, request, set, files_env, output: &output, watch, cancel, number: 0 };
                for directory in &plan.directories {
                    if !self.run_directory(directory, &mut run, &mut result).await {
                        break;
                    }
                }
                let _told_by_itself = tokio::task::spawn_blocking(move || drop(files)).await;
            }
            Err(failure) => result.failure = Some(failure),
        }
        close_output(output).await;
        result
    }

    /// Runs one directory; whether the next may run.
    async fn run_directory<W: RunWatch>(
        &self,
        directory: &PlannedDirectory,
        run: &mut Going<'_, W>,
        result: &mut HookResult,
    ) -> bool {
        let global = directory.global.as_ref();
        let policy = global.map_or(&run.request.policy, |global| &global.policy);
        let changes = global.map(|global| global.env.clone()).unwrap_or_default();
        let env = run.request.env.clone().with(changes).with(run.files_env.clone());
        let budget = Budget::of(policy, run.begin);
        for script in &directory.decision.scripts {
            let name = directory.name_of(&script.name);
            if run.cancel.is_cancelled() {
                // Else a run that was ended between two scripts would look like one that passed.
                result.failure = Some(format!("the run was ended before {name}"));
                return false;
            }
            if let Some(budget) = budget.filter(Budget::is_used_up) {
                let script = budget.not_begun(&name);
                run.watch.ended(&script);
                result.scripts.push(script);
                continue;
            }
            run.number += 1;
            let root = run.set.filter(|_| script.from_cluster).unwrap_or(&self.hooks_dir);
            let path = root.join(&directory.name.0).join(&script.name);
            let place = ScriptPlace { name: &name, path, env: &env, policy, budget };
            match self.run_one(place, run).await {
                Ok(script) => {
                    run.watch.ended(&script);
                    let is_ended = script.outcome == ScriptOutcome::Ended;
                    let is_last = ends_directory(&script.outcome, policy);
                    result.scripts.push(script);
                    if is_last {
                        return !is_ended;
                    }
                }
                Err(error) => {
                    result.failure = Some(chain(&error));
                    return false;
                }
            }
        }
        true
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
        run: &Going<'_, W>,
    ) -> Result<ScriptResult, ScriptError> {
        let (output, number, path) = (Arc::clone(run.output), run.number, place.path.clone());
        let HookPolicy { warn_ms, kill_ms, timeout_max_ms: max_ms, .. } = *place.policy;
        let bounds = LimitBounds { warn_ms, kill_ms, max_ms };
        let prepared = tokio::task::spawn_blocking(move || {
            Ok::<_, OutputError>((output.files(number)?, scan::limits_of(&path, bounds)))
        });
        let (files, limits) =
            prepared.await.map_err(|source| ScriptError::Task { name: place.name.to_owned(), source })??;
        let script = ScriptRun {
            name: place.name,
            path: place.path,
            env: place.env,
            limits,
            budget: place.budget,
            output_bytes_max: self.output_bytes_max,
            cancel: run.cancel,
            watch: run.watch,
        };
        script::run_script(script, files).await
    }
}

/// A run that goes on: what its scripts share.
struct Going<'a, W> {
    begin: Instant,
    request: &'a HookRequest,
    /// The cluster's set.
    set: Option<&'a Path>,
    /// The variables that name the run's files.
    files_env: Env,
    output: &'a Arc<CallOutput>,
    watch: &'a W,
    cancel: &'a CancellationToken,
    /// Of scripts that were begun.
    number: usize,
}

/// A script's place in its run.
struct ScriptPlace<'a> {
    name: &'a str,
    path: PathBuf,
    env: &'a Env,
    policy: &'a HookPolicy,
    budget: Option<Budget>,
}

/// Makes the files of a request.
async fn make_files(output: &Arc<CallOutput>, request: &HookRequest) -> Result<(RunFiles, Env), String> {
    let (output, files) = (Arc::clone(output), request.extras.files.clone());
    match tokio::task::spawn_blocking(move || RunFiles::make(output.path(), &files)).await {
        Ok(Ok(made)) => Ok(made),
        Ok(Err(error)) => Err(format!("could not make a file for the scripts: {error}")),
        Err(error) => Err(chain(&error)),
    }
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
