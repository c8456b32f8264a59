//! Rows of a history, and which of them a filter takes.

use super::*;
use crate::{
    engine::{Effect, Engine, Input, Now},
    hooks::{Captured, HookResult, NotReached, SkipReason, Skipped},
    names::InstanceName,
    ops::{InstanceStart, Op, examples},
};

const NOW: Now = Now { wall_ms: 1_900_000_000_000, mono_ms: 5 };

fn script(name: &str, outcome: ScriptOutcome, duration_ms: u64) -> ScriptResult {
    let (stdout, stderr) = (Captured::default(), Captured::default());
    ScriptResult { name: name.to_owned(), outcome, duration_ms, stdout, stderr, notes: Vec::new() }
}

/// What a node says of the pre phase of a start of `db1`, whose nodes are node1, the master, and node3.
fn answer(node: &str) -> NodeAnswer {
    if node != "node1" {
        let why = NotReached { reason: "connection refused".to_owned() };
        let partial = vec![script("05-here", ScriptOutcome::Passed, 3)];
        return NodeAnswer::NotReached {
            why,
            partial: HookResult { scripts: partial, ..HookResult::default() },
        };
    }
    let scripts = vec![
        script("global-pre.d/01-all", ScriptOutcome::Passed, 7),
        script("10-no", ScriptOutcome::Failed { code: 3 }, 20),
        script("20-late", ScriptOutcome::TimedOut { limit_ms: 50 }, 52),
        script("30-never", ScriptOutcome::NotBegun { budget_ms: 60 }, 0),
    ];
    let skipped = Skipped { name: "README".to_owned(), reason: SkipReason::NotExecutable };
    NodeAnswer::Answered(HookResult { scripts, skipped: vec![skipped], ..HookResult::default() })
}

/// A denied start.
fn denied() -> Job {
    let cluster = examples::cluster();
    let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
    let instance = InstanceName::parse("db1").unwrap();
    let submission = examples::submission(7, Op::InstanceStart(InstanceStart { instance, force: false }));
    let mut effects = engine.handle(Input::Submit(Box::new(submission)), NOW).effects;
    while let Some(effect) = effects.pop() {
        let Effect::RunHooks(call) = effect else { continue };
        let answer = match call.id.step.as_str() {
            "pre" => answer(call.node.as_str()),
            _ => NodeAnswer::Answered(HookResult {
                scripts: vec![script("50-told", ScriptOutcome::Passed, 1)],
                ..HookResult::default()
            }),
        };
        let report = NodeReport { node: call.node.clone(), answer, duration_ms: 100 };
        let later = Now { wall_ms: NOW.wall_ms + 100, mono_ms: NOW.mono_ms + 100 };
        effects.extend(engine.handle(Input::HooksAnswered(call.id.clone(), report), later).effects);
    }
    engine.job(7).unwrap().clone()
}

fn line(run: &HookRun) -> String {
    let time = run.time_ms - NOW.wall_ms;
    let script = run.script.as_deref().unwrap_or("-");
    let duration = run.duration_ms.map_or("-".to_owned(), |ms| ms.to_string());
    format!("{time} {} {}/{script} {} {duration}", run.node, run.directory, run.outcome.as_str())
}

#[test]
fn each_script_and_each_silence_is_a_row() {
    let job = denied();
    let runs = hook_runs(&job);
    let pre: Vec<String> = runs.iter().filter(|run| run.phase == Phase::Pre).map(line).collect();
    let expected = [
        "0 node1 global-pre.d/01-all ok 7",
        "0 node1 instance-start-pre.d/README skipped -",
        "0 node3 instance-start-pre.d/05-here ok 3",
        "3 node3 instance-start-pre.d/- not reached -",
        "7 node1 instance-start-pre.d/10-no failed 20",
        "27 node1 instance-start-pre.d/20-late timeout 52",
        "79 node1 instance-start-pre.d/30-never not begun -",
    ];
    assert_eq!(pre, expected);
    let after: Vec<&HookRun> = runs.iter().filter(|run| run.phase != Phase::Pre).collect();
    assert!(!after.is_empty(), "scripts heard of the failure");
    for run in after {
        assert_eq!((run.directory.as_str(), run.phase), ("instance-start-failed.d", Phase::Failed));
    }
    let no = &runs.iter().find(|run| run.script.as_deref() == Some("10-no")).unwrap();
    assert_eq!((no.job, no.op_id, no.target.as_str()), (7, "OP_INSTANCE_START", "db1"));
    assert_eq!(no.detail, "exit code 3");
}

#[test]
fn a_filter_takes_what_all_of_its_parts_take() {
    let job = denied();
    let runs = hook_runs(&job);
    let count = |filter: &HistoryFilter| runs.iter().filter(|run| filter.takes(run)).count();
    assert_eq!(count(&HistoryFilter::default()), runs.len());
    let failed = HistoryFilter { failed: true, ..HistoryFilter::default() };
    assert_eq!(count(&failed), 4, "the exit code, the limit, the budget and the silence");
    let on = |node: &str| HistoryFilter { node: Some(NodeName::parse(node).unwrap()), ..failed.clone() };
    assert_eq!((count(&on("node1")), count(&on("node3")), count(&on("node9"))), (3, 1, 0));
    let named = |text: &str| {
        let script = Some(ScriptPattern::parse(text).unwrap());
        count(&HistoryFilter { script, ..HistoryFilter::default() })
    };
    assert_eq!((named("10-no"), named("instance-start-pre.d/10-no"), named("node-add-pre.d/*")), (1, 1, 0));
    assert_eq!((named("*-pre.d/*"), named("global-pre.d/01-*"), named("?0-n*")), (6, 1, 2));
    let since = |ms| count(&HistoryFilter { since_ms: Some(NOW.wall_ms + ms), ..failed.clone() });
    assert_eq!((since(0), since(4), since(80)), (4, 3, 0));
}

#[test]
fn patterns_are_over_a_name_or_over_directory_and_name() {
    let takes = |pattern: &str, directory: &str, script: &str| {
        ScriptPattern::parse(pattern).unwrap().takes(directory, script)
    };
    for (pattern, taken) in [
        ("10-check", true),
        ("10-*", true),
        ("*", true),
        ("**", true),
        ("*check", true),
        ("??-check", true),
        ("*e*k", true),
        ("node-add-pre.d/10-check", true),
        ("*/*", true),
        ("*-pre.d/10*", true),
        ("*add*/*check", true),
        ("10", false),
        ("?10-check", false),
        ("node-add-pre.d*", false),
        ("node-add-pre.d?10-check", false),
        ("node-add-post.d/*", false),
        ("*/", false),
    ] {
        assert_eq!(takes(pattern, "node-add-pre.d", "10-check"), taken, "{pattern}");
    }
    for wrong in ["", "a/b/c", "//", &"x".repeat(513)] {
        assert_eq!(ScriptPattern::parse(wrong), Err(PatternError), "{wrong}");
    }
    let hard = format!("{}b", "*a".repeat(200));
    assert!(!takes(&hard, "node-add-pre.d", &"a".repeat(250)));
}

#[test]
fn a_directory_has_a_prefix_and_a_phase() {
    for (name, expected) in [
        ("node-add-pre.d", Some(("node-add", Phase::Pre))),
        ("node-add-post.d", Some(("node-add", Phase::Post))),
        ("node-add-failed.d", Some(("node-add", Phase::Failed))),
        ("node-add", None),
        ("-pre.d", None),
        ("lib", None),
    ] {
        assert_eq!(phase_of(name), expected, "{name}");
    }
}
