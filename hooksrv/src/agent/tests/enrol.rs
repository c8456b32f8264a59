//! The way from a token to membership, against an enrolment service by TLS.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use muster_core::names::NodeName;
use muster_proto::{
    transport::{
        Admission, Ca, Connections, Fingerprint, Identity, LEAF_LIFETIME, PrivateKeyPem, Role,
        check_data_certificate, common_services, serve_tls,
    },
    v1::{
        self,
        agent_service_client::AgentServiceClient,
        collect_event::Event,
        enrolment_service_server::{EnrolmentService, EnrolmentServiceServer},
    },
};
use time::OffsetDateTime;
use tokio::{net::TcpListener, sync::watch};
use tokio_stream::{
    StreamExt,
    wrappers::{ReceiverStream, WatchStream},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::daemon::{CLUSTER, Daemon, NODE, certificate, hello, new_ca, wait_for};
use crate::agent::{Enrolment, JoinError, Token, join, leave};

/// What an operator decided on the newest request.
#[derive(Clone)]
enum Decision {
    Pending,
    Issued,
    Gone,
}

struct Master {
    ca: Ca,
    requests: Mutex<Vec<v1::EnrolRequest>>,
    decision: watch::Sender<Decision>,
}

impl Master {
    fn event(&self, number: usize, decision: &Decision) -> v1::CollectEvent {
        let event = match decision {
            Decision::Pending => Event::Pending(v1::Pending {}),
            Decision::Gone => Event::Gone("withdrawn".to_owned()),
            Decision::Issued => {
                let request = self.requests.lock().unwrap()[number].clone();
                let (identity, now) = (Identity::node(CLUSTER, NODE), OffsetDateTime::now_utc());
                let signed = self.ca.sign(&request.csr_der, &identity, now, LEAF_LIFETIME).unwrap();
                let name = NodeName::parse("node7").unwrap();
                let data =
                    request.data_csr_der.map(|csr| self.ca.sign_data(&csr, &name, &[], now, LEAF_LIFETIME));
                Event::Issued(v1::Issued {
                    certificate_pem: signed.pem,
                    ca_pem: self.ca.certificate_pem(),
                    node_name: "node7".to_owned(),
                    node_uuid: NODE.to_string(),
                    data_certificate_pem: data.map(|signed| signed.unwrap().pem),
                })
            }
        };
        v1::CollectEvent { event: Some(event) }
    }
}

struct Service(Arc<Master>);

#[tonic::async_trait]
impl EnrolmentService for Service {
    type CollectStream = ReceiverStream<Result<v1::CollectEvent, Status>>;

    async fn enrol(&self, request: Request<v1::EnrolRequest>) -> Result<Response<v1::EnrolResponse>, Status> {
        let request = request.into_inner();
        if request.token != "00ff" {
            return Err(Status::permission_denied("the token is unknown or used up"));
        }
        let mut requests = self.0.requests.lock().unwrap();
        requests.push(request);
        Ok(Response::new(v1::EnrolResponse {
            enrolment_uuid: (requests.len() - 1).to_string(),
            cluster_uuid: CLUSTER.to_string(),
            cluster_name: "dev".to_owned(),
        }))
    }

    async fn collect(
        &self,
        request: Request<v1::CollectRequest>,
    ) -> Result<Response<Self::CollectStream>, Status> {
        let number: usize = request.into_inner().enrolment_uuid.parse().unwrap();
        let master = Arc::clone(&self.0);
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut decisions = WatchStream::new(master.decision.subscribe());
            while let Some(decision) = decisions.next().await {
                if sender.send(Ok(master.event(number, &decision))).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

struct Nobody;

impl Admission for Nobody {
    fn admit(&self, _: &Identity, _: &Fingerprint) -> Result<Role, String> {
        Err("only hosts that enrol".to_owned())
    }
}

/// A master's port with the enrolment service; gives the service's state, a token's text, and what ends it.
async fn master() -> (Arc<Master>, String, DropGuard) {
    let ca = new_ca();
    let tls = certificate(&ca, &Identity::master(CLUSTER, Uuid::from_u128(1), 1));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let token = format!("muster1:{}:{}:00ff", listener.local_addr().unwrap(), ca.digest());
    let decision = watch::Sender::new(Decision::Pending);
    let master = Arc::new(Master { ca, requests: Mutex::default(), decision });
    let (routes, _) = common_services().unwrap();
    let routes = routes.add_service(EnrolmentServiceServer::new(Service(Arc::clone(&master))));
    let stop = CancellationToken::new();
    let serving = serve_tls(listener, tls, routes, Arc::new(Nobody), Connections::default(), stop.clone());
    tokio::spawn(async move { serving.await.unwrap() });
    (master, token, stop.drop_guard())
}

async fn is_member(daemon: &Daemon) {
    wait_for(async || daemon.agent.as_ref().unwrap().credentials().tls().map(|_| ())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_joined_becomes_a_node_when_the_master_says_so() {
    let mut daemon = Daemon::start().await;
    let (master, token, _serving) = master().await;
    let token: Token = token.parse().unwrap();
    let joined = join(&daemon.config, &token, true).await.unwrap();
    assert_eq!((joined.name.as_str(), joined.cluster_name.as_str()), ("node1", "dev"));
    let request = master.requests.lock().unwrap()[0].clone();
    assert_eq!((request.name.as_str(), request.hooks_only), ("node1", true));
    assert_eq!(request.advertise_ip.as_deref(), Some("127.0.0.1"));
    wait_for(async || (master.decision.receiver_count() > 0).then_some(())).await;

    // A second request takes the first one's place, also for a daemon that waits already and after a restart.
    join(&daemon.config, &token, true).await.unwrap();
    daemon.restart().await;
    assert!(daemon.agent.as_ref().unwrap().membership().is_none());
    master.decision.send_replace(Decision::Issued);
    is_member(&daemon).await;
    let member = daemon.agent.as_ref().unwrap().membership().unwrap();
    assert_eq!((member.node, member.name.as_str(), member.epoch_seen), (NODE, "node7", 0));
    assert_eq!(daemon.node_files(), ["ca.pem", "calls", "lock", "node.json", "node.pem"]);
    let channel = daemon.dial(&master.ca, Identity::master(CLUSTER, NODE, 4)).await;
    AgentServiceClient::new(channel).hello(hello(4, 1, &[])).await.unwrap();

    assert!(matches!(join(&daemon.config, &token, true).await, Err(JoinError::Member { .. })));
    assert!(leave(&daemon.config).await.unwrap());
    assert!(daemon.agent.as_ref().unwrap().membership().is_none());
    assert!(!leave(&daemon.config).await.unwrap(), "there is nothing to leave any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_joined_to_run_guests_gets_a_data_certificate_too() {
    let mut daemon = Daemon::start().await;
    let (master, token, _serving) = master().await;
    join(&daemon.config, &token.parse().unwrap(), false).await.unwrap();
    // The keys wait on disk for their certificates.
    daemon.restart().await;
    assert!(daemon.config.data_certificates_dir().is_err());
    master.decision.send_replace(Decision::Issued);
    is_member(&daemon).await;
    let folder = daemon.config.data_certificates_dir().unwrap();
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let name = NodeName::parse("node7").unwrap();
    let key = PrivateKeyPem::new(read("client-key.pem"));
    check_data_certificate(&read("client-cert.pem"), &key, &name).unwrap();
    assert_eq!(read("ca-cert.pem"), master.ca.certificate_pem());
    assert!(leave(&daemon.config).await.unwrap());
    assert!(!folder.exists());
    assert_eq!(daemon.node_files(), ["calls", "lock"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_request_is_forgotten() {
    let daemon = Daemon::start().await;
    let (master, token, _serving) = master().await;
    join(&daemon.config, &token.parse().unwrap(), false).await.unwrap();
    let path = daemon.config.node_dir().join("enrolment.json");
    assert!(Enrolment::load(&path).unwrap().is_some());
    master.decision.send_replace(Decision::Gone);
    wait_for(async || Enrolment::load(&path).unwrap().is_none().then_some(())).await;
    assert!(daemon.agent.as_ref().unwrap().membership().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_or_another_ca_leaves_no_request() {
    let daemon = Daemon::start().await;
    let (_master, token, _serving) = master().await;
    let used: Token = token.replace(":00ff", ":00fe").parse().unwrap();
    assert!(matches!(join(&daemon.config, &used, true).await, Err(JoinError::Refused(_))));
    let (start, _) = token.rsplit_once(':').unwrap();
    let (address, _) = start.rsplit_once(':').unwrap();
    let other: Token = format!("{address}:{}:00ff", "ab".repeat(32)).parse().unwrap();
    let refused = join(&daemon.config, &other, true).await.unwrap_err();
    assert!(matches!(refused, JoinError::Dial(_)), "{refused:?}");
    assert_eq!(daemon.node_files(), ["calls", "lock"]);
}
