//! How a daemon takes the office of master, follows its own commits, and gives the office up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use muster_core::{edit::Touched, engine::Job, hooks::Env, model::Cluster, names::NodeName, ops::Op};
use muster_proto::transport::TlsState;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{sync::mpsc, task::block_in_place};

use crate::{
    ca::CaError,
    driver::{Driver, EPOCH_FIRST, Loaded},
    events::Event,
    failpoint::{Failpoints, UnknownFailpoint},
    master::{Master, Standing},
    nodes::{CallError, NodeInfo, Office},
    serve,
    shell::{self, RandomIds, SystemClock, wall_ms},
    store::{
        Batch, ClusterRecordError, MasterStore, RecordWriter, Records, Store, StoreError, ValueError,
        cluster_from, decode, encode, keys,
    },
};

/// How often a starting master that may pass the nodes' epochs tries: once it knows one, and once more for a node that is
/// heard only then.
const EPOCH_TRIES: u32 = 3;

/// Clients elsewhere are told of the end of the job that destroyed the cluster; with scripts after it that never end they wait
/// no longer than this.
const FAREWELL_LIMIT: Duration = Duration::from_secs(600);
/// Who lost the connection at that moment can ask once more.
const FAREWELL_PAUSE: Duration = Duration::from_secs(5);

/// A lock here is held for copies only.
const A_LOCK: &str = "no holder of this lock panics";

/// How the daemon was started.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    /// Waits to become master.
    pub standby: bool,
    /// Takes a given office back.
    pub resume: bool,
    /// Serves an older store than the nodes have seen.
    pub accept_loss: bool,
}

/// Why a daemon can't serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record of the store.
    #[error("the store can't be understood")]
    Cluster(#[from] ClusterRecordError),
    /// A value of the store.
    #[error("the store can't be understood")]
    Value(#[from] ValueError),
    /// The certificate authority.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// A socket or a thread.
    #[error("could not {what}")]
    System {
        /// What was being done.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The environment names an unknown failpoint.
    #[error(transparent)]
    Failpoint(#[from] UnknownFailpoint),
    /// The store is older than what the nodes have seen.
    #[error(
        "node {node} has seen the configuration with serial {seen}, and the store {path} has {serial}: it is an old or a damaged copy. \
         Restore a newer backup (muster-masterd --restore FILE), or start with --accept-loss to go on with the older configuration"
    )]
    OldStore {
        /// The node that has seen more.
        node: String,
        /// What it has seen.
        seen: u64,
        /// What the store has.
        serial: u64,
        /// The store's file.
        path: String,
    },
    /// The store is older than what the nodes have seen, or another master has the office.
    #[error(
        "node {node} refuses this master ({message}), and the store {path} is in epoch {epoch}: it is an old or a damaged copy, or another \
         master has taken the office. Restore a newer backup (muster-masterd --restore FILE), or, if no other master runs, start with --accept-loss to go on with \
         the older configuration"
    )]
    OldEpoch {
        /// The node that has seen more.
        node: String,
        /// Its words.
        message: String,
        /// This master's epoch.
        epoch: u64,
        /// The store's file.
        path: String,
    },
    /// A standby needs a host without a store.
    #[error("this host is the master of cluster {0}: a standby is for another host")]
    NotStandby(String),
    /// The daemon ended by an error of its own.
    #[error("{0}")]
    Fatal(String),
}

/// Whether a store's owner executes jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OfficeRecord {
    /// It does.
    Active,
    /// It gave the office away.
    Retired {
        /// To this node.
        successor: String,
    },
}

pub(crate) fn office_record(records: &Records) -> Result<OfficeRecord, ValueError> {
    records.get(keys::OFFICE).map_or(Ok(OfficeRecord::Active), |text| decode(keys::OFFICE, text))
}

/// Takes the office over a store: the epoch grows, what was going goes on.
pub(crate) async fn activate(
    master: &Arc<Master>,
    mut store: MasterStore,
    start: Start,
    failpoints: Failpoints,
) -> Result<(), StartError> {
    let (records, cluster, jobs) = block_in_place(|| {
        let records = store.load()?;
        let (cluster, jobs) = (cluster_from(&records)?, shell::load_jobs(&records)?);
        Ok::<_, StartError>((records, cluster, jobs))
    })?;
    master.hook_sets.load(&records)?;
    master.view.reset(cluster.clone(), jobs.clone());
    let mut epoch = None;
    if let Some(cluster) = &cluster {
        let next = epoch_of(&records)? + 1;
        // Before any node is met, whose words are newer.
        let mut stale = master.host_facts.load(cluster, &records)?;
        enter_epoch(master, &mut store, cluster, next)?;
        stale.extend(master.enrolment.load(cluster, &records)?);
        block_in_place(|| store.commit(&Batch { deletes: stale, ..Batch::default() }))?;
        accept_renewals(master, cluster.nodes.keys());
        epoch = Some(check_nodes(master, &mut store, cluster, next, start.accept_loss).await?);
        master.nodes.update(cluster);
    }
    let queue = optional_record(&records, keys::QUEUE)?;
    let next_job = optional_record(&records, keys::NEXT_JOB)?;
    let loaded = Loaded { cluster: cluster.clone(), jobs, epoch, queue, next_job };
    let driver =
        Driver::new(master.config.name.clone(), loaded, store, SystemClock::default(), RandomIds, failpoints);
    let (commands, waiting) = mpsc::channel(shell::COMMANDS_MAX);
    master.commands.set(Some(commands));
    master.set_standing(if cluster.is_some() { Standing::Active } else { Standing::NoCluster });
    shell::start(driver, waiting, master.clone())
        .map_err(|source| system("start the driver's thread", source))?;
    if cluster.is_some() {
        serve::open_tcp(master).await?;
    }
    Ok(())
}

