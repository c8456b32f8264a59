//! What a host without a certificate can do: ask to join, once for each token, and wait for the answer.

use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use muster_proto::transport::{ClientTls, Fingerprint, connect_tls, new_key_and_csr};
use muster_proto::v1;
use muster_proto::v1::collect_event::Event;
use muster_proto::v1::enrolment_service_client::EnrolmentServiceClient;
use muster_proto::v1::token_service_client::TokenServiceClient;
use muster_tests::rpc;
use tonic::transport::Channel;

use super::doors::{Door, Doors, outcome_of};
use crate::cluster::{Cluster, Output, devcluster_program, start, wait_for};

/// node1, a cluster of its own, and node2, which is in none.
fn cluster_of_one() -> Cluster {
    let cluster = Cluster::bare(2);
    cluster.ok("cluster init dev");
    cluster
}

fn token(cluster: &Cluster, flags: &str) -> String {
    cluster.ok(&format!("node token create {flags}")).stdout.trim().to_owned()
}

/// The channel of a host that knows a token.
fn channel(doors: &Doors<'_>) -> Channel {
    let (tls, learnt) = ClientTls::enrolment(doors.ca.digest());
    let channel = doors.wait(connect_tls(doors.address(Door::Master), &tls)).unwrap();
    assert_eq!(learnt.pem(), Some(doors.ca.certificate_pem().as_str()));
    channel
}

/// Asks to join; the request's uuid, or the refusal.
fn enrol(doors: &Doors<'_>, token: &str, name: &str) -> Result<String, String> {
    let (_, csr_der) = new_key_and_csr(name).unwrap();
    let request = v1::EnrolRequest {
        token: token.to_owned(),
        name: name.to_owned(),
        csr_der,
        port: 1811,
        ..Default::default()
    };
    let mut client = EnrolmentServiceClient::new(channel(doors));
    let answer = doors.wait(client.enrol(request));
    answer.map(|answer| answer.into_inner().enrolment_uuid).map_err(|status| outcome_of(&Err(status)))
}

fn collect(doors: &Doors<'_>, uuid: &str) -> Event {
    let mut client = EnrolmentServiceClient::new(channel(doors));
    let request = v1::CollectRequest { enrolment_uuid: uuid.to_owned() };
    doors.wait(async {
        let mut events = client.collect(request).await.unwrap().into_inner();
        events.message().await.unwrap().unwrap().event.unwrap()
    })
}

/// A token that is good for a second, when that is over.
fn expired_token(cluster: &Cluster) -> String {
    let made = rpc::ask(&cluster.socket(), |channel| async move {
        let request = v1::CreateTokenRequest { node_name: None, lifetime_s: Some(1) };
        TokenServiceClient::new(channel).create_token(request).await
    });
    let v1::CreateTokenResponse { token, expires_ms } = made.unwrap().into_inner();
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    wait_for("the token is too old", || now_ms() > u128::from(expires_ms));
    token
}

#[test]
fn a_token_lets_one_host_ask_once() {
    let cluster = cluster_of_one();
    let doors = Doors::new(&cluster);
    let (used, bound, good) = (token(&cluster, ""), token(&cluster, "--node web9"), token(&cluster, ""));
    enrol(&doors, &used, "web1").unwrap();
    let changed = format!("{}{}", &good[..good.len() - 32], "0".repeat(32));
    let no_good = "PermissionDenied: the token is not, or no longer, good";
    let table = [
        ("used", used.as_str(), "web2", no_good),
        ("used, by its own host", &used, "web1", no_good),
        ("too old", &expired_token(&cluster), "web2", no_good),
        ("with a changed secret", &changed, "web2", no_good),
        ("empty", "", "web2", no_good),
        ("another host's", &bound, "web2", "PermissionDenied: the token is good for web9 only"),
        ("good, for a name that is none", &good, "Web_2", "InvalidArgument: the request can't be used"),
    ];
    for (what, token, name, words) in table {
        let refusal = enrol(&doors, token, name).unwrap_err();
        assert!(refusal.starts_with(words), "a token {what}: {refusal}");
    }
    cluster.ok("node pending").says(&["web1"]).does_not_say("web2").does_not_say("web9");

    // What was refused has not used a token up.
    let web9 = enrol(&doors, &bound, "web9").unwrap();
    enrol(&doors, &good, "web2").unwrap();
    cluster.ok("node pending").says(&["web1", "web2", "web9"]);
    assert!(matches!(collect(&doors, &web9), Event::Pending(_)));
    let unknown = collect(&doors, "00000000-0000-0000-0000-000000000001");
    assert!(matches!(&unknown, Event::Gone(why) if why.contains("no such request")), "{unknown:?}");
}

fn join(cluster: &Cluster, token: &str) -> Output {
    let mut command = Command::new(devcluster_program().with_file_name("muster-noded"));
    command.arg("join").arg("--config").arg(cluster.node_dir(2).join("noded.toml"));
    command.args(["--token-file", "-"]);
    start(command, token).finish()
}

#[test]
fn a_host_asks_no_master_but_the_tokens() {
    let cluster = cluster_of_one();
    let doors = Doors::new(&cluster);
    let right = token(&cluster, "");
    let digest = doors.ca.digest().to_string();
    assert!(right.contains(&digest), "{right}");
    let other = Fingerprint::of(b"another CA").to_string();
    let request: PathBuf = cluster.node_dir(2).join("state/node/enrolment.json");
    join(&cluster, &right.replace(&digest, &other))
        .exits(3)
        .says(&["not the one that the token names", &other]);
    // A node's port is no master's, though its certificate is by the right CA.
    let node = right.replace(":1810:", ":1811:");
    join(&cluster, &node).exits(3).says(&["not a master"]);
    assert!(!request.exists(), "a request to nobody is left behind");
    cluster.ok("node pending").does_not_say("node2");

    // The secret was shown to nobody, so that the token is good still; and then no more.
    join(&cluster, &right).exits(0);
    join(&cluster, &right).exits(1).says(&["the master refused", "the token is not, or no longer, good"]);
    cluster.ok("node pending").says(&["node2"]);
    cluster.ok("node add node2");
    join(&cluster, &token(&cluster, "")).exits(1).says(&["this host is node node2 of cluster"]);
}
