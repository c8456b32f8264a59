//! Keeps the last known state of a node: subscribes to it, and again after a loss.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use muster_proto::v1;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use super::{client::NodeClient, limits::words, link::Link, trouble::CallError};

impl NodeClient {
    /// The last state that the node pushed, and how old it is.
    pub fn state(&self) -> Option<(Arc<v1::NodeState>, Duration)> {
        self.seen().state.as_ref().map(|(state, arrived)| (state.clone(), arrived.elapsed()))
    }

    /// Why the node can't be reached, as of the last attempt.
    pub fn not_reached(&self) -> Option<String> {
        self.seen().trouble.clone()
    }

    /// What the node said of itself when it was last greeted.
    pub fn info(&self) -> Option<super::NodeInfo> {
        self.seen().info.clone()
    }

    /// How often the node was connected to.
    pub fn connections(&self) -> u64 {
        *self.inner.ups.borrow()
    }

    /// Asks for the node's state now.
    ///
    /// # Errors
    /// When there is no answer within `limit`, a connection included.
    pub async fn fresh_state(&self, limit: Duration) -> Result<Arc<v1::NodeState>, CallError> {
        let ask = async {
            match self.fresh_state_once().await {
                // The connection may have been an old one.
                Err(CallError::NotReached(_)) => self.fresh_state_once().await,
                ended => ended,
            }
        };
        let silent = |_| CallError::NotReached(format!("no answer within {}", words(limit)));
        timeout(limit, ask).await.map_err(silent)?
    }

    async fn fresh_state_once(&self) -> Result<Arc<v1::NodeState>, CallError> {
        let link = self.link().await?;
        let asked = async {
            let mut states = self.subscribe(&link, true).await?;
            self.next_state(&link, &mut states).await
        };
        asked.await.inspect_err(|error| self.lost_if_not_reached(&link, error))
    }

    /// Watches the node until it is stopped.
    pub(super) async fn watch(self, stop: CancellationToken) {
        let mut ups = self.inner.ups.subscribe();
        let mut resets = self.inner.resets.subscribe();
        let mut failures = 0;
        loop {
            resets.mark_unchanged();
            let watched = tokio::select! {
                () = stop.cancelled() => return,
                // The old connection is not to be used any more, so the watch makes the new one.
                _ = resets.changed() => continue,
                watched = self.watch_once() => watched,
            };
            let (states, error) = watched;
            failures = if states > 0 { 0 } else { failures + 1 };
            let pause = pause(self.name().as_str(), failures, self.inner.shared.limits().watch_pause);
            tracing::debug!(node = %self.name(), %error, ?pause, "the watch ended");
            // Somebody else's connection made meanwhile shows that the node is back.
            ups.mark_unchanged();
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
                _ = ups.changed() => {}
            }
        }
    }

    /// Takes in states until there are no more; returns how many, and why it ended.
    async fn watch_once(&self) -> (u64, CallError) {
        let mut count = 0;
        let link = match self.link().await {
            Ok(link) => link,
            Err(error) => return (count, error),
        };
        let mut states = match self.subscribe(&link, false).await {
            Ok(states) => states,
            Err(error) => {
                self.lost_if_not_reached(&link, &error);
                return (count, error);
            }
        };
        loop {
            match self.next_state(&link, &mut states).await {
                Ok(_) => count += 1,
                Err(error) => {
                    self.lost_if_not_reached(&link, &error);
                    return (count, error);
                }
            }
        }
    }

    async fn subscribe(
        &self,
        link: &Link,
        refresh_host: bool,
    ) -> Result<Streaming<v1::NodeState>, CallError> {
        let request = v1::WatchRequest { context: Some(self.inner.shared.context()), refresh_host };
        let states = link.agent().watch(request).await.map_err(|status| self.inner.shared.error(&status))?;
        Ok(states.into_inner())
    }

    async fn next_state(
        &self,
        link: &Link,
        states: &mut Streaming<v1::NodeState>,
    ) -> Result<Arc<v1::NodeState>, CallError> {
        let error = |status| self.inner.shared.error_after(link.idle(), &status);
        let state = states.message().await.map_err(error)?;
        // A daemon that ends the stream is about to end itself.
        let state =
            state.ok_or_else(|| CallError::NotReached("connection lost: the answer broke off".to_owned()))?;
        let state = Arc::new(state);
        link.answered();
        let old = {
            let mut seen = self.seen();
            // The watch and whoever asks for a fresh state hear of it at the same time: one that took long to gather does
            // not take the newer one's place.
            if !link.is_newest(&state) {
                return Ok(state);
            }
            seen.hook_set = Some(super::UsedSet { digest: state.hook_set.clone() });
            seen.state.replace((state.clone(), Instant::now()))
        };
        (self.inner.shared.settings.host_told)(self.name(), &state);
        if old.is_none_or(|(old, _)| mirrors_differ(&old, &state)) {
            self.inner.shared.mirrors_changed.notify_one();
        }
        Ok(state)
    }

    fn lost_if_not_reached(&self, link: &Arc<Link>, error: &CallError) {
        if let CallError::NotReached(reason) = error {
            self.lost(link, reason);
        }
    }
}

