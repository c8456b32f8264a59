//! The wish to join: what `join` leaves in `enrolment.json` for the daemon, which waits for the decision.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use muster_core::names::NodeName;
use muster_proto::{
    transport::{
        ClientTls, DialError, FileError, Fingerprint, LearntCa, MODE_PRIVATE, PrivateKeyPem, connect_tls,
        describe, write_atomic,
    },
    v1::{self, collect_event::Event, enrolment_service_client::EnrolmentServiceClient},
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::{
    Keys, Signed, files,
    node::{Agent, AgentError},
};

/// The format of the file.
const VERSION: u32 = 1;
/// The file is looked for this often while the node is in no cluster.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The master says every 10 s that nothing is decided; after this long without a word it is dialled again.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The first pause after a failed attempt, and the longest.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// A request to join that the master has taken.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolment {
    version: u32,
    /// The master's address.
    pub master: SocketAddr,
    /// SHA-256 of the CA's certificate.
    pub ca_digest: Fingerprint,
    /// Names the request.
    pub enrolment_uuid: String,
    /// The cluster.
    pub cluster: Uuid,
    /// The cluster's name.
    pub cluster_name: String,
    /// The name asked for.
    pub name: NodeName,
    /// The key of the request; it moves to the certificate when that comes.
    key_pem: String,
    /// The same for the data certificate, if one was asked for.
    #[serde(default)]
    data_key_pem: Option<String>,
}

impl std::fmt::Debug for Enrolment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enrolment")
            .field("master", &self.master)
            .field("enrolment_uuid", &self.enrolment_uuid)
            .finish_non_exhaustive()
    }
}

/// Why the request can't be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolmentError {
    /// The file can't be written.
    #[error("could not keep the request to join")]
    Write(#[from] FileError),
    /// The file can't be read or removed.
    #[error("could not use {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file does not say what it must.
    #[error("{} is damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

impl Enrolment {
    /// What the master answered to a request with these keys.
    pub(super) fn new(
        token: &super::Token,
        name: NodeName,
        keys: &Keys,
        answer: v1::EnrolResponse,
        cluster: Uuid,
    ) -> Self {
        Enrolment {
            version: VERSION,
            master: token.master,
            ca_digest: token.ca_digest,
            enrolment_uuid: answer.enrolment_uuid,
            cluster,
            cluster_name: answer.cluster_name,
            name,
            key_pem: keys.own.as_str().to_owned(),
            data_key_pem: keys.data.as_ref().map(|key| key.as_str().to_owned()),
        }
    }

    /// Keeps the request, in place of an earlier one. Blocks.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn save(&self, path: &Path) -> Result<(), EnrolmentError> {
        let text = serde_json::to_vec_pretty(self).expect("plain data has a JSON form");
        Ok(write_atomic(path, &text, MODE_PRIVATE)?)
    }

    /// Reads the request, if there is one. Blocks.
    ///
    /// # Errors
    /// When it can't be read or is damaged.
    pub fn load(path: &Path) -> Result<Option<Self>, EnrolmentError> {
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|source| EnrolmentError::Damaged { path: path.to_owned(), source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(EnrolmentError::File { path: path.to_owned(), source }),
        }
    }

    /// Forgets the request. Blocks.
    ///
    /// # Errors
    /// When the file can't be removed.
    pub fn remove(path: &Path) -> Result<(), EnrolmentError> {
        files::remove(path).map_err(|source| EnrolmentError::File { path: path.to_owned(), source })
    }

    /// The request's keys.
    pub(super) fn keys(&self) -> Keys {
        Keys {
            own: PrivateKeyPem::new(self.key_pem.clone()),
            data: self.data_key_pem.clone().map(PrivateKeyPem::new),
        }
    }
}

/// What came of one attempt to fetch the certificate.
#[derive(Debug)]
enum Outcome {
    /// The node is a member now.
    Entered,
    /// Another request took this one's place.
    Replaced,
    /// The master does not know the request any more.
    Gone(String),
}

