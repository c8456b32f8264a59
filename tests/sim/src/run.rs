//! Running seeds: one, with its event log if wanted, or many on all processors.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use super::{
    check::{Checker, Violation},
    mutation::Mutation,
    world::Simulation,
};

/// How a seed is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Events of the safety phase.
    pub events: u64,
    /// How often the master dies in a round of handling and committing, in a thousand.
    pub deaths_permille: u64,
    /// How often an act from outside is a fault, in a thousand.
    pub faults_permille: u64,
    /// Nodes carry out the calls of a job one after another, and none that comes by an older connection than the last
    /// that was greeted. They should; see `docs/found.md`.
    pub ordered_calls: bool,
    /// What is broken on purpose.
    pub mutation: Option<Mutation>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            events: 200,
            deaths_permille: 20,
            faults_permille: 150,
            ordered_calls: true,
            mutation: None,
        }
    }
}

/// What a seed came to.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Events that happened, both phases together.
    pub events: u64,
    /// Jobs that ended.
    pub jobs: u64,
    /// How they ended: operation and outcome, with their number.
    pub outcomes: BTreeMap<String, u64>,
    /// Runs of the master daemon.
    pub masters: u64,
    /// Deaths of the master and of node daemons.
    pub deaths: u64,
    /// Commits of the store.
    pub commits: u64,
    /// A number that a repeat of the seed gives too.
    pub digest: u64,
    /// The broken promise, if any.
    pub violation: Option<Violation>,
    /// The event log, where it was wanted.
    pub trace: Vec<String>,
}

/// Many seeds together.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// Their events.
    pub events: u64,
    /// Their jobs.
    pub jobs: u64,
    /// How those ended: operation and outcome, with their number.
    pub outcomes: BTreeMap<String, u64>,
    /// Their runs of the master daemon.
    pub masters: u64,
    /// Their deaths of the master and of node daemons.
    pub deaths: u64,
    /// Their commits.
    pub commits: u64,
    /// The first seeds that failed, lowest first.
    pub failures: Vec<Report>,
}

/// Runs a seed; a panic is given on with the seed's name.
pub fn run_seed(seed: u64, options: &Options) -> Report {
    let run = AssertUnwindSafe(|| Simulation::new(seed, options.clone(), false).run(seed));
    catch_unwind(run).unwrap_or_else(|cause| {
        let words = cause.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no words");
        panic!("seed {seed} panics: {words}")
    })
}

/// Runs a seed and keeps its event log.
pub fn replay(seed: u64, options: &Options) -> Report {
    Simulation::new(seed, options.clone(), true).run(seed)
}

/// The first of these seeds in which the checker sees the mutation.
pub fn first_caught(mutation: Mutation, checker: Checker, from: u64, count: u64) -> Option<Report> {
    let options = Options { mutation: Some(mutation), ..Options::default() };
    let seen =
        |report: &Report| report.violation.as_ref().is_some_and(|violation| violation.checker == checker);
    (from..from + count).map(|seed| run_seed(seed, &options)).find(seen)
}

/// Runs seeds on all processors, until `failures_max` of them have failed.
pub fn run_seeds(from: u64, count: u64, options: &Options, failures_max: usize) -> Summary {
    let next = AtomicU64::new(from);
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count {
                return;
            }
            let report = run_seed(seed, options);
            let mut summary = summary.lock().expect("no holder panics");
            summary.seeds += 1;
            summary.events += report.events;
            summary.jobs += report.jobs;
            summary.masters += report.masters;
            summary.deaths += report.deaths;
            summary.commits += report.commits;
            for (outcome, count) in &report.outcomes {
                *summary.outcomes.entry(outcome.clone()).or_default() += count;
            }
            if report.violation.is_some() {
                summary.failures.push(report);
                if summary.failures.len() >= failures_max {
                    next.store(from + count, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().expect("no holder panics");
    summary.failures.sort_by_key(|report| report.seed);
    summary
}
