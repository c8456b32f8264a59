//! One run: load and kills, then rest, then the checks.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_proto::v1;

use super::clients::{NAMES, Submitted, client};
use super::killer::{Killed, NODES, kill};
use super::{checks, disks, model, witness};
use crate::ask::is_ended;
use crate::cluster::{Cluster, STATE_LIMIT, wait_until};

/// What is killed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kills {
    pub(super) count: u32,
    pub(super) master: bool,
    pub(super) nodes: bool,
    /// Daemons are stopped for a moment too.
    pub(super) pauses: bool,
    /// The master dies at its named failpoints rather than at a random moment.
    pub(super) failpoints: bool,
    /// How long a daemon serves before one is killed, at least and at most.
    pub(super) life_ms: (u64, u64),
}

impl Kills {
    pub(super) fn master(count: u32) -> Self {
        let life_ms = (5, 500);
        Kills { count, master: true, nodes: false, pauses: false, failpoints: false, life_ms }
    }

    pub(super) fn nodes(count: u32) -> Self {
        Kills { master: false, nodes: true, ..Kills::master(count) }
    }
}

const CLIENTS: u64 = 8;
/// What is left of the load ends within this when nothing is killed any more, also on a slow machine.
const REST_LIMIT: Duration = Duration::from_secs(240);
/// A cleanup that failed is tried again within half a minute.
const CLEANUP_LIMIT: Duration = Duration::from_secs(75);
/// With full counts there are this many times more kills.
const LONG: u32 = 5;

/// Says how to run a failed seed again, also when a check panics.
struct SeedGuard(u64);

impl Drop for SeedGuard {
    #[expect(clippy::print_stderr, reason = "what a failed test shows")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "seed {0}; to run it again: MUSTER_SEED={0} cargo nextest run -p muster-tests crashes",
                self.0
            );
        }
    }
}

/// Ends the load also when the killer panics: the clients are joined before the panic goes on.
struct StopGuard<'a>(&'a AtomicBool);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Load and kills, then the checks.
#[expect(clippy::print_stderr, reason = "the numbers of the run")]
pub(super) fn crash_run(seed: u64, mut plan: Kills) {
    let seed =
        std::env::var("MUSTER_SEED").ok().map_or(seed, |text| text.parse().expect("MUSTER_SEED is a number"));
    if std::env::var_os("MUSTER_TEST_LONG").is_some() {
        plan.count *= LONG;
    }
    let guard = SeedGuard(seed);
    let cluster = Cluster::up(NODES);
    witness::install(&cluster, NODES, seed);
    let (before, made) = (configuration(&cluster), cluster.jobs());
    let begun = Instant::now();
    let (killed, submitted) = load(&cluster, seed, &plan);
    let killing = begun.elapsed();
    let mut jobs = rest(&cluster);
    jobs.retain(|id, _| made.iter().all(|job| job.id != *id));
    eprintln!(
        "seed {seed}: {killed:?} in {killing:?}, rest after {:?}; jobs: {}",
        begun.elapsed(),
        outcomes(&jobs)
    );
    let seen = checks::Seen { submitted, jobs, runs: witness::runs(&cluster, NODES), nodes_died: plan.nodes };
    eprintln!("{} runs of scripts; beyond their job's end: {:?}", seen.runs.len(), checks::outlived(&seen));
    let mut findings = checks::all(&seen);
    let jobs: Vec<v1::Job> = seen.jobs.into_values().collect();
    match model::replay(before, &jobs) {
        Ok(wanted) => {
            let found = configuration(&cluster);
            if found != wanted {
                findings
                    .push(format!("the configuration is\n{found:#?}\nand by its jobs it were\n{wanted:#?}"));
            }
        }
        Err(finding) => findings.push(finding),
    }
    findings.extend(nodes_differ(&cluster, &jobs));
    findings.extend(scripts_left(&cluster));
    findings.extend(locks_left(&cluster));
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n\n"));
    drop(guard);
}

fn configuration(cluster: &Cluster) -> model::Config {
    model::found(&cluster.instances(), &cluster.exports(), &cluster.nodes(), &cluster.info())
}

fn load(cluster: &Cluster, seed: u64, plan: &Kills) -> (Killed, Vec<Submitted>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let guard = StopGuard(&stop);
        let stop = &stop;
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(cluster, number, seed, stop))).collect();
        let killed = kill(cluster, seed, plan);
        drop(guard);
        (
            killed,
            clients
                .into_iter()
                .flat_map(|client| client.join().expect("the client has no complaint"))
                .collect(),
        )
    })
}

