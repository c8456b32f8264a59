//! The gRPC services for clients: they read the view, hand commands to the driver, and hold no rule of an operation.

mod backup;
mod caller;
mod job;
mod operation;
mod query;
mod verify;
mod waiting;

pub use backup::Backups;
pub use job::Jobs;
pub use operation::Operations;
pub use query::Queries;
