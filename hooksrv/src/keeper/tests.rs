//! Keepers whose program is the unit tests' own, and what can be shown without one.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use muster_core::hooks::{HookPolicy, HookResult, Phase, ScriptOutcome, ScriptResult};
use tokio_util::sync::CancellationToken;

use super::follow::Told;
use super::place::{Holder, KeeperRequest, Place, VERSION};
use super::program::{Reporter, run_keeper};
use super::report::{Record, ReportReader, ReportWriter};
use super::{HookKeepers, KeeperError, KeeperProgram, KeepersConfig};
use crate::call_id::{CallId, RequestDigest};
use crate::call_store::FileStore;
use crate::call_stream::CallItem;
use crate::calls::CallRegistry;
use crate::journal::{Begin, Call, Journal, OnLost};
use crate::run::{DirectoryName, HookRequest, HookRunner, RunnerConfig};
use crate::spawn::prepare_process;

/// Starts the keepers of tests that have no daemon's program at hand: this program again, with one test to be run.
pub(crate) fn own_test_keeper() -> KeeperProgram {
    let arguments =
        ["--exact", "keeper::tests::this_program_is_a_keeper_where_it_is_asked_to_be", "--nocapture"];
    KeeperProgram {
        path: std::env::current_exe().unwrap(),
        arguments: arguments.into_iter().map(Into::into).collect(),
    }
}

#[test]
fn this_program_is_a_keeper_where_it_is_asked_to_be() {
    // A directory as the last argument is what makes it one; the test runner takes it for the name of another test.
    let last = std::env::args_os().next_back().unwrap();
    let place = Place::new(last.into());
    if matches!(place.look(), Ok(Holder::Nothing) | Err(_)) {
        assert!(!place.report_path().exists());
        return;
    }
    run_keeper(prepare_process(), place.dir());
}

struct Run {
    root: tempfile::TempDir,
}

impl Run {
    fn new() -> Self {
        Run { root: tempfile::tempdir().unwrap() }
    }

    fn place(&self) -> Place {
        Place::new(self.root.path().join("keepers/17.pre.1"))
    }

    fn runner(&self) -> HookRunner {
        let config = RunnerConfig::new(self.root.path().join("hooks"), self.root.path().join("output"));
        HookRunner::new(prepare_process(), config).unwrap()
    }

    /// A script that notes that it ran.
    fn script(&self) {
        self.script_with("");
    }

