//! The gRPC services for clients: they read the view, hand commands to the driver, and hold no rule of an operation.

mod backup;
mod caller;
mod console;
mod explain;
mod job;
mod operation;
mod oses;
mod query;
mod verify;
mod verify_mirrors;
mod waiting;

pub use backup::Backups;
pub(crate) use console::CONSOLES_MAX;
pub use job::Jobs;
pub use operation::Operations;
pub use query::Queries;
