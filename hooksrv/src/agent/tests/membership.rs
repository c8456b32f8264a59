//! Membership through the services: who is heard on the port, facts, renewal, leaving.

use muster_proto::{
    transport::{Identity, LEAF_LIFETIME, connect_tls},
    v1::{self, agent_service_client::AgentServiceClient},
};
use time::OffsetDateTime;
use tokio::time::timeout;
use tonic::Code;
use uuid::Uuid;

use super::daemon::{CLUSTER, Daemon, LIMIT, NODE, certificate, context, hello, new_ca, wait_for};

fn master(epoch: u64) -> Identity {
    Identity::master(CLUSTER, NODE, epoch)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_hears_the_newest_master_and_no_other() {
    let mut daemon = Daemon::start().await;
    let ca = new_ca();
    daemon.make_member(&ca).await;
    let mut first = AgentServiceClient::new(daemon.dial(&ca, master(2)).await);
    let answer = first.hello(hello(2, 5, &[])).await.unwrap().into_inner();
    assert_eq!((answer.epoch_seen, answer.serial_seen), (2, 1), "hello alone does not count as an act");
    let end = |epoch, serial| v1::EndJobRequest {
        context: context(epoch, serial),
        job_id: 1,
        call_ids: Vec::new(),
    };
    first.end_job(end(2, 5)).await.unwrap();
    let above = first.hello(hello(3, 5, &[])).await.unwrap_err();
    assert_eq!(above.code(), Code::FailedPrecondition);
    assert!(above.message().starts_with("epoch:"), "{above}");

    let mut next = AgentServiceClient::new(daemon.dial(&ca, master(3)).await);
    let answer = next.hello(hello(3, 5, &[])).await.unwrap().into_inner();
    assert_eq!((answer.epoch_seen, answer.serial_seen), (3, 5));
    for refused in
        [first.hello(hello(2, 6, &[])).await.map(|_| ()), first.end_job(end(2, 6)).await.map(|_| ())]
    {
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().starts_with("epoch:"), "{refused}");
    }

    daemon.restart().await;
    let mut old = AgentServiceClient::new(daemon.dial(&ca, master(2)).await);
    assert!(old.hello(hello(2, 6, &[])).await.unwrap_err().message().starts_with("epoch:"));
    let mut other = hello(9, 6, &[]);
    other.context.as_mut().unwrap().cluster_uuid = Uuid::from_u128(5).to_string();
    let refused = daemon.agent_client().await.hello(other).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("cluster:"), "{refused}");
}

