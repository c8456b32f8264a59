//! How a daemon takes the office of master, follows its own commits, and gives the office up.

use std::{collections::BTreeSet, sync::Arc};

use muster_core::{edit::Touched, model::Cluster, names::NodeName};
use muster_proto::transport::TlsState;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::{
    ca::CaError,
    driver::{Driver, EPOCH_FIRST, Loaded},
    failpoint::{Failpoints, UnknownFailpoint},
    master::{Master, Standing},
    nodes::Office,
    serve,
    shell::{self, RandomIds, SystemClock, wall_ms},
    store::{
        Batch, ClusterRecordError, MasterStore, RecordWriter, Records, Store, StoreError, ValueError,
        cluster_from, decode, encode, keys,
    },
};

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
         Restore a newer backup, or start with --accept-loss to go on with the older configuration"
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
    let records = store.load()?;
    let cluster = cluster_from(&records)?;
    let jobs = shell::load_jobs(&records)?;
    master.view.reset(cluster.clone(), jobs.clone());
    let mut epoch = None;
    if let Some(cluster) = &cluster {
        let next = epoch_of(&records)? + 1;
        let active = encode(&OfficeRecord::Active);
        let puts = vec![(keys::EPOCH.to_owned(), encode(&next)), (keys::OFFICE.to_owned(), active)];
        store.commit(&Batch { puts, ..Batch::default() })?;
        epoch = Some(next);
        enter(master, cluster, next)?;
        let stale = master.enrolment.load(cluster, &records)?;
        store.commit(&Batch { deletes: stale, ..Batch::default() })?;
        accept_renewals(master, cluster.nodes.keys());
        let path = store.path().display().to_string();
        check_serial(master, cluster, path, start.accept_loss).await?;
        master.nodes.update(cluster);
    }
    let loaded = Loaded { cluster: cluster.clone(), jobs, epoch };
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
    records.get(keys::EPOCH).map_or(Ok(0), |text| decode(keys::EPOCH, text))
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

/// Refuses to serve with an older store than any node has seen: a restored or damaged file can't go unnoticed.
async fn check_serial(
    master: &Master,
    cluster: &Cluster,
    path: String,
    accept_loss: bool,
) -> Result<(), StartError> {
    for (node, info) in master.nodes.hello_all().await {
        let Ok(info) = info else { continue };
        // Facts are the last thing that a node hears of a commit which ran no script on it.
        let seen = info.serial_seen.max(info.facts_serial);
        if seen <= cluster.serial {
            continue;
        }
        let error =
            StartError::OldStore { node: node.to_string(), seen, serial: cluster.serial, path: path.clone() };
        if !accept_loss {
            return Err(error);
        }
        tracing::warn!("--accept-loss: {error}");
    }
    Ok(())
}

/// Dials nodes by all certificates that are accepted of them: one of a renewal that was not committed counts too.
fn accept_renewals<'a>(master: &Master, names: impl Iterator<Item = &'a NodeName>) {
    for name in names {
        master.nodes.accept(name, master.pins.of_node(name));
    }
}

/// Follows a commit that is durable: who is accepted, who is dialled, what nodes are told.
pub(crate) async fn configuration_changed(master: &Arc<Master>, touched: &BTreeSet<Touched>) {
    let cluster = master.view.cluster();
    let mut settled = master.pins.settled(cluster.as_deref(), touched);
    let Some(cluster) = cluster else { return leave(master) };
    if touched.contains(&Touched::All) {
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
    master.nodes.update(&cluster);
    accept_renewals(master, touched.iter().filter_map(Touched::node));
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

/// The cluster is gone: nobody is accepted, nothing is served but the local socket.
fn leave(master: &Master) {
    master.pins.clear();
    master.enrolment.clear();
    master.nodes.clear();
    master.close_tcp();
    master.set_standing(Standing::NoCluster);
}
