//! What a run has beside its own directory: a global one, files, and a budget shared by all scripts.

use std::fs;
use std::time::{Duration, Instant};

use muster_core::hooks::{Env, HookPolicy, Phase, ScriptOutcome};
use muster_hooksrv::{DirectoryName, Extras, GlobalRequest, HookRequest};
use tokio_util::sync::CancellationToken;

use crate::support::{Hooks, Seen, executable, outcomes, request, stdout};

fn global(hooks: &Hooks, phase: Phase, name: &str, body: &str) -> GlobalRequest {
    let directory = DirectoryName::new("global", phase).unwrap();
    let dir = hooks.root().join("hooks").join(phase.directory("global"));
    fs::create_dir_all(&dir).unwrap();
    executable(dir.join(name), &format!("#!/bin/sh\n{body}\n"));
    GlobalRequest {
        directory,
        phase,
        env: Env::new().set("HOOKS_PATH", "global"),
        policy: HookPolicy::default(),
    }
}

async fn run(hooks: &Hooks, request: &HookRequest) -> muster_core::hooks::HookResult {
    hooks.run_with(request, &Seen::default(), &CancellationToken::new()).await
}

#[tokio::test]
async fn a_global_directory_runs_before_in_pre_and_after_else_with_its_own_variables() {
    let hooks = Hooks::new();
    hooks.script("10-own", "echo $GANETI_HOOKS_PATH");
    let env = || Env::new().set("HOOKS_PATH", "node-add");
    let pre = global(&hooks, Phase::Pre, "10-own", "echo $GANETI_HOOKS_PATH; exit 1");
    let mut asked = request(env(), HookPolicy::default());
    asked.extras = Extras { global: Some(pre), ..Extras::default() };
    let result = run(&hooks, &asked).await;
    let failed = ScriptOutcome::Failed { code: 1 };
    assert_eq!(outcomes(&result), [("global-pre.d/10-own", &failed), ("10-own", &ScriptOutcome::Passed)]);
    assert_eq!(result.scripts.iter().map(stdout).collect::<Vec<_>>(), ["global\n", "node-add\n"]);
    assert!(result.global_post_absent);

    let post = global(&hooks, Phase::Post, "10-own", "true");
    asked.extras = Extras { global: Some(post.clone()), ..Extras::default() };
    let result = run(&hooks, &asked).await;
    let names: Vec<&str> = outcomes(&result).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["10-own", "global-post.d/10-own"]);
    assert!(!result.global_post_absent);
    asked.extras.only_global = true;
    let result = run(&hooks, &asked).await;
    assert_eq!(outcomes(&result), [("global-post.d/10-own", &ScriptOutcome::Passed)]);
}

#[tokio::test]
async fn files_are_there_for_the_run_and_gone_after_it() {
    let hooks = Hooks::new();
    hooks.script("10-cat", "echo $GANETI_ERROR_MESSAGE_PATH; cat $GANETI_ERROR_MESSAGE_PATH");
    let mut asked = request(Env::new(), HookPolicy::default());
    asked.extras.files.insert("ERROR_MESSAGE_PATH".to_owned(), b"denied: \xff\n".to_vec());
    let result = run(&hooks, &asked).await;
    assert_eq!(result.failure, None);
    let said = result.scripts[0].stdout.head.clone();
    let end = said.iter().position(|byte| *byte == b'\n').unwrap();
    assert_eq!(said[end + 1..], *b"denied: \xff\n");
    let path = std::path::PathBuf::from(String::from_utf8(said[..end].to_vec()).unwrap());
    assert!(path.is_absolute() && !path.exists(), "{}", path.display());
}

#[tokio::test]
async fn r4_a_budget_is_shared_by_the_scripts_of_a_phase() {
    let hooks = Hooks::new();
    for number in 10..15 {
        hooks.script(&format!("{number}-hang"), "sleep 1000");
    }
    let policy = HookPolicy { kill_ms: 3_000, budget_ms: Some(7_000), ..HookPolicy::default() };
    // Two seconds are left for the end: the second script, begun after 3 s, is ended after 5 s.
    let begin = Instant::now();
    let result = run(&hooks, &request(Env::new(), policy)).await;
    let took = begin.elapsed();
    let limit = ScriptOutcome::TimedOut { limit_ms: 3_000 };
    let (over, not_begun) =
        (ScriptOutcome::OverBudget { budget_ms: 7_000 }, ScriptOutcome::NotBegun { budget_ms: 7_000 });
    let kinds: Vec<&ScriptOutcome> = outcomes(&result).into_iter().map(|(_, outcome)| outcome).collect();
    assert_eq!(kinds, [&limit, &over, &not_begun, &not_begun, &not_begun]);
    assert!(took < Duration::from_secs(30), "{took:?}");
}
