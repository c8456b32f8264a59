//! Keepers: one small process for each hook run, so that scripts, their limits and their results outlive the daemon.
//!
//! ```text
//! daemon: journals the call, makes the run's directory, starts the keeper
//! keeper: takes the lock, takes the request, reports begun, started, ended, ..., done; ends
//! daemon: reads the report as it grows, journals the answer, removes the directory
//! ```
//!
//! A keeper runs while it holds the lock of its directory: the kernel drops it with the process and names its holder,
//! so a daemon that starts needs no record of it, and it makes no difference at which moment the earlier one died. It
//! finds a whole report (the answer), a held lock (the run goes on and is followed), or neither: then it takes the
//! request away, so that a keeper which was started and did not come to the lock yet has nothing to run, ends what
//! is left of the scripts, and says that the call is lost.
//!
//! The daemon asks a keeper by SIGUSR1 to end its run and report that. Any other signal that ends processes (a machine
//! going down) ends the scripts too, but leaves no answer: nobody decided that the run should fail.

mod follow;
mod keepers;
mod place;
mod program;
mod report;
#[cfg(test)]
pub(crate) mod tests;

pub use keepers::{HookKeepers, KeeperProgram, KeepersConfig};
pub use place::KeeperError;
pub use program::keeper_main;
