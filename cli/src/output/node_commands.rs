//! What commands said on nodes, and which nodes got a file.

use muster_proto::v1::{
    CommandResult, CopyFileResult, NodeCommandResult, command_result::End,
    node_command_result::Result as Answer,
};
use serde_json::{Value as Json, json};

use super::text::{counted, visible, visible_line};

/// Stands above each node's output.
const RULE: &str = "------------------------------------------------";
/// What a shell adds to the number of the signal that ended a command.
const SIGNAL_CODE: i32 = 128;

/// The exit status, as a shell would give it; none where the command gave none.
fn return_code(result: &CommandResult) -> Option<i64> {
    match result.end.as_ref()? {
        End::ExitCode(code) => Some(i64::from(*code)),
        End::Signal(signal) => Some(i64::from(SIGNAL_CODE + signal)),
        End::TimedOut(_) | End::OutputLimit(_) | End::NotStarted(_) => None,
    }
}

/// How a command ended, in a line.
fn ended(result: &CommandResult) -> String {
    match &result.end {
        Some(End::ExitCode(code)) => format!("return code = {code}"),
        Some(End::Signal(signal)) => format!("return code = {} (signal {signal})", SIGNAL_CODE + signal),
        Some(End::TimedOut(_)) => "ended at its time limit".to_owned(),
        Some(End::OutputLimit(_)) => "ended: its output was too long".to_owned(),
        Some(End::NotStarted(why)) => format!("not started: {}", visible_line(why)),
        None => "ended in a way that this version does not know".to_owned(),
    }
}

/// Whether a node gave a return code.
pub(crate) fn has_answered(result: &NodeCommandResult) -> bool {
    match &result.result {
        Some(Answer::Done(done)) => return_code(done).is_some(),
        Some(Answer::Failure(_)) | None => false,
    }
}

/// All that is said of one node, without its name.
fn body(result: &NodeCommandResult) -> String {
    match &result.result {
        Some(Answer::Failure(why)) => format!("no answer: {}\n", visible_line(why)),
        None => "no answer\n".to_owned(),
        Some(Answer::Done(done)) => {
            let mut text = visible(&String::from_utf8_lossy(&done.output));
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let kept = u64::try_from(done.output.len()).unwrap_or(u64::MAX);
            let cut = done.output_bytes.saturating_sub(kept);
            if cut > 0 {
                text += &format!("({} more not shown)\n", counted(cut, "byte"));
            }
            text + &ended(done) + "\n"
        }
    }
}

/// The results for people, each node's by itself.
pub(crate) fn text(results: &[NodeCommandResult]) -> String {
    results.iter().map(|result| format!("{RULE}\nnode: {}\n{}", result.node, body(result))).collect()
}

/// The same, with equal ones shown once.
pub(crate) fn folded(results: &[NodeCommandResult]) -> String {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for result in results {
        let body = body(result);
        match groups.iter_mut().find(|(known, _)| *known == body) {
            Some((_, nodes)) => nodes.push(&result.node),
            None => groups.push((body, vec![&result.node])),
        }
    }
    let title = |nodes: &[&str]| {
        let noun = if nodes.len() == 1 { "node" } else { "nodes" };
        format!("{noun}: {}", nodes.join(", "))
    };
    groups.iter().map(|(body, nodes)| format!("{RULE}\n{}\n{body}", title(nodes))).collect()
}

/// The results as JSON.
pub(crate) fn json(results: &[NodeCommandResult]) -> Json {
    let row = |result: &NodeCommandResult| match &result.result {
        Some(Answer::Done(done)) => json!({
            "node": result.node,
            "output": String::from_utf8_lossy(&done.output),
            "output_bytes": done.output_bytes,
            "return_code": return_code(done),
            "ended": ended(done),
            "failure": Json::Null,
        }),
        Some(Answer::Failure(why)) => {
            json!({ "node": result.node, "return_code": Json::Null, "failure": why })
        }
        None => json!({ "node": result.node, "return_code": Json::Null, "failure": "no answer" }),
    };
    Json::Array(results.iter().map(row).collect())
}

/// Which nodes got a file, for people.
pub(crate) fn copied_text(path: &str, results: &[CopyFileResult]) -> String {
    let line = |result: &CopyFileResult| {
        let what = match &result.failure {
            None => "copied".to_owned(),
            Some(why) => format!("not copied: {}", visible_line(why)),
        };
        format!("{}: {}: {what}\n", result.node, visible_line(path))
    };
    results.iter().map(line).collect()
}

/// The same as JSON.
pub(crate) fn copied_json(path: &str, results: &[CopyFileResult]) -> Vec<Json> {
    let row =
        |result: &CopyFileResult| json!({ "node": result.node, "path": path, "failure": result.failure });
    results.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(node: &str, output: &str, output_bytes: u64, end: End) -> NodeCommandResult {
        let done = CommandResult { output: output.as_bytes().to_vec(), output_bytes, end: Some(end) };
        NodeCommandResult { node: node.to_owned(), result: Some(Answer::Done(done)) }
    }

    fn results() -> [NodeCommandResult; 4] {
        [
            done("node1", "hello\n", 6, End::ExitCode(0)),
            done("node2", "hello\n", 6, End::ExitCode(0)),
            done("node3", "a\u{1b}b", 1003, End::Signal(9)),
            NodeCommandResult {
                node: "node4".to_owned(),
                result: Some(Answer::Failure("silent".to_owned())),
            },
        ]
    }

    #[test]
    fn each_node_has_its_output_and_its_return_code() {
        let text = text(&results());
        assert!(
            text.starts_with(&format!("{RULE}\nnode: node1\nhello\nreturn code = 0\n{RULE}\nnode: node2\n")),
            "{text}"
        );
        assert!(
            text.contains(
                "node: node3\na\\u{1b}b\n(1000 bytes more not shown)\nreturn code = 137 (signal 9)\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("node: node4\nno answer: silent\n"), "{text}");
    }

    #[test]
    fn equal_outputs_are_shown_once() {
        let text = folded(&results());
        assert!(
            text.starts_with(&format!("{RULE}\nnodes: node1, node2\nhello\nreturn code = 0\n")),
            "{text}"
        );
        assert_eq!(text.matches("hello").count(), 1);
        assert_eq!(json(&results())[2]["return_code"], json!(137));
    }

    #[test]
    fn a_node_without_a_return_code_has_not_answered() {
        assert_eq!(results().iter().map(has_answered).collect::<Vec<_>>(), [true, true, true, false]);
        for end in [End::TimedOut(true), End::OutputLimit(true), End::NotStarted("no".to_owned())] {
            assert!(!has_answered(&done("node1", "", 0, end)));
        }
    }
}
