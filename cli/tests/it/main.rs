//! The program as a process, against a master that plays a script: exit codes, what goes to which stream, lost
//! answers and a master's restart in the middle of a job.
#![expect(clippy::unwrap_used, reason = "helpers of tests; a panic fails the test")]

mod console;
mod queue;
mod scripted;

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Command, Output, Stdio},
};

use muster_proto::v1::{
    Captured, ErrorKind, HookPhase, HooksSummary, InstanceInfo, Job, JobError, JobStatus, LogLevel, LogLine,
    Objection, ScriptOutcome, ScriptResult, job_event::Event, script_outcome::Kind,
};
use scripted::{Master, Script};
use serde_json::{Value, json};

fn gnt(socket: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gnt"));
    command.args(line.split_whitespace()).env_clear().env("MUSTER_SOCKET", socket).stdin(Stdio::null());
    command
}

fn run(socket: &Path, line: &str) -> (i32, String, String) {
    let Output { status, stdout, stderr } = gnt(socket, line).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn log(text: &str) -> Event {
    Event::Log(LogLine { time_ms: 1, level: LogLevel::Warning.into(), text: text.to_owned() })
}

fn hooks(phase: HookPhase) -> Event {
    Event::Hooks(HooksSummary { phase: phase.into(), nodes: 3, scripts: 5, duration_ms: 41 })
}

fn success(id: u64) -> Vec<Event> {
    let job = Job { id, status: JobStatus::Success.into(), ..Job::default() };
    vec![
        hooks(HookPhase::Pre),
        log("node node3 could not be reached"),
        hooks(HookPhase::Post),
        Event::Done(job),
    ]
}

fn denial(id: u64) -> Vec<Event> {
    let stderr = Captured { head: b"not today\n".to_vec(), total_bytes: 10, ..Captured::default() };
    let script = ScriptResult {
        name: "10-check".to_owned(),
        outcome: Some(ScriptOutcome { kind: Some(Kind::FailedCode(3)) }),
        stderr: Some(stderr),
        ..ScriptResult::default()
    };
    let error = JobError {
        kind: ErrorKind::Denied.into(),
        message: "1 script".to_owned(),
        objections: vec![Objection { node: "node2".to_owned(), script: Some(script), reason: None }],
    };
    let job = Job { id, status: JobStatus::Error.into(), error: Some(error), ..Job::default() };
    vec![hooks(HookPhase::Pre), Event::Done(job)]
}

#[test]
fn no_master_is_exit_code_3_and_names_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("master.sock");
    for line in
        ["instance list", "cluster init dev", "job wait 1", "node token create", "instance remove -f web1"]
    {
        let (code, out, err) = run(&socket, line);
        assert_eq!((code, out.as_str()), (3, ""), "{line}: {err}");
        assert!(err.starts_with("error: ") && err.contains(socket.to_str().unwrap()), "{line}: {err}");
    }
}

#[test]
fn wrong_usage_is_found_without_a_master() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("master.sock");
    for (line, part) in [
        ("instance list -o nmae", "did you mean \"name\"?"),
        ("instance remove web1", "-f means yes"),
        ("instance failover web1", "-f means yes"),
        ("cluster destroy dev", "-f means yes"),
        ("cluster master-failover", "-f means yes"),
        ("instance start Web1", "\"Web1\" is not valid"),
    ] {
        let (code, out, err) = run(&socket, line);
        assert_eq!((code, out.as_str()), (2, ""), "{line}: {err}");
        assert!(err.contains(part), "{line}: {err}");
    }
}

#[test]
fn an_operation_tells_its_progress_on_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script { stories: vec![success(1)], ..Script::default() });
    let (code, out, err) = run(master.socket(), "instance start web1 --reason weekly --dry-run");
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    let expected = "\
pre hooks: 3 nodes, 5 scripts, 41 ms
warning: node node3 could not be reached
post hooks: 3 nodes, 5 scripts, 41 ms
";
    assert_eq!(err, expected);
    let script = master.script();
    assert_eq!(script.submissions.len(), 1);
    assert_eq!((script.submissions[0].reason.as_str(), script.submissions[0].dry_run), ("weekly", true));
}

#[test]
fn r1_a_denial_is_exit_code_1_and_shows_the_scripts_words() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script { stories: vec![denial(1), denial(2)], ..Script::default() };
    let master = Master::start(folder.path(), script);
    let (code, out, err) = run(master.socket(), "instance start web1");
    assert_eq!((code, out.as_str()), (1, ""));
    let expected = "\
pre hooks: 3 nodes, 5 scripts, 41 ms
error: job 1 was denied by hooks: 1 script
  node2: 10-check: exit code 3, after 0 ms
    stderr | not today
";
    assert_eq!(err, expected);
    let (code, out, _) = run(master.socket(), "instance start web1 --json");
    assert_eq!(code, 1);
    let job: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&job["status"], &job["error"]["kind"]), (&json!("error"), &json!("denied")));
    assert_eq!(job["error"]["objections"][0]["script"]["stderr"]["text"], json!("not today\n"));
}

