//! The connection: one task reads, whoever asks writes, answers find their way back by their ids.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{broadcast, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    COMMAND_LIMIT, CONNECT_LIMIT, Event, QmpError,
    wire::{Failure, Greeting, Line, Request},
};

/// Events that a slow listener may lag behind; it learns that it missed some.
const EVENTS_MAX: usize = 256;
/// The longest line: a listing of all block nodes has some tens of KiB.
const LINE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A connection to a QEMU; ended when it is dropped.
pub struct Qmp {
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    shared: Arc<Shared>,
    ended: CancellationToken,
    _reader: DropGuard,
}

struct Shared {
    waiting: Mutex<Waiting>,
    events: broadcast::Sender<Event>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// Gone when the connection has ended: nobody would answer.
    answers: Option<BTreeMap<u64, oneshot::Sender<Result<Value, Failure>>>>,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new id, and where its answer will come; `None` when the connection has ended.
    fn expect(&self) -> Option<(u64, oneshot::Receiver<Result<Value, Failure>>)> {
        let mut waiting = self.lock();
        waiting.next += 1;
        let id = waiting.next;
        let (sender, receiver) = oneshot::channel();
        waiting.answers.as_mut()?.insert(id, sender);
        Some((id, receiver))
    }

    fn forget(&self, id: u64) {
        if let Some(answers) = &mut self.lock().answers {
            answers.remove(&id);
        }
    }
}

impl Qmp {
    /// Connects, and asks for out-of-band commands where there are some.
    ///
    /// # Errors
    /// When the socket can't be reached, or does not greet within [`CONNECT_LIMIT`]: another client has it.
    pub async fn connect(path: &Path) -> Result<Self, QmpError> {
        let connecting = async {
            let stream = UnixStream::connect(path)
                .await
                .map_err(|source| QmpError::Connect { path: path.to_owned(), source })?;
            Self::greet(stream).await
        };
        let silent = |_| QmpError::Silent { what: "the greeting".to_owned(), limit: CONNECT_LIMIT };
        timeout(CONNECT_LIMIT, connecting).await.map_err(silent)?
    }

    async fn greet(stream: UnixStream) -> Result<Self, QmpError> {
        let (reader, writer) = stream.into_split();
        let mut reader = BufReader::new(reader);
        let ended = || QmpError::Ended { what: "the greeting".to_owned() };
        let text = read_line(&mut reader).await.ok_or_else(ended)?;
        let greeting: Greeting =
            serde_json::from_str(&text).map_err(|error| QmpError::Protocol(error.to_string()))?;
        let waiting = Waiting { next: 0, answers: Some(BTreeMap::new()) };
        let (events, _) = broadcast::channel(EVENTS_MAX);
        let shared = Arc::new(Shared { waiting: Mutex::new(waiting), events });
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        tokio::spawn(read(reader, shared.clone(), stop.clone(), ended.clone()));
        let client =
            Qmp { writer: tokio::sync::Mutex::new(writer), shared, ended, _reader: stop.drop_guard() };
        let out_of_band = greeting.qmp.capabilities.iter().any(|capability| capability == "oob");
        let enable = if out_of_band { json!({ "enable": ["oob"] }) } else { Value::Null };
        client.execute("qmp_capabilities", enable).await?;
        Ok(client)
    }

    /// Executes a command within [`COMMAND_LIMIT`].
    ///
    /// # Errors
    /// When QEMU refuses it, or does not answer.
    pub async fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.send(command, arguments, false, COMMAND_LIMIT).await
    }

    /// Executes a command that overtakes those which wait, also where the main loop hangs.
    ///
    /// # Errors
    /// As [`Qmp::execute`].
    pub async fn execute_out_of_band(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.send(command, arguments, true, COMMAND_LIMIT).await
    }

    async fn send(
        &self,
        command: &str,
        arguments: Value,
        out_of_band: bool,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let ended = || QmpError::Ended { what: command.to_owned() };
        let (id, answer) = self.shared.expect().ok_or_else(ended)?;
        let request = Request::new(command, &arguments, out_of_band, id);
        let mut line = serde_json::to_vec(&request).map_err(|error| QmpError::Protocol(error.to_string()))?;
        line.push(b'\n');
        let asked = async {
            self.writer.lock().await.write_all(&line).await.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())
        };
        match timeout(limit, asked).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(Failure { class, description }))) => {
                Err(QmpError::Refused { command: command.to_owned(), class, description })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.shared.forget(id);
                Err(QmpError::Silent { what: command.to_owned(), limit })
            }
        }
    }

    /// What happens from now on.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// Waits until the other side has ended the connection.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}

/// Reads until the connection ends; then all who wait for answers learn that none will come.
async fn read(
    mut reader: BufReader<OwnedReadHalf>,
    shared: Arc<Shared>,
    stop: CancellationToken,
    ended: CancellationToken,
) {
    loop {
        let text = tokio::select! {
            text = read_line(&mut reader) => text,
            () = stop.cancelled() => None,
        };
        let Some(text) = text else { break };
        match Line::parse(&text) {
            Ok(Line::Event(event)) => drop(shared.events.send(event)),
            Ok(Line::Answer { id, result }) => {
                let asked = shared.lock().answers.as_mut().and_then(|answers| answers.remove(&id));
                if let Some(asked) = asked {
                    // Whoever asked may have given up.
                    let _given_up = asked.send(result);
                }
            }
            Ok(Line::Other) => {}
            Err(error) => tracing::warn!(%error, "a line that is not QMP"),
        }
    }
    shared.lock().answers = None;
    ended.cancel();
}

/// A line, or `None` at the end or where it is too long to be one.
async fn read_line(reader: &mut BufReader<OwnedReadHalf>) -> Option<String> {
    let mut line = String::new();
    let read = reader.take(LINE_BYTES_MAX).read_line(&mut line).await.ok()?;
    (read > 0 && line.ends_with('\n')).then_some(line)
}
