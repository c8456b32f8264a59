//! A node's hooks in a temporary directory, and how tests run and watch them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use muster_core::hooks::{Env, HookPolicy, HookResult, Phase, ScriptOutcome, ScriptResult};
use muster_hooksrv::{
    CallId, DirectoryName, HookRequest, HookRunner, ProcessId, RunWatch, RunnerConfig, prepare_process,
};
use tokio_util::sync::CancellationToken;

/// Longest wait for a state in a test: far beyond what any takes on a busy machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// The hooks of one node.
pub(crate) struct Hooks {
    root: tempfile::TempDir,
    pub(crate) runner: HookRunner,
}

impl Hooks {
    pub(crate) fn new() -> Self {
        Self::with(|config| config)
    }

    pub(crate) fn with(change: impl FnOnce(RunnerConfig) -> RunnerConfig) -> Self {
        let root = tempfile::tempdir().unwrap();
        let config =
            change(RunnerConfig::new(root.path().join("hooks"), root.path().join("state/hook-output")));
        fs::create_dir_all(root.path().join("hooks/node-add-pre.d")).unwrap();
        let runner = HookRunner::new(prepare_process(), config).unwrap();
        Hooks { root, runner }
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// The directory that `run` runs.
    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("hooks/node-add-pre.d")
    }

    /// Puts a shell script there.
    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        self.file(name, &format!("#!/bin/sh\n{body}\n"))
    }

    /// Puts an executable file there.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        executable(self.dir().join(name), content)
    }

    pub(crate) async fn run(&self) -> HookResult {
        self.run_with(
            &request(Env::new(), HookPolicy::default()),
            &Seen::default(),
            &CancellationToken::new(),
        )
        .await
    }

    pub(crate) async fn run_with(
        &self,
        request: &HookRequest,
        seen: &Seen,
        cancel: &CancellationToken,
    ) -> HookResult {
        let plan = self.runner.plan(request).await;
        self.runner.run(plan, &CallId::parse("17/pre/1").unwrap(), request, seen, cancel).await
    }
}

/// Writes an executable file. The umask of tests is 077, so the mode is set afterwards.
pub(crate) fn executable(path: PathBuf, content: &str) -> PathBuf {
    fs::write(&path, content).unwrap();
    set_mode(&path, 0o755);
    path
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub(crate) fn request(env: Env, policy: HookPolicy) -> HookRequest {
    HookRequest::new(DirectoryName::new("node-add", Phase::Pre).unwrap(), env, policy)
}

/// What a run told while it went on.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) told: Mutex<Vec<String>>,
    pub(crate) changed: tokio::sync::Notify,
}

impl RunWatch for Seen {
    async fn started(&self, process: &ProcessId) {
        assert!(process.start_ticks > 0);
        self.told.lock().unwrap().push("started".to_owned());
        self.changed.notify_one();
    }

    fn ended(&self, result: &ScriptResult) {
        self.told.lock().unwrap().push(format!("ended {}", result.name));
        self.changed.notify_one();
    }
}

/// The only script of a result.
pub(crate) fn only(result: &HookResult) -> &ScriptResult {
    assert_eq!(result.failure, None);
    assert_eq!(result.scripts.len(), 1, "{result:?}");
    &result.scripts[0]
}

pub(crate) fn outcomes(result: &HookResult) -> Vec<(&str, &ScriptOutcome)> {
    result.scripts.iter().map(|script| (script.name.as_str(), &script.outcome)).collect()
}

pub(crate) fn stdout(script: &ScriptResult) -> String {
    assert!(!script.stdout.cut());
    String::from_utf8([&script.stdout.head[..], &script.stdout.tail].concat()).unwrap()
}

/// Waits for a state, with a limit.
pub(crate) fn wait_for(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !reached() {
        assert!(Instant::now() < deadline, "{what} is not reached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process numbers in a file that a script wrote, once there are as many.
pub(crate) fn pids_in(file: &Path, count: usize) -> Vec<i32> {
    let read = || -> Vec<i32> {
        let text = fs::read_to_string(file).unwrap_or_default();
        // A line without its end is still being written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    wait_for("the number of processes", || read().len() >= count);
    read()
}

/// Whether a process exists and is no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    let state = stat.rsplit_once(')').unwrap().1.trim_start();
    !state.starts_with(['Z', 'X'])
}

pub(crate) fn kill(pid: i32) {
    signal(pid, rustix::process::Signal::KILL);
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The living keepers of a node in this directory.
pub(crate) fn keepers(root: &Path) -> Vec<i32> {
    let dir = root.join("state/keepers");
    let is_keeper = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        arguments.any(|argument| Path::new(&*argument).starts_with(&dir))
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_keeper(*pid) && is_alive(*pid)).collect()
}

/// The compiled probe program.
pub(crate) fn probe() -> &'static Path {
    static PROBE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_dir, path) = PROBE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probe");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe.c");
        compile(&source, &path, &[]);
        (dir, path)
    });
    path
}

/// Compiles a C program by the compiler that links Rust programs too.
pub(crate) fn compile(source: &Path, program: &Path, options: &[&str]) {
    let status = Command::new("cc").arg(source).arg("-o").arg(program).args(options).status().unwrap();
    assert!(status.success());
}

/// Set in a process that a test started of its own binary, to the directory it may use.
const OWN_PROCESS: &str = "MUSTER_TEST_OWN_PROCESS";

/// The directory given to this process if a test started it.
pub(crate) fn given_directory() -> Option<PathBuf> {
    std::env::var_os(OWN_PROCESS).map(PathBuf::from)
}

/// A command that runs one test of this binary in a process of its own, where it may change what is process-wide.
pub(crate) fn own_process(test: &str, launcher: &[&str], directory: &Path) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match launcher {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(OWN_PROCESS, directory);
    command
}

/// Runs a test's body in a process of its own.
pub(crate) fn in_own_process(test: &str, launcher: &[&str], body: impl FnOnce(&Path)) {
    if let Some(directory) = given_directory() {
        return body(&directory);
    }
    let directory = tempfile::tempdir().unwrap();
    let output = own_process(test, launcher, directory.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "the test ran there: {text}");
}

/// A runtime for tests that set something up before its threads exist.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
