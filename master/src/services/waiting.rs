//! What a waiting job waits for, in words; and callers that wait for one another.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, oneshot},
    time::timeout,
};
use tonic::Status;

use crate::{
    driver::{Command, Waiting},
    master::Master,
};

/// A caller waits no longer for others.
const TURN_LIMIT: Duration = Duration::from_secs(10);

/// Asks the driver what each waiting job waits for; `None` for a job that waits for a slot only.
pub(crate) async fn waiting(master: &Master) -> Result<Waiting, Status> {
    let (reply, answer) = oneshot::channel();
    master.send(Command::Waiting(Box::new(move |waiting| drop(reply.send(waiting))))).await?;
    answer.await.map_err(|_| Status::unavailable("the master is stopping"))
}

/// Waits for one of the places that there are for work of a kind.
///
/// # Errors
/// RESOURCE_EXHAUSTED where none becomes free in time.
pub(super) async fn turn(places: &Semaphore) -> Result<SemaphorePermit<'_>, Status> {
    turn_within(places, TURN_LIMIT).await
}

async fn turn_within(places: &Semaphore, limit: Duration) -> Result<SemaphorePermit<'_>, Status> {
    let turn = timeout(limit, places.acquire()).await;
    let turn =
        turn.map_err(|_| Status::resource_exhausted("others ask the same at this moment; try again later"))?;
    turn.map_err(|error| Status::internal(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_others_waits_for_a_time() {
        let places = Semaphore::new(1);
        let held = turn(&places).await.unwrap();
        let late = turn_within(&places, Duration::from_millis(1)).await;
        assert_eq!(late.unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(held);
        drop(turn(&places).await.unwrap());
    }
}
