//! The table of operations: one row, one file, one message each.
//!
//! To add an operation: write `core/src/ops/<noun>_<verb>.rs`, its `mod` line and its row in the table below, and its
//! message in `proto`. The compiler then asks for the conversions; the generic laws run on the row's examples. What the
//! compiler can't see (a wrong hook prefix or variable) is compared with HOOKS.md by the black-box suite.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    calls::Call,
    facts::NodeFacts,
    hooks::{Env, EnvError, HooksVersion, Phase},
    locks::Locks,
    model::Cluster,
    names::NodeName,
};

mod addresses;
mod backup_export;
mod bounds;
mod certificates_renew;
mod client_certificate_revoke;
mod client_certificate_sign;
mod cluster_destroy;
mod cluster_init;
mod cluster_modify;
mod cluster_rename;
mod cluster_verify;
mod common;
mod disk_grow;
mod disks_recreate;
mod disks_replace;
pub mod examples;
mod fencing;
mod group_add;
mod group_assign_nodes;
mod group_modify;
mod group_remove;
mod group_rename;
mod groups;
mod hook_limits;
mod hooks2;
mod instance_add;
mod instance_failover;
mod instance_migrate;
mod instance_modify;
mod instance_move;
mod instance_reboot;
mod instance_reinstall;
mod instance_remove;
mod instance_rename;
mod instance_shutdown;
mod instance_start;
mod job_repair;
mod master_failover;
mod mirror_add;
mod mirror_remove;
mod mirroring;
mod mirrors_settle;
mod mirrors_sync;
mod network_add;
mod network_connect;
mod network_disconnect;
mod network_modify;
mod network_remove;
mod networks;
mod node_add;
mod node_evacuate;
mod node_migrate;
mod node_modify;
mod node_remove;
mod parts;
mod plan;
mod points;
mod relied;
mod relocate;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod rows2;
mod tags_del;
mod tags_set;

pub use hooks2::{HookObject, HookPhases, HookRow2, Hooks2};
pub use plan::{FollowUp, HookNodes, Plan, Prepared, Step, StepKind};
pub use points::{
    AFTER_VARIABLES, EVENT_POINTS, EventPoint, GLOBAL_PREFIX, SYNC_PREFIX, SYNC_VARIABLES, event_env,
    job_env, point_directories, sync_env,
};
pub use relied::{Relied, Witness};

/// The kind of thing that an operation is about (`GANETI_OBJECT_TYPE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// An instance.
    Instance,
    /// A node.
    Node,
    /// The cluster.
    Cluster,
    /// A group of nodes.
    Group,
    /// A network.
    Network,
}

impl ObjectKind {
    /// As scripts see it.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectKind::Instance => "INSTANCE",
            ObjectKind::Node => "NODE",
            ObjectKind::Cluster => "CLUSTER",
            ObjectKind::Group => "GROUP",
            ObjectKind::Network => "NETWORK",
        }
    }
}

/// Who may submit an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitter {
    /// Operators and admins.
    Operator,
    /// Admins.
    Admin,
    /// The local socket's admins: it needs the host itself.
    Local,
}

/// What an operation has of interface version 1: directory prefix and the code that Ganeti's own code exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookRow {
    /// `node-add` means `node-add-pre.d` and `node-add-post.d`.
    pub prefix: &'static str,
    /// `GANETI_OP_CODE`.
    pub op_code: &'static str,
}

/// The constant part of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// `GANETI_OP_ID`; never made from a Rust name.
    pub op_id: &'static str,
    /// `GANETI_OBJECT_TYPE`.
    pub object: ObjectKind,
    /// `None` for operations without hooks in version 1.
    pub hooks: Option<HookRow>,
    /// `None` for operations without hooks in version 2.
    pub hooks2: Option<HookRow2>,
    /// Who may ask for it.
    pub submitter: Submitter,
}

