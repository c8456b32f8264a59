//! The cluster's parameters on hooks, and the class of one script's result under them.

use serde::{Deserialize, Serialize};

use super::{ScriptOutcome, timeouts::TIMEOUT_MAX_DEFAULT_MS};

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
}

impl Default for HookPolicy {
    fn default() -> Self {
        HookPolicy {
            exit_codes: ExitCodes::default(),
            on_error: None,
            unreachable: OnUnreachable::default(),
            timeout: OnTimeout::default(),
            master_required: true,
            timeout_max_ms: TIMEOUT_MAX_DEFAULT_MS,
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
            ScriptOutcome::TimedOut { .. } => match self.timeout {
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
