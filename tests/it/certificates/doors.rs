//! The TCP ports of a cluster's daemons, and the certificates with which a test knocks there.

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use muster_proto::transport::{
    Ca, ClientRole, ClientTls, DialError, Expect, Identity, LEAF_LIFETIME, Pins, TlsState, connect_tls,
    describe, new_key_and_csr, unanswered,
};
use muster_proto::v1;
use time::OffsetDateTime;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tonic::codec::Codec;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use super::anonymous;
use crate::cluster::{Cluster, wait_for};

/// An answer comes within this, also on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// The method that most roles may call, on every daemon.
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// A daemon's TCP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    /// The master's, on node1.
    Master,
    /// A node daemon's.
    Node(u32),
}

/// What a caller shows.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// A certificate.
    Certificate(TlsState),
    /// The data certificate in a node's directory.
    Data(PathBuf),
    /// None.
    Nothing,
    /// Not even TLS.
    Plain,
}

/// A message of which nothing is read.
type Unread = v1::ListPendingRequest;
/// A message without content, whatever type it is taken for.
pub(super) type Empty = v1::ListPendingRequest;

/// What tests need to knock at a cluster's doors.
pub(super) struct Doors<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) runtime: Runtime,
    /// The cluster's CA, with its key.
    pub(super) ca: Ca,
    /// The cluster's uuid.
    pub(super) uuid: Uuid,
}

impl<'a> Doors<'a> {
    pub(super) fn new(cluster: &'a Cluster) -> Self {
        let master = cluster.node_dir(1).join("state/master");
        let ca = Ca::load(&master.join("ca.pem"), &master.join("ca.key")).unwrap();
        // A thread of its own keeps connections going while the test runs commands.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Doors { cluster, runtime, ca, uuid: cluster.info().uuid.parse().unwrap() }
    }

