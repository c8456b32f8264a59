//! Clients: they submit, submit again under the same request id, cancel and kill, and remember what they were told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use muster_core::{
    engine::{Dependency, Ending, Job, Priority},
    ops::{JobRepair, Op, PendingNode},
};
use muster_master::driver::{Command, QueueFacts, Request, SubmitRefusal};

use super::{check::Checker, mutation::Mutation, world::Simulation};

/// How many requests a client may repeat.
const REQUESTS_MAX: usize = 8;

/// An answer that reached a client.
#[derive(Debug)]
pub(crate) enum Told {
    /// A submission's: request id and job.
    Submitted(String, Result<u64, String>),
    /// A submission's to a drained queue: the last job before it, and the job.
    SubmittedDrained(u64, Result<u64, String>),
    Canceled(u64, Result<String, String>),
    Queue(QueueFacts),
    /// A look into the archive: the job, and whether it was archived when that was asked.
    Archived(u64, bool, Result<Option<Box<Job>>, String>),
}

/// A request as it may be repeated.
#[derive(Debug, Clone)]
struct Asked {
    request: String,
    op: Op,
    pending: Option<PendingNode>,
    dry_run: bool,
    depends: Vec<Dependency>,
    priority: Priority,
    /// A job whose script asks, and whether it waits.
    parent: Option<(u64, bool)>,
}

/// All clients together.
#[derive(Default)]
pub(crate) struct Clients {
    /// Where replies are put; the driver's may be sent between threads.
    pub(super) told: Arc<Mutex<Vec<Told>>>,
    asked: Vec<Asked>,
    requests: u64,
    /// The job that each request was told to be.
    pub(crate) jobs: BTreeMap<String, u64>,
    /// What each request asked for.
    wanted: BTreeMap<String, (Priority, Vec<Dependency>)>,
    /// An operator was told so, and nobody asked for the contrary since.
    pub(crate) is_drained: bool,
    pub(crate) is_paused: bool,
}

impl Clients {
    /// The priority and the dependencies that a job was asked for with.
    pub(crate) fn asked_for(&self, job: &Job) -> (Priority, Vec<Dependency>) {
        let wanted = self.wanted.get(&job.submission.request_id).cloned();
        let (priority, depends) =
            wanted.unwrap_or_else(|| (job.submission.priority, job.submission.depends.clone()));
        let is_repair = matches!(job.submission.op, Op::JobRepair(_));
        (if is_repair { Priority::FIRST } else { priority }, depends)
    }
}

impl Simulation {
    /// Submits, cancels, or repeats a request.
    pub(crate) fn client_acts(&mut self) {
        let command = self.any_command();
        if let Some(process) = &mut self.process {
            process.send(command, &mut self.context);
        }
    }

    /// What some client wants next.
    pub(crate) fn any_command(&mut self) -> Command {
        let draw = self.context.random.below(100);
        let is_held = self.clients.is_drained || self.clients.is_paused;
        match draw {
            0..8 if !self.clients.jobs.is_empty() => self.cancel(false),
            8..14 if !self.clients.jobs.is_empty() => self.cancel(true),
            14..17 => self.change_queue(),
            17..35 if is_held => self.change_queue(),
            35..39 => self.archive(),
            39..42 if !self.clients.jobs.is_empty() => self.look_in_archive(),
            42..43 if !self.clients.jobs.is_empty() => self.follow(),
            43..51 if !self.clients.asked.is_empty() => {
                let asked = self.context.random.pick(&self.clients.asked).clone();
                self.ask(asked)
            }
            _ => {
                let asked = self.new_request();
                self.ask(asked)
            }
        }
    }

    fn cancel(&mut self, kill: bool) -> Command {
        let job = self.young_job();
        let told = self.clients.told.clone();
        self.context.log(|| format!("a client {} job {job}", if kill { "kills" } else { "cancels" }));
        let reply = move |answer| told.lock().expect("no holder panics").push(Told::Canceled(job, answer));
        Command::Cancel(job, kill, Box::new(reply))
    }

    /// A young job more often than not.
    pub(super) fn young_job(&mut self) -> u64 {
        let mut jobs: Vec<u64> = self.clients.jobs.values().copied().collect();
        jobs.sort_unstable();
        let young = jobs.len().saturating_sub(5);
        *self.context.random.pick(&jobs[young..])
    }

