//! How the rest of the master has records written: the thread of the driver owns the store.

use super::batch::Batch;

/// The driver is ending; whether the records were written is for the next start to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the master is stopping; nothing more is recorded")]
pub struct WriteError;

/// Has records written by whoever owns the store.
///
/// A write waits its turn behind those before it; its limit is the life of the owner, which ends at the first error of
/// the store.
#[tonic::async_trait]
pub trait RecordWriter: Send + Sync + 'static {
    /// Returns when the batch is durable.
    async fn write(&self, batch: Batch) -> Result<(), WriteError>;
}
