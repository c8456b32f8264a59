//! A node's backends as the shell sees them: their calls, their part of the node's state, their service.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, Weak},
};

use muster_hooksrv::{
    CallError, CallRegistry,
    agent::{self, Agent, Config, Runs, words},
};
use muster_proto::v1::{self, node_service_server::NodeServiceServer};
use tonic::service::Routes;
use uuid::Uuid;

use crate::{
    console::ConsoleSeats,
    copies::Copies,
    faults::Faults,
    hypervisor::{HypervisorError, Hypervisors, MirrorReport, Places, RunState},
    os::{OsError, Oses},
    service::{NodeAnswer, NodeCalls, NodeGrpc, NodeProgress},
    serving::{Serving, ServingError, UnservedDisks},
    storage::{DiskStore, ExportStore, StorageError, StorageKind, disk_store, export_store},
    turns::Turns,
};

/// Bytes in a MiB.
const MIB: u64 = 1024 * 1024;

/// Why a node has no backends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The hypervisor can't be opened.
    #[error(transparent)]
    Hypervisor(#[from] HypervisorError),
    /// The storage can't be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// What serves copies can't be opened.
    #[error(transparent)]
    Serving(#[from] ServingError),
    /// The OS definitions can't be used.
    #[error("the OS definitions can't be used")]
    Os(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The journal can't be opened.
    #[error("the journal of node calls can't be used")]
    Calls(#[from] CallError),
}

/// The backends of a node.
pub struct Node {
    pub(crate) hypervisors: Hypervisors,
    pub(crate) oses: Oses,
    pub(crate) disks: Arc<dyn DiskStore>,
    pub(crate) exports: Arc<dyn ExportStore>,
    /// Copies that other nodes' guests write to.
    pub(crate) serving: Arc<Serving>,
    pub(crate) faults: Faults,
    pub(crate) calls: NodeCalls,
    /// One call of a job at a time.
    pub(crate) turns: Turns,
    /// Images that are read or written.
    pub(crate) copies: Arc<Copies>,
    /// Who sits at guests' consoles.
    pub(crate) consoles: Arc<ConsoleSeats>,
    /// Hears of guests that changed by themselves, as soon as it is there.
    agent: Arc<OnceLock<Weak<Agent>>>,
}

impl Node {
    /// Opens the backends in the configured directories.
    ///
    /// # Errors
    /// When a directory can't be made or the journal can't be read.
    pub async fn open(config: &Config) -> Result<Self, NodeError> {
        let folder = config.node_dir();
        let disks = disk_store(StorageKind::File, &config.storage_dir)?;
        let agent: Arc<OnceLock<Weak<Agent>>> = Arc::default();
        let changed = {
            let agent = Arc::clone(&agent);
            move || {
                if let Some(agent) = agent.get().and_then(Weak::upgrade) {
                    agent.changed();
                }
            }
        };
        let certificates = config.data_certificates_link();
        let serving = Serving::open(
            folder.join("serving"),
            config.run_dir.clone(),
            certificates.clone(),
            Arc::clone(&disks),
        )?;
        let serving = Arc::new(serving);
        let disks: Arc<dyn DiskStore> = Arc::new(UnservedDisks::new(disks, Arc::clone(&serving)));
        let places = Places { state: folder.clone(), run: config.run_dir.clone(), certificates };
        let oses = open_oses(config.os_dir.clone(), folder.join("os")).await?;
        Ok(Node {
            hypervisors: Hypervisors::open(&places, &disks, Arc::new(changed)).await?,
            oses,
            disks,
            serving,
            exports: export_store(StorageKind::File, &config.export_dir)?,
            faults: Faults::new(folder.join("faults.toml")),
            turns: Turns::default(),
            copies: Arc::default(),
            consoles: Arc::default(),
            agent,
            calls: CallRegistry::<NodeProgress, NodeAnswer>::open(&folder.join("calls/node")).await?,
        })
    }

    fn report_guests(&self, state: &mut v1::NodeState) -> Vec<HypervisorError> {
        let (guests, problems) = self.hypervisors.states();
        state.guests.extend(guests.into_iter().map(|guest| v1::GuestState {
            instance_uuid: guest.instance.to_string(),
            state: run_state(guest.state).into(),
            memory_mib: guest.memory_mib,
            vcpus: guest.vcpus,
            generation: guest.generation,
            mirrors: self.hypervisors.mirror_reports(guest.instance).into_iter().map(mirror_state).collect(),
        }));
        problems
    }

    fn report_disks(&self, state: &mut v1::NodeState) -> Result<(), StorageError> {
        let listing = self.disks.list()?;
        state.unknown_files.extend(listing.unknown);
        state.disks.extend(listing.own.into_iter().map(|disk| v1::DiskFile {
            uuid: disk.disk.to_string(),
            size_mib: disk.bytes.div_ceil(MIB),
            used_bytes: disk.used_bytes,
        }));
        Ok(())
    }

    fn report_exports(&self, state: &mut v1::NodeState) -> Result<(), StorageError> {
        let listing = self.exports.list()?;
        state.unknown_files.extend(listing.unknown);
        state.exports.extend(listing.own.into_iter().map(|export| export.to_string()));
        Ok(())
    }
}

/// Ends what an earlier daemon left, which may take some seconds.
async fn open_oses(folder: PathBuf, work: PathBuf) -> Result<Oses, NodeError> {
    let failed = |error: OsError| NodeError::Os(Box::new(error));
    let opened = tokio::task::spawn_blocking(move || Oses::open(folder, work)).await;
    opened.map_err(|error| NodeError::Os(Box::new(error)))?.map_err(failed)
}

fn run_state(state: RunState) -> v1::RunState {
    match state {
        RunState::Running => v1::RunState::Running,
        RunState::Paused => v1::RunState::Paused,
        RunState::ShutDown => v1::RunState::ShutDown,
        RunState::Crashed => v1::RunState::Crashed,
        RunState::Stopped => v1::RunState::Stopped,
    }
}

fn mirror_state(mirror: MirrorReport) -> v1::MirrorState {
    v1::MirrorState {
        copy_uuid: mirror.copy.to_string(),
        status: v1::MirrorStatus::from(mirror.status).into(),
        done_bytes: mirror.done_bytes,
        total_bytes: mirror.total_bytes,
    }
}

fn report_space(place: &Path, state: &mut v1::NodeState) -> Result<(), rustix::io::Errno> {
    let space = rustix::fs::statvfs(place)?;
    let mib = |blocks: u64| blocks.saturating_mul(space.f_frsize) / MIB;
    state.disk_total_mib = mib(space.f_blocks);
    // What is left for a user without privileges, as `df` counts.
    state.disk_free_mib = mib(space.f_bavail);
    Ok(())
}

impl agent::Backends for Node {
    fn hooks_only(&self) -> bool {
        false
    }

    fn report(&self, state: &mut v1::NodeState) {
        let mut problems = Vec::new();
        problems.extend(self.report_guests(state).iter().map(|error| words(error)));
        problems.extend(self.report_disks(state).err().map(|error| words(&error)));
        problems.extend(self.report_exports(state).err().map(|error| words(&error)));
        match self.serving.served() {
            Ok(served) => state.served_copies.extend(served.iter().map(Uuid::to_string)),
            Err(error) => problems.push(words(&error)),
        }
        let place = self.disks.place();
        let space = report_space(place, state).err();
        problems
            .extend(space.map(|error| format!("could not ask for space in {}: {error}", place.display())));
        state.problems.extend(problems);
    }

    fn end_past_guests(&self, present: &[(Uuid, u64)]) -> Result<(), String> {
        self.hypervisors.kill_past(present).map_err(|error| words(&error))
    }

    fn runs(&self) -> Vec<Arc<dyn Runs>> {
        let copies: Arc<dyn Runs> = self.copies.clone();
        vec![Arc::new(self.calls.clone()), copies]
    }

    fn add_services(self: Arc<Self>, agent: &Arc<Agent>, routes: Routes) -> Routes {
        // Called once; a second agent would hear nothing, and there is none.
        let _first = self.agent.set(Arc::downgrade(agent));
        routes.add_service(NodeServiceServer::new(NodeGrpc::new(Arc::clone(agent), self)))
    }
}
