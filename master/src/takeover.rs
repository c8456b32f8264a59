//! The office goes from one master daemon to another while both live.
//!
//! ```text
//! standby (node X)                         old master
//!   | HandOver(X) ----------------------->  no job runs: records "retired, successor X" durably, stops its driver
//!   | <------------ records, CA ----------  answers everybody "the master is X" from now on
//!   | own store, epoch + 1, driver starts
//!   | job MASTER_FAILOVER: pre hooks, commit, post hooks
//!   | on any end without a commit: TakeBack ->  epoch + 2, drives again
//!   | own store and CA are removed, standby again
//! ```
//!
//! A standby that dies half-way leaves the old master retired: `muster-masterd --resume` there takes back.
//!
//! Whoever asks for a takeover, or says that the office comes back, may be gone a moment later: from the first word to the
//! last all of it is the work of a task of its own, for whose answer the call waits.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt};
use muster_core::{engine::Job, names::NodeName, ops::Op};
use muster_proto::{
    transport::{
        ClientTls, Expect, Identity, IdentityKind, Peer, PrivateKeyPem, TlsState, connect_tls, describe,
    },
    v1::{
        self, hand_over_part::Part, master_service_client::MasterServiceClient,
        master_service_server::MasterService,
    },
};
use tokio::{
    sync::{oneshot, watch},
    task::block_in_place,
};
use tonic::{Request, Response, Status};

use crate::{
    driver::Command,
    failpoint::Failpoints,
    master::{Master, Standing},
    office::{self, OfficeRecord, Start, StartError},
    store::{Batch, MasterStore, Records, Store, StoreError, encode, keys},
};

/// A whole state is sent within this time, or the takeover is given up.
const HAND_OVER_LIMIT: std::time::Duration = std::time::Duration::from_secs(60);
/// Records that may lag behind their reader.
const PARTS_MAX: usize = 64;
/// Archived records that are committed together.
const ARCHIVE_PAGE: usize = 500;
const A_LOCK: &str = "no holder of this lock panics";

/// The store of a daemon that does not execute jobs.
pub(crate) struct LaidAside {
    store: MasterStore,
    failpoints: Failpoints,
}

/// The number of a takeover's job, once there is one, or why there will be none.
type BegunJob = watch::Receiver<Option<Result<u64, Status>>>;

/// A takeover that begins, until its job is submitted.
pub(crate) struct Begun {
    request_id: String,
    /// Its sender is the task that takes over, as long as that is so far.
    job: BegunJob,
}

impl Begun {
    fn is_going(&self) -> bool {
        self.job.has_changed().is_ok()
    }
}

impl Master {
    /// Keeps a store that nothing writes at present.
    pub(crate) fn keep_store(&self, store: MasterStore, failpoints: Failpoints) {
        *self.laid_aside.lock().expect(A_LOCK) = Some(LaidAside { store, failpoints });
    }

    /// Reads of the archive while nothing writes the store.
    fn laid_aside_archive<T>(
        &self,
        read: impl FnOnce(&MasterStore) -> Result<T, StoreError>,
    ) -> Result<T, Status> {
        let aside = self.laid_aside.lock().expect(A_LOCK);
        let aside = aside.as_ref().ok_or_else(|| Status::unavailable("the office comes back"))?;
        read(&aside.store).map_err(|error| Status::internal(describe(&error)))
    }

    fn take_store(&self) -> Option<LaidAside> {
        self.laid_aside.lock().expect(A_LOCK).take()
    }

    /// Executes no jobs any more; answers who does.
    pub(crate) fn retire(&self, successor: String, store: MasterStore, failpoints: Failpoints) {
        self.commands.set(None);
        self.keep_store(store, failpoints);
        self.nodes.clear();
        self.enrolment.clear();
        self.host_facts.clear();
        self.set_standing(Standing::Retired { successor });
    }
}

/// What the old master does for its successor.
pub(crate) struct Masters(pub(crate) Arc<Master>);

