//! D1 to D7: which scripts run.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use muster_core::hooks::{Env, HookPolicy, HookResult, Phase, ScriptOutcome, SkipReason};
use muster_hooksrv::{DirectoryName, HookRequest};
use tokio_util::sync::CancellationToken;

use crate::support::{Hooks, Seen, block_on, executable, in_own_process, only, outcomes, set_mode, stdout};

fn names(result: &HookResult) -> Vec<&str> {
    assert_eq!(result.failure, None);
    result.scripts.iter().map(|script| script.name.as_str()).collect()
}

#[tokio::test]
async fn d1_each_phase_has_its_directory() {
    let hooks = Hooks::new();
    hooks.script("10-pre", "true");
    let post = hooks.root().join("hooks/node-add-post.d");
    fs::create_dir(&post).unwrap();
    executable(post.join("10-post"), "#!/bin/sh\n");
    for (phase, name) in [(Phase::Pre, "10-pre"), (Phase::Post, "10-post")] {
        let directory = DirectoryName::new("node-add", phase).unwrap();
        let request = HookRequest::new(directory, Env::new(), HookPolicy::default());
        let result = hooks.run_with(&request, &Seen::default(), &CancellationToken::new()).await;
        assert_eq!(names(&result), [name]);
    }
    for bad in ["", "..", "../x", "a/b", "Node", "a b", "a\0"] {
        assert!(DirectoryName::new(bad, Phase::Pre).is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn d2_a_missing_directory_or_none_means_no_scripts() {
    let hooks = Hooks::new();
    fs::remove_dir(hooks.dir()).unwrap();
    assert_eq!(hooks.run().await, HookResult::default());
    fs::write(hooks.dir(), "a file").unwrap();
    assert_eq!(hooks.run().await, HookResult::default());
    fs::remove_file(hooks.dir()).unwrap();
    symlink("/no/such/directory", hooks.dir()).unwrap();
    assert_eq!(hooks.run().await, HookResult::default());
    fs::remove_dir_all(hooks.root().join("hooks")).or_else(|_| fs::remove_file(hooks.dir())).unwrap();
    assert_eq!(hooks.run().await, HookResult::default());
    assert_eq!(hooks.runner.list().unwrap(), []);
    assert!(!hooks.root().join("state").exists(), "a run without scripts leaves nothing");
}

#[tokio::test]
async fn d2_a_directory_that_exists_and_cannot_be_read_is_a_failure() {
    let hooks = Hooks::new();
    fs::remove_dir(hooks.dir()).unwrap();
    // A loop of links can't be read by root either.
    symlink("node-add-pre.d", hooks.dir()).unwrap();
    let failure = hooks.run().await.failure.expect("a failure");
    assert!(failure.contains("node-add-pre.d") && failure.contains("could not read"), "{failure}");
    let listed = hooks.runner.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].failure.is_some());
}

#[tokio::test]
async fn d3_what_is_no_script_is_skipped_with_its_reason() {
    let hooks = Hooks::new();
    let dir = hooks.dir();
    hooks.script("10-runs", "true");
    hooks.script("20-newline\n", "exit 1");
    hooks.script("30-old.disabled", "exit 1");
    hooks.script("40.sh", "exit 1");
    set_mode(&hooks.script("50-no-x", "exit 1"), 0o644);
    fs::create_dir(dir.join("60-directory")).unwrap();
    symlink("/no/such/script", dir.join("70-dangling")).unwrap();
    symlink("71-loop", dir.join("71-loop")).unwrap();
    let _socket = UnixListener::bind(dir.join("80-socket")).unwrap();
    executable(dir.join(OsStr::from_bytes(b"90-\xe9")), "#!/bin/sh\nexit 1\n");

    let result = hooks.run().await;
    assert_eq!(outcomes(&result), [("10-runs", &ScriptOutcome::Passed)]);
    let skipped: Vec<(&str, SkipReason)> =
        result.skipped.iter().map(|s| (s.name.as_str(), s.reason)).collect();
    let expected = [
        ("20-newline\\n", SkipReason::BadName),
        ("30-old.disabled", SkipReason::Disabled),
        ("40.sh", SkipReason::BadName),
        ("50-no-x", SkipReason::NotExecutable),
        ("60-directory", SkipReason::Directory),
        ("70-dangling", SkipReason::DanglingLink),
        ("71-loop", SkipReason::DanglingLink),
        ("80-socket", SkipReason::NotAFile),
        ("90-\\xe9", SkipReason::BadName),
    ];
    assert_eq!(skipped, expected);
    let listed = hooks.runner.list().unwrap();
    assert_eq!(listed[0].skipped, result.skipped, "the listing says the same");
}

#[test]
fn d3_a_script_on_a_noexec_mount_is_skipped_and_said_to_be() {
    // A mount namespace of its own; without root a user namespace makes that possible.
    let root = rustix::process::geteuid().is_root();
    let launcher: &[&str] = if root { &["unshare", "-m"] } else { &["unshare", "-rm"] };
    in_own_process("scanning::d3_a_script_on_a_noexec_mount_is_skipped_and_said_to_be", launcher, |_| {
        let hooks = Hooks::new();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "noexec", "hooks"])
            .arg(hooks.dir())
            .status()
            .unwrap();
        assert!(mounted.success());
        hooks.script("10-x", "exit 1");
        set_mode(&hooks.script("20-no-x", "exit 1"), 0o644);
        let result = block_on(hooks.run());
        let skipped: Vec<SkipReason> = result.skipped.iter().map(|skipped| skipped.reason).collect();
        assert_eq!(skipped, [SkipReason::NoExecMount, SkipReason::NotExecutable]);
        assert_eq!(result.scripts, []);
    });
}