    /// Waits for an answer within the limit.
    #[track_caller]
    pub(super) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, work).await }).expect("an answer in time")
    }

    pub(super) fn address(&self, door: Door) -> SocketAddr {
        let (node, port) = match door {
            Door::Master => (1, 1810),
            Door::Node(node) => (node, 1811),
        };
        format!("{}:{port}", self.cluster.address(node)).parse().unwrap()
    }

    pub(super) fn node(&self, number: u32) -> v1::NodeInfo {
        let name = format!("node{number}");
        self.cluster.nodes().into_iter().find(|node| node.name == name).expect("the node is there")
    }

    pub(super) fn node_uuid(&self, number: u32) -> Uuid {
        self.node(number).uuid.parse().unwrap()
    }

    fn expect(&self, door: Door) -> Expect {
        match door {
            Door::Master => Expect::Master { cluster: self.uuid },
            Door::Node(number) => {
                let node = self.node(number);
                let accepted = Pins::new(node.fingerprints.iter().map(|text| text.parse().unwrap()));
                Expect::Node { node: node.uuid.parse().unwrap(), accepted }
            }
        }
    }

    /// A certificate by this CA, which the cluster knows nothing of.
    pub(super) fn signed(&self, identity: &Identity) -> TlsState {
        self.signed_by(&self.ca, identity, OffsetDateTime::now_utc())
    }

    /// A certificate by any CA, whose holder believes this cluster's servers.
    pub(super) fn signed_by(&self, ca: &Ca, identity: &Identity, start: OffsetDateTime) -> TlsState {
        self.signed_for(ca, identity, start, LEAF_LIFETIME)
    }

    /// A certificate of any CA and lifetime.
    pub(super) fn signed_for(
        &self,
        ca: &Ca,
        identity: &Identity,
        start: OffsetDateTime,
        lifetime: time::Duration,
    ) -> TlsState {
        let (key, csr) = new_key_and_csr("a host").unwrap();
        let signed = ca.sign(&csr, identity, start, lifetime).unwrap();
        TlsState::new(&self.ca.certificate_pem(), &signed.pem, &key).unwrap()
    }

    /// The identity of a client that the cluster knows nothing of.
    pub(super) fn stranger(&self, role: ClientRole) -> Identity {
        Identity::client(self.uuid, Uuid::from_u128(0xb1), role)
    }

    /// A client of the cluster, made by `gnt`.
    pub(super) fn client(&self, name: &str, role: ClientRole) -> TlsState {
        let dir = self.cluster.dir();
        self.cluster.ok(&format!("cluster client-cert sign --role {role} --out {} {name}", dir.display()));
        let file = |extension: &str| dir.join(format!("{name}.{extension}"));
        TlsState::load(&dir.join("ca.pem"), &file("pem"), &file("key")).unwrap()
    }

    /// The certificate that a node's daemon has now.
    pub(super) fn node_certificate(&self, number: u32) -> TlsState {
        let node = self.cluster.node_dir(number).join("state/node");
        TlsState::load(&node.join("ca.pem"), &node.join("node.pem"), &node.join("node.pem")).unwrap()
    }

    /// Where a node's data certificate is.
    pub(super) fn data_certificate(&self, number: u32) -> PathBuf {
        fs::canonicalize(self.cluster.node_dir(number).join("state/node/data")).unwrap()
    }

    pub(super) fn connect(&self, door: Door, own: &TlsState) -> Result<Channel, DialError> {
        let tls = ClientTls::new(own, self.expect(door));
        self.wait(connect_tls(self.address(door), &tls))
    }

    /// A connection, or in words why there is none.
    pub(super) fn knock(&self, door: Door, shown: &Shown) -> Result<Channel, String> {
        let address = self.address(door);
        match shown {
            Shown::Certificate(own) => self.connect(door, own).map_err(|error| error.to_string()),
            Shown::Data(dir) => {
                let connected = self.wait(anonymous::connect_with_data(address, dir));
                connected.map_err(|error| describe(&error))
            }
            Shown::Nothing => self.wait(anonymous::connect(address)).map_err(|error| describe(&error)),
            Shown::Plain => self.wait(anonymous::connect_plain(address)).map_err(|error| describe(&error)),
        }
    }

    /// Connects and makes a call without content: `answered`, `connect: <why not>`, or `<code>: <message>`.
    pub(super) fn outcome(&self, door: Door, shown: &Shown, path: &str) -> String {
        match self.knock(door, shown) {
            Err(why) => format!("connect: {why}"),
            Ok(channel) => match self.wait(call(&channel, path, Empty {})) {
                // The connection was not really one.
                Err(status) if unanswered(&status) => format!("connect: {}", describe(&status)),
                answer => outcome_of(&answer),
            },
        }
    }

    /// Waits until a node has heard of a client: facts travel in the background.
    #[track_caller]
    pub(super) fn known_at(&self, door: Door, own: &TlsState) {
        let shown = Shown::Certificate(own.clone());
        wait_for("the client is known at the door", || self.outcome(door, &shown, HEALTH) == "answered");
    }
}

/// The answer in words.
pub(super) fn outcome_of(answer: &Result<(), Status>) -> String {
    match answer {
        Ok(()) => "answered".to_owned(),
        Err(status) => format!("{:?}: {}", status.code(), describe(status)),
    }
}

/// Makes a call of any method and waits for its first answer.
pub(super) async fn call<T>(channel: &Channel, path: &str, message: T) -> Result<(), Status>
where
    T: Send + Sync + 'static,
    ProstCodec<T, Unread>: Codec<Encode = T, Decode = Unread>,
{
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let codec = ProstCodec::<T, Unread>::new();
    // The same on the wire whatever kind of method it is: one message, then answers.
    let answers = client.server_streaming(Request::new(message), path.parse().unwrap(), codec).await?;
    answers.into_inner().message().await.map(drop)
}

/// A stream that goes on until its connection ends.
pub(super) async fn watch(channel: &Channel) -> Streaming<HealthCheckResponse> {
    let mut client = HealthClient::new(channel.clone());
    let mut stream = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    stream
}

/// Reads a stream to its end, which must be an error.
pub(super) async fn broken<T>(stream: &mut Streaming<T>) -> Status {
    loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream came to its regular end"),
            Err(status) => return status,
        }
    }
}
