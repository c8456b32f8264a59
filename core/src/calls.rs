//! What the engine asks of nodes and of the master itself: plain values, carried out elsewhere.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    hypervisor::HypervisorParams,
    model::{DiskName, Fingerprint},
    names::{InstanceName, NodeName, OsName},
};

/// A call that a node carries out; each may come twice and then gives the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "call")]
pub enum NodeCall {
    /// Makes a sparse raw file.
    DiskCreate {
        /// Names the file.
        disk: Uuid,
        /// Size in MiB.
        size_mib: u64,
    },
    /// Removes a disk's file.
    DiskRemove {
        /// Names the file.
        disk: Uuid,
    },
    /// Starts a guest.
    GuestStart {
        /// All that the hypervisor must know.
        guest: Guest,
        /// `--force`.
        force: bool,
    },
    /// Stops a guest.
    GuestStop {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// Limit of a clean shutdown in milliseconds, then it is forced.
        timeout_ms: u64,
    },
    /// Makes a guest go through its firmware again; one that is down is not started.
    GuestReboot {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// Limit of a clean shutdown in milliseconds, then the guest is reset; 0 resets it at once.
        timeout_ms: u64,
    },
    /// Installs an OS definition on a guest's disks; the guest is down.
    OsCreate {
        /// The guest, with its disks and OS.
        guest: Guest,
        /// The disks hold an older system.
        reinstall: bool,
    },
    /// Tells an OS definition that its instance has another name; the guest is down.
    OsRename {
        /// The guest, with its new name.
        guest: Guest,
        /// The old name.
        old_name: InstanceName,
    },
    /// Gives a disk's file another size; nothing uses it, and what is cut off holds no data.
    DiskResize {
        /// Names the file.
        disk: Uuid,
        /// The size afterwards, in MiB.
        size_mib: u64,
    },
    /// Makes an export's staging directory.
    ExportStage {
        /// Names the directory.
        export: Uuid,
    },
    /// Writes the manifest and renames the staged export into place.
    ExportPublish {
        /// Names the directory.
        export: Uuid,
        /// JSON text.
        manifest: String,
    },
    /// Removes an export, staged or published.
    ExportRemove {
        /// Names the directory.
        export: Uuid,
    },
}

/// A guest as the hypervisor sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The instance's uuid.
    pub uuid: Uuid,
    /// Its label.
    pub name: InstanceName,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
    /// Name, file and size in MiB of each disk.
    pub disks: Vec<(DiskName, Uuid, u64)>,
    /// Its address.
    pub ip: Option<std::net::IpAddr>,
    /// Its network card's address.
    pub mac: String,
    /// The OS definition.
    pub os: OsName,
    /// How it is run.
    #[serde(default)]
    pub hypervisor: HypervisorParams,
}

/// Where an image is read or written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "image")]
pub enum Image {
    /// A disk's file.
    Disk {
        /// Names the file.
        disk: Uuid,
    },
    /// A file in an export, staged ones for writing.
    Export {
        /// Names the directory.
        export: Uuid,
        /// File name.
        name: String,
    },
}

/// A call that the master carries out itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "call")]
pub enum MasterCall {
    /// Copies an image from a node to a node.
    CopyImage {
        /// The node that has it.
        from_node: NodeName,
        /// What is read.
        from: Image,
        /// The node that gets it.
        to_node: NodeName,
        /// What is written.
        to: Image,
    },
    /// Makes the CA of a new cluster.
    CaCreate {
        /// The cluster's uuid.
        cluster: Uuid,
    },
    /// Removes the CA of a cluster that did not come to be, or is destroyed.
    CaRemove,
    /// Signs the local node's request and installs the certificate, over its local socket.
    LocalNodeSign {
        /// The node.
        node: NodeName,
        /// Its uuid.
        uuid: Uuid,
    },
    /// The local node leaves (undo of the above, and destroy).
    LocalNodeLeave,
    /// Signs a pending node's request; its waiting daemon collects the certificate.
    PendingSign {
        /// The pending node.
        node: NodeName,
        /// The uuid that it gets.
        uuid: Uuid,
    },
    /// Takes a signature back: the node is pending again, without a certificate.
    PendingWithdraw {
        /// The pending node.
        node: NodeName,
    },
    /// Waits (30 s) until the node serves with its new certificate.
    PendingDeliver {
        /// The pending node.
        node: NodeName,
        /// Where its daemon will serve.
        address: std::net::SocketAddr,
    },
    /// Makes a node's new key, signs it, installs it.
    CertificateRenew {
        /// The node.
        node: NodeName,
    },
    /// Signs a client's request.
    ClientSign {
        /// Stands in the certificate.
        uuid: Uuid,
        /// Role's name.
        role: crate::model::ClientRole,
        /// PKCS#10, DER, hexadecimal.
        csr_hex: String,
    },
    /// Asks a removed node to forget the cluster.
    NodeLeave {
        /// The node.
        node: NodeName,
        /// Its last address.
        address: std::net::SocketAddr,
        /// Its uuid.
        uuid: Uuid,
        /// Its certificates.
        fingerprints: Vec<Fingerprint>,
    },
}

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// To a node's daemon.
    Node(NodeName, NodeCall),
    /// To the master itself.
    Master(MasterCall),
}

/// What a call gives back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The export's directory.
    pub path: Option<String>,
    /// The node that was signed for.
    pub node: Option<NodeName>,
    /// The new certificate's fingerprint.
    pub fingerprint: Option<Fingerprint>,
    /// Certificates for the job's result, PEM by name.
    pub result: std::collections::BTreeMap<String, String>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallAnswer {
    /// Carried out.
    Done(Output),
    /// Not carried out, or half; the undo removes what is left.
    Failed(String),
    /// No answer.
    NotReached(String),
}

