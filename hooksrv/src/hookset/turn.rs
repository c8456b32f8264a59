//! The turn to change a node's sets: whatever becomes of who had it, what it left behind is removed before the next one.

use std::sync::Arc;

use muster_core::hooks::Digest;
use tokio::{
    sync::OwnedMutexGuard,
    task::{JoinHandle, spawn_blocking},
};

use super::HookSets;
use crate::agent::words;

/// Held by a session and by the threads that work for it: its caller may go away in the middle.
pub(super) struct Turn {
    sets: Arc<HookSets>,
    /// What is tried; its files stay until the next one ends, should it come again.
    tried: Digest,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turn {
    pub(super) fn new(sets: Arc<HookSets>, tried: Digest, held: OwnedMutexGuard<()>) -> Self {
        Turn { sets, tried, held: Some(held) }
    }

    /// Removes what is of no use any more, then lets the next one have the turn.
    pub(super) async fn end(mut self, keeps_tried: bool) {
        if let Some(ending) = self.ending(keeps_tried) {
            // A thread that panicked has given the turn back as well.
            drop(ending.await);
        }
    }

    fn ending(&mut self, keeps_tried: bool) -> Option<JoinHandle<()>> {
        let held = self.held.take()?;
        let (sets, tried) = (Arc::clone(&self.sets), keeps_tried.then_some(self.tried));
        Some(spawn_blocking(move || {
            prune(&sets, tried);
            drop(held);
        }))
    }
}

impl Drop for Turn {
    /// Nobody waits for the end: the caller went away, or this daemon stops.
    fn drop(&mut self) {
        drop(self.ending(true));
    }
}

/// What can't be removed is no reason to say that a set is not in use.
fn prune(sets: &HookSets, tried: Option<Digest>) {
    if let Err(error) = sets.prune(tried) {
        tracing::warn!(error = words(&error), "old hook sets could not be removed");
    }
}

/// Removes what an earlier daemon left, before this one serves.
pub(crate) async fn prune_at_start(sets: Arc<HookSets>) {
    if let Err(error) = spawn_blocking(move || prune(&sets, None)).await {
        tracing::warn!(%error, "old hook sets were not looked over");
    }
}
