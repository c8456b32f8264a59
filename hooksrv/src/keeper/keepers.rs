//! The daemon's side: starts keepers, finds those of an earlier daemon, ends what they left.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use muster_core::hooks::{HookResult, ScriptResult};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::follow::{self, Keeper, Told};
use super::place::{Holder, KeeperError, KeeperRequest, Place, PlaceLock, VERSION, failed};
use super::program::ARGUMENT;
use crate::call_id::CallId;
use crate::calls::{CallContext, CallError, CallRegistry, Work, blocking};
use crate::chain;
use crate::journal::LostCall;
use crate::output::CallOutput;
use crate::processes::{self, ProcessId};
use crate::run::{HookRequest, HookRunner, Plan, RunnerError};
use crate::script;
use crate::spawn::{self, Program};

/// The program of this process, also where an upgrade has replaced its file.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// A keeper that reported the end of its run has nothing to do any more but to make that durable.
const EXIT_MAX: Duration = Duration::from_secs(30);
/// Most of what a keeper said that is copied to the log.
const LOG_BYTES_MAX: usize = 16 * 1024;

/// How a keeper is started: a program, and arguments before the directory.
#[derive(Debug, Clone)]
pub struct KeeperProgram {
    /// The program.
    pub path: PathBuf,
    /// What makes it a keeper.
    pub arguments: Vec<OsString>,
}

impl KeeperProgram {
    /// A program that calls [`super::keeper_main`].
    pub fn new(path: PathBuf) -> Self {
        KeeperProgram { path, arguments: vec![ARGUMENT.into()] }
    }

    /// The program of this process.
    pub fn own() -> Self {
        Self::new(OWN_PROGRAM.into())
    }
}

/// Where keepers are and what they are.
#[derive(Debug, Clone)]
pub struct KeepersConfig {
    /// A directory of theirs alone, made when first needed.
    pub dir: PathBuf,
    /// Their program.
    pub program: KeeperProgram,
}

/// The keepers of a node's hook runs.
#[derive(Debug)]
pub struct HookKeepers {
    runner: Arc<HookRunner>,
    config: KeepersConfig,
}

impl HookKeepers {
    /// Keepers that run what the runner plans.
    ///
    /// # Errors
    /// When the path is empty.
    pub fn new(runner: Arc<HookRunner>, config: KeepersConfig) -> Result<Arc<Self>, RunnerError> {
        let dir = script::absolute(config.dir)
            .map_err(|source| RunnerError::new("the directory of keepers", source))?;
        Ok(Arc::new(HookKeepers { runner, config: KeepersConfig { dir, ..config } }))
    }

    /// What plans and lists.
    pub fn runner(&self) -> &Arc<HookRunner> {
        &self.runner
    }

