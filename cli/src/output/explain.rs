//! `gnt-hooks explain`: nodes, scripts in order and environments, for people and as JSON.

use std::collections::BTreeSet;

use muster_proto::v1::{EnvVariable, ExplainResponse, ExplainedNode, ExplainedPhase};
use serde_json::{Map, Value as Json, json};

use super::{
    text::visible_line,
    words::{self, phase},
};

/// Said of each operation that has placeholders.
const PLACEHOLDERS: &str =
    "Values in <angle brackets> are drawn when the operation is submitted, or known after it.\n";

/// An operation for people. What all nodes of a phase have in common is printed once.
pub(crate) fn explain_text(explained: &ExplainResponse) -> String {
    let title = format!("{}({})", explained.op_id, visible_line(&explained.target));
    let mut text = match &explained.prefix {
        Some(_) => format!("{title}: what would run now; nothing was run, locked or changed.\n"),
        None => format!(
            "{title} has no hooks of its own in interface version {}; global hooks run with every operation.\n",
            explained.hooks_version
        ),
    };
    if explained.prefix.is_none() && explained.phases.is_empty() {
        text += "There are none either: nothing would run.\n";
        return text;
    }
    for phase in &explained.phases {
        text.push('\n');
        text += &phase_text(phase, &explained.path);
    }
    if !explained.placeholders.is_empty() {
        text.push('\n');
        text += PLACEHOLDERS;
    }
    text
}

fn phase_text(explained: &ExplainedPhase, path: &str) -> String {
    let names: Vec<&str> = explained.nodes.iter().map(|node| node.node.as_str()).collect();
    let on = if names.is_empty() { "no node".to_owned() } else { names.join(", ") };
    let mut text = format!("{}: {} on {on}\n", phase(explained.phase()), explained.directory);
    for node in &explained.nodes {
        text += &node_text(node, &explained.directory);
    }
    let Some(first) = explained.nodes.first() else { return text };
    let pairs = |node: &ExplainedNode| -> BTreeSet<(String, String)> {
        node.env.iter().map(|variable| (variable.name.clone(), variable.value.clone())).collect()
    };
    let common = explained.nodes.iter().skip(1).fold(pairs(first), |common, node| &common & &pairs(node));
    text += &format!("  environment:\n    PATH={path}\n");
    text += &lines(&common);
    for node in &explained.nodes {
        let own = &pairs(node) - &common;
        if !own.is_empty() {
            text += &format!("  and on {}:\n{}", node.node, lines(&own));
        }
    }
    text
}

fn lines(variables: &BTreeSet<(String, String)>) -> String {
    variables.iter().map(|(name, value)| format!("    {name}={}\n", visible_line(value))).collect()
}

fn node_text(node: &ExplainedNode, directory: &str) -> String {
    let name = &node.node;
    if let Some(why) = &node.not_reached {
        return format!("  {name}: not reached: {}\n", visible_line(why));
    }
    let mut text = format!("  {name}: {}/{directory}\n", visible_line(&node.hooks_dir));
    if let Some(why) = &node.failure {
        text += &format!("    failed   {}\n", visible_line(why));
    }
    if node.r#unsafe {
        text += "    unsafe   others than root and the daemon's user can write the directory\n";
    }
    for explained in &node.scripts {
        let script = explained.script.clone().unwrap_or_default();
        let own: Vec<String> = explained.env.iter().map(|v| format!("{}={}", v.name, v.value)).collect();
        let remark = if script.r#unsafe {
            "  unsafe: others than root and the daemon's user can write it"
        } else {
            ""
        };
        let from = if script.from_cluster { "  of the cluster's set" } else { "" };
        text += &format!("    runs     {}  {}{from}{remark}\n", script.name, own.join(" "));
    }
    for entry in &node.skipped {
        let name = visible_line(&entry.name);
        text += &format!("    skipped  {name}  {}\n", words::skip_reason(entry.reason()));
    }
    if node.failure.is_none() && node.scripts.is_empty() {
        text += "    no scripts\n";
    }
    text
}

fn object<'a>(variables: impl Iterator<Item = &'a EnvVariable>, path: &str) -> Json {
    let path = ("PATH".to_owned(), json!(path));
    let all = variables.map(|variable| (variable.name.clone(), json!(variable.value)));
    Json::Object(Map::from_iter(std::iter::once(path).chain(all)))
}

/// An operation as JSON: every script with its whole environment.
pub(crate) fn explain_json(explained: &ExplainResponse) -> Json {
    let path = &explained.path;
    let phases = explained.phases.iter().map(|explained| {
        json!({
            "phase": phase(explained.phase()),
            "directory": explained.directory,
            "nodes": explained.nodes.iter().map(|node| node_json(node, path)).collect::<Vec<_>>(),
        })
    });
    json!({
        "operation": explained.op_id,
        "target": explained.target,
        "prefix": explained.prefix,
        "hooks_version": explained.hooks_version,
        "phases": phases.collect::<Vec<_>>(),
        "placeholders": explained.placeholders,
    })
}

