//! OP_CLUSTER_MODIFY: other hook parameters, cluster-wide.

use serde::{Deserialize, Serialize};

use super::{
    DirectoryChange, Given, HookLimitsChange, HookNodes, HookRow2, Hooks2, ObjectKind, Operation, Plan,
    Refusal, Row, Submitter, examples, hook_limits::check_max,
};
use crate::{
    allowed::{Allowed, AllowedChange},
    edit::Edit,
    hooks::{DirectoryPolicy, Env, ExitCodes, HookPolicy, HooksVersion, OnError, OnTimeout, OnUnreachable},
    hypervisor::{Accel, HypervisorParams, NicMode},
    locks::Locks,
    model::Cluster,
};

/// The smallest bound of a script's kill limit: a second.
const TIMEOUT_MAX_MS_MIN: u64 = 1_000;
/// The largest: seven days. A script that may run for longer would hold its job's locks as good as for ever.
const TIMEOUT_MAX_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// What becomes of `hook_on_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnErrorChange {
    /// It is this.
    Set(OnError),
    /// It follows `exit_codes`.
    Default,
}

/// Changes hook parameters; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterModify {
    /// `hooks_version`.
    #[serde(default)]
    pub hooks_version: Option<HooksVersion>,
    /// `exit_codes`.
    pub exit_codes: Option<ExitCodes>,
    /// `hook_on_error`.
    pub on_error: Option<OnErrorChange>,
    /// `hook_unreachable`.
    pub unreachable: Option<OnUnreachable>,
    /// `hook_timeout`.
    pub timeout: Option<OnTimeout>,
    /// `hook_master_required`.
    pub master_required: Option<bool>,
    /// `hook_timeout_max` in milliseconds.
    pub timeout_max_ms: Option<u64>,
    /// Who computes for guests.
    #[serde(default)]
    pub accel: Option<Accel>,
    /// How guests are connected.
    #[serde(default)]
    pub nic: Option<NicMode>,
    /// The command that makes sure that a node is off; empty for none.
    #[serde(default)]
    pub fence_command: Option<String>,
    /// Commands and files on nodes that are allowed, or no more.
    #[serde(default)]
    pub allowed: AllowedChange,
    /// Time limits of hooks, and what differs in single directories.
    #[serde(default)]
    pub hook_limits: HookLimitsChange,
}

/// All parameters after the change.
#[derive(Debug)]
pub struct Checked {
    hooks: HookPolicy,
    hypervisor: HypervisorParams,
    fence_command: Option<String>,
    allowed: Allowed,
}

/// The longest fence command in bytes.
const FENCE_BYTES_MAX: usize = 1024;

fn check_fence(command: &str) -> Result<Option<String>, Refusal> {
    if command.is_empty() {
        return Ok(None);
    }
    if !command.starts_with('/') || command.len() > FENCE_BYTES_MAX || command.contains(['\0', '\n']) {
        let words = "is not the absolute path of a program, of at most 1024 bytes";
        return Err(Refusal(format!("the fence_command {command:?} {words}")));
    }
    Ok(Some(command.to_owned()))
}

impl Operation for ClusterModify {
    const ROW: Row = Row {
        op_id: "OP_CLUSTER_MODIFY",
        object: ObjectKind::Cluster,
        hooks: None,
        hooks2: Some(HookRow2::both("cluster-modify", "OP_CLUSTER_SET_PARAMS")),
        submitter: Submitter::Admin,
    };
    type Checked = Checked;

    fn target(&self) -> String {
        String::new()
    }

    fn locks(&self) -> Locks {
        Locks::part().exclusive("cluster-parameters", "")
    }

    fn check(&self, given: Given<'_>) -> Result<Checked, Refusal> {
        if *self == ClusterModify::default() {
            return Err(Refusal("nothing to change: give at least one parameter".to_owned()));
        }
        if let Some(ms) = self.timeout_max_ms
            && !(TIMEOUT_MAX_MS_MIN..=TIMEOUT_MAX_MS_MAX).contains(&ms)
        {
            return Err(Refusal(format!("a hook_timeout_max of {ms} ms is not between 1 second and 7 days")));
        }
        let before = &given.cluster.hooks;
        let hooks = HookPolicy {
            exit_codes: self.exit_codes.unwrap_or(before.exit_codes),
            on_error: match self.on_error {
                None => before.on_error,
                Some(OnErrorChange::Set(value)) => Some(value),
                Some(OnErrorChange::Default) => None,
            },
            unreachable: self.unreachable.unwrap_or(before.unreachable),
            timeout: self.timeout.unwrap_or(before.timeout),
            master_required: self.master_required.unwrap_or(before.master_required),
            timeout_max_ms: self.timeout_max_ms.unwrap_or(before.timeout_max_ms),
            version: self.hooks_version.unwrap_or(before.version),
            ..before.clone()
        };
        let hooks = self.hook_limits.apply(hooks)?;
        if self.timeout_max_ms.is_some() {
            check_max(&hooks)?;
        }
        let before = &given.cluster.hypervisor;
        let hypervisor = HypervisorParams {
            kind: before.kind,
            accel: self.accel.unwrap_or(before.accel),
            nic: self.nic.clone().unwrap_or_else(|| before.nic.clone()),
        };
        let fence_command = match &self.fence_command {
            None => given.cluster.fence_command.clone(),
            Some(command) => check_fence(command)?,
        };
        let allowed = self.allowed.apply(&given.cluster.allowed).map_err(Refusal)?;
        Ok(Checked { hooks, hypervisor, fence_command, allowed })
    }

