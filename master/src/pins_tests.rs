//! Who is accepted, and from when to when.

use muster_core::{model::ClientRole, names::ClientName, ops};
use muster_proto::transport::Role;

use super::*;
use crate::store::encode;

fn fingerprint(number: u8) -> Fingerprint {
    Fingerprint::of(&[number])
}

fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

/// A cluster whose node1 has certificate 1, and node2 certificate 2.
fn cluster() -> Cluster {
    let mut cluster = ops::examples::cluster();
    for node in cluster.nodes.values_mut() {
        node.fingerprints.clear();
    }
    for (node, number) in [("node1", 1), ("node2", 2)] {
        cluster.nodes.get_mut(&name(node)).unwrap().fingerprints = vec![fingerprint(number).to_string()];
    }
    cluster
}

fn identity(cluster: &Cluster, node: &str) -> Identity {
    Identity::node(cluster.uuid, cluster.nodes[&name(node)].uuid)
}

/// Commits as the driver does.
fn commit(pins: &Pins, cluster: &Cluster, touched: Touched) -> Vec<String> {
    let settled = pins.settled(Some(cluster), [&touched]);
    pins.apply(Some(cluster), [&touched]);
    settled
}

fn accepted(pins: &Pins, identity: &Identity, number: u8) -> bool {
    pins.admit(identity, &fingerprint(number)).is_ok()
}

#[test]
fn a_certificate_is_accepted_for_its_own_holder_only() {
    let (pins, cluster) = (Pins::default(), cluster());
    let (node1, node2) = (identity(&cluster, "node1"), identity(&cluster, "node2"));
    assert!(!accepted(&pins, &node1, 1));
    pins.apply(Some(&cluster), [&Touched::All]);
    assert_eq!(pins.admit(&node1, &fingerprint(1)), Ok(Role::Node));
    assert!(pins.admit(&node1, &fingerprint(2)).unwrap_err().contains("another holder's"));
    assert!(pins.admit(&node2, &fingerprint(3)).unwrap_err().contains("no longer"));
    let elsewhere = Identity { cluster: Uuid::from_u128(99), ..node1.clone() };
    assert!(!accepted(&pins, &elsewhere, 1));
    let master = Identity::master(cluster.uuid, cluster.nodes[&name("node1")].uuid, 1);
    assert!(!accepted(&pins, &master, 1));
    pins.clear();
    assert!(!accepted(&pins, &node1, 1));
}

#[test]
fn a_removed_node_is_out_with_the_commit() {
    let (pins, mut cluster) = (Pins::default(), cluster());
    pins.apply(Some(&cluster), [&Touched::All]);
    let node2 = identity(&cluster, "node2");
    pins.pin_renewal(&name("node2"), node2.clone(), fingerprint(12));
    assert!(accepted(&pins, &node2, 2) && accepted(&pins, &node2, 12));
    cluster.nodes.remove(&name("node2"));
    let settled = commit(&pins, &cluster, Touched::Node(name("node2")));
    assert!(!accepted(&pins, &node2, 2) && !accepted(&pins, &node2, 12));
    assert_eq!(settled, [keys::issued(&fingerprint(12))]);
    assert!(accepted(&pins, &identity(&cluster, "node1"), 1));
}

#[test]
fn old_and_new_certificate_are_accepted_until_the_commit() {
    let (pins, mut cluster) = (Pins::default(), cluster());
    pins.apply(Some(&cluster), [&Touched::All]);
    let node1 = identity(&cluster, "node1");
    // A first try that came to nothing, and a second one.
    pins.pin_renewal(&name("node1"), node1.clone(), fingerprint(10));
    pins.pin_renewal(&name("node1"), node1.clone(), fingerprint(11));
    assert_eq!(pins.of_node(&name("node1")).len(), 3);
    // Another change of the node is no reason to forget the new one.
    cluster.nodes.get_mut(&name("node1")).unwrap().drained = true;
    assert!(commit(&pins, &cluster, Touched::Node(name("node1"))).is_empty());
    assert!([1, 10, 11].into_iter().all(|number| accepted(&pins, &node1, number)));
    cluster.nodes.get_mut(&name("node1")).unwrap().fingerprints = vec![fingerprint(11).to_string()];
    let settled = commit(&pins, &cluster, Touched::Node(name("node1")));
    assert_eq!(BTreeSet::from_iter(settled), BTreeSet::from([10, 11].map(|n| keys::issued(&fingerprint(n)))));
    assert_eq!(pins.of_node(&name("node1")), [fingerprint(11)]);
    assert!(!accepted(&pins, &node1, 1) && !accepted(&pins, &node1, 10));
}

