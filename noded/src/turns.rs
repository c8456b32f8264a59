//! One call of a job at a time: a later call, an undo above all, waits until the one that is carried out has ended.
//!
//! A master that lost its connection, or was restarted too often, undoes a step whose call may still be going here.
//! Side by side the undo could end before the step, and what the step makes would stay.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The turn of a call; the next one's begins when this is dropped.
pub(crate) type Turn = OwnedMutexGuard<()>;

/// The queues of all jobs that have calls here; one is forgotten with its last call.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<u64, Weak<AsyncMutex<()>>>>);

impl Turns {
    /// Waits for the job's earlier calls, in the order in which they came.
    pub(crate) async fn wait(&self, job: u64) -> Turn {
        let queue = self.queue(job);
        queue.lock_owned().await
    }

    fn queue(&self, job: u64) -> Arc<AsyncMutex<()>> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, queue| queue.strong_count() > 0);
        if let Some(queue) = queues.get(&job).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::new(AsyncMutex::new(()));
        queues.insert(job, Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_of_a_job_take_turns_and_other_jobs_do_not_wait() {
        let turns = Arc::new(Turns::default());
        let first = turns.wait(1).await;
        drop(turns.wait(2).await);
        let second = tokio::spawn({
            let turns = turns.clone();
            async move { turns.wait(1).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        drop(second.await.unwrap());
        drop(turns.wait(3).await);
        assert_eq!(turns.0.lock().unwrap().len(), 1, "queues without calls are forgotten");
    }
}
