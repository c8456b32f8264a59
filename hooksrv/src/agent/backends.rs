//! What a daemon adds to the shared shell, and the calls that the shell can end.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::BoxFuture;
use muster_proto::v1;
use serde::{Serialize, de::DeserializeOwned};
use tonic::service::Routes;

use super::Agent;
use crate::{CallError, CallRegistry};

/// What a node daemon has beside hooks: its part of the node's state, its calls, its services.
pub trait Backends: Send + Sync + 'static {
    /// Whether the node runs hooks only.
    fn hooks_only(&self) -> bool;

    /// Fills in guests, disks and exports; what can't be told goes into `problems`. Blocks; called at each change and
    /// at least every 10 s.
    fn report(&self, state: &mut v1::NodeState);

    /// The calls of the daemon's own services.
    fn runs(&self) -> Vec<Arc<dyn Runs>>;

    /// Adds the daemon's own services. Called once.
    fn add_services(self: Arc<Self>, agent: &Arc<Agent>, routes: Routes) -> Routes;
}

/// A node that runs hooks only.
#[derive(Debug)]
pub struct HooksOnly;

impl Backends for HooksOnly {
    fn hooks_only(&self) -> bool {
        true
    }

    fn report(&self, _state: &mut v1::NodeState) {}

    fn runs(&self) -> Vec<Arc<dyn Runs>> {
        Vec::new()
    }

    fn add_services(self: Arc<Self>, _agent: &Arc<Agent>, routes: Routes) -> Routes {
        routes
    }
}

/// Calls that run, by job: what the master may end.
pub trait Runs: Send + Sync {
    /// Ends all runs of a job and waits for it; the number of runs.
    fn end_job(&self, job: u64) -> BoxFuture<'_, usize>;

    /// Ends all runs of jobs that are not alive and waits for it; the number of runs.
    fn end_others(&self, alive_jobs: BTreeSet<u64>) -> BoxFuture<'_, usize>;

    /// Forgets every call that does not run.
    fn clear(&self) -> BoxFuture<'_, Result<(), CallError>>;
}

impl<E, A> Runs for CallRegistry<E, A>
where
    E: Clone + Send + Sync + 'static,
    A: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn end_job(&self, job: u64) -> BoxFuture<'_, usize> {
        Box::pin(self.end_job(job))
    }

    fn end_others(&self, alive_jobs: BTreeSet<u64>) -> BoxFuture<'_, usize> {
        Box::pin(async move { self.end_others(&alive_jobs).await })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(self.clear())
    }
}
