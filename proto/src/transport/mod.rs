//! The transport below the services: certificates, TLS, who may call what, serving and connecting.
//!
//! - [`Ca`], [`new_key_and_csr`]: the cluster's CA; keys stay on the host that made them.
//! - [`Ca::sign_data`], [`check_data_certificate`]: certificates for QEMU processes, which no service here accepts.
//! - [`Identity`], [`Fingerprint`]: whom a certificate stands for, and which one it is.
//! - [`TlsState`], [`ClientTls`], [`Expect`]: one side's certificate, and whom it expects at the other.
//! - [`serve_tls`], [`serve_unix`]: servers; before each request the gate finds the [`Peer`], asks the [`Admission`]
//!   and looks into the table of [`METHODS`]. [`Connections`] closes those of a withdrawn certificate, or old ones.
//! - [`connect_tls`], [`connect_unix`], [`ping`], [`describe`]: clients.
//!
//! Nothing here decides whose certificate is accepted: that is what [`Admission`] and [`Pins`] are told.

mod clock;
mod connect;
mod data;
mod describe;
mod expect;
mod files;
mod gate;
mod identity;
mod io;
mod lock;
mod once;
mod pki;
mod replay;
mod roles;
mod serve;
mod services;
mod tls;
mod unix_socket;
mod words;

#[cfg(test)]
mod tests;

pub use self::{
    clock::boot_clock,
    connect::{
        CONNECT_LIMIT, DialCause, DialError, PING_INTERVAL, PING_LIMIT, PROBE_LIMIT, PingError, Stage,
        channel_tls, channel_unix, connect_tls, connect_unix, ping,
    },
    data::check_data_certificate,
    describe::{describe, dial_error, unanswered},
    expect::{ClientTls, Expect, LearntCa, Pins},
    files::{FileError, MODE_PRIVATE, MODE_PUBLIC, read_text, write_atomic, write_whole},
    gate::{Admission, Peer},
    identity::{Fingerprint, FingerprintError, Identity, IdentityError, IdentityKind, MASTER_DNS_NAME},
    io::{Connection, Connections},
    lock::take_lock,
    once::{Keepalive, connect_tls_once, connect_unix_once},
    pki::{
        CA_LIFETIME, CSR_BYTES_MAX, Ca, LEAF_LIFETIME, PkiError, PrivateKeyPem, START_EARLIER, Signed,
        Validity, certificate_pem, new_key_and_csr,
    },
    roles::{ClientRole, ClientRoleError, EPOCH_SEEN, METHODS, Role, Roles, roles_for},
    serve::{
        ANONYMOUS_MAX, DRAIN_LIMIT, HANDSHAKE_LIMIT, HANDSHAKES_MAX, SERVER_PING_INTERVAL, SERVER_PING_LIMIT,
        STREAMS_MAX, ServeError, serve_tls, serve_unix, serve_unix_among,
    },
    services::{ReflectionError, common_services},
    tls::{TlsError, TlsState},
    unix_socket::{SOCKET_PATH_BYTES_MAX, SocketError, SocketPathTooLong, SocketPolicy, bind_unix},
};
