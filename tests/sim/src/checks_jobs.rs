//! The checkers on jobs: locks, verdicts, steps, commits, results.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    edit::{Edit, Touched},
    engine::{END_STEP, Job, Outcome, Phase},
    hooks::{self, OnUnreachable},
    model::Cluster,
    ops::StepKind,
};
use muster_master::{driver::Released, store::keys};

use super::{
    check::Checker,
    disk::Applied,
    event::{Delivery, Request},
    process::node_id,
    tracks::{Track, is_committed, outcome},
    witness::Said,
    world::Simulation,
};

/// A job's scripts are gone this long after its end was published and its node is connected, in milliseconds.
const ENDED_WITHIN_MS: u64 = 15_000;

/// What the keys of the configuration's records begin with.
const CONFIGURATION: [&str; 6] =
    [keys::CLUSTER, keys::NODE, keys::INSTANCE, keys::EXPORT, keys::CLIENT, keys::CLEANUP];

impl Simulation {
    /// After every event.
    pub(crate) fn check_all(&mut self) {
        if std::mem::take(&mut self.tracks.is_changed) {
            self.check_exclusive_locks();
            self.check_finished_hold_no_lock();
            self.check_blocked_hold_locks();
        }
        self.check_killed_stop();
        self.check_no_script_under_finished_job();
        self.check_guest_runs_once();
    }

    fn check_exclusive_locks(&mut self) {
        if let Some((one, other, name)) = self.tracks.conflict() {
            let what = format!("jobs {one} and {other} have both begun and hold {name}");
            self.context.violate(Checker::ExclusiveLockHasOneHolder, what);
        }
        let table = self.process.as_ref().map(|process| process.driver.engine().locks().check());
        if let Some(Err(what)) = table {
            self.context.violate(Checker::ExclusiveLockHasOneHolder, what);
        }
    }

    fn check_finished_hold_no_lock(&mut self) {
        let Some(process) = &self.process else { return };
        let locks = process.driver.engine().locks();
        let ended = self.tracks.jobs.iter().filter(|(_, track)| track.ended.is_some());
        let holder = ended.map(|(id, _)| *id).find(|id| locks.holds(*id) || locks.waits_for(*id).is_some());
        if let Some(id) = holder {
            self.context.violate(Checker::FinishedJobHoldsNoLock, format!("job {id} is over and has locks"));
        }
    }

    fn check_no_script_under_finished_job(&mut self) {
        let Some(process) = &self.process else { return };
        let now = self.context.now();
        for node in self.nodes.iter().filter(|node| node.reachable()) {
            let Some(link) = process.links.get(&node.id) else { continue };
            for (job, call) in node.scripts() {
                let ended = self.tracks.jobs.get(&job).and_then(|track| track.ended.as_ref());
                let Some((_, ended_ms)) = ended else { continue };
                if now > link.since_ms.max(node.reachable_since_ms).max(*ended_ms) + ENDED_WITHIN_MS {
                    let what = format!("{} runs {call}, whose job is over since {ended_ms}", node.name);
                    return self.context.violate(Checker::NoScriptUnderFinishedJob, what);
                }
            }
        }
    }

    /// A request reaches a node: a post script may start only when its job's commit can't be lost any more.
    pub(crate) fn see_delivery(&mut self, delivery: &Delivery) {
        let Request::Hooks(call) = &delivery.request else { return };
        if call.phase != hooks::Phase::Post || call.id.step == END_STEP {
            return;
        }
        let key = keys::job(call.id.job);
        let disk = self.disk.clone();
        let disk = disk.borrow();
        let text = disk.durable(&key).or_else(|| disk.durable_archived(&key));
        let is_durable = text.is_some_and(|text| {
            ["post_hooks", "ending", "done"]
                .iter()
                .any(|phase| text.contains(&format!("\"phase\":{{\"phase\":\"{phase}\"")))
        });
        if !is_durable {
            let what = format!("{} reaches {} before its commit is durable", delivery.wire, call.node);
            self.context.violate(Checker::PostFollowsDurableCommit, what);
        }
    }

    /// Commits that the store has applied: each by the newest master.
    pub(crate) fn see_commits(&mut self, applied: &[Applied]) {
        for commit in applied {
            let last = self.tracks.last_master;
            if commit.incarnation < last {
                let what = format!("master {} commits in the term of master {last}", commit.incarnation);
                self.context.violate(Checker::EpochHasOneMaster, what);
            }
            self.tracks.last_master = last.max(commit.incarnation);
        }
    }

