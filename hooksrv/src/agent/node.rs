//! The agent: what a node daemon knows and keeps, shared by its services.

use std::{
    collections::BTreeSet,
    fs, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use muster_core::{calls::AliveJobs, names::NodeName};
use muster_proto::hookset::HookStoreError;
use muster_proto::transport::{Connections, FileError, IdentityKind, MODE_PRIVATE, Peer, write_atomic};
use tokio::{
    sync::{RwLock, RwLockReadGuard, watch},
    task::JoinError,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use uuid::Uuid;

use super::{
    Backends, Config, Context, CredentialError, Credentials, Enrolment, EnrolmentError, FactStore, Facts,
    FactsError, FreezeWatch, Holder, Keys, Membership, MembershipError, Memberships, Purpose, Requests, Runs,
    Signed, files, host_watch::HostWatch, join::NODE_DIR_MODE,
};
use crate::{CallError, CallId, hookset::HookSets};

/// Everybody may pass through the state directory on the way to the facts.
const STATE_DIR_MODE: u32 = 0o755;

/// The file, in the node's directory, that says whose calls are journaled.
const CALLS_CLUSTER: &str = "calls/cluster";

/// Why the agent can't begin or do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A directory can't be made, or a file in it not used.
    #[error("could not use {}", .path.display())]
    Directory {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another node daemon runs on this state.
    #[error("{} is in use: another node daemon runs on this host", .0.display())]
    InUse(PathBuf),
    /// The membership.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// Key and certificate.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// The facts.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// The request to join.
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
    /// The calls' journal.
    #[error("the journal of calls can't be used")]
    Calls(#[from] CallError),
    /// Another file can't be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The cluster's hook set.
    #[error(transparent)]
    HookSet(#[from] HookStoreError),
    /// A thread died.
    #[error("a task was given up")]
    Task(#[from] JoinError),
}

impl From<AgentError> for Status {
    fn from(error: AgentError) -> Status {
        let text = files::words(&error);
        match error {
            AgentError::Credentials(
                CredentialError::Tls(_)
                | CredentialError::OtherIdentity { .. }
                | CredentialError::DataNotAsked,
            ) => Status::invalid_argument(text),
            AgentError::Directory { .. }
            | AgentError::InUse(_)
            | AgentError::Membership(_)
            | AgentError::Credentials(_)
            | AgentError::Facts(_)
            | AgentError::Enrolment(_)
            | AgentError::Calls(_)
            | AgentError::File(_)
            | AgentError::HookSet(_)
            | AgentError::Task(_) => Status::internal(text),
        }
    }
}

/// The state of a node daemon.
pub struct Agent {
    config: Config,
    members: Memberships,
    credentials: Credentials,
    facts: FactStore,
    backends: Arc<dyn Backends>,
    runs: Vec<Arc<dyn Runs>>,
    /// The name that a node in no cluster was told by the master on its own host, which is making one.
    name_told: Mutex<Option<NodeName>>,
    /// The cluster whose calls are journaled, as the file `calls/cluster` keeps it. Locked while they are emptied, so
    /// that of two first calls the second does not end the first.
    calls_cluster: tokio::sync::Mutex<Option<Uuid>>,
    /// Read while a call is checked and begun, written while a master says hello: so no call of the master before can
    /// begin after its runs were ended.
    turn: RwLock<()>,
    /// Whether a master has said hello since the daemon's start.
    greeted: AtomicBool,
    changes: watch::Sender<()>,
    /// States of this node that were begun to be gathered.
    states: AtomicU64,
    freezes: FreezeWatch,
    host: HostWatch,
    stopping: CancellationToken,
    _lock: NodeLock,
}

/// Held while a daemon works on a host's node state. To be taken before anything else: a daemon that opens a journal
/// ends what an earlier one left running.
#[derive(Debug)]
pub struct NodeLock(#[expect(dead_code, reason = "the lock ends when the file is closed")] fs::File);

impl NodeLock {
    /// Makes the state directories and takes the lock.
    ///
    /// # Errors
    /// When a directory can't be made, or another daemon has the lock.
    pub fn acquire(config: &Config) -> Result<Self, AgentError> {
        let folder = config.node_dir();
        for (path, mode) in [(&config.state_dir, STATE_DIR_MODE), (&folder, NODE_DIR_MODE)] {
            files::make_dir(path, mode)
                .map_err(|source| AgentError::Directory { path: path.clone(), source })?;
        }
        let path = folder.join("lock");
        let failed = |source| AgentError::Directory { path: path.clone(), source };
        let file = fs::File::create(&path).map_err(failed)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(NodeLock(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(AgentError::InUse(path)),
            Err(error) => Err(failed(error.into())),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs file work on a thread for such.
async fn blocking<T: Send + 'static, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, AgentError>
where
    AgentError: From<E>,
    E: Send + 'static,
{
    Ok(tokio::task::spawn_blocking(work).await??)
}

impl Agent {
    /// Reads what is on disk. `runs` are the shell's own calls; those of `backends` are added.
    ///
    /// # Errors
    /// When something can't be read.
    pub fn open(
        lock: NodeLock,
        config: Config,
        backends: Arc<dyn Backends>,
        mut runs: Vec<Arc<dyn Runs>>,
        stopping: CancellationToken,
    ) -> Result<Self, AgentError> {
        let folder = config.node_dir();
        let members = Memberships::open(folder.join("node.json"))?;
        let credentials = Credentials::new(folder.clone());
        let facts = FactStore::open(config.data_dir(), folder.join("facts.json"), config.master_socket())?;
        if members.get().is_some() {
            credentials.load()?;
            // The certificate came and the daemon died before it removed the request.
            Enrolment::remove(&folder.join("enrolment.json"))?;
        } else {
            // Died while leaving, or before it had entered.
            credentials.clear()?;
            facts.clear()?;
            HookSets::new(config.hook_sets_dir()).clear()?;
        }
        runs.extend(backends.runs());
        let calls_cluster =
            fs::read_to_string(folder.join(CALLS_CLUSTER)).ok().and_then(|text| text.parse().ok());
        let host = HostWatch::new(config.host_root.clone(), backends.hooks_only());
        Ok(Agent {
            config,
            members,
            credentials,
            facts,
            backends,
            runs,
            name_told: Mutex::default(),
            calls_cluster: tokio::sync::Mutex::new(calls_cluster),
            turn: RwLock::new(()),
            greeted: AtomicBool::new(false),
            changes: watch::Sender::new(()),
            states: AtomicU64::new(0),
            freezes: FreezeWatch::new(Connections::default()),
            host,
            stopping,
            _lock: lock,
        })
    }

    /// The daemon's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The node's place in its cluster, if it has one.
    pub fn membership(&self) -> Option<Membership> {
        self.members.get()
    }

    /// The facts on disk.
    pub fn facts(&self) -> &FactStore {
        &self.facts
    }

    /// Key and certificate.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Cancelled when the daemon is to end.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Says that something in the node's state changed, so that the master hears of it at once.
    pub fn changed(&self) {
        self.changes.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The number of a state whose gathering begins now.
    pub(super) fn next_state(&self) -> u64 {
        self.states.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(super) fn backends(&self) -> &Arc<dyn Backends> {
        &self.backends
    }

    pub(super) fn connections(&self) -> &Connections {
        self.freezes.connections()
    }

    pub(super) fn freezes(&self) -> &FreezeWatch {
        &self.freezes
    }

    /// What this host is.
    pub(super) fn host(&self) -> &HostWatch {
        &self.host
    }

    /// Outputs of commands that run.
    pub(super) fn commands_dir(&self) -> PathBuf {
        self.config.node_dir().join("commands")
    }

    /// The digest of the cluster's hook set that runs use. Looks at one link: blocks.
    pub(super) fn hook_set(&self) -> Option<String> {
        match HookSets::new(self.config.hook_sets_dir()).current() {
            Ok(made) => made.map(|made| made.digest.to_string()),
            Err(error) => {
                tracing::error!(error = files::words(&error), "the cluster's hook set can't be told");
                None
            }
        }
    }

    pub(super) fn enrolment_path(&self) -> PathBuf {
        self.config.node_dir().join("enrolment.json")
    }

    /// The name by which the cluster knows this node; before there is a cluster, the one in the configuration.
    pub fn node_name(&self) -> NodeName {
        let member = self.membership().map(|member| member.name);
        member.or_else(|| lock(&self.name_told).clone()).unwrap_or_else(|| self.config.name.clone())
    }

    /// Whether a call's epoch is still the newest: for calls that go on for long.
    pub fn is_current(&self, context: &Context) -> bool {
        self.members.is_current(context)
    }

    /// Takes or refuses a call (HOOKS.md R3). To be held until what the call does has begun.
    ///
    /// # Errors
    /// FAILED_PRECONDITION by the rule of [`super::check`]; INTERNAL when the disk fails; UNAVAILABLE when this daemon was
    /// frozen and the caller must say hello first.
    pub async fn admit(
        self: &Arc<Self>,
        peer: &Peer,
        context: Context,
        purpose: Purpose,
    ) -> Result<RwLockReadGuard<'_, ()>, Status> {
        let turn = self.turn.read().await;
        self.check(peer, context, purpose).await?;
        Ok(turn)
    }

    async fn check(self: &Arc<Self>, peer: &Peer, context: Context, purpose: Purpose) -> Result<(), Status> {
        let certificate = match peer {
            Peer::Unix { .. } => None,
            Peer::Tls { identity, .. } => match identity.kind {
                IdentityKind::Master { epoch, .. } => Some(epoch),
                IdentityKind::Node { .. } | IdentityKind::Client { .. } => {
                    return Err(Status::permission_denied(format!("{peer} is no master")));
                }
            },
            Peer::TlsAnonymous { .. } => {
                return Err(Status::unauthenticated("the caller has no certificate"));
            }
        };
        let agent = Arc::clone(self);
        let admitted =
            tokio::task::spawn_blocking(move || agent.members.admit(&context, certificate, purpose)).await;
        admitted.map_err(|error| Status::internal(error.to_string()))??;
        if self.membership().is_none() {
            self.receive_visitor(context.cluster).await?;
        }
        // Last, so that hardly any time is left for a freeze between this and what the call does.
        self.freezes.check(peer.connection(), purpose)
    }

    /// A cluster that is being made counts its jobs from 1, as the one did whose making was denied before.
    async fn receive_visitor(&self, cluster: Uuid) -> Result<(), AgentError> {
        let mut calls_cluster = self.calls_cluster.lock().await;
        if *calls_cluster == Some(cluster) {
            return Ok(());
        }
        *lock(&self.name_told) = None;
        self.end_others(AliveJobs::default()).await;
        self.forget_calls(&mut calls_cluster, cluster).await
    }

    /// A master says hello: it is taken or refused, guests of the past end, and all runs but those of its jobs.
    ///
    /// # Errors
    /// As [`Agent::admit`].
    pub(super) async fn hello(
        self: &Arc<Self>,
        peer: &Peer,
        context: Context,
        name: NodeName,
        alive: AliveJobs,
        present: Vec<(Uuid, u64)>,
    ) -> Result<usize, Status> {
        {
            let _turn = self.turn.write().await;
            self.check(peer, context, Purpose::Ask).await?;
            self.freezes.greeted(peer.connection())?;
        }
        self.take_name(name).await?;
        self.end_past_guests(present).await?;
        self.greeted.store(true, Ordering::Release);
        // So that what watches for a master before this one ends.
        self.changed();
        Ok(self.end_others(alive).await)
    }

    /// What they write is worthless, and their instances run elsewhere.
    async fn end_past_guests(self: &Arc<Self>, present: Vec<(Uuid, u64)>) -> Result<(), Status> {
        let agent = Arc::clone(self);
        let ended = tokio::task::spawn_blocking(move || agent.backends.end_past_guests(&present)).await;
        let ended = ended.map_err(|error| Status::internal(error.to_string()))?;
        ended.map_err(|words| Status::unavailable(format!("a guest of the past may still be here: {words}")))
    }

    /// Takes or refuses a call to the backends: as [`Agent::admit`], and none before a master has greeted this daemon.
    /// Until then it may hold guests that are of the past.
    ///
    /// # Errors
    /// As there; UNAVAILABLE before the first greeting.
    pub async fn admit_greeted(
        self: &Arc<Self>,
        peer: &Peer,
        context: Context,
        purpose: Purpose,
    ) -> Result<RwLockReadGuard<'_, ()>, Status> {
        let turn = self.admit(peer, context, purpose).await?;
        match self.greeted.load(Ordering::Acquire) {
            true => Ok(turn),
            false => Err(Status::unavailable("this daemon was started and has not heard from a master yet")),
        }
    }

    async fn take_name(self: &Arc<Self>, name: NodeName) -> Result<(), AgentError> {
        if self.membership().is_none() {
            *lock(&self.name_told) = Some(name);
            return Ok(());
        }
        let agent = Arc::clone(self);
        blocking(move || agent.members.rename(name)).await
    }

    async fn end_others(&self, alive: AliveJobs) -> usize {
        let ends = self.runs.iter().map(|runs| runs.end_others(alive.clone()));
        futures::future::join_all(ends).await.into_iter().sum()
    }

    /// Ends all runs of a job; the number of runs.
    ///
    /// # Errors
    /// DEADLINE_EXCEEDED while something of the job still goes on here.
    pub(super) async fn end_job(&self, job: u64, calls: &[CallId]) -> Result<usize, Status> {
        // First, so that none of them begins between the end of the others and this. A full disk must not keep alive what
        // runs.
        let mut withdrawn = Ok(());
        for runs in &self.runs {
            withdrawn = withdrawn.and(runs.withdraw(calls).await);
        }
        let ends = futures::future::join_all(self.runs.iter().map(|runs| runs.end_job(job, calls))).await;
        withdrawn.map_err(|error| super::call_status(&error))?;
        match ends.iter().map(|end| end.left).sum::<usize>() {
            0 => Ok(ends.iter().map(|end| end.told).sum()),
            left => Err(Status::deadline_exceeded(format!(
                "{left} runs of job {job} were told to end and have not"
            ))),
        }
    }

    /// Empties the journals; from now on they hold the calls of `cluster`.
    async fn forget_calls(&self, calls_cluster: &mut Option<Uuid>, cluster: Uuid) -> Result<(), AgentError> {
        for runs in &self.runs {
            runs.clear().await?;
        }
        let path = self.config.node_dir().join(CALLS_CLUSTER);
        blocking(move || write_atomic(&path, cluster.to_string().as_bytes(), MODE_PRIVATE)).await?;
        *calls_cluster = Some(cluster);
        Ok(())
    }

    /// Replaces the facts and closes the connections of clients that are not accepted any more.
    pub(super) async fn put_facts(self: &Arc<Self>, epoch: u64, facts: Facts) -> Result<u64, AgentError> {
        let agent = Arc::clone(self);
        let (serial, gone) = blocking(move || {
            let before = agent.facts.clients();
            let serial = agent.facts.put(epoch, &facts)?;
            let after = agent.facts.clients();
            Ok::<_, FactsError>((serial, before.difference(&after).copied().collect::<BTreeSet<_>>()))
        })
        .await?;
        self.connections().retain(|fingerprint| !gone.contains(fingerprint));
        self.changed();
        Ok(serial)
    }

    /// Makes new keys and gives signing requests for them.
    pub(super) async fn make_signing_request(self: &Arc<Self>) -> Result<Requests, AgentError> {
        let (agent, name) = (Arc::clone(self), self.node_name());
        blocking(move || agent.credentials.make_requests(name.as_str(), agent.backends.hooks_only())).await
    }

    /// Takes the certificates for the newest keys: the node's first, or those that follow others. A repeat is fine.
    pub(super) async fn install_certificate(
        self: &Arc<Self>,
        context: Context,
        name: NodeName,
        signed: Signed,
    ) -> Result<String, AgentError> {
        let agent = Arc::clone(self);
        let fingerprint = blocking(move || {
            let member = agent.members.get();
            let holder = Holder { cluster: context.cluster, node: member.as_ref().map(|member| member.node) };
            if let Some(current) = agent.credentials.current(&signed.certificate_pem) {
                return Ok::<_, AgentError>(current.to_string());
            }
            let checked = Credentials::check(signed, agent.credentials.next_keys()?, holder, &name)?;
            agent.credentials.store(&checked)?;
            let fingerprint = checked.fingerprint.to_string();
            match member {
                Some(_) => agent.members.rename(name)?,
                None => {
                    let member = Membership::new(context.cluster, checked.node, name, Some(&context));
                    agent.members.enter(member)?;
                    Enrolment::remove(&agent.enrolment_path())?;
                }
            }
            agent.credentials.activate(checked)?;
            Ok(fingerprint)
        })
        .await?;
        self.changed();
        Ok(fingerprint)
    }

    /// Makes the node a member by the certificates that a request to join has brought.
    pub(super) async fn enter_by_enrolment(
        &self,
        cluster: Uuid,
        node: Uuid,
        name: NodeName,
        signed: Signed,
        keys: Keys,
    ) -> Result<(), AgentError> {
        // Calls of a cluster that this host was in, or that was being made on it.
        self.forget_calls(&mut *self.calls_cluster.lock().await, cluster).await?;
        let holder = Holder { cluster, node: Some(node) };
        // Short file work, once in the life of a node.
        let checked = Credentials::check(signed, keys, holder, &name)?;
        self.credentials.store(&checked)?;
        self.members.enter(Membership::new(cluster, node, name, None))?;
        Enrolment::remove(&self.enrolment_path())?;
        self.credentials.activate(checked)?;
        self.host.look_soon();
        tracing::info!(%cluster, %node, "this host is a node now");
        Ok(())
    }

    /// Forgets the cluster.
    pub(super) async fn leave(self: &Arc<Self>) -> Result<(), AgentError> {
        self.end_others(AliveJobs::default()).await;
        let agent = Arc::clone(self);
        blocking(move || {
            // First of all: whatever happens after this, the node is no member when it starts again.
            agent.members.leave()?;
            Enrolment::remove(&agent.enrolment_path())?;
            agent.credentials.clear()?;
            agent.facts.clear()?;
            HookSets::new(agent.config.hook_sets_dir()).clear()?;
            let calls = agent.config.node_dir().join(CALLS_CLUSTER);
            files::remove(&calls).map_err(|source| AgentError::Directory { path: calls, source })?;
            Ok::<_, AgentError>(())
        })
        .await?;
        // The next cluster's first call empties the journals, also should it have this one's uuid.
        *self.calls_cluster.lock().await = None;
        *lock(&self.name_told) = None;
        tracing::info!("this host left its cluster");
        Ok(())
    }
}
