//! Several nodes over TLS: pinned certificates, and slow nodes that delay nobody else.

use std::{net::SocketAddr, time::Duration};

use muster_proto::transport::{Ca, Identity, LEAF_LIFETIME, TlsState, new_key_and_csr};
use time::OffsetDateTime;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::{
    super::{Limits, NodeRegistry},
    fixture::{CLUSTER, answered, name, not_reached, pre, registry, within},
    server::{Serving, TestNode},
};

pub(super) fn cluster_uuid() -> Uuid {
    CLUSTER.parse().unwrap()
}

pub(super) fn new_ca() -> Ca {
    Ca::create(cluster_uuid(), OffsetDateTime::now_utc()).unwrap()
}

pub(super) fn signed(ca: &Ca, identity: &Identity) -> TlsState {
    let (key, csr) = new_key_and_csr("test").unwrap();
    let signed = ca.sign(&csr, identity, OffsetDateTime::now_utc(), LEAF_LIFETIME).unwrap();
    TlsState::new(&ca.certificate_pem(), &signed.pem, &key).unwrap()
}

/// A master's certificate of a CA that no node needs to know.
pub(super) fn master_tls() -> TlsState {
    signed(&new_ca(), &Identity::master(cluster_uuid(), Uuid::from_u128(1), 3))
}

/// A node that serves by TLS.
pub(super) struct TlsNode {
    pub(super) node: TestNode,
    pub(super) uuid: Uuid,
    pub(super) address: SocketAddr,
    pub(super) fingerprint: String,
    _serving: Serving,
}

pub(super) async fn tls_node(ca: &Ca, number: u128) -> TlsNode {
    let (node, uuid) = (TestNode::new(), Uuid::from_u128(number));
    let tls = signed(ca, &Identity::node(cluster_uuid(), uuid));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let fingerprint = tls.fingerprint().to_string();
    let serving = node.serve_tls(listener, tls);
    TlsNode { node, uuid, address, fingerprint, _serving: serving }
}

fn registry_of(ca: &Ca, limits: Limits) -> NodeRegistry {
    let (registry, _) = registry("/nonexistent".as_ref(), limits);
    registry.set_tls(&signed(ca, &Identity::master(cluster_uuid(), Uuid::from_u128(1), 3)));
    registry
}

#[tokio::test]
async fn r3_certificate_trouble_is_named() {
    let ca = new_ca();
    let node = tls_node(&ca, 2).await;
    let registry = registry_of(&ca, Limits::default());
    let other = "0".repeat(64);
    for (uuid, fingerprint, expected) in [
        (node.uuid, other.as_str(), "is not, or no longer, accepted"),
        (Uuid::from_u128(9), node.fingerprint.as_str(), "not node 00000000-0000-0000-0000-000000000009"),
    ] {
        let client = registry.provisional(name("node2"), node.address, uuid, &[fingerprint.to_owned()]);
        let report = within(client.run_hooks(&pre("17/pre/1"), None)).await;
        let (reason, _) = not_reached(&report);
        assert!(reason.contains("TLS") && reason.contains(expected), "{reason}");
    }
    assert!(node.node.calls().is_empty());

    // A master whose certificate another CA signed.
    registry.set_tls(&master_tls());
    let client =
        registry.provisional(name("node2"), node.address, node.uuid, std::slice::from_ref(&node.fingerprint));
    let report = within(client.run_hooks(&pre("17/pre/1"), None)).await;
    let (reason, _) = not_reached(&report);
    assert!(reason.contains("certificate"), "{reason}");
}

#[tokio::test]
async fn d5_a_slow_node_delays_no_other() {
    let ca = new_ca();
    let (slow, quick) = (tls_node(&ca, 2).await, tls_node(&ca, 3).await);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    quick.node.script("10-a", 0);
    quick.node.finish();
    let registry = registry_of(&ca, Limits::default());
    let client = |node: &TlsNode, text: &str| {
        registry.provisional(name(text), node.address, node.uuid, std::slice::from_ref(&node.fingerprint))
    };
    let (slow_client, quick_client) = (client(&slow, "node2"), client(&quick, "node3"));
    let address = silent.local_addr().unwrap();
    let silent_client = registry.provisional(name("node4"), address, Uuid::from_u128(4), &[]);
    let slow_run = tokio::spawn(async move { slow_client.run_hooks(&pre("17/pre/1"), None).await });
    let silent_run = tokio::spawn(async move { silent_client.run_hooks(&pre("17/pre/1"), None).await });
    slow.node.called("run_hooks 17/pre/1", 1).await;
    let report = within(quick_client.run_hooks(&pre("17/pre/1"), None)).await;
    assert_eq!(answered(&report).scripts.len(), 1);
    assert!(report.duration_ms < 2_000, "{report:?}");
    assert!(!slow_run.is_finished());
    slow.node.finish();
    assert_eq!(answered(&within(slow_run).await.unwrap()).failure, None);
    not_reached(&within(silent_run).await.unwrap());
}

#[tokio::test]
async fn the_short_calls_reach_a_provisional_node() {
    let ca = new_ca();
    let node = tls_node(&ca, 2).await;
    let registry = registry_of(&ca, Limits { fresh: Duration::ZERO, ..Limits::default() });
    let client =
        registry.provisional(name("node2"), node.address, node.uuid, std::slice::from_ref(&node.fingerprint));
    assert!(within(client.hello(true)).await.unwrap().hooks_only);
    assert_eq!(within(client.end_job(4, &[])).await, Ok(2));
    let requests = within(client.make_signing_request()).await.unwrap();
    assert_eq!((requests.csr_der, requests.data_csr_der), (vec![1, 2], Some(vec![3, 4])));
    assert_eq!(within(client.install_certificate("new", Some("data"), "ca")).await.as_deref(), Ok("new"));
    assert_eq!(within(client.list_hooks()).await.unwrap().hooks_dir, "/etc/ganeti/hooks");
    assert_eq!(within(client.leave()).await, Ok(()));
    let expected =
        ["hello", "end_job 4", "make_signing_request", "install node2 data", "list_hooks", "leave"];
    assert_eq!(node.node.calls(), expected);
}
