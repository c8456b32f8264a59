//! X4 and X7 to X9, R2 and R3: how scripts run and end.

use std::fs;
use std::sync::Arc;

use muster_core::hooks::{Env, ExitCodes, HookPolicy, OnError, ScriptOutcome};
use muster_hooksrv::RunnerConfig;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Hooks, Seen, block_on, compile, in_own_process, is_alive, kill, only, outcomes, pids_in, probe, request,
    stdout,
};

#[tokio::test]
async fn x4_output_of_any_encoding_changes_no_verdict() {
    let hooks = Hooks::new();
    hooks.script("10-latin1", "printf 'caf\\351'; printf '\\377\\000' >&2");
    hooks.script("20-cut-character", "printf '\\303'; sleep 0.05; printf '\\251'");
    hooks.script("30-fails", "printf '\\351'; exit 7");
    let result = hooks.run().await;
    let expected = [
        ("10-latin1", &ScriptOutcome::Passed),
        ("20-cut-character", &ScriptOutcome::Passed),
        ("30-fails", &ScriptOutcome::Failed { code: 7 }),
    ];
    assert_eq!(outcomes(&result), expected);
    assert_eq!(result.scripts[0].stdout.head, b"caf\xe9");
    assert_eq!(result.scripts[0].stdout.visible(), "caf\\xe9");
    assert_eq!(result.scripts[0].stderr.head, b"\xff\0");
    assert_eq!(stdout(&result.scripts[1]), "\u{e9}");
}

#[test]
fn x4_50_mb_of_output_stay_on_disk_and_out_of_this_process() {
    in_own_process("running::x4_50_mb_of_output_stay_on_disk_and_out_of_this_process", &[], |_| {
        let hooks = Hooks::new();
        hooks.script("10-loud", "head -c 50000000 /dev/zero | tr '\\0' x; echo end");
        block_on(async {
            // Once before, so that threads and buffers are there.
            hooks.run().await;
            let before_kib = status_kib("VmRSS");
            fs::write("/proc/self/clear_refs", "5").unwrap(); // the peak counts from now
            let result = hooks.run().await;
            let grown_kib = status_kib("VmHWM").saturating_sub(before_kib);
            assert!(grown_kib < 8 * 1024, "grew by {grown_kib} KiB");
            let script = only(&result);
            assert_eq!(script.outcome, ScriptOutcome::Passed);
            assert_eq!((script.stdout.total_bytes, script.stdout.cut()), (50_000_004, true));
            assert_eq!((script.stdout.head.len(), script.stdout.tail.len()), (32 * 1024, 32 * 1024));
            assert!(script.stdout.tail.ends_with(b"xend\n"));
            assert_eq!(fs::metadata(&script.stdout.path).unwrap().len(), 50_000_004);
        });
    });
}

