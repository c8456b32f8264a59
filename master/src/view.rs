//! What clients see: jobs and configuration as they are on disk, never ahead of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock, RwLockReadGuard},
};

use muster_core::{calls::AliveJobs, edit::Edit, engine::Job, locks::Locks, model::Cluster, names::NodeName};
use tokio::sync::watch;
use uuid::Uuid;

/// How far the present step of a job is; volatile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The step in words.
    pub step: String,
    /// Where.
    pub node: Option<NodeName>,
    /// 0 to 100.
    pub percent: Option<u32>,
}

/// A job as it is on disk, and how far its present step is.
#[derive(Debug, Clone)]
pub struct JobView {
    /// The job.
    pub job: Arc<Job>,
    /// The present step.
    pub progress: Option<Progress>,
}

/// Shared by all services; written by the driver's thread alone (progress excepted).
#[derive(Debug, Default)]
pub struct View {
    cluster: RwLock<Option<Arc<Cluster>>>,
    jobs: RwLock<BTreeMap<u64, watch::Sender<JobView>>>,
}

/// Locks here are held for copies only; a panic while holding one ends the process anyway.
const POISON: &str = "no holder of this lock panics";

impl View {
    /// Shows what was loaded, and nothing else.
    pub fn reset(&self, cluster: Option<Cluster>, jobs: impl IntoIterator<Item = Job>) {
        *self.cluster.write().expect(POISON) = cluster.map(Arc::new);
        self.jobs.write().expect(POISON).clear();
        self.publish_jobs(jobs);
    }

    /// The configuration.
    pub fn cluster(&self) -> Option<Arc<Cluster>> {
        self.cluster.read().expect(POISON).clone()
    }

    /// Follows a job.
    pub fn follow(&self, id: u64) -> Option<watch::Receiver<JobView>> {
        self.read_jobs().get(&id).map(watch::Sender::subscribe)
    }

    /// A job.
    pub fn job(&self, id: u64) -> Option<JobView> {
        self.read_jobs().get(&id).map(|job| job.borrow().clone())
    }

    /// All jobs, by number.
    pub fn jobs(&self) -> Vec<JobView> {
        self.read_jobs().values().map(|job| job.borrow().clone()).collect()
    }

    /// The jobs that have something to do: nodes end the runs of all others.
    pub fn alive(&self) -> AliveJobs {
        let jobs = self.read_jobs();
        let mut alive = AliveJobs::default();
        for (id, job) in jobs.iter() {
            let job = &job.borrow().job;
            if job.alive() {
                alive.all.insert(*id);
            }
            if job.is_ending() {
                alive.ending.insert(*id);
            }
        }
        alive
    }

    /// What jobs lock, or wait to lock; one that was killed and is blocked too.
    pub fn locks(&self) -> Vec<Locks> {
        let jobs = self.read_jobs();
        let views = jobs.values().map(|job| job.borrow().job.clone());
        views.filter(|job| !job.is_unlocked()).map(|job| job.submission.locks()).collect()
    }

    /// All instances with their generations: a node may still run one that has nothing there any more.
    pub fn generations(&self) -> Vec<(Uuid, u64)> {
        let Some(cluster) = self.cluster() else { return Vec::new() };
        cluster.instances.values().map(|instance| (instance.uuid, instance.generation)).collect()
    }

    /// Shows jobs that were just made durable.
    pub fn publish_jobs(&self, changed: impl IntoIterator<Item = Job>) {
        let mut jobs = self.jobs.write().expect(POISON);
        for job in changed {
            let id = job.id();
            let view = JobView { job: Arc::new(job), progress: None };
            match jobs.get(&id) {
                Some(sender) => drop(sender.send_replace(view)),
                None => drop(jobs.insert(id, watch::Sender::new(view))),
            }
        }
    }

    /// Shows no more what was archived.
    pub fn forget_jobs(&self, archived: &[u64]) {
        let mut jobs = self.jobs.write().expect(POISON);
        for id in archived {
            jobs.remove(id);
        }
    }

    /// Shows edits that were just made durable. The copy is shared with readers: it is cloned only while one looks.
    pub fn publish_edits(&self, edits: Vec<Edit>, serial: Option<u64>) {
        if edits.is_empty() {
            return;
        }
        let mut slot = self.cluster.write().expect(POISON);
        let mut cluster = slot.take().map(Arc::unwrap_or_clone);
        for edit in edits {
            edit.apply(&mut cluster);
        }
        if let (Some(cluster), Some(serial)) = (&mut cluster, serial) {
            cluster.serial = serial;
        }
        *slot = cluster.map(Arc::new);
    }

    /// Shows how far a job's step is.
    pub fn progress(&self, id: u64, progress: Progress) {
        if let Some(sender) = self.read_jobs().get(&id) {
            sender.send_modify(|view| view.progress = Some(progress));
        }
    }

    fn read_jobs(&self) -> RwLockReadGuard<'_, BTreeMap<u64, watch::Sender<JobView>>> {
        self.jobs.read().expect(POISON)
    }
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    #[test]
    fn every_node_hears_of_all_instances_also_of_those_that_have_left_it() {
        let view = View::default();
        assert_eq!(view.generations(), [], "before there is a cluster");
        let mut cluster = examples::cluster();
        let mail = cluster.instances.values_mut().find(|instance| instance.name.as_str() == "mail1").unwrap();
        mail.generation = 4;
        let mail = (mail.uuid, 4);
        let uuid = |name: &str| {
            cluster.instances.values().find(|instance| instance.name.as_str() == name).unwrap().uuid
        };
        let (db, null, web) = ((uuid("db1"), 0), (uuid("null1"), 0), (uuid("web1"), 0));
        view.reset(Some(cluster.clone()), Vec::new());
        assert_eq!(view.generations(), [db, mail, null, web]);
    }
}
