//! `gnt-cluster`.

use muster_proto::{
    convert::hooks::version_to_wire,
    v1::{
        AllowDeny, CertificatesRenew, ClusterDestroy, ClusterInfo, ClusterInit, ClusterModify, ClusterRename,
        ClusterVerify, ExitCodes, GetClusterRequest, GetQueueRequest, HookPolicy, MasterFailover, OnError,
        SetQueueRequest, operation::Operation,
    },
};
use serde_json::json;

use super::{
    backup_store, client_cert, node_command,
    operation::{self, Asked},
    tags, verify,
};
use crate::{
    args::{
        AllowDenyValue, AllowedParameters, AsJson, ClusterVerb, ConnectionFlags, ExitCodesValue,
        GuestParameters, HookParameters, OnErrorValue, OperationFlags, QueueVerb,
    },
    client::{Master, answer, master_by_facts},
    exit::Failure,
    output::{cluster as render, print, print_json},
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: ClusterVerb) -> Result<(), Failure> {
    match verb {
        ClusterVerb::Info(output) => {
            let cluster = get(&Master::connect(connection).await?).await?;
            if output.json {
                print_json(&render::cluster_json(&cluster))
            } else {
                print(&render::cluster_text(&cluster))
            }
        }
        ClusterVerb::Verify(output) => verify::run(connection, output.json).await,
        ClusterVerb::Tags(verb) => tags::run_cluster(connection, verb).await,
        ClusterVerb::Getmaster(output) => {
            let master = master_name(connection).await?;
            if output.json { print_json(&json!({ "master": master })) } else { print(&master) }
        }
        ClusterVerb::Queue(verb) => queue(&Master::connect(connection).await?, verb).await,
        ClusterVerb::Backup(flags) => backup_store::run(&Master::connect(connection).await?, &flags).await,
        ClusterVerb::ClientCert(verb) => client_cert::run(connection, verb).await,
        ClusterVerb::Command(flags) => {
            node_command::command(&Master::connect(connection).await?, flags).await
        }
        ClusterVerb::Copyfile(flags) => {
            node_command::copyfile(&Master::connect(connection).await?, flags).await
        }
        operation @ (ClusterVerb::Init { .. }
        | ClusterVerb::MasterFailover { .. }
        | ClusterVerb::RenewCerts { .. }
        | ClusterVerb::Modify { .. }
        | ClusterVerb::Rename { .. }
        | ClusterVerb::Destroy { .. }) => {
            let asked = asked(operation)?.expect("these verbs ask for operations");
            operation::carry_out(connection, asked).await
        }
    }
}

/// The operation that a verb asks for; `None` for one that is none, or makes keys on this host for it.
pub(super) fn asked(verb: ClusterVerb) -> Result<Option<Asked>, Failure> {
    Ok(Some(match verb {
        ClusterVerb::Info(_)
        | ClusterVerb::Getmaster(_)
        | ClusterVerb::Queue(_)
        | ClusterVerb::Backup(_)
        | ClusterVerb::Command(_)
        | ClusterVerb::Copyfile(_)
        | ClusterVerb::ClientCert(_) => return Ok(None),
        ClusterVerb::Tags(verb) => return Ok(tags::asked_cluster(verb)),
        ClusterVerb::Init { name, hypervisor, operation } => {
            let init = ClusterInit { name, hypervisor: hypervisor.word().to_owned() };
            Asked::one(Operation::ClusterInit(init), operation)
        }
        ClusterVerb::Verify(_) => {
            Asked::one(Operation::ClusterVerify(ClusterVerify {}), OperationFlags::default())
        }
        ClusterVerb::Rename { new_name, force, operation } => {
            let question = format!("This gives the cluster the name {new_name}.");
            let rename = Operation::ClusterRename(ClusterRename { new_name });
            Asked::one(rename, operation).after(question, force)
        }
        ClusterVerb::MasterFailover { force, operation } => {
            Asked::one(Operation::MasterFailover(MasterFailover {}), operation)
                .after("This makes the master daemon on this host the cluster's master.", force)
        }
        ClusterVerb::RenewCerts { nodes, operation } => {
            Asked::one(Operation::CertificatesRenew(CertificatesRenew { nodes }), operation)
        }
        ClusterVerb::Modify { hooks, guests, allowed, operation } => Asked::one(
            Operation::ClusterModify(with_allowed(with_guests(change(&hooks)?, guests), allowed)),
            operation,
        ),
        ClusterVerb::Destroy { name, force, operation } => {
            let question = format!("This destroys cluster {name}.");
            Asked::one(Operation::ClusterDestroy(ClusterDestroy { name }), operation).after(question, force)
        }
    }))
}

/// Asks for the cluster.
pub(super) async fn get(master: &Master) -> Result<ClusterInfo, Failure> {
    Ok(answer(master.queries().get_cluster(GetClusterRequest {})).await?)
}

/// Asks the master, and where this host has none, the facts that its node daemon keeps.
async fn master_name(connection: &ConnectionFlags) -> Result<String, Failure> {
    let asked = match Master::connect(connection).await {
        Ok(master) => get(&master).await.map(|cluster| cluster.master),
        Err(failure) => Err(failure),
    };
    match asked {
        Err(Failure::Unreachable(why)) => master_by_facts(connection).ok_or(Failure::Unreachable(why)),
        asked => asked,
    }
}

