//! The gRPC services for clients: they read the view, hand commands to the driver, and hold no rule of an operation.

mod backup;
mod caller;
mod command;
mod console;
mod explain;
mod groups;
mod history;
mod hook_runs;
mod hookset;
mod job;
mod operation;
mod oses;
mod query;
mod verify;
mod verify_busy;
mod verify_mirrors;
mod waiting;

pub use backup::Backups;
pub(crate) use command::AT_ONCE_MAX as COMMANDS_AT_ONCE_MAX;
pub use command::Commands;
pub(crate) use console::CONSOLES_MAX;
pub use hook_runs::HookRuns;
pub use hookset::HookSetsGrpc;
pub use job::Jobs;
pub use operation::Operations;
pub use query::Queries;
