//! The calls of a node that run or have run: the journal, and around it the tasks, their listeners and their ends.
//!
//! A run belongs to its call id and to the task that this registry spawned for it, not to the connection that asked
//! for it. Every listener gets all kept events from the first on, then the answer, which is durable by then.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use muster_core::calls::AliveJobs;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::call_id::CallId;
use crate::call_store::{FileStore, StoreError};
use crate::call_stream::{CallItem, CallStream, End, EventLog, Running};
use crate::journal::{Begin, Call, Journal, JournalError, Known, LostCall};
use crate::keeper::KeeperError;
use crate::processes;

/// The number of runs that are no job's: they end by themselves.
const NO_JOB: u64 = 0;
/// How long the end of canceled runs is awaited: 2 s of grace, 5 s after KILL, and some for the journal.
const ENDED_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a call has no stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The id stands for another request.
    #[error("call {0} was made before with other content")]
    OtherContent(CallId),
    /// The id is unknown, or was said to be; it will not start any more.
    #[error("call {0} is not known here and will not be started")]
    Unknown(CallId),
    /// The journal failed: nothing was started.
    #[error("the call was not started")]
    Journal(#[source] JournalError),
    /// A thread died.
    #[error("a task of the call registry was given up")]
    Task(#[source] tokio::task::JoinError),
    /// Whether a run of an earlier daemon goes on can't be seen.
    #[error("the hook runs of an earlier daemon could not be looked at")]
    Keeper(#[source] KeeperError),
}

/// The work of a call; it gives the answer, or none where the end is unknown.
pub(crate) type Work<E, A> = Box<dyn FnOnce(CallContext<E>) -> BoxFuture<'static, Option<A>> + Send>;

impl From<JournalError> for CallError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::OtherContent { id } => CallError::OtherContent(id),
            JournalError::Store(_) | JournalError::NotBegun { .. } => CallError::Journal(error),
        }
    }
}

struct State<E, A> {
    journal: Journal<FileStore>,
    running: BTreeMap<CallId, Arc<Running<E, A>>>,
}

/// All calls of one kind: `E` are events, `A` is the answer.
pub struct CallRegistry<E, A> {
    state: Arc<Mutex<State<E, A>>>,
}

impl<E, A> Clone for CallRegistry<E, A> {
    fn clone(&self) -> Self {
        CallRegistry { state: Arc::clone(&self.state) }
    }
}

/// What the work of a call is given.
pub struct CallContext<E> {
    id: CallId,
    cancel: CancellationToken,
    ended: CancellationToken,
    events: Arc<EventLog<E>>,
}

impl<E> CallContext<E> {
    /// The call.
    pub fn id(&self) -> &CallId {
        &self.id
    }

    /// Says when the work is to end.
    pub fn cancel(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Cancelled when the call has ended: its answer is durable by then, and what the work kept for it can go.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Tells an event that every listener gets, those too that come later.
    pub fn keep(&self, event: E) {
        self.events.keep(event);
    }

    /// Tells how far the work is; a newer report replaces one that a listener has not read yet.
    pub fn progress(&self, event: E) {
        self.events.progress(event);
    }
}

impl<E, A> CallRegistry<E, A>
where
    E: Clone + Send + Sync + 'static,
    A: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Opens the registry of a node. Whatever processes an earlier daemon left behind in calls that it did not answer
    /// are ended before this returns; only then may the calls be said to be lost.
    ///
    /// # Errors
    /// When the journal can't be read.
    pub async fn open(dir: &Path) -> Result<Self, CallError> {
        Self::open_with(dir, async |lost| {
            let ended = blocking(move || {
                if let Err(error) = processes::end_remains(lost.process.as_ref(), lost.output_dir.as_deref())
                {
                    tracing::error!(call = %lost.id, %error, "processes of a lost call could not be ended");
                }
            });
            ended.await?;
            Ok(None)
        })
        .await
    }

