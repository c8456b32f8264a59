//! Results of hook scripts: one in words, one in a cell, one in JSON.

use muster_core::hooks::ScriptOutcome;
use muster_proto::v1::{Captured, NodeReport, Objection, ScriptResult};
use serde_json::{Value as Json, json};

use super::{
    text::{captured, is_cut},
    words,
};

/// A script's outcome, parsed; `None` for a kind that this program does not know.
fn outcome(script: &ScriptResult) -> Option<ScriptOutcome> {
    script.outcome.clone().and_then(|outcome| ScriptOutcome::try_from(outcome).ok())
}

/// The outcome in words: `exit code 3`.
pub(crate) fn outcome_text(script: &ScriptResult) -> String {
    outcome(script)
        .map_or_else(|| "of a kind that this program does not know".to_owned(), |known| known.text())
}

/// The outcome in a cell of a table.
pub(crate) fn outcome_cell(script: &ScriptResult) -> String {
    use ScriptOutcome as O;
    match outcome(script) {
        None => "?".to_owned(),
        Some(O::Passed) => "ok".to_owned(),
        Some(O::Failed { code }) => format!("exit {code}"),
        Some(O::Killed { signal }) => format!("signal {signal}"),
        Some(O::TimedOut { .. }) => "time limit".to_owned(),
        Some(O::OverBudget { .. }) => "over budget".to_owned(),
        Some(O::NotBegun { .. }) => "not begun".to_owned(),
        Some(O::NotExecutable { .. }) => "not executable".to_owned(),
        Some(O::OutputTooLarge { .. }) => "too much output".to_owned(),
        Some(O::Ended) => "ended".to_owned(),
        Some(O::Lost) => "lost".to_owned(),
    }
}

/// A script's result as JSON.
pub(crate) fn script_json(script: &ScriptResult) -> Json {
    let mut how = match outcome(script).map(serde_json::to_value) {
        Some(Ok(known)) => known,
        Some(Err(_)) | None => json!({ "kind": "unknown" }),
    };
    how["text"] = json!(outcome_text(script));
    json!({
        "name": script.name,
        "outcome": how,
        "duration_ms": script.duration_ms,
        "stdout": captured_json(script.stdout.as_ref()),
        "stderr": captured_json(script.stderr.as_ref()),
        "notes": script.notes,
    })
}

fn captured_json(output: Option<&Captured>) -> Json {
    output.map_or(Json::Null, |output| {
        json!({
            "text": captured(output),
            "cut": is_cut(output),
            "total_bytes": output.total_bytes,
            "path": output.path,
        })
    })
}

/// A node's part in a phase as JSON.
pub(crate) fn report_json(report: &NodeReport) -> Json {
    let result = report.result.clone().unwrap_or_default();
    let skipped = result
        .skipped
        .iter()
        .map(|entry| json!({ "name": entry.name, "reason": words::skip_reason(entry.reason()) }));
    json!({
        "node": report.node,
        "duration_ms": report.duration_ms,
        "not_reached": report.not_reached,
        "lost": report.lost,
        "failure": result.failure,
        "scripts": result.scripts.iter().map(script_json).collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
    })
}

/// A reason to deny as JSON.
pub(crate) fn objection_json(objection: &Objection) -> Json {
    json!({
        "node": objection.node,
        "script": objection.script.as_ref().map(script_json),
        "reason": objection.reason,
    })
}
