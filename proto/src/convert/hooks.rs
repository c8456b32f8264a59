//! Hook results and hook parameters between wire and core.
//!
//! What core knows always has a form on the wire (`From`); what comes from the wire is checked here, once (`TryFrom`).

use muster_core::hooks as core;

use crate::v1;

/// What is wrong with a hook message from the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HookWireError {
    /// A field without which the message has no meaning.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// An enumeration value that this version does not know.
    #[error("{field} has the unknown value {value}")]
    Unknown {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
    },
    /// A number outside its range.
    #[error("{field} is {value}, which is not between {low} and {high}")]
    Range {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The smallest allowed.
        low: u64,
        /// The largest allowed.
        high: u64,
    },
}

fn unknown(field: &'static str, value: i32) -> HookWireError {
    HookWireError::Unknown { field, value: i64::from(value) }
}

impl From<core::Phase> for v1::HookPhase {
    fn from(phase: core::Phase) -> Self {
        match phase {
            core::Phase::Pre => v1::HookPhase::Pre,
            core::Phase::Post => v1::HookPhase::Post,
            core::Phase::Failed => v1::HookPhase::Failed,
        }
    }
}

/// Reads a phase's number.
///
/// # Errors
/// When it is unset or unknown.
pub fn phase(value: i32) -> Result<core::Phase, HookWireError> {
    match v1::HookPhase::try_from(value) {
        Ok(v1::HookPhase::Pre) => Ok(core::Phase::Pre),
        Ok(v1::HookPhase::Post) => Ok(core::Phase::Post),
        Ok(v1::HookPhase::Failed) => Ok(core::Phase::Failed),
        Ok(v1::HookPhase::Unspecified) => Err(HookWireError::Missing("phase")),
        Err(_) => Err(unknown("phase", value)),
    }
}

impl From<core::ScriptOutcome> for v1::ScriptOutcome {
    fn from(outcome: core::ScriptOutcome) -> Self {
        use v1::script_outcome::{Ended, Kind, Lost, Passed};
        let kind = match outcome {
            core::ScriptOutcome::Passed => Kind::Passed(Passed {}),
            core::ScriptOutcome::Failed { code } => Kind::FailedCode(u32::from(code)),
            core::ScriptOutcome::Killed { signal } => Kind::KilledSignal(signal),
            core::ScriptOutcome::TimedOut { limit_ms } => Kind::TimedOutLimitMs(limit_ms),
            core::ScriptOutcome::OverBudget { budget_ms } => Kind::OverBudgetMs(budget_ms),
            core::ScriptOutcome::NotBegun { budget_ms } => Kind::NotBegunBudgetMs(budget_ms),
            core::ScriptOutcome::NotExecutable { reason } => Kind::NotExecutable(reason),
            core::ScriptOutcome::OutputTooLarge { limit_bytes } => Kind::OutputTooLargeBytes(limit_bytes),
            core::ScriptOutcome::Ended => Kind::Ended(Ended {}),
            core::ScriptOutcome::Lost => Kind::Lost(Lost {}),
        };
        v1::ScriptOutcome { kind: Some(kind) }
    }
}

impl TryFrom<v1::ScriptOutcome> for core::ScriptOutcome {
    type Error = HookWireError;

    fn try_from(wire: v1::ScriptOutcome) -> Result<Self, HookWireError> {
        use v1::script_outcome::Kind;
        Ok(match wire.kind.ok_or(HookWireError::Missing("outcome"))? {
            Kind::Passed(_) => core::ScriptOutcome::Passed,
            Kind::FailedCode(value) => match u8::try_from(value) {
                Ok(code) if code > 0 => core::ScriptOutcome::Failed { code },
                // Zero would be a success under the name of a failure.
                Ok(_) | Err(_) => {
                    let value = u64::from(value);
                    return Err(HookWireError::Range { field: "exit code", value, low: 1, high: 255 });
                }
            },
            Kind::KilledSignal(signal) => core::ScriptOutcome::Killed { signal },
            Kind::TimedOutLimitMs(limit_ms) => core::ScriptOutcome::TimedOut { limit_ms },
            Kind::OverBudgetMs(budget_ms) => core::ScriptOutcome::OverBudget { budget_ms },
            Kind::NotBegunBudgetMs(budget_ms) => core::ScriptOutcome::NotBegun { budget_ms },
            Kind::NotExecutable(reason) => core::ScriptOutcome::NotExecutable { reason },
            Kind::OutputTooLargeBytes(limit_bytes) => core::ScriptOutcome::OutputTooLarge { limit_bytes },
            Kind::Ended(_) => core::ScriptOutcome::Ended,
            Kind::Lost(_) => core::ScriptOutcome::Lost,
        })
    }
}

