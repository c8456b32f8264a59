//! What all services of a master daemon share.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use muster_core::{
    engine::Input,
    hooks::HookPolicy,
    hypervisor::HypervisorParams,
    model::{Cluster, Node},
    names::NodeName,
    ops::{Op, PendingNode},
};
use muster_proto::{
    transport::{Connections, TlsState},
    v1,
};
use tokio::{
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use crate::{
    ca::CaKeeper,
    config::Config,
    driver::{Command, EPOCH_FIRST},
    enrol::Enrolment,
    events::Events,
    hookset::HookSetKeeper,
    host_facts::HostFactsKeeper,
    job_log::JobLog,
    nodes::{NodeRegistry, Office},
    pins::Pins,
    shell::{CommandSlot, wall_ms},
    takeover::{Begun, LaidAside},
    view::View,
};

/// The port of node daemons, where the local node's is not known otherwise.
const NODE_PORT: u16 = 1811;

/// Whether this daemon executes jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is no cluster here; only an init can be asked for.
    NoCluster,
    /// This is the master.
    Active,
    /// Waits to become master.
    Standby,
    /// Gave the office away.
    Retired {
        /// The node whose daemon has it.
        successor: String,
    },
}

/// A lock here is held for copies only.
const POISON: &str = "no holder of this lock panics";

/// The shared part.
pub struct Master {
    pub(crate) config: Config,
    pub(crate) standing: watch::Sender<Standing>,
    pub(crate) commands: CommandSlot,
    pub(crate) epoch: AtomicU64,
    /// The uuid of the cluster that an init would make; drawn once.
    pub(crate) proposed: Uuid,
    pub(crate) view: Arc<View>,
    pub(crate) nodes: NodeRegistry,
    pub(crate) pins: Arc<Pins>,
    pub(crate) connections: Connections,
    pub(crate) authority: Arc<CaKeeper>,
    pub(crate) enrolment: Arc<Enrolment>,
    /// What this daemon shows on TCP; none until there is a cluster.
    pub(crate) tls: Mutex<Option<TlsState>>,
    /// Ends the TCP server.
    pub(crate) tcp: Mutex<Option<CancellationToken>>,
    /// The store, as long as this daemon executes no jobs.
    pub(crate) laid_aside: Mutex<Option<LaidAside>>,
    /// The takeover that begins here, or the last that did.
    pub(crate) begun: Mutex<Option<Begun>>,
    /// Held while the office comes back here.
    pub(crate) resuming: tokio::sync::Mutex<()>,
    /// What shuts the doors of a cluster that was destroyed.
    pub(crate) farewell: Mutex<Option<JoinHandle<()>>>,
    /// Held by the backup that is being sent; there is one at a time.
    pub(crate) backup: Arc<tokio::sync::Mutex<()>>,
    /// A permit for each console that may be open.
    pub(crate) consoles: Arc<Semaphore>,
    /// The cluster's own hook set.
    pub(crate) hook_sets: HookSetKeeper,
    /// What scripts are told that is no operation.
    pub(crate) events: Arc<Events>,
    /// Where jobs that begin and end are told.
    pub(crate) job_log: JobLog,
    /// What nodes say of their hosts.
    pub(crate) host_facts: Arc<HostFactsKeeper>,
    /// A permit for each command and each copy that may be under way.
    pub(crate) node_commands: Arc<Semaphore>,
    /// Ends the process; the reason is set when it is an error.
    pub(crate) stop: CancellationToken,
    pub(crate) fatal: Arc<Mutex<Option<String>>>,
}

impl Master {
    /// Jobs and configuration as they are on disk.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The nodes.
    pub fn nodes(&self) -> &NodeRegistry {
        &self.nodes
    }

