//! Clients: they submit, submit again under the same request id, cancel, and remember what they were told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use muster_core::ops::{Op, PendingNode};
use muster_master::driver::{Command, Request};

use super::{check::Checker, world::Simulation};

/// How many requests a client may repeat.
const REQUESTS_MAX: usize = 8;

/// An answer that reached a client.
#[derive(Debug)]
pub(crate) enum Told {
    /// A submission's: request id and job.
    Submitted(String, Result<u64, String>),
    Canceled(u64, Result<String, String>),
}

/// A request as it may be repeated.
#[derive(Debug, Clone)]
struct Asked {
    request: String,
    op: Op,
    pending: Option<PendingNode>,
    dry_run: bool,
}

/// All clients together.
#[derive(Default)]
pub(crate) struct Clients {
    /// Where replies are put; the driver's may be sent between threads.
    told: Arc<Mutex<Vec<Told>>>,
    asked: Vec<Asked>,
    requests: u64,
    /// The job that each request was told to be.
    pub(crate) jobs: BTreeMap<String, u64>,
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
        if draw < 10 && !self.clients.jobs.is_empty() {
            let jobs: Vec<u64> = self.clients.jobs.values().copied().collect();
            // A young one more often than not.
            let young = jobs.len().saturating_sub(4);
            let job = *self.context.random.pick(&jobs[young..]);
            let told = self.clients.told.clone();
            self.context.log(|| format!("a client cancels job {job}"));
            let reply =
                move |answer| told.lock().expect("no holder panics").push(Told::Canceled(job, answer));
            return Command::Cancel(job, Box::new(reply));
        }
        let asked = if draw < 20 && !self.clients.asked.is_empty() {
            self.context.random.pick(&self.clients.asked).clone()
        } else {
            self.new_request()
        };
        self.context.log(|| format!("a client asks {} for {:?}", asked.request, asked.op));
        let told = self.clients.told.clone();
        let Asked { request, op, pending, dry_run } = asked;
        let named = request.clone();
        let reply = move |answer| told.lock().expect("no holder panics").push(Told::Submitted(named, answer));
        let request = Request {
            op,
            user: "sim".to_owned(),
            reason: "a simulation".to_owned(),
            dry_run,
            request_id: request,
            pending,
            new_cluster: None,
        };
        Command::Submit(Box::new(request), Box::new(reply))
    }

    fn new_request(&mut self) -> Asked {
        let (op, pending) = self.any_operation();
        self.clients.requests += 1;
        let request = format!("r{}", self.clients.requests);
        let asked = Asked { request, op, pending, dry_run: self.context.random.permille(30) };
        if self.clients.asked.len() >= REQUESTS_MAX {
            self.clients.asked.remove(0);
        }
        self.clients.asked.push(asked.clone());
        asked
    }

    /// Clients read what they were told.
    pub(crate) fn hear_replies(&mut self) {
        let told = std::mem::take(&mut *self.clients.told.lock().expect("no holder panics"));
        for told in told {
            self.context.log(|| format!("a client hears {told:?}"));
            match told {
                Told::Submitted(request, Ok(job)) => {
                    let first = *self.clients.jobs.entry(request.clone()).or_insert(job);
                    if first != job {
                        let what = format!("request {request} was job {first} and now is job {job}");
                        self.context.violate(Checker::RequestMakesOneJob, what);
                    }
                }
                Told::Canceled(job, Ok(text)) if text.ends_with("is canceled") => {
                    let ended = self.tracks.jobs.get(&job).and_then(|track| track.ended.clone());
                    if ended.as_ref().is_none_or(|(outcome, _)| outcome != "Canceled") {
                        let what = format!("a client hears that {text}, and it ended as {ended:?}");
                        self.context.violate(Checker::ResultSurvives, what);
                    }
                }
                Told::Submitted(_, Err(_)) | Told::Canceled(..) => {}
            }
        }
    }
}