impl From<core::Captured> for v1::Captured {
    fn from(captured: core::Captured) -> Self {
        let core::Captured { head, tail, total_bytes, path } = captured;
        v1::Captured { head, tail, total_bytes, path }
    }
}

impl From<v1::Captured> for core::Captured {
    fn from(wire: v1::Captured) -> Self {
        let v1::Captured { head, tail, total_bytes, path } = wire;
        core::Captured { head, tail, total_bytes, path }
    }
}

impl From<core::ScriptResult> for v1::ScriptResult {
    fn from(result: core::ScriptResult) -> Self {
        let core::ScriptResult { name, outcome, duration_ms, stdout, stderr, notes } = result;
        v1::ScriptResult {
            name,
            outcome: Some(outcome.into()),
            duration_ms,
            stdout: Some(stdout.into()),
            stderr: Some(stderr.into()),
            notes,
        }
    }
}

impl TryFrom<v1::ScriptResult> for core::ScriptResult {
    type Error = HookWireError;

    fn try_from(wire: v1::ScriptResult) -> Result<Self, HookWireError> {
        Ok(core::ScriptResult {
            name: wire.name,
            outcome: wire.outcome.ok_or(HookWireError::Missing("outcome"))?.try_into()?,
            duration_ms: wire.duration_ms,
            stdout: wire.stdout.unwrap_or_default().into(),
            stderr: wire.stderr.unwrap_or_default().into(),
            notes: wire.notes,
        })
    }
}

impl From<core::SkipReason> for v1::SkipReason {
    fn from(reason: core::SkipReason) -> Self {
        match reason {
            core::SkipReason::BadName => v1::SkipReason::BadName,
            core::SkipReason::Disabled => v1::SkipReason::Disabled,
            core::SkipReason::NotExecutable => v1::SkipReason::NotExecutable,
            core::SkipReason::NoExecMount => v1::SkipReason::NoExecMount,
            core::SkipReason::Directory => v1::SkipReason::Directory,
            core::SkipReason::DanglingLink => v1::SkipReason::DanglingLink,
            core::SkipReason::NotAFile => v1::SkipReason::NotAFile,
            core::SkipReason::Shadowed => v1::SkipReason::Shadowed,
        }
    }
}

impl From<core::Skipped> for v1::SkippedEntry {
    fn from(skipped: core::Skipped) -> Self {
        v1::SkippedEntry { name: skipped.name, reason: v1::SkipReason::from(skipped.reason).into() }
    }
}

impl TryFrom<v1::SkippedEntry> for core::Skipped {
    type Error = HookWireError;

    fn try_from(wire: v1::SkippedEntry) -> Result<Self, HookWireError> {
        let reason = match v1::SkipReason::try_from(wire.reason) {
            Ok(v1::SkipReason::BadName) => core::SkipReason::BadName,
            Ok(v1::SkipReason::Disabled) => core::SkipReason::Disabled,
            Ok(v1::SkipReason::NotExecutable) => core::SkipReason::NotExecutable,
            Ok(v1::SkipReason::NoExecMount) => core::SkipReason::NoExecMount,
            Ok(v1::SkipReason::Directory) => core::SkipReason::Directory,
            Ok(v1::SkipReason::DanglingLink) => core::SkipReason::DanglingLink,
            Ok(v1::SkipReason::NotAFile) => core::SkipReason::NotAFile,
            Ok(v1::SkipReason::Shadowed) => core::SkipReason::Shadowed,
            Ok(v1::SkipReason::Unspecified) => return Err(HookWireError::Missing("skip reason")),
            Err(_) => return Err(unknown("skip reason", wire.reason)),
        };
        Ok(core::Skipped { name: wire.name, reason })
    }
}

impl From<core::HookResult> for v1::HookResult {
    fn from(result: core::HookResult) -> Self {
        v1::HookResult {
            scripts: result.scripts.into_iter().map(Into::into).collect(),
            skipped: result.skipped.into_iter().map(Into::into).collect(),
            failure: result.failure,
            global_post_absent: result.global_post_absent,
        }
    }
}

impl TryFrom<v1::HookResult> for core::HookResult {
    type Error = HookWireError;

    fn try_from(wire: v1::HookResult) -> Result<Self, HookWireError> {
        Ok(core::HookResult {
            scripts: wire.scripts.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            skipped: wire.skipped.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            failure: wire.failure,
            global_post_absent: wire.global_post_absent,
        })
    }
}

