//! The transport on real sockets: every wrong certificate is refused with its reason, a withdrawn one at once, and
//! nothing that doesn't answer holds anybody up.
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use time::OffsetDateTime;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Streaming, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_client::HealthClient};
use uuid::Uuid;

use super::*;

mod certificates;
mod connections;
mod data;

/// Nothing in these tests takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

const CLUSTER: Uuid = Uuid::from_u128(0xc1);
const NODE: Uuid = Uuid::from_u128(0xa1);
const OTHER_NODE: Uuid = Uuid::from_u128(0xa2);

/// The accepted certificates, and a client role in place of the one in the certificate.
#[derive(Default)]
struct Accepted(Mutex<BTreeMap<Fingerprint, Role>>);

impl Admission for Accepted {
    fn admit(&self, _: &Identity, fingerprint: &Fingerprint) -> Result<Role, String> {
        self.0.lock().unwrap().get(fingerprint).copied().ok_or_else(|| "it was withdrawn".to_owned())
    }
}

/// A cluster's CA and the server under test, which is a node's.
struct Fixture {
    ca: Ca,
    accepted: Arc<Accepted>,
    connections: Connections,
    server: TlsState,
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
}

fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn material(ca: &Ca, identity: &Identity, start: OffsetDateTime) -> (String, PrivateKeyPem) {
    let (key, csr) = new_key_and_csr("a host").unwrap();
    (ca.sign(&csr, identity, start, LEAF_LIFETIME).unwrap().pem, key)
}

fn state(ca: &Ca, identity: &Identity, start: OffsetDateTime) -> TlsState {
    let (certificate, key) = material(ca, identity, start);
    TlsState::new(&ca.certificate_pem(), &certificate, &key).unwrap()
}

fn operator() -> Identity {
    Identity::client(CLUSTER, Uuid::from_u128(0xb1), ClientRole::Operator)
}

impl Fixture {
    async fn start() -> Self {
        Self::start_as(&Identity::node(CLUSTER, NODE), now()).await
    }

    async fn start_as(identity: &Identity, start: OffsetDateTime) -> Self {
        let ca = Ca::create(CLUSTER, now()).unwrap();
        let server = state(&ca, identity, start);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, connections) = (Arc::new(Accepted::default()), Connections::default());
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve_tls(
            listener,
            server.clone(),
            common_services().unwrap().0,
            accepted.clone(),
            connections.clone(),
            shutdown.clone(),
        ));
        Self { ca, accepted, connections, server, address, shutdown, serving }
    }

    /// A client with a certificate of this cluster that is accepted in its own role.
    fn member(&self, identity: &Identity) -> TlsState {
        let member = state(&self.ca, identity, now());
        self.accepted.0.lock().unwrap().insert(member.fingerprint(), identity.role());
        member
    }

    fn expect(&self) -> Expect {
        Expect::Node { node: NODE, accepted: Pins::new([self.server.fingerprint()]) }
    }

    async fn connect(&self, own: &TlsState) -> Result<Channel, DialError> {
        connect_tls(self.address, &ClientTls::new(own, self.expect())).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        timeout(PATIENCE, self.serving).await.unwrap().unwrap().unwrap();
    }
}

async fn check(channel: &Channel) -> Result<(), tonic::Status> {
    let mut client = HealthClient::new(channel.clone());
    let answer = timeout(PATIENCE, client.check(HealthCheckRequest::default())).await;
    answer.expect("an answer in time").map(drop)
}

async fn watch(channel: &Channel) -> Streaming<HealthCheckResponse> {
    let mut client = HealthClient::new(channel.clone());
    let mut stream = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    stream
}

fn tls_reason(result: Result<Channel, DialError>) -> String {
    let cause = result.unwrap_err().cause;
    let DialCause::Tls { reason } = cause else { panic!("not a TLS failure: {cause:?}") };
    reason
}