#[tokio::test]
async fn d4_any_executable_will_do() {
    let hooks = Hooks::new();
    let elsewhere = executable(hooks.root().join("script.sh"), "#!/bin/sh\nexit 3\n");
    hooks.script("10-script", "exit 3");
    fs::copy("/bin/true", hooks.dir().join("20-native")).unwrap();
    symlink("/bin/true", hooks.dir().join("30-link-to-native")).unwrap();
    symlink(elsewhere, hooks.dir().join("40-link-to-script")).unwrap();
    hooks.file("50-other-interpreter", "#!/usr/bin/env -S cat\n");
    let result = hooks.run().await;
    let expected = [
        ("10-script", &ScriptOutcome::Failed { code: 3 }),
        ("20-native", &ScriptOutcome::Passed),
        ("30-link-to-native", &ScriptOutcome::Passed),
        ("40-link-to-script", &ScriptOutcome::Failed { code: 3 }),
        ("50-other-interpreter", &ScriptOutcome::Passed),
    ];
    assert_eq!(outcomes(&result), expected);
}

#[tokio::test]
async fn d5_scripts_run_bytewise_by_name_one_after_another() {
    let hooks = Hooks::new();
    let (log, busy) = (hooks.root().join("log"), hooks.root().join("busy"));
    for name in ["a", "_x", "A", "2-x", "10-x"] {
        // mkdir fails where two run at once.
        let (log, busy) = (log.display(), busy.display());
        hooks.script(name, &format!("mkdir {busy} && echo {name} >>{log} && rmdir {busy}"));
    }
    let result = hooks.run().await;
    assert_eq!(names(&result), ["10-x", "2-x", "A", "_x", "a"]);
    assert!(result.scripts.iter().all(|script| script.outcome == ScriptOutcome::Passed), "{result:?}");
    assert_eq!(fs::read_to_string(log).unwrap(), "10-x\n2-x\nA\n_x\na\n");
}

#[tokio::test]
async fn d6_the_directory_is_read_once_at_the_moment_of_the_run() {
    let hooks = Hooks::new();
    assert_eq!(names(&hooks.run().await), Vec::<&str>::new());
    let dir = hooks.dir();
    let dir = dir.display();
    hooks.script("10-adds", &format!("cp {dir}/10-adds {dir}/20-added"));
    assert_eq!(names(&hooks.run().await), ["10-adds"], "one put there during the run is not run");
    assert_eq!(
        names(&hooks.run().await),
        ["10-adds", "20-added"],
        "one put there before is, with no restart"
    );
}

#[tokio::test]
async fn d6_a_script_that_is_being_written_is_waited_for() {
    let hooks = Hooks::new();
    let next = hooks.script("20-next", "echo ran");
    // The child keeps the next script open for writing for a while.
    hooks.script("10-writes", &format!("sleep 0.3 3>>{} &", next.display()));
    let result = hooks.run().await;
    assert_eq!(stdout(&result.scripts[1]), "ran\n", "{result:?}");
}

#[tokio::test]
async fn d7_what_others_can_write_runs_and_is_reported() {
    let hooks = Hooks::new();
    hooks.script("10-safe", "true");
    set_mode(&hooks.script("20-world", "true"), 0o757);
    set_mode(&hooks.script("30-group", "true"), 0o775);
    let open_dir = hooks.root().join("open");
    fs::create_dir(&open_dir).unwrap();
    set_mode(&open_dir, 0o777);
    symlink(executable(open_dir.join("x"), "#!/bin/sh\n"), hooks.dir().join("40-link")).unwrap();
    if rustix::process::geteuid().is_root() {
        let path = hooks.script("50-owned", "true");
        std::os::unix::fs::chown(path, Some(65534), None).unwrap();
    } else {
        set_mode(&hooks.script("50-owned", "true"), 0o777);
    }
    let unsafe_scripts = |hooks: &Hooks| -> (bool, Vec<String>) {
        let directory = hooks.runner.list().unwrap().remove(0);
        assert_eq!(directory.name, "node-add-pre.d");
        let scripts = directory.scripts.into_iter().filter(|script| script.writable_by_others);
        (directory.writable_by_others, scripts.map(|script| script.name).collect())
    };
    let expected = ["20-world", "30-group", "40-link", "50-owned"].map(str::to_owned).to_vec();
    assert_eq!(unsafe_scripts(&hooks), (false, expected.clone()));
    set_mode(&hooks.dir(), 0o777);
    assert_eq!(unsafe_scripts(&hooks), (true, expected));
    assert_eq!(hooks.run().await.scripts.len(), 5, "all of them run");
}

#[tokio::test]
async fn every_sub_directory_is_listed_with_its_scripts_limits() {
    let hooks = Hooks::new();
    hooks.file("10-x", "#!/bin/sh\n# HOOK_WARN_TIMEOUT = 10 s\n# HOOK_KILL_TIMEOUT=2minutes\n");
    fs::create_dir(hooks.root().join("hooks/instance-stop-pre.d")).unwrap();
    fs::write(hooks.root().join("hooks/README"), "no directory").unwrap();
    let listed = hooks.runner.list().unwrap();
    let names: Vec<&str> = listed.iter().map(|directory| directory.name.as_str()).collect();
    assert_eq!(names, ["instance-stop-pre.d", "node-add-pre.d"]);
    let limits = &listed[1].scripts[0].limits;
    assert_eq!((limits.warn_ms, limits.kill_ms), (10_000, 120_000));
    assert_eq!(hooks.runner.hooks_dir(), Path::new(&hooks.root().join("hooks")));
    assert_eq!(only(&hooks.run().await).outcome, ScriptOutcome::Passed);
}
