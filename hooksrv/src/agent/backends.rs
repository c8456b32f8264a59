//! What a daemon adds to the shared shell, and the calls that the shell can end.

use std::sync::Arc;

use futures::future::BoxFuture;
use muster_core::calls::AliveJobs;
use muster_proto::v1;
use serde::{Serialize, de::DeserializeOwned};
use tonic::service::Routes;
use uuid::Uuid;

use super::Agent;
use crate::{CallError, CallId, CallRegistry};

/// What a node daemon has beside hooks: its part of the node's state, its calls, its services.
pub trait Backends: Send + Sync + 'static {
    /// Whether the node runs hooks only.
    fn hooks_only(&self) -> bool;

    /// Fills in guests, disks and exports; what can't be told goes into `problems`. Blocks; called at each change and
    /// at least every 10 s.
    fn report(&self, state: &mut v1::NodeState);

    /// Ends the guests here that are of an earlier generation than their instance has now, as given, and waits until
    /// they are gone. Blocks; called at each greeting of a master, before it is answered.
    ///
    /// # Errors
    /// Why one may still be there.
    fn end_past_guests(&self, present: &[(Uuid, u64)]) -> Result<(), String>;

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

    fn end_past_guests(&self, _present: &[(Uuid, u64)]) -> Result<(), String> {
        Ok(())
    }

    fn runs(&self) -> Vec<Arc<dyn Runs>> {
        Vec::new()
    }

    fn add_services(self: Arc<Self>, _agent: &Arc<Agent>, routes: Routes) -> Routes {
        routes
    }
}

/// What became of the runs that were told to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    /// How many were told to.
    pub told: usize,
    /// How many of the job still go on: some did not end within the limit.
    pub left: usize,
}

/// Calls that run, by job: what the master may end.
pub trait Runs: Send + Sync {
    /// Ends the runs of a job and waits for it, 10 s at most. Those that tell of the job's end go on, where they are not
    /// among `calls`.
    fn end_job<'a>(&'a self, job: u64, calls: &'a [CallId]) -> BoxFuture<'a, Ended>;

    /// Sees to it that calls that were not begun here never begin, however late they arrive.
    fn withdraw<'a>(&'a self, calls: &'a [CallId]) -> BoxFuture<'a, Result<(), CallError>>;

    /// Ends all runs that are not spared and waits for it; the number of runs.
    fn end_others(&self, alive: AliveJobs) -> BoxFuture<'_, usize>;

    /// Forgets every call that does not run.
    fn clear(&self) -> BoxFuture<'_, Result<(), CallError>>;
}

impl<E, A> Runs for CallRegistry<E, A>
where
    E: Clone + Send + Sync + 'static,
    A: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    fn end_job<'a>(&'a self, job: u64, calls: &'a [CallId]) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            let told = self.end_job_but_its_end(job, calls).await;
            Ended { told, left: self.runs_of(job, calls).await }
        })
    }

    fn withdraw<'a>(&'a self, calls: &'a [CallId]) -> BoxFuture<'a, Result<(), CallError>> {
        Box::pin(async move {
            for call in calls {
                self.withdraw_one(call).await?;
            }
            Ok(())
        })
    }

    fn end_others(&self, alive: AliveJobs) -> BoxFuture<'_, usize> {
        Box::pin(async move { self.end_others(&alive).await })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(self.clear())
    }
}