fn facts(serial: u64, client: Option<String>) -> v1::PutFactsRequest {
    let node = v1::NodeFact {
        name: "node1".to_owned(),
        primary_ip: "192.0.2.1".to_owned(),
        secondary_ip: "192.0.2.1".to_owned(),
    };
    let accepted = |fingerprint| v1::AcceptedClient { fingerprint, role: "reader".to_owned() };
    let facts = v1::Facts {
        serial,
        cluster_name: "dev".to_owned(),
        master_node: "node1".to_owned(),
        nodes: vec![node],
        instances: Vec::new(),
        clients: client.into_iter().map(accepted).collect(),
        ..v1::Facts::default()
    };
    v1::PutFactsRequest { context: context(1, serial), facts: Some(facts) }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_refused_and_clients_may_ask_for_health_while_accepted() {
    use muster_proto::transport::{ClientRole, ClientTls, Expect, Pins};
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let daemon = Daemon::start().await;
    let ca = new_ca();
    daemon.make_member(&ca).await;
    let node = daemon.dial(&ca, Identity::node(CLUSTER, Uuid::from_u128(4))).await;
    let refused = AgentServiceClient::new(node.clone()).hello(hello(1, 1, &[])).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let check = || HealthCheckRequest { service: String::new() };
    assert_eq!(HealthClient::new(node).check(check()).await.unwrap_err().code(), Code::Unauthenticated);

    let reader = certificate(&ca, &Identity::client(CLUSTER, Uuid::from_u128(6), ClientRole::Reader));
    let pin = daemon.agent.as_ref().unwrap().credentials().tls().unwrap().fingerprint();
    let tls = ClientTls::new(&reader, Expect::Node { node: NODE, accepted: Pins::new([pin]) });
    let channel = connect_tls(daemon.config.listen, &tls).await.unwrap();
    let mut health = HealthClient::new(channel.clone());
    assert_eq!(health.check(check()).await.unwrap_err().code(), Code::Unauthenticated, "not accepted yet");
    let mut local = daemon.agent_client().await;
    local.put_facts(facts(2, Some(reader.fingerprint().to_string()))).await.unwrap();
    health.check(check()).await.unwrap();
    let refused = AgentServiceClient::new(channel).hello(hello(1, 1, &[])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);

    local.put_facts(facts(3, None)).await.unwrap();
    // Its connection is closed: it sees that, or the refusal on a new one.
    assert!(health.check(check()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_renewed_while_connections_are_open() {
    let daemon = Daemon::start().await;
    let ca = new_ca();
    let old = daemon.make_member(&ca).await;
    let mut client = AgentServiceClient::new(daemon.dial(&ca, master(1)).await);
    let request = v1::MakeSigningRequestRequest { context: context(1, 1) };
    let requests = client.make_signing_request(request).await.unwrap().into_inner();
    assert_eq!(requests.data_csr_der, None, "a node that runs hooks only has no use for one");
    let csr = requests.csr_der;
    let now = OffsetDateTime::now_utc();
    let install = |identity: Identity| v1::InstallCertificateRequest {
        context: context(1, 1),
        certificate_pem: ca.sign(&csr, &identity, now, LEAF_LIFETIME).unwrap().pem,
        ca_pem: ca.certificate_pem(),
        node_name: "node1".to_owned(),
        data_certificate_pem: None,
    };
    let other = install(Identity::node(CLUSTER, Uuid::from_u128(4)));
    assert_eq!(client.install_certificate(other).await.unwrap_err().code(), Code::InvalidArgument);
    let request = install(Identity::node(CLUSTER, NODE));
    for _ in 0..2 {
        let new = client.install_certificate(request.clone()).await.unwrap().into_inner().fingerprint;
        let used = daemon.agent.as_ref().unwrap().credentials().tls().unwrap().fingerprint();
        assert_eq!(new, used.to_string(), "also when it is repeated");
        assert_ne!(new, old);
    }
    client.hello(hello(1, 1, &[])).await.unwrap();
    AgentServiceClient::new(daemon.dial(&ca, master(1)).await).hello(hello(1, 1, &[])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_left_is_as_if_it_had_never_been_one() {
    let mut daemon = Daemon::start().await;
    let ca = new_ca();
    daemon.make_member(&ca).await;
    let mut client = AgentServiceClient::new(daemon.dial(&ca, master(1)).await);
    client.put_facts(facts(2, None)).await.unwrap();
    assert!(daemon.config.data_dir().join("ssconf_node_list").exists());
    client.leave(v1::LeaveRequest { context: context(1, 2) }).await.unwrap();
    let left = ["calls", "lock"];
    assert_eq!(daemon.node_files(), left);
    assert!(!daemon.config.data_dir().join("ssconf_node_list").exists());
    // The port closes.
    wait_for(async || tokio::net::TcpStream::connect(daemon.config.listen).await.is_err().then_some(()))
        .await;
    daemon.restart().await;
    assert_eq!(daemon.node_files(), left);
    let mut elsewhere = hello(1, 1, &[]);
    elsewhere.context.as_mut().unwrap().cluster_uuid = Uuid::from_u128(5).to_string();
    daemon.agent_client().await.hello(elsewhere).await.unwrap();
    // And can become one again.
    let ca = new_ca();
    daemon.make_member(&ca).await;
    AgentServiceClient::new(daemon.dial(&ca, master(1)).await).hello(hello(1, 1, &[])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_is_told_at_once_and_at_each_change() {
    let daemon = Daemon::start().await;
    let ca = new_ca();
    let fingerprint = daemon.make_member(&ca).await;
    let mut client = daemon.agent_client().await;
    let mut states = client
        .watch(v1::WatchRequest { context: context(1, 1), refresh_host: false })
        .await
        .unwrap()
        .into_inner();
    let state = states.message().await.unwrap().unwrap();
    assert_eq!((state.hooks_only, state.facts_serial, state.certificate_days), (true, 0, 364));
    assert_eq!(state.certificate_fingerprint, fingerprint);
    assert!(!state.data_certificate_due);
    assert!(state.memory_total_mib > 0 && state.cpus > 0);
    client.put_facts(facts(2, None)).await.unwrap();
    // Sooner than the interval of 10 s: the change itself is told. Another one, as the first look at the host, may be told before.
    let told = async { while states.message().await.unwrap().unwrap().facts_serial != 2 {} };
    timeout(LIMIT / 6, told).await.unwrap();
    client.hello(hello(2, 2, &[])).await.unwrap();
    let ended = states.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::FailedPrecondition, "a master that lost its office hears no more");
}
