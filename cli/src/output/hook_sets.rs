//! `gnt-hooks sync` and `gnt-hooks diff`: a line for each node.

use muster_proto::v1::{HookSetNode, HookSetRead, NodeHookSet};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, field},
    text::{counted, visible_line},
};

/// Digits of a digest that are shown; the master's own number.
const SHORT_DIGITS: usize = 12;

/// A set's version for people: the first digits of its digest.
pub(crate) fn short(digest: &str) -> String {
    digest.chars().take(SHORT_DIGITS).collect()
}

/// What was read.
pub(crate) fn read_text(read: &HookSetRead) -> String {
    format!(
        "hook set {}: {}, {}\n",
        short(&read.digest),
        counted(u64::from(read.entries), "file"),
        counted(read.bytes, "byte"),
    )
}

/// A node's end.
pub(crate) fn node_text(node: &HookSetNode) -> String {
    let sent = format!(
        "{} with {} sent",
        counted(u64::from(node.files_sent), "file"),
        counted(node.bytes_sent, "byte")
    );
    let what = match (&node.refused, &node.not_reached, node.switched) {
        (Some(why), _, _) => format!("refused, keeps what it had ({sent}): {}", visible_line(why)),
        (None, Some(why), _) => {
            format!("not reached, gets it when it is back: {}", visible_line(why))
        }
        (None, None, true) => format!("uses it now, {sent}"),
        (None, None, false) => "uses it already".to_owned(),
    };
    format!("{}: {what}\n", node.node)
}

/// The same for programs.
pub(crate) fn node_json(node: &HookSetNode) -> Json {
    json!({
        "node": node.node,
        "switched": node.switched,
        "files_sent": node.files_sent,
        "bytes_sent": node.bytes_sent,
        "refused": node.refused,
        "not_reached": node.not_reached,
        "warnings": node.warnings,
    })
}

/// What a node's set is like, in a word.
pub(crate) fn state(node: &NodeHookSet) -> &'static str {
    match (&node.not_reached, &node.wanted, &node.used) {
        (Some(_), _, _) => "not reached",
        (None, None, None) => "none",
        (None, Some(_), None) => "missing",
        (None, wanted, used) if wanted != used => "other",
        (None, _, _) if !node.changed.is_empty() => "changed",
        (None, _, _) => "same",
    }
}

/// Whether a node has what it should, as far as is known.
pub(crate) fn is_right(node: &NodeHookSet) -> bool {
    matches!(state(node), "same" | "none")
}

/// The fields of `gnt-hooks diff` without `-o`.
pub(crate) const DEFAULT: &[&str] = &["node", "state", "wanted", "used", "detail"];

/// All fields of a row.
pub(crate) const FIELDS: &[Field<NodeHookSet>] = &[
    field("node", "Node", |node: &NodeHookSet| Value::text(&node.node)),
    field("state", "State", |node: &NodeHookSet| Value::text(state(node))),
    field("wanted", "Wanted", |node: &NodeHookSet| {
        Value::text(&short(node.wanted.as_deref().unwrap_or_default()))
    }),
    field("used", "Used", |node: &NodeHookSet| Value::text(&short(node.used.as_deref().unwrap_or_default()))),
    field("own", "Own", |node: &NodeHookSet| Value::Bool(node.own)),
    field("changed", "Changed", |node: &NodeHookSet| Value::List(node.changed.clone())),
    field("detail", "Detail", |node: &NodeHookSet| Value::text(&detail(node))),
];

fn detail(node: &NodeHookSet) -> String {
    let mut parts: Vec<String> = node.not_reached.iter().map(|why| visible_line(why)).collect();
    parts.extend(node.refused.iter().map(|why| format!("not taken: {}", visible_line(why))));
    parts.extend(node.changed.iter().map(|change| visible_line(change)));
    if node.own {
        parts.push("named in a sync: a set that is not the cluster's".to_owned());
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_node_says_what_travelled() {
        let node = HookSetNode { node: "node2".to_owned(), ..HookSetNode::default() };
        assert_eq!(node_text(&node), "node2: uses it already\n");
        let switched = HookSetNode { switched: true, files_sent: 1, bytes_sent: 18, ..node.clone() };
        assert_eq!(node_text(&switched), "node2: uses it now, 1 file with 18 bytes sent\n");
        let refused = HookSetNode { refused: Some("no".to_owned()), ..node.clone() };
        assert_eq!(
            node_text(&refused),
            "node2: refused, keeps what it had (0 files with 0 bytes sent): no\n"
        );
        let silent = HookSetNode { not_reached: Some("connection refused".to_owned()), ..node };
        assert_eq!(node_text(&silent), "node2: not reached, gets it when it is back: connection refused\n");
    }

    #[test]
    fn a_state_in_a_word() {
        let node = |wanted: Option<&str>, used: Option<&str>| NodeHookSet {
            wanted: wanted.map(str::to_owned),
            used: used.map(str::to_owned),
            ..NodeHookSet::default()
        };
        for (wanted, used, word) in [
            (None, None, "none"),
            (Some("a"), None, "missing"),
            (Some("a"), Some("b"), "other"),
            (None, Some("b"), "other"),
            (Some("a"), Some("a"), "same"),
        ] {
            assert_eq!(state(&node(wanted, used)), word);
        }
        let changed =
            NodeHookSet { changed: vec!["lib/x: missing".to_owned()], ..node(Some("a"), Some("a")) };
        assert_eq!((state(&changed), is_right(&changed)), ("changed", false));
        assert_eq!(detail(&changed), "lib/x: missing");
        assert!(DEFAULT.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)));
    }
}
