//! The daemon's life: sockets, services, background work, the end.

use std::sync::{Arc, Mutex, atomic::AtomicU64};

use muster_proto::{
    transport::{Connections, SocketPolicy, bind_unix, common_services, serve_tls, serve_unix},
    v1::{
        backup_service_server::BackupServiceServer, command_service_server::CommandServiceServer,
        hook_runs_service_server::HookRunsServiceServer, hook_set_service_server::HookSetServiceServer,
        job_service_server::JobServiceServer, master_service_server::MasterServiceServer,
        operation_service_server::OperationServiceServer, query_service_server::QueryServiceServer,
    },
};
use tokio::{
    net::TcpListener,
    signal::unix,
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use uuid::Uuid;

use crate::{
    background,
    ca::CaKeeper,
    config::Config,
    enrol::{self, ClusterFacts, Enrolment},
    failpoint::Failpoints,
    hookset::{self, HookSetKeeper},
    host_facts::HostFactsKeeper,
    job_log::JobLog,
    lost,
    master::{Master, Standing},
    nodes::{Limits, NodeRegistry, Settings},
    office::{self, OfficeRecord, Start, StartError, system},
    pins::Pins,
    services::{
        Backups, COMMANDS_AT_ONCE_MAX, CONSOLES_MAX, Commands, HookRuns, HookSetsGrpc, Jobs, Operations,
        Queries,
    },
    shell::{CommandSlot, wall_ms},
    store::{MasterStore, Store, cluster_from},
    takeover::{self, Masters},
    view::View,
};

/// Who may connect to the local socket; what a caller may do is decided by its credentials.
const SOCKET_MODE: u32 = 0o660;
/// A follower that does not read holds at most this long up what stops.
const A_LOCK: &str = "no holder of this lock panics";

/// Serves until a signal or an error ends it.
///
/// # Errors
/// When it can't begin to serve, or can't go on.
pub async fn run(config: Config, start: Start, failpoints: Failpoints) -> Result<(), StartError> {
    let directory = config.state_dir.join("master");
    make_folder(&config.state_dir, 0o755)?;
    make_folder(&config.run_dir, 0o755)?;
    make_folder(&directory, 0o700)?;
    let mut store = MasterStore::open(&directory.join("cluster.db"))?;
    let records = store.load()?;
    let cluster = cluster_from(&records)?;
    if cluster.is_none() && !start.standby {
        lost::check(&config)?;
    }
    if let (true, Some(cluster)) = (start.standby, &cluster) {
        let active = office::office_record(&records)? == OfficeRecord::Active;
        if active && cluster.master == config.name {
            return Err(StartError::NotStandby(cluster.name.to_string()));
        }
        // The state of an earlier office, or of a takeover that was not finished.
        takeover::forget(&mut store)?;
    }
    let standby = start.standby;
    let master = make_master(config, &directory, cluster.as_ref().filter(|_| !standby).map(|c| c.uuid))?;
    master.nodes.set_before_hooks(hookset::before_hooks(Arc::downgrade(&master)));
    let stop = master.stop.clone();
    let socket = master.config.run_dir.join("master.sock");
    let listener = bind_unix(&socket, SOCKET_MODE).map_err(|e| system("make the local socket", e))?;
    if standby {
        master.set_standing(Standing::Standby);
        master.keep_store(store, failpoints);
    } else if let (OfficeRecord::Retired { successor }, false) =
        (office::office_record(&records)?, start.resume)
    {
        tracing::warn!(successor, "this host gave the office away and does not execute jobs");
        master.retire(successor, store, failpoints);
        if let Some(cluster) = &cluster {
            master.view.reset(Some(cluster.clone()), Vec::new());
            master.set_epoch(office::epoch_of(&records)?);
            office::renew_own(&master, cluster)?;
            master.enrolment.load(cluster, &records)?;
            master.host_facts.load(cluster, &records)?;
            open_tcp(&master).await?;
        }
    } else {
        if start.resume {
            takeover::raise_epoch(&mut store)?;
        }
        office::activate(&master, store, start, failpoints).await?;
    }
    background::start(&master);
    let routes = routes(&master)?;
    let local = tokio::spawn(serve_unix(listener, SocketPolicy::Master, routes, stop.clone()));
    tracing::info!(version = crate::VERSION, node = %master.config.name, standing = ?master.standing(), "serving");
    wait_for_end(&master).await?;
    master.close_tcp();
    local.await.ok();
    std::fs::remove_file(&socket).ok();
    let job_log = master.job_log.clone();
    tokio::task::spawn_blocking(move || job_log.close()).await.ok();
    match master.fatal.lock().expect(A_LOCK).take() {
        Some(reason) => Err(StartError::Fatal(reason)),
        None => Ok(()),
    }
}

/// Makes a folder and those above it; one that is there stays as it is.
pub(crate) fn make_folder(path: &std::path::Path, mode: u32) -> Result<(), StartError> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    let failed = |error| system(&format!("make {}", path.display()), error);
    if path.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(failed)?;
    // The umask took from the mode what others may do.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)
}

