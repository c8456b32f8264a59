//! The cluster's parameters on hooks, and the class of one script's result under them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    HooksVersion, ScriptOutcome,
    timeouts::{KILL_DEFAULT_MS, LimitBounds, TIMEOUT_MAX_DEFAULT_MS, WARN_DEFAULT_MS},
};

/// The shortest budget of a phase: the grace of a script that is ended is part of it.
pub const BUDGET_MS_MIN: u64 = 3_000;

/// How exit codes are read (HOOKS.md R1, R9).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCodes {
    /// 0 allows, all else denies.
    #[default]
    Strict,
    /// 0 success, 1-31 error, 32-63 warning, 64-255 reserved (error).
    Graded,
}

/// What follows the first error in a directory (HOOKS.md R2, R9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The later scripts run too.
    Continue,
    /// The directory ends.
    Stop,
}

/// What a node that can't be reached means in pre (HOOKS.md R3, R10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnreachable {
    /// No deny, a warning.
    #[default]
    Allow,
    /// A deny.
    Deny,
}

/// What a script over its limit means in pre (HOOKS.md R4, R10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// A deny.
    #[default]
    Deny,
    /// A warning.
    Allow,
}

/// The cluster's hook parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookPolicy {
    /// `hooks_version`: the interface that scripts see.
    #[serde(default)]
    pub version: HooksVersion,
    /// `exit_codes`.
    pub exit_codes: ExitCodes,
    /// `hook_on_error`; unset means `continue` for strict and `stop` for graded.
    pub on_error: Option<OnError>,
    /// `hook_unreachable`.
    pub unreachable: OnUnreachable,
    /// `hook_timeout`.
    pub timeout: OnTimeout,
    /// `hook_master_required` (R5).
    pub master_required: bool,
    /// `hook_timeout_max`: bound of a script's own kill limit, in milliseconds (X8).
    pub timeout_max_ms: u64,
    /// `hook_warn_limit`: of scripts that set none, in milliseconds (X8).
    #[serde(default = "warn_default_ms")]
    pub warn_ms: u64,
    /// `hook_kill_limit`: of scripts that set none, in milliseconds (X8).
    #[serde(default = "kill_default_ms")]
    pub kill_ms: u64,
    /// `hook_phase_budget`: time for all scripts of a phase on a node, in milliseconds; none for no bound.
    #[serde(default)]
    pub budget_ms: Option<u64>,
    /// `hook_policy`: what differs in single directories, by name (`node-add-pre.d`).
    #[serde(default)]
    pub directories: BTreeMap<String, DirectoryPolicy>,
}

fn warn_default_ms() -> u64 {
    WARN_DEFAULT_MS
}

fn kill_default_ms() -> u64 {
    KILL_DEFAULT_MS
}

/// What differs from the cluster's parameters in one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectoryPolicy {
    /// `exit_codes`.
    pub exit_codes: Option<ExitCodes>,
    /// `on_error`.
    pub on_error: Option<OnError>,
    /// `unreachable`.
    pub unreachable: Option<OnUnreachable>,
    /// `timeout`.
    pub timeout: Option<OnTimeout>,
    /// `warn_limit` in milliseconds.
    pub warn_ms: Option<u64>,
    /// `kill_limit` in milliseconds.
    pub kill_ms: Option<u64>,
    /// `phase_budget` in milliseconds; 0 for none there, whatever the cluster has.
    pub budget_ms: Option<u64>,
}

impl DirectoryPolicy {
    /// This, with all that is set in `change` on top.
    #[must_use]
    pub fn changed(&self, change: &DirectoryPolicy) -> DirectoryPolicy {
        DirectoryPolicy {
            exit_codes: change.exit_codes.or(self.exit_codes),
            on_error: change.on_error.or(self.on_error),
            unreachable: change.unreachable.or(self.unreachable),
            timeout: change.timeout.or(self.timeout),
            warn_ms: change.warn_ms.or(self.warn_ms),
            kill_ms: change.kill_ms.or(self.kill_ms),
            budget_ms: change.budget_ms.or(self.budget_ms),
        }
    }
}

impl Default for HookPolicy {
    fn default() -> Self {
        HookPolicy {
            version: HooksVersion::default(),
            exit_codes: ExitCodes::default(),
            on_error: None,
            unreachable: OnUnreachable::default(),
            timeout: OnTimeout::default(),
            master_required: true,
            timeout_max_ms: TIMEOUT_MAX_DEFAULT_MS,
            warn_ms: WARN_DEFAULT_MS,
            kill_ms: KILL_DEFAULT_MS,
            budget_ms: None,
            directories: BTreeMap::new(),
        }
    }
}

/// The class of one script's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Allows.
    Success,
    /// Shown, denies nothing.
    Warning,
    /// Denies in pre.
    Error,
}

