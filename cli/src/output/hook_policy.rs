//! What holds in single directories of hooks.

use muster_proto::v1::{AllowDeny, ExitCodes, HookPolicy, OnError};

use super::{
    fields::{Field, Value, field},
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
    field("phase_budget", "PhaseBudget", |row: &Row| limit(row.1.budget_ms)),
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