    fn hook_nodes(&self, _given: Given<'_>, _checked: &Checked) -> HookNodes {
        HookNodes::default()
    }

    fn hook_env(&self, _given: Given<'_>, _checked: &Checked) -> Env {
        Env::new()
    }

    fn hooks2(&self, given: Given<'_>, _checked: &Checked) -> Hooks2 {
        // Ganeti's one variable: there are no volume groups here.
        Hooks2::cluster(given).with(Env::new().set("NEW_VG_NAME", ""))
    }

    fn plan(&self, given: Given<'_>, checked: &Checked) -> Plan {
        let Checked { hooks, hypervisor, fence_command, allowed } = checked;
        let mut plan = Plan::new();
        if *hooks != given.cluster.hooks {
            plan = plan.edit(Edit::HooksSet { hooks: hooks.clone() });
        }
        if *hypervisor != given.cluster.hypervisor || *fence_command != given.cluster.fence_command {
            let (hypervisor, fence_command) = (hypervisor.clone(), fence_command.clone());
            plan = plan.edit(Edit::HypervisorSet { hypervisor, fence_command });
        }
        if *allowed != given.cluster.allowed {
            plan = plan.edit(Edit::AllowedSet { allowed: allowed.clone() });
        }
        plan
    }

    fn examples() -> Vec<(Cluster, super::Fresh, Self)> {
        let graded = ClusterModify {
            exit_codes: Some(ExitCodes::Graded),
            on_error: Some(OnErrorChange::Set(OnError::Continue)),
            ..ClusterModify::default()
        };
        let guests = ClusterModify {
            accel: Some(Accel::Tcg),
            nic: Some(NicMode::Bridge("br0".to_owned())),
            fence_command: Some("/usr/local/sbin/fence".to_owned()),
            ..ClusterModify::default()
        };
        let row = DirectoryChange {
            directory: "global-pre.d".to_owned(),
            reset: true,
            set: DirectoryPolicy { kill_ms: Some(5_000), ..DirectoryPolicy::default() },
        };
        let limits = ClusterModify {
            hook_limits: HookLimitsChange {
                budget_ms: Some(10_000),
                directories: vec![row],
                ..HookLimitsChange::default()
            },
            ..ClusterModify::default()
        };
        let allowed = ClusterModify {
            allowed: AllowedChange {
                allow_commands: vec!["/bin/echo *".parse().expect("it is a pattern")],
                allow_files: vec!["/etc/motd".parse().expect("it is a path")],
                ..AllowedChange::default()
            },
            ..ClusterModify::default()
        };
        let version = ClusterModify { hooks_version: Some(HooksVersion::V2), ..ClusterModify::default() };
        [graded, guests, limits, allowed, version]
            .map(|op| (examples::cluster(), examples::fresh(), op))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let check = |op: ClusterModify, text: &str| {
            let cluster = examples::cluster();
            examples::refused(&op, &cluster, &examples::fresh(), &cluster.master, text);
        };
        check(ClusterModify::default(), "nothing to change");
        for ms in [0, 999, TIMEOUT_MAX_MS_MAX + 1, u64::MAX] {
            check(
                ClusterModify { timeout_max_ms: Some(ms), ..ClusterModify::default() },
                "not between 1 second and 7 days",
            );
        }
    }

    #[test]
    fn what_is_absent_stays() {
        let mut cluster = examples::cluster();
        cluster.hooks.on_error = Some(OnError::Stop);
        cluster.hooks.master_required = false;
        let op = ClusterModify { on_error: Some(OnErrorChange::Default), ..ClusterModify::default() };
        let plan = examples::prepared(&op, &cluster, &examples::fresh(), &cluster.master).plan;
        let hooks = HookPolicy { on_error: None, ..cluster.hooks };
        assert_eq!(plan.edits, [Edit::HooksSet { hooks }]);
    }
}
