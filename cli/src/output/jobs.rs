//! Jobs in listings and in JSON.

use muster_proto::v1::{BlockedCall, Dependency, Job, LogLine};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, alias, field, whole_object},
    scripts::{objection_json, report_json},
    text::{rfc3339, visible},
    words,
};

/// The fields of `gnt-job list` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["id", "status", "summary"];

/// All fields of a job.
pub(crate) const FIELDS: &[Field<Job>] = &[
    field("id", "ID", |job: &Job| Value::number(job.id)),
    field("status", "Status", |job: &Job| Value::text(words::status(job.status()))),
    field("summary", "Summary", |job: &Job| Value::text(&job.summary)),
    field("op_id", "OpID", |job: &Job| Value::text(&job.op_id)),
    alias("ops", "OpCodes", |job: &Job| Value::List(vec![job.op_id.clone()])),
    field("uuid", "UUID", |job: &Job| Value::text(&job.uuid)),
    field("user", "User", |job: &Job| Value::text(&job.user)),
    field("reason", "Reason", |job: &Job| Value::text(&job.reason)),
    field("dry_run", "DryRun", |job: &Job| Value::Bool(job.dry_run)),
    field("received_ts", "Received", |job: &Job| Value::Time(job.submitted_ms)),
    field("start_ts", "Start", |job: &Job| Value::optional(job.started_ms, Value::Time)),
    field("end_ts", "End", |job: &Job| Value::optional(job.ended_ms, Value::Time)),
    field("phase", "Phase", |job: &Job| Value::text(&job.phase)),
    field("waiting_for", "WaitingFor", |job: &Job| Value::text(&job.waiting_for)),
    field("priority", "Priority", |job: &Job| Value::number(job.priority)),
    field("depends", "Depends", depends),
    field("parent", "Parent", |job: &Job| match job.parent_job {
        0 => Value::Absent,
        parent => Value::number(parent),
    }),
    field("children", "Children", children),
    field("killed", "Killed", |job: &Job| Value::Bool(job.killed)),
    field("committed", "Committed", |job: &Job| Value::Bool(job.committed)),
    field("blocked", "Blocked", blocked),
    field("archived", "Archived", |job: &Job| Value::Bool(job.archived)),
    field("error", "Error", error),
];

/// For example `12:success 13:error,canceled`.
fn depends(job: &Job) -> Value {
    if job.depends.is_empty() {
        return Value::Parts("-".to_owned(), json!([]));
    }
    let states = |dependency: &Dependency| -> Vec<&str> { dependency.endings().map(words::ending).collect() };
    let texts: Vec<String> = job
        .depends
        .iter()
        .map(|dependency| format!("{}:{}", dependency.job, states(dependency).join(",")))
        .collect();
    let whole: Vec<Json> = job
        .depends
        .iter()
        .map(|dependency| json!({ "job": dependency.job, "states": states(dependency) }))
        .collect();
    Value::Parts(texts.join(" "), Json::Array(whole))
}

/// The jobs that its commit asked for.
fn children(job: &Job) -> Value {
    let texts: Vec<String> = job.child_jobs.iter().map(ToString::to_string).collect();
    let text = if texts.is_empty() { "-".to_owned() } else { texts.join(",") };
    Value::Parts(text, json!(job.child_jobs))
}

fn blocked(job: &Job) -> Value {
    job.blocked.as_ref().map_or(Value::Absent, |call| {
        let whole = json!({ "step": call.step, "node": call.node, "locks": call.locks });
        Value::Parts(blocked_text(call), whole)
    })
}

/// For example `stop guest web1 on node2`.
pub(crate) fn blocked_text(call: &BlockedCall) -> String {
    place_text(&call.step, &call.node)
}

/// A call and where it goes; its own words may name the node already.
pub(crate) fn place_text(step: &str, node: &str) -> String {
    if node.is_empty() || step.contains(node) { step.to_owned() } else { format!("{step} on {node}") }
}

fn error(job: &Job) -> Value {
    job.error.as_ref().map_or(Value::Absent, |error| {
        let kind = words::error_kind(error.kind());
        let whole = json!({
            "kind": kind,
            "message": error.message,
            "objections": error.objections.iter().map(objection_json).collect::<Vec<_>>(),
        });
        Value::Parts(format!("{kind}: {}", error.message), whole)
    })
}

/// Everything of a job as JSON.
pub(crate) fn job_json(job: &Job) -> Json {
    let mut object = whole_object(FIELDS, job);
    let timings = job.timings.unwrap_or_default();
    let rest = json!({
        "pre": job.pre.iter().map(report_json).collect::<Vec<_>>(),
        "post": job.post.iter().map(report_json).collect::<Vec<_>>(),
        "pre_nodes": job.pre_nodes,
        "post_nodes": job.post_nodes,
        "log": job.log.iter().map(log_json).collect::<Vec<_>>(),
        "timings": {
            "locks_ms": timings.locks_ms,
            "pre_ms": timings.pre_ms,
            "steps_ms": timings.steps_ms,
            "commit_ms": timings.commit_ms,
            "post_ms": timings.post_ms,
        },
        "failed_undos": job.failed_undos.iter().map(|undo| json!({
            "step": undo.step, "node": undo.node, "error": undo.error, "made_good": undo.made_good,
        })).collect::<Vec<_>>(),
        "result": job.result,
        "env": job.env,
    });
    if let Json::Object(rest) = rest {
        object.extend(rest);
    }
    Json::Object(object)
}

