//! All tokens and pending hosts, and every change of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use muster_core::{
    edit::Touched,
    facts::NodeFacts,
    model::Cluster,
    names::{ClusterName, NodeName},
    ops,
};
use muster_proto::{transport::Identity, v1};
use tokio::sync::{Semaphore, watch};
use tonic::Status;
use uuid::Uuid;

use super::{
    collect::COLLECTS_MAX,
    pending::{PENDING_MAX, PendingHost, SignedHost},
    token::{Secret, TOKEN_LIFETIME_MAX, TOKENS_MAX, Token},
};
use crate::{
    ca::{CaError, CaKeeper},
    hex,
    pins::Pins,
    store::{Batch, RecordWriter, Records, ValueError, WriteError, decode, encode, keys, with_prefix},
};

/// The wall clock: milliseconds since 1970.
pub type Wall = Arc<dyn Fn() -> u64 + Send + Sync>;

/// What enrolment needs to know of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// The cluster.
    pub uuid: Uuid,
    /// Its name.
    pub name: ClusterName,
    /// Where hosts reach this master.
    pub address: SocketAddr,
}

/// Says whether this master has the office.
pub trait Office: Send + Sync + 'static {
    /// The cluster, or why this master does not serve it, as a caller is to be told.
    fn facts(&self) -> Result<ClusterFacts, Status>;
}

