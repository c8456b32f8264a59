//! One sync of this node: the list comes, the node says what it lacks, that comes, the set is put together, checked,
//! shown to `hooks-sync-pre.d` of the set before, and used.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use muster_core::hooks::{
    Class, Digest, Env, HookPolicy, HookResult, HookSet, HooksVersion, Phase, SET_BYTES_MAX, SET_ENTRIES_MAX,
    ScriptOutcome, lint::SetFindings,
};
use muster_core::ops::SYNC_PREFIX;
use muster_proto::{
    convert::hookset::parse_entry,
    hookset::{HookStoreError, set_digest, sync_all_below},
    transport::Peer,
    v1::{self, sync_hooks_event::Event, sync_hooks_input::Input},
};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use uuid::Uuid;

use super::{HookSets, turn::Turn};
use crate::{
    CallId, CallItem, DirectoryName, HookRequest, RequestDigest,
    agent::{Context, Events, GOING_INTERVAL, Purpose, call_status, words},
    run_hooks,
    service::{HookParts, parse_env},
};

/// The caller says what it wants within this.
const FIRST_LIMIT: Duration = Duration::from_secs(10);
/// The next piece comes within this; the master gives up earlier where nothing moves.
const INPUT_LIMIT: Duration = Duration::from_secs(60);
/// Events on their way to the caller.
const EVENTS_WAITING_MAX: usize = 16;
/// The runs of syncs belong to jobs of numbers that no job has: a master that greets this node ends them, as nobody waits
/// for them any more.
const JOB_FIRST: u64 = 1 << 63;
/// Characters of a script's output that are told.
const OUTPUT_CHARS_TOLD: usize = 2000;

/// Syncs of this node: one at a time.
#[derive(Debug, Default)]
pub(crate) struct SetSessions {
    turn: Arc<tokio::sync::Mutex<()>>,
    jobs: AtomicU64,
    /// Held while the set in use is compared for a caller: that reads all of it.
    check: Arc<tokio::sync::Mutex<()>>,
}

/// Events for the caller.
type Told = mpsc::Sender<Result<v1::SyncHooksEvent, Status>>;

/// What ends a session without the new set.
enum End {
    /// The set is not taken.
    Refused(v1::HookSetRefused),
    /// The session failed.
    Failed(Status),
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        End::Failed(status)
    }
}

impl From<HookStoreError> for End {
    fn from(error: HookStoreError) -> Self {
        End::Failed(match &error {
            HookStoreError::Other { .. } | HookStoreError::Size { .. } => {
                Status::invalid_argument(words(&error))
            }
            HookStoreError::File { .. } | HookStoreError::Write(_) | HookStoreError::Missing { .. } => {
                Status::internal(words(&error))
            }
        })
    }
}

fn invalid(error: impl std::fmt::Display) -> Status {
    Status::invalid_argument(error.to_string())
}

/// What the caller said first.
struct Begin {
    context: Context,
    digest: Digest,
    full: bool,
    /// Of the interface between the cluster and its scripts.
    version: HooksVersion,
    policy: HookPolicy,
    env: Env,
}

impl Begin {
    fn parse(wire: v1::SyncHooksBegin) -> Result<Self, Status> {
        let context = Context::parse(wire.context)?;
        let variable =
            |variable: v1::HookSetVariable| v1::EnvVariable { name: variable.name, value: variable.value };
        let env: Vec<v1::EnvVariable> = wire.env.into_iter().map(variable).collect();
        let env = parse_env(&env)?;
        // A master of old sends none; its clusters had version 1.
        let version = env.get("HOOKS_VERSION").and_then(HooksVersion::parse).unwrap_or_default();
        Ok(Begin {
            context,
            version,
            digest: wire.digest.parse().map_err(invalid)?,
            full: wire.full,
            policy: wire.policy.unwrap_or_default().try_into().map_err(invalid)?,
            env,
        })
    }
}

