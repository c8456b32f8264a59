//! Data certificates in the hands of QEMU's own tools: two nodes' daemons make the keys and keep the files, QEMU reads them.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use muster_core::names::NodeName;
use muster_hooksrv::agent::Config;
use muster_proto::{
    transport::{Ca, Identity, LEAF_LIFETIME},
    v1,
};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::program::{Program, context, names, wait_for};

const CLUSTER: Uuid = Uuid::from_u128(0xc1);
/// Where a node's daemon listens, on an address of its own.
const DAEMON_PORT: u16 = 1811;
/// The same for a copy's export.
const EXPORT_PORT: u16 = 10809;

pub(crate) fn new_ca() -> Ca {
    Ca::create(CLUSTER, OffsetDateTime::now_utc()).expect("a CA")
}

/// A node with an address that no other test's process has.
pub(crate) struct Node {
    pub(crate) program: Program,
    pub(crate) name: NodeName,
    pub(crate) address: Ipv4Addr,
    uuid: Uuid,
}

impl Node {
    pub(crate) async fn start(number: u8, name: &str) -> Self {
        // 19 bits of the process, four of the node.
        assert!(number < 16);
        let [_, high, middle, low] = (std::process::id() << 4).to_be_bytes();
        let address = Ipv4Addr::new(127, 128 | (high & 0x7f), middle, low | number);
        let mut program = Program::start().await;
        program.kill();
        let file = program.path("noded.toml");
        let text = fs::read_to_string(&file).expect("the configuration");
        fs::write(&file, format!("listen = \"{address}:{DAEMON_PORT}\"\n{text}")).expect("it is written");
        program.name = name.to_owned();
        program.begin().await;
        let name = NodeName::parse(name).expect("a name");
        Node { program, name, address, uuid: Uuid::from_u128(u128::from(number)) }
    }

    /// Makes it a member, or renews its certificates, as a master does; one of an older version knows of no data
    /// certificates.
    pub(crate) async fn install(&self, ca: &Ca, with_data: bool) {
        let mut agent = self.program.agent().await;
        let request = v1::MakeSigningRequestRequest { context: context() };
        let requests = agent.make_signing_request(request).await.expect("requests").into_inner();
        let now = OffsetDateTime::now_utc();
        let own = ca.sign(&requests.csr_der, &Identity::node(CLUSTER, self.uuid), now, LEAF_LIFETIME);
        let csr = requests.data_csr_der.expect("a node that runs guests asks for a data certificate");
        let data = ca.sign_data(&csr, &self.name, &[self.address.into()], now, LEAF_LIFETIME);
        let request = v1::InstallCertificateRequest {
            context: context(),
            certificate_pem: own.expect("a certificate").pem,
            ca_pem: ca.certificate_pem(),
            node_name: self.name.to_string(),
            data_certificate_pem: with_data.then(|| data.expect("a certificate").pem),
        };
        // The answer may have been lost.
        for _ in 0..2 {
            agent.install_certificate(request.clone()).await.expect("it fits");
        }
    }

    fn dir(&self) -> Option<PathBuf> {
        let config = Config::load(Some(&self.program.path("noded.toml"))).expect("the configuration");
        config.data_certificates_dir().ok()
    }

    /// The credentials as QEMU's programs take them.
    fn credentials(&self, endpoint: &str) -> String {
        let dir = self.dir().expect("there is a data certificate");
        format!("tls-creds-x509,id=tls,dir={},endpoint={endpoint},verify-peer=on", dir.display())
    }

    /// Serves a copy of a disk to one other node.
    async fn serve(&self, peer: &NodeName) -> Export {
        let copy = self.program.path("copy");
        fs::write(&copy, vec![0; 1 << 20]).expect("the copy is written");
        let authz = format!(
            "authz-list,id=peer,policy=deny,rules.0.match=CN={peer},rules.0.policy=allow,rules.0.format=exact"
        );
        let mut command = Command::new("qemu-storage-daemon");
        command.args(["--object", &self.credentials("server"), "--object", &authz, "--blockdev"]);
        command.arg(format!("driver=file,node-name=copy,filename={}", copy.display()));
        let address = format!("addr.type=inet,addr.host={},addr.port={EXPORT_PORT}", self.address);
        command.args(["--nbd-server", &format!("{address},tls-creds=tls,tls-authz=peer")]);
        command.args(["--export", "type=nbd,id=copy,node-name=copy,name=copy,writable=on"]);
        let log = fs::File::create(self.program.path("copy.log")).expect("a log");
        let child = command.stdin(Stdio::null()).stderr(log).spawn().expect("deploy/prepare.sh installs it");
        let export = Export(child);
        wait_for(async || TcpStream::connect((self.address, EXPORT_PORT)).ok()).await;
        export
    }