#[tonic::async_trait]
impl MasterService for Masters {
    type HandOverStream = Pin<Box<dyn Stream<Item = Result<v1::HandOverPart, Status>> + Send>>;

    async fn hand_over(
        &self,
        request: Request<v1::HandOverRequest>,
    ) -> Result<Response<Self::HandOverStream>, Status> {
        let master = &self.0;
        let cluster = master.cluster()?;
        let caller = Peer::of(&request)?.identity().cloned();
        let wanted = request.into_inner();
        let successor = caller_node(caller.as_ref(), &cluster, &wanted.successor)?;
        check_cluster(&cluster, &wanted.cluster_uuid)?;
        let (reply, answer) = oneshot::channel();
        let reply = Box::new(move |result| drop(reply.send(result)));
        master.send(Command::HandOver(successor.to_string(), reply)).await?;
        let records = answer.await.map_err(|_| Status::unavailable("the master is stopping"))?;
        let records = records.map_err(Status::failed_precondition)?;
        tracing::warn!(%successor, "the office is given away");
        let (certificate_pem, key) =
            master.authority.material().map_err(|e| Status::internal(describe(&e)))?;
        let end = v1::HandOverEnd {
            records: u64::try_from(records.len()).unwrap_or(u64::MAX),
            serial: cluster.serial,
            epoch: master.epoch(),
            archived: master.laid_aside_archive(|store| Ok(store.archived_count()))?,
        };
        let ca = v1::CaMaterial { certificate_pem, key_pem: key.as_str().to_owned() };
        let records = records.into_iter().map(|(key, value)| Part::Record(v1::StoreRecord { key, value }));
        let first = futures::stream::iter(records.chain([Part::Ca(ca)]).map(Ok));
        let parts = first.chain(archive(master.clone())).chain(futures::stream::iter([Ok(Part::End(end))]));
        let parts = parts.map(|part| part.map(|part| v1::HandOverPart { part: Some(part) }));
        Ok(Response::new(Box::pin(parts.ready_chunks(PARTS_MAX).flat_map(futures::stream::iter))))
    }

    async fn take_back(
        &self,
        request: Request<v1::TakeBackRequest>,
    ) -> Result<Response<v1::TakeBackResponse>, Status> {
        let master = &self.0;
        let cluster =
            master.view.cluster().ok_or_else(|| Status::failed_precondition("there is no cluster here"))?;
        let Standing::Retired { successor } = master.standing() else {
            return Ok(Response::new(v1::TakeBackResponse {}));
        };
        let caller = Peer::of(&request)?.identity().cloned();
        caller_node(caller.as_ref(), &cluster, &successor)?;
        let request = request.into_inner();
        check_cluster(&cluster, &request.cluster_uuid)?;
        let job = request.job.map(|record| check_job(&record)).transpose()?;
        tracing::warn!(successor, reason = request.reason, "the office comes back");
        let resumed = tokio::spawn(resume(master.clone(), job)).await;
        resumed.map_err(|error| Status::internal(error.to_string()))??;
        Ok(Response::new(v1::TakeBackResponse {}))
    }
}

/// The archive of the store that was laid aside, read page by page as the successor takes it.
fn archive(master: Arc<Master>) -> impl Stream<Item = Result<Part, Status>> + Send {
    let pages = futures::stream::try_unfold(String::new(), move |after| {
        let master = master.clone();
        async move {
            let read = move || master.laid_aside_archive(|store| store.archived_after(&after, PARTS_MAX));
            let page =
                tokio::task::spawn_blocking(read).await.map_err(|e| Status::internal(e.to_string()))??;
            let last = page.last().map(|(key, _)| key.clone());
            Ok(last.map(|last| (page, last)))
        }
    });
    pages.flat_map(|page: Result<Vec<(String, String)>, Status>| match page {
        Ok(page) => {
            let parts = page.into_iter().map(|(key, value)| Part::Archived(v1::StoreRecord { key, value }));
            futures::stream::iter(parts.map(Ok).collect::<Vec<_>>())
        }
        Err(status) => futures::stream::iter(vec![Err(status)]),
    })
}

