//! The black-box suites: `gnt` and other clients against real daemons, and the tidy checks of this repository.

mod ask;
mod certificates;
mod cluster;
mod devcluster;
mod dumps;
mod examples;
mod failpoints;
mod input;
mod operations;
mod python;
mod rules;
mod snapshot;
mod tidy;