    /// Opens the registry of a node. `look` sees to each call that an earlier daemon did not answer: it gives the work
    /// that goes on, or ends what is left of the call, which is lost then.
    ///
    /// # Errors
    /// When the journal can't be read, or `look` fails.
    pub(crate) async fn open_with(
        dir: &Path,
        look: impl AsyncFn(LostCall) -> Result<Option<Work<E, A>>, CallError>,
    ) -> Result<Self, CallError> {
        let dir = dir.to_owned();
        let opened = blocking(move || {
            let store = FileStore::open(&dir).map_err(JournalError::from)?;
            Ok::<_, CallError>(Journal::open(store)?)
        });
        let journal = opened.await??;
        let lost = journal.lost();
        let state = State { journal, running: BTreeMap::new() };
        let registry = CallRegistry { state: Arc::new(Mutex::new(state)) };
        let looks = lost.into_iter().map(async |lost| {
            let (id, job) = (lost.id.clone(), lost.job);
            Ok::<_, CallError>((id, job, look(lost).await?))
        });
        for seen in futures::future::join_all(looks).await {
            if let (id, Some(job), Some(work)) = seen? {
                registry.resume(id, job, work);
            }
        }
        Ok(registry)
    }

    /// Lets the work of a lost call go on.
    fn resume(&self, id: CallId, job: u64, work: Work<E, A>) {
        let mut state = self.lock();
        if state.journal.resume(&id) {
            self.begin_work(&mut state, id, job, work);
        }
    }

    /// The calls that run.
    pub(crate) fn running(&self) -> BTreeSet<CallId> {
        self.lock().running.keys().cloned().collect()
    }

    /// Joins a call, or gives its first answer; `None` if it would be a new one.
    ///
    /// # Errors
    /// When the content differs, the id was said to be unknown, or the journal fails.
    pub async fn join(&self, call: &Call) -> Result<Option<CallStream<E, A>>, CallError> {
        let call = call.clone();
        self.with_state(move |state| {
            let known = state.journal.find(&call.id, Some(&call.digest))?;
            match known {
                None => Ok(None),
                // `start_or_join` does it again.
                Some(Known::Lost) if call.on_lost == crate::journal::OnLost::Repeat => Ok(None),
                Some(known) => stream_of(state, &call.id, known).map(Some),
            }
        })
        .await
    }

    /// Carries out a call once: journals it and spawns its work, or joins the run, or gives the first answer.
    ///
    /// # Errors
    /// As [`CallRegistry::join`]; the work was not started then.
    pub async fn start_or_join<W, F>(&self, call: Call, work: W) -> Result<CallStream<E, A>, CallError>
    where
        W: FnOnce(CallContext<E>) -> F + Send + 'static,
        F: Future<Output = A> + Send + 'static,
    {
        let work: Work<E, A> = Box::new(move |context| Box::pin(async move { Some(work(context).await) }));
        self.start_or_join_work(call, work).await
    }

    /// As [`CallRegistry::start_or_join`], for work that may not know how it ended: the call is lost then.
    pub(crate) async fn start_or_join_work(
        &self,
        call: Call,
        work: Work<E, A>,
    ) -> Result<CallStream<E, A>, CallError> {
        let registry = self.clone();
        let runtime = tokio::runtime::Handle::current();
        self.with_state(move |state| match state.journal.begin(&call, now_ms())? {
            Begin::Known(known) => stream_of(state, &call.id, known),
            Begin::New => {
                let _entered = runtime.enter();
                Ok(CallStream::running(registry.begin_work(state, call.id, call.job, work)))
            }
        })
        .await
    }

