//! How a job's end is told: nothing for success, the reason for a failure, and for a denial every objection with
//! what the script wrote.

use muster_proto::v1::{Captured, ErrorKind, Job, JobError, JobStatus, Objection, ScriptResult};

use super::{
    jobs::blocked_text,
    scripts::outcome_text,
    text::{captured, duration, is_cut, visible, visible_line},
};

/// Most lines of one output stream that are shown here; `gnt-job info --verbose` has more.
const LINES_MAX: usize = 200;

/// Whether the job did what was asked.
pub(crate) fn succeeded(job: &Job) -> bool {
    match job.status() {
        JobStatus::Success => true,
        JobStatus::Unspecified
        | JobStatus::Queued
        | JobStatus::Waiting
        | JobStatus::Running
        | JobStatus::Canceling
        | JobStatus::Canceled
        | JobStatus::Error => false,
    }
}

/// The text for stderr at a job's end; empty for a success.
pub(crate) fn end_text(job: &Job) -> String {
    let mut text = String::new();
    if !succeeded(job) {
        match &job.error {
            Some(error) => text += &error_text(job, error),
            None if job.killed => text += &killed_text(job),
            None if job.status() == JobStatus::Canceled => {
                text += &format!("error: job {} was canceled\n", job.id);
            }
            None => text += &format!("error: job {} failed\n", job.id),
        }
    }
    for undo in job.failed_undos.iter().filter(|undo| !undo.made_good) {
        text += &format!(
            "error: could not undo {:?} on {}: {}; see gnt-cluster verify\n",
            undo.step,
            undo.node,
            visible(&undo.error)
        );
    }
    text
}

/// What a kill left of a job.
fn killed_text(job: &Job) -> String {
    let id = job.id;
    let stays = if job.committed { "; what the operation did stays" } else { "" };
    let Some(call) = &job.blocked else { return format!("error: job {id} was killed{stays}\n") };
    let place = if call.node.is_empty() { "it" } else { &call.node };
    format!(
        "error: job {id} was killed, and is blocked: nobody confirmed the end of: {}; it holds {} until {place} answers or \
         `gnt-job repair {id}` gives it up\n",
        visible_line(&blocked_text(call)),
        call.locks.join(", "),
    )
}

fn error_text(job: &Job, error: &JobError) -> String {
    let message = visible(&error.message);
    let what = match error.kind() {
        ErrorKind::Refused => " was refused",
        // The master's own words begin so.
        ErrorKind::Denied if message.starts_with("denied") => "",
        ErrorKind::Denied => " was denied by hooks",
        ErrorKind::Failed if job.status() == JobStatus::Canceled => " was canceled",
        ErrorKind::Failed | ErrorKind::Unspecified => " failed",
        ErrorKind::Interrupted => " was interrupted",
    };
    let mut text = format!("error: job {}{what}: {message}\n", job.id);
    for objection in &error.objections {
        text += &objection_text(objection);
    }
    text
}

/// One objection: node, script, outcome, time, and what it wrote.
fn objection_text(objection: &Objection) -> String {
    let mut text = format!("  {}: ", objection.node);
    match &objection.script {
        Some(script) => {
            text += &script_text(script, &objection.node);
            if let Some(reason) = &objection.reason {
                text += &format!("    {}\n", visible_line(reason));
            }
        }
        None => {
            text += &format!("{}\n", visible_line(objection.reason.as_deref().unwrap_or("no reason given")))
        }
    }
    text
}

/// A script's result in lines; the first is to follow the node's name.
pub(crate) fn script_text(script: &ScriptResult, node: &str) -> String {
    let mut text = format!(
        "{}: {}, after {}\n",
        visible_line(&script.name),
        visible_line(&outcome_text(script)),
        duration(script.duration_ms)
    );
    for note in &script.notes {
        text += &format!("    note: {}\n", visible_line(note));
    }
    let before = text.len();
    for (name, output) in [("stdout", &script.stdout), ("stderr", &script.stderr)] {
        if let Some(output) = output {
            text += &stream_text(name, output, node);
        }
    }
    if text.len() == before {
        text += "    (no output)\n";
    }
    text
}