    /// Opens the copy that `server` serves, with this node's certificate; `expected` is whom it wants to have reached.
    fn open(&self, server: &Node, expected: Option<&str>) -> Output {
        let mut image = format!(
            "driver=nbd,server.type=inet,server.host={},server.port={EXPORT_PORT},export=copy,tls-creds=tls",
            server.address
        );
        if let Some(name) = expected {
            image.push_str(&format!(",tls-hostname={name}"));
        }
        let mut command = Command::new("qemu-io");
        command.args(["--object", &self.credentials("client"), "--image-opts", &image]);
        command.args(["-c", "write -P 7 0 64k", "-c", "read -P 7 0 64k"]).stdin(Stdio::null());
        command.output().expect("deploy/prepare.sh installs it")
    }

    fn opens(&self, server: &Node, expected: Option<&str>) {
        let output = self.open(server, expected);
        assert!(output.status.success(), "{expected:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// The client or the server says why.
    async fn is_refused(&self, server: &Node, expected: &str, words: &str) {
        let output = self.open(server, Some(expected));
        assert!(!output.status.success(), "{expected}");
        let said = String::from_utf8_lossy(&output.stderr);
        let told = async || {
            let log = fs::read_to_string(server.program.path("copy.log")).expect("the server has a log");
            (said.contains(words) || log.contains(words)).then_some(())
        };
        wait_for(told).await;
    }
}

/// A process that serves, until the end of the test.
struct Export(Child);

impl Drop for Export {
    fn drop(&mut self) {
        // One that has ended already is no trouble.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A name as long as names get: longer than X.509 has common names.
fn long_name() -> String {
    ["x".repeat(63), "y".repeat(63), "z".repeat(63), "w".repeat(61)].join(".")
}

#[tokio::test]
async fn two_nodes_reach_each_others_copies_and_nobody_elses() {
    let ca = new_ca();
    let (one, two, three) =
        (Node::start(1, "node1").await, Node::start(2, &long_name()).await, Node::start(3, "node3").await);
    for node in [&one, &two, &three] {
        node.install(&ca, true).await;
    }
    {
        let _export = two.serve(&one.name).await;
        one.opens(&two, Some(two.name.as_str()));
        // Its address is in the certificate too.
        one.opens(&two, None);
        one.is_refused(&two, "node3", "does not match").await;
        three.is_refused(&two, two.name.as_str(), "authz check for CN=node3 is denied").await;
        two.is_refused(&two, two.name.as_str(), &format!("authz check for CN={} is denied", two.name)).await;
        one.opens(&two, Some(two.name.as_str()));
    }
    let _export = one.serve(&two.name).await;
    two.opens(&one, Some("node1"));
    // A renewal of one side needs nothing of the other.
    two.install(&ca, true).await;
    two.opens(&one, Some("node1"));
    // The same names by another cluster's CA.
    let stranger = Node::start(4, two.name.as_str()).await;
    stranger.install(&new_ca(), true).await;
    stranger.is_refused(&one, "node1", "hasn't got a known issuer").await;
}

#[tokio::test]
async fn a_node_says_when_it_needs_a_data_certificate_and_forgets_it_when_it_leaves() {
    let ca = new_ca();
    // Tests may run side by side in one process.
    let mut node = Node::start(9, "node9").await;
    assert!(!node.program.state().await.data_certificate_due, "it is in no cluster");
    node.install(&ca, false).await;
    assert!(node.program.state().await.data_certificate_due);
    assert_eq!(node.dir(), None);
    node.install(&ca, true).await;
    assert!(!node.program.state().await.data_certificate_due);
    let first = node.dir().expect("a data certificate");
    let files = [
        "ca-cert.pem",
        "client-cert.pem",
        "client-key.pem",
        "dh-params.pem",
        "server-cert.pem",
        "server-key.pem",
    ];
    assert_eq!(names(&first), files);
    // A master of an older version renews the node's own certificate and leaves this one.
    node.install(&ca, false).await;
    assert_eq!(node.dir(), Some(first.clone()));
    node.program.kill();
    node.program.begin().await;
    node.install(&ca, true).await;
    assert_ne!(node.dir(), Some(first.clone()));
    assert_eq!(names(&first), files, "who reads it has until the next renewal");

    node.program.agent().await.leave(v1::LeaveRequest { context: context() }).await.expect("it leaves");
    assert_eq!(node.dir(), None);
    let left = names(&node.program.path("state_dir/node"));
    assert!(!left.iter().any(|name| name.contains("data")), "{left:?}");
}