async fn wait_for_end(master: &Master) -> Result<(), StartError> {
    let signal = |kind| unix::signal(kind).map_err(|error| system("listen for signals", error));
    let mut terminate = signal(unix::SignalKind::terminate())?;
    let mut interrupt = signal(unix::SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = master.stop.cancelled() => {}
    }
    master.stop.cancel();
    Ok(())
}

fn make_master(
    config: Config,
    directory: &std::path::Path,
    cluster: Option<Uuid>,
) -> Result<Arc<Master>, StartError> {
    let connections = Connections::default();
    let view = Arc::new(View::default());
    let commands = CommandSlot::default();
    let pins = Arc::new(Pins::new(connections.clone()));
    let authority = Arc::new(CaKeeper::open(directory, cluster)?);
    let stop = CancellationToken::new();
    let lost = Arc::new(Mutex::new(None));
    let standing = watch::Sender::new(Standing::NoCluster);
    let host_facts = Arc::new(HostFactsKeeper::default());
    let job_log = JobLog::start(config.store(), config.state_dir.join("last"), config.name.clone());
    let job_log = job_log.map_err(|error| system("make a thread", error))?;
    let nodes = NodeRegistry::new(node_settings(&config, &view, &host_facts, &stop, &lost, &standing));
    Ok(Arc::new_cyclic(|master: &std::sync::Weak<Master>| Master {
        standing,
        enrolment: Enrolment::new(
            authority.clone(),
            pins.clone(),
            Arc::new(commands.clone()),
            Arc::new(OfficeFacts(master.clone())),
            Arc::new(wall_ms),
        ),
        hook_sets: HookSetKeeper::new(&config.state_dir),
        job_log,
        config,
        commands,
        epoch: AtomicU64::new(0),
        proposed: Uuid::new_v4(),
        view,
        nodes,
        pins,
        connections,
        authority,
        tls: Mutex::default(),
        tcp: Mutex::default(),
        stop,
        fatal: lost,
        laid_aside: Mutex::default(),
        begun: Mutex::default(),
        resuming: tokio::sync::Mutex::default(),
        farewell: Mutex::default(),
        backup: Arc::default(),
        consoles: Arc::new(Semaphore::new(CONSOLES_MAX)),
        events: Arc::default(),
        host_facts,
        node_commands: Arc::new(Semaphore::new(COMMANDS_AT_ONCE_MAX)),
    }))
}