fn check_cluster(cluster: &muster_core::model::Cluster, named: &str) -> Result<(), Status> {
    match cluster.uuid.to_string() == named {
        true => Ok(()),
        false => {
            Err(Status::failed_precondition(format!("cluster: this is {}, not {named:?}", cluster.uuid)))
        }
    }
}

/// The job of a takeover that did not succeed, and nothing else.
fn check_job(record: &v1::StoreRecord) -> Result<Job, Status> {
    let wrong = |why: String| {
        Status::invalid_argument(format!("the record {:?} is no ended takeover: {why}", record.key))
    };
    let job: Job =
        crate::store::decode(&record.key, &record.value).map_err(|error| wrong(error.to_string()))?;
    let ended = job.done() && !job.committed;
    if record.key != keys::job(job.id()) || !ended || !matches!(job.submission.op, Op::MasterFailover(_)) {
        return Err(wrong(job.summary()));
    }
    Ok(job)
}

/// The caller's node, which must be the successor that is named.
fn caller_node(
    caller: Option<&Identity>,
    cluster: &muster_core::model::Cluster,
    successor: &str,
) -> Result<NodeName, Status> {
    let uuid = match caller.map(|identity| &identity.kind) {
        Some(IdentityKind::Node { node }) => *node,
        Some(IdentityKind::Master { .. } | IdentityKind::Client { .. }) | None => {
            return Err(Status::permission_denied("only a node's own daemon can take the office"));
        }
    };
    let node = cluster.nodes.values().find(|node| node.uuid == uuid);
    match node {
        Some(node) if node.name.as_str() != successor => {
            Err(Status::permission_denied(format!("{} can't act for {successor}", node.name)))
        }
        Some(node) if node.offline => {
            Err(Status::failed_precondition(format!("node {successor} is marked offline")))
        }
        Some(node) if !node.master_candidate => Err(Status::failed_precondition(format!(
            "node {successor} is no master candidate; an admin makes it one: gnt-node modify --master-candidate yes {successor}"
        ))),
        Some(node) if node.name == cluster.master => {
            Err(Status::failed_precondition(format!("node {successor} is the master already")))
        }
        Some(node) => Ok(node.name.clone()),
        None => Err(Status::permission_denied("this node is not in the cluster")),
    }
}

/// Drives again what was given away. Who says so while it comes back waits until it is back.
async fn resume(master: Arc<Master>, job: Option<Job>) -> Result<(), Status> {
    let _turn = master.resuming.lock().await;
    if !matches!(master.standing(), Standing::Retired { .. }) {
        return Ok(());
    }
    let aside = master.take_store().ok_or_else(|| Status::unavailable("this daemon is stopping"))?;
    let driven = drive_again(&master, aside, job).await;
    driven.map_err(|error| failed(&master, &error))
}

/// The epoch passes the one that the successor may have used.
async fn drive_again(master: &Arc<Master>, mut aside: LaidAside, job: Option<Job>) -> Result<(), StartError> {
    block_in_place(|| {
        raise_epoch(&mut aside.store)?;
        // The successor's job is part of this cluster's history, and its number is used.
        let known = aside.store.load()?;
        let new = job.filter(|job| !known.contains_key(&keys::job(job.id())));
        let puts = new.map(|job| (keys::job(job.id()), encode(&job))).into_iter().collect();
        aside.store.commit(&Batch { puts, ..Batch::default() })?;
        Ok::<_, StartError>(())
    })?;
    office::activate(master, aside.store, Start::default(), aside.failpoints).await
}

/// A store that was taken up and can't be served from: only a start from the disk leads on.
fn failed(master: &Master, error: &StartError) -> Status {
    let text = crate::chain(error);
    master.fatal(&text);
    Status::internal(text)
}

