//! What holds in single directories of hooks.

use muster_proto::v1::{AllowDeny, ExitCodes, HookPolicy, OnError};

use serde_json::Value as Json;

use super::{
    fields::{Field, Value, field, whole_object},
    words,
};

/// A row of the table.
pub(crate) type Row = (String, HookPolicy);

/// The fields without `-o`.
pub(crate) const DEFAULT: &[&str] = &[
    "directory",
    "exit_codes",
    "on_error",
    "unreachable",
    "timeout",
    "warn_limit",
    "kill_limit",
    "phase_budget",
];

/// All fields; what is as the cluster's parameters have it is empty.
pub(crate) const FIELDS: &[Field<Row>] = &[
    field("directory", "Directory", |row: &Row| Value::text(&row.0)),
    field("exit_codes", "ExitCodes", |row: &Row| match row.1.exit_codes() {
        ExitCodes::Unspecified => Value::Absent,
        known @ (ExitCodes::Strict | ExitCodes::Graded) => Value::text(words::exit_codes(known)),
    }),
    field("on_error", "OnError", |row: &Row| match row.1.on_error() {
        OnError::Unspecified => Value::Absent,
        known @ (OnError::Continue | OnError::Stop) => Value::text(words::on_error(known)),
    }),
    field("unreachable", "Unreachable", |row: &Row| allow_deny(row.1.unreachable())),
    field("timeout", "Timeout", |row: &Row| allow_deny(row.1.timeout())),
    field("warn_limit", "WarnLimit", |row: &Row| limit(row.1.warn_ms)),
    field("kill_limit", "KillLimit", |row: &Row| limit(row.1.kill_ms)),
    field("phase_budget", "PhaseBudget", |row: &Row| match row.1.budget_ms {
        // None, whatever the cluster has.
        Some(0) => Value::text("none"),
        ms => limit(ms),
    }),
];

fn allow_deny(value: AllowDeny) -> Value {
    match value {
        AllowDeny::Unspecified => Value::Absent,
        known @ (AllowDeny::Allow | AllowDeny::Deny) => Value::text(words::allow_deny(known)),
    }
}

fn limit(ms: Option<u64>) -> Value {
    Value::optional(ms, Value::Span)
}

/// The rows, by directory.
pub(crate) fn rows(policy: HookPolicy) -> Vec<Row> {
    let mut rows: Vec<Row> = policy.directories.into_iter().collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows
}

/// What is set for each directory, for `gnt-cluster info --json`.
pub(crate) fn by_directory(policy: HookPolicy) -> Json {
    let object = |row: Row| {
        let mut set = whole_object(FIELDS, &row);
        set.retain(|name, value| name != "directory" && !value.is_null());
        (row.0, Json::Object(set))
    };
    Json::Object(rows(policy).into_iter().map(object).collect())
}

/// The directories' names, for people: what is set there is shown by `gnt-hooks policy list`.
pub(crate) fn directories(policy: HookPolicy) -> String {
    let names: Vec<String> = rows(policy).into_iter().map(|(name, _)| name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_set_for_single_directories_is_told() {
        let own = HookPolicy { kill_ms: Some(7_000), ..HookPolicy::default() };
        let mut policy = HookPolicy::default();
        assert_eq!(
            (by_directory(policy.clone()), directories(policy.clone())),
            (json!({}), "none".to_owned())
        );
        policy.directories.insert("node-add-pre.d".to_owned(), own);
        assert_eq!(by_directory(policy.clone()), json!({ "node-add-pre.d": { "kill_limit": 7.0 } }));
        assert_eq!(directories(policy), "node-add-pre.d");
    }
}
