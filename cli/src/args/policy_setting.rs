//! Settings of `gnt-hooks policy set`: `KEY=VALUE`.

use muster_core::hooks::{DirectoryPolicy, ExitCodes, OnError, OnTimeout, OnUnreachable};

use super::values::duration;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicySetting(pub(crate) DirectoryPolicy);

/// Parses a setting.
pub(crate) fn policy_setting(text: &str) -> Result<PolicySetting, String> {
    const KEYS: &str = "exit_codes, on_error, unreachable, timeout, warn_limit, kill_limit, phase_budget";
    let (key, value) =
        text.split_once('=').ok_or_else(|| format!("KEY=VALUE is expected; keys are {KEYS}"))?;
    let wrong = |right: &str| format!("{key} is {right}, not {value:?}");
    let limit = || -> Result<Option<u64>, String> {
        let ms = duration(value)?.as_millis();
        u64::try_from(ms).map(Some).map_err(|_| format!("{key} is longer than anybody can wait"))
    };
    let nothing = DirectoryPolicy::default();
    // The cluster's parameters of the same meaning have longer names.
    let set = match (key.strip_prefix("hook_").unwrap_or(key), value) {
        ("exit_codes", "strict") => DirectoryPolicy { exit_codes: Some(ExitCodes::Strict), ..nothing },
        ("exit_codes", "graded") => DirectoryPolicy { exit_codes: Some(ExitCodes::Graded), ..nothing },
        ("exit_codes", _) => return Err(wrong("strict or graded")),
        ("on_error", "continue") => DirectoryPolicy { on_error: Some(OnError::Continue), ..nothing },
        ("on_error", "stop") => DirectoryPolicy { on_error: Some(OnError::Stop), ..nothing },
        ("on_error", _) => return Err(wrong("continue or stop")),
        ("unreachable", "allow") => DirectoryPolicy { unreachable: Some(OnUnreachable::Allow), ..nothing },
        ("unreachable", "deny") => DirectoryPolicy { unreachable: Some(OnUnreachable::Deny), ..nothing },
        ("timeout", "allow") => DirectoryPolicy { timeout: Some(OnTimeout::Allow), ..nothing },
        ("timeout", "deny") => DirectoryPolicy { timeout: Some(OnTimeout::Deny), ..nothing },
        ("unreachable" | "timeout", _) => return Err(wrong("allow or deny")),
        ("warn_limit", _) => DirectoryPolicy { warn_ms: limit()?, ..nothing },
        ("kill_limit", _) => DirectoryPolicy { kill_ms: limit()?, ..nothing },
        ("phase_budget", "none") => DirectoryPolicy { budget_ms: Some(0), ..nothing },
        ("phase_budget", _) => DirectoryPolicy { budget_ms: limit()?, ..nothing },
        _ => return Err(format!("there is no key {key:?}; keys are {KEYS}")),
    };
    Ok(PolicySetting(set))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let set = |text: &str| policy_setting(text).unwrap().0;
        assert_eq!(set("exit_codes=graded").exit_codes, Some(ExitCodes::Graded));
        assert_eq!(set("on_error=stop").on_error, Some(OnError::Stop));
        assert_eq!(set("unreachable=deny").unreachable, Some(OnUnreachable::Deny));
        assert_eq!(set("timeout=allow").timeout, Some(OnTimeout::Allow));
        assert_eq!(set("kill_limit=5s").kill_ms, Some(5_000));
        assert_eq!(set("phase_budget=1m").budget_ms, Some(60_000));
        assert_eq!(set("phase_budget=none").budget_ms, Some(0));
        for line in
            ["exit_codes=graded", "on_error=stop", "unreachable=deny", "timeout=allow", "kill_limit=5s"]
        {
            assert_eq!(set(&format!("hook_{line}")), set(line), "the cluster's parameter has that name");
        }
        for (text, why) in [
            ("exit_codes", "KEY=VALUE"),
            ("hook_hook_timeout=allow", "there is no key"),
            ("exit_code=strict", "there is no key"),
            ("timeout=stop", "timeout is allow or deny"),
            ("warn_limit=0s", "of no use"),
            ("kill_limit=5", "duration"),
        ] {
            let error = policy_setting(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
