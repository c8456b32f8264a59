//! What goes on without a call: the nodes' states are kept, facts are brought, the configuration is followed.

use std::{collections::BTreeMap, time::Duration};

use muster_core::{
    hooks::HookPolicy,
    hypervisor::HypervisorParams,
    model::{Cluster, Node},
    names::ClusterName,
};
use muster_proto::{transport::Identity, v1};
use uuid::Uuid;

use super::{
    super::NodeRegistry,
    fixture::{name, patient, registry, within},
    server::TestNode,
    tls::{TlsNode, cluster_uuid, new_ca, signed, tls_node},
};

fn member(node: &TlsNode, text: &str) -> Node {
    Node {
        uuid: node.uuid,
        name: name(text),
        primary_ip: node.address.ip(),
        secondary_ip: node.address.ip(),
        port: node.address.port(),
        offline: false,
        drained: false,
        hooks_only: false,
        master_candidate: false,
        group: Uuid::nil(),
        tags: Default::default(),
        fingerprints: vec![node.fingerprint.clone()],
    }
}

fn cluster(serial: u64, nodes: Vec<Node>) -> Cluster {
    Cluster {
        uuid: cluster_uuid(),
        name: ClusterName::parse("dev").unwrap(),
        serial,
        master: name("node1"),
        hooks: HookPolicy::default(),
        hypervisor: HypervisorParams::default(),
        fence_command: None,
        allowed: Default::default(),
        tags: Default::default(),
        groups: Default::default(),
        networks: Default::default(),
        nodes: nodes.into_iter().map(|node| (node.name.clone(), node)).collect(),
        instances: BTreeMap::new(),
        exports: BTreeMap::new(),
        clients: BTreeMap::new(),
        cleanups: BTreeMap::new(),
    }
}

/// Waits until the cached state is the one with this version.
async fn state_becomes(registry: &NodeRegistry, node: &str, version: &str) {
    within(async {
        while registry.state(&name(node)).is_none_or(|(state, _)| state.version != version) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn push(node: &TestNode, version: &str) {
    node.pushed.send_replace(v1::NodeState { version: version.to_owned(), ..v1::NodeState::default() });
}

#[tokio::test]
async fn states_and_facts_follow_the_configuration() {
    let ca = new_ca();
    let (two, three) = (tls_node(&ca, 2).await, tls_node(&ca, 3).await);
    let (registry, _) = registry("/nonexistent".as_ref(), patient());
    registry.set_tls(&signed(&ca, &Identity::master(cluster_uuid(), Uuid::from_u128(1), 3)));
    let mut offline = member(&three, "node3");
    offline.offline = true;
    push(&two.node, "a");
    registry.update(&cluster(8, vec![member(&two, "node2"), offline]));
    state_becomes(&registry, "node2", "a").await;
    two.node.called("put_facts 8", 1).await;
    push(&two.node, "b");
    state_becomes(&registry, "node2", "b").await;
    assert!(registry.not_reached(&name("node3")).unwrap().contains("offline"));
    assert!(three.node.calls().is_empty(), "an offline node is not contacted");

    // Commits in quick succession: the last one counts.
    let both = || vec![member(&two, "node2"), member(&three, "node3")];
    registry.update(&cluster(9, both()));
    registry.update(&cluster(10, both()));
    two.node.called("put_facts 10", 1).await;
    three.node.called("put_facts 10", 1).await;
    let live = within(registry.refresh_live(&[name("node2"), name("node3"), name("node4")])).await;
    assert_eq!(live[&name("node2")].as_ref().unwrap().version, "b");
    assert!(live[&name("node3")].is_ok() && live[&name("node4")].is_err(), "{live:?}");

    // A certificate that is withdrawn is not accepted any more.
    let mut withdrawn = member(&two, "node2");
    withdrawn.fingerprints = vec!["0".repeat(64)];
    registry.update(&cluster(11, vec![withdrawn]));
    within(async {
        while registry.not_reached(&name("node2")).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(registry.not_reached(&name("node2")).unwrap().contains("no longer, accepted"));
    assert!(registry.state(&name("node3")).is_none(), "a removed node is forgotten");
}

#[tokio::test]
async fn a_state_that_took_long_to_gather_does_not_replace_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let _serving = node.serve(&socket);
    let (registry, _) = registry(&socket, patient());
    let refreshed = async |number, version: &str| {
        let state = v1::NodeState { number, version: version.to_owned(), ..v1::NodeState::default() };
        node.pushed.send_replace(state);
        let live = within(registry.refresh_live(&[name("node1")])).await;
        let said = live[&name("node1")].as_ref().unwrap().version.clone();
        (said, registry.state(&name("node1")).unwrap().0.version.clone())
    };
    let both = |said: &str, kept: &str| (said.to_owned(), kept.to_owned());
    assert_eq!(refreshed(2, "new").await, both("new", "new"));
    assert_eq!(refreshed(1, "old").await, both("old", "new"));
    assert_eq!(refreshed(3, "newer").await, both("newer", "newer"));
    // A daemon that was started again counts anew.
    registry.local().reset();
    assert_eq!(refreshed(1, "again").await, both("again", "again"));
}

#[tokio::test]
async fn the_watch_and_the_facts_come_back_with_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let node = TestNode::new();
    let ca = new_ca();
    let local = member(&tls_node(&ca, 1).await, "node1");
    let (registry, _) = registry(&socket, patient());
    registry.update(&cluster(8, vec![local.clone()]));
    within(async {
        while registry.not_reached(&name("node1")).is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    push(&node, "a");
    let serving = node.serve(&socket);
    state_becomes(&registry, "node1", "a").await;
    node.called("put_facts 8", 1).await;
    assert_eq!(registry.not_reached(&name("node1")), None);
    serving.stop().await;
    registry.update(&cluster(9, vec![local]));
    push(&node, "b");
    let _serving = node.serve(&socket);
    state_becomes(&registry, "node1", "b").await;
    node.called("put_facts 9", 1).await;
    // A new epoch: everybody is greeted again.
    let greeted = node.calls().iter().filter(|call| *call == "hello").count();
    let office = super::super::Office { cluster: Some(cluster_uuid()), epoch: 4, serial: 9 };
    registry.set_office(office);
    node.called("hello", greeted + 1).await;
    registry.clear();
    assert!(registry.state(&name("node1")).is_some(), "the local node stays known");
}