async fn queue(master: &Master, verb: QueueVerb) -> Result<(), Failure> {
    let nothing = SetQueueRequest::default();
    let (change, AsJson { json }) = match verb {
        QueueVerb::Drain(output) => (Some(SetQueueRequest { drained: Some(true), ..nothing }), output),
        QueueVerb::Undrain(output) => (Some(SetQueueRequest { drained: Some(false), ..nothing }), output),
        QueueVerb::Pause(output) => (Some(SetQueueRequest { paused: Some(true), ..nothing }), output),
        QueueVerb::Resume(output) => (Some(SetQueueRequest { paused: Some(false), ..nothing }), output),
        QueueVerb::Info(output) => (None, output),
    };
    let queue = match change {
        Some(change) => answer(master.jobs().set_queue(change)).await?,
        None => answer(master.jobs().get_queue(GetQueueRequest {})).await?,
    };
    if json { print_json(&render::queue_json(&queue)) } else { print(&render::queue_text(&queue)) }
}

/// The change of parameters; what was not given stays.
fn change(parameters: &HookParameters) -> Result<ClusterModify, Failure> {
    let allow_deny = |value: Option<AllowDenyValue>| match value {
        None => AllowDeny::Unspecified,
        Some(AllowDenyValue::Allow) => AllowDeny::Allow,
        Some(AllowDenyValue::Deny) => AllowDeny::Deny,
    };
    let exit_codes = match parameters.hook_exit_codes {
        None => ExitCodes::Unspecified,
        Some(ExitCodesValue::Strict) => ExitCodes::Strict,
        Some(ExitCodesValue::Graded) => ExitCodes::Graded,
    };
    let (on_error, on_error_default) = match parameters.hook_on_error {
        None => (OnError::Unspecified, false),
        Some(OnErrorValue::Continue) => (OnError::Continue, false),
        Some(OnErrorValue::Stop) => (OnError::Stop, false),
        Some(OnErrorValue::Default) => (OnError::Unspecified, true),
    };
    let millis = |flag: &str, limit: Option<std::time::Duration>| {
        let ms = limit.map(|limit| u64::try_from(limit.as_millis())).transpose();
        ms.map_err(|_| Failure::Usage(format!("{flag} is longer than anybody can wait")))
    };
    let hooks = HookPolicy {
        exit_codes: exit_codes.into(),
        on_error: on_error.into(),
        unreachable: allow_deny(parameters.hook_unreachable).into(),
        timeout: allow_deny(parameters.hook_timeout).into(),
        master_required: parameters.hook_master_required,
        timeout_max_ms: millis("--hook-timeout-max", parameters.hook_timeout_max)?,
        warn_ms: millis("--hook-warn-limit", parameters.hook_warn_limit)?,
        kill_ms: millis("--hook-kill-limit", parameters.hook_kill_limit)?,
        budget_ms: millis("--hook-phase-budget", parameters.hook_phase_budget)?,
        directories: Default::default(),
        version: parameters.hooks_version.map(version_to_wire),
    };
    Ok(ClusterModify { hooks: Some(hooks), on_error_default, ..ClusterModify::default() })
}

/// The same with the change of guests' parameters.
fn with_guests(change: ClusterModify, parameters: GuestParameters) -> ClusterModify {
    ClusterModify {
        accel: parameters.accel.map(|accel| accel.word().to_owned()),
        nic: parameters.nic,
        // The empty text takes it away.
        fence_command: parameters.fence_command.map(|command| match command.as_str() {
            "none" => String::new(),
            _ => command,
        }),
        ..change
    }
}

/// The same with the change of what is allowed on nodes.
fn with_allowed(change: ClusterModify, parameters: AllowedParameters) -> ClusterModify {
    ClusterModify {
        allow_commands: parameters.allow_command,
        disallow_commands: parameters.disallow_command,
        allow_files: parameters.allow_file,
        disallow_files: parameters.disallow_file,
        ..change
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_was_given_changes() {
        assert_eq!(
            change(&HookParameters::default()).unwrap(),
            ClusterModify { hooks: Some(HookPolicy::default()), ..ClusterModify::default() }
        );
        let given = HookParameters {
            hook_exit_codes: Some(ExitCodesValue::Graded),
            hook_on_error: Some(OnErrorValue::Default),
            hook_unreachable: Some(AllowDenyValue::Deny),
            hook_timeout: Some(AllowDenyValue::Allow),
            hook_master_required: Some(false),
            hook_timeout_max: Some(Duration::from_secs(60)),
            hook_kill_limit: Some(Duration::from_secs(5)),
            hook_phase_budget: Some(Duration::ZERO),
            ..HookParameters::default()
        };
        let expected = HookPolicy {
            exit_codes: 2,
            on_error: 0,
            unreachable: 2,
            timeout: 1,
            master_required: Some(false),
            timeout_max_ms: Some(60_000),
            kill_ms: Some(5_000),
            budget_ms: Some(0),
            ..HookPolicy::default()
        };
        let modify =
            ClusterModify { hooks: Some(expected), on_error_default: true, ..ClusterModify::default() };
        assert_eq!(change(&given).unwrap(), modify);
        let given = HookParameters { hook_on_error: Some(OnErrorValue::Stop), ..HookParameters::default() };
        let expected = HookPolicy { on_error: 2, ..HookPolicy::default() };
        let modify = ClusterModify { hooks: Some(expected), ..ClusterModify::default() };
        assert_eq!(change(&given).unwrap(), modify);
    }

    #[test]
    fn none_takes_the_fence_command_away() {
        let given = GuestParameters { fence_command: Some("none".to_owned()), ..GuestParameters::default() };
        let modify = with_guests(ClusterModify::default(), given);
        assert_eq!(modify, ClusterModify { fence_command: Some(String::new()), ..ClusterModify::default() });
    }
}
