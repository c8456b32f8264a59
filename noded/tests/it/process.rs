//! The program itself: how it starts, stops and reads its configuration.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Child, ExitStatus, Stdio},
};

use muster_proto::v1::{self, hook_service_client::HookServiceClient, run_hooks_event::Event};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Program, context, wait_for};

async fn ended(child: Child) -> ExitStatus {
    let child = std::cell::RefCell::new(child);
    wait_for(async || child.borrow_mut().try_wait().expect("it can be waited for")).await
}

#[tokio::test]
async fn it_stops_when_it_is_told_to_also_with_a_caller_connected() {
    let mut program = Program::start().await;
    let request = v1::WatchRequest { context: context(), ..v1::WatchRequest::default() };
    let mut states = program.agent().await.watch(request).await.unwrap().into_inner();
    states.message().await.unwrap().unwrap();
    let child = program.take();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert!(ended(child).await.success(), "{}", program.log());
    assert_eq!(states.message().await.unwrap_err().code(), tonic::Code::Unavailable);
    program.begin().await;
}

#[tokio::test]
async fn state_and_socket_are_private_and_facts_are_not() {
    let program = Program::start().await;
    for (name, mode) in [
        ("run_dir/node.sock", 0o600),
        ("state_dir", 0o755),
        ("state_dir/node", 0o700),
        ("state_dir/data", 0o755),
        ("log", 0o600),
    ] {
        let is = fs::metadata(program.path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(is, mode, "{name}: {is:o}");
    }
}

#[tokio::test]
async fn a_second_daemon_on_the_same_state_is_refused() {
    let program = Program::start().await;
    let second = program.command(&[]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    let words = String::from_utf8(second.stderr).unwrap();
    assert!(words.contains("another node daemon runs"), "{words}");
    program.state().await;
}

#[tokio::test]
async fn wrong_usage_and_wrong_configuration_are_told() {
    let program = Program::start().await;
    let run = |arguments: &[&str]| program.command(arguments).output().unwrap();
    assert_eq!(run(&["--nonsense"]).status.code(), Some(2));
    assert_eq!(run(&["join"]).status.code(), Some(2));
    let missing = run(&["join", "--token-file", "/nonexistent/token"]);
    assert_eq!(missing.status.code(), Some(1));
    let left = run(&["leave"]);
    assert!(left.status.success());
    assert_eq!(String::from_utf8(left.stdout).unwrap(), "this host is in no cluster\n");
    fs::write(program.path("noded.toml"), "nmae = \"node1\"\n").unwrap();
    let words = String::from_utf8(run(&[]).stderr).unwrap();
    assert!(words.contains("nmae"), "{words}");
}

#[tokio::test]
async fn a_master_that_is_not_there_is_its_own_exit_code() {
    let program = Program::start().await;
    // Taken and not listened on: nobody answers, and nobody else can.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let token = format!("muster1:{}:{}:00ff\n", socket.local_addr().unwrap(), "ab".repeat(32));
    let mut command = program.command(&["join", "--token-file", "-"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(token.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{words}");
    assert!(words.contains("could not reach the master"), "{words}");
}

async fn run_hooks(program: &Program) -> tonic::Streaming<v1::RunHooksEvent> {
    let request = v1::RunHooksRequest {
        context: context(),
        call_id: "1/pre/1".to_owned(),
        job_id: 1,
        phase: v1::HookPhase::Pre.into(),
        prefix: "node-add".to_owned(),
        ..v1::RunHooksRequest::default()
    };
    let channel = muster_proto::transport::connect_unix(&program.socket()).await.expect("it serves");
    HookServiceClient::new(channel).run_hooks(request).await.expect("it is taken").into_inner()
}

/// The keeper of a script's run.
fn parent_of(pid: Pid) -> Pid {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the name stands in parentheses");
    let parent = fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok());
    let parent = parent.and_then(Pid::from_raw).expect("the parent follows the state");
    let line = fs::read_to_string(format!("/proc/{}/cmdline", parent.as_raw_nonzero())).expect("it runs");
    assert!(line.contains("hook-keeper"), "{line}");
    parent
}

#[tokio::test]
async fn r8_a_run_goes_on_without_its_daemon_and_the_next_one_answers_for_it() {
    let mut program = Program::start().await;
    let folder = program.path("hooks_dir/node-add-pre.d");
    let (pids, gate) = (program.path("pids"), program.path("gate"));
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("10-long");
    let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", gate.display());
    fs::write(&script, format!("#!/bin/sh\necho $$ >>{}\n{wait}\nexit 5\n", pids.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let _stream = run_hooks(&program).await;
    let read = async || fs::read_to_string(&pids).ok()?.trim().parse::<i32>().ok();
    wait_for(read).await;
    program.kill();
    program.begin().await;
    let mut stream = run_hooks(&program).await;
    fs::write(&gate, "").unwrap();
    let mut scripts = 0;
    let result = loop {
        match stream.message().await.unwrap().unwrap().event.unwrap() {
            Event::Going(_) => {}
            Event::Script(_) => scripts += 1,
            Event::Result(result) => break result,
            Event::Lost(lost) => panic!("{lost:?}"),
        }
    };
    let outcome = result.scripts[0].outcome.clone().unwrap().kind.unwrap();
    assert_eq!((scripts, outcome), (1, v1::script_outcome::Kind::FailedCode(5)));
    assert_eq!(fs::read_to_string(&pids).unwrap().lines().count(), 1, "it ran once");
}

#[tokio::test]
async fn r8_a_run_whose_daemon_and_keeper_died_is_lost_and_nothing_of_it_is_left() {
    let mut program = Program::start().await;
    let (folder, pid) = (program.path("hooks_dir/node-add-pre.d"), program.path("pid"));
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("10-long");
    fs::write(&script, format!("#!/bin/sh\necho $$ >{}\nsleep 1000\n", pid.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let _stream = run_hooks(&program).await;
    let read = async || fs::read_to_string(&pid).ok()?.trim().parse::<i32>().ok();
    let script_pid = Pid::from_raw(wait_for(read).await).unwrap();
    program.kill();
    kill_process(parent_of(script_pid), Signal::KILL).expect("its keeper goes on without the daemon");
    rustix::process::test_kill_process(script_pid).expect("the script goes on without both");
    program.begin().await;
    let mut stream = run_hooks(&program).await;
    let last = loop {
        match stream.message().await.unwrap().unwrap().event.unwrap() {
            Event::Going(_) => {}
            last @ (Event::Lost(_) | Event::Result(_) | Event::Script(_)) => break last,
        }
    };
    assert!(matches!(last, Event::Lost(_)), "{last:?}");
    // A dead process stays visible until its parent looks; it does not run any more.
    let state = fs::read_to_string(format!("/proc/{}/stat", script_pid.as_raw_nonzero()));
    assert!(state.is_err() || state.unwrap().contains(") Z "), "the script still runs");
}