    /// Opens the registry of hook calls. Runs of an earlier daemon that go on are followed; what is left of others is
    /// ended before this returns.
    ///
    /// # Errors
    /// When the journal can't be read, or it can't be told whether a run goes on.
    pub async fn open_calls<E, A>(self: &Arc<Self>, journal: &Path) -> Result<CallRegistry<E, A>, CallError>
    where
        E: From<ScriptResult> + Clone + Send + Sync + 'static,
        A: From<HookResult> + Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let calls = CallRegistry::open_with(journal, async |lost| self.resume(lost).await).await?;
        self.sweep(&calls.running()).await?;
        Ok(calls)
    }

    /// The work of a new call: starts its keeper and follows it.
    pub(crate) fn work<E, A>(self: &Arc<Self>, plan: Plan, request: HookRequest) -> Work<E, A>
    where
        E: From<ScriptResult> + Send + Sync + 'static,
        A: From<HookResult> + Send + 'static,
    {
        let keepers = Arc::clone(self);
        Box::new(move |context| {
            Box::pin(async move {
                let run = keepers.run_of(context.id());
                let (place, output) = (run.place.clone(), keepers.runner.spare_output(context.id()));
                let config = keepers.runner.config_for_keeper();
                // The keeper holds the plan's set as well, but only once it has begun.
                let _in_use = plan.in_use();
                let request =
                    KeeperRequest { version: VERSION, call: context.id().clone(), plan, request, config };
                let program = keepers.config.program.clone();
                let started = tokio::task::spawn_blocking(move || start(&place, &program, &request)).await;
                let started = started
                    .unwrap_or_else(|error| Err(failed("make", run.place.dir())(io::Error::other(error))));
                match started {
                    Ok(keeper) => run.follow(keeper, &context, output).await.map(A::from),
                    // Nothing ran: that is an answer (R3).
                    Err(error) => Some(A::from(failure(chain(&error)))),
                }
            })
        })
    }

    /// A lost call's work, if its keeper has run it to the end or still does; else what is left of it is ended.
    async fn resume<E, A>(self: &Arc<Self>, lost: LostCall) -> Result<Option<Work<E, A>>, CallError>
    where
        E: From<ScriptResult> + Send + Sync + 'static,
        A: From<HookResult> + Send + 'static,
    {
        let mut run = self.run_of(&lost.id);
        run.recorded = lost.process;
        if let Some(dir) = lost.output_dir {
            run.output_dir = dir;
        }
        let keeper = match look(&run.place).await? {
            Holder::Keeper(keeper) => Keeper::Found(keeper),
            Holder::Nothing => {
                blocking(move || run.end_scripts(None)).await?;
                return Ok(None);
            }
            Holder::Free(lock) => return blocking(move || run.result_or_remains(&lock)).await?,
        };
        if lost.job.is_none() {
            run.end(keeper).await?;
            return Ok(None);
        }
        let output = self.runner.spare_output(&lost.id);
        Ok(Some(Box::new(move |context| {
            Box::pin(async move { run.follow(keeper, &context, output).await.map(A::from) })
        })))
    }

    /// Ends and removes what no call stands for: runs that were answered a moment before the earlier daemon died.
    async fn sweep(&self, running: &BTreeSet<CallId>) -> Result<(), CallError> {
        let dir = self.config.dir.clone();
        let found = blocking(move || match std::fs::read_dir(&dir) {
            Ok(entries) => entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        });
        let found =
            found.await?.map_err(|error| CallError::Keeper(failed("read", &self.config.dir)(error)))?;
        let ids = found.iter().filter_map(|name| CallId::from_file_name(name.to_str()?).ok());
        let stale: Vec<CallId> = ids.filter(|id| !running.contains(id)).collect();
        let ends = stale.iter().map(async |id| {
            let run = self.run_of(id);
            match look(&run.place).await? {
                Holder::Keeper(keeper) => run.end(Keeper::Found(keeper)).await,
                Holder::Free(lock) => blocking(move || run.give_up(&lock, None)).await,
                Holder::Nothing => blocking(move || run.remove()).await,
            }
        });
        futures::future::join_all(ends).await.into_iter().collect()
    }

    fn run_of(&self, id: &CallId) -> KeptRun {
        KeptRun {
            id: id.clone(),
            place: Place::new(self.config.dir.join(id.file_name())),
            output_dir: self.runner.output_dir(id),
            recorded: None,
        }
    }
}

/// A run with a keeper.
#[derive(Debug, Clone)]
struct KeptRun {
    id: CallId,
    place: Place,
    output_dir: PathBuf,
    /// What a daemon recorded that had no keepers.
    recorded: Option<ProcessId>,
}

impl KeptRun {
    /// Follows the run to its end; none if that is unknown, and nothing of the run is left then.
    async fn follow<E: From<ScriptResult> + Send + Sync>(
        self,
        keeper: Keeper,
        context: &CallContext<E>,
        output: CallOutput,
    ) -> Option<HookResult> {
        let tell = |script: &ScriptResult| context.keep(script.clone().into());
        let mut told = Told::default();
        if let Err(error) = follow::follow(&self.place, &keeper, context.cancel(), &mut told, tell).await {
            tracing::error!(call = %self.id, error = chain(&error), "a run can't be followed and is ended");
            // That a script was started can't be ruled out.
            told.begun = true;
        }
        let ended = context.ended().clone();
        let result = match told.into_result() {
            Ok(result) => Some(result),
            Err(told) => self.end_lost(&keeper, *told).await,
        };
        // Not waited for: the answer is on its way meanwhile.
        tokio::spawn(async move {
            ended.cancelled().await;
            self.bury(keeper, output).await;
        });
        result
    }

    /// Ends what a keeper left that reported no end.
    async fn end_lost(&self, keeper: &Keeper, told: Told) -> Option<HookResult> {
        if !keeper.kill().await {
            tracing::error!(call = %self.id, "a keeper outlives KILL");
        }
        if !told.begun {
            let said = self.place.log(LOG_BYTES_MAX);
            return Some(failure(format!("the keeper of the run ended before the first script: {said}")));
        }
        let run = self.clone();
        if let Err(error) = blocking(move || run.end_scripts(told.process)).await {
            tracing::error!(call = %self.id, error = chain(&error), "a lost run was not ended");
        }
        None
    }

