//! `gnt-hooks list`: a row for each script, each skipped entry and each thing that is wrong.

use muster_proto::v1::{HookDirectory, HookScript, NodeHooks, SkipReason};

use super::{
    fields::{Field, Value, field},
    words,
};

/// The fields of `gnt-hooks list` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["node", "directory", "name", "source", "state", "detail"];

/// All fields of a row.
pub(crate) const FIELDS: &[Field<Row>] = &[
    field("node", "Node", |row: &Row| Value::text(&row.node)),
    field("directory", "Directory", |row: &Row| Value::text(&row.directory)),
    field("name", "Name", |row: &Row| Value::text(&row.name)),
    field("state", "State", |row: &Row| Value::text(row.state.word())),
    field("detail", "Detail", |row: &Row| Value::text(&row.detail)),
    field("unsafe", "Unsafe", |row: &Row| Value::Bool(row.writable_by_others)),
    field("warn_after", "WarnAfter", |row: &Row| Value::optional(row.warn_ms, Value::Span)),
    field("kill_after", "KillAfter", |row: &Row| Value::optional(row.kill_ms, Value::Span)),
    field("source", "Source", |row: &Row| Value::text(row.source)),
    field("hooks_dir", "HooksDir", |row: &Row| Value::text(&row.hooks_dir)),
];

/// One line of the listing.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    node: String,
    hooks_dir: String,
    directory: String,
    name: String,
    /// Whose it is, where it is a script.
    source: &'static str,
    state: State,
    detail: String,
    writable_by_others: bool,
    warn_ms: Option<u64>,
    kill_ms: Option<u64>,
}

/// What becomes of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    Skipped,
    Unused,
    Unsafe,
    Failed,
    NotReached,
    Nothing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Runs => "runs",
            State::Skipped => "skipped",
            State::Unused => "unused",
            State::Unsafe => "unsafe",
            State::Failed => "failed",
            State::NotReached => "not reached",
            State::Nothing => "no hooks",
        }
    }
}

/// The rows of one node.
pub(crate) fn rows(node: &NodeHooks) -> Vec<Row> {
    let hooks = node.hooks.clone().unwrap_or_default();
    let base = Row {
        node: node.node.clone(),
        hooks_dir: hooks.hooks_dir.clone(),
        directory: String::new(),
        name: String::new(),
        source: "",
        state: State::Nothing,
        detail: String::new(),
        writable_by_others: false,
        warn_ms: None,
        kill_ms: None,
    };
    let mut rows = Vec::new();
    if let Some(why) = &node.not_reached {
        rows.push(Row { state: State::NotReached, detail: why.clone(), ..base.clone() });
    }
    if let Some(why) = &hooks.failure {
        rows.push(Row { state: State::Failed, detail: why.clone(), ..base.clone() });
    }
    for directory in &hooks.directories {
        let unused = node.unused.iter().find(|unused| unused.name == directory.name).map(|unused| {
            let hint = match (&unused.nearest, unused.hooks_version) {
                (Some(nearest), _) => format!("; did you mean {nearest}?"),
                (None, Some(version)) => format!("; version {version} of the interface has it"),
                (None, None) => String::new(),
            };
            format!("no operation uses this directory{hint}")
        });
        let base = Row { directory: directory.name.clone(), ..base.clone() };
        rows.extend(directory_rows(directory, unused, &base));
    }
    if rows.is_empty() {
        rows.push(base);
    }
    rows
}