/// Something to destroy after a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleanup {
    /// What is done.
    pub call: Call,
    /// Tried once and then forgotten, rather than retried until it succeeds.
    pub once: bool,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last try failed.
    pub last_error: Option<String>,
}

impl Call {
    /// The call in a few words, for logs and progress.
    pub fn text(&self) -> String {
        match self {
            Call::Node(_, call) => call.text(),
            Call::Master(call) => call.text(),
        }
    }

    /// The disk file, export or guest that a node's call is about.
    pub fn file(&self) -> Option<Uuid> {
        match self {
            Call::Node(_, call) => match call {
                NodeCall::DiskCreate { disk, .. } | NodeCall::DiskRemove { disk } => Some(*disk),
                NodeCall::GuestStart { guest, .. } => Some(guest.uuid),
                NodeCall::GuestStop { instance, .. } | NodeCall::GuestReboot { instance, .. } => {
                    Some(*instance)
                }
                NodeCall::OsCreate { guest, .. } | NodeCall::OsRename { guest, .. } => Some(guest.uuid),
                NodeCall::DiskResize { disk, .. } => Some(*disk),
                NodeCall::ExportStage { export }
                | NodeCall::ExportPublish { export, .. }
                | NodeCall::ExportRemove { export } => Some(*export),
            },
            Call::Master(_) => None,
        }
    }

    /// Whether this call does what that one should have done.
    pub fn makes_good(&self, failed: &Call) -> bool {
        match (self, failed) {
            (
                Call::Node(here, NodeCall::GuestStop { instance: stopped, .. }),
                Call::Node(there, NodeCall::GuestStop { instance, .. }),
            ) => here == there && stopped == instance,
            (
                Call::Node(here, NodeCall::GuestStart { guest: started, .. }),
                Call::Node(there, NodeCall::GuestStart { guest, .. }),
            ) => here == there && started.uuid == guest.uuid,
            (Call::Node(..) | Call::Master(_), Call::Node(..) | Call::Master(_)) => self == failed,
        }
    }

    /// Whether this call must not be made after that one failed: a guest is not started while it may still run elsewhere.
    pub fn unsafe_after(&self, failed: &Call) -> bool {
        match (self, failed) {
            (
                Call::Node(here, NodeCall::GuestStart { guest, .. }),
                Call::Node(there, NodeCall::GuestStop { instance, .. }),
            ) => guest.uuid == *instance && here != there,
            (Call::Node(..) | Call::Master(_), Call::Node(..) | Call::Master(_)) => false,
        }
    }

    /// The node that the call is about, where there is one.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Call::Node(node, _) => Some(node),
            Call::Master(call) => match call {
                MasterCall::CopyImage { from_node: node, .. }
                | MasterCall::LocalNodeSign { node, .. }
                | MasterCall::PendingSign { node, .. }
                | MasterCall::PendingWithdraw { node }
                | MasterCall::PendingDeliver { node, .. }
                | MasterCall::CertificateRenew { node }
                | MasterCall::NodeLeave { node, .. } => Some(node),
                MasterCall::CaCreate { .. }
                | MasterCall::CaRemove
                | MasterCall::LocalNodeLeave
                | MasterCall::ClientSign { .. } => None,
            },
        }
    }
}

impl NodeCall {
    fn text(&self) -> String {
        match self {
            NodeCall::DiskCreate { disk, size_mib } => format!("create disk {disk} of {size_mib} MiB"),
            NodeCall::DiskRemove { disk } => format!("remove disk {disk}"),
            NodeCall::GuestStart { guest, .. } => format!("start {}", guest.name),
            NodeCall::GuestStop { name, .. } => format!("stop {name}"),
            NodeCall::GuestReboot { name, .. } => format!("reboot {name}"),
            NodeCall::OsCreate { guest, reinstall: false } => {
                format!("install {} on {}", guest.os, guest.name)
            }
            NodeCall::OsCreate { guest, reinstall: true } => {
                format!("install {} again on {}", guest.os, guest.name)
            }
            NodeCall::OsRename { guest, old_name } => {
                format!("rename {old_name} to {} on its disks", guest.name)
            }
            NodeCall::DiskResize { disk, size_mib } => format!("resize disk {disk} to {size_mib} MiB"),
            NodeCall::ExportStage { export } => format!("prepare export {export}"),
            NodeCall::ExportPublish { export, .. } => format!("publish export {export}"),
            NodeCall::ExportRemove { export } => format!("remove export {export}"),
        }
    }
}

impl MasterCall {
    fn text(&self) -> String {
        match self {
            MasterCall::CopyImage { from_node, to_node, .. } => {
                format!("copy image from {from_node} to {to_node}")
            }
            MasterCall::CaCreate { .. } => "make the certificate authority".to_owned(),
            MasterCall::CaRemove => "remove the certificate authority".to_owned(),
            MasterCall::LocalNodeSign { node, .. } => format!("sign local node {node}"),
            MasterCall::LocalNodeLeave => "make the local node forget the cluster".to_owned(),
            MasterCall::PendingSign { node, .. } => format!("sign certificate of {node}"),
            MasterCall::PendingWithdraw { node } => format!("withdraw certificate of {node}"),
            MasterCall::PendingDeliver { node, .. } => {
                format!("wait for {node} to serve with its certificate")
            }
            MasterCall::CertificateRenew { node } => format!("renew certificate of {node}"),
            MasterCall::ClientSign { .. } => "sign client certificate".to_owned(),
            MasterCall::NodeLeave { node, .. } => format!("make {node} forget the cluster"),
        }
    }
}