/// Leaves out an epoch that a successor may have used.
pub(crate) fn raise_epoch(store: &mut MasterStore) -> Result<(), StartError> {
    let epoch = office::epoch_of(&store.load()?)? + 1;
    let puts = vec![
        (keys::EPOCH.to_owned(), encode(&epoch)),
        (keys::OFFICE.to_owned(), encode(&OfficeRecord::Active)),
    ];
    store.commit(&Batch { puts, ..Batch::default() })?;
    Ok(())
}

/// Removes a state that belongs to another host now.
pub(crate) fn forget(store: &mut MasterStore) -> Result<(), StartError> {
    let records = store.load()?;
    if records.contains_key(keys::CLUSTER) {
        store.commit(&Batch { deletes: records.into_keys().collect(), ..Batch::default() })?;
    }
    Ok(())
}

/// A standby becomes the driver and has `submit` submit the job; the number of that job. It goes on to its end also when
/// nobody waits for the answer any more. A repeat of the request meanwhile gets the same answer.
pub(crate) async fn take_over(
    master: &Arc<Master>,
    request_id: &str,
    submit: impl Future<Output = Result<u64, Status>> + Send + 'static,
) -> Result<u64, Status> {
    let mut job = begun(master, request_id, submit)?;
    let answer = job.wait_for(Option::is_some).await;
    answer
        .ok()
        .and_then(|job| job.clone())
        .unwrap_or_else(|| Err(Status::unavailable("the master is stopping")))
}

fn begun(
    master: &Arc<Master>,
    request_id: &str,
    submit: impl Future<Output = Result<u64, Status>> + Send + 'static,
) -> Result<BegunJob, Status> {
    let mut begun = master.begun.lock().expect(A_LOCK);
    match begun.as_ref().filter(|begun| begun.is_going()) {
        Some(begun) if !request_id.is_empty() && begun.request_id == request_id => Ok(begun.job.clone()),
        Some(_) => Err(Status::failed_precondition("a takeover is going on already")),
        None => {
            let (told, job) = watch::channel(None);
            *begun = Some(Begun { request_id: request_id.to_owned(), job: job.clone() });
            tokio::spawn(carry_out(master.clone(), submit, told));
            Ok(job)
        }
    }
}

/// Refuses a submission while a takeover begins here: the first job is the takeover's own.
pub(crate) fn check_not_beginning(master: &Master) -> Result<(), Status> {
    match &*master.begun.lock().expect(A_LOCK) {
        Some(begun) if begun.is_going() && master.standing() == Standing::Active => {
            Err(Status::unavailable("this daemon is becoming the master: try again in a moment"))
        }
        Some(_) | None => Ok(()),
    }
}

async fn carry_out(
    master: Arc<Master>,
    submit: impl Future<Output = Result<u64, Status>>,
    told: watch::Sender<Option<Result<u64, Status>>>,
) {
    let answer = match begin(&master).await {
        Ok(()) => submit.await,
        Err(why) => return drop(told.send_replace(Some(Err(why)))),
    };
    if answer.is_err() {
        // What the driver does not take (its queue is drained, say) has no end that could give the office back.
        stand_down(&master, None).await;
    }
    let number = answer.as_ref().ok().copied();
    told.send_replace(Some(answer));
    drop(told);
    if let Some(number) = number {
        see_to_the_end(&master, number).await;
    }
}

/// A standby takes the old master's state and becomes the driver; the job is submitted next.
async fn begin(master: &Arc<Master>) -> Result<(), Status> {
    let (old, identity) = client(master).await.map_err(Status::failed_precondition)?;
    let mut aside = master.take_store().ok_or_else(|| Status::unavailable("this daemon is stopping"))?;
    let taken = tokio::time::timeout(HAND_OVER_LIMIT, fetch(master, old, &identity)).await;
    let taken = taken.unwrap_or_else(|_| Err("the old master did not send its state in time".to_owned()));
    let taken = match taken {
        Ok(taken) => taken,
        Err(why) => {
            // It may have given what did not come, and waits to be told; one that gave nothing has nothing to do.
            let kept = keeps_office(master).await;
            master.keep_store(aside.store, aside.failpoints);
            return Err(Status::failed_precondition(format!("{why}{kept}")));
        }
    };
    let active = match block_in_place(|| put_in(master, &mut aside.store, taken)) {
        Ok(()) => office::activate(master, aside.store, Start::default(), aside.failpoints).await,
        Err(error) => Err(error),
    };
    match active {
        Ok(()) => Ok(()),
        Err(error) => {
            keeps_office(master).await;
            Err(failed(master, &error))
        }
    }
}

