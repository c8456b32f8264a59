//! A job's events as lines, each line once even if the master tells the story again.

use std::collections::{BTreeMap, BTreeSet};

use muster_proto::v1::{
    HookPhase, HooksSummary, Job, JobEvent, JobStatus, LogLevel, LogLine, StepProgress, job_event::Event,
};

use super::{
    text::{counted, duration, visible},
    words,
};

/// Percents are told in steps of this size, so that a long copy makes few lines.
const PERCENT_STEP: u32 = 25;

/// What was told already.
///
/// Log lines are counted by level and text: the n-th of its kind is told once, however often the stream starts anew.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    told: BTreeMap<(i32, String), u32>,
    in_this_stream: BTreeMap<(i32, String), u32>,
    phases: BTreeSet<i32>,
    status: Option<i32>,
    steps: BTreeMap<(String, String), u32>,
    /// The last error line: held back, as an ended job's error is told by the end itself.
    held: Option<String>,
}

impl Progress {
    /// The next event is the first of a new stream, which starts from the job's beginning.
    pub(crate) fn restart(&mut self) {
        self.in_this_stream.clear();
    }

    /// The lines to be told for an event.
    pub(crate) fn lines(&mut self, event: &JobEvent) -> Vec<String> {
        match &event.event {
            None => Vec::new(),
            Some(Event::Log(line)) => {
                let new = self.log(line);
                if line.level() != LogLevel::Error {
                    return self.after_held(new);
                }
                // Only a new line takes the place of the one held back.
                new.and_then(|new| self.held.replace(new)).into_iter().collect()
            }
            Some(Event::Hooks(summary)) => {
                let new = self.hooks(summary);
                self.after_held(new)
            }
            Some(Event::Status(status)) => self.status(*status).into_iter().collect(),
            Some(Event::Progress(step)) => {
                let new = self.step(step);
                self.after_held(new)
            }
            Some(Event::Done(job)) => self.rest(job),
        }
    }

    fn after_held(&mut self, new: Option<String>) -> Vec<String> {
        self.held.take().into_iter().chain(new).collect()
    }

    fn log(&mut self, line: &LogLine) -> Option<String> {
        let key = (line.level, line.text.clone());
        let seen = self.in_this_stream.entry(key.clone()).or_default();
        *seen += 1;
        let told = self.told.entry(key).or_default();
        if *seen <= *told {
            return None;
        }
        *told = *seen;
        log_text(line)
    }

    fn hooks(&mut self, summary: &HooksSummary) -> Option<String> {
        self.phases.insert(summary.phase).then(|| {
            format!(
                "{} hooks: {}, {}, {}",
                words::phase(summary.phase()),
                counted(summary.nodes, "node"),
                counted(summary.scripts, "script"),
                duration(summary.duration_ms)
            )
        })
    }

    fn status(&mut self, status: i32) -> Option<String> {
        if self.status.replace(status) == Some(status) {
            return None;
        }
        match JobStatus::try_from(status).unwrap_or(JobStatus::Unspecified) {
            JobStatus::Waiting => Some("waiting; `gnt-job info` says for what".to_owned()),
            JobStatus::Canceling => Some("canceling".to_owned()),
            // Queued and running go without saying; the end is told with the result.
            JobStatus::Unspecified
            | JobStatus::Queued
            | JobStatus::Running
            | JobStatus::Canceled
            | JobStatus::Success
            | JobStatus::Error => None,
        }
    }

    fn step(&mut self, step: &StepProgress) -> Option<String> {
        let part = step.percent.map_or(0, |percent| percent.min(100) / PERCENT_STEP);
        let key = (step.node.clone(), step.step.clone());
        match self.steps.get(&key) {
            Some(told) if *told >= part => return None,
            Some(_) | None => self.steps.insert(key, part),
        };
        let node = if step.node.is_empty() { String::new() } else { format!("{}: ", step.node) };
        let percent = step.percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
        Some(format!("{node}{}{percent}", visible(&step.step)))
    }

    /// What an ended job's record has and the streams did not tell, for example after a restart of the master.
    ///
    /// Of the log only warnings and errors: its other lines say in words what the other events say.
    fn rest(&mut self, job: &Job) -> Vec<String> {
        self.restart();
        let mut lines: Vec<String> = self.held.take().into_iter().collect();
        let grave = |line: &&LogLine| matches!(line.level(), LogLevel::Warning | LogLevel::Error);
        lines.extend(job.log.iter().filter(grave).filter_map(|line| self.log(line)));
        if let Some(error) = &job.error {
            let told_by_the_end =
                visible(&format!("error: {}: {}", words::error_kind(error.kind()), error.message));
            lines.retain(|line| *line != told_by_the_end);
        }
        let timings = job.timings.unwrap_or_default();
        for (phase, reports, took) in
            [(HookPhase::Pre, &job.pre, timings.pre_ms), (HookPhase::Post, &job.post, timings.post_ms)]
        {
            if reports.is_empty() {
                continue;
            }
            let scripts: usize = reports
                .iter()
                .map(|report| report.result.as_ref().map_or(0, |result| result.scripts.len()))
                .sum();
            lines.extend(self.hooks(&HooksSummary {
                phase: phase.into(),
                nodes: u32::try_from(reports.len()).unwrap_or(u32::MAX),
                scripts: u32::try_from(scripts).unwrap_or(u32::MAX),
                duration_ms: took.unwrap_or(0),
            }));
        }
        lines
    }
}

