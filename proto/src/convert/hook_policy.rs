//! What differs in single directories of hooks, between wire and core.

use std::collections::{BTreeMap, HashMap};

use muster_core::{
    hooks::{DirectoryPolicy, ExitCodes, OnError, OnTimeout, OnUnreachable},
    ops::{DirectoryChange, HookLimitsChange},
};

use super::hooks::HookWireError;
use crate::v1;

impl From<DirectoryPolicy> for v1::HookPolicy {
    fn from(policy: DirectoryPolicy) -> Self {
        let DirectoryPolicy { exit_codes, on_error, unreachable, timeout, warn_ms, kill_ms, budget_ms } =
            policy;
        let exit_codes = match exit_codes {
            None => v1::ExitCodes::Unspecified,
            Some(ExitCodes::Strict) => v1::ExitCodes::Strict,
            Some(ExitCodes::Graded) => v1::ExitCodes::Graded,
        };
        let on_error = match on_error {
            None => v1::OnError::Unspecified,
            Some(OnError::Continue) => v1::OnError::Continue,
            Some(OnError::Stop) => v1::OnError::Stop,
        };
        let unreachable = match unreachable {
            None => v1::AllowDeny::Unspecified,
            Some(OnUnreachable::Allow) => v1::AllowDeny::Allow,
            Some(OnUnreachable::Deny) => v1::AllowDeny::Deny,
        };
        let timeout = match timeout {
            None => v1::AllowDeny::Unspecified,
            Some(OnTimeout::Allow) => v1::AllowDeny::Allow,
            Some(OnTimeout::Deny) => v1::AllowDeny::Deny,
        };
        v1::HookPolicy {
            exit_codes: exit_codes.into(),
            on_error: on_error.into(),
            unreachable: unreachable.into(),
            timeout: timeout.into(),
            warn_ms,
            kill_ms,
            budget_ms,
            ..v1::HookPolicy::default()
        }
    }
}

impl TryFrom<&v1::HookPolicy> for DirectoryPolicy {
    type Error = HookWireError;

    fn try_from(wire: &v1::HookPolicy) -> Result<Self, HookWireError> {
        let wrong = |field, value: i32| HookWireError::Unknown { field, value: i64::from(value) };
        let exit_codes = match v1::ExitCodes::try_from(wire.exit_codes) {
            Ok(v1::ExitCodes::Unspecified) => None,
            Ok(v1::ExitCodes::Strict) => Some(ExitCodes::Strict),
            Ok(v1::ExitCodes::Graded) => Some(ExitCodes::Graded),
            Err(_) => return Err(wrong("exit_codes", wire.exit_codes)),
        };
        let on_error = match v1::OnError::try_from(wire.on_error) {
            Ok(v1::OnError::Unspecified) => None,
            Ok(v1::OnError::Continue) => Some(OnError::Continue),
            Ok(v1::OnError::Stop) => Some(OnError::Stop),
            Err(_) => return Err(wrong("on_error", wire.on_error)),
        };
        let unreachable = match v1::AllowDeny::try_from(wire.unreachable) {
            Ok(v1::AllowDeny::Unspecified) => None,
            Ok(v1::AllowDeny::Allow) => Some(OnUnreachable::Allow),
            Ok(v1::AllowDeny::Deny) => Some(OnUnreachable::Deny),
            Err(_) => return Err(wrong("unreachable", wire.unreachable)),
        };
        let timeout = match v1::AllowDeny::try_from(wire.timeout) {
            Ok(v1::AllowDeny::Unspecified) => None,
            Ok(v1::AllowDeny::Allow) => Some(OnTimeout::Allow),
            Ok(v1::AllowDeny::Deny) => Some(OnTimeout::Deny),
            Err(_) => return Err(wrong("timeout", wire.timeout)),
        };
        let (warn_ms, kill_ms, budget_ms) = (wire.warn_ms, wire.kill_ms, wire.budget_ms);
        Ok(DirectoryPolicy { exit_codes, on_error, unreachable, timeout, warn_ms, kill_ms, budget_ms })
    }
}

impl From<DirectoryChange> for v1::HookPolicyRow {
    fn from(change: DirectoryChange) -> Self {
        let DirectoryChange { directory, reset, set } = change;
        v1::HookPolicyRow { directory, reset, set: Some(set.into()) }
    }
}

/// The table of a cluster's parameters.
pub(super) fn table_to_wire(table: BTreeMap<String, DirectoryPolicy>) -> HashMap<String, v1::HookPolicy> {
    table.into_iter().map(|(directory, policy)| (directory, policy.into())).collect()
}

/// Reads such a table.
pub(super) fn table(
    wire: &HashMap<String, v1::HookPolicy>,
) -> Result<BTreeMap<String, DirectoryPolicy>, HookWireError> {
    wire.iter().map(|(directory, policy)| Ok((directory.clone(), policy.try_into()?))).collect()
}

/// Reads what a request to modify the cluster changes of limits and of single directories.
///
/// # Errors
/// When a value is unknown to this version.
pub(super) fn limits_change(
    hooks: &v1::HookPolicy,
    rows: &[v1::HookPolicyRow],
) -> Result<HookLimitsChange, HookWireError> {
    let row = |row: &v1::HookPolicyRow| {
        let set = row.set.as_ref().map(DirectoryPolicy::try_from).transpose()?.unwrap_or_default();
        Ok(DirectoryChange { directory: row.directory.clone(), reset: row.reset, set })
    };
    Ok(HookLimitsChange {
        warn_ms: hooks.warn_ms,
        kill_ms: hooks.kill_ms,
        budget_ms: hooks.budget_ms,
        directories: rows.iter().map(row).collect::<Result<_, HookWireError>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_in_a_directory_survives_the_wire() {
        let all = DirectoryPolicy {
            exit_codes: Some(ExitCodes::Graded),
            on_error: Some(OnError::Continue),
            unreachable: Some(OnUnreachable::Deny),
            timeout: Some(OnTimeout::Allow),
            warn_ms: Some(1),
            kill_ms: Some(2),
            budget_ms: Some(3),
        };
        for policy in [all, DirectoryPolicy::default()] {
            let wire = v1::HookPolicy::from(policy.clone());
            assert_eq!(DirectoryPolicy::try_from(&wire), Ok(policy));
        }
        let wrong = v1::HookPolicy { on_error: 9, ..v1::HookPolicy::default() };
        assert!(DirectoryPolicy::try_from(&wrong).is_err());
    }

    #[test]
    fn a_change_names_what_it_changes() {
        let hooks = v1::HookPolicy { budget_ms: Some(0), ..v1::HookPolicy::default() };
        let row = v1::HookPolicyRow { directory: "global-pre.d".to_owned(), reset: true, set: None };
        let right = HookLimitsChange {
            budget_ms: Some(0),
            directories: vec![DirectoryChange {
                directory: "global-pre.d".to_owned(),
                reset: true,
                set: DirectoryPolicy::default(),
            }],
            ..HookLimitsChange::default()
        };
        assert_eq!(limits_change(&hooks, &[row]), Ok(right));
    }
}
