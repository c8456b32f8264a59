//! Connections to a daemon, by TLS or by its unix socket.
//!
//! A connection counts as made when the server's HTTP/2 settings are there. So one limit covers TCP, TLS and
//! HTTP/2, a stopped daemon (for which the kernel goes on accepting) is found, and a refused certificate is a failed
//! connection with a reason: under TLS 1.3 the refusal comes after the client's side of the handshake is done.
use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::AsyncReadExt,
    net::{TcpStream, UnixStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tower::Service;

use super::{
    describe::{describe, dial_error},
    expect::ClientTls,
    replay::{Duplex, Replay},
    unix_socket::{SocketPathTooLong, check_path},
    words::tls_reason_in,
};

/// Limit of making a connection: TCP, TLS and HTTP/2 settings together.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// While a call is open, the server is asked this often whether it is still there.
pub const PING_INTERVAL: Duration = Duration::from_secs(5);
/// A connection whose ping is not answered within this is given up, with all calls on it.
pub const PING_LIMIT: Duration = Duration::from_secs(15);
/// Limit of [`ping`].
pub const PROBE_LIMIT: Duration = Duration::from_secs(3);
/// Length of the head of an HTTP/2 frame.
const FRAME_HEAD_BYTES: usize = 9;
/// The type of an HTTP/2 settings frame.
const FRAME_SETTINGS: u8 = 4;

/// What a connection being made waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The system's connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// The server's HTTP/2 settings.
    Http2,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "connecting",
            Self::Tls => "the TLS handshake",
            Self::Http2 => "the server's HTTP/2 settings",
        })
    }
}

/// Why a connection could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{target}: {cause}")]
pub struct DialError {
    /// The address or the socket's path.
    pub target: String,
    /// What went wrong.
    pub cause: DialCause,
}

/// What went wrong while a connection was being made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialCause {
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// The network has no way there.
    #[error("no route to this address")]
    NoRoute,
    /// There is no such socket file.
    #[error("there is no such socket")]
    NoSocket,
    /// The socket's mode keeps this user out.
    #[error("this user may not open the socket")]
    NotPermitted,
    /// The socket's path is too long.
    #[error(transparent)]
    Path(#[from] SocketPathTooLong),
    /// [`CONNECT_LIMIT`] has passed.
    #[error("no answer within {} s, at {stage}", CONNECT_LIMIT.as_secs())]
    Limit {
        /// What was being waited for.
        stage: Stage,
    },
    /// One side refused the other's certificate, or it isn't TLS at all.
    #[error("TLS: {reason}")]
    Tls {
        /// The reason in words.
        reason: String,
    },
    /// The other side ended the connection.
    #[error("the other side closed the connection at {stage}")]
    Closed {
        /// What was being waited for.
        stage: Stage,
    },
    /// The other side doesn't speak HTTP/2.
    #[error("the other side does not speak HTTP/2")]
    NotHttp2,
    /// The connection was made only once, and is gone.
    #[error("the connection is lost")]
    Lost,
    /// Anything else.
    #[error("{stage} failed: {reason}")]
    Other {
        /// What was being waited for.
        stage: Stage,
        /// The system's words.
        reason: String,
    },
}

/// Connects to a daemon's TCP port.
pub async fn connect_tls(address: SocketAddr, tls: &ClientTls) -> Result<Channel, DialError> {
    connect(Dialer::tls(address, tls)).await
}

/// A channel to a daemon's TCP port that connects at its first call.
pub fn channel_tls(address: SocketAddr, tls: &ClientTls) -> Channel {
    endpoint().connect_with_connector_lazy(Dialer::tls(address, tls))
}

/// Connects to a daemon's unix socket.
pub async fn connect_unix(path: &Path) -> Result<Channel, DialError> {
    connect(Dialer::unix(path)).await
}

/// A channel to a daemon's unix socket that connects at its first call.
pub fn channel_unix(path: &Path) -> Channel {
    endpoint().connect_with_connector_lazy(Dialer::unix(path))
}

async fn connect(dialer: Dialer) -> Result<Channel, DialError> {
    let target = dialer.target();
    endpoint().connect_with_connector(dialer).await.map_err(|error| {
        let other = || DialCause::Other { stage: Stage::Http2, reason: describe(&error) };
        dial_error(&error).unwrap_or_else(|| DialError { target, cause: other() })
    })
}

