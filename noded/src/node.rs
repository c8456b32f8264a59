//! A node's backends as the shell sees them: their calls, their part of the node's state, their service.

use std::{path::Path, sync::Arc};

use muster_hooksrv::{
    CallError, CallRegistry,
    agent::{self, Agent, Config, Runs, words},
};
use muster_proto::v1::{self, node_service_server::NodeServiceServer};
use tonic::service::Routes;

use crate::{
    copies::Copies,
    faults::Faults,
    hypervisor::{Hypervisor, HypervisorError, HypervisorKind, hypervisor},
    service::{NodeAnswer, NodeCalls, NodeGrpc, NodeProgress},
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
    /// The journal can't be opened.
    #[error("the journal of node calls can't be used")]
    Calls(#[from] CallError),
}

/// The backends of a node.
pub struct Node {
    pub(crate) hypervisor: Arc<dyn Hypervisor>,
    pub(crate) disks: Arc<dyn DiskStore>,
    pub(crate) exports: Arc<dyn ExportStore>,
    pub(crate) faults: Faults,
    pub(crate) calls: NodeCalls,
    /// One call of a job at a time.
    pub(crate) turns: Turns,
    /// Images that are read or written.
    pub(crate) copies: Arc<Copies>,
}

impl Node {
    /// Opens the backends in the configured directories.
    ///
    /// # Errors
    /// When a directory can't be made or the journal can't be read.
    pub async fn open(config: &Config) -> Result<Self, NodeError> {
        let folder = config.node_dir();
        let disks = disk_store(StorageKind::File, &config.storage_dir)?;
        Ok(Node {
            hypervisor: hypervisor(HypervisorKind::Fake, &folder, Arc::clone(&disks))?,
            disks,
            exports: export_store(StorageKind::File, &config.export_dir)?,
            faults: Faults::new(folder.join("faults.toml")),
            turns: Turns::default(),
            copies: Arc::default(),
            calls: CallRegistry::<NodeProgress, NodeAnswer>::open(&folder.join("calls/node")).await?,
        })
    }

    fn report_guests(&self, state: &mut v1::NodeState) -> Result<(), HypervisorError> {
        for guest in self.hypervisor.states()? {
            let running = if guest.running { v1::RunState::Running } else { v1::RunState::Stopped };
            state.guests.push(v1::GuestState {
                instance_uuid: guest.instance.to_string(),
                state: running.into(),
                memory_mib: guest.memory_mib,
                vcpus: guest.vcpus,
            });
        }
        Ok(())
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
        problems.extend(self.report_guests(state).err().map(|error| words(&error)));
        problems.extend(self.report_disks(state).err().map(|error| words(&error)));
        problems.extend(self.report_exports(state).err().map(|error| words(&error)));
        let place = self.disks.place();
        let space = report_space(place, state).err();
        problems
            .extend(space.map(|error| format!("could not ask for space in {}: {error}", place.display())));
        state.problems.extend(problems);
    }

    fn runs(&self) -> Vec<Arc<dyn Runs>> {
        let copies: Arc<dyn Runs> = self.copies.clone();
        vec![Arc::new(self.calls.clone()), copies]
    }

    fn add_services(self: Arc<Self>, agent: &Arc<Agent>, routes: Routes) -> Routes {
        routes.add_service(NodeServiceServer::new(NodeGrpc::new(Arc::clone(agent), self)))
    }
}
