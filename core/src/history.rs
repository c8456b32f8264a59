//! What hook scripts did for a job, as rows: one for each script that ran, each entry that was passed over and each node
//! without an answer; and which rows are asked for.

use crate::{
    engine::{Job, LogEntry},
    hooks::{Class, HookPolicy, NodeAnswer, NodeReport, Phase, ScriptOutcome, ScriptResult},
    names::NodeName,
    ops::GLOBAL_PREFIX,
};

/// What became of a script, or of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// It allowed, or was content.
    Ok,
    /// It said something that denies nothing.
    Warning,
    /// Its exit code was an error, or its node could not run the directory.
    Failed,
    /// Death by a signal that was not ours.
    Killed,
    /// Over its time limit, or over the phase's budget.
    Timeout,
    /// The phase's budget was used up before.
    NotBegun,
    /// It could not be started.
    NotExecutable,
    /// It wrote too much.
    TooMuchOutput,
    /// Ended with its job.
    Ended,
    /// Nobody knows.
    Lost,
    /// Passed over, for a reason that lies in the directory.
    Skipped,
    /// Its node gave no answer.
    NotReached,
}

impl RunOutcome {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            RunOutcome::Ok => "ok",
            RunOutcome::Warning => "warning",
            RunOutcome::Failed => "failed",
            RunOutcome::Killed => "killed",
            RunOutcome::Timeout => "timeout",
            RunOutcome::NotBegun => "not begun",
            RunOutcome::NotExecutable => "not executable",
            RunOutcome::TooMuchOutput => "too much output",
            RunOutcome::Ended => "ended",
            RunOutcome::Lost => "lost",
            RunOutcome::Skipped => "skipped",
            RunOutcome::NotReached => "not reached",
        }
    }

    /// Whether something should have gone otherwise.
    pub fn is_failure(self) -> bool {
        match self {
            RunOutcome::Ok | RunOutcome::Warning | RunOutcome::Skipped => false,
            RunOutcome::Failed
            | RunOutcome::Killed
            | RunOutcome::Timeout
            | RunOutcome::NotBegun
            | RunOutcome::NotExecutable
            | RunOutcome::TooMuchOutput
            | RunOutcome::Ended
            | RunOutcome::Lost
            | RunOutcome::NotReached => true,
        }
    }

    fn of(outcome: &ScriptOutcome, policy: &HookPolicy) -> Self {
        if policy.class(outcome) == Class::Warning {
            return RunOutcome::Warning;
        }
        match outcome {
            ScriptOutcome::Passed => RunOutcome::Ok,
            ScriptOutcome::Failed { .. } => RunOutcome::Failed,
            ScriptOutcome::Killed { .. } => RunOutcome::Killed,
            ScriptOutcome::TimedOut { .. } | ScriptOutcome::OverBudget { .. } => RunOutcome::Timeout,
            ScriptOutcome::NotBegun { .. } => RunOutcome::NotBegun,
            ScriptOutcome::NotExecutable { .. } => RunOutcome::NotExecutable,
            ScriptOutcome::OutputTooLarge { .. } => RunOutcome::TooMuchOutput,
            ScriptOutcome::Ended => RunOutcome::Ended,
            ScriptOutcome::Lost => RunOutcome::Lost,
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRun {
    /// The job.
    pub job: u64,
    /// When it began, by the master's wall clock, in ms since 1970; of a script as near as the durations say.
    pub time_ms: u64,
    /// `GANETI_OP_ID`.
    pub op_id: &'static str,
    /// What the operation was about.
    pub target: String,
    /// Of the directory.
    pub phase: Phase,
    /// Where.
    pub node: NodeName,
    /// For example `node-add-pre.d`.
    pub directory: String,
    /// The entry's name; none where the node as a whole is meant.
    pub script: Option<String>,
    /// What became of it.
    pub outcome: RunOutcome,
    /// More on that, in words.
    pub detail: String,
    /// From start to end; none for what did not run.
    pub duration_ms: Option<u64>,
}

/// All rows of a job, in the order in which things happened.
pub fn hook_runs(job: &Job) -> Vec<HookRun> {
    let mut runs = Vec::new();
    for (phase, reports) in [(Phase::Pre, &job.pre), (Phase::Post, &job.post), (Phase::Failed, &job.end)] {
        let rows = Rows::new(job, phase);
        let before = runs.len();
        reports.iter().for_each(|report| rows.of_node(report, &mut runs));
        runs[before..].sort_by_key(|run: &HookRun| run.time_ms);
    }
    runs
}

/// What the rows of one phase have in common.
struct Rows<'a> {
    job: &'a Job,
    phase: Phase,
    since_ms: u64,
}

impl<'a> Rows<'a> {
    fn new(job: &'a Job, phase: Phase) -> Self {
        let noted = job.log.iter().find_map(|line| match &line.entry {
            LogEntry::Hooks { phase: of, duration_ms, .. } if *of == phase => {
                Some(line.time_ms.saturating_sub(*duration_ms))
            }
            LogEntry::Hooks { .. } | LogEntry::Text(_) | LogEntry::Step { .. } => None,
        });
        let began = match phase {
            Phase::Pre => job.started_ms,
            Phase::Post | Phase::Failed => job.worked_ms.or(job.ended_ms).or(job.started_ms),
        };
        Rows { job, phase, since_ms: noted.or(began).unwrap_or(job.submission.fresh.now_ms) }
    }

    /// The directory that a node ran for the operation itself; the global one where it ran none.
    fn own_directory(&self, node: &NodeName) -> String {
        let prepared = self.job.prepared();
        let asked = prepared.filter(|prepared| match self.phase {
            Phase::Pre | Phase::Failed => prepared.nodes.pre.contains(node),
            Phase::Post => prepared.nodes.post.contains(node),
        });
        match (asked.and_then(|prepared| prepared.hook_prefix.as_ref()), self.phase) {
            (Some(prefix), phase) => phase.directory(prefix),
            (None, Phase::Pre) => Phase::Pre.directory(GLOBAL_PREFIX),
            (None, Phase::Post | Phase::Failed) => Phase::Post.directory(GLOBAL_PREFIX),
        }
    }

    fn of_node(&self, report: &NodeReport, runs: &mut Vec<HookRun>) {
        let own = self.own_directory(&report.node);
        let mut time_ms = self.since_ms;
        for script in report.scripts() {
            runs.push(self.script(&report.node, &own, script, time_ms));
            time_ms = time_ms.saturating_add(script.duration_ms);
        }
        let result = match &report.answer {
            NodeAnswer::Answered(result) | NodeAnswer::NotReached { partial: result, .. } => Some(result),
            NodeAnswer::Lost => None,
        };
        for skipped in result.into_iter().flat_map(|result| &result.skipped) {
            let detail = skipped.reason.text().to_owned();
            let base = self.row(&report.node, &own, Some(&skipped.name), self.since_ms);
            runs.push(HookRun { outcome: RunOutcome::Skipped, detail, ..base });
        }
        let (outcome, detail) = match &report.answer {
            NodeAnswer::Answered(result) => match &result.failure {
                Some(failure) => (RunOutcome::Failed, failure.clone()),
                None => return,
            },
            NodeAnswer::NotReached { why, .. } => (RunOutcome::NotReached, why.reason.clone()),
            NodeAnswer::Lost => (RunOutcome::Lost, "the node lost track of its scripts".to_owned()),
        };
        runs.push(HookRun { outcome, detail, ..self.row(&report.node, &own, None, time_ms) });
    }

    fn script(&self, node: &NodeName, own: &str, script: &ScriptResult, time_ms: u64) -> HookRun {
        let base = self.row(node, own, Some(&script.name), time_ms);
        let policy = self.job.prepared().map(|prepared| prepared.policy.of(&base.directory));
        let outcome = RunOutcome::of(&script.outcome, &policy.unwrap_or_default());
        let duration_ms = match script.outcome {
            ScriptOutcome::NotBegun { .. } => None,
            ScriptOutcome::Passed
            | ScriptOutcome::Failed { .. }
            | ScriptOutcome::Killed { .. }
            | ScriptOutcome::TimedOut { .. }
            | ScriptOutcome::OverBudget { .. }
            | ScriptOutcome::NotExecutable { .. }
            | ScriptOutcome::OutputTooLarge { .. }
            | ScriptOutcome::Ended
            | ScriptOutcome::Lost => Some(script.duration_ms),
        };
        HookRun { outcome, detail: script.outcome.text(), duration_ms, ..base }
    }

    /// A row, of which nothing happened yet. The name of an entry of the global directory has the directory before it.
    fn row(&self, node: &NodeName, own: &str, name: Option<&str>, time_ms: u64) -> HookRun {
        let (directory, script) = match name.map(|name| name.split_once('/').unwrap_or((own, name))) {
            Some((directory, script)) => (directory, Some(script.to_owned())),
            None => (own, None),
        };
        HookRun {
            job: self.job.id(),
            time_ms,
            op_id: self.job.submission.op.row().op_id,
            target: self.job.submission.op.target(),
            phase: phase_of(directory).map_or(self.phase, |(_, phase)| phase),
            node: node.clone(),
            directory: directory.to_owned(),
            script,
            outcome: RunOutcome::Skipped,
            detail: String::new(),
            duration_ms: None,
        }
    }
}

/// A directory's prefix and phase: `node-add-pre.d` is `node-add` before the operation.
pub fn phase_of(directory: &str) -> Option<(&str, Phase)> {
    [Phase::Pre, Phase::Post, Phase::Failed].into_iter().find_map(|phase| {
        let prefix = directory.strip_suffix(&phase.directory("")).filter(|prefix| !prefix.is_empty())?;
        Some((prefix, phase))
    })
}

/// Which rows are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Only of this node.
    pub node: Option<NodeName>,
    /// Only of scripts that this pattern takes.
    pub script: Option<ScriptPattern>,
    /// Only what should have gone otherwise.
    pub failed: bool,
    /// Only what began at this moment or later, in ms since 1970.
    pub since_ms: Option<u64>,
}

