//! A job in words for its master's operator: its lines in the log (start, timing summary, end), and the files of the last
//! job that failed and of the nodes that the last successful one worked on.

use crate::{
    engine::{Job, LogEntry, Outcome, Phase},
    hooks::{self, NodeReport, moment_text},
    names::NodeName,
};

/// Width of the names of parts, so that the numbers stand below each other.
const PART_WIDTH: usize = 32;

/// The line of a job that begins.
pub fn start_line(job: &Job) -> String {
    let verb = if job.started_ms.is_some() { "begins" } else { "did not begin" };
    let dry = if job.submission.dry_run { ", dry run" } else { "" };
    format!("job {}: {} {verb}, asked for by {}{dry}", job.id(), job.summary(), job.submission.user)
}

/// The lines that say where a job's time went; parts that it did not come to are left out.
pub fn timing_lines(job: &Job) -> Vec<String> {
    let timings = &job.timings;
    let before = job.started_ms.map(|started| started.saturating_sub(job.submission.fresh.now_ms));
    let for_jobs = before.map(|ms| ms.saturating_sub(timings.locks_ms.unwrap_or(0)));
    let mut lines = vec![format!("job {}: timing summary:", job.id())];
    let mut part = |name: &str, ms: Option<u64>, more: String| {
        let Some(ms) = ms else { return };
        lines.push(format!("job {}: {name:<PART_WIDTH$}: {ms:>10} ms{more}", job.id()));
    };
    part("queue, waiting for other jobs", for_jobs, String::new());
    part("locks, waiting for one or a slot", timings.locks_ms, String::new());
    part("pre hooks", timings.pre_ms, scripts_text(&job.pre));
    part("steps", timings.steps_ms, steps_text(job));
    part("commit", timings.commit_ms, String::new());
    part("post hooks", timings.post_ms, scripts_text(&job.post));
    part("end hooks", end_hooks_ms(job), scripts_text(&job.end));
    lines
}

/// The line of a job that is over.
pub fn end_line(job: &Job) -> String {
    let moment = |ms: Option<u64>| ms.map_or("never".to_owned(), moment_text);
    let took = match (job.started_ms, job.ended_ms) {
        (Some(started), Some(ended)) => format!(", {} ms", ended.saturating_sub(started)),
        (Some(_) | None, Some(_) | None) => String::new(),
    };
    format!(
        "job {}: {} ended: {} [started {}, ended {}]{took}",
        job.id(),
        job.summary(),
        end_word(job),
        moment(job.started_ms),
        moment(job.ended_ms)
    )
}

/// What the file of the last failure holds; none for a job that did not fail.
pub fn failure_text(job: &Job) -> Option<String> {
    match outcome(job)? {
        Outcome::Error(error) => Some(format!("{}{}", comment(job), error.text())),
        Outcome::Success | Outcome::Canceled => None,
    }
}

/// What the file of the nodes that a job worked on holds, to be sourced by bash; none for a job that changed nothing.
/// Nodes are named as hook variables and commands name them: a name stays what it is when the job removed its node.
pub fn updated_nodes_text(job: &Job, master: &NodeName) -> Option<String> {
    if *outcome(job)? != Outcome::Success || job.submission.dry_run {
        return None;
    }
    let nodes = job.nodes_worked_on();
    let masters: Vec<&NodeName> = nodes.iter().filter(|node| *node == master).collect();
    let others: Vec<&NodeName> = nodes.iter().filter(|node| *node != master).collect();
    let all: Vec<&NodeName> = masters.iter().chain(&others).copied().collect();
    Some(format!(
        "{}MUSTER_MASTER_IDS={}\nMUSTER_UPDATED_NODE_IDS={}\nMUSTER_NODE_IDS={}\n",
        comment(job),
        bash_array(&masters),
        bash_array(&others),
        bash_array(&all)
    ))
}

fn bash_array(names: &[&NodeName]) -> String {
    let quoted: Vec<String> =
        names.iter().map(|name| format!("'{}'", name.as_str().replace('\'', "'\\''"))).collect();
    format!("({})", quoted.join(" "))
}

/// The first line of a file: which job it is about. One line, whatever the job's words hold.
fn comment(job: &Job) -> String {
    let line: String = end_line(job).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# {line}\n")
}

fn outcome(job: &Job) -> Option<&Outcome> {
    match &job.phase {
        Phase::Ending { outcome, .. } | Phase::Done { outcome, .. } => Some(outcome),
        Phase::Waiting
        | Phase::PreHooks { .. }
        | Phase::Running { .. }
        | Phase::Cleaning { .. }
        | Phase::PostHooks { .. }
        | Phase::Undoing { .. }
        | Phase::Blocked { .. } => None,
    }
}

