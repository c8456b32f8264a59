//! A certificate that is withdrawn, or expires, while its connection is open: nothing more is answered.

use muster_proto::transport::{ClientRole, Identity};
use muster_proto::v1;
use muster_proto::v1::job_service_client::JobServiceClient;

use super::doors::{Door, Doors, Empty, HEALTH, Shown, broken, call, outcome_of, watch};
use crate::cluster::{Cluster, wait_for};

/// Long enough for a connection to be made, also on a busy machine.
const SHORT_LIFETIME: time::Duration = time::Duration::seconds(8);

const REFUSED: &str = "is not, or no longer, one of the cluster's certificates";

#[track_caller]
fn is_refused(outcome: &str, words: &str) {
    assert!(outcome.starts_with("Unauthenticated") && outcome.contains(words), "{outcome}");
}

#[test]
fn a_revoked_client_is_out_at_once_with_its_open_streams() {
    let cluster = Cluster::up(2);
    let doors = Doors::new(&cluster);
    let (own, other) = (doors.client("joe", ClientRole::Reader), doors.client("ann", ClientRole::Reader));
    doors.known_at(Door::Node(2), &own);
    let (runs, go) = (cluster.dumps().join("runs"), cluster.dumps().join("go"));
    let wait = format!("touch {}; while [ ! -e {} ]; do sleep 0.05; done", runs.display(), go.display());
    cluster.script(2, "instance-add-pre.d", "10-wait", &wait);
    let job = cluster.submit("instance add -t diskless -n node2 -o none --no-start web1");
    wait_for("the script runs", || runs.exists());

    let channel = doors.connect(Door::Master, &own).unwrap();
    let at_node = doors.connect(Door::Node(2), &own).unwrap();
    let of_other = doors.connect(Door::Master, &other).unwrap();
    let mut followed = doors.wait(async {
        let mut jobs = JobServiceClient::new(channel.clone());
        let mut events =
            jobs.follow_job(v1::FollowJobRequest { id: job, parent_job: 0 }).await.unwrap().into_inner();
        assert!(events.message().await.unwrap().is_some(), "the job goes on");
        assert_eq!(jobs.get_job(v1::GetJobRequest { id: job }).await.unwrap().into_inner().id, job);
        events
    });
    let mut watched_node = doors.wait(watch(&at_node));
    let mut watched_other = doors.wait(watch(&of_other));

    cluster.ok("cluster client-cert revoke joe");
    let end = doors.wait(broken(&mut followed));
    assert_ne!(end.code(), tonic::Code::Ok);
    let list = v1::ListJobsRequest::default();
    is_refused(&outcome_of(&doors.wait(call(&channel, "/muster.v1.JobService/ListJobs", list))), REFUSED);
    is_refused(&doors.outcome(Door::Master, &Shown::Certificate(own.clone()), HEALTH), REFUSED);
    doors.wait(broken(&mut watched_node));
    is_refused(&outcome_of(&doors.wait(call(&at_node, HEALTH, Empty {}))), "is not, or no longer, accepted");

    // Nobody else's connection has ended, and the job goes on.
    assert_eq!(outcome_of(&doors.wait(call(&of_other, HEALTH, Empty {}))), "answered");
    let still = doors.runtime.block_on(async {
        tokio::select! {
            biased;
            end = watched_other.message() => Some(end),
            () = std::future::ready(()) => None,
        }
    });
    assert!(still.is_none(), "another client's stream ended: {still:?}");
    std::fs::write(go, "").unwrap();
    assert_eq!(cluster.job_end(job).status(), v1::JobStatus::Success);
}

#[test]
fn a_removed_node_is_out_at_once_whether_its_daemon_runs_or_not() {
    let cluster = Cluster::up(4);
    let doors = Doors::new(&cluster);
    for (number, running) in [(3, true), (4, false)] {
        let own = doors.node_certificate(number);
        let channel = doors.connect(Door::Master, &own).unwrap();
        assert_eq!(outcome_of(&doors.wait(call(&channel, HEALTH, Empty {}))), "answered");
        let mut watched = doors.wait(watch(&channel));
        if !running {
            cluster.devcluster(&["kill", &format!("node{number}")]).exits(0);
        }
        cluster.ok(&format!("node remove node{number}"));
        doors.wait(broken(&mut watched));
        is_refused(&outcome_of(&doors.wait(call(&channel, HEALTH, Empty {}))), REFUSED);
        let shown = Shown::Certificate(own);
        for path in [HEALTH, "/muster.v1.MasterService/HandOver", "/muster.v1.EnrolmentService/Enrol"] {
            is_refused(&doors.outcome(Door::Master, &shown, path), REFUSED);
        }
    }
    // The one that was down comes back with its certificate and still is no node.
    cluster.devcluster(&["start", "node4"]).exits(0);
    cluster.ok("node list").does_not_say("node4");
}

#[test]
fn a_certificate_that_expires_opens_nothing_on_a_connection_that_it_has_opened() {
    let cluster = Cluster::up(2);
    let doors = Doors::new(&cluster);
    // A node asks nobody whether a master's certificate is known, so that one of the test's own is let in.
    let master = Identity::master(doors.uuid, doors.node_uuid(1), cluster.info().epoch);
    let now = time::OffsetDateTime::now_utc();
    let own = doors.signed_for(&doors.ca, &master, now, SHORT_LIFETIME);
    let channel = doors.connect(Door::Node(2), &own).unwrap();
    let _open = doors.wait(watch(&channel));
    let ask = || outcome_of(&doors.wait(call(&channel, HEALTH, Empty {})));
    assert_eq!(ask(), "answered");
    wait_for("the certificate is refused", || ask() != "answered");
    is_refused(&ask(), "is refused: it is expired");
}