    /// What a flush has made durable.
    pub(crate) fn see_released(&mut self, released: &Released, applied: &[Applied]) {
        let mut allowed: BTreeSet<String> = BTreeSet::new();
        let before = self.those_ready(&released.jobs);
        for job in &released.jobs {
            if self.track(job) {
                allowed.extend(keys_of_edits(job));
            }
        }
        self.check_begun(&before);
        self.check_repairs(&released.jobs);
        for id in &released.archived {
            if let Some(track) = self.tracks.jobs.get_mut(id) {
                track.is_archived = true;
            }
        }
        for key in applied.iter().flat_map(|commit| &commit.keys) {
            if !CONFIGURATION.iter().any(|prefix| key.starts_with(prefix)) {
                continue;
            }
            let cleanup = key.strip_prefix(keys::CLEANUP).and_then(|id| id.split('.').next()?.parse().ok());
            let of_cleanup =
                cleanup.and_then(|job: u64| self.tracks.jobs.get(&job)).is_some_and(|t| t.is_committed);
            let is_global = *key == keys::CLUSTER && !released.edits.is_empty();
            if !of_cleanup && !is_global && !allowed.contains(key) {
                let jobs: Vec<u64> = released.jobs.iter().map(Job::id).collect();
                let what = format!("{key} is changed, and none of the jobs {jobs:?} commits that");
                self.context.violate(Checker::FailureChangesNothing, what);
            }
        }
    }

    /// Follows one job; whether it is committed now and was not before.
    fn track(&mut self, job: &Job) -> bool {
        self.tracks.is_changed = true;
        let now = self.context.now();
        let id = job.id();
        self.track_undos(job);
        let ended = outcome(job);
        let (asked, asked_depends) = self.clients.asked_for(job);
        let track = self.tracks.jobs.entry(id).or_insert_with(|| Track {
            locks: job.submission.locks(),
            has_begun: false,
            begun_ms: None,
            is_committed: false,
            ended: None,
            over: None,
            is_blocked: false,
            is_archived: false,
            priority: asked,
            depends: asked_depends,
        });
        track.has_begun = job.started_ms.is_some() && !job.is_unlocked();
        if job.started_ms.is_some() {
            track.begun_ms.get_or_insert(now);
        }
        track.is_blocked = matches!(job.phase, Phase::Blocked { .. });
        let was_over = track.over;
        track.over = track.over.or(job.ending());
        let is_committed = is_committed(job);
        let is_new = is_committed && !track.is_committed;
        let was_committed = track.is_committed;
        track.is_committed |= is_committed;
        let before = track.ended.as_ref().map(|(outcome, _)| outcome.clone());
        let text = ended.map(|outcome| format!("{outcome:?}"));
        if let (None, Some(text)) = (&before, &text) {
            track.ended = Some((text.clone(), now));
            self.context.witness.ended_ms.insert(id, now);
            let kind = match ended {
                Some(Outcome::Error(error)) => error.kind.as_str(),
                Some(Outcome::Canceled) if job.killed => "killed",
                Some(Outcome::Success | Outcome::Canceled) | None => text,
            };
            let outcome = format!("{} {}", job.submission.op.row().op_id, kind.to_lowercase());
            *self.tracks.outcomes.entry(outcome).or_default() += 1;
        }
        let is_other = before.is_some() && before != text;
        if is_other || (was_over.is_some() && was_over != job.ending()) {
            let what = format!("job {id} ended as {before:?}, {was_over:?} and now is {text:?}");
            self.context.violate(Checker::ResultSurvives, what);
        }
        let is_without_success = matches!(ended, Some(Outcome::Error(_) | Outcome::Canceled));
        if is_without_success && (was_committed || job.committed) && !job.killed {
            let what = format!("job {id} was committed and ended as {text:?}");
            self.context.violate(Checker::FailureChangesNothing, what);
        }
        if is_new {
            self.check_verdict(job);
            self.check_steps(job);
        }
        is_new
    }

    fn check_verdict(&mut self, job: &Job) {
        let Some(prepared) = job.prepared().filter(|prepared| prepared.hook_prefix.is_some()) else { return };
        let begun_ms = self.tracks.jobs.get(&job.id()).and_then(|track| track.begun_ms);
        for name in &prepared.nodes.pre {
            // Not asked again after a restart (HOOKS.md R6).
            if self.tracks.offline_ms.get(name).is_some_and(|offline_ms| Some(*offline_ms) >= begun_ms) {
                continue;
            }
            let node = node_id(name);
            let place = (job.id(), "pre".to_owned(), node);
            let is_required = node == 0 && prepared.policy.master_required;
            let may_be_silent = prepared.policy.unreachable == OnUnreachable::Allow && !is_required;
            let is_silent = self.context.witness.unreached.contains(&place);
            let said = self.context.witness.said.get(&place).copied();
            let is_allowed = match said {
                Some(Said::Allowed) => true,
                Some(Said::Lost) => may_be_silent,
                Some(Said::Denied) | None => may_be_silent && is_silent,
            };
            if !is_allowed {
                let what =
                    format!("job {} is committed, {name} said {said:?}, silent: {is_silent}", job.id());
                self.context.violate(Checker::CommitFollowsVerdict, what);
            }
        }
    }

