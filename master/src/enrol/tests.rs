//! Tokens, pending hosts and their certificates, over a store in memory.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use muster_core::{
    edit::Touched,
    model::{Cluster, Node},
    names::{ClusterName, NodeName},
    ops,
};
use muster_proto::{
    transport::{Admission, Connections, Identity, check_data_certificate, new_key_and_csr},
    v1::{CollectEvent, EnrolRequest, collect_event::Event},
};
use tonic::Status;
use uuid::Uuid;

use super::{
    collect::{COLLECTS_MAX, collect},
    *,
};
use crate::{
    ca::CaKeeper,
    pins::Pins,
    store::{Batch, MemoryStore, RecordWriter, Records, Store, WriteError, keys},
};

const HOUR_MS: u64 = 3_600_000;
/// 2026-11-29.
const NOW_MS: u64 = 1_795_910_400_000;

/// Commits at once, as the driver does; refuses when told so.
#[derive(Default)]
struct Writer {
    store: Mutex<MemoryStore>,
    stopped: Mutex<bool>,
}

#[tonic::async_trait]
impl RecordWriter for Writer {
    async fn write(&self, batch: Batch) -> Result<(), WriteError> {
        if *self.stopped.lock().unwrap() {
            return Err(WriteError);
        }
        self.store.lock().unwrap().commit(&batch).unwrap();
        Ok(())
    }
}

pub(super) struct Master {
    pub(super) cluster: Uuid,
    has_office: Mutex<bool>,
}

impl Office for Master {
    fn facts(&self) -> Result<ClusterFacts, Status> {
        if !*self.has_office.lock().unwrap() {
            return Err(Status::failed_precondition("not the master: node2 is"));
        }
        let name = ClusterName::parse("dev").unwrap();
        Ok(ClusterFacts { uuid: self.cluster, name, address: "192.0.2.1:1810".parse().unwrap() })
    }
}

pub(super) struct World {
    _folder: tempfile::TempDir,
    pub(super) ca: Arc<CaKeeper>,
    writer: Arc<Writer>,
    pub(super) master: Arc<Master>,
    clock: Arc<AtomicU64>,
    pub(super) pins: Arc<Pins>,
    pub(super) connections: Connections,
    pub(super) enrolment: Arc<Enrolment>,
}

impl World {
    fn new() -> Self {
        Self::at(NOW_MS)
    }

    /// A master at this time.
    pub(super) fn at(now_ms: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ops::examples::cluster().uuid;
        let ca = Arc::new(CaKeeper::open(folder.path(), None).unwrap());
        ca.create(cluster, now_ms).unwrap();
        let master = Arc::new(Master { cluster, has_office: Mutex::new(true) });
        let clock = Arc::new(AtomicU64::new(now_ms));
        let writer = Arc::new(Writer::default());
        let connections = Connections::default();
        let (pins, enrolment) = start(&ca, &writer, &master, &clock, &connections);
        Self { _folder: folder, ca, writer, master, clock, pins, connections, enrolment }
    }

    /// The master dies and starts again with what the store holds; gives the keys that it wants deleted.
    fn restart(&mut self, cluster: &Cluster) -> Vec<String> {
        (self.pins, self.enrolment) =
            start(&self.ca, &self.writer, &self.master, &self.clock, &self.connections);
        self.enrolment.load(cluster, &self.records()).unwrap()
    }

    fn records(&self) -> Records {
        self.writer.store.lock().unwrap().load().unwrap()
    }

    fn keys(&self, prefix: &str) -> usize {
        self.records().keys().filter(|key| key.starts_with(prefix)).count()
    }

