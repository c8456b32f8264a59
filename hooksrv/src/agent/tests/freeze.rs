//! A daemon that was frozen: what came before is not acted on, and nothing is until it is greeted again.

use std::time::Duration;

use muster_proto::{
    transport::{Identity, boot_clock, unanswered},
    v1::{self, agent_service_client::AgentServiceClient},
};
use tonic::{Code, transport::Channel};

use super::daemon::{CLUSTER, Daemon, NODE, context, hello, new_ca};

/// Longer than a master waits.
const FREEZE: Duration = Duration::from_secs(30);

impl Daemon {
    /// Makes the daemon see that it stood still for a while.
    fn thaw(&self) {
        self.agent.as_ref().unwrap().freezes().set_clock(|| boot_clock() + FREEZE);
    }
}

/// Something that acts and changes nothing.
async fn act(client: &mut AgentServiceClient<Channel>) -> Result<(), tonic::Status> {
    client
        .end_job(v1::EndJobRequest { context: context(1, 1), job_id: 1, call_ids: Vec::new() })
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_was_frozen_acts_only_when_it_is_greeted_again() {
    let daemon = Daemon::start().await;
    let ca = new_ca();
    daemon.make_member(&ca).await;
    let (socket, port) = (daemon.unix().await, daemon.dial(&ca, Identity::master(CLUSTER, NODE, 1)).await);
    let mut watching = AgentServiceClient::new(port.clone());
    watching.hello(hello(1, 1, &[])).await.unwrap();
    let mut states = watching
        .watch(v1::WatchRequest { context: context(1, 1), refresh_host: false })
        .await
        .unwrap()
        .into_inner();
    states.message().await.unwrap().unwrap();
    for channel in [&socket, &port] {
        act(&mut AgentServiceClient::new(channel.clone())).await.unwrap();
    }

    daemon.thaw();
    // On the connections from before, or on those that the client makes in their place.
    for channel in [&socket, &port] {
        let refused = act(&mut AgentServiceClient::new(channel.clone())).await.unwrap_err();
        assert!(refused.code() == Code::Unavailable || unanswered(&refused), "{refused}");
    }
    while let Ok(Some(_)) = states.message().await {}

    let mut anew = daemon.agent_client().await;
    let refused = act(&mut anew).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("was frozen for 30 s"), "{refused}");
    let mut states = anew
        .watch(v1::WatchRequest { context: context(1, 1), refresh_host: false })
        .await
        .unwrap()
        .into_inner();
    states.message().await.unwrap().unwrap();

    anew.hello(hello(1, 1, &[])).await.unwrap();
    act(&mut anew).await.unwrap();
    let mut by_port = AgentServiceClient::new(daemon.dial(&ca, Identity::master(CLUSTER, NODE, 1)).await);
    by_port.hello(hello(1, 1, &[])).await.unwrap();
    act(&mut by_port).await.unwrap();
    states.message().await.unwrap().expect("connections made after the freeze stay open");
}
