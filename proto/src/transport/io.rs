//! A server's connections: each can be closed from outside, by the certificate it was made with.
use std::{
    collections::BTreeMap,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::OwnedSemaphorePermit,
};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::{gate::Caller, identity::Fingerprint};

/// The open connections that were made with a certificate.
///
/// To withdraw a certificate: first let the [`super::Admission`] refuse it, then close its connections. In this order,
/// a connection made in between is refused at its first request.
#[derive(Clone, Default, Debug)]
pub struct Connections(Arc<Mutex<Registry>>);

#[derive(Default, Debug)]
struct Registry {
    next: u64,
    open: BTreeMap<u64, (Fingerprint, CancellationToken)>,
}

impl Connections {
    /// Closes all connections made with this certificate, calls on them included; returns how many.
    pub fn close(&self, fingerprint: &Fingerprint) -> usize {
        self.retain(|open| open != fingerprint)
    }

    /// Closes all connections whose certificate is not accepted; returns how many.
    pub fn retain(&self, mut accepted: impl FnMut(&Fingerprint) -> bool) -> usize {
        let registry = self.registry();
        let refused = registry.open.values().filter(|(fingerprint, _)| !accepted(fingerprint));
        refused.inspect(|(_, token)| token.cancel()).count()
    }

    /// How many connections are open that were made with this certificate.
    pub fn count(&self, fingerprint: &Fingerprint) -> usize {
        self.registry().open.values().filter(|(open, _)| open == fingerprint).count()
    }

    fn register(&self, fingerprint: Fingerprint, token: CancellationToken) -> Registered {
        let mut registry = self.registry();
        let number = registry.next;
        registry.next += 1;
        registry.open.insert(number, (fingerprint, token));
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

/// A server's end of a connection: ends with an error once its token is cancelled.
pub(crate) struct ServerIo<T> {
    inner: T,
    caller: Caller,
    closing: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _registered: Option<Registered>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl<T> ServerIo<T> {
    /// A connection that ends when the server is cancelled, or its certificate is withdrawn from `connections`.
    pub(crate) fn new(
        inner: T,
        caller: Caller,
        server: &CancellationToken,
        connections: &Connections,
    ) -> Self {
        let closing = server.child_token();
        let registered = match &caller {
            Caller::Certificate { fingerprint, .. } => {
                Some(connections.register(*fingerprint, closing.clone()))
            }
            Caller::Anonymous { .. } | Caller::Unix { .. } => None,
        };
        let closed = Box::pin(closing.clone().cancelled_owned());
        Self { inner, caller, closing, closed, _registered: registered, _permit: None }
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
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        self.caller.clone()
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