    /// This master's epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    pub(crate) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::SeqCst);
    }

    pub(crate) fn close_tcp(&self) {
        if let Some(tcp) = self.tcp.lock().expect(POISON).take() {
            tcp.cancel();
        }
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        self.standing.send_replace(standing);
    }

    /// The configuration.
    ///
    /// # Errors
    /// When there is none here.
    pub(crate) fn cluster(&self) -> Result<Arc<Cluster>, Status> {
        self.in_office()?;
        self.view.cluster().ok_or_else(|| {
            Status::failed_precondition("there is no cluster here: run `gnt-cluster init NAME`")
        })
    }

    /// # Errors
    /// When this daemon is not, or no longer, the master; the message names the one that is, where it is known.
    pub(crate) fn in_office(&self) -> Result<(), Status> {
        match self.standing() {
            Standing::NoCluster | Standing::Active => Ok(()),
            Standing::Standby => Err(Status::failed_precondition(
                "not the master: this daemon waits to become master (`gnt-cluster master-failover`)",
            )),
            Standing::Retired { successor } => {
                Err(Status::failed_precondition(format!("not the master: the master is {successor}")))
            }
        }
    }

    /// Hands a command to the driver.
    ///
    /// # Errors
    /// When this daemon is not the master, or is stopping.
    pub(crate) async fn send(&self, command: Command) -> Result<(), Status> {
        self.in_office()?;
        self.send_any(command).await
    }

    async fn send_any(&self, command: Command) -> Result<(), Status> {
        let stopping = || Status::unavailable("the master is stopping");
        let commands = self.commands.get().ok_or_else(stopping)?;
        commands.send(command).await.map_err(|_| stopping())
    }

    /// Tells the driver of an answer; one that comes after the driver's end is for nobody.
    pub(crate) async fn answer(&self, input: Input) {
        if self.send_any(Command::Input(input)).await.is_err() {
            tracing::debug!("an answer came after the driver's end");
        }
    }

    /// Ends the process with an error: the memory is ahead of the disk, or another master has the office.
    pub(crate) fn fatal(&self, reason: &str) {
        tracing::error!(reason, "this daemon can't go on");
        self.fatal.lock().expect(POISON).get_or_insert_with(|| reason.to_owned());
        self.stop.cancel();
    }

    pub(crate) fn pending_node(&self, name: &NodeName) -> Option<PendingNode> {
        self.enrolment.pending(name)
    }

    pub(crate) fn client_name(&self, uuid: Uuid) -> Option<String> {
        let cluster = self.view.cluster()?;
        cluster.clients.values().find(|client| client.uuid == uuid).map(|client| client.name.to_string())
    }

    /// The cluster that an init would make, with this host as its first node.
    pub(crate) fn new_cluster(&self, op: &Op) -> Result<Option<Box<Cluster>>, Status> {
        let Op::ClusterInit(init) = op else { return Ok(None) };
        let ip = self.config.advertise.unwrap_or(self.config.listen.ip());
        if ip.is_unspecified() {
            return Err(Status::failed_precondition(
                "this host's address is not known: set `advertise` in masterd.toml to the address by which other hosts reach it",
            ));
        }
        if self.standing() == Standing::NoCluster {
            // The local node is asked in the name of the cluster that is to be.
            let office = Office { cluster: Some(self.proposed), epoch: EPOCH_FIRST, serial: 0 };
            self.nodes.set_office(office);
        }
        let name = self.config.name.clone();
        let node = Node {
            uuid: Uuid::new_v4(),
            name: name.clone(),
            primary_ip: ip,
            secondary_ip: ip,
            port: NODE_PORT,
            offline: false,
            drained: false,
            hooks_only: false,
            master_candidate: true,
            // The first one of the cluster that is to be.
            group: Uuid::nil(),
            tags: Default::default(),
            fingerprints: Vec::new(),
        };
        Ok(Some(Box::new(Cluster {
            uuid: self.proposed,
            name: init.name.clone(),
            serial: 0,
            master: name.clone(),
            hooks: HookPolicy::default(),
            hypervisor: HypervisorParams { kind: init.hypervisor, ..HypervisorParams::default() },
            fence_command: None,
            allowed: Default::default(),
            tags: Default::default(),
            groups: Default::default(),
            networks: Default::default(),
            nodes: [(name, node)].into(),
            instances: Default::default(),
            exports: Default::default(),
            clients: Default::default(),
            cleanups: Default::default(),
        })))
    }

    /// Where other hosts reach this master.
    pub(crate) fn advertised(&self) -> SocketAddr {
        let ip = self.config.advertise.unwrap_or(self.config.listen.ip());
        SocketAddr::new(ip, self.config.listen.port())
    }

    /// Days that the CA is still valid.
    pub(crate) fn ca_days(&self) -> i64 {
        self.authority.days_left(wall_ms()).unwrap_or(0)
    }

    pub(crate) fn fill_cluster_info(&self, info: &mut v1::ClusterInfo) {
        info.epoch = self.epoch();
        info.version = crate::VERSION.to_owned();
        info.ca_digest = self.authority.digest().map(|digest| digest.to_string()).unwrap_or_default();
        info.ca_days = self.ca_days();
        info.data_dir = self.config.state_dir.join("data").display().to_string();
    }
}