pub(crate) fn system(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StartError {
    StartError::System { what: what.to_owned(), source: source.into() }
}

pub(crate) fn epoch_of(records: &Records) -> Result<u64, ValueError> {
    optional_record(records, keys::EPOCH)
}

/// A record that may be missing.
fn optional_record<T: DeserializeOwned + Default>(records: &Records, key: &str) -> Result<T, ValueError> {
    records.get(key).map_or_else(|| Ok(T::default()), |text| decode(key, text))
}

/// Identity and certificate of this master in an epoch.
pub(crate) fn enter(master: &Master, cluster: &Cluster, epoch: u64) -> Result<(), StartError> {
    master.set_epoch(epoch);
    renew_own(master, cluster)?;
    let office = Office { cluster: Some(cluster.uuid), epoch, serial: cluster.serial };
    master.nodes.set_office(office);
    master.nodes.meet(cluster);
    Ok(())
}

/// Makes this master's own certificate anew, for its present epoch; connections made from now on use it.
pub(crate) fn renew_own(master: &Master, cluster: &Cluster) -> Result<(), CaError> {
    let name = &master.config.name;
    let uuid = cluster.nodes.get(name).map(|node| node.uuid).unwrap_or_default();
    let own = master.authority.own_certificate(
        name,
        uuid,
        master.epoch(),
        master.config.advertised_ip(),
        wall_ms(),
    )?;
    let tls = master.own_tls(&own)?;
    master.pins.pin_own(tls.identity(), tls.fingerprint());
    master.nodes.set_tls(&tls);
    Ok(())
}

impl Master {
    /// The daemon's TLS state, made at the first certificate and changed by later ones.
    fn own_tls(&self, own: &crate::ca::OwnCertificate) -> Result<TlsState, CaError> {
        let mut slot = self.tls.lock().expect("no holder of this lock panics");
        match &*slot {
            Some(tls) => own.put_into(tls)?,
            None => *slot = Some(own.tls.clone()),
        }
        Ok(slot.clone().unwrap_or_else(|| own.tls.clone()))
    }
}

/// Makes an epoch durable, then begins it.
fn enter_epoch(
    master: &Master,
    store: &mut MasterStore,
    cluster: &Cluster,
    epoch: u64,
) -> Result<(), StartError> {
    let active = encode(&OfficeRecord::Active);
    let puts = vec![(keys::EPOCH.to_owned(), encode(&epoch)), (keys::OFFICE.to_owned(), active)];
    block_in_place(|| store.commit(&Batch { puts, ..Batch::default() }))?;
    enter(master, cluster, epoch)
}

/// What the nodes said to the greeting of a starting master.
type Greeted = BTreeMap<NodeName, Result<NodeInfo, CallError>>;

/// Refuses to serve with an older store than any node has seen: a restored or damaged file can't go unnoticed. Gives the
/// epoch in which all nodes take this master: with `accept_loss` one above all that they have seen.
async fn check_nodes(
    master: &Master,
    store: &mut MasterStore,
    cluster: &Cluster,
    first: u64,
    accept_loss: bool,
) -> Result<u64, StartError> {
    let mut epoch = first;
    let path = store.path().display().to_string();
    for tries_left in (0..EPOCH_TRIES).rev() {
        let greeted = master.nodes.hello_all().await;
        let Some((node, message)) = refused(&greeted) else {
            let lost = check_serial(greeted, cluster, &path, accept_loss)?;
            if lost && epoch == first {
                // An earlier life of this cluster may have used this epoch: the nodes would hold its serials against us.
                epoch += 1;
                enter_epoch(master, store, cluster, epoch)?;
            }
            break;
        };
        let error = StartError::OldEpoch { node, message, epoch, path: path.clone() };
        let above = master.nodes.epoch_above();
        if !accept_loss || above < epoch || tries_left == 0 {
            return Err(error);
        }
        tracing::warn!("--accept-loss: {error}");
        epoch = above + 1;
        enter_epoch(master, store, cluster, epoch)?;
    }
    Ok(epoch)
}

/// The first node that refused this master's epoch, and its words.
fn refused(greeted: &Greeted) -> Option<(String, String)> {
    greeted.iter().find_map(|(node, answer)| match answer {
        Err(CallError::OfficeLost(message)) => Some((node.to_string(), message.clone())),
        Ok(_) | Err(CallError::NotReached(_) | CallError::Refused { .. }) => None,
    })
}

/// Whether commits were lost that a node has seen, and the loss is accepted.
fn check_serial(
    greeted: Greeted,
    cluster: &Cluster,
    path: &str,
    accept_loss: bool,
) -> Result<bool, StartError> {
    let mut lost = false;
    for (node, info) in greeted {
        let Ok(info) = info else { continue };
        // Facts are the last thing that a node hears of a commit which ran no script on it.
        let seen = info.serial_seen.max(info.facts_serial);
        if seen <= cluster.serial {
            continue;
        }
        let error = StartError::OldStore {
            node: node.to_string(),
            seen,
            serial: cluster.serial,
            path: path.to_owned(),
        };
        if !accept_loss {
            return Err(error);
        }
        tracing::warn!("--accept-loss: {error}");
        lost = true;
    }
    Ok(lost)
}

/// Dials nodes by all certificates that are accepted of them: one of a renewal that was not committed counts too.
fn accept_renewals<'a>(master: &Master, names: impl Iterator<Item = &'a NodeName>) {
    for name in names {
        master.nodes.accept(name, master.pins.of_node(name));
    }
}