    /// Waits for the keeper of an answered call and removes its directory.
    async fn bury(self, keeper: Keeper, output: CallOutput) {
        if !matches!(tokio::time::timeout(EXIT_MAX, keeper.exited()).await, Ok(Ok(()))) {
            keeper.kill().await;
        }
        drop(keeper);
        let cleaned = blocking(move || {
            let said = self.place.log(LOG_BYTES_MAX);
            if !said.is_empty() {
                tracing::info!(call = %self.id, said, "the keeper of a run logged");
            }
            self.remove();
            output.close();
        });
        if let Err(error) = cleaned.await {
            tracing::warn!(error = chain(&error), "a keeper's directory stays until the next start");
        }
    }

    /// Ends a run that nobody waits for.
    async fn end(self, keeper: Keeper) -> Result<(), CallError> {
        if !keeper.end().await {
            tracing::error!(call = %self.id, "a keeper outlives KILL");
        }
        blocking(move || {
            let told = Told::read(&self.place).unwrap_or_default();
            self.end_scripts(told.process);
            self.remove();
        })
        .await
    }

    /// The work of a run that its keeper has finished; else ends what is left of it. Blocks.
    fn result_or_remains<E, A>(self, lock: &PlaceLock) -> Result<Option<Work<E, A>>, CallError>
    where
        E: From<ScriptResult> + Send + Sync + 'static,
        A: From<HookResult> + Send + 'static,
    {
        let told = match Told::read(&self.place) {
            Ok(told) => told,
            Err(error) => {
                tracing::error!(call = %self.id, error = chain(&error), "the report of a run can't be read");
                Told::default()
            }
        };
        match told.into_result() {
            Ok(result) => Ok(Some(Box::new(move |context| {
                Box::pin(async move {
                    for script in &result.scripts {
                        context.keep(script.clone().into());
                    }
                    let ended = context.ended().clone();
                    tokio::spawn(async move {
                        ended.cancelled().await;
                        let _stays_until_the_next_start = blocking(move || self.remove()).await;
                    });
                    Some(A::from(result))
                })
            }))),
            Err(told) => {
                self.give_up(lock, told.process);
                Ok(None)
            }
        }
    }

    /// Sees to it that nothing of the run is there or will be. Blocks.
    fn give_up(&self, lock: &PlaceLock, process: Option<ProcessId>) {
        // First: a keeper that was started and comes to the lock later finds nothing to run.
        if let Err(error) = self.place.withdraw_request(lock) {
            tracing::error!(call = %self.id, error = chain(&error), "a lost run's request stays");
        }
        self.end_scripts(process);
        self.remove();
    }

    /// Ends the scripts that a dead keeper left. Blocks.
    fn end_scripts(&self, process: Option<ProcessId>) {
        if !processes::await_without_argument(self.place.dir().as_os_str()) {
            tracing::error!(call = %self.id, "a process of a lost run is not yet a script nor gone");
        }
        let process = process.as_ref().or(self.recorded.as_ref());
        if let Err(error) = processes::end_remains(process, Some(&self.output_dir)) {
            tracing::error!(call = %self.id, %error, "processes of a lost call could not be ended");
        }
    }

    fn remove(&self) {
        if let Err(error) = self.place.remove() {
            tracing::warn!(call = %self.id, error = chain(&error), "a keeper's directory stays");
        }
    }
}

async fn look(place: &Place) -> Result<Holder, CallError> {
    let place = place.clone();
    blocking(move || place.look()).await?.map_err(CallError::Keeper)
}

/// Makes a run's directory and starts its keeper. Blocks.
///
/// # Errors
/// Nothing runs then.
fn start(place: &Place, program: &KeeperProgram, request: &KeeperRequest) -> Result<Keeper, KeeperError> {
    let started = place.make(request).and_then(|()| spawn_keeper(place, program));
    if started.is_err() {
        let _stays_until_the_next_start = place.remove();
    }
    started
}

fn spawn_keeper(place: &Place, program: &KeeperProgram) -> Result<Keeper, KeeperError> {
    let failed = |source| KeeperError::Start { program: program.path.clone(), source };
    let string = |bytes: &[u8]| CString::new(bytes).map_err(|error| failed(io::Error::other(error)));
    let mut arguments = Vec::new();
    for argument in &program.arguments {
        arguments.push(string(argument.as_bytes())?);
    }
    arguments.push(string(place.dir().as_os_str().as_bytes())?);
    let mut env = Vec::new();
    for (name, value) in std::env::vars_os() {
        env.push(string(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
    }
    let log = place.log_writer()?;
    let path = string(program.path.as_os_str().as_bytes())?;
    let program = Program {
        path: &path,
        arguments: &arguments,
        env: &env,
        directory: c"/",
        stdout: &log,
        stderr: &log,
    };
    spawn::spawn(&program).map(Keeper::Own).map_err(failed)
}

fn failure(why: String) -> HookResult {
    HookResult { failure: Some(why), ..HookResult::default() }
}
