//! Connections that are made once: when such a one is lost, all its calls fail rather than dial again.
//!
//! For a caller that must greet the daemon on each new connection before it asks anything else.
use std::{
    mem,
    net::SocketAddr,
    path::Path,
    task::{Context, Poll},
    time::Duration,
};

use tonic::transport::{Channel, Uri};
use tower::Service;

use super::{
    connect::{Connection, DialCause, DialError, Dialer, PING_INTERVAL, PING_LIMIT, Stage, endpoint},
    describe::{describe, dial_error},
    expect::ClientTls,
};

/// How a connection with open calls is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// The server is asked this often whether it is still there.
    pub interval: Duration,
    /// Without an answer within this the connection is given up, with all calls on it.
    pub limit: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: PING_INTERVAL, limit: PING_LIMIT }
    }
}

/// Connects to a daemon's TCP port; the connection is not made again once it is lost.
pub async fn connect_tls_once(
    address: SocketAddr,
    tls: &ClientTls,
    keepalive: Keepalive,
) -> Result<Channel, DialError> {
    connect(Dialer::tls(address, tls), keepalive).await
}

/// Connects to a daemon's unix socket; the connection is not made again once it is lost.
pub async fn connect_unix_once(path: &Path, keepalive: Keepalive) -> Result<Channel, DialError> {
    connect(Dialer::unix(path), keepalive).await
}

async fn connect(dialer: Dialer, keepalive: Keepalive) -> Result<Channel, DialError> {
    let target = dialer.target();
    let endpoint =
        endpoint().http2_keep_alive_interval(keepalive.interval).keep_alive_timeout(keepalive.limit);
    endpoint.connect_with_connector(Once { dialer, dialled: false }).await.map_err(|error| {
        let other = || DialCause::Other { stage: Stage::Http2, reason: describe(&error) };
        dial_error(&error).unwrap_or_else(|| DialError { target, cause: other() })
    })
}

struct Once {
    dialer: Dialer,
    dialled: bool,
}

impl Service<Uri> for Once {
    type Response = Connection;
    type Error = DialError;
    type Future = <Dialer as Service<Uri>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.dialer.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if mem::replace(&mut self.dialled, true) {
            let lost = DialError { target: self.dialer.target(), cause: DialCause::Lost };
            return Box::pin(std::future::ready(Err(lost)));
        }
        self.dialer.call(uri)
    }
}
