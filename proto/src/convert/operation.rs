//! Operations between wire and core: what a client asks for is parsed here, once.

mod group;
mod instance;

use std::collections::BTreeSet;

use muster_core::{
    allowed::AllowedChange,
    engine::{DEPENDS_MAX, Dependency, Ending, Priority},
    hooks::{ExitCodes, OnError, OnTimeout, OnUnreachable},
    hypervisor::HypervisorKind,
    model::ClientRole,
    names::NodeName,
    ops::{
        BackupExport, CertificatesRenew, ClientCertificateRevoke, ClientCertificateSign, ClusterDestroy,
        ClusterInit, ClusterModify, ClusterRename, ClusterVerify, DiskGrow, DisksReplace, GroupRemove,
        GroupRename, InstanceFailover, InstanceMigrate, InstanceReboot, InstanceReinstall, InstanceRemove,
        InstanceRename, InstanceShutdown, InstanceStart, JobRepair, MasterFailover, MirrorAdd, MirrorRemove,
        MirrorsSettle, MirrorsSync, NetworkDisconnect, NetworkRemove, NodeAdd, NodeMigrate, NodeModify,
        NodeRemove, OnErrorChange, Op, RebootKind, TagsDel, TagsSet,
    },
};

use super::{
    WireError,
    fields::{self, hex},
    hooks::{version_from_wire, version_to_wire},
};
use crate::v1;

pub use group::tag_object;

mod place;

/// Longest reason in bytes.
const REASON_BYTES_MAX: usize = 1024;
/// Longest request id in bytes: some uuids' worth.
const REQUEST_ID_BYTES_MAX: usize = 128;
/// Longest signing request in bytes: a request with a large RSA key has a tenth of it.
const CSR_BYTES_MAX: usize = 16 * 1024;

/// A submission, parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct Submit {
    /// What is asked for.
    pub op: Op,
    /// Why.
    pub reason: String,
    /// Locks, checks and pre scripts only.
    pub dry_run: bool,
    /// The client's own id of the request; empty for none.
    pub request_id: String,
    /// Jobs that must be over before.
    pub depends: Vec<Dependency>,
    /// Its place among those that wait.
    pub priority: Priority,
    /// The job whose script asks.
    pub parent: Option<u64>,
    /// The caller will wait for the job's end.
    pub will_wait: bool,
}

/// Reads a submission; `local` is the node whose master daemon reads it.
///
/// # Errors
/// Names the field, its value and what would be right.
pub fn submit(wire: v1::SubmitRequest, local: &NodeName) -> Result<Submit, WireError> {
    let operation = wire.operation.ok_or(WireError::Missing { field: "operation" })?;
    let reason_right = "at most 1024 bytes without NUL are expected";
    let request_right = "at most 128 bytes without NUL are expected";
    Ok(Submit {
        op: operation_from_wire(operation, local)?,
        reason: fields::text("reason", wire.reason, REASON_BYTES_MAX, reason_right)?,
        dry_run: wire.dry_run,
        request_id: fields::text("request_id", wire.request_id, REQUEST_ID_BYTES_MAX, request_right)?,
        depends: depends(wire.depends)?,
        priority: Priority::try_from(i64::from(wire.priority)).map_err(|_| {
            WireError::wrong("priority", &wire.priority.to_string(), "-20 (first) to 19 (last) is expected")
        })?,
        parent: Some(wire.parent_job).filter(|parent| *parent != 0),
        will_wait: wire.will_wait,
    })
}

fn depends(wire: Vec<v1::Dependency>) -> Result<Vec<Dependency>, WireError> {
    if wire.len() > DEPENDS_MAX {
        let right = "at most 100 jobs are expected";
        return Err(WireError::wrong("depends", &format!("{} jobs", wire.len()), right));
    }
    wire.into_iter().map(dependency).collect()
}