impl Row {
    /// The directory prefix in a version; `None` for an operation without hooks there.
    pub fn prefix_in(&self, version: HooksVersion) -> Option<&'static str> {
        match version {
            HooksVersion::V1 => self.hooks.map(|hooks| hooks.prefix),
            HooksVersion::V2 => self.hooks2.map(|hooks| hooks.prefix),
        }
    }

    /// `GANETI_OP_CODE` in a version: the operation's own identifier where it has no hooks there.
    pub fn code_in(&self, version: HooksVersion) -> &'static str {
        let code = match version {
            HooksVersion::V1 => self.hooks.map(|hooks| hooks.op_code),
            HooksVersion::V2 => self.hooks2.map(|hooks| hooks.op_code),
        };
        code.unwrap_or(self.op_id)
    }

    /// Whether it runs hooks in a phase, in a version.
    pub fn runs_in(&self, version: HooksVersion, phase: Phase) -> bool {
        match version {
            HooksVersion::V1 => self.hooks.is_some(),
            HooksVersion::V2 => self.hooks2.is_some_and(|hooks| hooks.runs_in(phase)),
        }
    }
}

/// Why an operation is not begun.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl From<EnvError> for Refusal {
    fn from(error: EnvError) -> Self {
        Refusal(error.to_string())
    }
}

/// A host that asked to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingNode {
    /// What its daemon advertises, else the source address.
    pub ip: IpAddr,
    /// Its daemon's port.
    pub port: u16,
    /// Its daemon runs hooks only.
    #[serde(default)]
    pub hooks_only: bool,
}

/// Values drawn by the driver at submit and recorded with the job, so that the engine draws none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fresh {
    /// As many as any operation needs.
    pub uuids: Vec<Uuid>,
    /// A MAC address no instance has.
    pub mac: String,
    /// The host that OP_ADD_NODE names, where it is pending.
    pub pending: Option<PendingNode>,
    /// The cluster that OP_INIT_CLUSTER would make.
    pub new_cluster: Option<Box<Cluster>>,
    /// Wall clock, ms since 1970.
    pub now_ms: u64,
    /// What OP_JOB_REPAIR is about.
    #[serde(default)]
    pub repair: Option<Repair>,
    /// What the node that the operation is about says of its host, where that is known.
    #[serde(default)]
    pub node_facts: Option<NodeFacts>,
}

/// How many uuids [`Fresh`] holds.
pub const FRESH_UUIDS: usize = 6;

/// What check and plan may look at.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The configuration, locks held.
    pub cluster: &'a Cluster,
    /// Drawn at submit.
    pub fresh: &'a Fresh,
    /// The node whose master daemon executes the job.
    pub local: &'a NodeName,
    /// Undos of ended jobs that could not be carried out and were not made good since.
    pub undone: &'a [Call],
}

