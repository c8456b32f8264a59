//! `gnt-job info`: one job for people.

use muster_proto::v1::{Job, NodeReport, Timings};

use super::{
    denial::{end_text, script_text},
    fields::whole_text,
    jobs::{FIELDS, place_text},
    list::Columns,
    scripts::outcome_cell,
    text::{duration, rfc3339, visible, visible_line},
    words,
};

/// All about a job; `verbose` adds the environment of the hooks and the output of every script.
pub(crate) fn render(job: &Job, verbose: bool) -> String {
    let mut text = format!("Job {}\n{}", job.id, whole_text(FIELDS, job));
    text += &format!("  {:<12} {}\n", "timings:", timings(&job.timings.unwrap_or_default()));
    for (phase, nodes) in [("pre", &job.pre_nodes), ("post", &job.post_nodes)] {
        if !nodes.is_empty() {
            text += &format!("  {:<12} {}\n", format!("{phase} nodes:"), nodes.join(", "));
        }
    }
    text += &undos(job);
    for (phase, reports) in [("pre", &job.pre), ("post", &job.post)] {
        if !reports.is_empty() {
            text += &format!("\n  {phase} hooks\n{}", indented(&matrix(reports), 4));
        }
        if verbose {
            text += &outputs(reports);
        }
    }
    let end = end_text(job);
    if !end.is_empty() {
        text += &format!("\n{}", indented(&end, 2));
    }
    text += &section("result", job.result.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if verbose {
        text += &section("environment", job.env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
    if !job.log.is_empty() {
        text += "\n  log\n";
    }
    for line in &job.log {
        text += &format!(
            "    {} {:<7} {}\n",
            rfc3339(line.time_ms),
            words::level(line.level()),
            visible_line(&line.text)
        );
    }
    text
}

/// What could not be undone, and whether it was made good since; the locks of a blocked job.
fn undos(job: &Job) -> String {
    let mut text = String::new();
    if let Some(call) = &job.blocked {
        text += &format!("  {:<12} {}\n", "holds:", call.locks.join(", "));
    }
    for undo in &job.failed_undos {
        let state = if undo.made_good { "made good since" } else { "not undone" };
        let place = place_text(&undo.step, &undo.node);
        text += &format!(
            "  {:<12} {} ({state}): {}\n",
            "failed undo:",
            visible_line(&place),
            visible_line(&undo.error)
        );
    }
    text
}

/// The parts that were reached: `locks 0 ms, pre hooks 41 ms, ...`.
fn timings(timings: &Timings) -> String {
    let parts: Vec<String> = [
        ("locks", timings.locks_ms),
        ("pre hooks", timings.pre_ms),
        ("steps", timings.steps_ms),
        ("commit", timings.commit_ms),
        ("post hooks", timings.post_ms),
    ]
    .into_iter()
    .filter_map(|(name, ms)| ms.map(|ms| format!("{name} {}", duration(ms))))
    .collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// Nodes by scripts.
fn matrix(reports: &[NodeReport]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for script in
        reports.iter().filter_map(|report| report.result.as_ref()).flat_map(|result| &result.scripts)
    {
        if !names.contains(&script.name.as_str()) {
            names.push(&script.name);
        }
    }
    // The order in which any node would run them (HOOKS.md D5).
    names.sort_unstable();
    let remarks: Vec<String> = reports.iter().map(remark).collect();
    let with_remarks = remarks.iter().any(|remark| !remark.is_empty());
    let mut table = Columns::new(2);
    let titles = ["Node", "Time"].into_iter().chain(names.iter().copied());
    table.titles(titles.chain(with_remarks.then_some("Remark")));
    for (report, remark) in reports.iter().zip(remarks) {
        let cells = [report.node.clone(), duration(report.duration_ms)].into_iter();
        let scripts = names.iter().map(|name| cell(report, name));
        table.row(cells.chain(scripts).chain(with_remarks.then_some(remark)));
    }
    table.render(&vec![false; names.len() + 3])
}

fn cell(report: &NodeReport, name: &str) -> String {
    let scripts = report.result.as_ref().map(|result| result.scripts.as_slice()).unwrap_or_default();
    match scripts.iter().find(|script| script.name == name) {
        Some(script) => format!("{}, {}", outcome_cell(script), duration(script.duration_ms)),
        None => "-".to_owned(),
    }
}

/// What a node's row says beside its scripts.
fn remark(report: &NodeReport) -> String {
    let mut remarks = Vec::new();
    if let Some(why) = &report.not_reached {
        remarks.push(format!("not reached: {}", visible_line(why)));
    }
    if report.lost {
        remarks.push("lost: the run's end is unknown".to_owned());
    }
    if let Some(result) = &report.result {
        if let Some(failure) = &result.failure {
            remarks.push(format!("failed: {}", visible_line(failure)));
        }
        let skipped = result.skipped.iter();
        remarks.extend(skipped.map(|entry| {
            format!("skipped {} ({})", visible_line(&entry.name), words::skip_reason(entry.reason()))
        }));
    }
    remarks.join("; ")
}

fn outputs(reports: &[NodeReport]) -> String {
    let mut text = String::new();
    for report in reports {
        for script in report.result.iter().flat_map(|result| &result.scripts) {
            text += &indented(&format!("{}: {}", report.node, script_text(script, &report.node)), 4);
        }
    }
    text
}

fn section<'a>(title: &str, values: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut lines: Vec<String> =
        values.map(|(name, value)| indented(&format!("{name}={}\n", visible(value)), 4)).collect();
    lines.sort();
    if lines.is_empty() { String::new() } else { format!("\n  {title}\n{}", lines.concat()) }
}

fn indented(text: &str, blanks: usize) -> String {
    text.lines().map(|line| format!("{:blanks$}{line}\n", "")).collect()
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::{
        BlockedCall, FailedUndo, HookResult, JobStatus, LogLine, ScriptResult, SkipReason, SkippedEntry,
        script_outcome::Kind,
    };

    use super::*;
    use crate::output::denial::tests::script;

    fn report(node: &str, scripts: Vec<ScriptResult>) -> NodeReport {
        let result = HookResult { scripts, ..HookResult::default() };
        NodeReport { node: node.to_owned(), result: Some(result), duration_ms: 50, ..NodeReport::default() }
    }

    fn job() -> Job {
        let passed = || Kind::Passed(muster_proto::v1::script_outcome::Passed {});
        let mut skipping = report("node2", vec![script("10-check", passed(), b"fine\n", b"")]);
        if let Some(result) = &mut skipping.result {
            result.skipped =
                vec![SkippedEntry { name: "x.disabled".into(), reason: SkipReason::Disabled.into() }];
        }
        let silent = NodeReport {
            node: "node3".into(),
            not_reached: Some("connection refused".into()),
            ..NodeReport::default()
        };
        Job {
            id: 17,
            status: JobStatus::Success.into(),
            op_id: "OP_INSTANCE_START".into(),
            summary: "INSTANCE_START(web1)".into(),
            uuid: "u".into(),
            user: "root".into(),
            started_ms: Some(1_000),
            ended_ms: Some(2_000),
            phase: "done".into(),
            pre: vec![
                report(
                    "node1",
                    vec![
                        script("20-b", Kind::FailedCode(40), b"", b""),
                        script("10-check", passed(), b"", b""),
                    ],
                ),
                skipping,
                silent,
            ],
            pre_nodes: vec!["node1".into(), "node2".into(), "node3".into()],
            timings: Some(Timings { locks_ms: Some(0), pre_ms: Some(41), ..Timings::default() }),
            log: vec![LogLine { time_ms: 1_500, level: 3, text: "node node3 could not be reached".into() }],
            committed: true,
            blocked: Some(BlockedCall {
                step: "stop guest web1".into(),
                node: "node2".into(),
                locks: vec!["instance:web1".into()],
            }),
            failed_undos: vec![FailedUndo {
                step: "start guest web1 on node2".into(),
                node: "node2".into(),
                error: "silent".into(),
                made_good: true,
            }],
            env: [("GANETI_CLUSTER".to_owned(), "dev".to_owned())].into(),
            ..Job::default()
        }
    }

    const GOLDEN: &str = "\
Job 17
  id:          17
  status:      success
  summary:     INSTANCE_START(web1)
  op_id:       OP_INSTANCE_START
  uuid:        u
  user:        root
  reason:      -
  dry_run:     N
  received_ts: 1970-01-01T00:00:00Z
  start_ts:    1970-01-01T00:00:01Z
  end_ts:      1970-01-01T00:00:02Z
  phase:       done
  waiting_for: -
  priority:    0
  depends:     -
  parent:      -
  children:    -
  killed:      N
  committed:   Y
  blocked:     stop guest web1 on node2
  archived:    N
  error:       -
  timings:     locks 0 ms, pre hooks 41 ms
  pre nodes:   node1, node2, node3
  holds:       instance:web1
  failed undo: start guest web1 on node2 (made good since): silent

  pre hooks
    Node   Time   10-check   20-b            Remark
    node1  50 ms  ok, 41 ms  exit 40, 41 ms
    node2  50 ms  ok, 41 ms  -               skipped x.disabled (disabled)
    node3  0 ms   -          -               not reached: connection refused

  log
    1970-01-01T00:00:01.5Z warning node node3 could not be reached
";

    #[test]
    fn the_matrix_shows_nodes_by_scripts() {
        assert_eq!(render(&job(), false), GOLDEN);
    }

    #[test]
    fn verbose_adds_output_and_environment() {
        let text = render(&job(), true);
        assert!(
            text.contains("    node2: 10-check: exit code 0, after 41 ms\n        stdout | fine\n"),
            "{text}"
        );
        assert!(text.contains("\n  environment\n    GANETI_CLUSTER=dev\n"), "{text}");
    }
}