fn dependency(wire: v1::Dependency) -> Result<Dependency, WireError> {
    let mut endings = BTreeSet::new();
    for number in wire.endings {
        endings.insert(match v1::JobEnding::try_from(number) {
            Ok(v1::JobEnding::Success) => Ending::Success,
            Ok(v1::JobEnding::Error) => Ending::Error,
            Ok(v1::JobEnding::Canceled) => Ending::Canceled,
            Ok(v1::JobEnding::Unspecified) | Err(_) => {
                let right = "success, error or canceled is expected";
                return Err(WireError::wrong("depends.endings", &number.to_string(), right));
            }
        });
    }
    if endings.is_empty() {
        endings.insert(Ending::Success);
    }
    Ok(Dependency { job: wire.job, endings })
}

impl From<&Dependency> for v1::Dependency {
    fn from(dependency: &Dependency) -> Self {
        let ending = |ending: &Ending| match ending {
            Ending::Success => v1::JobEnding::Success.into(),
            Ending::Error => v1::JobEnding::Error.into(),
            Ending::Canceled => v1::JobEnding::Canceled.into(),
        };
        v1::Dependency { job: dependency.job, endings: dependency.endings.iter().map(ending).collect() }
    }
}

/// Reads an operation; `local` is the node whose master daemon reads it.
///
/// # Errors
/// Names the field, its value and what would be right.
#[expect(clippy::too_many_lines, reason = "an arm for each operation")]
pub fn operation_from_wire(wire: v1::Operation, local: &NodeName) -> Result<Op, WireError> {
    use v1::operation::Operation as Wire;
    Ok(match wire.operation.ok_or(WireError::Missing { field: "operation" })? {
        Wire::ClusterInit(w) => Op::ClusterInit(ClusterInit {
            name: fields::cluster("name", &w.name)?,
            hypervisor: match w.hypervisor.as_str() {
                "" => HypervisorKind::Qemu,
                name => fields::hypervisor("hypervisor", name)?,
            },
        }),
        Wire::MasterFailover(v1::MasterFailover {}) => {
            Op::MasterFailover(MasterFailover { new_master: local.clone() })
        }
        Wire::NodeAdd(w) => Op::NodeAdd(node_add(&w)?),
        Wire::NodeRemove(w) => Op::NodeRemove(NodeRemove { name: fields::node("name", &w.name)? }),
        Wire::InstanceAdd(w) => Op::InstanceAdd(instance::instance_add(w)?),
        Wire::BackupExport(w) => Op::BackupExport(BackupExport {
            instance: fields::instance("instance", &w.instance)?,
            node: fields::node("node", &w.node)?,
            no_shutdown: w.no_shutdown,
        }),
        Wire::InstanceStart(w) => Op::InstanceStart(InstanceStart {
            instance: fields::instance("instance", &w.instance)?,
            force: w.force,
        }),
        Wire::InstanceShutdown(w) => Op::InstanceShutdown(InstanceShutdown {
            instance: fields::instance("instance", &w.instance)?,
            timeout_s: w.timeout_s,
            fenced: w.fenced,
        }),
        Wire::InstanceModify(w) => Op::InstanceModify(instance::instance_modify(&w)?),
        Wire::InstanceFailover(w) => Op::InstanceFailover(InstanceFailover {
            instance: fields::instance("instance", &w.instance)?,
            ignore_consistency: w.ignore_consistency,
            fenced: w.fenced,
        }),
        Wire::InstanceRemove(w) => {
            Op::InstanceRemove(InstanceRemove { instance: fields::instance("instance", &w.instance)? })
        }
        Wire::MirrorAdd(w) => Op::MirrorAdd(MirrorAdd {
            instance: fields::instance("instance", &w.instance)?,
            disk: fields::disk("disk", &w.disk)?,
            node: fields::node("node", &w.node)?,
        }),
        Wire::MirrorRemove(w) => Op::MirrorRemove(MirrorRemove {
            instance: fields::instance("instance", &w.instance)?,
            disk: fields::disk("disk", &w.disk)?,
            disk_id: w.disk_id,
        }),
        Wire::DisksReplace(w) => Op::DisksReplace(DisksReplace {
            instance: fields::instance("instance", &w.instance)?,
            new_secondary: w.new_secondary.map(|name| fields::node("new_secondary", &name)).transpose()?,
            on_primary: w.on_primary,
        }),
        Wire::ClusterModify(w) => Op::ClusterModify(cluster_modify(w)?),
        Wire::ClusterDestroy(w) => {
            Op::ClusterDestroy(ClusterDestroy { name: fields::cluster("name", &w.name)? })
        }
        Wire::NodeModify(w) => Op::NodeModify(node_modify(&w)?),
        Wire::CertificatesRenew(w) => {
            let nodes = w.nodes.iter().map(|name| fields::node("nodes", name));
            Op::CertificatesRenew(CertificatesRenew { nodes: nodes.collect::<Result<_, _>>()? })
        }
        Wire::ClientCertificateSign(w) => Op::ClientCertificateSign(client_certificate_sign(&w)?),
        Wire::ClientCertificateRevoke(w) => {
            Op::ClientCertificateRevoke(ClientCertificateRevoke { name: fields::client("name", &w.name)? })
        }
        Wire::JobRepair(w) => Op::JobRepair(JobRepair { job: w.job }),
        Wire::InstanceReboot(w) => Op::InstanceReboot(InstanceReboot {
            instance: fields::instance("instance", &w.instance)?,
            kind: reboot_kind(&w.kind)?,
        }),
        Wire::InstanceReinstall(w) => Op::InstanceReinstall(InstanceReinstall {
            instance: fields::instance("instance", &w.instance)?,
            os: w.os.map(|os| fields::os("os", &os)).transpose()?,
        }),
        Wire::InstanceRename(w) => Op::InstanceRename(InstanceRename {
            instance: fields::instance("instance", &w.instance)?,
            new_name: fields::instance("new_name", &w.new_name)?,
        }),
        Wire::DiskGrow(w) => Op::DiskGrow(DiskGrow {
            instance: fields::instance("instance", &w.instance)?,
            disk: fields::disk("disk", &w.disk)?,
            by_mib: w.by_mib,
        }),
        Wire::InstanceMigrate(w) => {
            Op::InstanceMigrate(InstanceMigrate { instance: fields::instance("instance", &w.instance)? })
        }
        Wire::MirrorsSettle(w) => {
            Op::MirrorsSettle(MirrorsSettle { instance: fields::instance("instance", &w.instance)? })
        }
        Wire::NodeMigrate(w) => Op::NodeMigrate(NodeMigrate {
            name: fields::node("name", &w.name)?,
            ignore_unmovable: w.ignore_unmovable,
        }),
        Wire::NodeEvacuate(w) => Op::NodeEvacuate(place::node_evacuate(&w)?),
        Wire::InstanceMove(w) => Op::InstanceMove(place::instance_move(&w)?),
        Wire::DisksRecreate(w) => Op::DisksRecreate(place::disks_recreate(&w)?),
        Wire::ClusterRename(w) => {
            Op::ClusterRename(ClusterRename { new_name: fields::cluster("new_name", &w.new_name)? })
        }
        Wire::ClusterVerify(v1::ClusterVerify {}) => Op::ClusterVerify(ClusterVerify {}),
        Wire::MirrorsSync(w) => {
            Op::MirrorsSync(MirrorsSync { instance: fields::instance("instance", &w.instance)? })
        }
        Wire::GroupAdd(w) => Op::GroupAdd(group::group_add(&w)?),
        Wire::GroupModify(w) => Op::GroupModify(group::group_modify(&w)?),
        Wire::GroupRemove(w) => Op::GroupRemove(GroupRemove { name: fields::group("name", &w.name)? }),
        Wire::GroupRename(w) => Op::GroupRename(GroupRename {
            name: fields::group("name", &w.name)?,
            new_name: fields::group("new_name", &w.new_name)?,
        }),
        Wire::GroupAssignNodes(w) => Op::GroupAssignNodes(group::group_assign_nodes(&w)?),
        Wire::NetworkAdd(w) => Op::NetworkAdd(group::network_add(&w)?),
        Wire::NetworkRemove(w) => {
            Op::NetworkRemove(NetworkRemove { name: fields::network("name", &w.name)? })
        }
        Wire::NetworkModify(w) => Op::NetworkModify(group::network_modify(&w)?),
        Wire::NetworkConnect(w) => Op::NetworkConnect(group::network_connect(w)?),
        Wire::NetworkDisconnect(w) => Op::NetworkDisconnect(NetworkDisconnect {
            network: fields::network("network", &w.network)?,
            group: fields::group("group", &w.group)?,
        }),
        Wire::TagsSet(w) => {
            let (object, tags) = group::tags(w.object, &w.tags)?;
            Op::TagsSet(TagsSet { object, tags })
        }
        Wire::TagsDel(w) => {
            let (object, tags) = group::tags(w.object, &w.tags)?;
            Op::TagsDel(TagsDel { object, tags })
        }
    })
}

