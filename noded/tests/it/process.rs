//! The program itself: how it starts, stops and reads its configuration.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    process::{Child, ExitStatus, Stdio},
};

use muster_proto::v1;
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Program, context, wait_for};

async fn ended(child: Child) -> ExitStatus {
    let child = std::cell::RefCell::new(child);
    wait_for(async || child.borrow_mut().try_wait().expect("it can be waited for")).await
}

#[tokio::test]
async fn it_stops_when_it_is_told_to_also_with_a_caller_connected() {
    let mut program = Program::start().await;
    let request = v1::WatchRequest { context: context() };
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
