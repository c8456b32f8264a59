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

/// What results mean in a phase: in the operation's own directory, and in the global one that the master runs beside it.
#[derive(Debug, Clone)]
pub struct Rules {
    own: HookPolicy,
    global: HookPolicy,
    /// The master's node runs the operation's own directory too.
    is_master_in_set: bool,
}

impl Rules {
    /// Of these directories.
    pub fn new(policy: &HookPolicy, own: &str, global: &str) -> Self {
        Rules { own: policy.of(own), global: policy.of(global), is_master_in_set: true }
    }

    /// Of the global directory, where the operation has none of its own: silence denies nothing.
    pub fn global_alone(policy: &HookPolicy, global: &str) -> Self {
        let global = policy.of(global);
        let own = HookPolicy { master_required: false, unreachable: OnUnreachable::Allow, ..global.clone() };
        Rules { own, global, is_master_in_set: false }
    }

    /// The same where the master's node is outside the operation's set, and runs the global directory alone: its silence
    /// denies nothing.
    #[must_use]
    pub fn without_master(self) -> Self {
        Rules { is_master_in_set: false, ..self }
    }

    /// What holds for a script: the name of one of the global directory has the directory before it.
    pub fn of(&self, script: &ScriptResult) -> &HookPolicy {
        if script.name.contains('/') { &self.global } else { &self.own }
    }

    fn remark(&self, script: &ScriptResult) -> Option<String> {
        self.of(script).remark(&script.outcome)
    }
}

/// Folds a pre phase; `master` is the node whose master daemon executes the job (HOOKS.md R5).
pub fn fold_pre(rules: &Rules, master: &NodeName, reports: &[NodeReport]) -> Verdict {
    let mut verdict = Verdict { objections: Vec::new(), master_unasked: None, warnings: Vec::new() };
    for report in reports {
        fold_pre_node(rules, master, report, &mut verdict);
    }
    verdict
}

fn fold_pre_node(rules: &Rules, master: &NodeName, report: &NodeReport, verdict: &mut Verdict) {
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
        match rules.of(script).class(&script.outcome) {
            Class::Success => {}
            Class::Warning => verdict.warnings.push(script.warning(node)),
            Class::Error => verdict.objections.push(Objection {
                node: node.clone(),
                script: Some(script.clone()),
                reason: rules.remark(script),
            }),
        }
    }
    let Some(silence) = silent else { return };
    if node == master && !rules.is_master_in_set {
        verdict.warnings.push(silence);
    } else if node == master && rules.own.master_required {
        verdict.master_unasked = Some(format!("could not ask the master's own hooks: {silence}"));
    } else if rules.own.unreachable == OnUnreachable::Deny {
        verdict.objections.push(Objection { node: node.clone(), script: None, reason: Some(silence) });
    } else {
        verdict.warnings.push(silence);
    }
}