fn reboot_kind(text: &str) -> Result<RebootKind, WireError> {
    match text {
        "" => Ok(RebootKind::Soft),
        word => RebootKind::parse(word)
            .ok_or_else(|| WireError::wrong("kind", word, "soft, hard or full is expected")),
    }
}

fn optional_ip(field: &'static str, text: Option<&String>) -> Result<Option<std::net::IpAddr>, WireError> {
    text.map(|text| fields::ip(field, text)).transpose()
}

fn node_add(wire: &v1::NodeAdd) -> Result<NodeAdd, WireError> {
    Ok(NodeAdd {
        name: fields::node("name", &wire.name)?,
        primary_ip: optional_ip("primary_ip", wire.primary_ip.as_ref())?,
        secondary_ip: optional_ip("secondary_ip", wire.secondary_ip.as_ref())?,
        readd: wire.readd,
        group: wire.group.as_ref().map(|name| fields::group("group", name)).transpose()?,
    })
}

fn node_modify(wire: &v1::NodeModify) -> Result<NodeModify, WireError> {
    Ok(NodeModify {
        name: fields::node("name", &wire.name)?,
        offline: wire.offline,
        drained: wire.drained,
        master_candidate: wire.master_candidate,
        primary_ip: optional_ip("primary_ip", wire.primary_ip.as_ref())?,
        secondary_ip: optional_ip("secondary_ip", wire.secondary_ip.as_ref())?,
    })
}

