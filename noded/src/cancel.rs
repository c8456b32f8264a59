//! Tells a backend that blocks in a call to give up.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How a call's answer begins that was ended by the master.
pub(crate) const ENDED: &str = "ended at the request of the master";

/// How often one that waits otherwise looks: short for people, long for processors.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// Whether a call is to end, for those that block. Cheap to clone; clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

/// The call was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

impl Cancel {
    /// Tells the call to end.
    pub fn cancel(&self) {
        *self.0.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }

    /// Whether the call was told to end.
    pub fn is_cancelled(&self) -> bool {
        *self.0.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Comes soon after the call was told to end.
    pub(crate) async fn told(&self) {
        while !self.is_cancelled() {
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }

    /// Waits for a while. Blocks.
    ///
    /// # Errors
    /// At once when the call is told to end, or was before.
    pub fn wait(&self, duration: Duration) -> Result<(), Cancelled> {
        let start = Instant::now();
        let mut cancelled = self.0.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        while !*cancelled {
            let Some(left) = duration.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(());
            };
            let waited = self.0.changed.wait_timeout(cancelled, left);
            cancelled = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Err(Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_time_or_when_it_is_told_to() {
        let cancel = Cancel::default();
        assert_eq!(cancel.wait(Duration::from_millis(2)), Ok(()));
        let waiting = std::thread::spawn({
            let cancel = cancel.clone();
            move || cancel.wait(Duration::from_secs(3600))
        });
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), Err(Cancelled));
        assert_eq!(cancel.wait(Duration::ZERO), Err(Cancelled), "also what begins later");
        assert!(cancel.is_cancelled());
    }
}
