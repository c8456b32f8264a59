//! `join` and `leave`: short-lived programs beside the daemon.

use std::{io, time::Duration};

use muster_proto::{
    transport::{ClientTls, DialError, PkiError, connect_tls, connect_unix, describe, new_key_and_csr},
    v1::{self, agent_service_client::AgentServiceClient, enrolment_service_client::EnrolmentServiceClient},
};
use tokio::time::timeout;

use super::{
    AgentError, Config, CredentialError, Credentials, Enrolment, EnrolmentError, FactStore, FactsError, Keys,
    MembershipError, Memberships, NodeLock, Token, files, host, host_watch,
};

/// The master, or this host's daemon, answers within this.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Only root and the daemon's user look into the node's state.
pub(super) const NODE_DIR_MODE: u32 = 0o700;

/// Why this host could not ask to join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It is a member somewhere.
    #[error("this host is node {name} of cluster {cluster} already; to join another: leave first")]
    Member {
        /// Its name.
        name: String,
        /// The cluster's uuid.
        cluster: uuid::Uuid,
    },
    /// The membership can't be read.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// No key could be made.
    #[error("could not make a key")]
    Key(#[from] PkiError),
    /// The master can't be reached, or is not the token's.
    #[error("could not reach the master that the token names")]
    Dial(#[from] DialError),
    /// The master says no.
    #[error("the master refused: {0}")]
    Refused(String),
    /// The master says nothing.
    #[error("the master did not answer within {ANSWER_LIMIT:?}")]
    Silent,
    /// The master's answer makes no sense.
    #[error("the master's answer makes no sense: {0:?} is no uuid")]
    Answer(String),
    /// The state directory can't be made.
    #[error("could not make the state directory")]
    Directory(#[source] io::Error),
    /// The request can't be kept.
    #[error(transparent)]
    Keep(#[from] EnrolmentError),
}

/// Asks the token's master for membership, and leaves the request for the daemon. A second time, with a fresh token, it
/// takes the first one's place.
///
/// # Errors
/// When the host is a member already, or the master is not reached or refuses.
pub async fn join(config: &Config, token: &Token, hooks_only: bool) -> Result<Enrolment, JoinError> {
    let folder = config.node_dir();
    if let Some(member) = Memberships::open(folder.join("node.json"))?.get() {
        return Err(JoinError::Member { name: member.name.to_string(), cluster: member.cluster });
    }
    let (own, csr_der) = new_key_and_csr(config.name.as_str())?;
    let (data, data_csr_der) = match hooks_only {
        false => new_key_and_csr(config.name.as_str()).map(|(key, csr)| (Some(key), Some(csr)))?,
        true => (None, None),
    };
    let (tls, _learnt) = ClientTls::enrolment(token.ca_digest);
    let channel = connect_tls(token.master, &tls).await?;
    let request = v1::EnrolRequest {
        token: token.secret().to_owned(),
        name: config.name.to_string(),
        csr_der,
        data_csr_der,
        advertise_ip: config.advertised().map(|ip| ip.to_string()),
        port: u32::from(config.listen.port()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hooks_only,
        facts: host::facts().into_iter().collect(),
        host: host_watch::look_once(config.host_root.clone(), hooks_only).await,
    };
    let mut client = EnrolmentServiceClient::new(channel);
    let answer = match timeout(ANSWER_LIMIT, client.enrol(request)).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => return Err(JoinError::Refused(describe(&status))),
        Err(_) => return Err(JoinError::Silent),
    };
    let cluster = answer.cluster_uuid.parse().map_err(|_| JoinError::Answer(answer.cluster_uuid.clone()))?;
    files::make_dir(&folder, NODE_DIR_MODE).map_err(JoinError::Directory)?;
    let enrolment = Enrolment::new(token, config.name.clone(), &Keys { own, data }, answer, cluster);
    enrolment.save(&folder.join("enrolment.json"))?;
    Ok(enrolment)
}

/// Why this host could not leave.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// The membership can't be read or removed.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The credentials can't be removed.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// The facts can't be removed.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// The request to join can't be removed.
    #[error(transparent)]
    Enrolment(#[from] EnrolmentError),
    /// A daemon runs and does not answer.
    #[error(transparent)]
    Lock(#[from] AgentError),
    /// The running daemon says no.
    #[error("the node daemon refused: {0}")]
    Refused(String),
    /// The running daemon says nothing.
    #[error("the node daemon did not answer within {ANSWER_LIMIT:?}")]
    Silent,
}

/// Forgets the cluster, by the running daemon or, where none runs, in its files; also a request to join. Whether there
/// was anything to forget.
///
/// # Errors
/// When the daemon does not answer, or a file can't be removed.
pub async fn leave(config: &Config) -> Result<bool, LeaveError> {
    let folder = config.node_dir();
    let members = Memberships::open(folder.join("node.json"))?;
    let enrolment = folder.join("enrolment.json");
    let member = members.get();
    let something = member.is_some() || Enrolment::load(&enrolment).map_or(true, |request| request.is_some());
    if let (Some(member), Ok(channel)) = (&member, connect_unix(&config.socket()).await) {
        let context = v1::CallContext {
            cluster_uuid: member.cluster.to_string(),
            epoch: member.epoch_seen.max(1),
            serial: member.serial_seen,
        };
        let mut client = AgentServiceClient::new(channel);
        match timeout(ANSWER_LIMIT, client.leave(v1::LeaveRequest { context: Some(context) })).await {
            Ok(Ok(_)) => return Ok(true),
            Ok(Err(status)) => return Err(LeaveError::Refused(describe(&status))),
            Err(_) => return Err(LeaveError::Silent),
        }
    }
    if member.is_some() {
        // No daemon that does not answer may have this state in its memory.
        let _lock = NodeLock::acquire(config)?;
        members.leave()?;
        Credentials::new(folder.clone()).clear()?;
        FactStore::open(config.data_dir(), folder.join("facts.json"), config.master_socket())?.clear()?;
    }
    Enrolment::remove(&enrolment)?;
    Ok(something)
}