/// One output stream, each line marked with the stream's name.
fn stream_text(name: &str, output: &Captured, node: &str) -> String {
    let whole = captured(output);
    let mut lines = whole.lines();
    let mut text: String =
        lines.by_ref().take(LINES_MAX).map(|line| format!("    {name} | {line}\n")).collect();
    let more = lines.count();
    if more > 0 {
        text += &format!("    {name} | [{more} more lines]\n");
    }
    if (more > 0 || is_cut(output)) && !output.path.is_empty() {
        text += &format!("    whole {name} on {node}: {}\n", visible_line(&output.path));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use muster_proto::v1::{BlockedCall, FailedUndo, ScriptOutcome, script_outcome::Kind};

    use super::*;

    /// A script's result.
    pub(crate) fn script(name: &str, kind: Kind, stdout: &[u8], stderr: &[u8]) -> ScriptResult {
        let output = |bytes: &[u8], name: &str| Captured {
            head: bytes.to_vec(),
            tail: Vec::new(),
            total_bytes: u64::try_from(bytes.len()).unwrap(),
            path: format!("/var/lib/muster/node/output/{name}"),
        };
        ScriptResult {
            name: name.to_owned(),
            outcome: Some(ScriptOutcome { kind: Some(kind) }),
            duration_ms: 41,
            stdout: Some(output(stdout, "1.out")),
            stderr: Some(output(stderr, "1.err")),
            notes: Vec::new(),
        }
    }

    /// A job that two nodes denied.
    pub(crate) fn denied() -> Job {
        let objection = |node: &str, script| Objection { node: node.to_owned(), script, reason: None };
        let mut large = script("30-large", Kind::KilledSignal(9), b"begin\n", b"");
        large.stdout =
            large.stdout.map(|output| Captured { tail: b"end\n".to_vec(), total_bytes: 1_000_000, ..output });
        large.notes = vec!["a child was left behind".to_owned()];
        Job {
            id: 17,
            status: JobStatus::Error.into(),
            error: Some(JobError {
                kind: ErrorKind::Denied.into(),
                message: "denied by hooks on node1, node2".to_owned(),
                objections: vec![
                    objection(
                        "node1",
                        Some(script(
                            "10-check",
                            Kind::FailedCode(3),
                            b"asked\nfor web1\n",
                            b"not \x1b[1mallowed",
                        )),
                    ),
                    objection("node2", Some(script("20-limit", Kind::TimedOutLimitMs(1000), b"", b""))),
                    objection("node2", Some(large)),
                    Objection {
                        node: "node2".to_owned(),
                        script: None,
                        reason: Some("could not read the directory".to_owned()),
                    },
                ],
            }),
            ..Job::default()
        }
    }

    #[test]
    fn r1_a_denial_names_every_node_script_and_what_it_wrote() {
        assert_eq!(
            end_text(&denied()),
            "\
error: job 17: denied by hooks on node1, node2
  node1: 10-check: exit code 3, after 41 ms
    stdout | asked
    stdout | for web1
    stderr | not \\u{1b}[1mallowed
  node2: 20-limit: over its time limit of 1000 ms, ended, after 41 ms
    (no output)
  node2: 30-large: killed by signal 9, after 41 ms
    note: a child was left behind
    stdout | begin
    stdout | 
    stdout | [cut: 999990 bytes]
    stdout | end
    whole stdout on node2: /var/lib/muster/node/output/1.out
  node2: could not read the directory
"
        );
    }

    #[test]
    fn other_ends() {
        let end = |status: JobStatus, error: Option<(ErrorKind, &str)>| {
            end_text(&Job {
                id: 5,
                status: status.into(),
                error: error.map(|(kind, message)| JobError {
                    kind: kind.into(),
                    message: message.to_owned(),
                    objections: Vec::new(),
                }),
                ..Job::default()
            })
        };
        assert_eq!(end(JobStatus::Success, None), "");
        assert_eq!(end(JobStatus::Canceled, None), "error: job 5 was canceled\n");
        let refused = Some((ErrorKind::Refused, "no node \"node9\""));
        assert_eq!(end(JobStatus::Error, refused), "error: job 5 was refused: no node \"node9\"\n");
        let undo = FailedUndo {
            step: "create sda".into(),
            node: "node2".into(),
            error: "disk full".into(),
            made_good: false,
        };
        let good = FailedUndo { made_good: true, ..undo.clone() };
        let job = Job {
            id: 5,
            status: JobStatus::Success.into(),
            failed_undos: vec![undo, good],
            ..Job::default()
        };
        assert_eq!(
            end_text(&job),
            "error: could not undo \"create sda\" on node2: disk full; see gnt-cluster verify\n"
        );
    }

    #[test]
    fn a_killed_jobs_end_says_so_and_what_stays() {
        let killed = Job { id: 5, status: JobStatus::Canceled.into(), killed: true, ..Job::default() };
        assert_eq!(end_text(&killed), "error: job 5 was killed\n");
        let committed = Job { committed: true, ..killed.clone() };
        assert_eq!(end_text(&committed), "error: job 5 was killed; what the operation did stays\n");
        let call = BlockedCall {
            step: "stop guest web1".into(),
            node: "node2".into(),
            locks: vec!["instance:web1".into(), "node:node2".into()],
        };
        let blocked = Job { blocked: Some(call), ..killed };
        assert_eq!(
            end_text(&blocked),
            "error: job 5 was killed, and is blocked: nobody confirmed the end of: stop guest web1 on node2; it holds \
             instance:web1, node:node2 until node2 answers or `gnt-job repair 5` gives it up\n"
        );
    }
}
