//! Jobs as clients see them: status, log, the matrix of nodes and scripts, the reasons of a denial.

use muster_core::{
    engine::{
        ErrorKind, FailedUndo, Job, JobError, Level, LogEntry, LogLine, Outcome, Phase, RUNNING_MAX, Status,
        Timings, WaitReason,
    },
    hooks::{self, NodeAnswer, NodeReport, Objection},
    locks::Blocked,
    names::NodeName,
};

use crate::v1;

impl From<Status> for v1::JobStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Queued => v1::JobStatus::Queued,
            Status::Waiting => v1::JobStatus::Waiting,
            Status::Running => v1::JobStatus::Running,
            Status::Canceling => v1::JobStatus::Canceling,
            Status::Canceled => v1::JobStatus::Canceled,
            Status::Success => v1::JobStatus::Success,
            Status::Error => v1::JobStatus::Error,
        }
    }
}

impl From<ErrorKind> for v1::ErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Refused => v1::ErrorKind::Refused,
            ErrorKind::Denied => v1::ErrorKind::Denied,
            ErrorKind::Failed => v1::ErrorKind::Failed,
            ErrorKind::Interrupted => v1::ErrorKind::Interrupted,
        }
    }
}

impl From<&Objection> for v1::Objection {
    fn from(objection: &Objection) -> Self {
        v1::Objection {
            node: objection.node.to_string(),
            script: objection.script.clone().map(Into::into),
            reason: objection.reason.clone(),
        }
    }
}

impl From<&JobError> for v1::JobError {
    fn from(error: &JobError) -> Self {
        v1::JobError {
            kind: v1::ErrorKind::from(error.kind).into(),
            message: error.message.clone(),
            objections: error.objections.iter().map(Into::into).collect(),
        }
    }
}

impl From<&NodeReport> for v1::NodeReport {
    fn from(report: &NodeReport) -> Self {
        let (result, not_reached, lost) = match &report.answer {
            NodeAnswer::Answered(result) => (Some(result.clone().into()), None, false),
            NodeAnswer::NotReached { why, partial } => {
                (Some(partial.clone().into()), Some(why.reason.clone()), false)
            }
            NodeAnswer::Lost => (None, None, true),
        };
        v1::NodeReport {
            node: report.node.to_string(),
            result,
            not_reached,
            lost,
            duration_ms: report.duration_ms,
        }
    }
}

impl From<&Timings> for v1::Timings {
    fn from(timings: &Timings) -> Self {
        let Timings { locks_ms, pre_ms, steps_ms, commit_ms, post_ms } = *timings;
        v1::Timings { locks_ms, pre_ms, steps_ms, commit_ms, post_ms }
    }
}

fn level(level: Level) -> v1::LogLevel {
    match level {
        Level::Debug => v1::LogLevel::Debug,
        Level::Info => v1::LogLevel::Info,
        Level::Warning => v1::LogLevel::Warning,
        Level::Error => v1::LogLevel::Error,
    }
}

