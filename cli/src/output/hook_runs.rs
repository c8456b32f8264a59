//! What hook scripts did, in listings; and the end of one that was run again.

use muster_proto::v1::{HookPhase, HookRun, RunAgainDone, ScriptClass};
use serde_json::{Value as Json, json};

use super::{
    denial::script_text,
    fields::{Field, Value, field},
    scripts::script_json,
    text::visible_line,
    words,
};
use crate::args::RunFlags;

/// The fields of `gnt-hooks history` without `-o`.
pub(crate) const DEFAULT: &[&str] =
    &["time", "job", "op_id", "node", "directory", "script", "outcome", "duration"];

/// All fields of a row.
pub(crate) const FIELDS: &[Field<HookRun>] = &[
    field("time", "Time", |run: &HookRun| Value::Time(run.time_ms)),
    field("job", "Job", |run: &HookRun| Value::number(run.job_id)),
    field("op_id", "OpID", |run: &HookRun| Value::text(&run.op_id)),
    field("target", "Target", |run: &HookRun| Value::text(&run.target)),
    field("phase", "Phase", |run: &HookRun| Value::text(phase(run.phase()))),
    field("node", "Node", |run: &HookRun| Value::text(&run.node)),
    field("directory", "Directory", |run: &HookRun| Value::text(&run.directory)),
    field("script", "Script", |run: &HookRun| Value::text(run.script())),
    field("outcome", "Outcome", |run: &HookRun| Value::text(&run.outcome)),
    field("detail", "Detail", |run: &HookRun| Value::text(&run.detail)),
    field("duration", "Duration", |run: &HookRun| Value::optional(run.duration_ms, Value::Span)),
];

/// Of a directory.
fn phase(phase: HookPhase) -> &'static str {
    match phase {
        HookPhase::Failed => "failed",
        known @ (HookPhase::Unspecified | HookPhase::Pre | HookPhase::Post) => words::phase(known),
    }
}

/// Whether the script's end is an error where it ran.
pub(crate) fn is_error(done: &RunAgainDone) -> bool {
    match done.class() {
        ScriptClass::Success | ScriptClass::Warning => false,
        ScriptClass::Error | ScriptClass::Unspecified => true,
    }
}

/// A script's end for people.
pub(crate) fn done_text(flags: &RunFlags, done: &RunAgainDone) -> String {
    let script = done.script.clone().unwrap_or_default();
    format!(
        "{}: {}/{}for job {}: {}\n",
        flags.node,
        flags.script.directory,
        script_text(&script, &flags.node),
        flags.from_job,
        visible_line(&done.meaning)
    )
}

/// The same as JSON.
pub(crate) fn done_json(flags: &RunFlags, notes: &[String], done: &RunAgainDone) -> Json {
    let class = match done.class() {
        ScriptClass::Success => "success",
        ScriptClass::Warning => "warning",
        ScriptClass::Error => "error",
        ScriptClass::Unspecified => "?",
    };
    json!({
        "node": flags.node,
        "directory": flags.script.directory,
        "job": flags.from_job,
        "script": done.script.as_ref().map(script_json),
        "class": class,
        "meaning": done.meaning,
        "notes": notes,
    })
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::ScriptOutcome;
    use muster_proto::v1::{Captured, ScriptResult};

    use super::*;
    use crate::{
        args::{AsJson, ListFlags, ScriptPath},
        output::fields::select,
    };

    fn done() -> (RunFlags, RunAgainDone) {
        let path = ScriptPath { directory: "node-add-pre.d".to_owned(), script: "10-a".to_owned() };
        let flags = RunFlags { node: "node2".to_owned(), script: path, from_job: 7, json: AsJson::default() };
        let script = ScriptResult {
            name: "10-a".to_owned(),
            outcome: Some(ScriptOutcome::Failed { code: 3 }.into()),
            duration_ms: 12,
            stdout: Some(Captured { head: b"no\n".to_vec(), total_bytes: 3, ..Captured::default() }),
            ..ScriptResult::default()
        };
        let meaning = "it would have denied the operation".to_owned();
        (flags, RunAgainDone { script: Some(script), class: ScriptClass::Error.into(), meaning })
    }

    #[test]
    fn an_end_says_what_it_would_have_meant() {
        let (flags, done) = done();
        let text = done_text(&flags, &done);
        assert!(text.starts_with("node2: node-add-pre.d/10-a: exit code 3, after 12 ms\n"), "{text}");
        assert!(text.contains("    stdout | no\n"), "{text}");
        assert!(text.ends_with("for job 7: it would have denied the operation\n"), "{text}");
        assert!(is_error(&done));
        let json = done_json(&flags, &["a note".to_owned()], &done);
        assert_eq!((&json["class"], &json["script"]["outcome"]["code"]), (&json!("error"), &json!(3)));
        assert_eq!((&json["notes"], &json["job"]), (&json!(["a note"]), &json!(7)));
    }

    #[test]
    fn rows_of_a_history() {
        let run = HookRun {
            job_id: 7,
            time_ms: 0,
            op_id: "OP_ADD_NODE".to_owned(),
            target: "node4".to_owned(),
            phase: HookPhase::Pre.into(),
            node: "node2".to_owned(),
            directory: "node-add-pre.d".to_owned(),
            script: Some("10-a".to_owned()),
            outcome: "failed".to_owned(),
            detail: "exit code 3".to_owned(),
            duration_ms: Some(12),
        };
        let silent =
            HookRun { script: None, outcome: "not reached".to_owned(), duration_ms: None, ..run.clone() };
        let text = select(FIELDS, DEFAULT, &ListFlags::default()).unwrap().render(&[run, silent]).unwrap();
        let expected = "\
Time                 Job OpID        Node  Directory      Script Outcome     Duration
1970-01-01T00:00:00Z   7 OP_ADD_NODE node2 node-add-pre.d 10-a   failed         12 ms
1970-01-01T00:00:00Z   7 OP_ADD_NODE node2 node-add-pre.d -      not reached        -
";
        assert_eq!(text, expected);
    }
}
