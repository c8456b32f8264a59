//! `gnt-cluster renew-certs`: repeatable, leaves out who can't be reached, and ends the old certificates.

use super::doors::{Door, Doors, Empty, HEALTH, Shown, broken, call, outcome_of, watch};
use crate::ask::warnings;
use crate::cluster::{Cluster, wait_for};

/// The one certificate by which each node is accepted.
fn pinned(cluster: &Cluster) -> Vec<String> {
    let fingerprints = cluster.nodes().into_iter().map(|node| {
        assert_eq!(node.fingerprints.len(), 1, "{}: {:?}", node.name, node.fingerprints);
        node.fingerprints[0].clone()
    });
    fingerprints.collect()
}

/// Which nodes have another certificate.
fn renewed(before: &[String], after: &[String]) -> Vec<bool> {
    before.iter().zip(after).map(|(before, after)| before != after).collect()
}

#[test]
fn certificates_are_renewed_again_and_again_and_the_old_ones_are_out() {
    let cluster = Cluster::up(3);
    let doors = Doors::new(&cluster);
    let mut before = pinned(&cluster);
    for _ in 0..2 {
        let (old, data) = (doors.node_certificate(2), doors.data_certificate(2));
        let channel = doors.connect(Door::Master, &old).unwrap();
        let mut watched = doors.wait(watch(&channel));

        cluster.ok("cluster renew-certs");
        assert_eq!(warnings(&cluster.last_job()), Vec::<String>::new());
        let after = pinned(&cluster);
        assert_eq!(renewed(&before, &after), [true, true, true]);
        before = after;

        doors.wait(broken(&mut watched));
        let again = outcome_of(&doors.wait(call(&channel, HEALTH, Empty {})));
        for outcome in [again, doors.outcome(Door::Master, &Shown::Certificate(old), HEALTH)] {
            assert!(outcome.starts_with("Unauthenticated") && outcome.contains("no longer"), "{outcome}");
        }
        assert_ne!(
            doors.data_certificate(2),
            data,
            "the data certificate is renewed together with the node's"
        );
        let new = doors.node_certificate(2);
        assert_eq!(new.fingerprint().to_string(), before[1]);
        assert_eq!(doors.outcome(Door::Master, &Shown::Certificate(new), HEALTH), "answered");
    }
    cluster.ok("node list --live");
    cluster.ok("instance add -t file -n node2 -s 1M -o none --no-start web1");
}

#[test]
fn a_silent_node_is_left_for_the_next_renewal() {
    let cluster = Cluster::up(3);
    let doors = Doors::new(&cluster);
    let before = pinned(&cluster);
    cluster.devcluster(&["pause", "node3"]).exits(0);
    cluster.ok("cluster renew-certs").says(&["node3"]);
    let told = warnings(&cluster.last_job());
    assert!(told.iter().any(|text| text.contains("node3")), "{told:?}");
    assert!(!told.iter().any(|text| text.contains("node1") || text.contains("node2")), "{told:?}");
    let middle = pinned(&cluster);
    assert_eq!(renewed(&before, &middle), [true, true, false]);

    cluster.devcluster(&["resume", "node3"]).exits(0);
    let own = Shown::Certificate(doors.node_certificate(3));
    assert_eq!(doors.outcome(Door::Master, &own, HEALTH), "answered", "it was not renewed, so it is good");
    wait_for("node3 is back", || doors.node(3).not_reached.is_none());
    cluster.ok("cluster renew-certs node3").does_not_say("warning");
    let after = pinned(&cluster);
    assert_eq!(renewed(&middle, &after), [false, false, true]);
    assert_eq!(doors.node_certificate(3).fingerprint().to_string(), after[2]);
    cluster.ok("cluster verify");
}