impl HookPolicy {
    /// What holds in one directory: the cluster's parameters, and what differs there on top.
    #[must_use]
    pub fn of(&self, directory: &str) -> HookPolicy {
        let none = DirectoryPolicy::default();
        let own = self.directories.get(directory).unwrap_or(&none);
        HookPolicy {
            exit_codes: own.exit_codes.unwrap_or(self.exit_codes),
            on_error: own.on_error.or(self.on_error),
            unreachable: own.unreachable.unwrap_or(self.unreachable),
            timeout: own.timeout.unwrap_or(self.timeout),
            warn_ms: own.warn_ms.unwrap_or(self.warn_ms),
            kill_ms: own.kill_ms.unwrap_or(self.kill_ms),
            budget_ms: own.budget_ms.or(self.budget_ms).filter(|ms| *ms > 0),
            directories: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// The limits of scripts in one directory (HOOKS.md X8).
    pub fn limit_bounds(&self, directory: &str) -> LimitBounds {
        let HookPolicy { warn_ms, kill_ms, timeout_max_ms: max_ms, .. } = self.of(directory);
        LimitBounds { warn_ms, kill_ms, max_ms }
    }

    /// What follows the first error, defaults filled in (HOOKS.md R2, R9).
    pub fn on_error(&self) -> OnError {
        self.on_error.unwrap_or(match self.exit_codes {
            ExitCodes::Strict => OnError::Continue,
            ExitCodes::Graded => OnError::Stop,
        })
    }

    /// The class of a result (HOOKS.md R1, R4, R9, R10).
    pub fn class(&self, outcome: &ScriptOutcome) -> Class {
        match outcome {
            ScriptOutcome::Passed => Class::Success,
            ScriptOutcome::Failed { code } => match (self.exit_codes, code) {
                (ExitCodes::Graded, 32..=63) => Class::Warning,
                (ExitCodes::Graded | ExitCodes::Strict, _) => Class::Error,
            },
            // The phase's budget is a time limit too.
            ScriptOutcome::TimedOut { .. }
            | ScriptOutcome::OverBudget { .. }
            | ScriptOutcome::NotBegun { .. } => match self.timeout {
                OnTimeout::Deny => Class::Error,
                OnTimeout::Allow => Class::Warning,
            },
            ScriptOutcome::Killed { .. }
            | ScriptOutcome::NotExecutable { .. }
            | ScriptOutcome::OutputTooLarge { .. }
            | ScriptOutcome::Ended
            | ScriptOutcome::Lost => Class::Error,
        }
    }

    /// What must be said of an outcome beside its class (HOOKS.md R9).
    pub fn remark(&self, outcome: &ScriptOutcome) -> Option<String> {
        match (self.exit_codes, outcome) {
            (ExitCodes::Graded, ScriptOutcome::Failed { code: code @ 64.. }) => {
                Some(format!("exit code {code} is reserved (64 to 255) and counts as an error"))
            }
            (ExitCodes::Graded | ExitCodes::Strict, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_what_is_set_for_it_and_the_clusters_else() {
        let own = DirectoryPolicy {
            exit_codes: Some(ExitCodes::Graded),
            timeout: Some(OnTimeout::Allow),
            kill_ms: Some(5_000),
            budget_ms: Some(10_000),
            ..DirectoryPolicy::default()
        };
        let policy = HookPolicy {
            unreachable: OnUnreachable::Deny,
            directories: [("node-add-pre.d".to_owned(), own)].into(),
            ..HookPolicy::default()
        };
        let there = policy.of("node-add-pre.d");
        assert_eq!((there.exit_codes, there.timeout), (ExitCodes::Graded, OnTimeout::Allow));
        assert_eq!((there.kill_ms, there.budget_ms), (5_000, Some(10_000)));
        assert_eq!((there.unreachable, there.warn_ms), (OnUnreachable::Deny, WARN_DEFAULT_MS));
        let mut free = policy.clone();
        free.budget_ms = Some(9_000);
        free.directories.get_mut("node-add-pre.d").unwrap().budget_ms = Some(0);
        assert_eq!((free.of("node-add-pre.d").budget_ms, free.of("x").budget_ms), (None, Some(9_000)));
        // Graded stops at the first error by itself, also where only the directory is graded.
        assert_eq!(there.on_error(), OnError::Stop);
        let elsewhere = policy.of("node-add-post.d");
        assert_eq!(elsewhere, HookPolicy { directories: BTreeMap::new(), ..policy.clone() });
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let before = DirectoryPolicy { kill_ms: Some(1), warn_ms: Some(2), ..DirectoryPolicy::default() };
        let change = DirectoryPolicy { kill_ms: Some(3), ..DirectoryPolicy::default() };
        assert_eq!(
            before.changed(&change),
            DirectoryPolicy { kill_ms: Some(3), warn_ms: Some(2), ..DirectoryPolicy::default() }
        );
    }

    #[test]
    fn r4_r10_a_used_up_budget_is_a_time_limit() {
        let used = [ScriptOutcome::OverBudget { budget_ms: 1 }, ScriptOutcome::NotBegun { budget_ms: 1 }];
        let allow = HookPolicy { timeout: OnTimeout::Allow, ..HookPolicy::default() };
        for outcome in used {
            assert_eq!(HookPolicy::default().class(&outcome), Class::Error);
            assert_eq!(allow.class(&outcome), Class::Warning);
        }
    }

    #[test]
    fn parameters_of_an_older_version_are_read() {
        let text = r#"{"exit_codes":"strict","on_error":null,"unreachable":"allow","timeout":"deny",
            "master_required":true,"timeout_max_ms":86400000}"#;
        assert_eq!(serde_json::from_str::<HookPolicy>(text).unwrap(), HookPolicy::default());
    }
}