fn counted(count: u32, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn entry_text(entry: &LogEntry) -> String {
    match entry {
        LogEntry::Text(text) => text.clone(),
        LogEntry::Hooks { phase, nodes, scripts, duration_ms } => {
            let phase = match phase {
                hooks::Phase::Pre => "pre",
                hooks::Phase::Post => "post",
                hooks::Phase::Failed => "end",
            };
            let (nodes, scripts) = (counted(*nodes, "node"), counted(*scripts, "script"));
            format!("{phase} hooks: {nodes}, {scripts}, {duration_ms} ms")
        }
        LogEntry::Step { text, node: Some(node) } if !text.contains(node.as_str()) => {
            format!("{text} on {node}")
        }
        LogEntry::Step { text, node: Some(_) | None } => text.clone(),
    }
}

impl From<&LogLine> for v1::LogLine {
    fn from(line: &LogLine) -> Self {
        v1::LogLine { time_ms: line.time_ms, level: level(line.level).into(), text: entry_text(&line.entry) }
    }
}

/// A line of a job's log as an event for those who follow the job.
pub fn log_event(line: &LogLine) -> v1::JobEvent {
    use v1::job_event::Event;
    let event = match &line.entry {
        LogEntry::Text(_) => Event::Log(line.into()),
        LogEntry::Hooks { phase, nodes, scripts, duration_ms } => Event::Hooks(v1::HooksSummary {
            phase: v1::HookPhase::from(*phase).into(),
            nodes: *nodes,
            scripts: *scripts,
            duration_ms: *duration_ms,
        }),
        LogEntry::Step { text, node } => Event::Progress(v1::StepProgress {
            step: text.clone(),
            node: node.as_ref().map(ToString::to_string).unwrap_or_default(),
            percent: None,
        }),
    };
    v1::JobEvent { event: Some(event) }
}

impl From<&FailedUndo> for v1::FailedUndo {
    fn from(undo: &FailedUndo) -> Self {
        v1::FailedUndo {
            step: undo.call.text(),
            node: undo.call.node().map(ToString::to_string).unwrap_or_default(),
            error: undo.error.clone(),
            made_good: undo.made_good,
        }
    }
}

/// What a waiting job waits for, in words.
fn waiting_for(job: &Job, reason: Option<&WaitReason>) -> String {
    if !matches!(job.phase, Phase::Waiting) {
        return String::new();
    }
    match reason {
        Some(WaitReason::Lock(Blocked { lock, by, held: true })) => format!("lock {lock}, held by job {by}"),
        Some(WaitReason::Lock(Blocked { lock, by, held: false })) => {
            format!("lock {lock}, which job {by} waits for from earlier on")
        }
        Some(WaitReason::Job(dependency)) => {
            format!("job {} to end as {}", dependency.job, dependency.wanted())
        }
        Some(WaitReason::Paused) => "the queue to be resumed (gnt-cluster queue resume)".to_owned(),
        None => format!("one of {RUNNING_MAX} running jobs to end"),
    }
}

fn phase_text(job: &Job, reason: Option<&WaitReason>) -> &'static str {
    match &job.phase {
        Phase::Waiting if reason.is_none() => "queued",
        Phase::Waiting if !matches!(reason, Some(WaitReason::Lock(_))) => "waiting",
        phase @ (Phase::Waiting
        | Phase::PreHooks { .. }
        | Phase::Running { .. }
        | Phase::Cleaning { .. }
        | Phase::PostHooks { .. }
        | Phase::Undoing { .. }
        | Phase::Blocked { .. }
        | Phase::Ending { .. }
        | Phase::Done { .. }) => phase.as_str(),
    }
}

fn blocked_call(job: &Job) -> Option<v1::BlockedCall> {
    job.blocked_call().map(|call| v1::BlockedCall {
        step: call.text(),
        node: call.node().map(ToString::to_string).unwrap_or_default(),
        locks: job.submission.locks().iter().map(|(name, _)| name.to_owned()).collect(),
    })
}