    fn check_steps(&mut self, job: &Job) {
        let steps = job.prepared().map(|prepared| &prepared.plan.steps[..]).unwrap_or_default();
        for (index, step) in steps.iter().enumerate() {
            let must_be_done = match step.kind {
                StepKind::Undoable { .. }
                | StepKind::Harmless
                | StepKind::Relies { .. }
                | StepKind::Final => true,
                StepKind::Optional { .. } | StepKind::Kept => false,
            };
            if must_be_done && !self.context.witness.done.contains(&(job.id(), index.to_string())) {
                let what = format!("job {} is committed, step {index} was not carried out", job.id());
                self.context.violate(Checker::CommitFollowsSteps, what);
            }
        }
    }

    /// What a starting master finds: nothing that was told or finished is missing.
    pub(crate) fn see_loaded(&mut self, cluster: Option<&Cluster>, jobs: &[Job]) {
        if let Some(cluster) = cluster {
            self.check_configuration(cluster);
            self.see_offline(cluster);
        }
        let loaded: BTreeMap<u64, &Job> = jobs.iter().map(|job| (job.id(), job)).collect();
        let disk = self.disk.clone();
        let disk = disk.borrow();
        let archived = |id: u64| disk.durable_archived(&keys::job(id));
        for job in self.clients.jobs.values() {
            if !loaded.contains_key(job) && archived(*job).is_none() && !self.tracks.is_archived(*job) {
                let what = format!("job {job} was submitted and is not in the store");
                self.context.violate(Checker::SubmissionSurvives, what);
            }
        }
        let ended = self.tracks.jobs.iter().filter(|(_, track)| track.ended.is_some());
        for id in ended.map(|(id, _)| *id).collect::<Vec<_>>() {
            if self.tracks.is_archived(id) || !loaded.contains_key(&id) && archived(id).is_some() {
                self.check_archived(id, archived(id));
            } else if loaded.get(&id).is_none_or(|job| !job.done()) {
                let what = format!("job {id} was over and is not over in the store");
                self.context.violate(Checker::ResultSurvives, what);
            }
        }
        let mut requests: BTreeMap<&str, u64> = BTreeMap::new();
        for job in jobs.iter().filter(|job| !job.submission.request_id.is_empty()) {
            if let Some(first) = requests.insert(&job.submission.request_id, job.id()) {
                let what =
                    format!("request {} is job {first} and job {}", job.submission.request_id, job.id());
                self.context.violate(Checker::RequestMakesOneJob, what);
            }
        }
        for job in jobs {
            self.track(job);
        }
        let now = self.context.now();
        self.tracks.stopping_ms.values_mut().for_each(|since_ms| *since_ms = now);
    }
}

/// The records that a job's commit may write.
fn keys_of_edits(job: &Job) -> BTreeSet<String> {
    let Some(prepared) = job.prepared() else { return BTreeSet::new() };
    let optional = prepared.plan.steps.iter().flat_map(|step| match &step.kind {
        StepKind::Optional { edits } => &edits[..],
        StepKind::Undoable { .. }
        | StepKind::Harmless
        | StepKind::Relies { .. }
        | StepKind::Kept
        | StepKind::Final => &[],
    });
    let touched: Vec<Touched> = prepared.plan.edits.iter().chain(optional).map(Edit::touched).collect();
    touched.into_iter().filter_map(key_of).collect()
}

fn key_of(touched: Touched) -> Option<String> {
    match touched {
        Touched::Globals => Some(keys::CLUSTER.to_owned()),
        Touched::Node(name) => Some(keys::node(&name)),
        Touched::Instance(name) => Some(keys::instance(&name)),
        Touched::Export(uuid) => Some(keys::export(uuid)),
        Touched::Client(name) => Some(keys::client(&name)),
        Touched::Cleanup(id) => Some(keys::cleanup(id)),
        Touched::Group(uuid) => Some(keys::group(uuid)),
        Touched::Network(uuid) => Some(keys::network(uuid)),
        Touched::ClusterTags => Some(keys::CLUSTER_TAGS.to_owned()),
        Touched::All | Touched::Nothing => None,
    }
}
