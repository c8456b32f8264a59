//! Folds what the nodes reported into a verdict (HOOKS.md R1-R10).

use serde::{Deserialize, Serialize};

use super::{Class, HookPolicy, NodeAnswer, NodeReport, OnUnreachable, ScriptResult};
use crate::names::NodeName;

/// One reason to deny: a script's error, or a node that could not run its scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objection {
    /// The node that objects.
    pub node: NodeName,
    /// The script, or `None` where the node as a whole failed.
    pub script: Option<ScriptResult>,
    /// In words, where no script's result says it.
    pub reason: Option<String>,
}

/// The outcome of a pre phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Everything that denies; empty means allowed (R1: all are named, not only the first).
    pub objections: Vec<Objection>,
    /// Set when the executing master's own node gave no answer (R5): a failure, not a denial.
    pub master_unasked: Option<String>,
    /// Lines for the job's log.
    pub warnings: Vec<String>,
}

/// Folds a pre phase; `master` is the node whose master daemon executes the job (HOOKS.md R5).
pub fn fold_pre(policy: &HookPolicy, master: &NodeName, reports: &[NodeReport]) -> Verdict {
    let mut verdict = Verdict { objections: Vec::new(), master_unasked: None, warnings: Vec::new() };
    for report in reports {
        fold_pre_node(policy, master, report, &mut verdict);
    }
    verdict
}

fn fold_pre_node(policy: &HookPolicy, master: &NodeName, report: &NodeReport, verdict: &mut Verdict) {
    let node = &report.node;
    let silent = match &report.answer {
        NodeAnswer::Answered(result) => {
            if let Some(failure) = &result.failure {
                verdict.objections.push(Objection {
                    node: node.clone(),
                    script: None,
                    reason: Some(failure.clone()),
                });
            }
            None
        }
        NodeAnswer::NotReached { why, .. } => {
            Some(format!("node {node} could not be reached: {}", why.reason))
        }
        NodeAnswer::Lost => Some(format!("node {node} lost track of its scripts")),
    };
    for script in report.scripts() {
        match policy.class(&script.outcome) {
            Class::Success => {}
            Class::Warning => verdict.warnings.push(script.line(node)),
            Class::Error => verdict.objections.push(Objection {
                node: node.clone(),
                script: Some(script.clone()),
                reason: None,
            }),
        }
    }
    let Some(silence) = silent else { return };
    if node == master && policy.master_required {
        verdict.master_unasked = Some(format!("could not ask the master's own hooks: {silence}"));
    } else if policy.unreachable == OnUnreachable::Deny {
        verdict.objections.push(Objection { node: node.clone(), script: None, reason: Some(silence) });
    } else {
        verdict.warnings.push(silence);
    }
}

/// Lines of a post phase for the job's log, each with whether it is a warning (HOOKS.md R7).
pub fn fold_post(policy: &HookPolicy, reports: &[NodeReport]) -> Vec<(bool, String)> {
    let mut lines = Vec::new();
    for report in reports {
        let node = &report.node;
        for script in report.scripts() {
            lines.push((policy.class(&script.outcome) != Class::Success, script.line(node)));
        }
        match &report.answer {
            NodeAnswer::Answered(result) => {
                if let Some(failure) = &result.failure {
                    lines.push((true, format!("post hooks on {node} failed: {failure}")));
                }
            }
            NodeAnswer::NotReached { why, .. } => {
                lines
                    .push((true, format!("node {node} could not be reached for post hooks: {}", why.reason)));
            }
            NodeAnswer::Lost => lines.push((true, format!("the result of post hooks on {node} is unknown"))),
        }
    }
    lines
}

impl NodeReport {
    /// The scripts that reported, also those before a loss.
    pub fn scripts(&self) -> &[ScriptResult] {
        match &self.answer {
            NodeAnswer::Answered(result) | NodeAnswer::NotReached { partial: result, .. } => &result.scripts,
            NodeAnswer::Lost => &[],
        }
    }
}

impl ScriptResult {
    /// One line: node, script, outcome, time.
    pub fn line(&self, node: &NodeName) -> String {
        format!("{node}: {} {} ({} ms)", self.name, self.outcome.text(), self.duration_ms)
    }
}

impl super::ScriptOutcome {
    /// The outcome in words: `exit code 3`, `killed by signal 9`, ...
    pub fn text(&self) -> String {
        use super::ScriptOutcome as O;
        match self {
            O::Passed => "exit code 0".to_owned(),
            O::Failed { code } => format!("exit code {code}"),
            O::Killed { signal } => format!("killed by signal {signal}"),
            O::TimedOut { limit_ms } => format!("over its time limit of {limit_ms} ms, ended"),
            O::NotExecutable { reason } => format!("could not be executed: {reason}"),
            O::OutputTooLarge { limit_bytes } => format!("wrote more than {limit_bytes} bytes, ended"),
            O::Ended => "ended because its job was canceled".to_owned(),
            O::Lost => "unknown: its keeper is gone".to_owned(),
        }
    }
}
