//! Sends a call's events to a caller, with signs of life between; the run does not depend on the caller.

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{CallError, CallItem, CallStream};

/// A caller hears of a run at least this often.
pub const GOING_INTERVAL: Duration = Duration::from_secs(5);
/// Events on their way to one caller; more wait in the call.
const EVENTS_WAITING_MAX: usize = 16;

/// What a caller is sent.
pub type Events<T> = ReceiverStream<Result<T, Status>>;

/// Sends all of a call: `going` at once and every 5 s, and each item. Ends early, with UNAVAILABLE, when the daemon
/// stops.
pub fn forward<E, A, T>(
    stream: CallStream<E, A>,
    stopping: CancellationToken,
    going: fn() -> T,
    item: fn(CallItem<E, A>) -> T,
) -> Events<T>
where
    E: Clone + Send + Sync + 'static,
    A: Clone + Send + Sync + 'static,
    T: Send + 'static,
{
    let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = send_all(stream, &sender, going, item) => {}
            () = stopping.cancelled() => {
                // The caller repeats the call id when the daemon is back.
                drop(sender.try_send(Err(Status::unavailable("the node daemon is stopping"))));
            }
        }
    });
    ReceiverStream::new(receiver)
}

async fn send_all<E: Clone, A: Clone, T>(
    mut stream: CallStream<E, A>,
    sender: &mpsc::Sender<Result<T, Status>>,
    going: fn() -> T,
    item: fn(CallItem<E, A>) -> T,
) {
    let mut signs = interval(GOING_INTERVAL);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            biased;
            _ = signs.tick() => going(),
            next = stream.next() => match next {
                Some(next) => item(next),
                None => return,
            },
        };
        if sender.send(Ok(event)).await.is_err() {
            return;
        }
    }
}

/// A refused call in the words and code for its caller.
pub fn call_status(error: &CallError) -> Status {
    let text = super::words(error);
    match error {
        CallError::OtherContent(_) => Status::already_exists(text),
        CallError::Unknown(_) => Status::not_found(text),
        CallError::Journal(_) | CallError::Task(_) | CallError::Keeper(_) => Status::internal(text),
    }
}
