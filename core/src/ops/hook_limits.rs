//! Changes of the hook parameters that bound time, and of what differs in single directories.

use serde::{Deserialize, Serialize};

use super::{Refusal, SYNC_PREFIX, hook_directories};
use crate::{
    hooks::{
        BUDGET_MS_MIN, DirectoryPolicy, HookPolicy, HooksVersion, KILL_DEFAULT_MS, Phase, WARN_DEFAULT_MS,
    },
    names::nearest,
};

/// The longest limit that can be set: seven days, as of `hook_timeout_max`.
const LIMIT_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// A change of one directory's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryChange {
    /// For example `instance-add-pre.d`.
    pub directory: String,
    /// What was set before is gone.
    pub reset: bool,
    /// What is set; the rest stays.
    pub set: DirectoryPolicy,
}

/// A change of limits; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookLimitsChange {
    /// `hook_warn_limit` in milliseconds.
    pub warn_ms: Option<u64>,
    /// `hook_kill_limit` in milliseconds.
    pub kill_ms: Option<u64>,
    /// `hook_phase_budget` in milliseconds; 0 for none.
    pub budget_ms: Option<u64>,
    /// Rows of `hook_policy`.
    pub directories: Vec<DirectoryChange>,
}

fn check_range(name: &str, ms: Option<u64>, least_ms: u64, most_ms: u64) -> Result<(), Refusal> {
    match ms {
        Some(ms) if !(least_ms..=most_ms).contains(&ms) => {
            Err(Refusal(format!("a {name} of {ms} ms is not between {least_ms} ms and {most_ms} ms")))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_limits(names: [&str; 3], of: &DirectoryPolicy, max_ms: u64) -> Result<(), Refusal> {
    check_range(names[0], of.warn_ms, 1, max_ms)?;
    check_range(names[1], of.kill_ms, 1, max_ms)?;
    check_range(names[2], of.budget_ms, BUDGET_MS_MIN, LIMIT_MS_MAX)
}

/// Refuses a bound below a limit that somebody has set: it would be shown, and not hold. What nobody has set is bounded
/// silently.
pub(super) fn check_max(policy: &HookPolicy) -> Result<(), Refusal> {
    let max_ms = policy.timeout_max_ms;
    let own = |ms: u64, default: u64| Some(ms).filter(|ms| *ms != default);
    let cluster = [
        ("the cluster's hook_warn_limit".to_owned(), own(policy.warn_ms, WARN_DEFAULT_MS)),
        ("the cluster's hook_kill_limit".to_owned(), own(policy.kill_ms, KILL_DEFAULT_MS)),
    ];
    let of_directory = |(name, set): (&String, &DirectoryPolicy)| {
        [
            (format!("the warn_limit of {name}"), set.warn_ms),
            (format!("the kill_limit of {name}"), set.kill_ms),
        ]
    };
    let mut limits = cluster.into_iter().chain(policy.directories.iter().flat_map(of_directory));
    match limits.find_map(|(what, ms)| ms.filter(|ms| *ms > max_ms).map(|ms| (what, ms))) {
        Some((what, ms)) => Err(Refusal(format!(
            "a hook_timeout_max of {max_ms} ms is less than {what}, {ms} ms: change that too"
        ))),
        None => Ok(()),
    }
}

impl HookLimitsChange {
    /// The parameters after the change.
    ///
    /// # Errors
    /// When a limit is out of bounds, or a directory is one that nothing uses; then with the nearest name.
    pub(super) fn apply(&self, mut policy: HookPolicy) -> Result<HookPolicy, Refusal> {
        let cluster = DirectoryPolicy {
            warn_ms: self.warn_ms,
            kill_ms: self.kill_ms,
            budget_ms: self.budget_ms.filter(|ms| *ms > 0),
            ..DirectoryPolicy::default()
        };
        let max_ms = policy.timeout_max_ms;
        check_limits(["hook_warn_limit", "hook_kill_limit", "hook_phase_budget"], &cluster, max_ms)?;
        policy.warn_ms = self.warn_ms.unwrap_or(policy.warn_ms);
        policy.kill_ms = self.kill_ms.unwrap_or(policy.kill_ms);
        if self.budget_ms.is_some() {
            policy.budget_ms = cluster.budget_ms;
        }
        for change in &self.directories {
            check_directory(&change.directory)?;
            check_unreachable(&change.directory, &change.set)?;
            let budget_ms = change.set.budget_ms.filter(|ms| *ms > 0);
            let bounded = DirectoryPolicy { budget_ms, ..change.set.clone() };
            check_limits(["warn_limit", "kill_limit", "phase_budget"], &bounded, max_ms)?;
            let before = policy.directories.remove(&change.directory).filter(|_| !change.reset);
            let after = before.unwrap_or_default().changed(&change.set);
            if after != DirectoryPolicy::default() {
                policy.directories.insert(change.directory.clone(), after);
            }
        }
        Ok(policy)
    }
}

fn check_directory(name: &str) -> Result<(), Refusal> {
    // Of both versions: what is set for one is kept when the cluster speaks the other.
    let used: Vec<String> = HooksVersion::ALL.into_iter().flat_map(hook_directories).collect();
    if used.iter().any(|used| used == name) {
        return Ok(());
    }
    let near = nearest(name, used.iter().map(String::as_str));
    let hint = near.map(|near| format!("; the nearest name is {near}")).unwrap_or_default();
    Err(Refusal(format!("{name:?} is no directory of hooks that anything uses{hint}")))
}

/// Only a node that is asked before an operation can be waited for in vain.
fn check_unreachable(directory: &str, set: &DirectoryPolicy) -> Result<(), Refusal> {
    let is_asked =
        directory.ends_with(&Phase::Pre.directory("")) && directory != Phase::Pre.directory(SYNC_PREFIX);
    match set.unreachable {
        Some(_) if !is_asked => Err(Refusal(format!(
            "`unreachable` means nothing in {directory}: nobody is asked there before an operation"
        ))),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::{ExitCodes, OnTimeout, OnUnreachable};

    fn row(directory: &str, set: DirectoryPolicy) -> HookLimitsChange {
        let change = DirectoryChange { directory: directory.to_owned(), reset: false, set };
        HookLimitsChange { directories: vec![change], ..HookLimitsChange::default() }
    }

    #[test]
    fn rows_are_set_changed_and_reset() {
        let graded = DirectoryPolicy { exit_codes: Some(ExitCodes::Graded), ..DirectoryPolicy::default() };
        let limit = DirectoryPolicy { kill_ms: Some(5_000), ..DirectoryPolicy::default() };
        let once = row("instance-add-pre.d", graded.clone()).apply(HookPolicy::default()).unwrap();
        let twice = row("instance-add-pre.d", limit.clone()).apply(once.clone()).unwrap();
        assert_eq!(once.directories["instance-add-pre.d"], graded);
        assert_eq!(twice.directories["instance-add-pre.d"], graded.changed(&limit));
        let mut reset = row("instance-add-pre.d", limit.clone());
        reset.directories[0].reset = true;
        assert_eq!(reset.apply(twice.clone()).unwrap().directories["instance-add-pre.d"], limit);
        reset.directories[0].set = DirectoryPolicy::default();
        assert_eq!(reset.apply(twice).unwrap(), HookPolicy::default());
    }

    #[test]
    fn refusals() {
        let check = |change: HookLimitsChange, text: &str| {
            let refusal = change.apply(HookPolicy::default()).unwrap_err();
            assert!(refusal.0.contains(text), "{refusal}");
        };
        let allow = DirectoryPolicy { timeout: Some(OnTimeout::Allow), ..DirectoryPolicy::default() };
        check(row("instance-ad-pre.d", allow.clone()), "the nearest name is instance-add-pre.d");
        check(row("instance-add", allow), "no directory of hooks");
        let deny = DirectoryPolicy { unreachable: Some(OnUnreachable::Deny), ..DirectoryPolicy::default() };
        for directory in
            ["instance-add-post.d", "instance-add-failed.d", "node-facts-post.d", "hooks-sync-pre.d"]
        {
            check(row(directory, deny.clone()), &format!("`unreachable` means nothing in {directory}"));
        }
        for directory in ["instance-add-pre.d", "global-pre.d"] {
            assert!(row(directory, deny.clone()).apply(HookPolicy::default()).is_ok(), "{directory}");
        }
        for ms in [1, BUDGET_MS_MIN - 1, LIMIT_MS_MAX + 1] {
            let budget = DirectoryPolicy { budget_ms: Some(ms), ..DirectoryPolicy::default() };
            check(row("global-pre.d", budget), "phase_budget");
        }
        let kill = HookLimitsChange { kill_ms: Some(0), ..HookLimitsChange::default() };
        check(kill, "hook_kill_limit");
        let long = HookPolicy::default().timeout_max_ms + 1;
        check(HookLimitsChange { kill_ms: Some(long), ..HookLimitsChange::default() }, "hook_kill_limit");
        check(HookLimitsChange { budget_ms: Some(1), ..HookLimitsChange::default() }, "hook_phase_budget");
    }

    #[test]
    fn a_bound_is_not_below_a_limit_that_is_set() {
        let lower = HookPolicy { timeout_max_ms: 60_000, ..HookPolicy::default() };
        assert_eq!(check_max(&lower), Ok(()), "the default limits are bounded silently");
        let refused = |policy: HookPolicy, what: &str| {
            let why = check_max(&policy).unwrap_err().0;
            assert!(why.contains(what), "{why}");
        };
        refused(HookPolicy { kill_ms: 60_001, ..lower.clone() }, "the cluster's hook_kill_limit, 60001 ms");
        let row = DirectoryPolicy { warn_ms: Some(70_000), ..DirectoryPolicy::default() };
        let directories = [("global-pre.d".to_owned(), row)].into();
        refused(HookPolicy { directories, ..lower }, "the warn_limit of global-pre.d, 70000 ms");
    }

    #[test]
    fn a_budget_of_nothing_is_none() {
        let set = HookLimitsChange { budget_ms: Some(10_000), ..HookLimitsChange::default() };
        let policy = set.apply(HookPolicy::default()).unwrap();
        assert_eq!(policy.budget_ms, Some(10_000));
        let unset = HookLimitsChange { budget_ms: Some(0), ..HookLimitsChange::default() };
        assert_eq!(unset.apply(policy.clone()).unwrap(), HookPolicy::default());
        let free = row("global-pre.d", DirectoryPolicy { budget_ms: Some(0), ..DirectoryPolicy::default() });
        assert_eq!(free.apply(policy).unwrap().of("global-pre.d").budget_ms, None);
    }
}