/// A log line as it is told; debug lines are for `gnt-job info`.
fn log_text(line: &LogLine) -> Option<String> {
    let text = visible(&line.text);
    match line.level() {
        LogLevel::Debug => None,
        LogLevel::Unspecified | LogLevel::Info => Some(text),
        LogLevel::Warning => Some(format!("warning: {text}")),
        LogLevel::Error => Some(format!("error: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::{ErrorKind, HookResult, JobError, NodeReport, ScriptResult, Timings};

    use super::*;

    fn event(event: Event) -> JobEvent {
        JobEvent { event: Some(event) }
    }

    fn log(level: LogLevel, text: &str) -> LogLine {
        LogLine { time_ms: 1, level: level.into(), text: text.to_owned() }
    }

    fn all(progress: &mut Progress, events: &[Event]) -> Vec<String> {
        events.iter().flat_map(|one| progress.lines(&event(one.clone()))).collect()
    }

    #[test]
    fn a_line_per_phase_and_warning() {
        let told = all(
            &mut Progress::default(),
            &[
                Event::Status(JobStatus::Queued.into()),
                Event::Status(JobStatus::Waiting.into()),
                Event::Status(JobStatus::Running.into()),
                Event::Log(log(LogLevel::Debug, "hidden")),
                Event::Log(log(LogLevel::Warning, "node node3 could not be reached: \u{7}")),
                Event::Hooks(HooksSummary {
                    phase: HookPhase::Pre.into(),
                    nodes: 3,
                    scripts: 5,
                    duration_ms: 41,
                }),
                Event::Progress(StepProgress {
                    step: "copy sda".into(),
                    node: "node2".into(),
                    percent: None,
                }),
                Event::Progress(StepProgress {
                    step: "copy sda".into(),
                    node: "node2".into(),
                    percent: Some(3),
                }),
                Event::Progress(StepProgress {
                    step: "copy sda".into(),
                    node: "node2".into(),
                    percent: Some(30),
                }),
                Event::Hooks(HooksSummary {
                    phase: HookPhase::Post.into(),
                    nodes: 1,
                    scripts: 1,
                    duration_ms: 7,
                }),
            ],
        );
        assert_eq!(
            told,
            [
                "waiting; `gnt-job info` says for what",
                "warning: node node3 could not be reached: \\u{7}",
                "pre hooks: 3 nodes, 5 scripts, 41 ms",
                "node2: copy sda",
                "node2: copy sda 30 %",
                "post hooks: 1 node, 1 script, 7 ms",
            ]
        );
    }

    #[test]
    fn a_stream_that_starts_anew_tells_nothing_twice_and_leaves_nothing_out() {
        let mut progress = Progress::default();
        let story = [
            Event::Log(log(LogLevel::Info, "try")),
            Event::Log(log(LogLevel::Info, "try")),
            Event::Hooks(HooksSummary { phase: HookPhase::Pre.into(), nodes: 1, scripts: 0, duration_ms: 1 }),
        ];
        assert_eq!(all(&mut progress, &story), ["try", "try", "pre hooks: 1 node, 0 scripts, 1 ms"]);
        progress.restart();
        assert_eq!(all(&mut progress, &story), [""; 0]);
        assert_eq!(all(&mut progress, &[Event::Log(log(LogLevel::Info, "try"))]), ["try"]);
        let job = Job {
            log: vec![
                log(LogLevel::Info, "pre hooks: 1 node, 0 scripts, 1 ms"),
                log(LogLevel::Warning, "odd"),
                log(LogLevel::Error, "broken"),
            ],
            post: vec![NodeReport {
                node: "node1".to_owned(),
                result: Some(HookResult { scripts: vec![ScriptResult::default()], ..HookResult::default() }),
                ..NodeReport::default()
            }],
            timings: Some(Timings { post_ms: Some(12), ..Timings::default() }),
            ..Job::default()
        };
        assert_eq!(
            all(&mut progress, &[Event::Done(job)]),
            ["warning: odd", "error: broken", "post hooks: 1 node, 1 script, 12 ms"]
        );
    }

    #[test]
    fn the_jobs_own_error_is_left_to_its_end() {
        let error =
            JobError { kind: ErrorKind::Denied.into(), message: "1 script".into(), objections: Vec::new() };
        let own = log(LogLevel::Error, "denied: 1 script");
        let other = log(LogLevel::Error, "undo failed");
        let story = [
            Event::Log(other.clone()),
            Event::Log(own.clone()),
            Event::Status(JobStatus::Error.into()),
            Event::Done(Job { error: Some(error), log: vec![other, own], ..Job::default() }),
        ];
        assert_eq!(all(&mut Progress::default(), &story), ["error: undo failed"]);
        let going_on = [story[0].clone(), Event::Log(log(LogLevel::Info, "next"))];
        assert_eq!(all(&mut Progress::default(), &going_on), ["error: undo failed", "next"]);
    }
}
