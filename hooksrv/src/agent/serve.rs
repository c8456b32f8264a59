//! Serves a node daemon: the unix socket always, the port while the node has a certificate.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use muster_proto::{
    transport::{
        ReflectionError, ServeError as TransportError, SocketError, SocketPolicy, TlsState, bind_unix,
        common_services, serve_tls, serve_unix_among,
    },
    v1::{
        agent_service_server::AgentServiceServer, hook_service_server::HookServiceServer,
        node_command_service_server::NodeCommandServiceServer,
    },
};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::{
    Agent, admission::NodeAdmission, agent_service::AgentGrpc, command_service::CommandGrpc, enrolment,
    files, host_watch, node_command,
};
use crate::service::HookGrpc;

/// Root and the daemon's user only.
const SOCKET_MODE: u32 = 0o600;
/// The directory of sockets, which it may share with the master's socket, that others may open.
const RUN_DIR_MODE: u32 = 0o755;
/// Pause before the port is tried again that was not free.
const BIND_PAUSE: Duration = Duration::from_secs(1);

/// Why a daemon does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The directory of sockets can't be made.
    #[error("could not make directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The socket can't be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The reflection service can't be made.
    #[error(transparent)]
    Reflection(#[from] ReflectionError),
    /// A server failed.
    #[error(transparent)]
    Server(#[from] TransportError),
}

/// Serves until the agent is told to stop.
///
/// # Errors
/// When the socket can't be made or a server fails.
pub async fn serve(agent: Arc<Agent>, hooks: HookGrpc) -> Result<(), ServeError> {
    clean_commands(&agent).await;
    tokio::spawn(host_watch::keep(Arc::clone(&agent)));
    let (routes, _health) = common_services()?;
    let routes = routes
        .add_service(AgentServiceServer::new(AgentGrpc(Arc::clone(&agent))))
        .add_service(HookServiceServer::new(hooks))
        .add_service(NodeCommandServiceServer::new(CommandGrpc::new(Arc::clone(&agent))));
    let routes = agent.backends().clone().add_services(&agent, routes);

    let run_dir = &agent.config().run_dir;
    if !run_dir.exists() {
        files::make_dir(run_dir, RUN_DIR_MODE)
            .map_err(|source| ServeError::Directory { path: run_dir.clone(), source })?;
    }
    let listener = bind_unix(&agent.config().socket(), SOCKET_MODE)?;
    tracing::info!(socket = %agent.config().socket().display(), "serving");
    let (connections, stopping) = (agent.connections().clone(), agent.stopping().clone());
    let unix = serve_unix_among(listener, SocketPolicy::Node, routes.clone(), connections, stopping);
    let port = serve_port(&agent, routes);
    // One that fails ends the other.
    let serving = async { tokio::try_join!(async { Ok::<_, ServeError>(unix.await?) }, port) };
    tokio::select! {
        served = serving => served.map(drop),
        () = agent.freezes().run() => unreachable!("it ticks for ever"),
    }
}

/// Goes through the states of membership until the daemon stops: waits for a certificate, serves while there is one.
async fn serve_port(agent: &Arc<Agent>, routes: Routes) -> Result<(), ServeError> {
    let mut changes = agent.credentials().changes();
    while !agent.stopping().is_cancelled() {
        let current = changes.borrow_and_update().clone();
        match current {
            Some(tls) => serve_enrolled(agent, tls, routes.clone()).await?,
            None => {
                tokio::select! {
                    () = agent.stopping().cancelled() => {}
                    // By the local master, which needs no request.
                    changed = changes.changed() => changed.expect("the agent holds the sender"),
                    () = enrolment::enter_when_decided(agent) => {}
                }
            }
        }
    }
    Ok(())
}

/// Serves by TLS until the node has no certificate any more.
async fn serve_enrolled(agent: &Arc<Agent>, tls: TlsState, routes: Routes) -> Result<(), ServeError> {
    let mut changes = agent.credentials().changes();
    let left = async {
        let none = changes.wait_for(Option::is_none).await;
        drop(none.expect("the agent holds the sender"));
    };
    tokio::pin!(left);
    let listener = tokio::select! {
        () = &mut left => return Ok(()),
        () = agent.stopping().cancelled() => return Ok(()),
        listener = bind(agent) => listener,
    };
    let stop = CancellationToken::new();
    let admission = Arc::new(NodeAdmission(Arc::clone(agent)));
    let serving = serve_tls(listener, tls, routes, admission, agent.connections().clone(), stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = &mut left => stop.cancel(),
        () = agent.stopping().cancelled() => stop.cancel(),
    }
    Ok(serving.await?)
}

/// Ends what commands of an earlier daemon left running. One that can't be ended is no reason not to serve.
async fn clean_commands(agent: &Agent) {
    let dir = agent.commands_dir();
    let cleaned = tokio::task::spawn_blocking(move || node_command::clean(&dir)).await;
    let cleaned = cleaned.unwrap_or_else(|error| Err(io::Error::other(error)));
    if let Err(error) = cleaned {
        tracing::error!(%error, "commands of an earlier daemon may still run");
    }
}

/// Opens the port; tries on where that fails, since the unix socket serves meanwhile.
async fn bind(agent: &Agent) -> TcpListener {
    let address = agent.config().listen;
    let mut said = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(%address, "serving by network");
                return listener;
            }
            Err(error) => {
                if !said {
                    tracing::error!(%address, %error, "could not listen; trying on");
                }
                said = true;
                sleep(BIND_PAUSE).await;
            }
        }
    }
}
