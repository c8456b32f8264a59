//! Serves gRPC on a TCP port by TLS, and on a unix socket.
//!
//! Each handshake is a task of its own with a limit, so that a slow client holds up nobody else.
use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream, unix},
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{service::Routes, transport::Server};

use super::{
    gate::{Admission, Caller, GateLayer},
    identity::{Fingerprint, Identity, IdentityError},
    io::{Connections, ServerIo},
    pki::{PkiError, Validity},
    roles::Role,
    tls::TlsState,
    unix_socket::{SocketPolicy, caller_of},
    words::tls_reason_in,
};

/// A client that needs longer for TLS is given up.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Handshakes at a time; more wait in the kernel's queue. A handshake costs about a millisecond of one core.
pub const HANDSHAKES_MAX: usize = 256;
/// Open connections without a certificate at a time: pending hosts (at most 100) and some room.
pub const ANONYMOUS_MAX: usize = 256;
/// Calls at a time on one connection.
pub const STREAMS_MAX: u32 = 256;
/// A server asks an idle client this often whether it is still there, so that dead clients don't pile up.
pub const SERVER_PING_INTERVAL: Duration = Duration::from_secs(30);
/// A client that does not answer a server's ping within this is gone.
pub const SERVER_PING_LIMIT: Duration = Duration::from_secs(20);
/// Calls that still run this long after the shutdown was asked for are cut off.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(3);
/// The kernel's probes within [`SERVER_PING_LIMIT`].
const TCP_PROBES: u32 = 4;
/// Pause after a failed accept: out of descriptors, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that are ready and not yet taken over; taking over needs no wait.
const READY_MAX: usize = 16;

/// Why a server ended other than by its shutdown.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed")]
pub struct ServeError(#[from] tonic::transport::Error);

/// Serves on a TCP port by TLS until `shutdown`, then for at most [`DRAIN_LIMIT`] for what still runs.
pub async fn serve_tls(
    listener: TcpListener,
    tls: TlsState,
    routes: Routes,
    admission: Arc<dyn Admission>,
    connections: Connections,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let open = CancellationToken::new();
    let handshakes = Handshakes {
        tls,
        connections,
        open: open.clone(),
        anonymous: Arc::new(Semaphore::new(ANONYMOUS_MAX)),
    };
    let prepare = move |(stream, address)| {
        let handshakes = handshakes.clone();
        async move { handshakes.run(stream, address).await }
    };
    serve(listener, prepare, routes, admission, open, shutdown).await
}

/// Serves on a unix socket until `shutdown`, then for at most [`DRAIN_LIMIT`] for what still runs.
pub async fn serve_unix(
    listener: UnixListener,
    policy: SocketPolicy,
    routes: Routes,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    serve_unix_among(listener, policy, routes, Connections::default(), shutdown).await
}

/// As [`serve_unix`], with all connections among `connections`.
pub async fn serve_unix_among(
    listener: UnixListener,
    policy: SocketPolicy,
    routes: Routes,
    connections: Connections,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let open = CancellationToken::new();
    let server = open.clone();
    let prepare = move |(stream, _): (UnixStream, unix::SocketAddr)| {
        let (server, connections) = (server.clone(), connections.clone());
        async move {
            let caller = caller_of(&stream, policy).await;
            let caller =
                caller.inspect_err(|error| tracing::warn!(%error, "no credentials of a caller")).ok()?;
            Some(ServerIo::new(stream, caller, &server, &connections))
        }
    };
    serve(listener, prepare, routes, Arc::new(NoCertificates), open, shutdown).await
}

/// On a unix socket nobody has a certificate.
struct NoCertificates;

impl Admission for NoCertificates {
    fn admit(&self, _: &Identity, _: &Fingerprint) -> Result<Role, String> {
        Err("certificates are not used on this socket".to_owned())
    }
}

async fn serve<L, P, F, T>(
    listener: L,
    prepare: P,
    routes: Routes,
    admission: Arc<dyn Admission>,
    open: CancellationToken,
    shutdown: CancellationToken,
) -> Result<(), ServeError>
where
    L: Listener,
    P: Fn(L::Accepted) -> F + Send + 'static,
    F: Future<Output = Option<ServerIo<T>>> + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Whoever drops this future ends the connections too.
    let _ended = open.clone().drop_guard();
    let (ready, incoming) = mpsc::channel(READY_MAX);
    tokio::spawn(accept(listener, prepare, ready));
    let serving = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(SERVER_PING_INTERVAL))
        .http2_keepalive_timeout(Some(SERVER_PING_LIMIT))
        .layer(GateLayer::new(admission))
        .add_routes(routes)
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), shutdown.clone().cancelled_owned());
    let cut_off = async {
        shutdown.cancelled().await;
        sleep(DRAIN_LIMIT).await;
    };
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = cut_off => open.cancel(),
    }
    // Every connection is at its end now; the limit is for a handler that blocks its thread.
    match timeout(DRAIN_LIMIT, serving).await {
        Ok(ended) => Ok(ended?),
        Err(_) => {
            tracing::warn!("a connection did not end at shutdown; it is left behind");
            Ok(())
        }
    }
}

