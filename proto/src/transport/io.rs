//! A server's connections: each can be closed from outside, by the certificate it was made with or by its age.
use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::{clock::boot_clock, gate::Caller, identity::Fingerprint};

/// The open connections of a server, or of several.
///
/// To withdraw a certificate: first let the [`super::Admission`] refuse it, then close its connections. In this order,
/// a connection made in between is refused at its first request.
#[derive(Clone, Default, Debug)]
pub struct Connections(Arc<Mutex<Registry>>);

#[derive(Default, Debug)]
struct Registry {
    next: u64,
    open: BTreeMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    /// The certificate it was made with, if any.
    fingerprint: Option<Fingerprint>,
    /// When it was opened, by [`boot_clock`].
    since: Duration,
    closing: CancellationToken,
}

impl Connections {
    /// Closes all connections made with this certificate, calls on them included; returns how many.
    pub fn close(&self, fingerprint: &Fingerprint) -> usize {
        self.retain(|open| open != fingerprint)
    }

    /// Closes all connections whose certificate is not accepted; returns how many.
    pub fn retain(&self, mut accepted: impl FnMut(&Fingerprint) -> bool) -> usize {
        self.close_where(|open| open.fingerprint.as_ref().is_some_and(|open| !accepted(open)))
    }

    /// Closes all connections, with or without a certificate, that were opened before a moment of [`boot_clock`];
    /// returns how many. No request that still lies in one of them is taken.
    pub fn close_opened_before(&self, moment: Duration) -> usize {
        self.close_where(|open| open.since < moment)
    }

    fn close_where(&self, mut is_meant: impl FnMut(&Open) -> bool) -> usize {
        let registry = self.registry();
        registry.open.values().filter(|open| is_meant(open)).inspect(|open| open.closing.cancel()).count()
    }

    /// How many connections are open that were made with this certificate.
    pub fn count(&self, fingerprint: &Fingerprint) -> usize {
        self.registry().open.values().filter(|open| open.fingerprint.as_ref() == Some(fingerprint)).count()
    }

    fn register(&self, fingerprint: Option<Fingerprint>, closing: CancellationToken) -> Registered {
        let mut registry = self.registry();
        let number = registry.next;
        registry.next += 1;
        registry.open.insert(number, Open { fingerprint, since: boot_clock(), closing });
        Registered { connections: self.clone(), number }
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Registered {
    connections: Connections,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.connections.registry().open.remove(&self.number);
    }
}

/// The connection that a request came by.
#[derive(Debug, Clone)]
pub struct Connection {
    number: u64,
    closing: CancellationToken,
}

impl Connection {
    /// A connection by itself, which nothing closes.
    #[cfg(test)]
    pub(crate) fn unregistered() -> Self {
        Connection { number: 0, closing: CancellationToken::new() }
    }

    /// Whether it was closed from outside: what came by it is not to be acted on any more.
    pub fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }
}

/// Two are the same when they have the same place among their server's connections.
impl PartialEq for Connection {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Connection {}

/// A server's end of a connection: ends with an error once its token is cancelled.
pub(crate) struct ServerIo<T> {
    inner: T,
    caller: Caller,
    closing: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    registered: Registered,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<T> ServerIo<T> {
    /// A connection that ends when the server is cancelled, or it is closed among `connections`.
    pub(crate) fn new(
        inner: T,
        caller: Caller,
        server: &CancellationToken,
        connections: &Connections,
    ) -> Self {
        let closing = server.child_token();
        let fingerprint = match &caller {
            Caller::Certificate { fingerprint, .. } => Some(*fingerprint),
            Caller::Anonymous { .. } | Caller::Unix { .. } => None,
        };
        let registered = connections.register(fingerprint, closing.clone());
        let closed = Box::pin(closing.clone().cancelled_owned());
        Self { inner, caller, closing, closed, registered, _permit: None }
    }

    /// Keeps the permit until the connection ends.
    pub(crate) fn with_permit(self, permit: OwnedSemaphorePermit) -> Self {
        Self { _permit: Some(permit), ..self }
    }
}

fn withdrawn() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was closed by this server")
}

impl<T> Connected for ServerIo<T> {
    type ConnectInfo = (Caller, Connection);

    fn connect_info(&self) -> (Caller, Connection) {
        let connection = Connection { number: self.registered.number, closing: self.closing.clone() };
        (self.caller.clone(), connection)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ServerIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A server always waits to read, so this poll is what wakes it up when the token is cancelled.
        if self.closed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(withdrawn()));
        }
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ServerIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.closing.is_cancelled() {
            return Poll::Ready(Err(withdrawn()));
        }
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_cancelled() {
            return Poll::Ready(Err(withdrawn()));
        }
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closing.is_cancelled() {
            return Poll::Ready(Err(withdrawn()));
        }
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.closing.is_cancelled() {
            return Poll::Ready(Err(withdrawn()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
