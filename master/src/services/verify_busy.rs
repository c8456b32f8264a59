//! What jobs change while a verification looks: nothing can be said of it.
//!
//! The configuration, the jobs and what nodes say are read one after the other, with waits in between. So what any job
//! had in its hands at any time of the verification is left out: the jobs at work at the beginning, those of the end, those
//! that came and went in between, and what differs between the configuration before and after. A job that waits, for its
//! scripts too, or whose scripts are told what it did, changes nothing: it may be there for hours, and hides nothing.

use std::{collections::BTreeSet, iter::once};

use muster_core::{
    engine::{Job, Phase},
    locks::Locks,
    model::{Cluster, Instance},
};

use crate::view::{JobView, View};

/// What is being changed.
#[derive(Debug, Default)]
pub(super) struct Busy {
    files: BTreeSet<String>,
    instances: BTreeSet<String>,
    locks: Vec<Locks>,
    /// Jobs that had done their work at the beginning.
    done: BTreeSet<u64>,
}

impl Busy {
    /// What jobs have in their hands now.
    pub(super) fn begin(view: &View) -> Self {
        let jobs = view.jobs();
        let mut busy = Busy::default();
        busy.add(jobs.iter().filter(|view| at(&view.job) == At::Work));
        busy.done = jobs.iter().filter(|view| at(&view.job) == At::End).map(|view| view.job.id()).collect();
        busy
    }

    /// All of it from the beginning until now, where the configuration was `before` then.
    pub(super) fn end(mut self, view: &View, before: &Cluster, after: &Cluster) -> Self {
        let done = std::mem::take(&mut self.done);
        let begun = |view: &&JobView| at(&view.job) != At::Beginning && !done.contains(&view.job.id());
        self.add(view.jobs().iter().filter(begun));
        for (one, other) in [(before, after), (after, before)] {
            let changed = |instance: &&Instance| other.instances.get(&instance.name) != Some(*instance);
            for instance in one.instances.values().filter(changed) {
                self.instances.insert(instance.name.to_string());
                self.files.extend(files(instance));
            }
            let changed = one.exports.iter().filter(|(uuid, _)| !other.exports.contains_key(*uuid));
            self.files.extend(changed.map(|(uuid, _)| uuid.to_string()));
        }
        self
    }

    fn add<'a>(&mut self, jobs: impl Iterator<Item = &'a JobView>) {
        for JobView { job, .. } in jobs {
            self.files.extend(files_of(job));
            // A blocked job works on nothing: what it left is to be seen.
            if job.blocked_call().is_none() {
                self.locks.push(job.submission.locks());
            }
        }
    }

    /// Whether a job makes, moves or removes a file, an export or a copy.
    pub(super) fn has_file(&self, uuid: &str) -> bool {
        self.files.contains(uuid)
    }

    /// Whether a job works on an instance.
    pub(super) fn has_instance(&self, instance: &Instance) -> bool {
        // The lock of the whole cluster is no lock of its instances: their guests go on.
        let own = Locks::default().exclusive("instance", &instance.name);
        self.instances.contains(instance.name.as_str()) || self.locks.iter().any(|job| job.conflicts(&own))
    }
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// It has changed nothing.
    Beginning,
    /// It changes something, or a node has not said that it has stopped.
    Work,
    /// It changes nothing any more.
    End,
}

fn at(job: &Job) -> At {
    match job.phase {
        Phase::Waiting | Phase::PreHooks { .. } => At::Beginning,
        Phase::Running { .. } | Phase::Cleaning { .. } | Phase::Undoing { .. } | Phase::Blocked { .. } => {
            At::Work
        }
        Phase::PostHooks { .. } | Phase::Ending { .. } | Phase::Done { .. } => At::End,
    }
}

/// An instance's guest, disks and copies.
fn files(instance: &Instance) -> impl Iterator<Item = String> {
    let disks = instance.disks.iter();
    let disks = disks.flat_map(|disk| once(disk.uuid).chain(disk.mirrors.iter().map(|copy| copy.uuid)));
    once(instance.uuid).chain(disks).map(|uuid| uuid.to_string())
}

/// Files and guests that a job makes or removes.
fn files_of(job: &Job) -> impl Iterator<Item = String> {
    let plan = job.prepared().map(|prepared| &prepared.plan);
    let named = plan.into_iter().flat_map(|plan| {
        let cleanups = plan.cleanups.iter().filter_map(|(call, _)| call.file());
        cleanups.chain(plan.steps.iter().filter_map(|step| step.call.file()))
    });
    named.chain(job.submission.fresh.uuids.iter().copied()).map(|uuid| uuid.to_string())
}

#[cfg(test)]
mod tests {
    use muster_core::{
        engine::{Outcome, Phase},
        ops::{InstanceStart, Op, examples},
    };

    use super::*;

    fn instance<'a>(cluster: &'a Cluster, name: &str) -> &'a Instance {
        cluster.instances.values().find(|instance| instance.name.as_str() == name).unwrap()
    }

    fn start(id: u64, cluster: &Cluster, name: &str) -> Job {
        let instance = instance(cluster, name).name.clone();
        Job::new(examples::submission(id, Op::InstanceStart(InstanceStart { instance, force: false })))
    }

    #[test]
    fn what_a_job_has_at_any_time_is_left_out() {
        let cluster = examples::cluster();
        let ended = |id: u64, name: &str| {
            let mut job = start(id, &cluster, name);
            job.phase = Phase::Done { outcome: Outcome::Success, prepared: None };
            job
        };
        let view = View::default();
        view.publish_jobs([start(2, &cluster, "web1"), ended(6, "null1"), start(7, &cluster, "db1")]);
        let busy = Busy::begin(&view);
        view.publish_jobs([ended(2, "web1"), ended(8, "mail1")]);
        let busy = busy.end(&view, &cluster, &cluster);
        let had = |name: &str| busy.has_instance(instance(&cluster, name));
        assert_eq!([had("web1"), had("mail1")], [true, true], "they came and went");
        assert_eq!([had("null1"), had("db1")], [false, false], "one was over before, and one waits");
        let fresh = start(8, &cluster, "mail1").submission.fresh;
        assert!(busy.has_file(&fresh.uuids[0].to_string()), "it may make that");
    }

    #[test]
    fn what_was_changed_meanwhile_is_left_out() {
        let before = examples::cluster();
        let mut after = before.clone();
        let web1 = after.instances.values_mut().find(|instance| instance.name.as_str() == "web1").unwrap();
        web1.generation += 1;
        let busy = Busy::default().end(&View::default(), &before, &after);
        assert!(busy.has_instance(instance(&after, "web1")) && !busy.has_instance(instance(&after, "db1")));
        for file in files(instance(&before, "web1")) {
            assert!(busy.has_file(&file), "{file}");
        }
        let gone = before.exports.keys().next().copied().unwrap();
        after.exports.remove(&gone);
        assert!(Busy::default().end(&View::default(), &before, &after).has_file(&gone.to_string()));
    }

    #[test]
    fn the_lock_of_the_whole_cluster_hides_no_guest() {
        let busy = Busy { locks: vec![Locks::cluster()], ..Busy::default() };
        assert!(!busy.has_instance(instance(&examples::cluster(), "web1")));
    }
}