fn unknown(field: &'static str, value: i32) -> WireError {
    WireError::wrong(field, &value.to_string(), "this version does not know the value")
}

fn cluster_modify(wire: v1::ClusterModify) -> Result<ClusterModify, WireError> {
    let hooks = wire.hooks.unwrap_or_default();
    let exit_codes = match v1::ExitCodes::try_from(hooks.exit_codes) {
        Ok(v1::ExitCodes::Unspecified) => None,
        Ok(v1::ExitCodes::Strict) => Some(ExitCodes::Strict),
        Ok(v1::ExitCodes::Graded) => Some(ExitCodes::Graded),
        Err(_) => return Err(unknown("hooks.exit_codes", hooks.exit_codes)),
    };
    let on_error = match (v1::OnError::try_from(hooks.on_error), wire.on_error_default) {
        (Ok(v1::OnError::Unspecified), false) => None,
        (Ok(v1::OnError::Unspecified), true) => Some(OnErrorChange::Default),
        (Ok(v1::OnError::Continue), false) => Some(OnErrorChange::Set(OnError::Continue)),
        (Ok(v1::OnError::Stop), false) => Some(OnErrorChange::Set(OnError::Stop)),
        (Ok(v1::OnError::Continue | v1::OnError::Stop), true) => {
            return Err(WireError::wrong(
                "on_error_default",
                "true",
                "hooks.on_error is set too: give one of both",
            ));
        }
        (Err(_), _) => return Err(unknown("hooks.on_error", hooks.on_error)),
    };
    let unreachable = match v1::AllowDeny::try_from(hooks.unreachable) {
        Ok(v1::AllowDeny::Unspecified) => None,
        Ok(v1::AllowDeny::Allow) => Some(OnUnreachable::Allow),
        Ok(v1::AllowDeny::Deny) => Some(OnUnreachable::Deny),
        Err(_) => return Err(unknown("hooks.unreachable", hooks.unreachable)),
    };
    let timeout = match v1::AllowDeny::try_from(hooks.timeout) {
        Ok(v1::AllowDeny::Unspecified) => None,
        Ok(v1::AllowDeny::Allow) => Some(OnTimeout::Allow),
        Ok(v1::AllowDeny::Deny) => Some(OnTimeout::Deny),
        Err(_) => return Err(unknown("hooks.timeout", hooks.timeout)),
    };
    let (master_required, timeout_max_ms) = (hooks.master_required, hooks.timeout_max_ms);
    let hook_limits = super::hook_policy::limits_change(&hooks, &wire.hook_policy)
        .map_err(|error| WireError::wrong("hook_policy", &error.to_string(), "a known value is expected"))?;
    let hooks_version = match hooks.version.map(|number| (number, version_from_wire(number))) {
        None => None,
        Some((_, Some(version))) => Some(version),
        Some((number, None)) => {
            return Err(WireError::wrong("hooks.version", &number.to_string(), "1 or 2 is expected"));
        }
    };
    Ok(ClusterModify {
        hooks_version,
        exit_codes,
        on_error,
        unreachable,
        timeout,
        master_required,
        timeout_max_ms,
        accel: wire.accel.map(|accel| fields::accel("accel", &accel)).transpose()?,
        nic: wire.nic.map(|nic| fields::nic("nic", &nic)).transpose()?,
        fence_command: wire.fence_command,
        hook_limits,
        allowed: AllowedChange {
            allow_commands: fields::all_parsed("allow_commands", &wire.allow_commands)?,
            disallow_commands: fields::all_parsed("disallow_commands", &wire.disallow_commands)?,
            allow_files: fields::all_parsed("allow_files", &wire.allow_files)?,
            disallow_files: fields::all_parsed("disallow_files", &wire.disallow_files)?,
        },
    })
}

