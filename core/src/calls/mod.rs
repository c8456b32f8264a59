//! What the engine asks of nodes and of the master itself: plain values, carried out elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    hypervisor::HypervisorParams,
    model::{DiskName, Fingerprint},
    names::{InstanceName, NodeName, OsName},
};

mod mirror;
mod node;

pub use mirror::{Machine, MigrationCall, MirrorCall, MirrorLink, MirrorStatus, Sync};
pub use node::NodeCall;

/// The jobs that have something to do, as a master's greeting tells them: a node ends the runs of all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AliveJobs {
    /// All of them.
    pub all: BTreeSet<u64>,
    /// Those among them that have done what they will do, and whose end is being told: nothing else of them may run. The
    /// order to end it may have been lost with the connection, or with the master that gave it.
    pub ending: BTreeSet<u64>,
}

impl AliveJobs {
    /// Whether a run goes on; `tells_of_end` says whether it tells scripts of the job's end.
    pub fn spares(&self, job: u64, tells_of_end: bool) -> bool {
        self.all.contains(&job) && (tells_of_end || !self.ending.contains(&job))
    }
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
    /// Grows each time that the instance changes its primary: of two guests of one instance the lower one is of the past.
    #[serde(default)]
    pub generation: u64,
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
        /// Its addresses, for its data certificate.
        #[serde(default)]
        addresses: Vec<std::net::IpAddr>,
    },
    /// The local node leaves (undo of the above, and destroy).
    LocalNodeLeave,
    /// Signs a pending node's request; its waiting daemon collects the certificate.
    PendingSign {
        /// The pending node.
        node: NodeName,
        /// The uuid that it gets.
        uuid: Uuid,
        /// The addresses that it gets, for its data certificate.
        #[serde(default)]
        addresses: Vec<std::net::IpAddr>,
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
    /// Runs the site's command that makes sure that a node is off, as `COMMAND NODE ADDRESS`.
    Fence {
        /// The node.
        node: NodeName,
        /// Its address.
        address: std::net::IpAddr,
        /// The program, an absolute path.
        command: String,
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
    #[serde(default)]
    pub result: BTreeMap<String, String>,
    /// Where copies, or a guest, are awaited: TCP ports by the copy's or the instance's uuid.
    #[serde(default)]
    pub ports: BTreeMap<Uuid, u16>,
    /// What mirrors do, by the copy's uuid.
    #[serde(default)]
    pub mirrors: BTreeMap<Uuid, MirrorStatus>,
    /// Copies that are the same as their disks, which is more than to miss no write.
    #[serde(default)]
    pub same: BTreeSet<Uuid>,
    /// What guests were started with, by the instance's uuid.
    #[serde(default)]
    pub machines: BTreeMap<Uuid, Machine>,
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
    /// Fills in what only an earlier step's output knows.
    pub fn fill(&mut self, outputs: &[Output]) {
        match self {
            Call::Node(_, call) => call.fill(outputs),
            Call::Master(_) => {}
        }
    }

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
            Call::Node(_, call) => call.object(),
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
                // The node is off, or will be: nothing is asked of it.
                MasterCall::Fence { .. }
                | MasterCall::CaCreate { .. }
                | MasterCall::CaRemove
                | MasterCall::LocalNodeLeave
                | MasterCall::ClientSign { .. } => None,
            },
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
            MasterCall::Fence { node, .. } => format!("fence {node}"),
            MasterCall::ClientSign { .. } => "sign client certificate".to_owned(),
            MasterCall::NodeLeave { node, .. } => format!("make {node} forget the cluster"),
        }
    }
}
