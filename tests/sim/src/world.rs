//! A simulation: everything of one seed, and its loop over events.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc};

use muster_core::{edit::Touched, model::Cluster, names::NodeName, ops::examples};
use muster_master::store::{encode, keys, records_of};
use uuid::Uuid;

use super::{
    check::Checker,
    clients::Clients,
    disk::Disk,
    edges::SimIds,
    event::{Caller, Context, Event},
    holdings::Holdings,
    mutation::Mutation,
    node::SimNode,
    process::Process,
    run::{Options, Report},
    tracks::Tracks,
};

/// Hosts that run a node daemon; the cluster begins with three of them.
const HOSTS: usize = 5;
/// Events of the liveness phase: far more than a seed needs.
const LIVENESS_EVENTS_MAX: u64 = 30_000;
/// Simulated time of the liveness phase: beyond every limit that a job may wait for.
const LIVENESS_MS_MAX: u64 = 3 * 3_600_000;

/// Everything of one seed.
pub(crate) struct Simulation {
    pub(crate) context: Context,
    pub(crate) options: Options,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) boots_seen: Vec<u64>,
    pub(crate) disk: Rc<RefCell<Disk>>,
    pub(crate) ids: SimIds,
    pub(crate) process: Option<Process>,
    /// A master that was taken for dead.
    pub(crate) zombie: Option<Process>,
    pub(crate) incarnations: u64,
    pub(crate) connections: u64,
    pub(crate) clients: Clients,
    pub(crate) tracks: Tracks,
    /// The configuration as clients have seen it last.
    pub(crate) seen: Cluster,
    /// Guests that went with the power of their node.
    pub(crate) guests_lost: BTreeSet<Uuid>,
    events: u64,
    /// Deaths of daemons, the master's and the nodes'.
    pub(crate) deaths: u64,
}

impl Simulation {
    pub(crate) fn new(seed: u64, options: Options, with_trace: bool) -> Self {
        let cluster = examples::cluster();
        let mut records = muster_master::store::Records::new();
        records.extend(records_of(Some(&cluster), [&Touched::All]).puts);
        records.insert(keys::EPOCH.to_owned(), encode(&1_u64));
        let node = |id: usize| {
            let name = NodeName::parse(&format!("node{}", id + 1)).expect("this name is good");
            let holdings = Holdings::of(&cluster, &name);
            SimNode::new(id, name, seed, options.ordered_calls, holdings)
        };
        let few_ids = options.mutation == Some(Mutation::RepeatsIds);
        Simulation {
            context: Context::new(seed, options.mutation, with_trace),
            nodes: (0..HOSTS).map(node).collect(),
            boots_seen: vec![1; HOSTS],
            disk: Rc::new(RefCell::new(Disk::new(records, seed ^ 0x5eed, options.mutation))),
            ids: SimIds::new(seed ^ 0x1d5, few_ids),
            process: None,
            zombie: None,
            incarnations: 0,
            connections: 0,
            clients: Clients::default(),
            tracks: Tracks::default(),
            seen: cluster,
            guests_lost: BTreeSet::new(),
            events: 0,
            deaths: 0,
            options,
        }
    }

    /// Both phases, to the first broken promise or to the end.
    pub(crate) fn run(mut self, seed: u64) -> Report {
        self.context.after(0, Event::MasterStarts);
        self.context.after(10, Event::Act);
        while self.events < self.options.events && self.step() {}
        if self.context.violation.is_none() {
            self.heal_all();
            self.run_to_end();
        }
        Report {
            seed,
            events: self.events,
            jobs: self.tracks.finished_count(),
            outcomes: std::mem::take(&mut self.tracks.outcomes),
            masters: self.incarnations,
            deaths: self.deaths,
            commits: self.disk.borrow().commits(),
            digest: self.context.digest(),
            violation: self.context.violation.take(),
            trace: self.context.take_trace(),
        }
    }

    /// Lets the next event happen; false when there is none or a promise is broken.
    fn step(&mut self) -> bool {
        let Some(event) = self.context.next_event() else { return false };
        self.events += 1;
        self.happen(event);
        self.check_all();
        self.context.violation.is_none()
    }