fn client_certificate_sign(wire: &v1::ClientCertificateSign) -> Result<ClientCertificateSign, WireError> {
    let role = fields::present("role", &wire.role)?;
    let role = ClientRole::parse(role)
        .ok_or_else(|| WireError::wrong("role", role, "reader, operator or admin is expected"))?;
    if wire.csr_der.is_empty() {
        return Err(WireError::Missing { field: "csr_der" });
    }
    if wire.csr_der.len() > CSR_BYTES_MAX {
        let size = format!("{} bytes", wire.csr_der.len());
        return Err(WireError::wrong("csr_der", &size, "at most 16384 bytes are expected"));
    }
    Ok(ClientCertificateSign { name: fields::client("name", &wire.name)?, role, csr_hex: hex(&wire.csr_der) })
}

impl From<Op> for v1::Operation {
    fn from(op: Op) -> Self {
        v1::Operation { operation: Some(operation_to_wire(op)) }
    }
}

#[expect(clippy::too_many_lines, reason = "an arm for each operation")]
fn operation_to_wire(op: Op) -> v1::operation::Operation {
    use v1::operation::Operation as Wire;
    match op {
        Op::ClusterInit(op) => Wire::ClusterInit(v1::ClusterInit {
            name: op.name.into(),
            hypervisor: op.hypervisor.as_str().to_owned(),
        }),
        Op::MasterFailover(_) => Wire::MasterFailover(v1::MasterFailover {}),
        Op::NodeAdd(op) => Wire::NodeAdd(v1::NodeAdd {
            name: op.name.into(),
            primary_ip: op.primary_ip.map(|ip| ip.to_string()),
            secondary_ip: op.secondary_ip.map(|ip| ip.to_string()),
            readd: op.readd,
            group: op.group.map(Into::into),
        }),
        Op::NodeRemove(op) => Wire::NodeRemove(v1::NodeRemove { name: op.name.into() }),
        Op::InstanceAdd(op) => Wire::InstanceAdd(op.into()),
        Op::BackupExport(op) => Wire::BackupExport(v1::BackupExport {
            instance: op.instance.into(),
            node: op.node.into(),
            no_shutdown: op.no_shutdown,
        }),
        Op::InstanceStart(op) => {
            Wire::InstanceStart(v1::InstanceStart { instance: op.instance.into(), force: op.force })
        }
        Op::InstanceShutdown(op) => Wire::InstanceShutdown(v1::InstanceShutdown {
            instance: op.instance.into(),
            timeout_s: op.timeout_s,
            fenced: op.fenced,
        }),
        Op::InstanceModify(op) => Wire::InstanceModify(op.into()),
        Op::InstanceFailover(op) => Wire::InstanceFailover(v1::InstanceFailover {
            instance: op.instance.into(),
            ignore_consistency: op.ignore_consistency,
            fenced: op.fenced,
        }),
        Op::InstanceRemove(op) => Wire::InstanceRemove(v1::InstanceRemove { instance: op.instance.into() }),
        Op::MirrorAdd(op) => Wire::MirrorAdd(v1::MirrorAdd {
            instance: op.instance.into(),
            disk: op.disk.as_str().to_owned(),
            node: op.node.into(),
        }),
        Op::MirrorRemove(op) => Wire::MirrorRemove(v1::MirrorRemove {
            instance: op.instance.into(),
            disk: op.disk.as_str().to_owned(),
            disk_id: op.disk_id,
        }),
        Op::DisksReplace(op) => Wire::DisksReplace(v1::DisksReplace {
            instance: op.instance.into(),
            new_secondary: op.new_secondary.map(Into::into),
            on_primary: op.on_primary,
        }),
        Op::ClusterModify(op) => Wire::ClusterModify(op.into()),
        Op::ClusterDestroy(op) => Wire::ClusterDestroy(v1::ClusterDestroy { name: op.name.into() }),
        Op::NodeModify(op) => Wire::NodeModify(v1::NodeModify {
            name: op.name.into(),
            offline: op.offline,
            drained: op.drained,
            master_candidate: op.master_candidate,
            primary_ip: op.primary_ip.map(|ip| ip.to_string()),
            secondary_ip: op.secondary_ip.map(|ip| ip.to_string()),
        }),
        Op::CertificatesRenew(op) => Wire::CertificatesRenew(v1::CertificatesRenew {
            nodes: op.nodes.into_iter().map(Into::into).collect(),
        }),
        Op::ClientCertificateSign(op) => Wire::ClientCertificateSign(op.into()),
        Op::ClientCertificateRevoke(op) => {
            Wire::ClientCertificateRevoke(v1::ClientCertificateRevoke { name: op.name.into() })
        }
        Op::JobRepair(op) => Wire::JobRepair(v1::JobRepair { job: op.job }),
        Op::InstanceReboot(op) => Wire::InstanceReboot(v1::InstanceReboot {
            instance: op.instance.into(),
            kind: op.kind.as_str().to_owned(),
        }),
        Op::InstanceReinstall(op) => Wire::InstanceReinstall(v1::InstanceReinstall {
            instance: op.instance.into(),
            os: op.os.map(Into::into),
        }),
        Op::InstanceRename(op) => Wire::InstanceRename(v1::InstanceRename {
            instance: op.instance.into(),
            new_name: op.new_name.into(),
        }),
        Op::DiskGrow(op) => Wire::DiskGrow(v1::DiskGrow {
            instance: op.instance.into(),
            disk: op.disk.as_str().to_owned(),
            by_mib: op.by_mib,
        }),
        Op::InstanceMigrate(op) => {
            Wire::InstanceMigrate(v1::InstanceMigrate { instance: op.instance.into() })
        }
        Op::MirrorsSettle(op) => Wire::MirrorsSettle(v1::MirrorsSettle { instance: op.instance.into() }),
        Op::MirrorsSync(op) => Wire::MirrorsSync(v1::MirrorsSync { instance: op.instance.into() }),
        Op::NodeMigrate(op) => {
            Wire::NodeMigrate(v1::NodeMigrate { name: op.name.into(), ignore_unmovable: op.ignore_unmovable })
        }
        Op::NodeEvacuate(op) => Wire::NodeEvacuate(op.into()),
        Op::InstanceMove(op) => Wire::InstanceMove(op.into()),
        Op::DisksRecreate(op) => Wire::DisksRecreate(op.into()),
        Op::ClusterRename(op) => Wire::ClusterRename(v1::ClusterRename { new_name: op.new_name.into() }),
        Op::ClusterVerify(ClusterVerify {}) => Wire::ClusterVerify(v1::ClusterVerify {}),
        Op::GroupAdd(op) => Wire::GroupAdd(op.into()),
        Op::GroupModify(op) => Wire::GroupModify(op.into()),
        Op::GroupRemove(op) => Wire::GroupRemove(v1::GroupRemove { name: op.name.into() }),
        Op::GroupRename(op) => {
            Wire::GroupRename(v1::GroupRename { name: op.name.into(), new_name: op.new_name.into() })
        }
        Op::GroupAssignNodes(op) => Wire::GroupAssignNodes(op.into()),
        Op::NetworkAdd(op) => Wire::NetworkAdd(op.into()),
        Op::NetworkRemove(op) => Wire::NetworkRemove(v1::NetworkRemove { name: op.name.into() }),
        Op::NetworkModify(op) => Wire::NetworkModify(op.into()),
        Op::NetworkConnect(op) => Wire::NetworkConnect(op.into()),
        Op::NetworkDisconnect(op) => Wire::NetworkDisconnect(v1::NetworkDisconnect {
            network: op.network.into(),
            group: op.group.into(),
        }),
        Op::TagsSet(op) => {
            Wire::TagsSet(v1::TagsSet { object: Some((&op.object).into()), tags: op.tags.to_texts() })
        }
        Op::TagsDel(op) => {
            Wire::TagsDel(v1::TagsDel { object: Some((&op.object).into()), tags: op.tags.to_texts() })
        }
    }
}