    /// Spawns the work of a begun call. Done under the lock and off the caller's task: from the journaling on nothing
    /// can drop it.
    fn begin_work(
        &self,
        state: &mut State<E, A>,
        id: CallId,
        job: u64,
        work: Work<E, A>,
    ) -> Arc<Running<E, A>> {
        let running = Arc::new(Running::new(job));
        let context = CallContext {
            id: id.clone(),
            cancel: running.cancel.clone(),
            ended: running.ended.clone(),
            events: Arc::clone(&running.events),
        };
        state.running.insert(id.clone(), Arc::clone(&running));
        let (registry, begun) = (self.clone(), Arc::clone(&running));
        tokio::spawn(async move {
            let end = match tokio::spawn(async move { work(context).await }).await {
                Ok(Some(answer)) => End::Answer(answer),
                Ok(None) => End::Lost,
                Err(error) => {
                    tracing::error!(call = %id, %error, "the work of a call was given up");
                    End::Lost
                }
            };
            registry.finish(id, begun, end).await;
        });
        running
    }

    /// Asks for a call by its id alone. An unknown id is recorded as withdrawn before that is said.
    ///
    /// # Errors
    /// [`CallError::Unknown`], or the journal's.
    pub async fn ask(&self, id: &CallId) -> Result<CallStream<E, A>, CallError> {
        let id = id.clone();
        self.with_state(move |state| {
            let known = state.journal.ask(&id, now_ms())?;
            stream_of(state, &id, known)
        })
        .await
    }

    /// Sees to it that a call never begins, nor begins again where it was lost.
    pub(crate) async fn withdraw_one(&self, id: &CallId) -> Result<(), CallError> {
        let id = id.clone();
        self.with_state(move |state| Ok(state.journal.withdraw(&id, now_ms()).map(drop)?)).await
    }

    /// How many runs of a job there are; those that tell of its end count where they are among `calls`.
    pub async fn runs_of(&self, job: u64, calls: &[CallId]) -> usize {
        let runs = self.meant(is_of_job_but_its_end(job, calls)).await;
        // Where that can't be told, nobody may say that there are none.
        runs.map_or(1, |runs| runs.len())
    }

    /// Ends all runs of a job and waits for it, 10 s at most; the number of runs.
    pub async fn end_job(&self, job: u64) -> usize {
        self.end_where(move |_, job_of_run| job_of_run == job).await
    }

    /// The same, but for runs that tell of the job's end and are not among `calls`: they begin when the others are told to
    /// end, and an order that comes late must not end them.
    pub async fn end_job_but_its_end(&self, job: u64, calls: &[CallId]) -> usize {
        self.end_where(is_of_job_but_its_end(job, calls)).await
    }

    /// Ends all runs of jobs that are not alive, or are over but for telling it, and waits for it, 10 s at most; the number of runs.
    pub async fn end_others(&self, alive: &AliveJobs) -> usize {
        let alive = alive.clone();
        self.end_where(move |id, job| job != NO_JOB && !alive.spares(job, id.tells_of_end())).await
    }