/// Lines of a post phase for the job's log, each with its class (HOOKS.md R7).
pub fn fold_post(rules: &Rules, reports: &[NodeReport]) -> Vec<(Class, String)> {
    let mut lines = Vec::new();
    for report in reports {
        let node = &report.node;
        for script in report.scripts() {
            let remark = rules.remark(script).map(|remark| format!(": {remark}")).unwrap_or_default();
            let class = rules.of(script).class(&script.outcome);
            let line = if class == Class::Warning { script.warning(node) } else { script.line(node) };
            lines.push((class, format!("{line}{remark}")));
        }
        match &report.answer {
            NodeAnswer::Answered(result) => {
                if let Some(failure) = &result.failure {
                    lines.push((Class::Warning, format!("post hooks on {node} failed: {failure}")));
                }
            }
            NodeAnswer::NotReached { why, .. } => {
                lines.push((
                    Class::Warning,
                    format!("node {node} could not be reached for post hooks: {}", why.reason),
                ));
            }
            NodeAnswer::Lost => {
                lines.push((Class::Warning, format!("the result of post hooks on {node} is unknown")))
            }
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

/// Most of a script's own words that a warning repeats, in characters.
const WARNING_CHARS_MAX: usize = 200;

impl ScriptResult {
    /// A warning: what happened, and the first line of what the script said.
    fn warning(&self, node: &NodeName) -> String {
        let said = [&self.stderr, &self.stdout].map(|stream| stream.visible());
        let first = said.iter().flat_map(|text| text.lines()).map(str::trim).find(|line| !line.is_empty());
        match first {
            Some(first) => {
                let short: String = first.chars().take(WARNING_CHARS_MAX).collect();
                format!("{}: {short}", self.line(node))
            }
            None => self.line(node),
        }
    }

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
            O::OverBudget { budget_ms } => format!("ended: the phase's budget of {budget_ms} ms is used up"),
            O::NotBegun { budget_ms } => {
                format!("not begun: the phase's budget of {budget_ms} ms is used up")
            }
            O::NotExecutable { reason } => format!("could not be executed: {reason}"),
            O::OutputTooLarge { limit_bytes } => format!("wrote more than {limit_bytes} bytes, ended"),
            O::Ended => "ended because its job was canceled".to_owned(),
            O::Lost => "unknown: its keeper is gone".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{Captured, ExitCodes, HookResult, NotReached, OnTimeout, ScriptOutcome};

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    fn answered(node: &str, outcomes: &[ScriptOutcome]) -> NodeReport {
        let scripts = outcomes.iter().enumerate().map(|(index, outcome)| ScriptResult {
            name: format!("{index}0-x"),
            outcome: outcome.clone(),
            duration_ms: 7,
            stdout: Captured::default(),
            stderr: Captured::default(),
            notes: Vec::new(),
        });
        let result = HookResult { scripts: scripts.collect(), ..HookResult::default() };
        NodeReport { node: name(node), answer: NodeAnswer::Answered(result), duration_ms: 9 }
    }

    fn silent(node: &str, partial: NodeReport) -> NodeReport {
        let NodeAnswer::Answered(partial) = partial.answer else { panic!("a partial answer is an answer") };
        let why = NotReached { reason: "connection refused".to_owned() };
        NodeReport { node: name(node), answer: NodeAnswer::NotReached { why, partial }, duration_ms: 9 }
    }

    /// Number of objections, whether the master was not asked, number of warnings.
    fn check(policy: &HookPolicy, reports: &[NodeReport], expected: (usize, bool, usize)) -> Verdict {
        let rules = Rules::new(policy, "node-add-pre.d", "global-pre.d");
        let verdict = fold_pre(&rules, &name("m"), reports);
        let found = (verdict.objections.len(), verdict.master_unasked.is_some(), verdict.warnings.len());
        assert_eq!(found, expected, "{reports:?}");
        verdict
    }

    #[test]
    fn r1_r3_r4_r5_in_strict_mode() {
        let policy = HookPolicy::default();
        let failed = |code| ScriptOutcome::Failed { code };
        check(&policy, &[answered("m", &[ScriptOutcome::Passed]), answered("a", &[])], (0, false, 0));
        check(
            &policy,
            &[answered("m", &[failed(1), failed(40)]), answered("a", &[failed(255)])],
            (3, false, 0),
        );
        check(&policy, &[answered("m", &[ScriptOutcome::Killed { signal: 9 }])], (1, false, 0));
        check(&policy, &[answered("m", &[ScriptOutcome::TimedOut { limit_ms: 5 }])], (1, false, 0));
        check(&policy, &[answered("m", &[]), silent("a", answered("a", &[]))], (0, false, 1));
        check(&policy, &[answered("m", &[]), silent("a", answered("a", &[failed(1)]))], (1, false, 1));
        let verdict = check(&policy, &[silent("m", answered("m", &[]))], (0, true, 0));
        assert!(verdict.master_unasked.unwrap().starts_with("could not ask the master's own hooks"));
        let bare = HookPolicy { master_required: false, ..policy };
        check(&bare, &[silent("m", answered("m", &[]))], (0, false, 1));
    }

    #[test]
    fn r5_an_operation_without_hooks_goes_on_where_the_masters_node_is_silent() {
        let policy = HookPolicy { unreachable: OnUnreachable::Deny, ..HookPolicy::default() };
        let rules = Rules::global_alone(&policy, "global-pre.d");
        let verdict = fold_pre(&rules, &name("m"), &[silent("m", answered("m", &[]))]);
        assert_eq!((verdict.objections.len(), verdict.master_unasked), (0, None));
        assert_eq!(verdict.warnings.len(), 1);
        let failed = answered("m", &[ScriptOutcome::Failed { code: 1 }]);
        assert_eq!(
            fold_pre(&rules, &name("m"), &[failed]).objections.len(),
            1,
            "an error denies all the same"
        );
    }

    #[test]
    fn r5_a_master_outside_the_set_is_not_required() {
        let policy = HookPolicy { unreachable: OnUnreachable::Deny, ..HookPolicy::default() };
        let rules = Rules::new(&policy, "node-migrate-pre.d", "global-pre.d").without_master();
        let reports = [silent("m", answered("m", &[])), silent("a", answered("a", &[]))];
        let verdict = fold_pre(&rules, &name("m"), &reports);
        assert_eq!((verdict.objections.len(), verdict.master_unasked), (1, None));
        assert_eq!(verdict.objections[0].node, name("a"), "the set's own nodes are judged as ever");
        assert_eq!(verdict.warnings.len(), 1);
    }

    #[test]
    fn r9_graded_exit_codes() {
        let policy = HookPolicy { exit_codes: ExitCodes::Graded, ..HookPolicy::default() };
        // Exit code, objections, warnings.
        for (code, objections, warnings) in
            [(1, 1, 0), (31, 1, 0), (32, 0, 1), (63, 0, 1), (64, 1, 0), (255, 1, 0)]
        {
            let verdict = check(
                &policy,
                &[answered("m", &[ScriptOutcome::Failed { code }])],
                (objections, false, warnings),
            );
            let reserved =
                verdict.objections.iter().any(|o| o.reason.as_ref().is_some_and(|r| r.contains("reserved")));
            assert_eq!(reserved, code >= 64, "{code}");
        }
    }

    #[test]
    fn r10_the_cluster_can_turn_both_round() {
        let deny = HookPolicy { unreachable: OnUnreachable::Deny, ..HookPolicy::default() };
        check(&deny, &[answered("m", &[]), silent("a", answered("a", &[]))], (1, false, 0));
        let allow = HookPolicy { timeout: OnTimeout::Allow, ..HookPolicy::default() };
        check(&allow, &[answered("m", &[ScriptOutcome::TimedOut { limit_ms: 5 }])], (0, false, 1));
    }
}
