//! Hosts that asked to join: what they said, checked and bounded.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use muster_core::{facts::NodeFacts, names::NodeName, ops};
use muster_proto::{convert::host, transport::Fingerprint, v1};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::state::EnrolError;
use crate::{ca::check_request, hex};

/// Hosts that may be pending at a time; each keeps a connection to the master.
pub const PENDING_MAX: usize = 100;
/// A host that nobody adds within this is forgotten.
pub const PENDING_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Facts that a host may state of itself.
pub const FACTS_MAX: usize = 32;
/// The longest text among a host's facts, and its version.
const TEXT_BYTES_MAX: usize = 256;

/// A host that asked to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingHost {
    /// Names the request in Collect; another one for each request.
    pub enrolment: Uuid,
    /// The name that it wants.
    pub name: NodeName,
    /// Where its connection came from.
    pub source_ip: IpAddr,
    /// The address that it wants to be reached by.
    pub advertise_ip: Option<IpAddr>,
    /// Its daemon's port.
    pub port: u16,
    /// When it asked, milliseconds since 1970.
    pub since_ms: u64,
    /// Its program's version.
    pub version: String,
    /// It runs hooks only.
    pub hooks_only: bool,
    /// What else it says of itself.
    pub facts: BTreeMap<String, String>,
    /// What its host is.
    #[serde(default)]
    pub host: Option<NodeFacts>,
    /// When that was looked at, by its own clock.
    #[serde(default)]
    pub host_collected_ms: u64,
    /// Its signing request, DER, hexadecimal.
    pub csr_hex: String,
    /// The same for its data certificate, if it wants one.
    #[serde(default)]
    pub data_csr_hex: Option<String>,
    /// Its certificate, while it is being added.
    pub signed: Option<SignedHost>,
}

/// The certificate of a host that is being added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedHost {
    /// The uuid that it gets as a node.
    pub node: Uuid,
    /// Names the certificate.
    pub fingerprint: Fingerprint,
    /// The certificate.
    pub certificate_pem: String,
    /// The data certificate, where one was asked for.
    #[serde(default)]
    pub data_certificate_pem: Option<String>,
}

impl PendingHost {
    /// Checks a request; its token is not looked at.
    pub(super) fn parse(
        request: v1::EnrolRequest,
        source_ip: IpAddr,
        now_ms: u64,
    ) -> Result<Self, EnrolError> {
        let wrong = |what: String| EnrolError::Request(what);
        let name = NodeName::parse(&request.name).map_err(|error| wrong(error.to_string()))?;
        let port = u16::try_from(request.port).ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong(format!("{} is no port", request.port)))?;
        let advertise_ip = request.advertise_ip.as_deref().map(parse_ip).transpose()?;
        let texts = request.facts.iter().flat_map(|(name, value)| [name, value]);
        if request.facts.len() > FACTS_MAX
            || texts.chain([&request.version]).any(|t| t.len() > TEXT_BYTES_MAX)
        {
            return Err(wrong(format!(
                "more than {FACTS_MAX} facts, or one longer than {TEXT_BYTES_MAX} bytes"
            )));
        }
        // Found now rather than when the operator adds the host.
        for csr_der in [Some(&request.csr_der), request.data_csr_der.as_ref()].into_iter().flatten() {
            check_request(csr_der, now_ms).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(Self {
            enrolment: Uuid::new_v4(),
            name,
            source_ip: source_ip.to_canonical(),
            advertise_ip,
            port,
            since_ms: now_ms,
            version: request.version,
            hooks_only: request.hooks_only,
            facts: request.facts.into_iter().collect(),
            host_collected_ms: request.host.as_ref().map_or(0, |host| host.collected_ms),
            host: request.host.map(host::node_facts),
            csr_hex: hex::hex_of(&request.csr_der),
            data_csr_hex: request.data_csr_der.as_deref().map(hex::hex_of),
            signed: None,
        })
    }

    /// Whether it has waited too long. Not while it is being added.
    pub(super) fn expired(&self, now_ms: u64) -> bool {
        let lifetime_ms = u64::try_from(PENDING_LIFETIME.as_millis()).expect("a day has few milliseconds");
        self.signed.is_none() && now_ms >= self.since_ms.saturating_add(lifetime_ms)
    }

    /// What `gnt-node add` needs of it.
    pub(super) fn for_add(&self) -> ops::PendingNode {
        ops::PendingNode {
            ip: self.advertise_ip.unwrap_or(self.source_ip),
            port: self.port,
            hooks_only: self.hooks_only,
        }
    }

    /// As lists show it.
    pub(super) fn listed(&self) -> v1::PendingNode {
        v1::PendingNode {
            name: self.name.to_string(),
            enrolment_uuid: self.enrolment.to_string(),
            source_ip: self.source_ip.to_string(),
            advertise_ip: self.advertise_ip.map(|ip| ip.to_string()),
            port: u32::from(self.port),
            since_ms: self.since_ms,
            version: self.version.clone(),
            hooks_only: self.hooks_only,
            facts: self.facts.clone().into_iter().collect(),
            host: self.host.as_ref().map(|facts| host::host_facts(facts, self.host_collected_ms)),
        }
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, EnrolError> {
    let ip = text.parse::<IpAddr>().ok().filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
    let shown: String = text.chars().take(80).collect();
    ip.ok_or_else(|| EnrolError::Request(format!("{shown:?} is no address of a host")))
}
