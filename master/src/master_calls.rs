//! Calls that the master carries out itself; each may come twice and then gives the same answer.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use muster_core::{
    calls::{CallAnswer, MasterCall, Output},
    model::{ClientRole, Fingerprint},
    names::NodeName,
};
use muster_proto::transport::Identity;
use uuid::Uuid;

use crate::{
    fence::{FENCE_LIMIT, Fencing, fence},
    hex,
    master::Master,
    nodes::{NodeClient, OnProgress},
    shell::wall_ms,
    store::Batch,
};

/// How long a new node may take to fetch its certificate and serve with it.
const DELIVER_LIMIT: Duration = Duration::from_secs(30);
/// How often it is tried meanwhile.
const DELIVER_PAUSE: Duration = Duration::from_millis(50);

/// Why a call was not carried out, in words.
type Failure = String;

/// Carries out one call.
pub(crate) async fn run(
    master: &Arc<Master>,
    job: u64,
    call: MasterCall,
    progress: &OnProgress,
) -> CallAnswer {
    let result = match call {
        MasterCall::CopyImage { from_node, from, to_node, to } => {
            return master.nodes.copy_image(job, &from_node, &from, &to_node, &to, Some(progress)).await;
        }
        MasterCall::CaCreate { cluster } => {
            master.authority.create(cluster, wall_ms()).map(|()| Output::default()).map_err(words)
        }
        MasterCall::CaRemove => master.authority.remove().map(|()| Output::default()).map_err(words),
        MasterCall::LocalNodeSign { node, uuid, addresses } => {
            renew(master, &master.nodes.local(), &node, uuid, &addresses).await
        }
        MasterCall::LocalNodeLeave => leave(&master.nodes.local()).await,
        MasterCall::PendingSign { node, uuid, addresses } => {
            pending_sign(master, node, uuid, addresses).await
        }
        MasterCall::PendingWithdraw { node } => {
            master.enrolment.withdraw(&node).await.map(|()| Output::default()).map_err(words)
        }
        MasterCall::PendingDeliver { node, address } => pending_deliver(master, &node, address).await,
        MasterCall::CertificateRenew { node } => certificate_renew(master, &node).await,
        MasterCall::Fence { node, address, command } => fence_node(master, &node, address, &command).await,
        MasterCall::ClientSign { uuid, role, csr_hex } => client_sign(master, uuid, role, &csr_hex).await,
        MasterCall::NodeLeave { node, address, uuid, fingerprints } => {
            leave(&master.nodes.provisional(node, address, uuid, &fingerprints)).await
        }
    };
    match result {
        Ok(output) => CallAnswer::Done(output),
        Err(why) => CallAnswer::Failed(why),
    }
}

fn words(error: impl std::error::Error) -> Failure {
    crate::chain(&error)
}

/// Makes sure that a node is off.
async fn fence_node(
    master: &Master,
    node: &NodeName,
    address: IpAddr,
    command: &str,
) -> Result<Output, Failure> {
    let cluster = master.view.cluster().ok_or("there is no cluster")?;
    let what = Fencing { command, node, address, cluster: cluster.name.as_str() };
    fence(what, FENCE_LIMIT).await.map_err(words)?;
    tracing::info!(%node, %address, command, "fenced");
    Ok(Output::default())
}

async fn leave(node: &NodeClient) -> Result<Output, Failure> {
    node.leave().await.map(|()| Output::default()).map_err(words)
}

