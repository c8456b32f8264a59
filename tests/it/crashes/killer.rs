//! Kills daemons and starts them again.

use std::time::{Duration, Instant};

use muster_tests::sim::Random;

use super::run::Kills;
use crate::cluster::{Cluster, devcluster_program, run, wait_until};

/// Passes of a failpoint before it kills, at most: a later one finds the jobs in other states.
const PASSES_MAX: u64 = 6;
/// A failpoint that is not passed within this is given up, and the master is killed from outside.
const PASS_LIMIT: Duration = Duration::from_millis(1500);
/// A killed node daemon stays away at most this long.
const AWAY_MS_MAX: u64 = 200;
/// A pause is far below the limits after which a silent daemon is given up.
const PAUSE_MS_MAX: u64 = 1000;
/// Nodes of the cluster.
pub(super) const NODES: u32 = 3;

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Killed {
    pub(super) masters: u32,
    /// Of these, at a failpoint.
    pub(super) at_failpoints: u32,
    pub(super) nodes: u32,
    pub(super) pauses: u32,
    /// Time that starting masters took, all in all.
    pub(super) starting: Duration,
}

/// Kills until the plan is done; in the end every daemon serves.
pub(super) fn kill(cluster: &Cluster, seed: u64, plan: &Kills) -> Killed {
    let mut random = Random::new(seed);
    let mut killed = Killed::default();
    let points = if plan.failpoints { failpoints() } else { Vec::new() };
    let mut round = random.index(points.len().max(1));
    while killed.masters + killed.nodes < plan.count {
        let draw = random.below(100);
        if plan.pauses && draw < 20 {
            pause(cluster, &mut random, &mut killed);
        } else if plan.nodes && plan.master && draw < 40 {
            kill_both(cluster, plan, &mut random, &mut killed);
        } else if plan.nodes && (!plan.master || draw < 70) {
            kill_node(cluster, plan, &mut random, &mut killed);
        } else if points.is_empty() {
            let (low, high) = plan.life_ms;
            a_while(random.range(low, high));
            cluster.devcluster(&["kill", "master"]).exits(0);
            killed.masters += 1;
            start_master(cluster, &mut killed);
        } else {
            round += 1;
            let point = &points[round % points.len()];
            kill_at(cluster, &format!("{point}:{}", random.range(1, PASSES_MAX)), &mut killed);
        }
    }
    killed
}

/// Lets a random time pass: the moment of a kill is what these tests vary.
fn a_while(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

fn failpoints() -> Vec<String> {
    let mut command = std::process::Command::new(devcluster_program().with_file_name("muster-masterd"));
    command.arg("--failpoints");
    let text = run(command).exits(0).stdout;
    text.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn start_master(cluster: &Cluster, killed: &mut Killed) {
    let begun = Instant::now();
    cluster.devcluster(&["start", "master"]).exits(0);
    killed.starting += begun.elapsed();
}

/// The master that serves is killed, its successor dies at the failpoint, and the next one serves again.
fn kill_at(cluster: &Cluster, point: &str, killed: &mut Killed) {
    cluster.devcluster(&["kill", "master"]).exits(0);
    killed.masters += 1;
    let mut armed = cluster.devcluster_command(&["start", "master"]);
    armed.env("MUSTER_FAILPOINT", point);
    // A point on the way to serving kills the master before it can be seen to serve.
    let started = run(armed).status.success();
    if started && !wait_until(PASS_LIMIT, || !cluster.master_lives()) {
        // It may pass the point in this very moment.
        let _ = cluster.devcluster(&["kill", "master"]);
    } else {
        killed.at_failpoints += 1;
    }
    killed.masters += 1;
    start_master(cluster, killed);
}

fn kill_node(cluster: &Cluster, plan: &Kills, random: &mut Random, killed: &mut Killed) {
    let node = format!("node{}", random.range(1, u64::from(NODES)));
    let (low, high) = plan.life_ms;
    a_while(random.range(low, high));
    cluster.devcluster(&["kill", &node]).exits(0);
    killed.nodes += 1;
    a_while(random.below(AWAY_MS_MAX));
    cluster.devcluster(&["start", &node]).exits(0);
}

/// The next master begins while a node is away.
fn kill_both(cluster: &Cluster, plan: &Kills, random: &mut Random, killed: &mut Killed) {
    let node = format!("node{}", random.range(1, u64::from(NODES)));
    let (low, high) = plan.life_ms;
    a_while(random.range(low, high));
    cluster.devcluster(&["kill", &node]).exits(0);
    cluster.devcluster(&["kill", "master"]).exits(0);
    killed.masters += 1;
    killed.nodes += 1;
    start_master(cluster, killed);
    a_while(random.below(AWAY_MS_MAX));
    cluster.devcluster(&["start", &node]).exits(0);
}

fn pause(cluster: &Cluster, random: &mut Random, killed: &mut Killed) {
    let daemon = (*random.pick(&["node1", "node2", "node3", "master"])).to_owned();
    cluster.devcluster(&["pause", &daemon]).exits(0);
    a_while(random.range(10, PAUSE_MS_MAX));
    cluster.devcluster(&["resume", &daemon]).exits(0);
    killed.pauses += 1;
}