impl From<ClusterModify> for v1::ClusterModify {
    fn from(op: ClusterModify) -> Self {
        let exit_codes = match op.exit_codes {
            None => v1::ExitCodes::Unspecified,
            Some(ExitCodes::Strict) => v1::ExitCodes::Strict,
            Some(ExitCodes::Graded) => v1::ExitCodes::Graded,
        };
        let (on_error, on_error_default) = match op.on_error {
            None => (v1::OnError::Unspecified, false),
            Some(OnErrorChange::Default) => (v1::OnError::Unspecified, true),
            Some(OnErrorChange::Set(OnError::Continue)) => (v1::OnError::Continue, false),
            Some(OnErrorChange::Set(OnError::Stop)) => (v1::OnError::Stop, false),
        };
        let unreachable = match op.unreachable {
            None => v1::AllowDeny::Unspecified,
            Some(OnUnreachable::Allow) => v1::AllowDeny::Allow,
            Some(OnUnreachable::Deny) => v1::AllowDeny::Deny,
        };
        let timeout = match op.timeout {
            None => v1::AllowDeny::Unspecified,
            Some(OnTimeout::Allow) => v1::AllowDeny::Allow,
            Some(OnTimeout::Deny) => v1::AllowDeny::Deny,
        };
        let hooks = v1::HookPolicy {
            exit_codes: exit_codes.into(),
            on_error: on_error.into(),
            unreachable: unreachable.into(),
            timeout: timeout.into(),
            master_required: op.master_required,
            timeout_max_ms: op.timeout_max_ms,
            warn_ms: op.hook_limits.warn_ms,
            kill_ms: op.hook_limits.kill_ms,
            budget_ms: op.hook_limits.budget_ms,
            directories: Default::default(),
            version: op.hooks_version.map(version_to_wire),
        };
        v1::ClusterModify {
            hooks: Some(hooks),
            on_error_default,
            accel: op.accel.map(|accel| accel.as_str().to_owned()),
            nic: op.nic.map(|nic| nic.to_text()),
            fence_command: op.fence_command,
            hook_policy: op.hook_limits.directories.into_iter().map(Into::into).collect(),
            allow_commands: fields::all_texts(op.allowed.allow_commands),
            disallow_commands: fields::all_texts(op.allowed.disallow_commands),
            allow_files: fields::all_texts(op.allowed.allow_files),
            disallow_files: fields::all_texts(op.allowed.disallow_files),
        }
    }
}

impl From<ClientCertificateSign> for v1::ClientCertificateSign {
    fn from(op: ClientCertificateSign) -> Self {
        v1::ClientCertificateSign {
            name: op.name.into(),
            role: op.role.as_str().to_owned(),
            csr_der: fields::hex_bytes(&op.csr_hex).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