/// Follows a commit that is durable: who is accepted, who is dialled, what nodes are told.
/// Scripts hear of it where it `is_news`.
pub(crate) async fn configuration_changed(master: &Arc<Master>, touched: &BTreeSet<Touched>, is_news: bool) {
    let cluster = master.view.cluster();
    if touched.contains(&Touched::All) {
        end_farewell(master).await;
    }
    let mut settled = master.pins.settled(cluster.as_deref(), touched);
    let Some(cluster) = cluster else { return leave(master) };
    if touched.contains(&Touched::All) {
        if let Err(error) = master.authority.finish() {
            return master.fatal(&crate::chain(&error));
        }
        let entered = match enter(master, &cluster, EPOCH_FIRST) {
            Ok(()) => serve::open_tcp(master).await,
            Err(error) => Err(error),
        };
        if let Err(error) = entered {
            return master.fatal(&crate::chain(&error));
        }
        master.set_standing(Standing::Active);
    }
    master.pins.apply(Some(&cluster), touched);
    settled.extend(master.enrolment.follow(Some(&cluster), touched));
    settled.extend(master.host_facts.follow(Some(&cluster), touched));
    master.nodes.update(&cluster);
    accept_renewals(master, touched.iter().filter_map(Touched::node));
    if is_news {
        let serial = Env::new().set("CONFIG_SERIAL", cluster.serial.to_string());
        master.events.push(Event::new("config-update").env(serial));
    }
    if !settled.is_empty() {
        let master = master.clone();
        tokio::runtime::Handle::current().spawn(async move {
            let batch = Batch { deletes: settled, ..Batch::default() };
            if master.commands.write(batch).await.is_err() {
                tracing::debug!("the driver ended before records of settled certificates were deleted");
            }
        });
    }
}

/// The cluster is gone: there is nothing to be served but the end of its last job, and the local socket.
fn leave(master: &Arc<Master>) {
    let gone = master.clone();
    tokio::runtime::Handle::current().spawn(async move {
        let batch = Batch { deletes: vec![keys::HOOK_SET.to_owned()], ..Batch::default() };
        if gone.commands.write(batch).await.is_err() {
            tracing::debug!("the driver ended before the record of the hook set was deleted");
        }
    });
    master.enrolment.clear();
    master.hook_sets.clear();
    master.host_facts.clear();
    master.nodes.end_members();
    master.set_standing(Standing::NoCluster);
    let farewell = tokio::runtime::Handle::current().spawn(farewell(master.clone()));
    *master.farewell.lock().expect(A_LOCK) = Some(farewell);
}

/// Nobody is accepted from outside once those who follow the job that destroyed the cluster can know how it ended: it goes on
/// behind its commit, and where they come back to there is nobody.
async fn farewell(master: Arc<Master>) {
    let destroys = |job: &Job| matches!(job.submission.op, Op::ClusterDestroy(_)) && job.started_ms.is_some();
    let going = master.view.jobs().into_iter().filter(|view| destroys(&view.job) && !view.job.over());
    let ends = going.filter_map(|view| master.view.follow(view.job.id()));
    let told = async {
        for mut views in ends {
            if views.wait_for(|view| view.job.over()).await.is_err() {
                tracing::debug!("the job that destroyed the cluster is in the archive");
            }
        }
        tokio::time::sleep(FAREWELL_PAUSE).await;
    };
    if tokio::time::timeout(FAREWELL_LIMIT, told).await.is_err() {
        tracing::warn!(
            "the job that destroyed the cluster takes long; clients elsewhere can't follow it any more"
        );
    }
    master.close_tcp();
    master.pins.clear();
}

/// A new cluster accepts nobody of the one before.
async fn end_farewell(master: &Master) {
    let farewell = master.farewell.lock().expect(A_LOCK).take();
    if let Some(farewell) = farewell {
        farewell.abort();
        // Its end is an error where it was still waiting.
        farewell.await.unwrap_or_default();
        master.pins.clear();
    }
}
