//! Every kind of wrong certificate, at the master's door and at a node's.

use muster_proto::transport::{Ca, ClientRole, Identity, LEAF_LIFETIME};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::doors::{Door, Doors, HEALTH, Shown};
use crate::cluster::{Cluster, wait_for};

const SUBMIT: &str = "/muster.v1.OperationService/Submit";
const EXECUTE: &str = "/muster.v1.NodeService/Execute";

/// How an outcome begins, and what it says.
type Expected = (&'static str, &'static str);

const ANSWERED: Expected = ("answered", "");
/// The master's words for what a CA has signed and no commit has pinned.
const NOT_PINNED: Expected = ("Unauthenticated", "is not, or no longer, one of the cluster's certificates");
const NOT_A_CLIENT: Expected = ("Unauthenticated", "is not, or no longer, accepted");
const OTHER_CLUSTER: Expected = ("Unauthenticated", "this node belongs to cluster");
const NODES_DO_NOT_CALL: Expected = ("Unauthenticated", "nodes don't call nodes");
const NO_CERTIFICATE: Expected = ("Unauthenticated", "the caller has no certificate");
const OUT_OF_DATE: Expected =
    ("connect: ", "refused this side's certificate: it is expired or not yet valid");
const OTHER_CA: Expected =
    ("connect: ", "refused this side's certificate: it was issued by another cluster's CA");
const FORGED: Expected = ("connect: ", "refused this side's certificate: it is damaged");
/// No call gets through. The alert that says why may be lost with the connection that it ends.
const NO_IDENTITY: Expected = ("connect: ", "");
const NO_CONNECTION: Expected = ("connect: ", "");

struct Kind {
    name: &'static str,
    shown: Shown,
    method: &'static str,
    at_master: Expected,
    at_node: Expected,
}

fn kind(name: &'static str, shown: Shown, at_master: Expected, at_node: Expected) -> Kind {
    Kind { name, shown, method: HEALTH, at_master, at_node }
}

/// Certificates that this cluster's CA has signed.
fn of_this_ca(doors: &Doors<'_>) -> Vec<Kind> {
    let now = OffsetDateTime::now_utc();
    let (past, future) = (now - LEAF_LIFETIME - Duration::hours(2), now + Duration::hours(2));
    let (node3, epoch) = (doors.node_uuid(3), doors.cluster.info().epoch);
    let admin = doors.stranger(ClientRole::Admin);
    let other = Uuid::from_u128(0xc2);
    let signed = |identity: &Identity| Shown::Certificate(doors.signed(identity));
    let at = |identity: &Identity, start| Shown::Certificate(doors.signed_by(&doors.ca, identity, start));
    let node = Identity::node(doors.uuid, node3);
    let master = Identity::master(doors.uuid, doors.node_uuid(1), epoch);
    vec![
        kind("an expired admin", at(&admin, past), OUT_OF_DATE, OUT_OF_DATE),
        kind("an expired node", at(&node, past), OUT_OF_DATE, OUT_OF_DATE),
        kind("an expired master", at(&master, past), OUT_OF_DATE, OUT_OF_DATE),
        kind("an admin not yet valid", at(&admin, future), OUT_OF_DATE, OUT_OF_DATE),
        kind("a master not yet valid", at(&master, future), OUT_OF_DATE, OUT_OF_DATE),
        kind("an admin that no job has signed", signed(&admin), NOT_PINNED, NOT_A_CLIENT),
        kind("node3 with a key that no job has signed", signed(&node), NOT_PINNED, NODES_DO_NOT_CALL),
        // Nodes believe the CA that a master is one; its calls must have the newest epoch too.
        kind("a second master", signed(&master), NOT_PINNED, ANSWERED),
        kind(
            "another cluster's admin",
            signed(&Identity::client(other, Uuid::from_u128(1), ClientRole::Admin)),
            NOT_PINNED,
            OTHER_CLUSTER,
        ),
        kind("another cluster's node", signed(&Identity::node(other, node3)), NOT_PINNED, OTHER_CLUSTER),
        kind(
            "another cluster's master",
            signed(&Identity::master(other, doors.node_uuid(1), epoch + 1)),
            NOT_PINNED,
            OTHER_CLUSTER,
        ),
    ]
}

