//! The gate before all services: finds out who calls, whether that caller is still accepted and may call this
//! method. It asks at every request, so that a withdrawn certificate is out at once, open connections included.
use std::{
    future::{Ready, ready},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::Either;
use time::OffsetDateTime;
use tonic::Status;
use tower::{Layer, Service};

use super::{
    identity::{Fingerprint, Identity},
    io::Connection,
    roles::{Role, roles_for},
};

/// Says which certificates are accepted now.
///
/// Asked for each request, so it must answer from memory. The certificate is known to chain to the cluster's CA, to
/// be valid at this moment, and to belong to the caller.
pub trait Admission: Send + Sync + 'static {
    /// The caller's role, or why it is refused, in words for the caller.
    fn admit(&self, identity: &Identity, fingerprint: &Fingerprint) -> Result<Role, String>;
}

/// Who calls: handlers find it in the request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A caller with an accepted certificate.
    Tls {
        /// Who the certificate stands for.
        identity: Identity,
        /// The certificate.
        fingerprint: Fingerprint,
        /// What the caller may do.
        role: Role,
        /// Where the connection comes from.
        address: SocketAddr,
        /// The connection.
        connection: Connection,
    },
    /// A caller without a certificate, as a host that enrols is.
    TlsAnonymous {
        /// Where the connection comes from.
        address: SocketAddr,
    },
    /// A process on this host.
    Unix {
        /// Its user.
        uid: u32,
        /// Its primary group.
        gid: u32,
        /// Its process, where the kernel tells.
        pid: Option<i32>,
        /// What its user may do.
        role: Role,
        /// The connection.
        connection: Connection,
    },
}

impl Peer {
    /// Who sent this request.
    pub fn of<T>(request: &tonic::Request<T>) -> Result<&Self, Status> {
        request.extensions().get().ok_or_else(|| Status::internal("the request did not pass the gate"))
    }

    /// What the caller may do.
    pub fn role(&self) -> Role {
        match self {
            Self::Tls { role, .. } | Self::Unix { role, .. } => *role,
            Self::TlsAnonymous { .. } => Role::None,
        }
    }

    /// The connection that the request came by; `None` for a caller that has not said who it is.
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Tls { connection, .. } | Self::Unix { connection, .. } => Some(connection),
            Self::TlsAnonymous { .. } => None,
        }
    }

    /// Where the caller's connection comes from, if over the network.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tls { address, .. } | Self::TlsAnonymous { address } => Some(*address),
            Self::Unix { .. } => None,
        }
    }

    /// Who the caller's certificate stands for.
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Tls { identity, .. } => Some(identity),
            Self::TlsAnonymous { .. } | Self::Unix { .. } => None,
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tls { identity, address, .. } => write!(f, "{identity} at {address}"),
            Self::TlsAnonymous { address } => write!(f, "caller without a certificate at {address}"),
            Self::Unix { uid, .. } => write!(f, "user {uid} on this host"),
        }
    }
}

/// What is known of a caller when its connection is made.
#[derive(Debug, Clone)]
pub(crate) enum Caller {
    Certificate {
        identity: Identity,
        fingerprint: Fingerprint,
        not_after: OffsetDateTime,
        address: SocketAddr,
    },
    Anonymous {
        address: SocketAddr,
    },
    Unix {
        uid: u32,
        gid: u32,
        pid: Option<i32>,
        role: Role,
    },
}

/// Puts a [`Gate`] before a service.
#[derive(Clone)]
pub(crate) struct GateLayer {
    admission: Arc<dyn Admission>,
}

impl GateLayer {
    pub(crate) fn new(admission: Arc<dyn Admission>) -> Self {
        Self { admission }
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = Gate<S>;

    fn layer(&self, inner: S) -> Gate<S> {
        Gate { inner, admission: self.admission.clone() }
    }
}

/// Lets through what the roles table allows.
#[derive(Clone)]
pub(crate) struct Gate<S> {
    inner: S,
    admission: Arc<dyn Admission>,
}

impl<S, Body, Answer> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Answer>>,
    Answer: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<Ready<Result<S::Response, S::Error>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let caller = request.extensions().get::<(Caller, Connection)>();
        let caller = caller.ok_or_else(|| Status::internal("a connection without a caller"));
        match caller.and_then(|caller| check(caller, request.uri().path(), &*self.admission)) {
            Ok(peer) => {
                request.extensions_mut().insert(peer);
                Either::Right(self.inner.call(request))
            }
            Err(status) => {
                tracing::info!(path = request.uri().path(), reason = status.message(), "request refused");
                Either::Left(ready(Ok(status.into_http())))
            }
        }
    }
}

