//! What happens in a running call, and those who listen to it.
//!
//! Events are kept once, in the call; each listener has a place in them. So none is lost, none waits for another,
//! and nothing queues for a listener that does not read.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::Stream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Most events kept of a run: far more than a directory has scripts. Later ones are in the answer alone.
const EVENTS_KEPT_MAX: usize = 4096;

/// What a listener hears of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallItem<E, A> {
    /// Something happened.
    Event(E),
    /// It is done; the last item.
    Answer(A),
    /// Its end is unknown; the last item.
    Lost,
}

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) enum End<A> {
    Answer(A),
    Lost,
}

/// The events of a run.
pub(crate) struct EventLog<E> {
    log: Mutex<Log<E>>,
    changed: watch::Sender<()>,
}

struct Log<E> {
    kept: Vec<E>,
    /// The newest report of progress and how many there were.
    progress: Option<E>,
    progress_count: u64,
}

impl<E> EventLog<E> {
    fn new() -> Self {
        let log = Log { kept: Vec::new(), progress: None, progress_count: 0 };
        EventLog { log: Mutex::new(log), changed: watch::Sender::new(()) }
    }

    pub(crate) fn keep(&self, event: E) {
        let mut log = self.lock();
        if log.kept.len() < EVENTS_KEPT_MAX {
            log.kept.push(event);
        }
        drop(log);
        self.changed.send_replace(());
    }

    pub(crate) fn progress(&self, event: E) {
        let mut log = self.lock();
        log.progress = Some(event);
        log.progress_count += 1;
        drop(log);
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Log<E>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that runs.
pub(crate) struct Running<E, A> {
    pub(crate) job: u64,
    pub(crate) cancel: CancellationToken,
    pub(crate) events: Arc<EventLog<E>>,
    /// Cancelled when the end was journaled and told.
    pub(crate) ended: CancellationToken,
    end: OnceLock<End<A>>,
}

impl<E, A> Running<E, A> {
    pub(crate) fn new(job: u64) -> Self {
        let events = Arc::new(EventLog::new());
        let (cancel, ended) = (CancellationToken::new(), CancellationToken::new());
        Running { job, cancel, events, ended, end: OnceLock::new() }
    }

    /// Tells the end to all who listen.
    pub(crate) fn finish(&self, end: End<A>) {
        assert!(self.end.set(end).is_ok(), "a run ends once");
        self.events.changed.send_replace(());
        self.ended.cancel();
    }
}

/// A listener's view of a call: its events so far, those to come, and its end.
pub struct CallStream<E, A> {
    source: Source<E, A>,
}

enum Source<E, A> {
    Running {
        running: Arc<Running<E, A>>,
        changed: watch::Receiver<()>,
        kept_seen: usize,
        progress_seen: u64,
    },
    Ended(Option<CallItem<E, A>>),
}

impl<E, A> CallStream<E, A> {
    /// A call that needs no run.
    pub fn answered(answer: A) -> Self {
        Self::ended(CallItem::Answer(answer))
    }

    pub(crate) fn ended(item: CallItem<E, A>) -> Self {
        CallStream { source: Source::Ended(Some(item)) }
    }

    pub(crate) fn running(running: Arc<Running<E, A>>) -> Self {
        let changed = running.events.changed.subscribe();
        CallStream { source: Source::Running { running, changed, kept_seen: 0, progress_seen: 0 } }
    }
}

impl<E: Clone, A: Clone> CallStream<E, A> {
    /// The next item; `None` after the last. Nothing is lost if this is not awaited to its end.
    pub async fn next(&mut self) -> Option<CallItem<E, A>> {
        loop {
            let item = match &mut self.source {
                Source::Ended(item) => return item.take(),
                Source::Running { running, changed, kept_seen, progress_seen } => {
                    // Looked at first: what happened before the end is in the log by then.
                    let end = running.end.get();
                    changed.borrow_and_update();
                    // By itself, so that the lock is not held while this waits.
                    let event = unseen(&running.events.lock(), kept_seen, progress_seen);
                    match (event, end) {
                        (Some(event), _) => return Some(CallItem::Event(event)),
                        (None, Some(End::Answer(answer))) => CallItem::Answer(answer.clone()),
                        (None, Some(End::Lost)) => CallItem::Lost,
                        (None, None) => {
                            changed.changed().await.expect("the sender lives in the run that is held here");
                            continue;
                        }
                    }
                }
            };
            self.source = Source::Ended(Some(item));
        }
    }

    /// Waits for the last item.
    pub async fn end(mut self) -> CallItem<E, A> {
        loop {
            match self.next().await {
                Some(CallItem::Event(_)) => {}
                Some(last) => return last,
                None => unreachable!("the last item was not taken before"),
            }
        }
    }

    /// The items as a stream.
    pub fn into_stream(self) -> impl Stream<Item = CallItem<E, A>> {
        futures::stream::unfold(self, |mut stream| async { Some((stream.next().await?, stream)) })
    }
}

fn unseen<E: Clone>(log: &Log<E>, kept_seen: &mut usize, progress_seen: &mut u64) -> Option<E> {
    if let Some(event) = log.kept.get(*kept_seen) {
        *kept_seen += 1;
        return Some(event.clone());
    }
    if *progress_seen < log.progress_count {
        *progress_seen = log.progress_count;
        return log.progress.clone();
    }
    None
}