fn log_json(line: &LogLine) -> Json {
    json!({ "time": rfc3339(line.time_ms), "level": words::level(line.level()), "text": line.text })
}

/// What an operation answered, for stdout: a line for each value.
pub(crate) fn result_text(job: &Job) -> String {
    let mut results: Vec<_> = job.result.iter().collect();
    results.sort();
    results.iter().map(|(name, value)| format!("{name}: {}\n", visible(value))).collect()
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::{ErrorKind, FailedUndo, JobError, Timings};

    use super::*;
    use crate::output::denial::tests::denied;

    #[test]
    fn a_denied_job_in_json_has_every_objection() {
        let job = Job {
            log: vec![LogLine { time_ms: 0, level: 3, text: "w".to_owned() }],
            timings: Some(Timings { pre_ms: Some(41), ..Timings::default() }),
            submitted_ms: 1,
            ..denied()
        };
        let value = job_json(&job);
        assert_eq!(value["id"], json!(17));
        assert_eq!(value["status"], json!("error"));
        assert_eq!(value["error"]["kind"], json!("denied"));
        assert_eq!(value["error"]["objections"].as_array().unwrap().len(), 4);
        let script = &value["error"]["objections"][0]["script"];
        assert_eq!(script["outcome"], json!({"kind": "failed", "code": 3, "text": "exit code 3"}));
        assert_eq!(script["stdout"]["text"], json!("asked\nfor web1\n"));
        assert_eq!(script["stdout"]["cut"], json!(false));
        assert_eq!(value["error"]["objections"][2]["script"]["stdout"]["cut"], json!(true));
        assert_eq!(value["error"]["objections"][3]["script"], Json::Null);
        assert_eq!(value["received_ts"], json!("1970-01-01T00:00:00.001Z"));
        assert_eq!(value["end_ts"], Json::Null);
        assert_eq!(value["timings"]["pre_ms"], json!(41));
        assert_eq!(value["timings"]["post_ms"], Json::Null);
        assert_eq!(value["log"][0], json!({"time": "1970-01-01T00:00:00Z", "level": "warning", "text": "w"}));
    }

    #[test]
    fn a_killed_and_blocked_job_in_json() {
        let call = BlockedCall {
            step: "stop guest web1".to_owned(),
            node: "node2".to_owned(),
            locks: vec!["instance:web1".to_owned()],
        };
        let job = Job {
            status: 5,
            killed: true,
            blocked: Some(call),
            depends: vec![Dependency { job: 12, endings: vec![1, 3] }],
            priority: -20,
            parent_job: 7,
            failed_undos: vec![FailedUndo { made_good: true, ..FailedUndo::default() }],
            ..Job::default()
        };
        let value = job_json(&job);
        assert_eq!((&value["killed"], &value["committed"]), (&json!(true), &json!(false)));
        assert_eq!(
            value["blocked"],
            json!({"step": "stop guest web1", "node": "node2", "locks": ["instance:web1"]})
        );
        assert_eq!(value["depends"], json!([{"job": 12, "states": ["success", "canceled"]}]));
        assert_eq!((&value["priority"], &value["parent"]), (&json!(-20), &json!(7)));
        assert_eq!(value["failed_undos"][0]["made_good"], json!(true));
        let value = job_json(&Job::default());
        assert_eq!((&value["killed"], &value["archived"]), (&json!(false), &json!(false)));
        assert_eq!((&value["blocked"], &value["parent"]), (&Json::Null, &Json::Null));
        assert_eq!(value["depends"], json!([]));
    }

    #[test]
    fn every_status_has_its_word() {
        for (number, word) in [
            (1, "queued"),
            (2, "waiting"),
            (3, "running"),
            (4, "canceling"),
            (5, "canceled"),
            (6, "success"),
            (7, "error"),
        ] {
            let job = Job { status: number, ..Job::default() };
            assert_eq!(job_json(&job)["status"], json!(word));
        }
        for (number, word) in [(1, "refused"), (2, "denied"), (3, "failed"), (4, "interrupted")] {
            assert_eq!(words::error_kind(ErrorKind::try_from(number).unwrap()), word);
            let error = JobError { kind: number, message: "m".to_owned(), objections: Vec::new() };
            let job = Job { error: Some(error), ..Job::default() };
            assert_eq!(job_json(&job)["error"]["kind"], json!(word));
        }
    }
}
