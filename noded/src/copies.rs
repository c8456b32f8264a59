//! The copies of images that go on here, by job, so that a job's end ends them.
//!
//! They are no journaled calls: a copy that broke off is made again from its start.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use muster_core::calls::AliveJobs;
use muster_hooksrv::{
    CallError, CallId,
    agent::{Ended, Runs},
};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::cancel::ENDED;

/// How long the end of copies is awaited: a piece of 1 MiB, and the disk's cache at the end of a whole image.
const ENDED_WAIT_MAX: Duration = Duration::from_secs(10);
/// The job of a copy whose master does not name one.
const NO_JOB: u64 = 0;

/// All copies that go on.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    going: Mutex<Going>,
    ended: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Going {
    next: u64,
    copies: BTreeMap<u64, (u64, CancellationToken)>,
}

/// A copy that goes on until this is dropped.
#[derive(Debug)]
pub(crate) struct Copy {
    copies: Arc<Copies>,
    number: u64,
    cancel: CancellationToken,
}

impl Copies {
    /// A job begins a copy.
    pub(crate) fn begin(self: &Arc<Self>, job: u64) -> Copy {
        let cancel = CancellationToken::new();
        let mut going = self.lock();
        let number = going.next;
        going.next += 1;
        going.copies.insert(number, (job, cancel.clone()));
        Copy { copies: Arc::clone(self), number, cancel }
    }

    /// Ends copies and waits for it.
    async fn end(&self, is_meant: impl Fn(u64) -> bool) -> Ended {
        let mut ended = self.ended.subscribe();
        let told = {
            let going = self.lock();
            let meant = going.copies.values().filter(|(job, _)| is_meant(*job));
            meant.inspect(|(_, cancel)| cancel.cancel()).count()
        };
        let left = || self.lock().copies.values().filter(|(job, _)| is_meant(*job)).count();
        let none_left = async {
            while left() > 0 {
                ended.changed().await.expect("the sender is held here");
            }
        };
        if timeout(ENDED_WAIT_MAX, none_left).await.is_err() {
            tracing::error!("some copies did not end in {ENDED_WAIT_MAX:?} although they were told to");
        }
        Ended { told, left: left() }
    }

    fn lock(&self) -> MutexGuard<'_, Going> {
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Copy {
    /// Waits until the copy is told to end; gives its answer then. (ABORTED: the master would take CANCELLED for
    /// silence.)
    pub(crate) async fn told_to_end(&self) -> Status {
        self.cancel.cancelled().await;
        Status::aborted(ENDED)
    }

    /// # Errors
    /// When the copy was told to end.
    pub(crate) fn may_go_on(&self) -> Result<(), Status> {
        if self.cancel.is_cancelled() { Err(Status::aborted(ENDED)) } else { Ok(()) }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.copies.lock().copies.remove(&self.number);
        self.copies.ended.send_replace(());
    }
}

impl Runs for Copies {
    fn end_job<'a>(&'a self, job: u64, _calls: &'a [CallId]) -> BoxFuture<'a, Ended> {
        Box::pin(self.end(move |of| of == job))
    }

    fn withdraw<'a>(&'a self, _calls: &'a [CallId]) -> BoxFuture<'a, Result<(), CallError>> {
        // A copy has no id: one that comes late finds no staged file to write to.
        Box::pin(async { Ok(()) })
    }

    fn end_others(&self, alive: AliveJobs) -> BoxFuture<'_, usize> {
        Box::pin(async move { self.end(|of| of != NO_JOB && !alive.spares(of, false)).await.told })
    }

    fn clear(&self) -> BoxFuture<'_, Result<(), CallError>> {
        Box::pin(async { Ok(()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_copies_of_a_job_end_and_others_go_on() {
        let copies = Arc::new(Copies::default());
        let (mine, other, unnamed) = (copies.begin(1), copies.begin(2), copies.begin(NO_JOB));
        let copying = tokio::spawn(async move { mine.told_to_end().await });
        assert_eq!(copies.end_job(1, &[]).await, Ended { told: 1, left: 0 });
        assert_eq!(copying.await.unwrap().code(), tonic::Code::Aborted);
        assert_eq!(copies.end_job(1, &[]).await, Ended::default());
        let ending = copies.end_others(AliveJobs { all: [3].into(), ..AliveJobs::default() });
        tokio::pin!(ending);
        assert!(futures::poll!(&mut ending).is_pending(), "it waits for the copy's end");
        assert!(other.may_go_on().is_err());
        drop(other);
        assert_eq!(ending.await, 1);
        assert!(unnamed.may_go_on().is_ok());
    }
}