fn end_word(job: &Job) -> String {
    match outcome(job) {
        Some(Outcome::Success) => "success".to_owned(),
        Some(Outcome::Canceled) => "canceled".to_owned(),
        Some(Outcome::Error(error)) => format!("error ({})", error.kind.as_str()),
        None => job.phase.as_str().to_owned(),
    }
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

fn scripts_text(reports: &[NodeReport]) -> String {
    let scripts: usize = reports.iter().map(|report| report.scripts().len()).sum();
    format!(", {} on {}", counted(scripts, "script"), counted(reports.len(), "node"))
}

fn steps_text(job: &Job) -> String {
    let planned = job.prepared().map_or(0, |prepared| prepared.plan.steps.len());
    let nodes = counted(job.nodes_worked_on().len(), "node");
    format!(", {} of {planned} begun, on {nodes}", job.steps_begun)
}

fn end_hooks_ms(job: &Job) -> Option<u64> {
    job.log.iter().find_map(|line| match &line.entry {
        LogEntry::Hooks { phase: hooks::Phase::Failed, duration_ms, .. } => Some(*duration_ms),
        LogEntry::Hooks { .. } | LogEntry::Text(_) | LogEntry::Step { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{ErrorKind, JobError, Submission, Timings},
        hooks::Objection,
        names::InstanceName,
        ops::{InstanceStart, Op, examples},
    };

    const START_MS: u64 = 1_796_000_000_000;

    fn job(outcome: Outcome) -> Job {
        let instance = InstanceName::parse("db1").unwrap();
        let mut job = Job::new(Submission {
            fresh: crate::ops::Fresh { now_ms: START_MS - 30, ..examples::fresh() },
            ..examples::submission(12, Op::InstanceStart(InstanceStart { instance, force: false }))
        });
        job.started_ms = Some(START_MS);
        job.ended_ms = Some(START_MS + 700);
        job.timings = Timings { locks_ms: Some(10), pre_ms: Some(200), ..Timings::default() };
        job.phase = Phase::Done { outcome, prepared: None };
        job
    }

    #[test]
    fn a_jobs_lines() {
        let job = job(Outcome::Success);
        assert_eq!(start_line(&job), "job 12: INSTANCE_START(db1) begins, asked for by root");
        assert_eq!(
            timing_lines(&job),
            [
                "job 12: timing summary:",
                "job 12: queue, waiting for other jobs   :         20 ms",
                "job 12: locks, waiting for one or a slot:         10 ms",
                "job 12: pre hooks                       :        200 ms, 0 scripts on 0 nodes",
            ]
        );
        let end = end_line(&job);
        assert!(end.starts_with("job 12: INSTANCE_START(db1) ended: success [started 2026-"), "{end}");
        assert!(end.ends_with("Z], 700 ms"), "{end}");
        let mut never = job;
        never.started_ms = None;
        never.timings = Timings::default();
        assert!(start_line(&never).contains("did not begin"));
        assert_eq!(timing_lines(&never), ["job 12: timing summary:"]);
        assert!(end_line(&never).contains("[started never, ended 2026-"));
    }

    #[test]
    fn the_last_failure_names_its_job_and_all_that_objected() {
        let objections = vec![Objection {
            node: NodeName::parse("node3").unwrap(),
            script: None,
            reason: Some("no room".to_owned()),
        }];
        let message = "denied by hooks on node3".to_owned();
        let error = JobError { kind: ErrorKind::Denied, message, objections };
        let text = failure_text(&job(Outcome::Error(error.clone()))).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("# job 12: INSTANCE_START(db1) ended: error (denied) ["), "{text}");
        assert_eq!(lines[1..], ["denied: denied by hooks on node3", "node3: no room"]);
        assert_eq!(failure_text(&job(Outcome::Success)), None);
        assert_eq!(failure_text(&job(Outcome::Canceled)), None);
        let master = NodeName::parse("node1").unwrap();
        assert_eq!(updated_nodes_text(&job(Outcome::Error(error)), &master), None);
    }

    #[test]
    fn the_nodes_worked_on_are_arrays_with_the_master_first() {
        let names: Vec<NodeName> =
            ["node1", "a.b", "node3"].map(|name| NodeName::parse(name).unwrap()).into();
        assert_eq!(bash_array(&names.iter().collect::<Vec<_>>()), "('node1' 'a.b' 'node3')");
        let text = updated_nodes_text(&job(Outcome::Success), &names[0]).unwrap();
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["MUSTER_MASTER_IDS=()", "MUSTER_UPDATED_NODE_IDS=()", "MUSTER_NODE_IDS=()"]);
        let mut dry = job(Outcome::Success);
        dry.submission.dry_run = true;
        assert_eq!(updated_nodes_text(&dry, &names[0]), None);
    }
}
