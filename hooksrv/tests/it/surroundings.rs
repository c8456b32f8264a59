//! X1 to X6: what a script finds when it starts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

use muster_core::hooks::{Env, HookPolicy, ScriptOutcome};
use tokio_util::sync::CancellationToken;

use crate::support::{Hooks, Seen, block_on, in_own_process, only, probe, request, stdout};

/// Runs the probe, as a link, and returns the lines it printed.
async fn probed(hooks: &Hooks, env: Env) -> Vec<String> {
    symlink(probe(), hooks.dir().join("10-probe")).unwrap();
    let request = request(env, HookPolicy::default());
    let result = hooks.run_with(&request, &Seen::default(), &CancellationToken::new()).await;
    let script = only(&result);
    assert_eq!(script.outcome, ScriptOutcome::Passed, "{script:?}");
    stdout(script).lines().map(str::to_owned).collect()
}

fn has(lines: &[String], line: &str) {
    assert!(lines.iter().any(|own| own == line), "{line}: {lines:#?}");
}

#[tokio::test]
async fn x1_no_arguments_and_argv0_is_the_directory_entry() {
    let hooks = Hooks::new();
    let lines = probed(&hooks, Env::new()).await;
    has(&lines, "argc=1");
    has(&lines, &format!("argv0={}/10-probe", hooks.dir().display()));
    fs::remove_file(hooks.dir().join("10-probe")).unwrap();

    hooks.script("20-shell", "echo $# $0");
    let expected = format!("0 {}/20-shell\n", hooks.dir().display());
    assert_eq!(stdout(only(&hooks.run().await)), expected);
}

#[tokio::test]
async fn x2_own_session_no_terminal_and_the_root_directory() {
    let lines = probed(&Hooks::new(), Env::new()).await;
    for line in ["session leader=1", "group leader=1", "terminal=0", "cwd=/"] {
        has(&lines, line);
    }
}

#[tokio::test]
async fn x3_stdin_is_dev_null() {
    has(&probed(&Hooks::new(), Env::new()).await, "fd0=/dev/null");
}

#[tokio::test]
async fn x4_output_goes_to_two_regular_files_opened_for_append() {
    let hooks = Hooks::new();
    let lines = probed(&hooks, Env::new()).await;
    let output = hooks.root().join("state/hook-output/17.pre.1");
    for (fd, stream) in [(1, "stdout"), (2, "stderr")] {
        has(&lines, &format!("fd{fd}={}/01.{stream}", output.display()));
        has(&lines, &format!("fd{fd} regular=1 append=1"));
    }
}

#[tokio::test]
async fn x5_the_environment_is_path_and_ganeti_variables_only() {
    let weird = "a=b \"c\" $(touch /tmp/x) `id`\nline two \u{fc}";
    let env = Env::new().set("WEIRD", weird).set("EMPTY", "").set("HOOKS_PHASE", "PRE");
    let lines = probed(&Hooks::new(), env).await;
    let text = lines.join("\n");
    assert!(text.contains(&format!("env=GANETI_WEIRD={weird}\n")), "{text}");
    let names: BTreeSet<&str> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("env=")?.split_once('='))
        .map(|(name, _)| name)
        .collect();
    let expected =
        ["GANETI_EMPTY", "GANETI_HOOKS_PHASE", "GANETI_HOOK_KILL_TIMEOUT_S", "GANETI_WEIRD", "PATH"];
    assert_eq!(names, BTreeSet::from(expected));
    has(&lines, "env=PATH=/sbin:/bin:/usr/sbin:/usr/bin");
    has(&lines, "env=GANETI_EMPTY=");
    has(&lines, "env=GANETI_HOOK_KILL_TIMEOUT_S=300");
}

#[tokio::test]
async fn x5_the_kill_limit_is_told_in_whole_seconds_rounded_up() {
    let hooks = Hooks::new();
    hooks.script("10-x", "# HOOK_KILL_TIMEOUT=20001ms\necho $GANETI_HOOK_KILL_TIMEOUT_S");
    assert_eq!(stdout(only(&hooks.run().await)), "21\n");
}

#[test]
fn x6_no_other_descriptor_default_signals_umask_077() {
    in_own_process("surroundings::x6_no_other_descriptor_default_signals_umask_077", &[], |_| {
        // Everything that must not reach the script is set up first: ignored and blocked signals, an open file.
        // SAFETY: these calls change this process, which is this test's own, and have no other effect.
        unsafe {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGUSR1);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        }
        let inherited = File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        rustix::process::umask(rustix::fs::Mode::empty());

        let lines = block_on(async { probed(&Hooks::new(), Env::new()).await });
        let fds: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("fd=")).collect();
        assert_eq!(fds.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["0", "1", "2"]));
        for signals in ["SigBlk", "SigIgn", "SigCgt"] {
            has(&lines, &format!("{signals}=0000000000000000"));
        }
        has(&lines, "Umask=0077");
    });
}