    fn script_with(&self, more: &str) {
        let dir = self.root.path().join("hooks/node-add-pre.d");
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("10-x");
        let ran = self.root.path().join("ran");
        fs::write(&path, format!("#!/bin/sh\necho x >>{}\n{more}\n", ran.display())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn ran(&self) -> usize {
        fs::read_to_string(self.root.path().join("ran")).unwrap_or_default().lines().count()
    }

    /// The command that a daemon starts.
    fn keeper(&self) -> Command {
        let program = own_test_keeper();
        let mut command = Command::new(program.path);
        command.args(program.arguments).arg(self.place().dir()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The registry of the daemon that starts now.
    async fn open(&self) -> CallRegistry<ScriptResult, HookResult> {
        let config = KeepersConfig { dir: self.root.path().join("keepers"), program: own_test_keeper() };
        let keepers = HookKeepers::new(Arc::new(self.runner()), config).unwrap();
        keepers.open_calls(&self.root.path().join("calls")).await.unwrap()
    }

    /// Journals the call as a daemon does before it starts the keeper.
    fn journal(&self) {
        let store = FileStore::open(&self.root.path().join("calls")).unwrap();
        let id = CallId::parse("17/pre/1").unwrap();
        let output_dir = Some(self.runner().output_dir(&id));
        let call = Call { id, digest: RequestDigest::of(b"x"), job: 17, output_dir, on_lost: OnLost::Tell };
        assert_eq!(Journal::open(store).unwrap().begin(&call, 1).unwrap(), Begin::New);
    }

    async fn request(&self) -> KeeperRequest {
        let runner = self.runner();
        let directory = DirectoryName::new("node-add", Phase::Pre).unwrap();
        let env = muster_core::hooks::Env::new().set("SECRET", "s");
        let request = HookRequest::new(directory, env, HookPolicy::default());
        KeeperRequest {
            version: VERSION,
            call: CallId::parse("17/pre/1").unwrap(),
            plan: runner.plan(&request).await,
            request,
            config: runner.config_for_keeper(),
        }
    }
}

#[tokio::test]
async fn a_request_is_private_taken_once_and_not_after_it_was_withdrawn() {
    let run = Run::new();
    let (place, request) = (run.place(), run.request().await);
    assert!(matches!(place.look(), Ok(Holder::Nothing)));
    place.make(&request).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(place.dir()), mode(&place.dir().join("request"))), (0o700, 0o600));
    let lock = place.lock().unwrap().unwrap();
    let taken = place.take_request(&lock).unwrap().unwrap();
    assert_eq!(taken.request.env, request.request.env);
    assert!(!place.dir().join("request").exists(), "its secrets are gone");
    assert!(place.take_request(&lock).unwrap().is_none());

    place.make(&request).unwrap();
    let Ok(Holder::Free(lock)) = place.look() else { panic!("nobody has it") };
    place.withdraw_request(&lock).unwrap();
    assert!(place.take_request(&lock).unwrap().is_none());
}

#[tokio::test]
async fn a_record_without_its_end_does_not_count_until_it_has_one() {
    let run = Run::new();
    let place = run.place();
    place.make(&run.request().await).unwrap();
    let mut writer = ReportWriter::open(&place).unwrap();
    let mut reader = ReportReader::open(&place).unwrap();
    assert_eq!(reader.read().unwrap(), []);
    writer.write(&Record::Begun { version: VERSION }).unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(place.report_path()).unwrap();
    file.write_all(b"{\"done\":{\"skipped\":[],").unwrap();
    assert_eq!(reader.read().unwrap(), [Record::Begun { version: VERSION }]);
    assert_eq!(reader.read().unwrap(), []);
    file.write_all(b"\"failure\":null}}\n").unwrap();
    assert_eq!(
        reader.read().unwrap(),
        [Record::Done { skipped: Vec::new(), failure: None, global_post_absent: false }]
    );
}

#[tokio::test]
async fn a_report_of_another_version_is_not_guessed_at() {
    let run = Run::new();
    let place = run.place();
    place.make(&run.request().await).unwrap();
    fs::write(place.report_path(), "{\"begun\":{\"version\":99}}\n").unwrap();
    let error = ReportReader::open(&place).unwrap().read().unwrap_err();
    assert!(matches!(error, KeeperError::Version { version: 99, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_comes_after_its_call_was_given_up_runs_nothing() {
    let run = Run::new();
    run.script();
    run.journal();
    // The earlier daemon died when it had started the keeper, which has not come to the lock yet.
    run.place().make(&run.request().await).unwrap();
    let calls = run.open().await;
    run.keeper().status().unwrap();
    assert_eq!(calls.ask(&CallId::parse("17/pre/1").unwrap()).await.unwrap().end().await, CallItem::Lost);
    assert_eq!(run.ran(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_journaled_and_never_started_is_lost() {
    let run = Run::new();
    run.journal();
    let end = run.open().await.ask(&CallId::parse("17/pre/1").unwrap()).await.unwrap().end().await;
    assert_eq!(end, CallItem::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_whose_start_no_daemon_saw_is_found_by_its_lock() {
    let run = Run::new();
    run.script();
    run.journal();
    run.place().make(&run.request().await).unwrap();
    let mut keepers = [run.keeper().spawn().unwrap(), run.keeper().spawn().unwrap()];
    for keeper in &mut keepers {
        keeper.wait().unwrap();
    }
    assert_eq!(run.ran(), 1, "the second one finds the lock held or the request taken");
    let end = run.open().await.ask(&CallId::parse("17/pre/1").unwrap()).await.unwrap().end().await;
    let CallItem::Answer(answer) = end else { panic!("{end:?}") };
    assert_eq!(answer.scripts.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_can_not_report_runs_nothing() {
    let run = Run::new();
    run.script();
    let place = run.place();
    place.make(&run.request().await).unwrap();
    // As on a disk that is full.
    fs::remove_file(place.report_path()).unwrap();
    std::os::unix::fs::symlink("/dev/full", place.report_path()).unwrap();
    run.keeper().status().unwrap();
    assert_eq!(run.ran(), 0);
    fs::remove_file(place.report_path()).unwrap();
    fs::write(place.report_path(), "").unwrap();
    assert!(Told::read(&place).unwrap().into_result().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_results_can_not_be_kept_is_ended() {
    let run = Run::new();
    run.script_with("sleep 1000");
    let place = run.place();
    let request = run.request().await;
    place.make(&request).unwrap();
    fs::remove_file(place.report_path()).unwrap();
    std::os::unix::fs::symlink("/dev/full", place.report_path()).unwrap();
    let cancel = CancellationToken::new();
    let watch = Reporter::new(ReportWriter::open(&place).unwrap(), cancel.clone());
    let runner = HookRunner::new(prepare_process(), request.config).unwrap();
    let result = runner.run(request.plan, &request.call, &request.request, &watch, &cancel).await;
    assert_eq!(result.scripts[0].outcome, ScriptOutcome::Ended);
    let (_, failure) = watch.into_parts();
    assert!(failure.unwrap().contains("could not be kept"));
}
