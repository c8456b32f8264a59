//! A running guest, watched: one task holds its control connection and tells what becomes of it.
//!
//! A guest that shuts itself down waits in the state `shutdown` (see `argv`). There its end is recorded and QEMU told to
//! quit; or, where the guest is to start anew, it is reset and goes on.

use std::{fs, io, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    sync::{
        broadcast::{
            Receiver,
            error::{RecvError, TryRecvError},
        },
        watch,
    },
    time::{MissedTickBehavior, interval, sleep},
};

use super::{
    files::GuestFiles,
    mirror::{self, GuestMirrors, Records},
    record::{Ended, Record},
};
use crate::{
    process,
    qmp::{Event, Qmp, QmpError},
};

/// Between two tries to connect to a QEMU that lives and does not answer.
const CONNECT_AGAIN: Duration = Duration::from_millis(50);
/// Between two looks whether a QEMU that was told to quit is gone: mostly it is at the first.
const GONE_AGAIN: Duration = Duration::from_millis(20);
/// How often the console's log is looked at. A guest under the translator writes some MiB in this time.
const TRIM_PERIOD: Duration = Duration::from_secs(10);

/// What a guest does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// QEMU runs, and has not told anything yet.
    Unknown,
    /// It computes.
    Running,
    /// It is stopped in the middle: by hand, by an error, or while it moves.
    Paused,
    /// It is gone.
    Ended(Ended),
}

impl State {
    fn has_ended(self) -> bool {
        match self {
            State::Ended(_) => true,
            State::Unknown | State::Running | State::Paused => false,
        }
    }
}

/// A guest.
pub(crate) struct Guest {
    pub(crate) files: GuestFiles,
    pub(crate) record: Record,
    state: watch::Sender<State>,
    connection: watch::Sender<Option<Arc<Qmp>>>,
    /// How often it started anew.
    restarts: watch::Sender<u64>,
    pub(crate) mirrors: GuestMirrors,
}

impl Guest {
    /// Watches a guest whose QEMU was started; `changed` is called at each change of its state.
    pub(crate) fn watch(
        files: GuestFiles,
        record: Record,
        copies: Arc<Records>,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> Arc<Self> {
        // The process is the truth: how it ended may have been recorded a moment before it did.
        let (state, is_news) = match process::find(&files.pid) {
            Some(_) => (State::Unknown, false),
            None => (State::Ended(record.ended.unwrap_or(Ended::Crashed)), record.ended.is_none()),
        };
        let guest = Arc::new(Guest {
            files,
            record,
            state: watch::Sender::new(state),
            connection: watch::Sender::new(None),
            restarts: watch::Sender::new(0),
            mirrors: GuestMirrors::new(copies),
        });
        if is_news {
            // Nobody was there when it crashed.
            guest.mirrors.crashed(&guest);
        }
        if state == State::Unknown {
            tokio::spawn(mirror::watch(Arc::clone(&guest)));
            tokio::spawn(follow(Arc::clone(&guest), changed));
        }
        guest
    }

    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state().has_ended()
    }

    /// The control connection, as soon as there is one; `None` when the guest has ended.
    pub(crate) async fn qmp(&self) -> Option<Arc<Qmp>> {
        let mut connection = self.connection.subscribe();
        tokio::select! {
            connected = connection.wait_for(Option::is_some) => connected.ok().and_then(|client| client.clone()),
            () = self.ended() => None,
        }
    }

    /// Waits until the guest is gone.
    pub(crate) async fn ended(&self) {
        let mut state = self.state.subscribe();
        let _sender_is_here = state.wait_for(|state| state.has_ended()).await;
    }

    /// Waits until QEMU has told what the guest does.
    pub(crate) async fn known(&self) {
        let mut state = self.state.subscribe();
        let _sender_is_here = state.wait_for(|state| *state != State::Unknown).await;
    }

    /// The guest is to start anew when it has shut down, whatever becomes of this daemon.
    pub(crate) fn begin_reboot(&self) -> io::Result<()> {
        fs::write(&self.files.rebooting, b"")
    }

