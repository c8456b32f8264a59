//! Daemons are killed again and again, at random moments and at the named failpoints, while clients submit operations; then all
//! heals, every job ends, and what the operator was promised is checked from outside.
//!
//! [`clients`] submit and remember what they were answered, [`killer`] kills, [`witness`] is an append-only log that hook scripts
//! write on the nodes, [`model`] replays the successful jobs, [`checks`] and [`disks`] compare.
//!
//! A test has fixed seeds; `MUSTER_SEED=N` gives it one other, and a failure prints the one to run again. The threads' order is
//! the machine's, so a seed repeats the load and the moments but not the run to the last instruction.

mod checks;
mod clients;
mod disks;
mod killer;
mod model;
mod run;
mod witness;

use run::{Kills, crash_run};

#[test]
fn nothing_is_lost_when_the_master_dies_at_random_moments() {
    crash_run(11, Kills::master(80));
}

#[test]
fn nothing_is_lost_when_the_master_dies_young_or_old() {
    crash_run(12, Kills { life_ms: (1, 1500), ..Kills::master(30) });
}

#[test]
fn nothing_is_lost_when_the_master_dies_at_its_failpoints() {
    crash_run(13, Kills { failpoints: true, ..Kills::master(80) });
}

#[test]
fn nothing_is_lost_when_node_daemons_die() {
    crash_run(14, Kills::nodes(100));
}

#[test]
fn nothing_is_lost_when_node_daemons_die_again_and_again() {
    crash_run(15, Kills { life_ms: (1, 150), ..Kills::nodes(100) });
}

#[test]
fn nothing_is_lost_when_masters_and_node_daemons_die_and_pause() {
    crash_run(16, Kills { master: true, pauses: true, ..Kills::nodes(60) });
}