/// Why an attempt gave nothing.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("the master was not reached")]
    Dial(#[from] DialError),
    #[error("the master did not answer: {0}")]
    Call(String),
    #[error("the master has said nothing for {SILENCE_MAX:?}")]
    Silent,
    #[error("the answer makes no sense: {0}")]
    Answer(&'static str),
    #[error("the certificate could not be taken")]
    Enter(#[source] AgentError),
    #[error(transparent)]
    File(#[from] EnrolmentError),
}

/// Waits until the node is a member, by a request that is or will be on disk. Goes on for ever otherwise.
pub(super) async fn enter_when_decided(agent: &Agent) {
    let path = agent.enrolment_path();
    let mut pause = RETRY_PAUSE;
    let mut said = String::new();
    loop {
        let attempt = match Enrolment::load(&path) {
            Ok(None) => {
                sleep(LOOK_INTERVAL).await;
                continue;
            }
            Ok(Some(enrolment)) => collect(agent, &enrolment).await,
            Err(error) => Err(error.into()),
        };
        match attempt {
            Ok(Outcome::Entered) => return,
            Ok(Outcome::Replaced) => pause = RETRY_PAUSE,
            Ok(Outcome::Gone(why)) => {
                tracing::warn!(why, "the master has no request of this host any more; join again");
                if let Err(error) = Enrolment::remove(&path) {
                    tracing::error!(error = files::words(&error), "the request to join stays");
                    sleep(RETRY_PAUSE_MAX).await;
                }
            }
            Err(error) => {
                let words = files::words(&error);
                if words != said {
                    tracing::warn!(error = words, "could not ask whether this host may join; trying on");
                    said = words;
                }
                sleep(pause).await;
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
        }
    }
}

async fn collect(agent: &Agent, enrolment: &Enrolment) -> Result<Outcome, CollectError> {
    let (tls, learnt) = ClientTls::enrolment(enrolment.ca_digest);
    let channel = connect_tls(enrolment.master, &tls).await?;
    let mut client = EnrolmentServiceClient::new(channel);
    let request = v1::CollectRequest { enrolment_uuid: enrolment.enrolment_uuid.clone() };
    let called = timeout(SILENCE_MAX, client.collect(request)).await.map_err(|_| CollectError::Silent)?;
    let mut events = called.map_err(|status| CollectError::Call(describe(&status)))?.into_inner();
    loop {
        let event = tokio::select! {
            event = timeout(SILENCE_MAX, events.message()) => event.map_err(|_| CollectError::Silent)?,
            () = replaced(agent, enrolment) => return Ok(Outcome::Replaced),
        };
        let event = event.map_err(|status| CollectError::Call(describe(&status)))?;
        match event.and_then(|event| event.event) {
            Some(Event::Pending(_)) => {}
            Some(Event::Gone(why)) => return Ok(Outcome::Gone(why)),
            Some(Event::Issued(issued)) => return enter(agent, enrolment, issued, &learnt).await,
            None => return Err(CollectError::Answer("the events ended without a decision")),
        }
    }
}

/// Returns when the request on disk is another one, or none.
async fn replaced(agent: &Agent, enrolment: &Enrolment) {
    loop {
        sleep(LOOK_INTERVAL).await;
        match Enrolment::load(&agent.enrolment_path()) {
            Ok(Some(on_disk)) if on_disk == *enrolment => {}
            Ok(Some(_) | None) => return,
            Err(error) => {
                tracing::debug!(error = files::words(&error), "the request to join is not readable")
            }
        }
    }
}

async fn enter(
    agent: &Agent,
    enrolment: &Enrolment,
    issued: v1::Issued,
    learnt: &LearntCa,
) -> Result<Outcome, CollectError> {
    // The CA that was checked against the digest, whatever the message says.
    let ca_pem = learnt.pem().ok_or(CollectError::Answer("no CA was shown"))?.to_owned();
    let node = issued.node_uuid.parse().map_err(|_| CollectError::Answer("the node's uuid is none"))?;
    let name =
        NodeName::parse(&issued.node_name).map_err(|_| CollectError::Answer("the node's name is none"))?;
    let signed = Signed {
        ca_pem,
        certificate_pem: issued.certificate_pem,
        data_certificate_pem: issued.data_certificate_pem,
    };
    let entered = agent.enter_by_enrolment(enrolment.cluster, node, name, signed, enrolment.keys());
    entered.await.map_err(CollectError::Enter)?;
    Ok(Outcome::Entered)
}