    /// Forgets every call that does not run: the node left its cluster, and another counts its jobs anew.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn clear(&self) -> Result<(), CallError> {
        self.with_state(|state| Ok(state.journal.clear()?)).await
    }

    /// Runs by their id and job: after all that were being begun, since that is done under the same lock.
    async fn meant(
        &self,
        is_meant: impl Fn(&CallId, u64) -> bool + Send + 'static,
    ) -> Result<Vec<Arc<Running<E, A>>>, CallError> {
        self.with_state(move |state| {
            let meant = state.running.iter().filter(|(id, run)| is_meant(id, run.job));
            Ok(meant.map(|(_, run)| Arc::clone(run)).collect())
        })
        .await
    }

    async fn end_where(&self, is_meant: impl Fn(&CallId, u64) -> bool + Send + 'static) -> usize {
        let runs = self.meant(is_meant).await.unwrap_or_else(|error| {
            tracing::error!(error = crate::chain(&error), "it can't be told which runs are to end");
            Vec::new()
        });
        for run in &runs {
            run.cancel.cancel();
        }
        let ends = runs.iter().map(|run| CallStream::running(Arc::clone(run)).end());
        if tokio::time::timeout(ENDED_WAIT_MAX, futures::future::join_all(ends)).await.is_err() {
            tracing::error!("some runs did not end in {ENDED_WAIT_MAX:?} although they were told to");
        }
        runs.len()
    }

    /// Journals the end of a run, then tells it.
    async fn finish(&self, id: CallId, running: Arc<Running<E, A>>, end: End<A>) {
        let journaled = self
            .with_state({
                let (id, end) = (id.clone(), end.clone());
                move |state| {
                    let written = match &end {
                        End::Answer(answer) => serde_json::to_string(answer)
                            .map_err(|error| StoreError::Encode(error).into())
                            .and_then(|text| state.journal.answer(&id, &text, now_ms())),
                        End::Lost => Ok(()),
                    };
                    if written.is_err() || matches!(end, End::Lost) {
                        state.journal.lose(&id);
                    }
                    state.running.remove(&id);
                    Ok(written?)
                }
            })
            .await;
        if let Err(error) = journaled {
            // Those who listen hear the answer still; whoever asks later hears that the call is lost.
            tracing::error!(call = %id, error = crate::chain(&error), "an answer could not be journaled");
        }
        running.finish(end);
    }

    /// Works on the state on a thread for such: whoever holds it may wait for the disk.
    async fn with_state<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut State<E, A>) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let state = Arc::clone(&self.state);
        blocking(move || work(&mut state.lock().unwrap_or_else(PoisonError::into_inner))).await?
    }

    /// While the registry is being opened, and nobody else has it.
    fn lock(&self) -> MutexGuard<'_, State<E, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of a job, but for what tells of its end and is not among `calls`.
fn is_of_job_but_its_end(job: u64, calls: &[CallId]) -> impl Fn(&CallId, u64) -> bool + Send + 'static {
    let calls = calls.to_vec();
    move |id, job_of_run| job_of_run == job && (!id.tells_of_end() || calls.contains(id))
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallError> {
    tokio::task::spawn_blocking(work).await.map_err(CallError::Task)
}

/// The stream of a call of which something is known.
fn stream_of<E, A: DeserializeOwned>(
    state: &State<E, A>,
    id: &CallId,
    known: Known,
) -> Result<CallStream<E, A>, CallError> {
    match known {
        Known::Begun => {
            let running =
                state.running.get(id).expect("what is begun is in the map until it is answered or lost");
            Ok(CallStream::running(Arc::clone(running)))
        }
        Known::Lost => Ok(CallStream::ended(CallItem::Lost)),
        Known::Answered(text) => Ok(CallStream::ended(match serde_json::from_str(&text) {
            Ok(answer) => CallItem::Answer(answer),
            Err(error) => {
                tracing::error!(call = %id, %error, "a journaled answer is damaged: the call counts as lost");
                CallItem::Lost
            }
        })),
        Known::Withdrawn => Err(CallError::Unknown(id.clone())),
    }
}

/// The wall clock; it decides nothing but when ended calls are forgotten.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn who_ends_runs_holds_up_no_other_while_the_journal_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let calls = CallRegistry::<String, String>::open(folder.path()).await.unwrap();
        let (held, is_held) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let state = Arc::clone(&calls.state);
        let disk = std::thread::spawn(move || {
            let _journal = state.lock().unwrap();
            held.send(()).unwrap();
            may_go_on.recv_timeout(Duration::from_secs(20)).is_ok()
        });
        is_held.recv().unwrap();
        let ending = tokio::spawn({
            let calls = calls.clone();
            async move { (calls.end_others(&AliveJobs::default()).await, calls.runs_of(1, &[]).await) }
        });
        // On the one thread that all tasks have here: another comes to its turn.
        tokio::task::yield_now().await;
        assert!(!ending.is_finished() && calls.end_job(1).now_or_never().is_none());
        go_on.send(()).unwrap();
        assert_eq!(ending.await.unwrap(), (0, 0));
        assert!(disk.join().unwrap(), "it was waited for the disk");
    }
}
