//! A guest's serial console as a stream: what is typed goes to the guest's socket, what the guest says comes from there.
//!
//! The socket serves one client, so there is one user at a time. Nothing is queued but what is on its way: a user who does
//! not read holds the guest's output up, and QEMU drops what a full socket does not take.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use muster_hooksrv::agent::{Agent, Context, Events, Purpose, words};
use muster_proto::{
    transport::Peer,
    v1::{self, console_input::Input},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use uuid::Uuid;

use crate::{calls::uuid, node::Node, service::may_go_on};

/// Who opens a console says within this which one.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The longest piece of output in one message.
const OUTPUT_BYTES_MAX: usize = 4096;
/// The longest piece of input in one message: far more than a paste of some pages.
const INPUT_BYTES_MAX: usize = 64 * 1024;
/// Pieces of output on their way to the user.
const OUTPUTS_WAITING_MAX: usize = 16;

/// The consoles that are in use.
#[derive(Debug, Default)]
pub(crate) struct ConsoleSeats(Mutex<BTreeSet<Uuid>>);

/// A user's place at a console; free again when this is dropped.
#[derive(Debug)]
struct Seat {
    seats: Arc<ConsoleSeats>,
    instance: Uuid,
}

impl ConsoleSeats {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Uuid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, instance: Uuid) -> Option<Seat> {
        self.lock().insert(instance).then(|| Seat { seats: Arc::clone(self), instance })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().remove(&self.instance);
    }
}

/// Opens a console. The stream ends when the guest does, or when the user ends the input.
pub(crate) async fn open(
    agent: &Arc<Agent>,
    node: &Arc<Node>,
    request: Request<Streaming<v1::ConsoleInput>>,
) -> Result<Events<v1::ConsoleOutput>, Status> {
    let peer = Peer::of(&request)?.clone();
    let mut typed = request.into_inner();
    let first = timeout(START_LIMIT, typed.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("nobody says which console is meant"))??;
    let Some(Input::Start(start)) = first.and_then(|first| first.input) else {
        return Err(Status::invalid_argument("the first message must name the instance"));
    };
    let context = Context::parse(start.context)?;
    let instance = uuid("instance", &start.instance_uuid)?;
    let turn = agent.admit_greeted(&peer, context, Purpose::Act).await?;
    let not_there = |text: String| Status::failed_precondition(text);
    let socket = node.hypervisors.console(instance).map_err(|error| not_there(words(&error)))?;
    let Some(seat) = node.consoles.take(instance) else {
        return Err(not_there(format!("somebody else uses the console of guest {instance}")));
    };
    drop(turn);
    let socket = UnixStream::connect(&socket).await;
    let socket =
        socket.map_err(|error| not_there(format!("the guest's console can't be reached: {error}")))?;
    let (sender, receiver) = mpsc::channel(OUTPUTS_WAITING_MAX);
    tokio::spawn(carry(Arc::clone(agent), context, seat, socket, typed, sender));
    Ok(ReceiverStream::new(receiver))
}

/// Carries both directions until one ends.
async fn carry(
    agent: Arc<Agent>,
    context: Context,
    seat: Seat,
    socket: UnixStream,
    typed: Streaming<v1::ConsoleInput>,
    sender: mpsc::Sender<Result<v1::ConsoleOutput, Status>>,
) {
    let (from_guest, to_guest) = socket.into_split();
    let stopped = tokio::select! {
        ended = output(&agent, &context, from_guest, &sender) => ended,
        ended = input(&agent, &context, typed, to_guest) => ended,
        () = agent.stopping().cancelled() => Err(Status::unavailable("the node daemon is stopping")),
        () = sender.closed() => Ok(()),
    };
    // The socket is closed by now: the next user finds it free.
    drop(seat);
    if let Err(status) = stopped {
        // One who does not read hears of the end all the same.
        drop(sender.try_send(Err(status)));
    }
}

async fn output(
    agent: &Agent,
    context: &Context,
    mut from_guest: OwnedReadHalf,
    sender: &mpsc::Sender<Result<v1::ConsoleOutput, Status>>,
) -> Result<(), Status> {
    let mut buffer = vec![0; OUTPUT_BYTES_MAX];
    loop {
        // Where the guest's process was killed there may be an error instead of an end.
        let Ok(length @ 1..) = from_guest.read(&mut buffer).await else { return Ok(()) };
        may_go_on(agent, context)?;
        if sender.send(Ok(v1::ConsoleOutput { data: buffer[..length].to_vec() })).await.is_err() {
            return Ok(());
        }
    }
}

async fn input(
    agent: &Agent,
    context: &Context,
    mut typed: Streaming<v1::ConsoleInput>,
    mut to_guest: OwnedWriteHalf,
) -> Result<(), Status> {
    loop {
        // A user whose connection is lost has no use for an error.
        let Ok(Some(message)) = typed.message().await else { return Ok(()) };
        may_go_on(agent, context)?;
        match message.input {
            Some(Input::Data(data)) if data.len() <= INPUT_BYTES_MAX => {
                if to_guest.write_all(&data).await.is_err() {
                    return Ok(());
                }
            }
            Some(Input::Data(_)) => {
                return Err(Status::invalid_argument("a message has 64 KiB of input at most"));
            }
            Some(Input::Start(_)) | None => return Err(Status::invalid_argument("a console is named once")),
        }
    }
}