/// All daemons live: every job ends. Gives the jobs with everything.
fn rest(cluster: &Cluster) -> BTreeMap<u64, v1::Job> {
    let mut open = Vec::new();
    let ended = wait_until(REST_LIMIT, || {
        open = cluster.jobs().into_iter().filter(|job| !is_ended(job)).collect();
        open.is_empty()
    });
    assert!(ended, "not over {REST_LIMIT:?} after the last kill: {open:#?}");
    cluster.jobs().into_iter().map(|job| (job.id, cluster.job(job.id))).collect()
}

fn outcomes(jobs: &BTreeMap<u64, v1::Job>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for job in jobs.values() {
        let kind = job.error.as_ref().map(|error| error.kind().as_str_name().to_owned());
        *counts.entry(kind.unwrap_or_else(|| job.status().as_str_name().to_owned())).or_default() += 1;
    }
    let repeated = jobs.values().filter(|job| job.log.iter().any(|line| line.text.contains("restarted")));
    format!("{counts:?}, {} of them went on under another master", repeated.count())
}

/// Only a failed undo may leave a difference, and its job's repair takes that away.
#[expect(clippy::print_stderr, reason = "what an operator would have to see to")]
fn nodes_differ(cluster: &Cluster, jobs: &[v1::Job]) -> Vec<String> {
    let undos: Vec<v1::FailedUndo> = jobs.iter().flat_map(|job| job.failed_undos.clone()).collect();
    let mut findings = differences(cluster, &undos);
    let is_open = |job: &v1::Job| job.failed_undos.iter().any(|undo| !undo.made_good);
    for job in jobs.iter().filter(|job| is_open(job)) {
        // The repair of another job may have done the same.
        if !is_open(&cluster.job(job.id)) {
            continue;
        }
        eprintln!("job {} ({}) left {:?}", job.id, job.summary, job.failed_undos);
        let repair = cluster.job_end(cluster.submit(&format!("job repair {}", job.id)));
        if repair.status() != v1::JobStatus::Success {
            findings.push(format!("the repair of job {}: {}", job.id, checks::Brief(&repair)));
        }
    }
    findings.extend(differences(cluster, &[]));
    let mut output = String::new();
    let clean = wait_until(STATE_LIMIT, || {
        let verify = cluster.gnt("cluster verify");
        output = verify.to_string();
        verify.status.success()
    });
    findings.extend((!clean).then_some(output));
    findings
}

/// Waits for cleanups, which are tried again now and then, until nothing differs but what failed undos explain.
#[expect(clippy::print_stderr, reason = "what an operator would have to see to")]
fn differences(cluster: &Cluster, undos: &[v1::FailedUndo]) -> Vec<String> {
    let is_explained = |difference: &disks::Difference| undos.iter().any(|undo| difference.is_of_undo(undo));
    let (mut left, mut explained) = (Vec::new(), Vec::new());
    wait_until(CLEANUP_LIMIT, || {
        (explained, left) = disks::differences(cluster, NODES).into_iter().partition(is_explained);
        left.is_empty()
    });
    for difference in explained {
        eprintln!("{difference} (a failed undo)");
    }
    left.iter().map(ToString::to_string).collect()
}

/// Processes of scripts, known by their environment.
fn scripts_left(cluster: &Cluster) -> Vec<String> {
    let mark = format!("GANETI_DATA_DIR={}/", cluster.dir().display()).into_bytes();
    let mut left = Vec::new();
    wait_until(STATE_LIMIT, || {
        left = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| script_in(&entry.ok()?.path(), &mark))
            .collect();
        left.is_empty()
    });
    left
}

fn script_in(process: &std::path::Path, mark: &[u8]) -> Option<String> {
    let environ = fs::read(process.join("environ")).ok()?;
    environ.split(|byte| *byte == 0).find(|entry| entry.starts_with(mark))?;
    let line = String::from_utf8_lossy(&fs::read(process.join("cmdline")).ok()?).replace('\0', " ");
    Some(format!("a script is left: {} {line}", process.display()))
}

/// A fresh operation on every object goes through: nobody holds its lock.
fn locks_left(cluster: &Cluster) -> Vec<String> {
    let mut findings = Vec::new();
    let mut try_one = |line: &str| {
        let job = cluster.job_end(cluster.submit(line));
        if job.status() != v1::JobStatus::Success {
            findings.push(format!("{line}: {}", checks::Brief(&job)));
        }
    };
    try_one("cluster modify --hook-timeout-max 7200s");
    for node in 1..=NODES {
        try_one(&format!("node modify --drained no node{node}"));
    }
    for name in NAMES {
        if cluster.instances().iter().any(|instance| instance.name == name) {
            try_one(&format!("instance remove -f {name}"));
        }
        try_one(&format!("instance add -t diskless -n node1 -o none --no-start {name}"));
    }
    findings
}
