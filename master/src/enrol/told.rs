//! What scripts are told of hosts that ask to join.

use std::net::IpAddr;

use muster_core::{facts::facts_env, hooks::Env};
use muster_proto::v1::EnrolRequest;
use serde_json::json;

use super::pending::PendingHost;
use crate::events::Event;

/// Longest name that is repeated of a host whose request could not be processed, in bytes: nobody knows who it is.
const NAME_BYTES_MAX: usize = 253;

/// A host is pending.
pub(super) fn pending(host: &PendingHost) -> Event {
    let address = host.advertise_ip.unwrap_or(host.source_ip);
    let env = Env::new()
        .set("NODE_NAME", host.name.as_str())
        .set("NODE_PIP", address.to_string())
        .with(facts_env(host.host.as_ref()));
    let facts = json!({
        "name": host.name,
        "address": address,
        "port": host.port,
        "version": host.version,
        "hooks_only": host.hooks_only,
        "facts": host.facts,
        "host": host.host,
    });
    Event::new("node-pending").env(env).file("FACTS_PATH", format!("{facts:#}\n")).key(host.name.to_string())
}

/// What is told of a request, should it come to nothing: without its token.
pub(super) fn said(request: &EnrolRequest) -> (String, String) {
    let name: String = request.name.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect();
    let facts = json!({
        "name": name,
        "address": request.advertise_ip,
        "port": request.port,
        "version": request.version,
        "hooks_only": request.hooks_only,
        "facts": request.facts,
    });
    (name, format!("{facts:#}\n"))
}

/// A host's request could not be processed. One that tries again and again is one event as long as that waits.
pub(super) fn failed((name, facts): (String, String), source: IpAddr, error: &str) -> Event {
    let env = Env::new().set("NODE_NAME", name).set("NODE_PIP", source.to_canonical().to_string());
    Event::new("node-enrol-failed")
        .env(env)
        .file("FACTS_PATH", facts)
        .file("ERROR_MESSAGE_PATH", format!("{error}\n"))
        .key(source.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_told() {
        let request = EnrolRequest {
            token: "sesame".to_owned(),
            name: "node\u{7}9".to_owned(),
            ..EnrolRequest::default()
        };
        let (name, facts) = said(&request);
        assert_eq!(name, "node9");
        assert!(facts.contains("\"name\": \"node9\"") && !facts.contains("sesame"), "{facts}");
    }
}
