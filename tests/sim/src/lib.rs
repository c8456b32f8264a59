//! The simulator: the real engine, driver and call journal over a simulated network, disk, clock and nodes.
//!
//! One seed draws everything. In the safety phase clients ask for operations while daemons die and freeze, networks are
//! cut, commits are torn and disks are full; in the liveness phase all heals and every job must end. [`Checker`] names
//! the promises that are checked after every event; [`Mutation`] breaks each of them on purpose, to show that its
//! checker sees it.
//!
//! - `world`: one seed's everything, and its loop. `event`: what happens, in which order.
//! - `process`, `stops`, `office`, `channel`: the master daemon around the real driver. `disk`: under its store.
//! - `node`, `scripts`, `holdings`, `call_store`: a node around the real journals.
//! - `clients`, `operators`, `workload`, `faults`: what acts from outside.
//! - `tracks`, `witness`, `checks_jobs`, `checks_queue`, `checks_config`: the checkers and what they know.

mod call_store;
mod channel;
mod check;
mod checks_config;
mod checks_jobs;
mod checks_queue;
mod clients;
mod disk;
mod edges;
mod event;
mod faults;
mod holdings;
mod mutation;
mod node;
mod office;
mod operators;
mod process;
mod random;
mod run;
mod scripts;
mod stops;
mod tracks;
mod witness;
mod workload;
mod world;

pub use check::{Checker, Violation};
pub use mutation::{MUTATIONS, Mutation};
pub use random::Random;
pub use run::{Options, Report, Summary, first_caught, replay, run_seed, run_seeds};
