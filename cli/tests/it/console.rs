//! `gnt-instance console` between pipes and on a terminal.

use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};

use crate::{
    gnt, run,
    scripted::{Master, Script},
};

/// What is waited for comes within this, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits for the program's end; one that stays is killed and fails the test.
fn end(mut child: Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return status,
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                panic!("still there after {LIMIT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Reads until the text has come.
fn read_to(from: &mut impl Read, wanted: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.contains(wanted) {
        assert_eq!(from.read(&mut byte).unwrap(), 1, "{wanted:?} did not come: {text:?}");
        text.push(char::from(byte[0]));
    }
    text
}

fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn between_pipes_it_ends_with_the_guest() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script::default());
    let mut child = piped(&mut gnt(master.socket(), "instance console web1"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"hello\x1dq\n").unwrap();
    assert_eq!(read_to(child.stdout.as_mut().unwrap(), "\n"), "hello\x1dq\n");
    stdin.write_all(b"exit").unwrap();
    assert_eq!(end(child).code(), Some(0));
}

#[test]
fn between_pipes_it_outlives_the_end_of_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script::default());
    let mut child = piped(&mut gnt(master.socket(), "instance console web1"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"last words\n").unwrap();
    drop(stdin);
    assert_eq!(read_to(child.stdout.as_mut().unwrap(), "\n"), "last words\n");
    assert!(child.try_wait().unwrap().is_none(), "the guest goes on");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(end(child).code(), Some(0));
}

#[test]
fn an_unknown_instance_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script::default());
    let (code, out, err) = run(master.socket(), "instance console web9");
    assert_eq!((code, out.as_str(), err.as_str()), (1, "", "error: there is no instance web9\n"));
}

#[test]
fn on_a_terminal_every_key_is_passed_on_and_the_escape_leaves_it_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), Script::default());
    let pty = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&pty).unwrap();
    unlockpt(&pty).unwrap();
    let path = ptsname(&pty, Vec::new()).unwrap().into_string().unwrap();
    // Held here, so that the terminal's state can be seen after the program's end.
    let terminal = File::options().read(true).write(true).open(path).unwrap();
    let is_raw = || !tcgetattr(&terminal).unwrap().local_modes.contains(LocalModes::ICANON);
    assert!(!is_raw());
    let mut command = gnt(master.socket(), "instance console web1");
    let end_of_pty = || Stdio::from(terminal.try_clone().unwrap());
    let child = command.stdin(end_of_pty()).stdout(end_of_pty()).stderr(end_of_pty()).spawn().unwrap();
    let mut pty = File::from(pty);
    let told = read_to(&mut pty, "leaves it");
    assert!(told.contains("console of web1: Ctrl-] and then q"), "{told}");
    let deadline = Instant::now() + LIMIT;
    while !is_raw() {
        assert!(Instant::now() < deadline, "the terminal is not switched");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Ctrl-C is the guest's.
    pty.write_all(b"ab\x03c!").unwrap();
    read_to(&mut pty, "ab\x03c!");
    pty.write_all(b"\x1dq").unwrap();
    assert_eq!(end(child).code(), Some(0));
    assert!(!is_raw(), "the terminal is as it was");
}