fn status_kib(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(key)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn x4_a_script_whose_output_passes_the_bound_is_ended_and_failed() {
    let hooks = Hooks::with(|config| RunnerConfig { output_bytes_max: 1 << 20, ..config });
    let pids = hooks.root().join("pids");
    hooks.script(
        "10-endless",
        &format!("echo $$ >{}; while :; do head -c 65536 /dev/zero; done", pids.display()),
    );
    hooks.script("20-quick", "head -c 2000000 /dev/zero >&2");
    hooks.script("30-just", "head -c 1048576 /dev/zero");
    let result = hooks.run().await;
    let too_large = ScriptOutcome::OutputTooLarge { limit_bytes: 1 << 20 };
    let expected =
        [("10-endless", &too_large), ("20-quick", &too_large), ("30-just", &ScriptOutcome::Passed)];
    assert_eq!(outcomes(&result), expected);
    assert!(!is_alive(pids_in(&pids, 1)[0]));
}

#[tokio::test]
async fn x4_output_that_can_not_be_kept_is_a_failure_of_the_node() {
    let hooks = Hooks::new();
    hooks.script("10-x", "true");
    fs::write(hooks.root().join("state"), "a file where the directory should be").unwrap();
    let result = hooks.run().await;
    assert_eq!(result.scripts, []);
    let failure = result.failure.expect("a failure");
    assert!(failure.starts_with("could not create output directory"), "{failure}");
}

#[tokio::test]
async fn x7_a_child_left_behind_does_not_hold_the_run() {
    let hooks = Hooks::new();
    let pids = hooks.root().join("pids");
    hooks.script("10-leaves", &format!("sleep 1000 & echo $! >{}; echo done", pids.display()));
    hooks.script("20-next", "true");
    let result = hooks.run().await;
    let child = pids_in(&pids, 1)[0];
    assert!(is_alive(child), "it is left alone, so the run did not wait for it");
    kill(child);
    assert_eq!(
        outcomes(&result),
        [("10-leaves", &ScriptOutcome::Passed), ("20-next", &ScriptOutcome::Passed)]
    );
    assert_eq!(stdout(&result.scripts[0]), "done\n");
    let notes = &result.scripts[0].notes;
    // Its name is still the script's if it has not come to its exec yet.
    let note = notes.first().expect("a note");
    assert!(
        note.starts_with("left running: ") && note.ends_with(&format!(" (process {child})")),
        "{notes:?}"
    );
    assert!(result.scripts[1].notes.is_empty());
}

/// A script that ignores TERM, with two grandchildren that do, too; all write their numbers.
fn stubborn(pids: &std::path::Path) -> String {
    let pids = pids.display();
    format!(
        "trap '' TERM\nfor i in 1 2; do sh -c 'sh -c \"echo \\$\\$ >>{pids}; exec sleep 1000\" & wait' & done\n\
         echo $$ >>{pids}\nwait"
    )
}

#[tokio::test]
async fn x8_a_script_that_ignores_term_is_gone_with_its_grandchildren_after_the_limit() {
    let hooks = Hooks::new();
    let pids = hooks.root().join("pids");
    // Longer than the start of five shells takes on a busy machine.
    hooks.script("10-stubborn", &format!("# HOOK_KILL_TIMEOUT=5s\n{}", stubborn(&pids)));
    hooks.script("20-next", "true");
    let result = hooks.run().await;
    let expected =
        [("10-stubborn", &ScriptOutcome::TimedOut { limit_ms: 5000 }), ("20-next", &ScriptOutcome::Passed)];
    assert_eq!(outcomes(&result), expected);
    let started = pids_in(&pids, 3);
    assert!(started.iter().all(|pid| !is_alive(*pid)), "{started:?}");
    assert!(result.scripts[0].duration_ms >= 5000 + 2000, "TERM came first, and 2 s of grace");
}

#[tokio::test]
async fn x8_term_comes_first_and_a_script_may_clean_up() {
    let hooks = Hooks::new();
    hooks.script(
        "10-x",
        "# HOOK_KILL_TIMEOUT=3000 ms\ntrap 'kill $!; echo cleaned; exit 0' TERM\nsleep 1000 &\nwait",
    );
    let result = hooks.run().await;
    let script = only(&result);
    assert_eq!(script.outcome, ScriptOutcome::TimedOut { limit_ms: 3000 }, "a late success is none");
    assert_eq!(stdout(script), "cleaned\n");
}

#[tokio::test]
async fn x8_a_background_job_in_a_group_of_its_own_is_ended_too() {
    let hooks = Hooks::new();
    let pids = hooks.root().join("pids");
    let pids_shown = pids.display();
    hooks.file(
        "10-x",
        &format!(
            "#!/bin/bash\n# HOOK_KILL_TIMEOUT=5s\nset -m\nsleep 1000 &\necho $! >{pids_shown}\nsleep 1000 & wait\n"
        ),
    );
    assert_eq!(only(&hooks.run().await).outcome, ScriptOutcome::TimedOut { limit_ms: 5000 });
    assert!(!is_alive(pids_in(&pids, 1)[0]));
}

#[tokio::test]
async fn x8_a_slow_script_gets_a_note_and_bad_limits_are_reported() {
    let hooks = Hooks::new();
    hooks.script("10-slow", "# HOOK_WARN_TIMEOUT=1ms\nsleep 0.05");
    hooks.script("20-bad", "# HOOK_KILL_TIMEOUT=5 fortnights");
    let result = hooks.run().await;
    assert!(result.scripts.iter().all(|script| script.outcome == ScriptOutcome::Passed), "{result:?}");
    let slow = &result.scripts[0].notes;
    assert!(slow.len() == 1 && slow[0].contains("longer than its warning limit of 1ms"), "{slow:?}");
    let bad = &result.scripts[1].notes;
    assert!(bad.len() == 1 && bad[0].starts_with("HOOK_KILL_TIMEOUT ignored"), "{bad:?}");
}

#[tokio::test]
async fn x8_the_clusters_bound_holds_for_a_scripts_own_limit() {
    let hooks = Hooks::new();
    hooks.script("10-x", "# HOOK_KILL_TIMEOUT=1 h\nexec sleep 1000");
    let request = request(Env::new(), HookPolicy { timeout_max_ms: 100, ..HookPolicy::default() });
    let result = hooks.run_with(&request, &Seen::default(), &CancellationToken::new()).await;
    assert_eq!(only(&result).outcome, ScriptOutcome::TimedOut { limit_ms: 100 });
}

#[tokio::test]
async fn x8_a_cancel_ends_the_group_and_the_directory() {
    let hooks = Arc::new(Hooks::new());
    let pids = hooks.root().join("pids");
    hooks.script("10-stubborn", &stubborn(&pids));
    hooks.script("20-next", "true");
    let (seen, cancel) = (Arc::new(Seen::default()), CancellationToken::new());
    let run = tokio::spawn({
        let (hooks, seen, cancel) = (Arc::clone(&hooks), Arc::clone(&seen), cancel.clone());
        async move { hooks.run_with(&request(Env::new(), HookPolicy::default()), &seen, &cancel).await }
    });
    let file = pids.clone();
    let started = tokio::task::spawn_blocking(move || pids_in(&file, 3)).await.unwrap();
    cancel.cancel();
    let result = run.await.unwrap();
    assert_eq!(outcomes(&result), [("10-stubborn", &ScriptOutcome::Ended)]);
    assert!(started.iter().all(|pid| !is_alive(*pid)), "{started:?}");
}

#[tokio::test]
async fn x8_a_run_canceled_before_its_scripts_is_no_success() {
    let hooks = Hooks::new();
    hooks.script("10-x", "true");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let result = hooks.run_with(&request(Env::new(), HookPolicy::default()), &Seen::default(), &cancel).await;
    assert_eq!(result.failure.as_deref(), Some("the run was ended before 10-x"));
    assert_eq!(result.scripts, []);
}

#[tokio::test]
async fn x9_what_cannot_be_executed_failed_and_the_report_says_why() {
    let hooks = Hooks::new();
    hooks.file("10-no-hash-bang", "exit 0\n");
    hooks.file("20-no-interpreter", "#!/no/such/interpreter -x\n");
    hooks.file("30-carriage-return", "#!/bin/sh\r\nexit 0\r\n");
    hooks.file("40-not-a-program", "#!/etc/passwd\n");
    hooks.file("50-empty", "");
    let source = probe().with_file_name("empty.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    compile(&source, &hooks.dir().join("60-no-loader"), &["-Wl,--dynamic-linker=/no/such/loader.so"]);
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(64, 0);
    let path = hooks.file("70-other-machine", "");
    fs::write(path, elf).unwrap();
    hooks.script("80-runs", "true");

    let result = hooks.run().await;
    let reasons = [
        "no program, and its first line names no interpreter by #!",
        "interpreter \"/no/such/interpreter\" not found",
        "interpreter \"/bin/sh\\r\" not found (the line ends with a carriage return)",
        "interpreter \"/etc/passwd\" may not be executed",
        "no program, and its first line names no interpreter by #!",
        "interpreter \"/no/such/loader.so\" not found",
        "the program's format is wrong for this machine",
    ];
    assert_eq!(result.scripts.len(), reasons.len() + 1);
    for (script, expected) in result.scripts.iter().zip(reasons) {
        let ScriptOutcome::NotExecutable { reason } = &script.outcome else {
            panic!("{}: {:?}", script.name, script.outcome);
        };
        assert!(reason.starts_with(expected), "{}: {reason}", script.name);
    }
    assert_eq!(result.scripts[7].outcome, ScriptOutcome::Passed, "the others run");
}

#[tokio::test]
async fn r1_exit_codes_and_signals_are_told_apart() {
    let hooks = Hooks::new();
    hooks.script("10-passes", "true");
    hooks.script("20-code", "exit 255");
    hooks.script("30-signal", "kill -SEGV $$");
    let result = hooks.run().await;
    let expected = [
        ("10-passes", &ScriptOutcome::Passed),
        ("20-code", &ScriptOutcome::Failed { code: 255 }),
        ("30-signal", &ScriptOutcome::Killed { signal: libc::SIGSEGV }),
    ];
    assert_eq!(outcomes(&result), expected);
}

#[tokio::test]
async fn r2_a_failed_script_stops_the_directory_only_where_the_cluster_says_so() {
    let hooks = Hooks::new();
    hooks.script("10-warns", "exit 40");
    hooks.script("20-fails", "exit 1");
    hooks.script("30-passes", "true");
    let strict = HookPolicy::default();
    let graded = HookPolicy { exit_codes: ExitCodes::Graded, ..HookPolicy::default() };
    for (policy, expected) in [
        (strict.clone(), 3),
        (HookPolicy { on_error: Some(OnError::Stop), ..strict }, 1),
        (graded.clone(), 2),
        (HookPolicy { on_error: Some(OnError::Continue), ..graded }, 3),
    ] {
        let request = request(Env::new(), policy);
        let result = hooks.run_with(&request, &Seen::default(), &CancellationToken::new()).await;
        assert_eq!(result.scripts.len(), expected, "{:?}", request.policy);
    }
}

#[tokio::test]
async fn r3_each_result_is_told_before_the_next_script_starts() {
    let hooks = Hooks::new();
    hooks.script("10-a", "exit 1");
    hooks.script("20-b", "true");
    let seen = Seen::default();
    hooks.run_with(&request(Env::new(), HookPolicy::default()), &seen, &CancellationToken::new()).await;
    assert_eq!(*seen.told.lock().unwrap(), ["started", "ended 10-a", "started", "ended 20-b"]);
}