    fn pass(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    pub(super) async fn token(&self) -> String {
        self.enrolment.create_token(None, TOKEN_LIFETIME).await.unwrap().0
    }

    async fn enrol(&self, request: EnrolRequest) -> Result<PendingHost, EnrolError> {
        let source: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        Ok(self.enrolment.enrol(request, source).await?.0)
    }

    async fn pending(&self, node: &str) -> PendingHost {
        self.enrol(request(node, &self.token().await)).await.unwrap()
    }

    fn accepted(&self, signed: &SignedHost) -> bool {
        let identity = Identity::node(self.master.cluster, signed.node);
        self.pins.admit(&identity, &signed.fingerprint).is_ok()
    }
}

fn start(
    ca: &Arc<CaKeeper>,
    writer: &Arc<Writer>,
    master: &Arc<Master>,
    clock: &Arc<AtomicU64>,
    connections: &Connections,
) -> (Arc<Pins>, Arc<Enrolment>) {
    let pins = Arc::new(Pins::new(connections.clone()));
    let clock = clock.clone();
    let wall: Wall = Arc::new(move || clock.load(Ordering::SeqCst));
    (pins.clone(), Enrolment::new(ca.clone(), pins, writer.clone(), master.clone(), wall))
}

/// The addresses that a host gets as a node.
pub(super) fn addresses() -> Vec<IpAddr> {
    vec!["192.0.2.7".parse().unwrap(), "198.51.100.7".parse().unwrap()]
}

pub(super) fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

pub(super) fn request(node: &str, token: &str) -> EnrolRequest {
    EnrolRequest {
        token: token.to_owned(),
        name: node.to_owned(),
        csr_der: new_key_and_csr(node).unwrap().1,
        data_csr_der: None,
        advertise_ip: None,
        port: 1811,
        version: "0.1.0".to_owned(),
        hooks_only: false,
        facts: [("cpus".to_owned(), "2".to_owned())].into(),
        host: None,
    }
}

/// The next event, within a limit that is no part of what is tested.
async fn next(
    events: &mut (impl futures::Stream<Item = Result<CollectEvent, Status>> + Unpin),
) -> Option<Result<Event, Status>> {
    let event = tokio::time::timeout(Duration::from_secs(9), events.next()).await.expect("told at once");
    event.map(|event| event.map(|event| event.event.unwrap()))
}

pub(super) fn decided(event: Option<Result<Event, Status>>) -> Event {
    event.expect("an event").unwrap()
}

#[tokio::test]
async fn a_token_is_good_once_and_only_its_hash_is_stored() {
    let world = World::new();
    let (token, expires_ms) = world.enrolment.create_token(None, TOKEN_LIFETIME).await.unwrap();
    assert_eq!(expires_ms, NOW_MS + HOUR_MS);
    let (begin, secret) = token.rsplit_once(':').unwrap();
    assert_eq!(begin, format!("muster1:192.0.2.1:1810:{}", world.ca.digest().unwrap()));
    let stored = format!("{:?}", world.records());
    assert!(stored.contains("token/") && !stored.contains(secret));

    let host = world.enrol(request("node2", &token)).await.unwrap();
    assert_eq!((host.source_ip, host.signed), ("192.0.2.7".parse().unwrap(), None));
    assert_eq!((world.keys(keys::TOKEN), world.keys(keys::PENDING)), (0, 1));
    assert!(matches!(world.enrol(request("node3", &token)).await, Err(EnrolError::Token)));
    assert!(matches!(world.enrol(request("node3", "0")).await, Err(EnrolError::Token)));
    // The secret alone will do.
    let second = world.token().await;
    world.enrol(request("node3", second.rsplit(':').next().unwrap())).await.unwrap();
    assert_eq!(world.enrolment.list().len(), 2);
}

#[tokio::test]
async fn a_token_has_a_lifetime_and_may_be_bound_to_a_name() {
    let world = World::new();
    let token = world.token().await;
    world.pass(HOUR_MS);
    assert!(matches!(world.enrol(request("node2", &token)).await, Err(EnrolError::Token)));
    let bound = world.enrolment.create_token(Some(name("node2")), TOKEN_LIFETIME).await.unwrap().0;
    assert_eq!(world.keys(keys::TOKEN), 1, "the expired one is deleted");
    let error = world.enrol(request("node3", &bound)).await.unwrap_err();
    assert_eq!(error.to_string(), "the token is good for node2 only");
    world.enrol(request("node2", &bound)).await.unwrap();
    for wrong in [Duration::ZERO, TOKEN_LIFETIME_MAX + Duration::from_secs(1)] {
        assert!(matches!(world.enrolment.create_token(None, wrong).await, Err(EnrolError::Request(_))));
    }
}

#[tokio::test]
async fn tokens_are_bounded() {
    let world = World::new();
    for _ in 0..TOKENS_MAX {
        world.token().await;
    }
    let refused = world.enrolment.create_token(None, TOKEN_LIFETIME).await;
    assert!(matches!(refused, Err(EnrolError::TooManyTokens)));
    world.pass(HOUR_MS);
    world.token().await;
    assert_eq!(world.keys(keys::TOKEN), 1);
}

#[tokio::test]
async fn a_wrong_request_does_not_use_the_token_up() {
    let world = World::new();
    let token = world.token().await;
    let good = request("node2", &token);
    let facts = (0..=FACTS_MAX).map(|n| (n.to_string(), String::new())).collect();
    for wrong in [
        EnrolRequest { name: "Node2".to_owned(), ..good.clone() },
        EnrolRequest { port: 0, ..good.clone() },
        EnrolRequest { port: 65_536, ..good.clone() },
        EnrolRequest { advertise_ip: Some("0.0.0.0".to_owned()), ..good.clone() },
        EnrolRequest { advertise_ip: Some("node2".to_owned()), ..good.clone() },
        EnrolRequest { csr_der: b"no request".to_vec(), ..good.clone() },
        EnrolRequest { csr_der: vec![0; 9000], ..good.clone() },
        EnrolRequest { data_csr_der: Some(b"no request".to_vec()), ..good.clone() },
        EnrolRequest { version: "x".repeat(300), ..good.clone() },
        EnrolRequest { facts, ..good.clone() },
    ] {
        assert!(matches!(world.enrol(wrong.clone()).await, Err(EnrolError::Request(_))), "{wrong:?}");
    }
    world.enrol(good).await.unwrap();
}

#[tokio::test]
async fn a_second_request_replaces_the_first_and_the_first_is_gone() {
    let world = World::new();
    let first = world.pending("node2").await;
    let mut events = Box::pin(collect(&world.enrolment, first.enrolment).unwrap());
    assert!(matches!(decided(next(&mut events).await), Event::Pending(_)));
    let second = world.pending("node2").await;
    assert!(matches!(decided(next(&mut events).await), Event::Gone(_)));
    assert!(next(&mut events).await.is_none());
    assert_eq!(world.enrolment.list(), [second]);
    assert_eq!(world.keys(keys::PENDING), 1);
}

#[tokio::test]
async fn pending_hosts_are_bounded_and_too_old_ones_make_room() {
    let world = World::new();
    for number in 0..PENDING_MAX {
        world.pending(&format!("node{number}")).await;
    }
    let token = world.token().await;
    assert!(matches!(world.enrol(request("one-more", &token)).await, Err(EnrolError::TooManyHosts)));
    world.enrol(request("node7", &token)).await.unwrap();
    world.pass(24 * HOUR_MS);
    assert!(world.enrolment.list().is_empty() && world.enrolment.pending(&name("node7")).is_none());
    assert!(matches!(
        world.enrolment.sign_pending(&name("node7"), Uuid::from_u128(7), addresses()).await,
        Err(EnrolError::NotPending(_))
    ));
    world.pending("one-more").await;
    assert_eq!(world.keys(keys::PENDING), 1);
}

#[tokio::test]
async fn the_address_is_the_advertised_one_else_the_connections() {
    let world = World::new();
    world.pending("node2").await;
    let advertised = Some("192.0.2.99".to_owned());
    let request =
        EnrolRequest { advertise_ip: advertised, port: 1999, ..request("node3", &world.token().await) };
    world.enrol(request).await.unwrap();
    let of = |node: &str| world.enrolment.pending(&name(node)).unwrap();
    assert_eq!((of("node2").ip, of("node2").port), ("192.0.2.7".parse().unwrap(), 1811));
    assert_eq!((of("node3").ip, of("node3").port), ("192.0.2.99".parse().unwrap(), 1999));
}

#[tokio::test]
async fn a_host_is_told_at_once_that_it_is_signed() {
    let world = World::new();
    let host = world.pending("node2").await;
    let mut events = Box::pin(collect(&world.enrolment, host.enrolment).unwrap());
    assert!(matches!(decided(next(&mut events).await), Event::Pending(_)));
    let signed = world.enrolment.sign_pending(&name("node2"), Uuid::from_u128(2), addresses()).await.unwrap();
    let Event::Issued(issued) = decided(next(&mut events).await) else { panic!("not issued") };
    assert_eq!(issued.certificate_pem, signed.certificate_pem);
    assert_eq!(issued.ca_pem, world.ca.certificate_pem().unwrap());
    assert_eq!((issued.node_name.as_str(), issued.node_uuid), ("node2", Uuid::from_u128(2).to_string()));
    assert!(next(&mut events).await.is_none(), "the stream ends with the certificate");
    assert!(world.accepted(&signed));
    assert_eq!(world.keys(keys::ISSUED), 1);

    assert_eq!(issued.data_certificate_pem, None, "it asked for none, as older versions do");

    let again = world.enrolment.sign_pending(&name("node2"), Uuid::from_u128(2), addresses()).await.unwrap();
    assert_eq!(again, signed);
    // Another job's uuid: the earlier certificate is void.
    let other = world.enrolment.sign_pending(&name("node2"), Uuid::from_u128(3), addresses()).await.unwrap();
    assert!(world.accepted(&other) && !world.accepted(&signed));
    assert_eq!(world.keys(keys::ISSUED), 1);
    let busy = world.enrol(request("node2", &world.token().await)).await;
    assert!(matches!(busy, Err(EnrolError::BeingAdded(_))));
}

#[tokio::test]
async fn a_denied_add_leaves_the_host_pending_and_without_a_certificate() {
    let world = World::new();
    let host = world.pending("node2").await;
    let signed = world.enrolment.sign_pending(&name("node2"), Uuid::from_u128(2), addresses()).await.unwrap();
    for _ in 0..2 {
        world.enrolment.withdraw(&name("node2")).await.unwrap();
        assert_eq!(world.enrolment.list(), std::slice::from_ref(&host));
        assert!(!world.accepted(&signed));
        assert_eq!((world.keys(keys::ISSUED), world.keys(keys::PENDING)), (0, 1));
    }
    // A daemon that has the certificate already asks again, and is told.
    let mut events = Box::pin(collect(&world.enrolment, host.enrolment).unwrap());
    assert!(matches!(decided(next(&mut events).await), Event::Pending(_)));
    world.enrolment.withdraw(&name("nobody")).await.unwrap();
    // The next add signs anew.
    let second = world.enrolment.sign_pending(&name("node2"), Uuid::from_u128(4), addresses()).await.unwrap();
    assert!(world.accepted(&second));
    assert!(matches!(decided(next(&mut events).await), Event::Issued(_)));
}

#[tokio::test]
async fn a_host_that_asks_for_a_data_certificate_gets_it_with_its_own() {
    let mut world = World::new();
    let (key, csr) = new_key_and_csr("a host").unwrap();
    let asking = EnrolRequest { data_csr_der: Some(csr), ..request("node8", &world.token().await) };
    let host = world.enrol(asking).await.unwrap();
    let uuid = Uuid::from_u128(8);
    let signed = world.enrolment.sign_pending(&name("node8"), uuid, addresses()).await.unwrap();
    check_data_certificate(signed.data_certificate_pem.as_deref().unwrap(), &key, &name("node8")).unwrap();
    assert_eq!(world.keys(keys::ISSUED), 1, "only the node's own is one to be accepted");
    // Also by a master that started in between.
    world.restart(&ops::examples::cluster());
    assert_eq!(world.enrolment.sign_pending(&name("node8"), uuid, addresses()).await.unwrap(), signed);
    let mut events = Box::pin(collect(&world.enrolment, host.enrolment).unwrap());
    let Event::Issued(issued) = decided(next(&mut events).await) else { panic!("not issued") };
    assert_eq!(issued.data_certificate_pem, signed.data_certificate_pem);
}

#[tokio::test]
async fn an_added_hosts_request_is_done_with_the_commit() {
    let world = World::new();
    let mut cluster = ops::examples::cluster();
    let host = world.pending("node8").await;
    let touched = [Touched::Node(name("node8"))];
    let signed = world.enrolment.sign_pending(&name("node8"), Uuid::from_u128(8), addresses()).await.unwrap();
    // Another commit is no reason.
    assert!(world.enrolment.follow(Some(&cluster), &touched).is_empty());
    cluster.nodes.insert(name("node8"), node_of(&signed));
    world.pins.apply(Some(&cluster), &touched);
    assert_eq!(world.enrolment.follow(Some(&cluster), &touched), [keys::pending(&name("node8"))]);
    assert!(world.enrolment.follow(Some(&cluster), &touched).is_empty());
    assert!(world.enrolment.list().is_empty() && world.accepted(&signed));
    let mut events = Box::pin(collect(&world.enrolment, host.enrolment).unwrap());
    assert!(matches!(decided(next(&mut events).await), Event::Gone(_)));
    // The cluster's end is the end of all requests.
    world.pending("node9").await;
    world.enrolment.follow(None, [&Touched::Nothing]);
    assert!(world.enrolment.list().is_empty());
}

/// node8 as the commit has it.
fn node_of(signed: &SignedHost) -> Node {
    let mut node = ops::examples::cluster().nodes.into_values().next().unwrap();
    (node.name, node.uuid) = (name("node8"), signed.node);
    node.fingerprints = vec![signed.fingerprint.to_string()];
    node
}

#[tokio::test]
async fn a_restarted_master_knows_what_the_first_one_did() {
    let mut world = World::new();
    let mut cluster = ops::examples::cluster();
    let token = world.token().await;
    let waiting = world.pending("node7").await;
    world.pending("node8").await;
    let signed = world.enrolment.sign_pending(&name("node8"), Uuid::from_u128(8), addresses()).await.unwrap();
    assert!(world.restart(&cluster).is_empty());
    assert!(world.accepted(&signed));
    assert_eq!(
        world.enrolment.sign_pending(&name("node8"), Uuid::from_u128(8), addresses()).await.unwrap(),
        signed
    );
    assert_eq!(world.enrolment.list()[0], waiting);
    world.enrol(request("node9", &token)).await.unwrap();

    // It died between the commit that made node8 a node, and forgetting the request.
    cluster.nodes.insert(name("node8"), node_of(&signed));
    world.token().await;
    world.pass(HOUR_MS);
    let mut stale = world.restart(&cluster);
    stale.sort();
    assert_eq!(stale[0], keys::issued(&signed.fingerprint));
    assert_eq!(stale[1], keys::pending(&name("node8")));
    assert!(stale[2].starts_with(keys::TOKEN) && stale.len() == 3);
    assert!(world.accepted(&signed));
    assert_eq!(world.enrolment.list().len(), 2);
}

#[tokio::test]
async fn nothing_is_given_out_that_was_not_recorded() {
    let world = World::new();
    let token = world.token().await;
    world.pending("node2").await;
    *world.writer.stopped.lock().unwrap() = true;
    assert!(matches!(world.enrolment.create_token(None, TOKEN_LIFETIME).await, Err(EnrolError::Write(_))));
    assert!(matches!(world.enrol(request("node3", &token)).await, Err(EnrolError::Write(_))));
    let refused = world.enrolment.sign_pending(&name("node2"), Uuid::from_u128(2), addresses()).await;
    assert!(matches!(refused, Err(EnrolError::Write(_))));
    assert!(world.enrolment.list().iter().all(|host| host.signed.is_none()));
    *world.writer.stopped.lock().unwrap() = false;
    world.enrol(request("node3", &token)).await.unwrap();
}

#[tokio::test]
async fn a_change_is_finished_though_its_caller_goes_away() {
    let world = World::new();
    let (enrolment, request) = (world.enrolment.clone(), request("node2", &world.token().await));
    {
        let caller = enrolment.enrol(request, "192.0.2.7".parse().unwrap());
        let mut caller = Box::pin(caller);
        // Begun, and dropped before its answer.
        assert!(futures::poll!(&mut caller).is_pending());
    }
    // The next change waits for its turn behind it.
    world.token().await;
    assert_eq!(world.enrolment.list().len(), 1);
}

#[tokio::test]
async fn a_master_without_the_office_enrols_nobody() {
    let world = World::new();
    let token = world.token().await;
    let host = world.pending("node2").await;
    let mut events = Box::pin(collect(&world.enrolment, host.enrolment).unwrap());
    assert!(matches!(decided(next(&mut events).await), Event::Pending(_)));
    *world.master.has_office.lock().unwrap() = false;
    world.enrolment.clear();
    let status = next(&mut events).await.unwrap().unwrap_err();
    assert_eq!(status.message(), "not the master: node2 is");
    assert!(next(&mut events).await.is_none());
    let error = world.enrol(request("node3", &token)).await.unwrap_err();
    assert_eq!(error.to_string(), "not the master: node2 is");
}

#[tokio::test]
async fn waiting_hosts_are_bounded() {
    let world = World::new();
    let waiting: Vec<_> =
        (0..COLLECTS_MAX).map(|_| collect(&world.enrolment, Uuid::nil()).unwrap()).collect();
    let refused = collect(&world.enrolment, Uuid::nil()).err().unwrap();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    drop(waiting);
    let mut events = Box::pin(collect(&world.enrolment, Uuid::nil()).unwrap());
    assert!(matches!(decided(next(&mut events).await), Event::Gone(_)));
}