/// Opens a session; it goes on in a task until the caller goes away.
///
/// # Errors
/// When the caller is refused, says something else, or another session goes on.
pub(crate) async fn open_session(
    parts: HookParts,
    peer: Peer,
    mut inputs: Streaming<v1::SyncHooksInput>,
) -> Result<Events<v1::SyncHooksEvent>, Status> {
    let first = timeout(FIRST_LIMIT, inputs.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no set was named in time"))??;
    let Some(v1::SyncHooksInput { input: Some(Input::Begin(begin)) }) = first else {
        return Err(invalid("the first message names the set"));
    };
    let begin = Begin::parse(begin)?;
    drop(parts.agent.admit(&peer, begin.context, Purpose::Act).await?);
    if parts.agent.membership().is_none() {
        return Err(Status::failed_precondition("this host is in no cluster yet"));
    }
    let turn = Arc::clone(&parts.sessions.turn).try_lock_owned();
    let turn = turn.map_err(|_| Status::aborted("another sync of this node's hooks goes on"))?;
    let turn = Arc::new(Turn::new(Arc::clone(parts.sets()?), begin.digest, turn));
    let (events, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
    let session = Session { parts, peer, begin, turn, events: events.clone() };
    tokio::spawn(async move {
        let stopping = session.parts.agent.stopping().clone();
        tokio::select! {
            () = events.closed() => tracing::info!("a sync of hooks was broken off by its caller"),
            () = stopping.cancelled() => {
                drop(events.try_send(Err(Status::unavailable("the node daemon is stopping"))));
            }
            () = session.run(inputs) => {}
        }
    });
    Ok(ReceiverStream::new(receiver))
}

struct Session {
    parts: HookParts,
    peer: Peer,
    begin: Begin,
    turn: Arc<Turn>,
    events: Told,
}

impl Session {
    async fn run(self, inputs: Streaming<v1::SyncHooksInput>) {
        let end = tokio::select! {
            end = self.sync(inputs) => end,
            () = signs_of_life(&self.events) => return,
        };
        let may_come_again = match &end {
            Ok(_) => false,
            Err(End::Refused(_)) => true,
            // A full disk is not kept full.
            Err(End::Failed(status)) => status.code() != tonic::Code::Internal,
        };
        let last = match end {
            Ok(used) => Ok(Event::Used(used)),
            Err(End::Refused(refused)) => {
                tracing::warn!(set = %self.begin.digest, reason = refused.reason, "a hook set is not taken");
                Ok(Event::Refused(refused))
            }
            Err(End::Failed(status)) => {
                tracing::warn!(set = %self.begin.digest, %status, "a sync of hooks failed");
                Err(status)
            }
        };
        // Before the caller hears of the end, so that its next sync finds nobody here.
        let Session { events, turn, .. } = self;
        // All threads that worked for this session have ended.
        if let Some(turn) = Arc::into_inner(turn) {
            tokio::select! {
                () = turn.end(may_come_again) => {}
                () = signs_of_life(&events) => return,
            }
        }
        drop(events.send(last.map(|event| v1::SyncHooksEvent { event: Some(event) })).await);
    }

    /// File work, under this session's turn also when nobody waits for it any more.
    async fn blocking<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&HookSets) -> Result<T, E> + Send + 'static,
    ) -> Result<T, End>
    where
        End: From<E>,
    {
        let (turn, sets) = (Arc::clone(&self.turn), Arc::clone(self.parts.sets()?));
        let done = spawn_blocking(move || {
            let _held = turn;
            work(&sets)
        });
        Ok(done.await.map_err(|error| Status::internal(error.to_string()))??)
    }

    async fn sync(&self, mut inputs: Streaming<v1::SyncHooksInput>) -> Result<v1::HookSetUsed, End> {
        let set = self.list(&mut inputs).await?;
        let (digest, full) = (self.begin.digest, self.begin.full);
        if !full && self.blocking(move |sets| is_used(sets, &digest)).await? {
            return Ok(v1::HookSetUsed { switched: false, warnings: Vec::new() });
        }
        let set = Arc::new(set);
        let wanted: Vec<Digest> = {
            let set = Arc::clone(&set);
            self.blocking(move |sets| {
                // Known before its files come: those of a sync that breaks off stay by it.
                sets.store().insert_list(&set)?;
                Ok::<_, HookStoreError>(if full {
                    set.contents().into_keys().collect()
                } else {
                    sets.store().lacking(&set)
                })
            })
            .await?
        };
        let sha256 = wanted.iter().map(|digest| digest.as_bytes().to_vec()).collect();
        tell(&self.events, Event::Wanted(v1::HookFilesWanted { sha256 })).await?;
        self.receive(&mut inputs, wanted.into_iter().collect()).await?;
        let (made, findings) = {
            let (set, version, on_master) = (Arc::clone(&set), self.begin.version, self.is_on_master());
            self.blocking(move |sets| {
                sync_all_below(sets.store().dir())?;
                let made = sets.assemble(&set, &digest)?;
                let findings = sets.findings(version, on_master, &set, &made);
                Ok::<_, HookStoreError>((made, findings))
            })
            .await?
        };
        let mut warnings = self.checked(findings)?;
        warnings.extend(self.asked(&made, &warnings).await?);
        self.switch(made).await?;
        Ok(v1::HookSetUsed { switched: true, warnings })
    }

    async fn list(&self, inputs: &mut Streaming<v1::SyncHooksInput>) -> Result<HookSet, End> {
        let mut entries = Vec::new();
        loop {
            match next(inputs).await? {
                Input::Entries(part) => {
                    for entry in part.entries {
                        entries.push(parse_entry(entry).map_err(|error| invalid(words(&error)))?);
                    }
                    if entries.len() > SET_ENTRIES_MAX {
                        return Err(
                            invalid(format!("a hook set has at most {SET_ENTRIES_MAX} entries")).into()
                        );
                    }
                }
                Input::Listed(_) => break,
                Input::Begin(_) | Input::Piece(_) | Input::Sent(_) => return Err(out_of_order().into()),
            }
        }
        let set = HookSet::try_from(entries).map_err(invalid)?;
        match set_digest(&set) == self.begin.digest {
            true => Ok(set),
            false => Err(invalid("the list is not the one that was named").into()),
        }
    }

    async fn receive(
        &self,
        inputs: &mut Streaming<v1::SyncHooksInput>,
        mut wanted: BTreeSet<Digest>,
    ) -> Result<(), End> {
        let (mut bytes, mut total) = (Vec::new(), 0_u64);
        let mut file = None;
        loop {
            let piece = match next(inputs).await? {
                Input::Piece(piece) => piece,
                Input::Sent(_) if file.is_none() => return Ok(()),
                Input::Sent(_) | Input::Begin(_) | Input::Entries(_) | Input::Listed(_) => {
                    return Err(out_of_order().into());
                }
            };
            let digest = Digest::from_slice(&piece.sha256).map_err(invalid)?;
            let is_next = file.map_or_else(|| wanted.remove(&digest), |file| file == digest);
            total = total.saturating_add(u64::try_from(piece.data.len()).unwrap_or(u64::MAX));
            if !is_next || total > SET_BYTES_MAX {
                return Err(invalid("a file came that was not asked for").into());
            }
            bytes.extend_from_slice(&piece.data);
            file = (!piece.last).then_some(digest);
            if piece.last {
                let bytes = std::mem::take(&mut bytes);
                self.blocking(move |sets| sets.store().put(&digest, &bytes)).await?;
            }
        }
    }

    /// Whether the master is on this host.
    fn is_on_master(&self) -> bool {
        self.begin.env.get("MASTER") == Some(self.parts.agent.node_name().as_str())
    }

    fn checked(&self, findings: SetFindings) -> Result<Vec<String>, End> {
        let SetFindings { errors, warnings } = findings;
        if errors.is_empty() {
            return Ok(warnings);
        }
        let reason = format!("the set would not work here: {}", errors.join("; "));
        Err(End::Refused(v1::HookSetRefused { reason, warnings }))
    }

    /// Has the set before, and this node's own hooks, say whether the new one may be used; their warnings.
    async fn asked(&self, made: &Path, told: &[String]) -> Result<Vec<String>, End> {
        let directory = DirectoryName::new(SYNC_PREFIX, Phase::Pre).expect("the prefix is a good one");
        let policy = self.begin.policy.of(directory.as_str());
        let old = self.blocking(HookSets::current).await?;
        let env = self
            .parts
            .complete(self.begin.env.clone())
            .set("HOOK_SET_OLD", old.map(|old| old.digest.to_string()).unwrap_or_default())
            .set("HOOK_SET_NEW", self.begin.digest.to_string())
            .set("HOOK_SET_PATH", made.to_string_lossy());
        let job = JOB_FIRST + self.parts.sessions.jobs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let id = CallId::parse(&format!("{SYNC_PREFIX}/{}", Uuid::new_v4()))
            .expect("a prefix and a uuid are a call id");
        let digest = RequestDigest::of(id.as_str().as_bytes());
        let request = HookRequest::new(directory, env, policy.clone());
        // The caller may go away while scripts run: nobody waits for them then.
        let ended = EndRuns { parts: self.parts.clone(), job };
        let stream = run_hooks(&self.parts.keepers, &self.parts.calls, id, digest, job, request).await;
        let result = match stream.map_err(|error| call_status(&error))?.end().await {
            CallItem::Answer(answer) => answer.into_result().map_err(invalid)?,
            CallItem::Lost | CallItem::Event(_) => {
                HookResult { failure: Some("the run was lost".to_owned()), ..HookResult::default() }
            }
        };
        drop(ended);
        verdict(&policy, &result)
            .map_err(|reason| End::Refused(v1::HookSetRefused { reason, warnings: told.to_vec() }))
    }

    async fn switch(&self, made: std::path::PathBuf) -> Result<(), End> {
        let (agent, peer) = (Arc::clone(&self.parts.agent), self.peer.clone());
        let (context, digest) = (self.begin.context, self.begin.digest);
        let (turn, sets) = (Arc::clone(&self.turn), Arc::clone(self.parts.sets()?));
        // A task of its own: the caller may go away, and what is held must be so until the switch is over.
        let switching = tokio::spawn(async move {
            // No master of a newer epoch has called when the set changes.
            let _admitted = agent.admit(&peer, context, Purpose::Act).await?;
            if agent.membership().is_none() {
                return Err(Status::failed_precondition("this host has left the cluster").into());
            }
            let switched = spawn_blocking(move || {
                let _held = turn;
                sets.switch(&made)
            });
            switched.await.map_err(|error| Status::internal(error.to_string()))??;
            tracing::info!(set = %digest, "hook runs use another set from now on");
            agent.changed();
            Ok::<_, End>(())
        });
        switching.await.map_err(|error| Status::internal(error.to_string()))?
    }
}

