//! A host joins over TLS: without a certificate, then with one, then without it again.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use muster_core::names::NodeName;
use muster_proto::{
    transport::{
        ClientTls, Expect, LearntCa, TlsState, common_services, connect_tls, new_key_and_csr, ping, serve_tls,
    },
    v1::{
        CollectRequest, CreateTokenRequest, EnrolRequest, collect_event::Event,
        enrolment_service_client::EnrolmentServiceClient, token_service_client::TokenServiceClient,
    },
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Streaming, transport::Channel};
use uuid::Uuid;

use super::{
    tests::{World, addresses, name, request},
    *,
};
use crate::enrol::tests::decided;

/// Nothing in these tests takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The current time: certificates must be valid.
fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// A master's TLS server.
async fn serve(world: &World) -> (SocketAddr, TlsState) {
    let own = world.ca.own_certificate(&name("node1"), Uuid::from_u128(1), 1, None, now_ms()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (routes, _) = common_services().unwrap();
    let routes = routes
        .add_service(enrolment_server(&world.enrolment, &Default::default()))
        .add_service(token_server(&world.enrolment));
    let stop = CancellationToken::new();
    let (pins, connections) = (world.pins.clone(), world.connections.clone());
    tokio::spawn(serve_tls(listener, own.tls.clone(), routes, pins, connections, stop));
    (address, own.tls)
}

async fn join(world: &World, address: SocketAddr) -> (Channel, LearntCa) {
    let (tls, learnt) = ClientTls::enrolment(world.ca.digest().unwrap());
    (connect_tls(address, &tls).await.unwrap(), learnt)
}

async fn next(events: &mut Streaming<muster_proto::v1::CollectEvent>) -> Event {
    let event = tokio::time::timeout(PATIENCE, events.message()).await.unwrap();
    decided(event.transpose().map(|event| event.map(|event| event.event.unwrap())))
}

#[tokio::test]
async fn a_host_joins_and_is_out_with_the_withdrawal() {
    let world = Arc::new(World::at(now_ms()));
    let (address, _) = serve(&world).await;
    let (channel, learnt) = join(&world, address).await;
    assert_eq!(learnt.pem().unwrap(), world.ca.certificate_pem().unwrap());
    let mut client = EnrolmentServiceClient::new(channel.clone());
    let (key, csr_der) = new_key_and_csr("node2").unwrap();
    let request = EnrolRequest { csr_der, ..request("node2", &world.token().await) };
    let refused = client.enrol(EnrolRequest { token: "0".to_owned(), ..request.clone() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let answer = client.enrol(request).await.unwrap().into_inner();
    assert_eq!(
        (answer.cluster_name.as_str(), answer.cluster_uuid),
        ("dev", world.master.cluster.to_string())
    );
    assert_eq!(world.enrolment.list()[0].source_ip, address.ip());

    let collect = CollectRequest { enrolment_uuid: answer.enrolment_uuid };
    let mut events = client.collect(collect.clone()).await.unwrap().into_inner();
    assert!(matches!(next(&mut events).await, Event::Pending(_)));
    let node = NodeName::parse("node2").unwrap();
    world.enrolment.sign_pending(&node, Uuid::from_u128(2), addresses()).await.unwrap();
    let Event::Issued(issued) = next(&mut events).await else { panic!("not issued") };
    assert!(events.message().await.unwrap().is_none());

    let own = TlsState::new(&issued.ca_pem, &issued.certificate_pem, &key).unwrap();
    let tls = ClientTls::new(&own, Expect::Master { cluster: world.master.cluster });
    let member = connect_tls(address, &tls).await.unwrap();
    ping(&member).await.unwrap();
    let fingerprint = world.enrolment.list()[0].signed.as_ref().unwrap().fingerprint;
    assert_eq!(world.connections.count(&fingerprint), 1);

    world.enrolment.withdraw(&node).await.unwrap();
    tokio::time::timeout(PATIENCE, async {
        while world.connections.count(&fingerprint) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(ping(&member).await.is_err());
    // A new connection is made, as the CA's signature is good, and refused at its first request.
    let again = ping(&connect_tls(address, &tls).await.unwrap()).await.unwrap_err().to_string();
    assert!(again.contains("is not, or no longer, one of the cluster's certificates"), "{again}");
    let mut events = client.collect(collect).await.unwrap().into_inner();
    assert!(matches!(next(&mut events).await, Event::Pending(_)));
}

#[tokio::test]
async fn only_admins_make_tokens() {
    let world = World::at(now_ms());
    let (address, _) = serve(&world).await;
    let (channel, _) = join(&world, address).await;
    let refused =
        TokenServiceClient::new(channel).create_token(CreateTokenRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}