impl HistoryFilter {
    /// Whether the row is asked for.
    pub fn takes(&self, run: &HookRun) -> bool {
        self.node.as_ref().is_none_or(|node| *node == run.node)
            && self.script.as_ref().is_none_or(|pattern| {
                run.script.as_ref().is_some_and(|script| pattern.takes(&run.directory, script))
            })
            && (!self.failed || run.outcome.is_failure())
            && self.since_ms.is_none_or(|since| run.time_ms >= since)
    }
}

/// A pattern over the names of scripts: `*` for any characters but `/`, `?` for one. With a `/` in it, it is over directory
/// and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptPattern(Vec<u8>);

/// Longest pattern in bytes.
const PATTERN_BYTES_MAX: usize = 512;

/// A text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a pattern of scripts: DIRECTORY/SCRIPT or SCRIPT, with * for any characters and ? for one, at most 512 bytes"
)]
pub struct PatternError;

impl ScriptPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// When it is empty, too long, or has more than one `/`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let slashes = text.bytes().filter(|byte| *byte == b'/').count();
        if text.is_empty() || text.len() > PATTERN_BYTES_MAX || slashes > 1 {
            return Err(PatternError);
        }
        Ok(ScriptPattern(text.as_bytes().to_vec()))
    }

    /// Whether a script is meant.
    pub fn takes(&self, directory: &str, script: &str) -> bool {
        if self.0.contains(&b'/') {
            is_match(&self.0, format!("{directory}/{script}").as_bytes())
        } else {
            is_match(&self.0, script.as_bytes())
        }
    }
}

/// Goes back to the last `*` only, so that the time is bounded by the product of both lengths.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(b'?') if text[t] != b'/' => (p, t) = (p + 1, t + 1),
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            Some(_) | None => match star {
                // What a star takes never holds a slash, and no earlier star can do more than the last.
                Some((at, taken)) if text[taken] != b'/' => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                Some(_) | None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests;