/// What the connections to nodes ask of the master, and tell it.
fn node_settings(
    config: &Config,
    view: &Arc<View>,
    host_facts: &Arc<HostFactsKeeper>,
    stop: &CancellationToken,
    lost: &Arc<Mutex<Option<String>>>,
    standing: &watch::Sender<Standing>,
) -> Settings {
    Settings {
        local: config.name.clone(),
        local_socket: config.run_dir.join("node.sock"),
        version: crate::VERSION.to_owned(),
        limits: Limits::default(),
        alive_jobs: {
            let view = view.clone();
            Arc::new(move || view.alive())
        },
        guests: {
            let view = view.clone();
            Arc::new(move || view.generations())
        },
        host_told: {
            let (view, facts) = (view.clone(), host_facts.clone());
            Arc::new(move |name, state| {
                let Some(cluster) = view.cluster() else { return };
                if let Some(node) = cluster.nodes.get(name) {
                    facts.told(name, node.uuid, state, wall_ms());
                }
            })
        },
        office_lost: {
            let (stop, lost, standing) = (stop.clone(), lost.clone(), standing.subscribe());
            Arc::new(move |reason| {
                if *standing.borrow() != Standing::Active {
                    // It was not in office yet; whether it may be is decided where it starts.
                    return tracing::debug!(reason, "a node refused this master's epoch");
                }
                tracing::error!(reason, "this master is no longer in office");
                lost.lock()
                    .expect(A_LOCK)
                    .get_or_insert(format!("this master is no longer in office: {reason}"));
                stop.cancel();
            })
        },
    }
}

/// What enrolment must know of this master.
struct OfficeFacts(std::sync::Weak<Master>);

impl enrol::Office for OfficeFacts {
    fn facts(&self) -> Result<ClusterFacts, tonic::Status> {
        let master = self.0.upgrade().ok_or_else(|| tonic::Status::unavailable("the master is stopping"))?;
        let cluster = master.cluster()?;
        Ok(ClusterFacts { uuid: cluster.uuid, name: cluster.name.clone(), address: master.advertised() })
    }
}

/// All services; the same on the local socket and on TCP, where the caller's role makes the difference.
fn routes(master: &Arc<Master>) -> Result<Routes, StartError> {
    let (routes, health) = common_services().map_err(|error| system("make the reflection service", error))?;
    drop(health);
    Ok(routes
        .add_service(OperationServiceServer::new(Operations(master.clone())))
        .add_service(BackupServiceServer::new(Backups(master.clone())))
        .add_service(JobServiceServer::new(Jobs(master.clone())))
        .add_service(QueryServiceServer::new(Queries(master.clone())))
        .add_service(HookSetServiceServer::new(HookSetsGrpc(master.clone())))
        .add_service(HookRunsServiceServer::new(HookRuns(master.clone())))
        .add_service(CommandServiceServer::new(Commands(master.clone())))
        .add_service(enrol::enrolment_server(&master.enrolment, &master.events))
        .add_service(enrol::token_server(&master.enrolment))
        .add_service(MasterServiceServer::new(Masters(master.clone()))))
}

/// Opens the TCP server, once there is a certificate; one that is open stays.
pub(crate) async fn open_tcp(master: &Arc<Master>) -> Result<(), StartError> {
    let Some(tls) = master.tls.lock().expect(A_LOCK).clone() else { return Ok(()) };
    let shutdown = {
        let mut slot = master.tcp.lock().expect(A_LOCK);
        if slot.is_some() {
            return Ok(());
        }
        let shutdown = master.stop.child_token();
        *slot = Some(shutdown.clone());
        shutdown
    };
    let address = master.config.listen;
    let listener = TcpListener::bind(address);
    let listener = listener.await.map_err(|error| system(&format!("listen on {address}"), error))?;
    let routes = routes(master)?;
    let (pins, connections) = (master.pins.clone(), master.connections.clone());
    let serving = serve_tls(listener, tls, routes, pins, connections, shutdown);
    let master = Arc::downgrade(master);
    tokio::runtime::Handle::current().spawn(async move {
        if let (Err(error), Some(master)) = (serving.await, master.upgrade()) {
            master.fatal(&crate::chain(&error));
        }
    });
    Ok(())
}