#[test]
fn an_added_host_goes_from_pending_to_node_without_a_gap() {
    let (pins, mut cluster) = (Pins::default(), cluster());
    pins.apply(Some(&cluster), [&Touched::All]);
    let mut node = cluster.nodes[&name("node1")].clone();
    (node.name, node.uuid) = (name("node9"), Uuid::from_u128(909));
    node.fingerprints = vec![fingerprint(9).to_string()];
    let identity = Identity::node(cluster.uuid, node.uuid);
    pins.pin_pending(&node.name, identity.clone(), fingerprint(9));
    assert!(accepted(&pins, &identity, 9));
    cluster.nodes.insert(node.name.clone(), node);
    assert_eq!(commit(&pins, &cluster, Touched::Node(name("node9"))), [keys::issued(&fingerprint(9))]);
    pins.unpin_pending(&name("node9"));
    assert!(accepted(&pins, &identity, 9));
}

#[test]
fn a_withdrawn_host_and_a_revoked_client_are_out() {
    let (pins, mut cluster) = (Pins::default(), cluster());
    let pending = Identity::node(cluster.uuid, Uuid::from_u128(909));
    pins.pin_pending(&name("node9"), pending.clone(), fingerprint(9));
    pins.unpin_pending(&name("node9"));
    assert!(!accepted(&pins, &pending, 9));

    let client = ClientName::parse("monitor").unwrap();
    let record = Client {
        name: client.clone(),
        uuid: Uuid::from_u128(7),
        role: ClientRole::Operator,
        fingerprint: fingerprint(7).to_string(),
        created_ms: 0,
    };
    cluster.clients.insert(client.clone(), record.clone());
    assert_eq!(commit(&pins, &cluster, Touched::Client(client.clone())), [keys::issued(&fingerprint(7))]);
    let identity = Identity::client(cluster.uuid, record.uuid, wire_role(ClientRole::Operator));
    assert_eq!(pins.admit(&identity, &fingerprint(7)), Ok(Role::Operator));
    let admin = Identity::client(cluster.uuid, record.uuid, wire_role(ClientRole::Admin));
    assert!(!accepted(&pins, &admin, 7));
    cluster.clients.remove(&client);
    commit(&pins, &cluster, Touched::Client(client));
    assert!(!accepted(&pins, &identity, 7));
}

#[test]
fn only_the_masters_newest_certificate_is_its_own() {
    let (pins, cluster) = (Pins::default(), cluster());
    let node = cluster.nodes[&name("node1")].uuid;
    let own = |epoch| Identity::master(cluster.uuid, node, epoch);
    pins.pin_own(own(1), fingerprint(21));
    pins.pin_own(own(2), fingerprint(22));
    assert_eq!(pins.admit(&own(2), &fingerprint(22)), Ok(Role::Master));
    assert!(!accepted(&pins, &own(1), 21));
}

#[test]
fn a_starting_master_accepts_what_the_records_say_and_names_those_that_serve_no_more() {
    let (pins, cluster) = (Pins::default(), cluster());
    let node1 = identity(&cluster, "node1");
    let pending = Identity::node(cluster.uuid, Uuid::from_u128(909));
    let gone = Identity::node(cluster.uuid, Uuid::from_u128(910));
    let own = Identity::master(cluster.uuid, Uuid::from_u128(1), 5);
    pins.pin_pending(&name("node9"), pending.clone(), fingerprint(9));
    pins.pin_own(own.clone(), fingerprint(25));
    let issued = [
        (1, node1.clone()),
        (11, node1.clone()),
        (9, pending.clone()),
        (10, gone.clone()),
        (25, own.clone()),
        (24, Identity::master(cluster.uuid, Uuid::from_u128(1), 4)),
        (30, Identity::client(cluster.uuid, Uuid::from_u128(7), wire_role(ClientRole::Admin))),
    ];
    let record = |identity: &Identity| encode(&Issued { identity: identity.to_string(), issued_ms: 0 });
    let mut records: Records =
        issued.iter().map(|(number, it)| (keys::issued(&fingerprint(*number)), record(it))).collect();
    records.insert("issued/no-fingerprint".to_owned(), record(&node1));
    let stale = pins.load(&cluster, &records, &BTreeSet::from([fingerprint(9)])).unwrap();
    let mut expected: BTreeSet<String> = [1, 10, 24, 30].map(|n| keys::issued(&fingerprint(n))).into();
    expected.insert("issued/no-fingerprint".to_owned());
    assert_eq!(BTreeSet::from_iter(stale), expected);
    // In the configuration, of a renewal under way, of a host being added, its own.
    assert!(accepted(&pins, &node1, 1) && accepted(&pins, &node1, 11));
    assert!(accepted(&pins, &pending, 9) && accepted(&pins, &own, 25));
    assert!(!accepted(&pins, &gone, 10) && !accepted(&pins, &issued[6].1, 30));
}