impl From<core::HookPolicy> for v1::HookPolicy {
    fn from(policy: core::HookPolicy) -> Self {
        let exit_codes = match policy.exit_codes {
            core::ExitCodes::Strict => v1::ExitCodes::Strict,
            core::ExitCodes::Graded => v1::ExitCodes::Graded,
        };
        let on_error = match policy.on_error {
            None => v1::OnError::Unspecified,
            Some(core::OnError::Continue) => v1::OnError::Continue,
            Some(core::OnError::Stop) => v1::OnError::Stop,
        };
        let unreachable = match policy.unreachable {
            core::OnUnreachable::Allow => v1::AllowDeny::Allow,
            core::OnUnreachable::Deny => v1::AllowDeny::Deny,
        };
        let timeout = match policy.timeout {
            core::OnTimeout::Allow => v1::AllowDeny::Allow,
            core::OnTimeout::Deny => v1::AllowDeny::Deny,
        };
        v1::HookPolicy {
            exit_codes: exit_codes.into(),
            on_error: on_error.into(),
            unreachable: unreachable.into(),
            timeout: timeout.into(),
            master_required: Some(policy.master_required),
            timeout_max_ms: Some(policy.timeout_max_ms),
            warn_ms: Some(policy.warn_ms),
            kill_ms: Some(policy.kill_ms),
            budget_ms: policy.budget_ms,
            directories: super::hook_policy::table_to_wire(policy.directories),
            version: Some(version_to_wire(policy.version)),
        }
    }
}

/// A version of the interface as its number.
pub fn version_to_wire(version: core::HooksVersion) -> u32 {
    match version {
        core::HooksVersion::V1 => 1,
        core::HooksVersion::V2 => 2,
    }
}

/// A version of the interface from its number; `None` where this version of the program does not know it.
pub fn version_from_wire(number: u32) -> Option<core::HooksVersion> {
    core::HooksVersion::ALL.into_iter().find(|version| version_to_wire(*version) == number)
}

/// The parameters `base` with all that is set in `change` on top; what is unset stays.
///
/// # Errors
/// When a value is unknown to this version.
pub fn policy_changed(
    base: &core::HookPolicy,
    change: &v1::HookPolicy,
) -> Result<core::HookPolicy, HookWireError> {
    let exit_codes = match v1::ExitCodes::try_from(change.exit_codes) {
        Ok(v1::ExitCodes::Unspecified) => base.exit_codes,
        Ok(v1::ExitCodes::Strict) => core::ExitCodes::Strict,
        Ok(v1::ExitCodes::Graded) => core::ExitCodes::Graded,
        Err(_) => return Err(unknown("exit_codes", change.exit_codes)),
    };
    let on_error = match v1::OnError::try_from(change.on_error) {
        Ok(v1::OnError::Unspecified) => base.on_error,
        Ok(v1::OnError::Continue) => Some(core::OnError::Continue),
        Ok(v1::OnError::Stop) => Some(core::OnError::Stop),
        Err(_) => return Err(unknown("hook_on_error", change.on_error)),
    };
    let unreachable = match allow_deny("hook_unreachable", change.unreachable)? {
        None => base.unreachable,
        Some(Verdict::Allow) => core::OnUnreachable::Allow,
        Some(Verdict::Deny) => core::OnUnreachable::Deny,
    };
    let timeout = match allow_deny("hook_timeout", change.timeout)? {
        None => base.timeout,
        Some(Verdict::Allow) => core::OnTimeout::Allow,
        Some(Verdict::Deny) => core::OnTimeout::Deny,
    };
    let wrong = |number| HookWireError::Unknown { field: "hooks_version", value: i64::from(number) };
    let version = change.version.map(|number| version_from_wire(number).ok_or(wrong(number))).transpose()?;
    Ok(core::HookPolicy {
        exit_codes,
        on_error,
        unreachable,
        timeout,
        master_required: change.master_required.unwrap_or(base.master_required),
        timeout_max_ms: change.timeout_max_ms.unwrap_or(base.timeout_max_ms),
        warn_ms: change.warn_ms.unwrap_or(base.warn_ms),
        kill_ms: change.kill_ms.unwrap_or(base.kill_ms),
        budget_ms: change.budget_ms.map_or(base.budget_ms, |ms| Some(ms).filter(|ms| *ms > 0)),
        directories: match change.directories.is_empty() {
            true => base.directories.clone(),
            false => super::hook_policy::table(&change.directories)?,
        },
        version: version.unwrap_or(base.version),
    })
}

/// A whole set of parameters: what is unset has its default.
impl TryFrom<v1::HookPolicy> for core::HookPolicy {
    type Error = HookWireError;

    fn try_from(wire: v1::HookPolicy) -> Result<Self, HookWireError> {
        policy_changed(&core::HookPolicy::default(), &wire)
    }
}

enum Verdict {
    Allow,
    Deny,
}