/// What can be accepted from: a TCP or a unix listener.
trait Listener: Send + 'static {
    type Accepted: Send + 'static;

    fn accept(&self) -> impl Future<Output = io::Result<Self::Accepted>> + Send;
}

impl Listener for TcpListener {
    type Accepted = (TcpStream, SocketAddr);

    async fn accept(&self) -> io::Result<Self::Accepted> {
        self.accept().await
    }
}

impl Listener for UnixListener {
    type Accepted = (UnixStream, unix::SocketAddr);

    async fn accept(&self) -> io::Result<Self::Accepted> {
        self.accept().await
    }
}

/// Accepts until the receiver is gone; then the listener and all unfinished handshakes are dropped.
async fn accept<L, P, F, T>(listener: L, prepare: P, ready: mpsc::Sender<io::Result<ServerIo<T>>>)
where
    L: Listener,
    P: Fn(L::Accepted) -> F,
    F: Future<Output = Option<ServerIo<T>>> + Send + 'static,
    T: Send + 'static,
{
    let mut handshakes = JoinSet::new();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            () = ready.closed() => return,
            Some(_) = handshakes.join_next() => continue,
            accepted = listener.accept(), if handshakes.len() < HANDSHAKES_MAX => accepted,
        };
        match accepted {
            Ok(accepted) => {
                failing = false;
                let (prepared, ready) = (prepare(accepted), ready.clone());
                handshakes.spawn(async move {
                    if let Some(connection) = prepared.await {
                        // An error means that the server is ending; so does the connection, by being dropped.
                        drop(ready.send(Ok(connection)).await);
                    }
                });
            }
            Err(error) => {
                // The cause lasts (no descriptors left, say) or concerns one client; in both cases go on.
                if !failing {
                    tracing::warn!(%error, "could not accept a connection");
                }
                failing = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[derive(Clone)]
struct Handshakes {
    tls: TlsState,
    connections: Connections,
    open: CancellationToken,
    anonymous: Arc<Semaphore>,
}

impl Handshakes {
    async fn run(
        self,
        stream: TcpStream,
        address: SocketAddr,
    ) -> Option<ServerIo<Box<TlsStream<TcpStream>>>> {
        if let Err(error) = prepare_tcp(&stream) {
            tracing::debug!(%address, %error, "could not set the connection's options");
        }
        let acceptor = TlsAcceptor::from(self.tls.server_config());
        let stream = match timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Box::new(stream),
            Ok(Err(error)) => {
                let reason = tls_reason_in(&error).unwrap_or_else(|| error.to_string());
                tracing::info!(%address, reason, "TLS handshake failed");
                return None;
            }
            Err(_) => {
                tracing::info!(%address, limit = ?HANDSHAKE_LIMIT, "TLS handshake took too long");
                return None;
            }
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let Some(certificate) = certificate else {
            let Ok(permit) = self.anonymous.clone().try_acquire_owned() else {
                tracing::warn!(%address, "too many connections without a certificate; this one is closed");
                return None;
            };
            let caller = Caller::Anonymous { address };
            return Some(ServerIo::new(stream, caller, &self.open, &self.connections).with_permit(permit));
        };
        let caller = caller_with(certificate, address);
        let caller = caller.inspect_err(|error| tracing::warn!(%address, %error, "caller refused")).ok()?;
        Some(ServerIo::new(stream, caller, &self.open, &self.connections))
    }
}

/// The caller that a certificate stands for.
fn caller_with(certificate: &[u8], address: SocketAddr) -> Result<Caller, UnreadableCaller> {
    let identity = Identity::from_certificate(certificate)?;
    let Validity { not_after, .. } = Validity::of(certificate)?;
    Ok(Caller::Certificate { identity, fingerprint: Fingerprint::of(certificate), not_after, address })
}

/// Why a caller's certificate, which the handshake has accepted, says nothing.
#[derive(Debug, thiserror::Error)]
enum UnreadableCaller {
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Validity(#[from] PkiError),
}

fn prepare_tcp(stream: &TcpStream) -> io::Result<()> {
    // Without this the first answers wait for the client's delayed acknowledgement, 40 ms.
    stream.set_nodelay(true)?;
    // A client whose host vanished before it spoke HTTP/2 gets no HTTP/2 pings; the kernel finds it gone.
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(stream, SERVER_PING_INTERVAL)?;
    rustix::net::sockopt::set_tcp_keepintvl(stream, SERVER_PING_LIMIT / TCP_PROBES)?;
    Ok(rustix::net::sockopt::set_tcp_keepcnt(stream, TCP_PROBES)?)
}
