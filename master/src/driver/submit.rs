//! A submission: what it needs is drawn, who it waits for is looked at, and only then it is a job.

use std::collections::BTreeSet;

use muster_core::{
    engine::{Dependency, Ending, Input, Job, Priority, Submission, SubmitError},
    facts::NodeFacts,
    model::Cluster,
    ops::{FRESH_UUIDS, Fresh, JobRepair, Op, PendingNode, Repair},
};

use super::{Clock, Driver, Ids, SubmitReply};
use crate::store::{Store, decode, keys};

/// A request to do an operation.
#[derive(Debug)]
pub struct Request {
    /// What.
    pub op: Op,
    /// Who.
    pub user: String,
    /// Why.
    pub reason: String,
    /// Checks only.
    pub dry_run: bool,
    /// The client's id for the request; empty for none.
    pub request_id: String,
    /// The host that a node add names.
    pub pending: Option<PendingNode>,
    /// What the node that the operation is about says of its host.
    pub node_facts: Option<NodeFacts>,
    /// The cluster that an init would make.
    pub new_cluster: Option<Box<Cluster>>,
    /// Jobs that must be over before.
    pub depends: Vec<Dependency>,
    /// Its place among those that wait.
    pub priority: Priority,
    /// The job whose script asks.
    pub parent: Option<u64>,
    /// Whoever asks will wait for the job's end.
    pub will_wait: bool,
}

impl Request {
    /// A request with nothing but an operation and who asks for it.
    pub fn new(op: Op, user: &str) -> Self {
        Request {
            op,
            user: user.to_owned(),
            reason: String::new(),
            dry_run: false,
            request_id: String::new(),
            pending: None,
            node_facts: None,
            new_cluster: None,
            depends: Vec::new(),
            priority: Priority::default(),
            parent: None,
            will_wait: false,
        }
    }
}

/// Why a submission is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitRefusal {
    /// The queue is full.
    #[error(transparent)]
    Full(#[from] SubmitError),
    /// The queue is drained.
    #[error("the queue is drained and takes no jobs: `gnt-cluster queue undrain` ends that")]
    Drained,
    /// It names a job that is not known.
    #[error("there is no job {0}")]
    UnknownJob(u64),
    /// It depends on a job that ended otherwise.
    #[error("job {job} ended as {ended} (wanted: {wanted})", ended = ended.as_str())]
    Ended {
        /// That job.
        job: u64,
        /// How it ended.
        ended: Ending,
        /// How it should have.
        wanted: String,
    },
    /// It would wait for the job whose script waits for it.
    #[error("{0}")]
    Cycle(String),
    /// The store can't be read.
    #[error("{0}")]
    Store(String),
}

impl<S: Store, C: Clock, I: Ids> Driver<S, C, I> {
    pub(super) fn submit(&mut self, request: Request, reply: SubmitReply) {
        let answer = match self.requests.get(&request.request_id) {
            Some(first) => Ok(*first),
            None => self.take_submission(request),
        };
        self.released.replies.push(Box::new(move || reply(answer)));
    }

    fn take_submission(&mut self, request: Request) -> Result<u64, SubmitRefusal> {
        self.engine.admit()?;
        if self.queue.drained {
            return Err(SubmitRefusal::Drained);
        }
        let depends = self.open_dependencies(&request.depends)?;
        let (priority, repair) = if let Op::JobRepair(JobRepair { job }) = request.op {
            (Priority::FIRST, Some(self.repair(job)?))
        } else {
            (request.priority, None)
        };
        let id = self.next_job;
        let fresh = Fresh {
            uuids: (0..FRESH_UUIDS).map(|_| self.ids.uuid()).collect(),
            mac: self.ids.mac(),
            pending: request.pending,
            new_cluster: request.new_cluster,
            now_ms: self.clock.now().wall_ms,
            repair,
            node_facts: request.node_facts,
        };
        let submission = Submission {
            id,
            uuid: self.ids.uuid(),
            op: request.op,
            user: request.user,
            reason: request.reason,
            dry_run: request.dry_run,
            request_id: request.request_id,
            fresh,
            depends,
            priority,
            parent: request.parent,
        };
        if let (Some(parent), true) = (request.parent, request.will_wait) {
            self.refuse_cycle(parent, &submission)?;
        }
        self.next_job += 1;
        if !submission.request_id.is_empty() {
            self.requests.insert(submission.request_id.clone(), id);
        }
        self.submitted = true;
        self.input(Input::Submit(Box::new(submission)));
        Ok(id)
    }

