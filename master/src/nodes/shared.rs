//! What all nodes' clients share: who this master is, its certificate, the newest facts, whom to tell of trouble.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use muster_core::{calls::AliveJobs, names::NodeName};
use muster_proto::{transport::TlsState, v1};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::{BeforeHooks, Limits};

/// The jobs that have something to do: a node ends the runs of all others when it is greeted.
pub type Alive = Arc<dyn Fn() -> AliveJobs + Send + Sync>;
/// All instances with their generations, as the configuration has them: a guest of an earlier generation is of the past,
/// and a node kills it when it is greeted, also where the instance has nothing on that node any more.
pub type Guests = Arc<dyn Fn() -> Vec<(Uuid, u64)> + Send + Sync>;
/// Told each state that a node pushes.
pub type HostTold = Arc<dyn Fn(&NodeName, &v1::NodeState) + Send + Sync>;
/// Told why when a node refuses this master's epoch: another master is in office. May be called more than once.
pub type OfficeLost = Arc<dyn Fn(String) + Send + Sync>;

/// What a registry is made with.
#[derive(Clone)]
pub struct Settings {
    /// The node on this master's own host.
    pub local: NodeName,
    /// Its daemon's socket.
    pub local_socket: PathBuf,
    /// The program's version.
    pub version: String,
    /// Limits of waiting.
    pub limits: Limits,
    /// Asked at each greeting.
    pub alive_jobs: Alive,
    /// Asked at each greeting.
    pub guests: Guests,
    /// Told when the office is lost.
    pub office_lost: OfficeLost,
    /// Told of nodes' states.
    pub host_told: HostTold,
}

/// What every call tells the node of this master.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Office {
    /// The cluster; unset before there is one.
    pub cluster: Option<Uuid>,
    /// This master's epoch.
    pub epoch: u64,
    /// The configuration's serial.
    pub serial: u64,
}

pub(super) struct Shared {
    pub(super) settings: Settings,
    pub(super) office: ArcSwap<Office>,
    pub(super) tls: ArcSwapOption<TlsState>,
    pub(super) facts: watch::Sender<Option<Arc<v1::Facts>>>,
    /// Told when a node says something new of mirrors.
    pub(super) mirrors_changed: Notify,
    /// Called before hooks run on a node; none in a registry that has no sets to bring.
    pub(super) before_hooks: OnceLock<BeforeHooks>,
    /// The highest epoch that a node named when it refused this master's.
    pub(super) epoch_above: AtomicU64,
}

impl Shared {
    pub(super) fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Shared {
            settings,
            office: ArcSwap::default(),
            tls: ArcSwapOption::empty(),
            facts: watch::Sender::new(None),
            mirrors_changed: Notify::new(),
            before_hooks: OnceLock::new(),
            epoch_above: AtomicU64::new(0),
        })
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    pub(super) fn context(&self) -> v1::CallContext {
        let office = self.office.load();
        v1::CallContext {
            cluster_uuid: office.cluster.map(|uuid| uuid.to_string()).unwrap_or_default(),
            epoch: office.epoch,
            serial: office.serial,
        }
    }
}