/// A job for lists: without reports, log and environment. `reason` is what a waiting job waits for.
pub fn job_brief(job: &Job, reason: Option<&WaitReason>) -> v1::Job {
    let submission = &job.submission;
    let error = match &job.phase {
        Phase::Done { outcome: Outcome::Error(error), .. } => Some(error.into()),
        // Told before the scripts are, to those who wait.
        Phase::Ending { outcome: Outcome::Error(error), .. } if job.over() => Some(error.into()),
        Phase::Ending { .. }
        | Phase::Done { outcome: Outcome::Success | Outcome::Canceled, .. }
        | Phase::Waiting
        | Phase::PreHooks { .. }
        | Phase::Running { .. }
        | Phase::Cleaning { .. }
        | Phase::PostHooks { .. }
        | Phase::Undoing { .. }
        | Phase::Blocked { .. } => None,
    };
    v1::Job {
        id: submission.id,
        uuid: submission.uuid.to_string(),
        op_id: submission.op.row().op_id.to_owned(),
        summary: job.summary(),
        status: v1::JobStatus::from(job.status(reason.is_some())).into(),
        error,
        user: submission.user.clone(),
        reason: submission.reason.clone(),
        dry_run: submission.dry_run,
        submitted_ms: submission.fresh.now_ms,
        started_ms: job.started_ms,
        ended_ms: job.ended_ms,
        phase: phase_text(job, reason).to_owned(),
        waiting_for: waiting_for(job, reason),
        timings: Some((&job.timings).into()),
        killed: job.killed,
        committed: job.committed,
        blocked: blocked_call(job),
        depends: submission.depends.iter().map(Into::into).collect(),
        priority: i32::from(submission.priority.value()),
        parent_job: submission.parent.unwrap_or_default(),
        child_jobs: job.children.clone(),
        ..v1::Job::default()
    }
}

/// A job with everything that is known of it. `reason` is what a waiting job waits for.
pub fn job_whole(job: &Job, reason: Option<&WaitReason>) -> v1::Job {
    let names = |nodes: &[NodeName]| nodes.iter().map(ToString::to_string).collect();
    let prepared = job.prepared();
    let env = prepared.map(|prepared| {
        prepared.env.iter().map(|(name, value)| (format!("GANETI_{name}"), value.to_owned())).collect()
    });
    v1::Job {
        pre: job.pre.iter().map(Into::into).collect(),
        post: job.post.iter().map(Into::into).collect(),
        log: job.log.iter().map(Into::into).collect(),
        failed_undos: job.failed_undos.iter().map(Into::into).collect(),
        result: job.result.clone().into_iter().collect(),
        env: env.unwrap_or_default(),
        pre_nodes: prepared.map(|prepared| names(&prepared.nodes.pre)).unwrap_or_default(),
        post_nodes: prepared.map(|prepared| names(&prepared.nodes.post)).unwrap_or_default(),
        operation: Some(job.submission.op.clone().into()),
        ..job_brief(job, reason)
    }
}

#[cfg(test)]
mod tests {
    use muster_core::{
        engine::{Effect, Engine, Input, Now, Priority, Submission},
        hooks::{Captured, HookResult, NotReached, ScriptOutcome, ScriptResult},
        ops::{InstanceStart, Op, examples},
    };

    use super::*;

    const NOW: Now = Now { wall_ms: 1_900_000_000_000, mono_ms: 5 };

    fn start(id: u64) -> Submission {
        let instance = muster_core::names::InstanceName::parse("db1").unwrap();
        Submission {
            id,
            uuid: uuid::Uuid::from_u128(u128::from(id)),
            op: Op::InstanceStart(InstanceStart { instance, force: false }),
            user: "root".to_owned(),
            reason: "test".to_owned(),
            dry_run: false,
            request_id: String::new(),
            fresh: examples::fresh(),
            depends: Vec::new(),
            priority: Priority::default(),
            parent: None,
        }
    }

    /// node1 denies, node3 is not reached.
    fn denied() -> Engine {
        let cluster = examples::cluster();
        let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
        let output = engine.handle(Input::Submit(Box::new(start(1))), NOW);
        let mut told = Vec::new();
        for effect in output.effects {
            let Effect::RunHooks(call) = effect else { panic!("{effect:?}") };
            let answer = if call.node.as_str() == "node1" {
                let script = ScriptResult {
                    name: "10-no".to_owned(),
                    outcome: ScriptOutcome::Failed { code: 3 },
                    duration_ms: 1,
                    stdout: Captured {
                        head: b"not today\n".to_vec(),
                        total_bytes: 10,
                        ..Captured::default()
                    },
                    stderr: Captured::default(),
                    notes: Vec::new(),
                };
                NodeAnswer::Answered(HookResult { scripts: vec![script], ..HookResult::default() })
            } else {
                let why = NotReached { reason: "connection refused".to_owned() };
                NodeAnswer::NotReached { why, partial: HookResult::default() }
            };
            let report = NodeReport { node: call.node.clone(), answer, duration_ms: 2 };
            let output = engine.handle(Input::HooksAnswered(call.id.clone(), report), NOW);
            told.extend(output.effects);
        }
        // Scripts that hear of the end have nothing to say.
        for effect in told {
            let Effect::RunHooks(call) = effect else { continue };
            let answer = NodeAnswer::Answered(HookResult::default());
            let report = NodeReport { node: call.node.clone(), answer, duration_ms: 1 };
            engine.handle(Input::HooksAnswered(call.id.clone(), report), NOW);
        }
        engine
    }