    fn happen(&mut self, event: Event) {
        let present = self.process.as_ref().map_or(0, |process| process.incarnation);
        let of_present = |incarnation: u64| incarnation == present;
        match event {
            Event::Act => self.act(),
            Event::Flush(of) if of_present(of) => self.flush(),
            Event::Dial(of, task) if of_present(of) => self.dial(task),
            Event::DialFailed(of, task) if of_present(of) => self.dial_failed(task),
            Event::Watch(of, node) if of_present(of) => self.watch(node),
            Event::LinkLost(of, node, connection) if of_present(of) => self.link_lost(node, connection),
            Event::MasterWork(of, task) if of_present(of) => self.master_work(task),
            Event::Tick(of) if of_present(of) => self.tick(),
            Event::StopLimit(of, stop) if of_present(of) => self.stop_limit(stop),
            Event::Flush(_)
            | Event::Dial(..)
            | Event::DialFailed(..)
            | Event::Watch(..)
            | Event::LinkLost(..)
            | Event::MasterWork(..)
            | Event::StopLimit(..)
            | Event::Tick(_) => {}
            Event::Deliver(delivery) => self.deliver(delivery),
            Event::Reply(node, caller, answer) => self.reply(node, caller, answer),
            Event::RunEnds(node, boot, wire) => self.run_ends(node, boot, wire),
            Event::JobEnds(node, boot, caller, job, until_ms) => {
                self.job_ends(node, boot, caller, job, until_ms)
            }
            Event::MasterStarts => self.start_master(),
            Event::NodeStarts(node) => self.node_starts(node),
            Event::Thaws(node) => self.thaw(node),
            Event::Heals(node) => self.heal(node),
            Event::ZombieActs => self.zombie_acts(),
        }
    }

    fn act(&mut self) {
        if self.context.random.permille(self.options.faults_permille) {
            self.fault_acts();
        } else {
            self.client_acts();
        }
        let delay_ms = match self.context.random.below(10) {
            0..6 => self.context.random.range(1, 200),
            6..9 => self.context.random.range(200, 3_000),
            _ => self.context.random.range(3_000, 30_000),
        };
        self.context.after(delay_ms, Event::Act);
    }

    fn run_ends(&mut self, node: usize, boot: u64, wire: String) {
        if self.nodes[node].frozen && self.nodes[node].boot == boot {
            // A stopped daemon sees its children's ends when it goes on.
            return self.context.after(500, Event::RunEnds(node, boot, wire));
        }
        self.nodes[node].run_ends(boot, &wire, &mut self.context);
        self.see_boot();
    }

    fn stop_limit(&mut self, stop: u64) {
        if let Some(process) = &mut self.process {
            process.stop_limit(stop, &mut self.context);
        }
    }

    fn job_ends(&mut self, node: usize, boot: u64, caller: Caller, job: u64, until_ms: u64) {
        if self.nodes[node].frozen && self.nodes[node].boot == boot {
            return self.context.after(500, Event::JobEnds(node, boot, caller, job, until_ms));
        }
        self.nodes[node].job_ends(boot, caller, job, until_ms, &mut self.context);
    }

    /// All is well: every job ends, what jobs left undone is repaired, and then nothing is left that nobody knows of.
    fn run_to_end(&mut self) {
        self.run_to_rest();
        if self.context.violation.is_none() && self.ask_repairs() {
            self.run_to_rest();
        }
        if self.context.violation.is_none() {
            self.check_rest();
        }
    }

    fn run_to_rest(&mut self) {
        let (events_end, time_end) =
            (self.events + LIVENESS_EVENTS_MAX, self.context.now() + LIVENESS_MS_MAX);
        while !self.is_at_rest() {
            if self.events >= events_end || self.context.now() >= time_end {
                return self.violate_by_unrest();
            }
            if !self.step() {
                if self.context.violation.is_none() && !self.is_at_rest() {
                    self.violate_by_unrest();
                }
                return;
            }
        }
    }

    fn violate_by_unrest(&mut self) {
        let what = self.describe_unrest();
        let engine = self.process.as_ref().map(|process| process.driver.engine());
        let is_blocked = engine.is_some_and(|engine| engine.blocked().next().is_some());
        let checker = if is_blocked { Checker::BlockedJobEnds } else { Checker::EveryJobEnds };
        self.context.violate(checker, what);
    }

    fn is_at_rest(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let is_quiet = process.inbox.is_empty() && process.tasks.is_empty() && !process.flush_due;
        is_quiet
            && process.driver.engine().alive().next().is_none()
            && process.driver.engine().blocked().next().is_none()
            && self.nodes.iter().all(|node| node.up && node.is_idle())
            && process.cluster.iter().all(|cluster| {
                let is_away = |call: &muster_core::calls::Call| {
                    call.node().and_then(|node| cluster.nodes.get(node)).is_none_or(|node| node.offline)
                };
                cluster.cleanups.values().all(|cleanup| is_away(&cleanup.call))
            })
    }

    fn describe_unrest(&self) -> String {
        let Some(process) = &self.process else { return "no master runs".to_owned() };
        let jobs: Vec<String> = process
            .driver
            .engine()
            .jobs()
            .filter(|job| !job.done())
            .map(|job| format!("{} {} in {}", job.id(), job.summary(), job.phase.as_str()))
            .collect();
        let busy: Vec<&str> = self
            .nodes
            .iter()
            .filter(|node| !node.is_idle() || !node.up)
            .map(|node| node.name.as_str())
            .collect();
        let cleanups = process.cluster.as_ref().map(|cluster| format!("{:?}", cluster.cleanups));
        format!("jobs {jobs:?}, tasks {:?}, busy nodes {busy:?}, cleanups {cleanups:?}", process.tasks)
    }
}