pub(super) fn endpoint() -> Endpoint {
    // The name is never looked up: the dialer knows where to connect. With https, tonic would want its own TLS.
    Endpoint::from_static("http://muster.invalid")
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_LIMIT)
        .keep_alive_while_idle(false)
}

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PingError {
    /// No answer in time.
    #[error("no answer to a probe within {} s", PROBE_LIMIT.as_secs())]
    Limit,
    /// The call failed.
    #[error("{}", describe(.0))]
    Failed(tonic::Status),
}

/// Asks the daemon whether it is well, making a connection first if there is none; takes at most [`PROBE_LIMIT`].
pub async fn ping(channel: &Channel) -> Result<(), PingError> {
    let mut client = HealthClient::new(channel.clone());
    match timeout(PROBE_LIMIT, client.check(HealthCheckRequest::default())).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(PingError::Failed(status)),
        Err(_) => Err(PingError::Limit),
    }
}

#[derive(Clone)]
enum Target {
    Tls { address: SocketAddr, tls: Arc<ClientTls> },
    Unix(PathBuf),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tls { address, .. } => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Makes a channel's connections: the first, and another one whenever the last is lost.
#[derive(Clone)]
pub(super) struct Dialer {
    target: Target,
}

pub(super) type Connection = TokioIo<Replay<Box<dyn Duplex>>>;

impl Dialer {
    pub(super) fn tls(address: SocketAddr, tls: &ClientTls) -> Self {
        Self { target: Target::Tls { address, tls: Arc::new(tls.clone()) } }
    }

    pub(super) fn unix(path: &Path) -> Self {
        Self { target: Target::Unix(path.to_owned()) }
    }

    /// The address or path in words.
    pub(super) fn target(&self) -> String {
        self.target.to_string()
    }
}

impl Service<Uri> for Dialer {
    type Response = Connection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let target = self.target.clone();
        Box::pin(async move {
            let mut stage = Stage::Connect;
            let dialled = match timeout(CONNECT_LIMIT, dial(&target, &mut stage)).await {
                Ok(Ok(connection)) => return Ok(TokioIo::new(connection)),
                Ok(Err(cause)) => cause,
                Err(_) => DialCause::Limit { stage },
            };
            Err(DialError { target: target.to_string(), cause: dialled })
        })
    }
}

async fn dial(target: &Target, stage: &mut Stage) -> Result<Replay<Box<dyn Duplex>>, DialCause> {
    let mut stream: Box<dyn Duplex> = match target {
        Target::Tls { address, tls } => {
            let stream = TcpStream::connect(address).await.map_err(|error| cause(*stage, &error))?;
            stream.set_nodelay(true).map_err(|error| cause(*stage, &error))?;
            *stage = Stage::Tls;
            // The name is not sent for an address, and not checked: the certificate's identity is.
            let name = ServerName::from(address.ip());
            let connector = TlsConnector::from(tls.config());
            Box::new(connector.connect(name, stream).await.map_err(|error| cause(*stage, &error))?)
        }
        Target::Unix(path) => {
            check_path(path)?;
            Box::new(UnixStream::connect(path).await.map_err(|error| unix_cause(&error))?)
        }
    };
    *stage = Stage::Http2;
    let mut head = [0; FRAME_HEAD_BYTES];
    stream.read_exact(&mut head).await.map_err(|error| cause(*stage, &error))?;
    match head[3] == FRAME_SETTINGS {
        true => Ok(Replay::new(stream, &head)),
        false => Err(DialCause::NotHttp2),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the system's kinds of error may grow")]
fn cause(stage: Stage, error: &io::Error) -> DialCause {
    use io::ErrorKind as Kind;
    if let Some(reason) = tls_reason_in(error) {
        return DialCause::Tls { reason };
    }
    let closed = [Kind::UnexpectedEof, Kind::ConnectionReset, Kind::BrokenPipe, Kind::ConnectionAborted];
    match error.kind() {
        Kind::ConnectionRefused => DialCause::Refused,
        Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => DialCause::NoRoute,
        // The kernel's own patience can be shorter than ours.
        Kind::TimedOut => DialCause::Limit { stage },
        kind if closed.contains(&kind) => DialCause::Closed { stage },
        _ => DialCause::Other { stage, reason: error.to_string() },
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the system's kinds of error may grow")]
fn unix_cause(error: &io::Error) -> DialCause {
    match error.kind() {
        io::ErrorKind::NotFound => DialCause::NoSocket,
        io::ErrorKind::PermissionDenied => DialCause::NotPermitted,
        _ => cause(Stage::Connect, error),
    }
}