/// Certificates of other CAs, and none at all.
fn of_others(doors: &Doors<'_>) -> Vec<Kind> {
    let now = OffsetDateTime::now_utc();
    let strange = Uuid::from_u128(0xc2);
    let (other_ca, same_name) = (Ca::create(strange, now).unwrap(), Ca::create(doors.uuid, now).unwrap());
    let by = |ca, identity: &Identity| Shown::Certificate(doors.signed_by(ca, identity, now));
    let admin = doors.stranger(ClientRole::Admin);
    let master = Identity::master(doors.uuid, doors.node_uuid(1), doors.cluster.info().epoch);
    let of_other = Identity::client(strange, Uuid::from_u128(1), ClientRole::Admin);
    vec![
        kind("another cluster's CA", by(&other_ca, &of_other), OTHER_CA, OTHER_CA),
        kind("an admin by another cluster's CA", by(&other_ca, &admin), OTHER_CA, OTHER_CA),
        kind("a master by another cluster's CA", by(&other_ca, &master), OTHER_CA, OTHER_CA),
        kind("an admin by a CA of this cluster's name", by(&same_name, &admin), FORGED, FORGED),
        kind("a master by a CA of this cluster's name", by(&same_name, &master), FORGED, FORGED),
        kind("no certificate", Shown::Nothing, NO_CERTIFICATE, NO_CERTIFICATE),
        kind("no TLS", Shown::Plain, NO_CONNECTION, NO_CONNECTION),
    ]
}

/// Certificates that jobs have signed.
fn of_the_cluster(doors: &Doors<'_>) -> Vec<Kind> {
    let admin = doors.client("joe", ClientRole::Admin);
    let revoked = doors.client("eve", ClientRole::Admin);
    for own in [&admin, &revoked] {
        doors.known_at(Door::Node(2), own);
    }
    doors.cluster.ok("cluster client-cert revoke eve");
    let (admin, revoked) = (Shown::Certificate(admin), Shown::Certificate(revoked));
    wait_for("node2 has heard of the revocation", || {
        doors.outcome(Door::Node(2), &revoked, HEALTH) != "answered"
    });
    let node3 = Shown::Certificate(doors.node_certificate(3));
    let data = |number| Shown::Data(doors.data_certificate(number));
    let denied = |needs| ("PermissionDenied", needs);
    vec![
        kind("an admin", admin.clone(), ANSWERED, ANSWERED),
        kind("a revoked admin", revoked, NOT_PINNED, NOT_A_CLIENT),
        kind("node3", node3.clone(), ANSWERED, NODES_DO_NOT_CALL),
        // node1's the job of init has signed, node3's that of the add.
        kind("the data certificate of the master's node", data(1), NO_IDENTITY, NO_IDENTITY),
        kind("node3's data certificate", data(3), NO_IDENTITY, NO_IDENTITY),
        Kind {
            name: "node3 as an operator",
            shown: node3.clone(),
            method: SUBMIT,
            at_master: denied("needs role operator"),
            at_node: NODES_DO_NOT_CALL,
        },
        Kind {
            name: "node3 as a master",
            shown: node3,
            method: EXECUTE,
            at_master: denied("needs role master"),
            at_node: NODES_DO_NOT_CALL,
        },
        Kind {
            name: "an admin as a master",
            shown: admin,
            method: EXECUTE,
            at_master: denied("needs role master"),
            at_node: denied("needs role master"),
        },
    ]
}

#[test]
fn every_wrong_certificate_is_refused_by_master_and_node() {
    let cluster = Cluster::up(3);
    let doors = Doors::new(&cluster);
    let mut kinds = of_the_cluster(&doors);
    kinds.extend(of_this_ca(&doors));
    kinds.extend(of_others(&doors));
    let mut wrong = Vec::new();
    for Kind { name, shown, method, at_master, at_node } in kinds {
        for (door, (start, part)) in [(Door::Master, at_master), (Door::Node(2), at_node)] {
            let outcome = doors.outcome(door, &shown, method);
            if !outcome.starts_with(start) || !outcome.contains(part) {
                wrong.push(format!("{name} at {door:?}: expected {start} {part:?}, found {outcome}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