/// Tells the old master that it goes on, and gives words for who asked for the takeover.
async fn keeps_office(master: &Master) -> &'static str {
    match give_back(master, None).await {
        Ok(()) => "; the old master has its office still, or again",
        Err(error) => {
            tracing::warn!(error, "the old master was not told that it keeps its office");
            ""
        }
    }
}

fn put_in(master: &Master, store: &mut MasterStore, taken: Taken) -> Result<(), StartError> {
    let Taken { records, archived, ca } = taken;
    let cluster = crate::store::cluster_from(&records)?;
    let uuid = cluster.map(|cluster| cluster.uuid).unwrap_or_default();
    master.authority.install(uuid, &ca.certificate_pem, &PrivateKeyPem::new(ca.key_pem))?;
    store.commit(&Batch { puts: records.into_iter().collect(), ..Batch::default() })?;
    for page in archived.chunks(ARCHIVE_PAGE) {
        store.commit(&Batch::archiving(page.to_vec()))?;
    }
    Ok(())
}

/// This host's node identity, and where the old master is.
fn own_identity(master: &Master) -> Result<(TlsState, SocketAddr), String> {
    let node = master.config.state_dir.join("node");
    let tls = TlsState::load(&node.join("ca.pem"), &node.join("node.pem"), &node.join("node.pem"));
    let tls = tls.map_err(|error| format!("this host is not a node of a cluster: {}", describe(&error)))?;
    let data = master.config.state_dir.join("data");
    let read = |name: &str| {
        let path = data.join(name);
        std::fs::read_to_string(&path).map_err(|error| format!("could not read {}: {error}", path.display()))
    };
    let old = read("ssconf_master_node")?.trim().to_owned();
    let addresses = read("ssconf_node_primary_ips")?;
    let address = addresses.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == old);
    let address = address.and_then(|(_, ip)| ip.trim().parse().ok());
    let address = address.ok_or_else(|| format!("the address of the master {old} is not known here"))?;
    Ok((tls, SocketAddr::new(address, master.config.listen.port())))
}

type OldMaster = MasterServiceClient<tonic::transport::Channel>;

async fn client(master: &Master) -> Result<(OldMaster, Identity), String> {
    let (tls, address) = own_identity(master)?;
    let identity = tls.identity();
    let expect = Expect::Master { cluster: identity.cluster };
    let channel = connect_tls(address, &ClientTls::new(&tls, expect)).await;
    let channel = channel
        .map_err(|error| format!("could not reach the old master at {address}: {}", describe(&error)))?;
    Ok((MasterServiceClient::new(channel), identity))
}

/// The old master's whole state.
struct Taken {
    records: Records,
    archived: Vec<(String, String)>,
    ca: v1::CaMaterial,
}