/// A new key on the node, signed, recorded, pinned, and only then installed; its data certificate goes along.
async fn renew(
    master: &Master,
    client: &NodeClient,
    node: &NodeName,
    uuid: Uuid,
    addresses: &[IpAddr],
) -> Result<Output, Failure> {
    let requests = client.make_signing_request().await.map_err(words)?;
    let data = requests.data_csr_der.as_deref();
    let data = data.map(|csr| master.authority.sign_data(csr, node, addresses, wall_ms()));
    let data = data.transpose().map_err(words)?.flatten();
    let unrecorded = master.authority.sign_node(&requests.csr_der, uuid, wall_ms()).map_err(words)?;
    let signed = unrecorded.record(&master.commands, Batch::default()).await.map_err(words)?;
    if let Some(cluster) = master.view.cluster() {
        master.pins.pin_renewal(node, Identity::node(cluster.uuid, uuid), signed.fingerprint);
        master.nodes.accept(node, master.pins.of_node(node));
    }
    let ca = master.authority.certificate_pem().map_err(words)?;
    client.install_certificate(&signed.pem, data.as_deref(), &ca).await.map_err(words)?;
    Ok(Output {
        node: Some(node.clone()),
        fingerprint: Some(signed.fingerprint.to_string()),
        ..Output::default()
    })
}

/// Renews a member's certificate and sees that the node serves with it.
async fn certificate_renew(master: &Arc<Master>, node: &NodeName) -> Result<Output, Failure> {
    let cluster = master.view.cluster().ok_or("there is no cluster")?;
    let known = cluster.nodes.get(node).ok_or_else(|| format!("there is no node {node}"))?;
    let client = master.nodes.node(node).map_err(words)?;
    let mut output = renew(master, &client, node, known.uuid, &known.addresses()).await?;
    output.result = [(node.to_string(), "renewed".to_owned())].into();
    client.reset();
    client.hello(true).await.map_err(words)?;
    if *node == master.config.name {
        crate::office::renew_own(master, &cluster).map_err(words)?;
    }
    Ok(output)
}

async fn pending_sign(
    master: &Master,
    node: NodeName,
    uuid: Uuid,
    addresses: Vec<IpAddr>,
) -> Result<Output, Failure> {
    let signed = master.enrolment.sign_pending(&node, uuid, addresses).await.map_err(words)?;
    Ok(Output { node: Some(node), fingerprint: Some(signed.fingerprint.to_string()), ..Output::default() })
}

/// Waits until the new node serves with its certificate.
async fn pending_deliver(master: &Master, node: &NodeName, address: SocketAddr) -> Result<Output, Failure> {
    let signed =
        master.enrolment.list().into_iter().find(|host| host.name == *node).and_then(|host| host.signed);
    let signed = signed.ok_or_else(|| format!("{node} has no certificate to fetch"))?;
    let fingerprints: [Fingerprint; 1] = [signed.fingerprint.to_string()];
    let client = master.nodes.provisional(node.clone(), address, signed.node, &fingerprints);
    let wait = async {
        loop {
            match client.hello(true).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%node, %error, "does not serve with its certificate yet"),
            }
            tokio::time::sleep(DELIVER_PAUSE).await;
        }
    };
    match tokio::time::timeout(DELIVER_LIMIT, wait).await {
        Ok(()) => Ok(Output::default()),
        Err(_) => {
            let last = client.not_reached().unwrap_or_else(|| "no answer".to_owned());
            let limit = DELIVER_LIMIT.as_secs();
            Err(format!("{node} does not serve at {address} with its certificate after {limit} s ({last})"))
        }
    }
}

async fn client_sign(
    master: &Master,
    uuid: Uuid,
    role: ClientRole,
    csr_hex: &str,
) -> Result<Output, Failure> {
    let csr = hex::bytes_of(csr_hex).ok_or("the signing request is no hexadecimal text")?;
    let unrecorded = master.authority.sign_client(&csr, uuid, role, wall_ms()).map_err(words)?;
    let signed = unrecorded.record(&master.commands, Batch::default()).await.map_err(words)?;
    let ca = master.authority.certificate_pem().map_err(words)?;
    Ok(Output {
        fingerprint: Some(signed.fingerprint.to_string()),
        result: [("certificate_pem".to_owned(), signed.pem), ("ca_pem".to_owned(), ca)].into(),
        ..Output::default()
    })
}
