//! Variables of a network: of an operation on it, and of an instance's network card in it.

use crate::{hooks::Env, networks::Network};

/// A network's variables, after a prefix: `NETWORK_NAME` and so on; what it has not is empty.
pub(super) fn env(prefix: &str, network: &Network) -> Env {
    let text = |value: Option<String>| value.unwrap_or_default();
    let values = [
        ("NAME", network.name.to_string()),
        ("UUID", network.uuid.to_string()),
        ("SUBNET", network.subnet.to_string()),
        ("GATEWAY", text(network.gateway.map(|ip| ip.to_string()))),
        ("SUBNET6", text(network.subnet6.map(|range| range.to_string()))),
        ("GATEWAY6", text(network.gateway6.map(|ip| ip.to_string()))),
        ("MAC_PREFIX", text(network.mac_prefix.as_ref().map(|prefix| prefix.as_str().to_owned()))),
        ("TAGS", network.tags.to_texts().join(" ")),
    ];
    values
        .into_iter()
        .fold(Env::new(), |env, (name, value)| env.set(&format!("{prefix}NETWORK_{name}"), value))
}