async fn fetch(master: &Master, mut client: OldMaster, identity: &Identity) -> Result<Taken, String> {
    let request = v1::HandOverRequest {
        cluster_uuid: identity.cluster.to_string(),
        successor: master.config.name.to_string(),
    };
    let refused =
        |status: Status| format!("the old master did not give the office away: {}", status.message());
    let mut parts = client.hand_over(request).await.map_err(refused)?.into_inner();
    let (mut records, mut archived, mut ca) = (Records::new(), Vec::new(), None);
    while let Some(part) = parts.message().await.map_err(refused)? {
        match part.part {
            Some(Part::Record(record)) => drop(records.insert(record.key, record.value)),
            Some(Part::Archived(record)) => archived.push((record.key, record.value)),
            Some(Part::Ca(material)) => ca = Some(material),
            Some(Part::End(end)) => {
                let counts = |count: usize, sent: u64| u64::try_from(count).is_ok_and(|count| count == sent);
                let whole = counts(records.len(), end.records) && counts(archived.len(), end.archived);
                return match ca {
                    Some(ca) if whole => Ok(Taken { records, archived, ca }),
                    Some(_) | None => Err("the old master's state came incomplete".to_owned()),
                };
            }
            None => {}
        }
    }
    Err("the old master's state came incomplete".to_owned())
}

/// How long a follower of a failed takeover is kept from its end while the office goes back.
const GOING_BACK_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// Waits until the office is where the job's end leaves it, so that who is told of the end finds a master.
pub(crate) async fn settled(master: &Master, job: &Job) {
    let is_failover = matches!(job.submission.op, Op::MasterFailover(_));
    if !is_failover || job.committed || master.standing() != Standing::Active {
        return;
    }
    let mut standing = master.standing.subscribe();
    let back = standing.wait_for(|standing| *standing == Standing::Standby);
    if tokio::time::timeout(GOING_BACK_LIMIT, back).await.is_err() {
        tracing::warn!(job = job.id(), "the office is still going back");
    }
}

/// Waits for the job's end; the office goes back unless the commit gave it to this node, whatever came after that. No
/// other job begins here meanwhile.
async fn see_to_the_end(master: &Arc<Master>, job: u64) {
    let Some(mut views) = master.view.follow(job) else { return };
    let done = views.wait_for(|view| view.job.done()).await.map(|view| view.job.clone());
    let Ok(job) = done else { return };
    if !job.committed {
        stand_down(master, Some(&job)).await;
    }
}

/// Gives up what was begun: this daemon is a standby again, the old master drives again.
async fn stand_down(master: &Arc<Master>, job: Option<&Job>) {
    let (reply, answer) = oneshot::channel();
    let reply = Box::new(move |result: Result<Records, String>| drop(reply.send(result)));
    let old = master.view.cluster().map(|cluster| cluster.master.to_string()).unwrap_or_default();
    let sent = master.send(Command::HandOver(old, reply)).await.map_err(|status| status.message().to_owned());
    let stopped = match sent {
        Ok(()) => answer.await.unwrap_or_else(|_| Err("the driver has ended".to_owned())),
        Err(why) => Err(why),
    };
    if let Err(why) = stopped {
        // Going on would remove the records under a driver that still executes jobs.
        let text = format!("could not stop driving after a master failover that failed: {why}");
        return master.fatal(&text);
    }
    master.close_tcp();
    if let Err(error) = give_back(master, job).await {
        tracing::error!(error, "the old master was not told: start it with --resume");
    }
    if let Some(mut aside) = master.take_store() {
        let forgotten = forget(&mut aside.store).and_then(|()| Ok(master.authority.remove()?));
        if let Err(error) = forgotten {
            return master.fatal(&crate::chain(&error));
        }
        master.keep_store(aside.store, aside.failpoints);
    }
    master.pins.clear();
    master.set_standing(Standing::Standby);
}

/// Tells the old master that the office is its own again, and has it record the job that did not take it.
async fn give_back(master: &Master, job: Option<&Job>) -> Result<(), String> {
    let (mut client, identity) = client(master).await?;
    let reason = "the master failover did not succeed".to_owned();
    let job = job.map(|job| v1::StoreRecord { key: keys::job(job.id()), value: encode(job) });
    let request = v1::TakeBackRequest { cluster_uuid: identity.cluster.to_string(), reason, job };
    match tokio::time::timeout(HAND_OVER_LIMIT, client.take_back(request)).await {
        Ok(answer) => answer.map(drop).map_err(|status| status.message().to_owned()),
        Err(_) => Err("the old master did not answer in time".to_owned()),
    }
}
