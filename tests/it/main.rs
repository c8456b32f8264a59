//! The black-box suites: `gnt` and other clients against real daemons, and the tidy checks of this repository.

#![expect(
    clippy::unwrap_used,
    reason = "all of this crate is test code, helpers outside of test functions too"
)]

mod ask;
mod certificates;
mod cluster;
mod corpus;
mod crashes;
mod devcluster;
mod dumps;
mod examples;
mod failpoints;
mod freeze;
mod groups_networks_tags;
mod guests;
mod hook_points;
mod hooks_history;
mod hooks_insight;
mod hooks_sync;
mod hooks_two_way;
mod hooksrv;
mod input;
mod instances;
mod keeper;
mod mirrors;
mod network;
mod node_commands;
mod node_facts;
mod operations;
mod operations_more;
mod oses;
mod python;
mod qemu;
mod queue;
mod rules;
mod simulation;
mod snapshot;
mod store_damage;
mod tidy;
mod verify;