#[test]
fn a_lost_answer_is_asked_for_again_with_the_same_request_id() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script { answers_to_lose: 2, ..Script::default() });
    let (code, out, err) = run(master.socket(), "instance start web1 --submit");
    let told = "warning: the connection to the master is lost, trying again for 60 s\n";
    assert_eq!((code, out.as_str(), err.as_str()), (0, "JobID: 1\n", told));
    let script = master.script();
    assert_eq!(script.submissions.len(), 3);
    assert!(script.submissions.iter().all(|one| one.request_id == script.submissions[0].request_id));
    assert!(!script.submissions[0].request_id.is_empty());
}

#[test]
fn a_restart_of_the_master_is_survived_and_no_line_comes_twice() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script { stories: vec![success(1)], stop_after: Some(2), ..Script::default() };
    let mut master = Master::start(folder.path(), script);
    let mut child = gnt(master.socket(), "instance start web1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    while !told.contains("node3") {
        assert_ne!(err.read_line(&mut told).unwrap(), 0, "{told}");
    }
    master.script().stop_after = None;
    master.restart();
    err.read_to_string(&mut told).unwrap();
    assert!(child.wait().unwrap().success(), "{told}");
    let expected = "\
pre hooks: 3 nodes, 5 scripts, 41 ms
warning: node node3 could not be reached
warning: the connection to the master is lost, trying again for 60 s
post hooks: 3 nodes, 5 scripts, 41 ms
";
    assert_eq!(told, expected);
    assert!(master.script().follows >= 2);
    assert_eq!(master.script().submissions.len(), 1);
}

#[test]
fn several_instances_are_several_jobs_and_one_failure_stops_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script { stories: vec![denial(1), success(2)], ..Script::default() };
    let master = Master::start(folder.path(), script);
    let (code, out, err) = run(master.socket(), "instance shutdown web1 web2 --json");
    assert_eq!(code, 1, "{err}");
    let jobs: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&jobs[0]["status"], &jobs[1]["status"]), (&json!("error"), &json!("success")));
}

#[test]
fn watch_and_wait_end_with_the_jobs_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script { stories: vec![success(1), denial(2)], ..Script::default() };
    let master = Master::start(folder.path(), script);
    let (code, out, err) = run(master.socket(), "job watch 1");
    assert_eq!((code, out.lines().count(), err.as_str()), (0, 3, "job 1: success\n"), "{out}");
    assert_eq!(run(master.socket(), "job wait 1"), (0, String::new(), String::new()));
    assert_eq!(run(master.socket(), "job wait 2"), (1, String::new(), String::new()));
    let (code, _, err) = run(master.socket(), "job wait 9");
    assert_eq!((code, err.as_str()), (1, "error: there is no such job\n"));
}

#[test]
fn one_name_is_an_object_and_several_are_an_array() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script { stories: vec![success(1), denial(2)], ..Script::default() };
    let master = Master::start(folder.path(), script);
    let json = |line: &str| -> Value { serde_json::from_str(&run(master.socket(), line).1).unwrap() };
    assert_eq!(json("job info 1 --json")["id"], json!(1));
    assert_eq!(json("job info 1 2 --json")[1]["id"], json!(2));
    assert_eq!(json("instance list --json"), json!([]));
    assert_eq!(json("instance info --json"), json!([]));
}

#[test]
fn a_closed_pipe_ends_a_listing_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    // More than a pipe holds.
    let instance = |index| InstanceInfo { name: format!("web{index}"), ..InstanceInfo::default() };
    let script = Script { instances: (0..5_000).map(instance).collect(), ..Script::default() };
    let master = Master::start(folder.path(), script);
    let mut child =
        gnt(master.socket(), "instance list").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("Instance"), "{first}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
}

#[test]
fn a_master_without_the_office_is_exit_code_3_and_names_the_master() {
    let folder = tempfile::tempdir().unwrap();
    let master =
        Master::start(folder.path(), Script { successor: Some("node2".to_owned()), ..Script::default() });
    let (code, out, err) = run(master.socket(), "cluster getmaster");
    assert_eq!((code, out.as_str(), err.as_str()), (3, "", "error: not the master: node2 is\n"));
    master.script().successor = None;
    assert_eq!(run(master.socket(), "cluster getmaster"), (0, "node1\n".to_owned(), String::new()));
}

#[test]
fn verify_with_an_error_is_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script::default());
    let (code, out, err) = run(master.socket(), "cluster verify");
    assert_eq!((code, err.as_str()), (1, ""));
    assert!(out.contains("ENODEREACH") && out.ends_with("1 error, 0 warnings\n"), "{out}");
    let (code, out, _) = run(master.socket(), "cluster verify --json");
    let check: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &check["findings"][0]["error"]), (1, &json!(true)));
}

#[test]
fn explain_asks_and_submits_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script::default());
    let (code, out, err) = run(master.socket(), "hooks explain instance start web1 web2 --json");
    assert_eq!((code, err.as_str()), (0, ""));
    let both: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&both[0]["target"], &both[1]["target"]), (&json!("web1"), &json!("web2")));
    // It would ask for confirmation; an explanation changes nothing, so there is nothing to confirm.
    let (code, out, err) = run(master.socket(), "hooks explain instance remove web1");
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", "error: refused: not in this play\n"));
    let (code, _, err) = run(master.socket(), "hooks explain instance list");
    assert!(code == 2 && err.contains("is no operation"), "{code} {err}");
    assert!(master.script().submissions.is_empty());
}
