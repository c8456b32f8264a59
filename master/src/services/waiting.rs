//! What a waiting job waits for, in words.

use tokio::sync::oneshot;
use tonic::Status;

use crate::{
    driver::{Command, Waiting},
    master::Master,
};

/// Asks the driver what each waiting job waits for; `None` for a job that waits for a slot only.
pub(crate) async fn waiting(master: &Master) -> Result<Waiting, Status> {
    let (reply, answer) = oneshot::channel();
    master.send(Command::Waiting(Box::new(move |waiting| drop(reply.send(waiting))))).await?;
    answer.await.map_err(|_| Status::unavailable("the master is stopping"))
}