/// Why a host can't be enrolled or signed for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// Something in the request is wrong.
    #[error("the request can't be used: {0}")]
    Request(String),
    /// Never given out, used up, or too old. Which one is for the master's log alone.
    #[error("the token is not, or no longer, good; make a new one with `gnt-node token create`")]
    Token,
    /// The token was made for another host.
    #[error("the token is good for {0} only")]
    TokenOfOther(NodeName),
    /// The host is being added just now.
    #[error("{0} is being added to the cluster just now; ask again when that is over")]
    BeingAdded(NodeName),
    /// Too many hosts are pending.
    #[error("{PENDING_MAX} hosts are pending already; add some of them (`gnt-node pending` lists them)")]
    TooManyHosts,
    /// Too many tokens are good.
    #[error("{TOKENS_MAX} tokens are good already; wait until some are used or expired")]
    TooManyTokens,
    /// No such host asked to join.
    #[error("{0} is not pending: run `muster-noded join` on it")]
    NotPending(NodeName),
    /// The system gives no random numbers.
    #[error("no random numbers for a token")]
    Random(#[source] std::io::Error),
    /// The CA could not sign.
    #[error("could not sign")]
    Ca(#[from] CaError),
    /// The records could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Another master has the office, or there is no cluster.
    #[error("{}", .0.message())]
    Office(Status),
    /// The change was interrupted by this process's end.
    #[error("the master is stopping")]
    Stopping,
}

#[derive(Debug, Default)]
pub(super) struct State {
    tokens: BTreeMap<String, Token>,
    pub(super) hosts: BTreeMap<NodeName, PendingHost>,
}

/// Tokens and pending hosts.
pub struct Enrolment {
    ca: Arc<CaKeeper>,
    pins: Arc<Pins>,
    writer: Arc<dyn RecordWriter>,
    office: Arc<dyn Office>,
    wall: Wall,
    state: Mutex<State>,
    /// Held during a change: from looking at the state to having it as the records are.
    changing: tokio::sync::Mutex<()>,
    /// Counts changes, for those who wait for one.
    pub(super) changes: watch::Sender<u64>,
    pub(super) collects: Arc<Semaphore>,
}

impl Enrolment {
    /// Nothing is pending; [`Enrolment::load`] follows where there are records.
    pub fn new(
        ca: Arc<CaKeeper>,
        pins: Arc<Pins>,
        writer: Arc<dyn RecordWriter>,
        office: Arc<dyn Office>,
        wall: Wall,
    ) -> Arc<Self> {
        Arc::new(Self {
            ca,
            pins,
            writer,
            office,
            wall,
            state: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            changes: watch::Sender::new(0),
            collects: Arc::new(Semaphore::new(COLLECTS_MAX)),
        })
    }

    /// Takes over what the records say, replacing everything; pins too are set, the master's own excepted, which is
    /// pinned before. Gives the keys of records that serve no more, to be deleted with the start's commit.
    pub fn load(&self, cluster: &Cluster, records: &Records) -> Result<Vec<String>, ValueError> {
        let now_ms = self.now_ms();
        let mut stale = Vec::new();
        let mut state = State::default();
        for (key, text) in with_prefix(records, keys::TOKEN) {
            let token: Token = decode(key, text)?;
            match now_ms < token.expires_ms {
                true => drop(state.tokens.insert(key[keys::TOKEN.len()..].to_owned(), token)),
                false => stale.push(key.clone()),
            }
        }
        let mut signed = BTreeSet::new();
        for (key, text) in with_prefix(records, keys::PENDING) {
            let host: PendingHost = decode(key, text)?;
            if host.expired(now_ms) || joined(cluster, &host) {
                stale.push(key.clone());
                continue;
            }
            if let Some(certificate) = &host.signed {
                signed.insert(certificate.fingerprint);
                let identity = Identity::node(cluster.uuid, certificate.node);
                self.pins.pin_pending(&host.name, identity, certificate.fingerprint);
            }
            state.hosts.insert(host.name.clone(), host);
        }
        stale.extend(self.pins.load(cluster, records, &signed)?);
        *self.state() = state;
        self.tell();
        Ok(stale)
    }

    /// Forgets everything: the cluster is gone, or has another master. The records are the caller's business.
    pub fn clear(&self) {
        *self.state() = State::default();
        self.tell();
    }

    /// The host of this name, as `gnt-node add` needs it; `None` where it isn't pending.
    pub fn pending(&self, name: &NodeName) -> Option<ops::PendingNode> {
        let now_ms = self.now_ms();
        self.state().hosts.get(name).filter(|host| !host.expired(now_ms)).map(PendingHost::for_add)
    }

    /// What the pending host of this name says of itself.
    pub fn node_facts(&self, name: &NodeName) -> Option<NodeFacts> {
        let now_ms = self.now_ms();
        let state = self.state();
        state.hosts.get(name).filter(|host| !host.expired(now_ms)).and_then(|host| host.host.clone())
    }

    /// All pending hosts, by name.
    pub fn list(&self) -> Vec<PendingHost> {
        let now_ms = self.now_ms();
        self.state().hosts.values().filter(|host| !host.expired(now_ms)).cloned().collect()
    }

    /// Makes a token; gives its text and when it expires.
    pub async fn create_token(
        self: &Arc<Self>,
        node: Option<NodeName>,
        lifetime: Duration,
    ) -> Result<(String, u64), EnrolError> {
        if lifetime.is_zero() || lifetime > TOKEN_LIFETIME_MAX {
            let longest = TOKEN_LIFETIME_MAX.as_secs();
            return Err(EnrolError::Request(format!("a token lives from 1 to {longest} seconds")));
        }
        self.change(move |this| async move {
            let facts = this.office.facts().map_err(EnrolError::Office)?;
            let ca = this.ca.digest()?;
            let now_ms = this.now_ms();
            let mut batch = Batch::default();
            let expired = this.expired_tokens(now_ms);
            batch.deletes.extend(expired.iter().map(|hash| keys::token(hash)));
            if this.state().tokens.len() - expired.len() >= TOKENS_MAX {
                return Err(EnrolError::TooManyTokens);
            }
            let secret = Secret::draw().map_err(EnrolError::Random)?;
            let lifetime_ms =
                u64::try_from(lifetime.as_millis()).expect("a token's lifetime has an upper bound");
            let token = Token { node, expires_ms: now_ms.saturating_add(lifetime_ms) };
            batch.put(keys::token(&secret.hash()), encode(&token));
            this.writer.write(batch).await?;
            let expires_ms = token.expires_ms;
            let mut state = this.state();
            state.tokens.retain(|hash, _| !expired.contains(hash));
            state.tokens.insert(secret.hash(), token);
            Ok((secret.text(facts.address, &ca), expires_ms))
        })
        .await
    }

    /// A host asks to join. Its token is used up, and a request under the same name replaced.
    pub async fn enrol(
        self: &Arc<Self>,
        request: v1::EnrolRequest,
        source_ip: IpAddr,
    ) -> Result<(PendingHost, ClusterFacts), EnrolError> {
        self.change(move |this| async move {
            let facts = this.office.facts().map_err(EnrolError::Office)?;
            let now_ms = this.now_ms();
            let secret = Secret::parse(&request.token).ok_or(EnrolError::Token)?;
            let token = this.state().tokens.get(&secret.hash()).cloned();
            let token = token.filter(|token| now_ms < token.expires_ms).ok_or(EnrolError::Token)?;
            // The token is right: only now is anything else worth the work, or an answer.
            let host = PendingHost::parse(request, source_ip, now_ms)?;
            if let Some(node) = token.node.filter(|node| *node != host.name) {
                return Err(EnrolError::TokenOfOther(node));
            }
            let expired = this.admit(&host.name, now_ms)?;
            let mut batch = Batch::default();
            batch.deletes.extend(expired.iter().map(keys::pending));
            batch.deletes.push(keys::token(&secret.hash()));
            batch.put(keys::pending(&host.name), encode(&host));
            this.writer.write(batch).await?;
            {
                let mut state = this.state();
                state.tokens.remove(&secret.hash());
                state.hosts.retain(|name, _| !expired.contains(name));
                state.hosts.insert(host.name.clone(), host.clone());
            }
            this.tell();
            tracing::info!(node = %host.name, %source_ip, "a host asked to join");
            Ok((host, facts))
        })
        .await
    }

    /// Whether one more host may be pending; gives those that are too old.
    fn admit(&self, name: &NodeName, now_ms: u64) -> Result<BTreeSet<NodeName>, EnrolError> {
        let state = self.state();
        if state.hosts.get(name).is_some_and(|host| host.signed.is_some()) {
            return Err(EnrolError::BeingAdded(name.clone()));
        }
        let expired = state.hosts.values().filter(|host| host.expired(now_ms) && host.name != *name);
        let expired: BTreeSet<NodeName> = expired.map(|host| host.name.clone()).collect();
        let known = state.hosts.contains_key(name);
        match known || state.hosts.len() - expired.len() < PENDING_MAX {
            true => Ok(expired),
            false => Err(EnrolError::TooManyHosts),
        }
    }

    /// Signs a pending host's requests for the uuid and the addresses that it gets. Asked again for the same uuid, the answer is the same;
    /// for another one, the earlier certificate is withdrawn. The host's daemon is told at once.
    pub async fn sign_pending(
        self: &Arc<Self>,
        name: &NodeName,
        uuid: Uuid,
        addresses: Vec<IpAddr>,
    ) -> Result<SignedHost, EnrolError> {
        let name = name.clone();
        self.change(move |this| async move {
            let cluster = this.office.facts().map_err(EnrolError::Office)?.uuid;
            let now_ms = this.now_ms();
            let host = this.state().hosts.get(&name).filter(|host| !host.expired(now_ms)).cloned();
            let mut host = host.ok_or_else(|| EnrolError::NotPending(name.clone()))?;
            let mut batch = Batch::default();
            match &host.signed {
                Some(signed) if signed.node == uuid => return Ok(signed.clone()),
                Some(earlier) => batch.delete(keys::issued(&earlier.fingerprint)),
                None => {}
            }
            let csr = hex::bytes_of(&host.csr_hex).unwrap_or_default();
            let certificate = this.ca.sign_node(&csr, uuid, now_ms)?;
            let data_csr = host.data_csr_hex.as_deref().and_then(hex::bytes_of);
            let data = data_csr.map(|csr| this.ca.sign_data(&csr, &name, &addresses, now_ms)).transpose()?;
            let signed = SignedHost {
                node: uuid,
                fingerprint: certificate.fingerprint(),
                certificate_pem: certificate.pem().to_owned(),
                data_certificate_pem: data.flatten(),
            };
            host.signed = Some(signed.clone());
            batch.put(keys::pending(&name), encode(&host));
            certificate.record(&*this.writer, batch).await?;
            this.pins.pin_pending(&name, Identity::node(cluster, uuid), signed.fingerprint);
            this.state().hosts.insert(name, host);
            this.tell();
            Ok(signed)
        })
        .await
    }

    /// Takes a signature back: the certificate is refused from now on, and the host is pending again, if it still is in
    /// the list at all.
    pub async fn withdraw(self: &Arc<Self>, name: &NodeName) -> Result<(), EnrolError> {
        let name = name.clone();
        self.change(move |this| async move {
            let Some(mut host) = this.state().hosts.get(&name).cloned() else { return Ok(()) };
            let Some(signed) = host.signed.take() else { return Ok(()) };
            let mut batch = Batch::default();
            batch.delete(keys::issued(&signed.fingerprint));
            batch.put(keys::pending(&name), encode(&host));
            this.writer.write(batch).await?;
            this.state().hosts.insert(name.clone(), host);
            this.pins.unpin_pending(&name);
            this.tell();
            Ok(())
        })
        .await
    }

    /// Follows a commit that is durable, after the pins have: the requests of hosts that are nodes now are done, and
    /// without a cluster there are no requests. Gives the keys of records that serve no more, to be deleted; does not
    /// wait, so that the driver's thread may call it.
    pub fn follow<'a>(
        &self,
        cluster: Option<&Cluster>,
        touched: impl IntoIterator<Item = &'a Touched>,
    ) -> Vec<String> {
        let Some(cluster) = cluster else {
            self.clear();
            return Vec::new();
        };
        let mut done = Vec::new();
        for touched in touched {
            let Touched::Node(name) = touched else { continue };
            // No other change touches a host while it is signed, but those of the job whose commit this is.
            let removed = {
                let mut state = self.state();
                let is_node = state.hosts.get(name).is_some_and(|host| joined(cluster, host));
                is_node.then(|| state.hosts.remove(name))
            };
            if removed.is_some() {
                self.pins.unpin_pending(name);
                done.push(keys::pending(name));
            }
        }
        if !done.is_empty() {
            self.tell();
        }
        done
    }

    /// The certificate of a host that is being added, with what its daemon needs beside it.
    pub(super) fn issued(&self, host: &PendingHost) -> Option<v1::Issued> {
        let signed = host.signed.as_ref()?;
        Some(v1::Issued {
            certificate_pem: signed.certificate_pem.clone(),
            ca_pem: self.ca.certificate_pem().ok()?,
            node_name: host.name.to_string(),
            node_uuid: signed.node.to_string(),
            data_certificate_pem: signed.data_certificate_pem.clone(),
        })
    }

    pub(super) fn office(&self) -> Result<ClusterFacts, Status> {
        self.office.facts()
    }

    pub(super) fn now_ms(&self) -> u64 {
        (self.wall)()
    }

    /// Never held while something is awaited.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expired_tokens(&self, now_ms: u64) -> BTreeSet<String> {
        let state = self.state();
        let expired = state.tokens.iter().filter(|(_, token)| now_ms >= token.expires_ms);
        expired.map(|(hash, _)| hash.clone()).collect()
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Makes a change, after those before it, in a task of its own: a caller that goes away in the middle must not
    /// leave the memory behind the records.
    async fn change<T, F>(
        self: &Arc<Self>,
        change: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> Result<T, EnrolError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EnrolError>> + Send + 'static,
    {
        let this = self.clone();
        let task = tokio::spawn(async move {
            let changing = this.clone();
            let _turn = changing.changing.lock().await;
            change(this).await
        });
        task.await.unwrap_or(Err(EnrolError::Stopping))
    }
}

/// Whether the host is a node of the configuration already: the commit came, but not the deletion of its request.
fn joined(cluster: &Cluster, host: &PendingHost) -> bool {
    let node = cluster.nodes.get(&host.name);
    let (Some(node), Some(signed)) = (node, &host.signed) else { return false };
    node.uuid == signed.node && node.fingerprints.contains(&signed.fingerprint.to_string())
}