async fn tell(events: &Told, event: Event) -> Result<(), Status> {
    let event = Ok(v1::SyncHooksEvent { event: Some(event) });
    events.send(event).await.map_err(|_| Status::cancelled("the caller went away"))
}

/// Ends when nobody listens any more.
async fn signs_of_life(events: &Told) {
    let mut signs = interval(GOING_INTERVAL);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        signs.tick().await;
        if tell(events, Event::Going(v1::HookSetGoing {})).await.is_err() {
            return;
        }
    }
}

/// Compares the set in use with its list.
///
/// # Errors
/// When it can't be read.
pub(crate) async fn check_set(parts: &HookParts) -> Result<v1::CheckHookSetResponse, Status> {
    let sets = Arc::clone(parts.sets()?);
    let turn = Arc::clone(&parts.sessions.check).lock_owned().await;
    let checked = spawn_blocking(move || {
        let _held = turn;
        sets.check_current()
    });
    let checked = checked.await;
    let checked = checked.map_err(|error| Status::internal(error.to_string()))?;
    let checked = checked.map_err(|error| Status::internal(words(&error)))?;
    Ok(v1::CheckHookSetResponse {
        digest: checked.digest.map(|digest| digest.to_string()),
        changed: checked.changed,
    })
}

/// Ends the runs of a session when it is dropped; those that have ended are not disturbed.
struct EndRuns {
    parts: HookParts,
    job: u64,
}

