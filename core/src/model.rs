//! The cluster's configuration: what is committed, and nothing else.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    allowed::Allowed,
    calls::Cleanup,
    groups::Group,
    hooks::HookPolicy,
    hypervisor::HypervisorParams,
    names::{ClientName, ClusterName, InstanceName, NodeName, OsName},
    networks::Network,
    tags::Tags,
};

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Drawn at init.
    pub uuid: Uuid,
    /// The cluster's name.
    pub name: ClusterName,
    /// Grows by one with each commit of a job that changed something.
    pub serial: u64,
    /// The node whose master daemon executes jobs.
    pub master: NodeName,
    /// Hook parameters.
    pub hooks: HookPolicy,
    /// How guests are run.
    #[serde(default)]
    pub hypervisor: HypervisorParams,
    /// The site's command that makes sure that a node is off; run on the master as `COMMAND NODE ADDRESS`.
    #[serde(default)]
    pub fence_command: Option<String>,
    /// What admins may do on nodes beyond operations.
    #[serde(default)]
    pub allowed: Allowed,
    /// The site's words about the cluster.
    #[serde(default)]
    pub tags: Tags,
    /// The groups of nodes, by uuid; at least one ([`Cluster::with_first_group`]).
    #[serde(default)]
    pub groups: BTreeMap<Uuid, Group>,
    /// The networks, by uuid.
    #[serde(default)]
    pub networks: BTreeMap<Uuid, Network>,
    /// All nodes.
    pub nodes: BTreeMap<NodeName, Node>,
    /// All instances.
    pub instances: BTreeMap<InstanceName, Instance>,
    /// All exports, by uuid.
    pub exports: BTreeMap<Uuid, Export>,
    /// Certificates of remote clients.
    pub clients: BTreeMap<ClientName, Client>,
    /// What is still to be destroyed, by its number.
    pub cleanups: BTreeMap<CleanupId, Cleanup>,
}

/// A cleanup's name: job and position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CleanupId {
    /// The job that committed it.
    pub job: u64,
    /// Position in the job's list.
    pub index: u32,
}

impl From<CleanupId> for String {
    fn from(id: CleanupId) -> String {
        format!("{}.{}", id.job, id.index)
    }
}

impl TryFrom<String> for CleanupId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let parsed =
            text.split_once('.').and_then(|(job, index)| Some((job.parse().ok()?, index.parse().ok()?)));
        let (job, index) = parsed.ok_or_else(|| format!("{text:?} is no cleanup id"))?;
        Ok(CleanupId { job, index })
    }
}

/// SHA-256 of a certificate's DER form, hexadecimal.
pub type Fingerprint = String;

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Stays when the name is a label only.
    pub uuid: Uuid,
    /// The label.
    pub name: NodeName,
    /// Traffic between nodes.
    pub primary_ip: IpAddr,
    /// Disk replication; equal to the first when there is only one.
    pub secondary_ip: IpAddr,
    /// The node daemon's TCP port.
    pub port: u16,
    /// Outside every set, not contacted (HOOKS.md R6).
    pub offline: bool,
    /// Gets no new instances.
    pub drained: bool,
    /// It runs hooks and holds no instances.
    #[serde(default)]
    pub hooks_only: bool,
    /// Its master daemon may take the office, and gets the certificate authority's key with it.
    #[serde(default)]
    pub master_candidate: bool,
    /// The group that it is in; nil in records older than groups.
    #[serde(default)]
    pub group: Uuid,
    /// The site's words.
    #[serde(default)]
    pub tags: Tags,
    /// Accepted certificates: the one in use, and a new one until it is confirmed.
    pub fingerprints: Vec<Fingerprint>,
}

impl Node {
    /// All its addresses, each once.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let second = (self.secondary_ip != self.primary_ip).then_some(self.secondary_ip);
        std::iter::once(self.primary_ip).chain(second).collect()
    }
}

/// How an instance's disks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskTemplate {
    /// No disks.
    Diskless,
    /// Raw files on the primary node.
    File,
    /// Raw files on the primary and on the secondary.
    Mirror,
}

impl DiskTemplate {
    /// The canonical name, as scripts see it.
    pub fn as_str(self) -> &'static str {
        match self {
            DiskTemplate::Diskless => "diskless",
            DiskTemplate::File => "file",
            DiskTemplate::Mirror => "mirror",
        }
    }

    /// Parses a name; `remote_raid1` and `drbd` mean `mirror`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "diskless" => Some(DiskTemplate::Diskless),
            "file" => Some(DiskTemplate::File),
            "mirror" | "remote_raid1" | "drbd" => Some(DiskTemplate::Mirror),
            _ => None,
        }
    }
}

/// A disk's name within its instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskName {
    /// The OS disk.
    Sda,
    /// The swap disk.
    Sdb,
}