    /// The dependencies that only the engine can wait for; those on archived jobs are settled here.
    fn open_dependencies(&self, depends: &[Dependency]) -> Result<Vec<Dependency>, SubmitRefusal> {
        let mut open = Vec::new();
        for dependency in depends {
            if self.engine.job(dependency.job).is_some() {
                open.push(dependency.clone());
                continue;
            }
            let job = self.archived_job(dependency.job)?.ok_or(SubmitRefusal::UnknownJob(dependency.job))?;
            match job.ending() {
                Some(ended) if !dependency.endings.contains(&ended) => {
                    let wanted = dependency.wanted();
                    return Err(SubmitRefusal::Ended { job: dependency.job, ended, wanted });
                }
                Some(_) | None => {}
            }
        }
        Ok(open)
    }

    /// What there is to repair of a job; one that is blocked is given up first.
    fn repair(&mut self, job: u64) -> Result<Repair, SubmitRefusal> {
        if self.engine.job(job).is_none() {
            // Nothing that is archived left anything undone; the check says so.
            self.archived_job(job)?.ok_or(SubmitRefusal::UnknownJob(job))?;
            return Ok(Repair::default());
        }
        let gave_up = self.engine.job(job).is_some_and(|job| job.blocked_call().is_some());
        self.input(Input::GiveUp(job));
        let locks = self.engine.job(job).map(|job| job.submission.locks()).unwrap_or_default();
        Ok(Repair { locks, calls: self.engine.undone_by(job), gave_up })
    }

    /// A record of the archive.
    pub(super) fn archived_job(&self, id: u64) -> Result<Option<Job>, SubmitRefusal> {
        if let Some(job) = self.archiving.get(&id) {
            return Ok(Some(job.clone()));
        }
        let key = keys::job(id);
        let text = self.store.archived(&key).map_err(|error| SubmitRefusal::Store(crate::chain(&error)))?;
        let job = text.map(|text| decode(&key, &text)).transpose();
        job.map_err(|error| SubmitRefusal::Store(crate::chain(&error)))
    }

    fn refuse_cycle(&self, parent: u64, submission: &Submission) -> Result<(), SubmitRefusal> {
        let locks = submission.locks();
        let first = self.engine.would_wait_for(submission.priority, &locks, &submission.depends);
        match self.engine.way(&first, parent, &self.followed) {
            None => Ok(()),
            Some(way) => {
                let what = format!("{}({})", submission.op.row().op_id, submission.op.target());
                Err(SubmitRefusal::Cycle(cycle_text(&what, &way, parent)))
            }
        }
    }

    /// Notes that a job's script waits for a job's end, unless that job waits for the script's own.
    pub(super) fn follow(&mut self, parent: u64, job: u64) -> Result<(), String> {
        let over = |id| self.engine.job(id).is_none_or(Job::over);
        if over(parent) || over(job) {
            return Ok(());
        }
        let first = if parent == job { vec![job] } else { self.engine.waits_for(job) };
        if let Some(way) = self.engine.way(&first, parent, &self.followed) {
            return Err(cycle_text(&format!("job {job}"), &way, parent));
        }
        // What is over is forgotten here, so that the set never grows beyond the jobs that are not.
        let engine = &self.engine;
        let alive = |id: &u64| engine.job(*id).is_some_and(|job| !job.over());
        self.followed.retain(|(script, followed)| alive(script) && alive(followed));
        self.followed.insert((parent, job));
        Ok(())
    }
}

/// For example: `job 12 waits for job 10, which waits for job 7, whose own script asks: that would never end`.
fn cycle_text(what: &str, way: &[u64], parent: u64) -> String {
    let mut text = format!("{what} would wait for ");
    let names: Vec<String> = way.iter().map(|job| format!("job {job}")).collect();
    text.push_str(&names.join(", which waits for "));
    if way.last() != Some(&parent) {
        text.push_str(&format!(", which waits for job {parent}"));
    }
    text.push_str(
        ", whose own script asks: that would never end. Submit it with --submit, and don't wait for it",
    );
    text
}

/// The jobs whose scripts wait for jobs: the job, and the one that its script follows.
pub(super) type Followed = BTreeSet<(u64, u64)>;