impl Drop for EndRuns {
    fn drop(&mut self) {
        let (calls, job) = (self.parts.calls.clone(), self.job);
        tokio::spawn(async move { calls.end_job(job).await });
    }
}

fn is_used(sets: &HookSets, digest: &Digest) -> Result<bool, HookStoreError> {
    let checked = sets.check_current()?;
    Ok(checked.digest == Some(*digest) && checked.changed.is_empty())
}

fn out_of_order() -> Status {
    invalid("a message came that does not follow the one before")
}

async fn next(inputs: &mut Streaming<v1::SyncHooksInput>) -> Result<Input, Status> {
    let next = timeout(INPUT_LIMIT, inputs.message()).await;
    let next = next.map_err(|_| Status::deadline_exceeded("the next part did not come in time"))??;
    next.and_then(|next| next.input).ok_or_else(out_of_order)
}

/// Warnings of scripts that allow, or why one does not.
fn verdict(policy: &HookPolicy, result: &HookResult) -> Result<Vec<String>, String> {
    let (mut objections, mut warnings) = (Vec::new(), Vec::new());
    objections.extend(result.failure.clone());
    for script in &result.scripts {
        let output: String = format!("{}{}", script.stderr.visible(), script.stdout.visible())
            .chars()
            .take(OUTPUT_CHARS_TOLD)
            .collect();
        let mut line =
            format!("{}: {}: {}", script.name, script.outcome.text(), output.trim_end().replace('\n', " | "));
        if matches!(script.outcome, ScriptOutcome::NotExecutable { .. }) {
            // It would refuse the set that mends it, for ever.
            line += &format!(
                " (a script of the same name in the {SYNC_PREFIX}-pre.d of this node's own hooks is run in its place)"
            );
        }
        match policy.class(&script.outcome) {
            Class::Success => {}
            Class::Warning => warnings.push(line),
            Class::Error => objections.push(line),
        }
    }
    match objections.is_empty() {
        true => Ok(warnings),
        false => Err(format!("{SYNC_PREFIX}-pre.d refused it: {}", objections.join("; "))),
    }
}