/// One operation; no default bodies: what can be forgotten will be.
pub trait Operation: Sized {
    /// The constant part of its row.
    const ROW: Row;
    /// What check proved.
    type Checked;
    /// `GANETI_OP_TARGET`, and the part in brackets of a job's summary.
    fn target(&self) -> String;
    /// Names only.
    fn locks(&self) -> Locks;
    /// Changes nothing.
    ///
    /// # Errors
    /// When the operation can't be begun, in words for the operator.
    fn check(&self, given: Given<'_>) -> Result<Self::Checked, Refusal>;
    /// Both node sets, from HOOKS.md's table.
    fn hook_nodes(&self, given: Given<'_>, checked: &Self::Checked) -> HookNodes;
    /// The operation's own variables.
    fn hook_env(&self, given: Given<'_>, checked: &Self::Checked) -> Env;
    /// Node sets and variables in interface version 2; [`Hooks2::none`] where the row has no hooks there.
    fn hooks2(&self, given: Given<'_>, checked: &Self::Checked) -> Hooks2;
    /// Steps with undo, then edits, then cleanups.
    fn plan(&self, given: Given<'_>, checked: &Self::Checked) -> Plan;
    /// The laws run on these; at least one, more where plans differ in shape.
    fn examples() -> Vec<(Cluster, Fresh, Self)>;
}

macro_rules! operations {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        $(pub use $module::$name;)+

        /// An operation with its parameters.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "operation")]
        pub enum Op {
            $(#[doc = concat!("See `", stringify!($module), "`.")] $name($name),)+
        }

        impl Op {
            /// The constant part of the row.
            pub fn row(&self) -> &'static Row {
                match self { $(Op::$name(_) => &$name::ROW,)+ }
            }

            /// `GANETI_OP_TARGET`.
            pub fn target(&self) -> String {
                match self { $(Op::$name(op) => op.target(),)+ }
            }

            /// Who may ask for it, its parameters included.
            pub fn submitter(&self) -> Submitter {
                if let Op::NodeModify(NodeModify { master_candidate: Some(_), .. }) = self {
                    return Submitter::Admin;
                }
                self.row().submitter
            }

            /// Whether global scripts are asked before it. Where it only records what is so already, a denial would
            /// leave the configuration wrong and prevent nothing.
            pub fn asks_global_scripts(&self) -> bool {
                !matches!(self, Op::MirrorsSettle(_))
            }

            /// The names that it locks.
            pub fn locks(&self) -> Locks {
                match self { $(Op::$name(op) => op.locks(),)+ }
            }

            /// Check, node sets, environment and plan, computed once.
            ///
            /// # Errors
            /// When the operation can't be begun.
            pub fn prepare(&self, given: Given<'_>, job: &common::JobFacts<'_>) -> Result<Prepared, Refusal> {
                match self { $(Op::$name(op) => common::prepare(op, given, job),)+ }
            }
        }

        /// All rows.
        pub const ROWS: &[Row] = &[$($name::ROW),+];

        /// The examples of all rows.
        pub fn all_examples() -> Vec<(Cluster, Fresh, Op)> {
            let mut all = Vec::new();
            $(all.extend($name::examples().into_iter().map(|(cluster, fresh, op)| (cluster, fresh, Op::$name(op))));)+
            all
        }
    };
}

operations! {
    cluster_init::ClusterInit,
    master_failover::MasterFailover,
    node_add::NodeAdd,
    node_remove::NodeRemove,
    instance_add::InstanceAdd,
    backup_export::BackupExport,
    instance_start::InstanceStart,
    instance_shutdown::InstanceShutdown,
    instance_modify::InstanceModify,
    instance_failover::InstanceFailover,
    instance_remove::InstanceRemove,
    mirror_add::MirrorAdd,
    mirror_remove::MirrorRemove,
    disks_replace::DisksReplace,
    cluster_modify::ClusterModify,
    cluster_destroy::ClusterDestroy,
    node_modify::NodeModify,
    certificates_renew::CertificatesRenew,
    client_certificate_sign::ClientCertificateSign,
    client_certificate_revoke::ClientCertificateRevoke,
    job_repair::JobRepair,
    instance_reboot::InstanceReboot,
    instance_reinstall::InstanceReinstall,
    instance_rename::InstanceRename,
    disk_grow::DiskGrow,
    instance_migrate::InstanceMigrate,
    mirrors_settle::MirrorsSettle,
    mirrors_sync::MirrorsSync,
    group_add::GroupAdd,
    group_modify::GroupModify,
    group_remove::GroupRemove,
    group_rename::GroupRename,
    group_assign_nodes::GroupAssignNodes,
    network_add::NetworkAdd,
    network_remove::NetworkRemove,
    network_modify::NetworkModify,
    network_connect::NetworkConnect,
    network_disconnect::NetworkDisconnect,
    tags_set::TagsSet,
    tags_del::TagsDel,
    node_migrate::NodeMigrate,
    node_evacuate::NodeEvacuate,
    instance_move::InstanceMove,
    disks_recreate::DisksRecreate,
    cluster_rename::ClusterRename,
    cluster_verify::ClusterVerify,
}

pub use cluster_modify::OnErrorChange;
pub use common::{ImportSource, JobFacts, UnusedDirectory, hook_directories, used_directories};
pub use hook_limits::{DirectoryChange, HookLimitsChange};
pub use instance_modify::{IpChange, NetworkChange};
pub use instance_reboot::RebootKind;
pub use job_repair::Repair;
pub use network_modify::Change;
pub use node_evacuate::Evacuated;
