//! The master daemon: gRPC services for clients, the store, node channels, and the loop around the pure core.
//!
//! - [`driver`]: plain synchronous code around `core`'s engine, generic over store, clock and ids.
//! - [`shell`]: the thread that owns the driver, and the tasks that perform its effects.
//! - [`master`]: what all services share. [`office`]: how a daemon takes and gives up the office.
//! - [`services`]: what clients call. [`nodes`]: what goes to node daemons. [`store`], [`enrol`], [`ca`], [`pins`].
//! - `mirrors`: the keeper that repairs mirrors by itself. `fence`: the site's command that makes sure that a node is off.
//! - [`restore`]: a backup becomes the store of a master that does not run.

mod background;
pub mod ca;
pub mod config;
pub mod driver;
mod effects;
pub mod enrol;
pub(crate) mod events;
pub mod failpoint;
mod fence;
mod hex;
mod hookset;
pub mod host_facts;
mod job_log;
pub mod logging;
mod lost;
pub mod master;
mod master_calls;
mod mirrors;
pub mod nodes;
pub mod office;
pub mod pins;
pub mod restore;
pub mod serve;
pub mod services;
pub mod shell;
pub mod store;
mod takeover;
pub mod view;

/// The program's version, exchanged with nodes.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
