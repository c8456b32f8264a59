//! Calls about copies that follow their disks, and about guests that move while they run.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Guest;
use crate::{
    hypervisor::{Accel, NicMode},
    names::{InstanceName, NodeName},
};

/// What a mirror does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MirrorStatus {
    /// The copy does not hold everything yet.
    Syncing,
    /// Each write is on the copy before the guest hears that it is done.
    Ready,
    /// The copy misses writes.
    Broken,
}

/// How a copy is brought in sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sync {
    /// Both files are known to be the same and the guest does not compute: nothing is copied.
    Same,
    /// [`Sync::Same`] once the output of [`MirrorCall::Clean`] has said so; until then a node refuses it.
    Unproven,
    /// The whole disk is copied.
    Full,
}

/// A disk's file and the copy that is to follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MirrorLink {
    /// Names the file on the primary.
    pub disk: Uuid,
    /// Names the file on the peer.
    pub copy: Uuid,
    /// Where the peer serves it: filled in from the output of [`MirrorCall::Serve`].
    pub port: Option<u16>,
}

/// A call about mirrors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mirror")]
pub enum MirrorCall {
    /// Serves copies to one peer; the output has their ports.
    Serve {
        /// Each file with its size in MiB.
        copies: Vec<(Uuid, u64)>,
        /// The only node that may write them.
        peer: NodeName,
        /// The serving node's address.
        listen: IpAddr,
    },
    /// Ends serving.
    Release {
        /// Names the files.
        copies: Vec<Uuid>,
    },
    /// Asks whether the copies are the same as their disks: the guest ended in good order with its mirrors ready on this
    /// node, or runs here and they are. The output has those as the same; the call fails unless all are.
    Clean {
        /// The instance.
        instance: Uuid,
        /// Names the files on the peer.
        copies: Vec<Uuid>,
    },
    /// Notes that the copies are the same as their disks: somebody made them so while the guest was down.
    Trust {
        /// The instance.
        instance: Uuid,
        /// Names the files on the peer.
        copies: Vec<Uuid>,
        /// Names the disks' files here, in the order of the copies; none in calls of an earlier version.
        #[serde(default)]
        disks: Vec<Uuid>,
    },
    /// Makes copies follow the disks of a guest that is up.
    Start {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// The node that serves the copies.
        peer: NodeName,
        /// Its address.
        address: IpAddr,
        /// What follows what.
        mirrors: Vec<MirrorLink>,
        /// What is copied first.
        sync: Sync,
        /// The call ends when all copies hold everything, rather than when copying has begun.
        wait: bool,
    },
    /// Ends mirrors: the copies do not follow any more.
    Stop {
        /// The instance.
        instance: Uuid,
        /// Names the files on the peer.
        copies: Vec<Uuid>,
    },
    /// Asks what mirrors do, or did when their guest ended: a copy whose mirror was ready has every write that the guest
    /// was told is safe. The output has it. A mirror that is not there is broken; of a guest that is not known here the
    /// output has only the copies of which something is known.
    Check {
        /// The instance.
        instance: Uuid,
        /// Names the files on the peer.
        copies: Vec<Uuid>,
    },
    /// Asks the node that serves copies whether it has served them to their peer until now: what has not been served, the
    /// guest went on without. The output has those as ready, and all others as broken.
    Served {
        /// Names the files.
        copies: Vec<Uuid>,
        /// The only node that may write them.
        peer: NodeName,
    },
}

impl MirrorCall {
    pub(super) fn text(&self) -> String {
        match self {
            MirrorCall::Serve { peer, .. } => format!("serve copies to {peer}"),
            MirrorCall::Release { .. } => "end serving copies".to_owned(),
            MirrorCall::Clean { .. } => "ask whether the copies are the same".to_owned(),
            MirrorCall::Trust { .. } => "note that the copies are the same".to_owned(),
            MirrorCall::Start { name, peer, sync: Sync::Same | Sync::Unproven, .. } => {
                format!("mirror {name} to {peer}")
            }
            MirrorCall::Start { name, peer, sync: Sync::Full, .. } => {
                format!("copy the disks of {name} to {peer} and mirror them")
            }
            MirrorCall::Stop { .. } => "end mirrors".to_owned(),
            MirrorCall::Check { .. } => "ask what the mirrors do".to_owned(),
            MirrorCall::Served { peer, .. } => format!("ask whether copies are still served to {peer}"),
        }
    }

    pub(super) fn object(&self) -> Option<Uuid> {
        match self {
            MirrorCall::Serve { copies, .. } => copies.first().map(|(copy, _)| *copy),
            MirrorCall::Release { copies } | MirrorCall::Served { copies, .. } => copies.first().copied(),
            MirrorCall::Clean { instance, .. }
            | MirrorCall::Trust { instance, .. }
            | MirrorCall::Start { instance, .. }
            | MirrorCall::Stop { instance, .. }
            | MirrorCall::Check { instance, .. } => Some(*instance),
        }
    }
}

/// What a guest's process was started with. The configuration may have changed since, for its next start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Virtual processors.
    pub vcpus: u32,
    /// Who computes; unset where the node does not know.
    pub accel: Option<Accel>,
    /// How its network card is connected; unset where the node does not know.
    pub nic: Option<NicMode>,
}

/// A call about a guest that moves while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "migration")]
pub enum MigrationCall {
    /// Asks what a guest was started with: the one that takes its state must be the same. The output has it.
    Machine {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
    },
    /// Makes a guest that waits for the state of another; the output has its port. Once it has the state it is paused.
    Receive {
        /// The guest as it will be here: what its process is started with is filled in from the output of
        /// [`MigrationCall::Machine`].
        guest: Guest,
        /// The only node that may send it.
        peer: NodeName,
        /// The receiving node's address.
        listen: IpAddr,
    },
    /// Sends a guest's state, all but the last; the guest is then paused and its mirrors have ended.
    Send {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
        /// The node that receives it.
        peer: NodeName,
        /// Its address.
        address: IpAddr,
        /// Where it is awaited: filled in from the output of [`MigrationCall::Receive`].
        port: Option<u16>,
    },
    /// Sends the last of the state; the guest is not here any more.
    Finish {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
    },
    /// The guest goes on here.
    Cancel {
        /// The instance.
        instance: Uuid,
        /// Its label.
        name: InstanceName,
    },
}

impl MigrationCall {
    pub(super) fn text(&self) -> String {
        match self {
            MigrationCall::Machine { name, .. } => format!("ask what {name} was started with"),
            MigrationCall::Receive { guest, peer, .. } => format!("await {} from {peer}", guest.name),
            MigrationCall::Send { name, peer, .. } => format!("send {name} to {peer}"),
            MigrationCall::Finish { name, .. } => format!("let {name} go"),
            MigrationCall::Cancel { name, .. } => format!("keep {name}"),
        }
    }

    /// The instance that moves.
    pub fn instance(&self) -> Uuid {
        match self {
            MigrationCall::Receive { guest, .. } => guest.uuid,
            MigrationCall::Machine { instance, .. }
            | MigrationCall::Send { instance, .. }
            | MigrationCall::Finish { instance, .. }
            | MigrationCall::Cancel { instance, .. } => *instance,
        }
    }
}
