//! The program around a node daemon: command line, log, runtime, signals, exit codes.

use std::{
    error::Error,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use muster_proto::transport::take_lock;
use tokio::{
    runtime::Runtime,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{
    Agent, AgentError, Backends, Config, JoinError, LogFormat, NodeLock, Token, begin_log, join, leave,
    serve, words,
};
use crate::{
    HookKeepers, HookRunner, KeeperProgram, KeepersConfig, PreparedProcess, RunnerConfig,
    hookset::prune_at_start, keeper_main, prepare_process, service::HookGrpc,
};

/// The operation failed or was refused.
const EXIT_FAILED: u8 = 1;
/// Wrong usage.
const EXIT_USAGE: u8 = 2;
/// The master can't be reached.
const EXIT_UNREACHED: u8 = 3;
/// Far longer than a token.
const TOKEN_BYTES_MAX: u64 = 4096;

#[derive(Parser)]
#[command(version, disable_help_subcommand = true)]
struct Arguments {
    /// The configuration file [default: /etc/muster/noded.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the log looks.
    #[arg(long, global = true, value_enum, default_value_t)]
    log_format: LogFormat,
    #[command(subcommand)]
    form: Option<Form>,
}

#[derive(Subcommand)]
enum Form {
    /// Ask a cluster's master to take this host as a node.
    Join {
        /// The file with the token that `gnt-node token create` printed; `-` reads standard input.
        #[arg(long, value_name = "FILE")]
        token_file: PathBuf,
    },
    /// Forget the cluster that this host is a node of.
    Leave,
}

type Failure = Box<dyn Error + Send + Sync>;

/// Runs a node daemon's program. `backends` makes what the daemon has beside hooks; `hooks_only` is whether that is
/// nothing.
pub fn main<B>(name: &'static str, about: &'static str, hooks_only: bool, backends: B) -> ExitCode
where
    B: AsyncFnOnce(&Config) -> Result<Arc<dyn Backends>, Failure>,
{
    let process = prepare_process();
    // Before anything else: a form of this program that is not for people and has no log or configuration of its own.
    if let Some(ended) = keeper_main(process, std::env::args_os().skip(1)) {
        return ended;
    }
    let command = Arguments::command().name(name).about(about);
    let arguments = match command.try_get_matches().and_then(|found| Arguments::from_arg_matches(&found)) {
        Ok(arguments) => arguments,
        Err(error) => {
            // To standard output where help or version was asked for.
            drop(error.print());
            return if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let ended = match arguments.form {
        None => daemon(process, &arguments, backends),
        Some(Form::Join { token_file }) => join_form(arguments.config.as_deref(), &token_file, hooks_only),
        Some(Form::Leave) => leave_form(arguments.config.as_deref()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let unreached = matches!(error.downcast_ref(), Some(JoinError::Dial(_) | JoinError::Silent));
            drop(writeln!(io::stderr(), "{name}: {}", words(&*error)));
            ExitCode::from(if unreached { EXIT_UNREACHED } else { EXIT_FAILED })
        }
    }
}

fn daemon<B>(process: PreparedProcess, arguments: &Arguments, backends: B) -> Result<(), Failure>
where
    B: AsyncFnOnce(&Config) -> Result<Arc<dyn Backends>, Failure>,
{
    let config = Config::load(arguments.config.as_deref())?;
    begin_log(config.log.as_deref(), arguments.log_format)?;
    let runtime = Runtime::new()?;
    let ended = runtime.block_on(run(process, config, backends));
    // Scripts go on under their keepers, which the next daemon finds.
    runtime.shutdown_background();
    if let Err(error) = &ended {
        tracing::error!(error = words(&**error), "the daemon ends");
    }
    ended
}

async fn run<B>(process: PreparedProcess, config: Config, backends: B) -> Result<(), Failure>
where
    B: AsyncFnOnce(&Config) -> Result<Arc<dyn Backends>, Failure>,
{
    let stopping = stop_at_signals()?;
    let lock = take_lock(|| NodeLock::acquire(&config), |error| matches!(error, AgentError::InUse(_)))?;
    let backends = backends(&config).await?;
    let (agent, hooks) = open(process, lock, config, backends, KeeperProgram::own(), stopping).await?;
    serve(agent, hooks).await?;
    tracing::info!("stopped");
    Ok(())
}

/// Opens the hook runs, their journal and the agent of a daemon; `keeper` is what runs of hooks are started by.
pub async fn open(
    process: PreparedProcess,
    lock: NodeLock,
    config: Config,
    backends: Arc<dyn Backends>,
    keeper: KeeperProgram,
    stopping: CancellationToken,
) -> Result<(Arc<Agent>, HookGrpc), Failure> {
    let folder = config.node_dir();
    let mut runner = RunnerConfig::new(config.hooks_dir.clone(), folder.join("output"));
    runner.sets_dir = Some(config.hook_sets_dir());
    let runner = Arc::new(HookRunner::new(process, runner)?);
    let keepers = HookKeepers::new(runner, KeepersConfig { dir: folder.join("keepers"), program: keeper })?;
    let calls = keepers.open_calls(&folder.join("calls/hooks")).await?;
    if let Some(sets) = keepers.runner().sets() {
        prune_at_start(Arc::clone(sets)).await;
    }
    let agent = Arc::new(Agent::open(lock, config, backends, vec![Arc::new(calls.clone())], stopping)?);
    let hooks = HookGrpc::new(Arc::clone(&agent), keepers, calls);
    Ok((agent, hooks))
}

/// A token that is cancelled when the process is told to end.
fn stop_at_signals() -> io::Result<CancellationToken> {
    let stopping = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = stopping.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        token.cancel();
    });
    Ok(stopping)
}

fn join_form(config: Option<&Path>, token_file: &Path, hooks_only: bool) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let token: Token = read_token(token_file)?.parse()?;
    let joined = Runtime::new()?.block_on(join(&config, &token, hooks_only))?;
    let (name, cluster) = (&joined.name, &joined.cluster_name);
    writeln!(io::stdout(), "{name} is pending on cluster {cluster}; now run: gnt-node add {name}")?;
    Ok(())
}

fn leave_form(config: Option<&Path>) -> Result<(), Failure> {
    let config = Config::load(config)?;
    let text = match Runtime::new()?.block_on(leave(&config))? {
        true => "left the cluster",
        false => "this host is in no cluster",
    };
    writeln!(io::stdout(), "{text}")?;
    Ok(())
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    } else {
        let file = fs::File::open(path).map_err(|error| format!("token file {}: {error}", path.display()))?;
        file.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}