fn node_json(node: &ExplainedNode, path: &str) -> Json {
    let scripts = node.scripts.iter().map(|explained| {
        let script = explained.script.clone().unwrap_or_default();
        json!({
            "name": script.name,
            "source": super::hooks::source(script.from_cluster),
            "unsafe": script.r#unsafe,
            "warn_after_ms": script.warn_timeout_ms,
            "kill_after_ms": script.kill_timeout_ms,
            "env": object(node.env.iter().chain(&explained.env), path),
        })
    });
    let skipped = node
        .skipped
        .iter()
        .map(|entry| json!({ "name": entry.name, "reason": words::skip_reason(entry.reason()) }));
    json!({
        "node": node.node,
        "not_reached": node.not_reached,
        "hooks_dir": node.hooks_dir,
        "failure": node.failure,
        "unsafe": node.r#unsafe,
        "scripts": scripts.collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
        "env": object(node.env.iter(), path),
    })
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::{ExplainedScript, HookPhase, HookScript, SkipReason, SkippedEntry};

    use super::*;

    fn variable(name: &str, value: &str) -> EnvVariable {
        EnvVariable { name: format!("GANETI_{name}"), value: value.to_owned() }
    }

    fn explained() -> ExplainResponse {
        let script = ExplainedScript {
            script: Some(HookScript {
                name: "10-check".to_owned(),
                kill_timeout_ms: 5000,
                ..HookScript::default()
            }),
            env: vec![variable("HOOK_KILL_TIMEOUT_S", "5")],
        };
        let node1 = ExplainedNode {
            node: "node1".to_owned(),
            hooks_dir: "/h".to_owned(),
            scripts: vec![script],
            skipped: vec![SkippedEntry { name: "x.sh".to_owned(), reason: SkipReason::BadName.into() }],
            env: vec![variable("HOST_NAME", "node1"), variable("JOB_REASON", "a\nb")],
            ..ExplainedNode::default()
        };
        let node2 = ExplainedNode {
            node: "node2".to_owned(),
            not_reached: Some("connection refused".to_owned()),
            env: vec![variable("HOST_NAME", "node2"), variable("JOB_REASON", "a\nb")],
            ..ExplainedNode::default()
        };
        let pre = ExplainedPhase {
            phase: HookPhase::Pre.into(),
            directory: "node-add-pre.d".to_owned(),
            nodes: vec![node1, node2],
        };
        let directory = "node-add-post.d".to_owned();
        let post = ExplainedPhase { phase: HookPhase::Post.into(), directory, nodes: Vec::new() };
        ExplainResponse {
            hooks_version: 1,
            op_id: "OP_ADD_NODE".to_owned(),
            target: "node4".to_owned(),
            prefix: Some("node-add".to_owned()),
            phases: vec![pre, post],
            placeholders: vec!["GANETI_JOB_ID".to_owned()],
            path: "/sbin:/bin".to_owned(),
        }
    }

    #[test]
    fn people_read_what_nodes_share_once() {
        let expected = "\
OP_ADD_NODE(node4): what would run now; nothing was run, locked or changed.

pre: node-add-pre.d on node1, node2
  node1: /h/node-add-pre.d
    runs     10-check  GANETI_HOOK_KILL_TIMEOUT_S=5
    skipped  x.sh  bad name
  node2: not reached: connection refused
  environment:
    PATH=/sbin:/bin
    GANETI_JOB_REASON=a\\nb
  and on node1:
    GANETI_HOST_NAME=node1
  and on node2:
    GANETI_HOST_NAME=node2

post: node-add-post.d on no node

Values in <angle brackets> are drawn when the operation is submitted, or known after it.
";
        assert_eq!(explain_text(&explained()), expected);
        let bare = ExplainResponse { prefix: None, hooks_version: 1, ..explained() };
        let title = "OP_ADD_NODE(node4) has no hooks of its own in interface version 1; global hooks run with every operation.\n";
        let text = explain_text(&bare);
        assert!(text.starts_with(title) && text.contains("runs     10-check"), "{text}");
        let none = ExplainResponse { phases: Vec::new(), ..bare };
        assert_eq!(explain_text(&none), format!("{title}There are none either: nothing would run.\n"));
    }

    #[test]
    fn programs_read_whole_environments() {
        let json = explain_json(&explained());
        let node = &json["phases"][0]["nodes"][0];
        let env = json!({
            "PATH": "/sbin:/bin",
            "GANETI_HOOK_KILL_TIMEOUT_S": "5",
            "GANETI_HOST_NAME": "node1",
            "GANETI_JOB_REASON": "a\nb",
        });
        assert_eq!(node["scripts"][0]["env"], env);
        assert_eq!(node["skipped"][0], json!({ "name": "x.sh", "reason": "bad name" }));
        assert_eq!(json["phases"][0]["nodes"][1]["not_reached"], "connection refused");
        assert_eq!(json["placeholders"], json!(["GANETI_JOB_ID"]));
        assert_eq!(json["hooks_version"], 1);
    }
}