    pub(crate) fn end_reboot(&self) {
        if let Err(error) = fs::remove_file(&self.files.rebooting)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(guest = %self.record.instance, %error, "a guest may start anew when it shuts down");
        }
    }

    fn is_rebooting(&self) -> bool {
        self.files.rebooting.exists()
    }

    /// Counts how often the guest started anew from now on.
    pub(crate) fn restarts(&self) -> watch::Receiver<u64> {
        self.restarts.subscribe()
    }

    fn set(&self, state: State, changed: &impl Fn()) {
        if self.state.send_replace(state) != state {
            changed();
        }
    }

    fn record_end(&self, ended: Ended) {
        let record = Record { ended: Some(ended), ..self.record.clone() };
        if let Err(error) = record.write(&self.files) {
            tracing::warn!(guest = %self.record.instance, %error, "could not record how a guest ended");
        }
    }

    /// Follows a guest until its connection ends.
    async fn listen(
        &self,
        client: &Arc<Qmp>,
        events: &mut Receiver<Event>,
        changed: &impl Fn(),
    ) -> Result<Ended, QmpError> {
        let mut trim = interval(TRIM_PERIOD);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_first = true;
        loop {
            let status = client.execute("query-status", Value::Null).await?;
            match status.get("status").and_then(Value::as_str) {
                Some("running") => {
                    if is_first {
                        // A reboot that an earlier daemon began is carried out again by whoever wants it.
                        self.end_reboot();
                    }
                    self.set(State::Running, changed);
                }
                Some("shutdown") if self.is_rebooting() => {
                    client.execute("system_reset", Value::Null).await?;
                }
                Some("prelaunch") if self.is_rebooting() => {
                    client.execute("cont", Value::Null).await?;
                    self.restarts.send_modify(|restarts| *restarts += 1);
                }
                Some("shutdown") => {
                    self.mirrors.end_in_order(self, client).await;
                    // Before the end itself: a daemon that comes later finds the one or the other.
                    self.record_end(Ended::ShutDown);
                    client.execute("quit", Value::Null).await?;
                    return Ok(Ended::ShutDown);
                }
                Some(_) | None => self.set(State::Paused, changed),
            }
            if is_first {
                self.connection.send_replace(Some(Arc::clone(client)));
                is_first = false;
            }
            // Whatever event it is that tells of a change, the state itself is asked for.
            loop {
                let event = tokio::select! {
                    event = events.recv() => event,
                    () = client.ended() => return Ok(Ended::Crashed),
                    _ = trim.tick() => {
                        self.trim();
                        continue;
                    }
                };
                match event {
                    Ok(event) => {
                        self.mirrors.hear(self, &event);
                        if changes_state(&event) {
                            break;
                        }
                    }
                    Err(RecvError::Lagged(_)) => {
                        self.mirrors.missed_some();
                        break;
                    }
                    Err(RecvError::Closed) => return Ok(Ended::Crashed),
                }
            }
        }
    }

    /// Hears what QEMU told last: its connection has ended, or nobody listens to it any more.
    fn hear_rest(&self, events: &mut Receiver<Event>) {
        loop {
            match events.try_recv() {
                Ok(event) => self.mirrors.hear(self, &event),
                Err(TryRecvError::Lagged(_)) => self.mirrors.missed_some(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn trim(&self) {
        if let Err(error) = self.files.trim_console_log() {
            tracing::warn!(guest = %self.record.instance, %error, "could not cut a console's log");
        }
    }
}

async fn follow(guest: Arc<Guest>, changed: impl Fn()) {
    let mut ended = Ended::Crashed;
    while process::find(&guest.files.pid).is_some() {
        match Qmp::connect(&guest.files.control).await {
            Ok(client) => {
                let client = Arc::new(client);
                let mut events = client.events();
                // What was told before is not known.
                guest.mirrors.missed_some();
                let listened = guest.listen(&client, &mut events, &changed).await;
                guest.connection.send_replace(None);
                guest.hear_rest(&mut events);
                match listened {
                    Ok(how) => ended = how,
                    Err(error) => {
                        if !matches!(error, QmpError::Ended { .. }) {
                            guest.mirrors.missed_some();
                        }
                        tracing::debug!(guest = %guest.record.instance, %error, "a guest is silent");
                    }
                }
                // The connection ends a moment before the process.
                while ended == Ended::ShutDown && process::find(&guest.files.pid).is_some() {
                    sleep(GONE_AGAIN).await;
                }
            }
            Err(error) => {
                tracing::debug!(guest = %guest.record.instance, %error, "no control connection yet");
                sleep(CONNECT_AGAIN).await;
            }
        }
    }
    if ended == Ended::Crashed {
        guest.mirrors.crashed(&guest);
        guest.record_end(ended);
    }
    guest.set(State::Ended(ended), &changed);
}

fn changes_state(event: &Event) -> bool {
    matches!(
        event.name.as_str(),
        "STOP" | "RESUME" | "RESET" | "SHUTDOWN" | "SUSPEND" | "WAKEUP" | "GUEST_PANICKED"
    )
}
