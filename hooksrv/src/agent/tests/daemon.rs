//! A daemon to test, and the master's side of its calls.

use std::{
    fs,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use muster_proto::{
    transport::{
        Ca, ClientTls, Expect, Identity, LEAF_LIFETIME, Pins, TlsState, connect_tls, connect_unix,
        new_key_and_csr,
    },
    v1::{self, agent_service_client::AgentServiceClient, hook_service_client::HookServiceClient},
};
use time::OffsetDateTime;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;
use uuid::Uuid;

use crate::{
    agent::{Agent, Config, HooksOnly, NodeLock, open, serve},
    keeper::tests::own_test_keeper,
    prepare_process,
};

/// Whatever a test waits for comes within this.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
pub(super) const CLUSTER: Uuid = Uuid::from_u128(0xc1);
pub(super) const NODE: Uuid = Uuid::from_u128(0xa1);

/// A daemon in a directory of its own; it can be stopped and started again.
pub(super) struct Daemon {
    pub(super) folder: tempfile::TempDir,
    pub(super) config: Config,
    pub(super) agent: Option<Arc<Agent>>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(super) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Free now; the daemon tries on for a while should another test take it.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let dir = |name: &str| folder.path().join(name).display().to_string();
        let text = format!(
            "name = \"node1\"\nlisten = \"127.0.0.1:{port}\"\nstate_dir = {:?}\nrun_dir = {:?}\nhooks_dir = {:?}\n",
            dir("state"),
            dir("run"),
            dir("hooks")
        );
        let file = folder.path().join("noded.toml");
        fs::write(&file, text).unwrap();
        let config = Config::load(Some(&file)).unwrap();
        let stop = CancellationToken::new();
        let mut daemon = Daemon { folder, config, agent: None, stop, task: None };
        daemon.begin().await;
        daemon
    }

    async fn begin(&mut self) {
        let lock = NodeLock::acquire(&self.config).unwrap();
        self.stop = CancellationToken::new();
        let (config, backends) = (self.config.clone(), Arc::new(HooksOnly));
        let opened = open(prepare_process(), lock, config, backends, own_test_keeper(), self.stop.clone());
        let (agent, hooks) = opened.await.unwrap();
        self.agent = Some(Arc::clone(&agent));
        self.task = Some(tokio::spawn(async move { serve(agent, hooks).await.unwrap() }));
        wait_for(async || connect_unix(&self.config.socket()).await.ok()).await;
    }

    pub(super) async fn restart(&mut self) {
        self.stop.cancel();
        self.agent = None;
        timeout(LIMIT, self.task.take().unwrap()).await.unwrap().unwrap();
        // The last holders of the lock are tasks that end with their connections.
        wait_for(async || NodeLock::acquire(&self.config).ok()).await;
        wait_for(async || UnixStream::connect(self.config.socket()).err()).await;
        self.begin().await;
    }

    pub(super) async fn unix(&self) -> Channel {
        connect_unix(&self.config.socket()).await.unwrap()
    }

    pub(super) async fn agent_client(&self) -> AgentServiceClient<Channel> {
        AgentServiceClient::new(self.unix().await)
    }

    pub(super) async fn hooks_client(&self) -> HookServiceClient<Channel> {
        HookServiceClient::new(self.unix().await)
    }

    pub(super) fn script(&self, directory: &str, name: &str, text: &str) {
        let folder = self.config.hooks_dir.join(directory);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn node_files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.config.node_dir())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Whether the keepers of all runs have gone with what they had on disk, which is a moment after the runs' answers.
    pub(super) fn has_no_keepers(&self) -> bool {
        fs::read_dir(self.config.node_dir().join("keepers")).unwrap().next().is_none()
    }

    /// Makes the node a member by its own socket, as a cluster's init does.
    pub(super) async fn make_member(&self, ca: &Ca) -> String {
        let mut client = self.agent_client().await;
        let context = context(1, 1);
        let request = v1::MakeSigningRequestRequest { context: context.clone() };
        let csr = client.make_signing_request(request).await.unwrap().into_inner().csr_der;
        let identity = Identity::node(CLUSTER, NODE);
        let signed = ca.sign(&csr, &identity, OffsetDateTime::now_utc(), LEAF_LIFETIME).unwrap();
        let request = v1::InstallCertificateRequest {
            context,
            certificate_pem: signed.pem,
            ca_pem: ca.certificate_pem(),
            node_name: "node1".to_owned(),
            data_certificate_pem: None,
        };
        client.install_certificate(request).await.unwrap().into_inner().fingerprint
    }

    /// Dials the node's port with a certificate.
    pub(super) async fn dial(&self, ca: &Ca, identity: Identity) -> Channel {
        let pin = self.agent.as_ref().unwrap().credentials().tls().unwrap().fingerprint();
        let tls = ClientTls::new(
            &certificate(ca, &identity),
            Expect::Node { node: NODE, accepted: Pins::new([pin]) },
        );
        let address: SocketAddr = self.config.listen;
        wait_for(async || connect_tls(address, &tls).await.ok()).await
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) fn new_ca() -> Ca {
    Ca::create(CLUSTER, OffsetDateTime::now_utc()).unwrap()
}

pub(super) fn certificate(ca: &Ca, identity: &Identity) -> TlsState {
    let (key, csr) = new_key_and_csr("test").unwrap();
    let signed = ca.sign(&csr, identity, OffsetDateTime::now_utc(), LEAF_LIFETIME).unwrap();
    TlsState::new(&ca.certificate_pem(), &signed.pem, &key).unwrap()
}

pub(super) fn context(epoch: u64, serial: u64) -> Option<v1::CallContext> {
    Some(v1::CallContext { cluster_uuid: CLUSTER.to_string(), epoch, serial })
}

pub(super) fn hello(epoch: u64, serial: u64, alive_jobs: &[u64]) -> v1::HelloRequest {
    v1::HelloRequest {
        context: context(epoch, serial),
        version: "0".to_owned(),
        alive_jobs: alive_jobs.to_vec(),
        now_ms: 0,
        node_name: "node1".to_owned(),
        guests: Vec::new(),
        ending_jobs: Vec::new(),
    }
}

/// Asks again until there is an answer.
pub(super) async fn wait_for<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, asking).await.expect("what the test waits for comes")
}