    /// A submission.
    fn ask(&mut self, asked: Asked) -> Command {
        self.context.log(|| format!("a client asks {asked:?}"));
        let told = self.clients.told.clone();
        let Asked { request, op, pending, dry_run, mut depends, mut priority, parent } = asked;
        if self.context.mutated(Mutation::DropsDependencies) {
            depends.clear();
        }
        if self.context.mutated(Mutation::TurnsPriorities) {
            priority = Priority::try_from(-i64::from(priority)).unwrap_or_default();
        }
        let named = request.clone();
        let drained =
            self.clients.is_drained.then(|| self.tracks.jobs.keys().next_back().copied().unwrap_or(0));
        let reply = move |answer: Result<u64, SubmitRefusal>| {
            let answer = answer.map_err(|why| why.to_string());
            let mut told = told.lock().expect("no holder panics");
            if let Some(last) = drained {
                told.push(Told::SubmittedDrained(last, answer.clone()));
            }
            told.push(Told::Submitted(named, answer));
        };
        let request = Request {
            reason: "a simulation".to_owned(),
            dry_run,
            request_id: request,
            pending,
            depends,
            priority,
            parent: parent.map(|(job, _)| job),
            will_wait: parent.is_some_and(|(_, waits)| waits),
            ..Request::new(op, "sim")
        };
        Command::Submit(Box::new(request), Box::new(reply))
    }

    fn new_request(&mut self) -> Asked {
        let broken: Vec<u64> = self.tracks.broken();
        let (op, pending) = if !broken.is_empty() && self.context.random.permille(150) {
            (Op::JobRepair(JobRepair { job: *self.context.random.pick(&broken) }), None)
        } else {
            self.any_operation()
        };
        let has_jobs = !self.clients.jobs.is_empty();
        let depends = match self.context.random.below(10) {
            0 if has_jobs => vec![self.dependency()],
            1 if has_jobs => vec![self.dependency(), self.dependency()],
            _ => Vec::new(),
        };
        let parent = (has_jobs && self.context.random.permille(50))
            .then(|| (self.young_job(), self.context.random.permille(500)));
        let random = &mut self.context.random;
        let priority = match random.below(10) {
            0 => Priority::HIGH,
            1 => Priority::LOW,
            2 => *random.pick(&[Priority::FIRST, Priority::LAST]),
            _ => Priority::default(),
        };
        let dry_run = random.permille(30);
        let asked = self.remember(op, pending);
        let asked = Asked { dry_run, depends, priority, parent, ..asked };
        self.clients.wanted.insert(asked.request.clone(), (asked.priority, asked.depends.clone()));
        if self.clients.asked.len() >= REQUESTS_MAX {
            self.clients.asked.remove(0);
        }
        self.clients.asked.push(asked.clone());
        asked
    }

    fn remember(&mut self, op: Op, pending: Option<PendingNode>) -> Asked {
        self.clients.requests += 1;
        let request = format!("r{}", self.clients.requests);
        let (depends, priority, parent) = (Vec::new(), Priority::default(), None);
        Asked { request, op, pending, dry_run: false, depends, priority, parent }
    }

    /// A submission of nothing but an operation.
    pub(super) fn plain(&mut self, op: Op) -> Command {
        let asked = self.remember(op, None);
        self.ask(asked)
    }

    fn dependency(&mut self) -> Dependency {
        let job = self.young_job();
        let all = [Ending::Success, Ending::Error, Ending::Canceled];
        let endings = match self.context.random.below(4) {
            0 | 1 => all.into(),
            2 => [Ending::Success].into(),
            _ => [*self.context.random.pick(&all), *self.context.random.pick(&all)].into(),
        };
        Dependency { job, endings }
    }

    /// Clients read what they were told.
    pub(crate) fn hear_replies(&mut self) {
        let told = std::mem::take(&mut *self.clients.told.lock().expect("no holder panics"));
        for told in told {
            self.context.log(|| format!("a client hears {told:?}"));
            match told {
                Told::Submitted(request, Ok(job)) => {
                    let first = *self.clients.jobs.entry(request.clone()).or_insert(job);
                    if first != job && self.is_archived(first) {
                        // An archived job's request is forgotten.
                        self.clients.jobs.insert(request, job);
                    } else if first != job {
                        let what = format!("request {request} was job {first} and now is job {job}");
                        self.context.violate(Checker::RequestMakesOneJob, what);
                    }
                }
                Told::Canceled(job, Ok(text))
                    if text.ends_with("is canceled") || text.ends_with("is killed") =>
                {
                    let ended = self.tracks.jobs.get(&job).and_then(|track| track.over);
                    if ended != Some(Ending::Canceled) {
                        let what = format!("a client hears that {text}, and it ended as {ended:?}");
                        self.context.violate(Checker::ResultSurvives, what);
                    }
                }
                Told::SubmittedDrained(last, Ok(job)) if job > last => {
                    let what = format!("job {job} is taken by a drained queue");
                    self.context.violate(Checker::DrainedQueueTakesNothing, what);
                }
                Told::Queue(facts) => {
                    self.clients.is_drained = facts.state.drained;
                    self.clients.is_paused = facts.state.paused;
                }
                Told::Archived(job, was_archived, Ok(found)) => {
                    if found.is_some() || was_archived {
                        self.check_archived_job(job, found.as_deref());
                    }
                }
                Told::Archived(job, _, Err(why)) => {
                    let what = format!("job {job} can't be read from the archive: {why}");
                    self.context.violate(Checker::ArchiveKeepsResult, what);
                }
                Told::Submitted(_, Err(_)) | Told::SubmittedDrained(..) | Told::Canceled(..) => {}
            }
        }
    }
}