    #[test]
    fn a_denied_job_names_node_script_code_and_output() {
        let engine = denied();
        let job = job_whole(engine.job(1).unwrap(), None);
        assert_eq!((job.status(), job.phase.as_str()), (v1::JobStatus::Error, "done"));
        let error = job.error.unwrap();
        assert_eq!(error.kind(), v1::ErrorKind::Denied);
        let script = error.objections[0].script.clone().unwrap();
        assert_eq!((error.objections[0].node.as_str(), script.name.as_str()), ("node1", "10-no"));
        assert_eq!(script.stdout.unwrap().head, b"not today\n");
        assert_eq!(job.pre.len(), 2);
        assert_eq!(job.pre[1].not_reached.as_deref(), Some("connection refused"));
        assert_eq!(
            (job.pre_nodes, job.env["GANETI_OP_TARGET"].as_str()),
            (vec!["node1".to_owned(), "node3".to_owned()], "db1")
        );
        assert!(
            job.log.iter().any(|line| line.text.starts_with("pre hooks: 2 nodes, 1 script, ")),
            "{:?}",
            job.log
        );
        assert!(
            job.log.iter().any(|line| line.level() == v1::LogLevel::Warning && line.text.contains("node3"))
        );
    }

    #[test]
    fn a_waiting_job_says_what_it_waits_for() {
        let cluster = examples::cluster();
        let mut engine = Engine::new(cluster.master.clone(), Some(cluster));
        for id in [1, 2, 3] {
            engine.handle(Input::Submit(Box::new(start(id))), NOW);
        }
        let show = |id| job_brief(engine.job(id).unwrap(), engine.wait_reason(id).as_ref());
        assert_eq!((show(1).status(), show(1).phase), (v1::JobStatus::Running, "pre-hooks".to_owned()));
        assert_eq!(show(2).status(), v1::JobStatus::Waiting);
        assert_eq!(show(2).waiting_for, "lock instance:db1, held by job 1");
        assert_eq!(show(3).waiting_for, "lock instance:db1, which job 2 waits for from earlier on");
        assert_eq!(show(1).summary, "INSTANCE_START(db1)");
    }

    #[test]
    fn lines_are_events_of_their_kind() {
        let line = |entry| LogLine { time_ms: 1, level: Level::Info, entry };
        let node = NodeName::parse("node1").unwrap();
        let step = LogEntry::Step { text: "start web1".to_owned(), node: Some(node) };
        assert_eq!(v1::LogLine::from(&line(step.clone())).text, "start web1 on node1");
        let hooks = LogEntry::Hooks { phase: hooks::Phase::Post, nodes: 1, scripts: 0, duration_ms: 9 };
        assert_eq!(v1::LogLine::from(&line(hooks.clone())).text, "post hooks: 1 node, 0 scripts, 9 ms");
        use v1::job_event::Event;
        assert!(matches!(log_event(&line(step)).event, Some(Event::Progress(_))));
        assert!(matches!(log_event(&line(hooks)).event, Some(Event::Hooks(_))));
        assert!(matches!(log_event(&line(LogEntry::Text("x".to_owned()))).event, Some(Event::Log(_))));
    }
}