/// Whether a mirror does something else now, or its guest does. How far it is does not matter.
fn mirrors_differ(old: &v1::NodeState, new: &v1::NodeState) -> bool {
    fn said(state: &v1::NodeState) -> impl Iterator<Item = (&str, i32, &str, i32)> {
        state.guests.iter().flat_map(|guest| {
            let mirrors = guest.mirrors.iter();
            mirrors.map(|mirror| (&*guest.instance_uuid, guest.state, &*mirror.copy_uuid, mirror.status))
        })
    }
    !said(old).eq(said(new))
}

/// The pause before the next attempt: doubled with each failure, and a quarter more or less by the node's name, so
/// that nodes lost together do not all come back at the same moment.
fn pause(name: &str, failures: u32, (shortest, longest): (Duration, Duration)) -> Duration {
    let doubled = shortest.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    let hash = name.bytes().fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    // 768 to 1279 parts of 1024.
    doubled.min(longest) * (768 + hash % 512) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mirror_does_counts_and_not_how_far_it_is() {
        let state = |status: v1::MirrorStatus, done_bytes| {
            let mirror = v1::MirrorState { status: status.into(), done_bytes, ..v1::MirrorState::default() };
            let guest = v1::GuestState { mirrors: vec![mirror], ..v1::GuestState::default() };
            v1::NodeState { guests: vec![guest], now_ms: done_bytes, ..v1::NodeState::default() }
        };
        let (syncing, ready) = (v1::MirrorStatus::Syncing, v1::MirrorStatus::Ready);
        assert!(!mirrors_differ(&state(syncing, 1), &state(syncing, 2)));
        assert!(mirrors_differ(&state(syncing, 2), &state(ready, 2)));
        assert!(mirrors_differ(&state(ready, 2), &v1::NodeState::default()));
    }

    #[test]
    fn pauses_grow_to_their_bound_and_differ_by_name() {
        let limits = (Duration::from_secs(1), Duration::from_secs(10));
        let within = |pause: Duration, middle: u64| {
            let (low, high) = (Duration::from_millis(middle * 3 / 4), Duration::from_millis(middle * 5 / 4));
            assert!(low <= pause && pause <= high, "{pause:?} is not around {middle} ms");
        };
        for (failures, middle) in
            [(0, 1000), (1, 1000), (2, 2000), (4, 8000), (5, 10_000), (u32::MAX, 10_000)]
        {
            within(pause("node1", failures, limits), middle);
        }
        assert_ne!(pause("node1", 1, limits), pause("node2", 1, limits));
        assert_eq!(pause("node1", 3, limits), pause("node1", 3, limits));
    }
}