fn directory_rows(directory: &HookDirectory, unused: Option<String>, base: &Row) -> Vec<Row> {
    let mut rows = Vec::new();
    if let Some(why) = &directory.failure {
        rows.push(Row { state: State::Failed, detail: why.clone(), ..base.clone() });
    }
    if directory.r#unsafe {
        let detail = "others than root and the daemon's user can write the directory".to_owned();
        rows.push(Row { state: State::Unsafe, detail, writable_by_others: true, ..base.clone() });
    }
    if let Some(detail) = &unused {
        rows.push(Row { state: State::Unused, detail: detail.clone(), ..base.clone() });
    }
    rows.extend(directory.scripts.iter().map(|script| script_row(script, unused.is_some(), base)));
    rows.extend(directory.skipped.iter().map(|entry| Row {
        name: entry.name.clone(),
        // Of the others nobody needs to know: a set has hardly anything that is skipped.
        source: if entry.reason() == SkipReason::Shadowed { source(true) } else { "" },
        state: State::Skipped,
        detail: words::skip_reason(entry.reason()).to_owned(),
        ..base.clone()
    }));
    rows
}

/// Whose a script is: the node's own, or of the set that is the same on all nodes.
pub(crate) fn source(from_cluster: bool) -> &'static str {
    if from_cluster { "cluster" } else { "node" }
}

fn script_row(script: &HookScript, unused: bool, base: &Row) -> Row {
    let detail =
        if script.r#unsafe { "unsafe: others than root and the daemon's user can write it" } else { "" };
    Row {
        name: script.name.clone(),
        source: source(script.from_cluster),
        state: if unused { State::Unused } else { State::Runs },
        detail: detail.to_owned(),
        writable_by_others: script.r#unsafe,
        warn_ms: Some(script.warn_timeout_ms),
        kill_ms: Some(script.kill_timeout_ms),
        ..base.clone()
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::{ListHooksResponse, SkippedEntry, UnusedDirectory};

    use super::*;
    use crate::{args::ListFlags, output::fields::select};

    #[test]
    fn d3_d7_scripts_skips_unsafe_and_unused_directories() {
        let script = |name: &str, writable| HookScript {
            name: name.to_owned(),
            r#unsafe: writable,
            warn_timeout_ms: 30_000,
            kill_timeout_ms: 300_000,
            from_cluster: name == "20-b",
            own_limits: None,
        };
        let directory = |name: &str, scripts| HookDirectory {
            name: name.to_owned(),
            scripts,
            ..HookDirectory::default()
        };
        let directories = vec![
            HookDirectory {
                skipped: vec![SkippedEntry {
                    name: "x.disabled".into(),
                    reason: SkipReason::Disabled.into(),
                }],
                r#unsafe: true,
                ..directory("instance-add-pre.d", vec![script("10-check", false), script("20-b", true)])
            },
            directory("instnace-add-pre.d", vec![script("10-check", false)]),
        ];
        let nodes = [
            NodeHooks {
                node: "node1".into(),
                hooks: Some(ListHooksResponse { directories, ..ListHooksResponse::default() }),
                unused: vec![UnusedDirectory {
                    name: "instnace-add-pre.d".into(),
                    nearest: Some("instance-add-pre.d".into()),
                    hooks_version: None,
                }],
                not_reached: None,
            },
            NodeHooks {
                node: "node2".into(),
                not_reached: Some("connection refused".into()),
                ..NodeHooks::default()
            },
            NodeHooks { node: "node3".into(), ..NodeHooks::default() },
        ];
        let rows: Vec<Row> = nodes.iter().flat_map(rows).collect();
        let text = select(FIELDS, DEFAULT, &ListFlags::default()).unwrap().render(&rows).unwrap();
        let expected = "\
Node  Directory          Name       Source  State       Detail
node1 instance-add-pre.d -          -       unsafe      others than root and the daemon's user can write the directory
node1 instance-add-pre.d 10-check   node    runs        -
node1 instance-add-pre.d 20-b       cluster runs        unsafe: others than root and the daemon's user can write it
node1 instance-add-pre.d x.disabled -       skipped     disabled
node1 instnace-add-pre.d -          -       unused      no operation uses this directory; did you mean instance-add-pre.d?
node1 instnace-add-pre.d 10-check   node    unused      -
node2 -                  -          -       not reached connection refused
node3 -                  -          -       no hooks    -
";
        assert_eq!(text, expected);
    }
}
