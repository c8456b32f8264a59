//! The words for the protocol's enums; the same in text and JSON.

use muster_proto::v1::{
    AllowDeny, ErrorKind, ExitCodes, HookPhase, JobEnding, JobStatus, LogLevel, OnError, RunState, SkipReason,
};

/// A job's status; a contract.
pub(crate) fn status(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Unspecified => "?",
        JobStatus::Queued => "queued",
        JobStatus::Waiting => "waiting",
        JobStatus::Running => "running",
        JobStatus::Canceling => "canceling",
        JobStatus::Canceled => "canceled",
        JobStatus::Success => "success",
        JobStatus::Error => "error",
    }
}

/// How a job ended, for those that depend on it.
pub(crate) fn ending(ending: JobEnding) -> &'static str {
    match ending {
        JobEnding::Unspecified => "?",
        JobEnding::Success => "success",
        JobEnding::Error => "error",
        JobEnding::Canceled => "canceled",
    }
}

/// An error's kind; a contract.
pub(crate) fn error_kind(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unspecified => "?",
        ErrorKind::Refused => "refused",
        ErrorKind::Denied => "denied",
        ErrorKind::Failed => "failed",
        ErrorKind::Interrupted => "interrupted",
    }
}

/// Before or after the operation.
pub(crate) fn phase(phase: HookPhase) -> &'static str {
    match phase {
        HookPhase::Unspecified => "?",
        HookPhase::Pre => "pre",
        HookPhase::Post => "post",
        HookPhase::Failed => "end",
    }
}

/// A log line's level.
pub(crate) fn level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Unspecified => "?",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warning => "warning",
        LogLevel::Error => "error",
    }
}

/// Why an entry of a hook directory is not run (HOOKS.md D3).
pub(crate) fn skip_reason(reason: SkipReason) -> &'static str {
    use muster_core::hooks::SkipReason as Known;
    match reason {
        SkipReason::Unspecified => "?",
        SkipReason::BadName => Known::BadName.text(),
        SkipReason::Disabled => Known::Disabled.text(),
        SkipReason::NotExecutable => Known::NotExecutable.text(),
        SkipReason::NoExecMount => Known::NoExecMount.text(),
        SkipReason::Directory => Known::Directory.text(),
        SkipReason::DanglingLink => Known::DanglingLink.text(),
        SkipReason::NotAFile => Known::NotAFile.text(),
        SkipReason::Shadowed => Known::Shadowed.text(),
    }
}

/// The parameter `exit_codes`.
pub(crate) fn exit_codes(value: ExitCodes) -> &'static str {
    match value {
        ExitCodes::Unspecified => "?",
        ExitCodes::Strict => "strict",
        ExitCodes::Graded => "graded",
    }
}

/// The parameter `hook_on_error`.
pub(crate) fn on_error(value: OnError) -> &'static str {
    match value {
        OnError::Unspecified => "default",
        OnError::Continue => "continue",
        OnError::Stop => "stop",
    }
}

/// The parameters `hook_unreachable` and `hook_timeout`.
pub(crate) fn allow_deny(value: AllowDeny) -> &'static str {
    match value {
        AllowDeny::Unspecified => "?",
        AllowDeny::Allow => "allow",
        AllowDeny::Deny => "deny",
    }
}

/// A guest's state on a node.
pub(crate) fn run_state(value: RunState) -> &'static str {
    match value {
        RunState::Unspecified => "?",
        RunState::Running => "running",
        RunState::Stopped => "stopped",
        RunState::Paused => "paused",
        RunState::ShutDown => "shut down",
        RunState::Crashed => "crashed",
    }
}

/// `yes` or `no`.
pub(crate) fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