fn allow_deny(field: &'static str, value: i32) -> Result<Option<Verdict>, HookWireError> {
    match v1::AllowDeny::try_from(value) {
        Ok(v1::AllowDeny::Unspecified) => Ok(None),
        Ok(v1::AllowDeny::Allow) => Ok(Some(Verdict::Allow)),
        Ok(v1::AllowDeny::Deny) => Ok(Some(Verdict::Deny)),
        Err(_) => Err(unknown(field, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(text: &str) -> core::Captured {
        core::Captured {
            head: text.as_bytes().to_vec(),
            tail: b"\xff\0".to_vec(),
            total_bytes: 70_000,
            path: "/var/lib/muster/node/out/1".to_owned(),
        }
    }

    #[test]
    fn every_result_survives_the_wire() {
        let outcomes = [
            core::ScriptOutcome::Passed,
            core::ScriptOutcome::Failed { code: 255 },
            core::ScriptOutcome::Killed { signal: 9 },
            core::ScriptOutcome::TimedOut { limit_ms: 300_000 },
            core::ScriptOutcome::OverBudget { budget_ms: 10_000 },
            core::ScriptOutcome::NotBegun { budget_ms: 10_000 },
            core::ScriptOutcome::NotExecutable { reason: "no interpreter".to_owned() },
            core::ScriptOutcome::OutputTooLarge { limit_bytes: 1 },
            core::ScriptOutcome::Ended,
            core::ScriptOutcome::Lost,
        ];
        let reasons = [
            core::SkipReason::BadName,
            core::SkipReason::Disabled,
            core::SkipReason::NotExecutable,
            core::SkipReason::NoExecMount,
            core::SkipReason::Directory,
            core::SkipReason::DanglingLink,
            core::SkipReason::NotAFile,
            core::SkipReason::Shadowed,
        ];
        let result = core::HookResult {
            scripts: outcomes
                .map(|outcome| core::ScriptResult {
                    name: "10-x".to_owned(),
                    outcome,
                    duration_ms: 7,
                    stdout: captured("out"),
                    stderr: captured("err"),
                    notes: vec!["slow".to_owned()],
                })
                .to_vec(),
            skipped: reasons.map(|reason| core::Skipped { name: "a.b".to_owned(), reason }).to_vec(),
            failure: Some("could not read the directory".to_owned()),
            global_post_absent: true,
        };
        assert_eq!(core::HookResult::try_from(v1::HookResult::from(result.clone())), Ok(result));
    }

    #[test]
    fn a_failure_with_exit_code_zero_is_refused() {
        use v1::script_outcome::Kind;
        for code in [0, 256, u32::MAX] {
            let wire = v1::ScriptOutcome { kind: Some(Kind::FailedCode(code)) };
            assert!(
                matches!(core::ScriptOutcome::try_from(wire), Err(HookWireError::Range { .. })),
                "{code}"
            );
        }
        let empty = core::ScriptOutcome::try_from(v1::ScriptOutcome { kind: None });
        assert_eq!(empty, Err(HookWireError::Missing("outcome")));
    }

    #[test]
    fn phases_are_read_from_numbers() {
        for known in [core::Phase::Pre, core::Phase::Post, core::Phase::Failed] {
            assert_eq!(phase(v1::HookPhase::from(known).into()), Ok(known));
        }
        assert_eq!(phase(0), Err(HookWireError::Missing("phase")));
        assert_eq!(phase(9), Err(HookWireError::Unknown { field: "phase", value: 9 }));
    }

    #[test]
    fn a_change_of_parameters_leaves_the_rest() {
        let base = core::HookPolicy {
            exit_codes: core::ExitCodes::Graded,
            on_error: Some(core::OnError::Stop),
            unreachable: core::OnUnreachable::Deny,
            timeout: core::OnTimeout::Allow,
            master_required: false,
            timeout_max_ms: 5,
            warn_ms: 7,
            kill_ms: 8,
            budget_ms: Some(9_000),
            directories: [(
                "node-add-pre.d".to_owned(),
                core::DirectoryPolicy { kill_ms: Some(1), ..core::DirectoryPolicy::default() },
            )]
            .into(),
            version: core::HooksVersion::V2,
        };
        assert_eq!(core::HookPolicy::try_from(v1::HookPolicy::from(base.clone())), Ok(base.clone()));
        let change = v1::HookPolicy { timeout_max_ms: Some(6), ..v1::HookPolicy::default() };
        let expected = core::HookPolicy { timeout_max_ms: 6, ..base.clone() };
        assert_eq!(policy_changed(&base, &change), Ok(expected));
        let wrong = v1::HookPolicy { timeout: 3, ..v1::HookPolicy::default() };
        assert!(policy_changed(&base, &wrong).is_err());
        assert_eq!(core::HookPolicy::try_from(v1::HookPolicy::default()), Ok(core::HookPolicy::default()));
    }
}