impl DiskName {
    /// `sda` or `sdb`.
    pub fn as_str(self) -> &'static str {
        match self {
            DiskName::Sda => "sda",
            DiskName::Sdb => "sdb",
        }
    }

    /// Parses a name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "sda" => Some(DiskName::Sda),
            "sdb" => Some(DiskName::Sdb),
            _ => None,
        }
    }

    /// The disk's image file in an export.
    pub fn image(self) -> String {
        format!("{}.raw", self.as_str())
    }
}

/// Whether a copy can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// Holds what the primary's file holds.
    Consistent,
    /// Never was complete.
    Inconsistent,
    /// Was complete once and missed writes since.
    Stale,
}

impl CopyState {
    /// The state as lists show it.
    pub fn as_str(self) -> &'static str {
        match self {
            CopyState::Consistent => "consistent",
            CopyState::Inconsistent => "inconsistent",
            CopyState::Stale => "stale",
        }
    }
}

/// A copy of a disk on the secondary node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mirror {
    /// DISK_ID: a number within the instance, never used twice.
    pub id: u32,
    /// The node that has it.
    pub node: NodeName,
    /// Names the file on that node.
    pub uuid: Uuid,
    /// Whether it can be relied on.
    pub state: CopyState,
}

/// A disk of an instance; its file is on the primary node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// `sda` or `sdb`.
    pub name: DiskName,
    /// Names the file on the primary node.
    pub uuid: Uuid,
    /// Size in MiB.
    pub size_mib: u64,
    /// Copies on the secondary.
    pub mirrors: Vec<Mirror>,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Stays when the name is a label only.
    pub uuid: Uuid,
    /// The label.
    pub name: InstanceName,
    /// The node it runs on.
    pub primary: NodeName,
    /// How its disks are kept.
    pub template: DiskTemplate,
    /// Its disks, by name.
    pub disks: Vec<Disk>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
    /// Its address, where one is defined.
    pub ip: Option<IpAddr>,
    /// Its network card's address.
    pub mac: String,
    /// The network that it is in; its address is one of it.
    #[serde(default)]
    pub network: Option<Uuid>,
    /// The site's words.
    #[serde(default)]
    pub tags: Tags,
    /// The OS definition.
    pub os: OsName,
    /// Wanted up.
    pub up: bool,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// The next mirror component's DISK_ID.
    pub next_mirror_id: u32,
    /// Grows each time that the instance changes its primary.
    #[serde(default)]
    pub generation: u64,
}

impl Instance {
    /// The nodes that have mirror components, each once, by name (one at most by today's rules).
    pub fn secondaries(&self) -> Vec<NodeName> {
        let mut nodes: Vec<NodeName> =
            self.disks.iter().flat_map(|disk| disk.mirrors.iter().map(|m| m.node.clone())).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// A disk by its name.
    pub fn disk(&self, name: DiskName) -> Option<&Disk> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// Size of a disk in MiB, 0 where there is none.
    pub fn disk_size_mib(&self, name: DiskName) -> u64 {
        self.disk(name).map_or(0, |disk| disk.size_mib)
    }
}

/// A saved copy of an instance's disks on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// Names the directory on the node.
    pub uuid: Uuid,
    /// The instance that was exported.
    pub instance: InstanceName,
    /// The node that has it.
    pub node: NodeName,
    /// The directory on that node.
    pub path: String,
    /// Disks saved, with their sizes in MiB.
    pub disks: Vec<(DiskName, u64)>,
    /// Memory in MiB of the exported instance.
    pub memory_mib: u64,
    /// Virtual processors of the exported instance.
    pub vcpus: u32,
    /// OS definition of the exported instance.
    pub os: OsName,
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// The guest was not running while it was copied.
    pub did_shutdown: bool,
}

/// What a client certificate allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientRole {
    /// Lists, shows, follows.
    Reader,
    /// Also submits and cancels.
    Operator,
    /// Also tokens, certificates, parameters, destroy.
    Admin,
}

impl ClientRole {
    /// `reader`, `operator` or `admin`.
    pub fn as_str(self) -> &'static str {
        match self {
            ClientRole::Reader => "reader",
            ClientRole::Operator => "operator",
            ClientRole::Admin => "admin",
        }
    }

    /// Parses a role's name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "reader" => Some(ClientRole::Reader),
            "operator" => Some(ClientRole::Operator),
            "admin" => Some(ClientRole::Admin),
            _ => None,
        }
    }
}

/// A remote client that may use the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its label.
    pub name: ClientName,
    /// Stands in the certificate.
    pub uuid: Uuid,
    /// What it may do.
    pub role: ClientRole,
    /// The accepted certificate.
    pub fingerprint: Fingerprint,
    /// Milliseconds since 1970.
    pub created_ms: u64,
}

impl Cluster {
    /// Instances whose primary is this node.
    pub fn primaries_on<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a Instance> {
        self.instances.values().filter(move |i| i.primary == *node)
    }

    /// Instances with a mirror component on this node.
    pub fn secondaries_on<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = &'a Instance> {
        self.instances
            .values()
            .filter(move |i| i.disks.iter().any(|disk| disk.mirrors.iter().any(|m| m.node == *node)))
    }
}