fn check(
    (caller, connection): &(Caller, Connection),
    path: &str,
    admission: &dyn Admission,
) -> Result<Peer, Status> {
    let needed =
        roles_for(path).ok_or_else(|| Status::unimplemented(format!("there is no method {path}")))?;
    let peer = admitted(caller, connection, admission)?;
    let role = peer.role();
    if needed.contains(role) {
        return Ok(peer);
    }
    match peer {
        Peer::TlsAnonymous { .. } => Err(Status::unauthenticated(format!(
            "{path} needs role {needed}, and the caller has no certificate"
        ))),
        Peer::Tls { .. } | Peer::Unix { .. } => {
            Err(Status::permission_denied(format!("{path} needs role {needed}; {peer} has role {role}")))
        }
    }
}

fn admitted(caller: &Caller, connection: &Connection, admission: &dyn Admission) -> Result<Peer, Status> {
    let connection = connection.clone();
    match caller.clone() {
        Caller::Certificate { identity, fingerprint, not_after, address } => {
            // The handshake has looked at it too; a connection may last longer than its certificate.
            let admitted = match OffsetDateTime::now_utc() <= not_after {
                true => admission.admit(&identity, &fingerprint),
                false => Err("it is expired".to_owned()),
            };
            match admitted {
                Ok(role) => Ok(Peer::Tls { identity, fingerprint, role, address, connection }),
                Err(reason) => {
                    let text = format!("the certificate {fingerprint} of {identity} is refused: {reason}");
                    Err(Status::unauthenticated(text))
                }
            }
        }
        Caller::Anonymous { address } => Ok(Peer::TlsAnonymous { address }),
        Caller::Unix { uid, role: Role::None, .. } => Err(Status::permission_denied(format!(
            "user {uid} has no role on this socket (root, the daemon's own user, and on the master's socket \
             members of muster-operator and muster-reader have one)"
        ))),
        Caller::Unix { uid, gid, pid, role } => Ok(Peer::Unix { uid, gid, pid, role, connection }),
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    struct Nobody;

    impl Admission for Nobody {
        fn admit(&self, _: &Identity, _: &Fingerprint) -> Result<Role, String> {
            Err("nobody is admitted".to_owned())
        }
    }

    struct Everybody;

    impl Admission for Everybody {
        fn admit(&self, identity: &Identity, _: &Fingerprint) -> Result<Role, String> {
            Ok(identity.role())
        }
    }

    #[test]
    fn a_certificate_that_expires_while_its_connection_is_open_is_refused() {
        let at = |not_after| {
            let caller = Caller::Certificate {
                identity: Identity::node(uuid::Uuid::nil(), uuid::Uuid::nil()),
                fingerprint: Fingerprint::of(b""),
                not_after,
                address: ([192, 0, 2, 1], 40_000).into(),
            };
            (caller, Connection::unregistered())
        };
        let (now, health) = (OffsetDateTime::now_utc(), "/grpc.health.v1.Health/Check");
        assert_eq!(
            check(&at(now + time::Duration::hours(1)), health, &Everybody).unwrap().role(),
            Role::Node
        );
        let status = check(&at(now - time::Duration::seconds(1)), health, &Everybody).unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(status.message().ends_with("is refused: it is expired"), "{}", status.message());
    }

    #[test]
    fn users_without_a_role_may_not_even_enrol_by_the_socket() {
        let connection = Connection::unregistered();
        let user = |role| (Caller::Unix { uid: 1000, gid: 100, pid: Some(2), role }, connection.clone());
        let enrol = "/muster.v1.EnrolmentService/Enrol";
        let status = check(&user(Role::None), enrol, &Nobody).unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().starts_with("user 1000 has no role on this socket"), "{}", status.message());

        let status = check(&user(Role::Reader), "/muster.v1.OperationService/Submit", &Nobody).unwrap_err();
        let text =
            "/muster.v1.OperationService/Submit needs role operator; user 1000 on this host has role reader";
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, text));
        let peer = check(&user(Role::Reader), "/muster.v1.JobService/GetJob", &Nobody).unwrap();
        assert_eq!(peer, Peer::Unix { uid: 1000, gid: 100, pid: Some(2), role: Role::Reader, connection });
    }
}
