//! Node facts: what a node daemon says of its host. They come from outside, so every text and list is bounded, and no
//! text holds control characters.

use std::{collections::BTreeSet, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::hooks::Env;

/// The longest text, in bytes: kernels and processors have names of up to a line.
pub const FACT_BYTES_MAX: usize = 256;
/// The longest list: hosts with more disks or addresses show the first ones.
pub const FACT_ITEMS_MAX: usize = 64;

/// A disk of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDisk {
    /// For example `nvme0n1`.
    pub name: String,
    /// Its size.
    pub size_mib: u64,
}

/// What a host is. Texts are empty where it does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// Processors.
    pub cpus: Option<u32>,
    /// What the processors call themselves.
    pub cpu_model: String,
    /// Memory.
    pub memory_mib: Option<u64>,
    /// Disks of the host, those of instances left out.
    pub disks: Vec<HostDisk>,
    /// Addresses of the host, those of loopback devices left out.
    pub addresses: Vec<IpAddr>,
    /// The operating system's identifier, for example `debian`.
    pub os_name: String,
    /// Its version, for example `12`.
    pub os_version: String,
    /// Its service pack or patch level, for example `5` of SLES 15.5.
    pub os_sp: String,
    /// All of that in a line for people.
    pub os_string: String,
    /// The kernel's release.
    pub kernel: String,
    /// What can run instances: `fake`, `qemu`, `kvm`.
    pub hypervisors: Vec<String>,
    /// QEMU's version.
    pub qemu_version: String,
}

/// Control characters as blanks, and no longer than allowed.
fn bounded_text(text: &str) -> String {
    let mut end = text.len().min(FACT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace(char::is_control, " ").trim().to_owned()
}

impl NodeFacts {
    /// The same within the bounds.
    #[must_use]
    pub fn bounded(self) -> Self {
        let mut seen = BTreeSet::new();
        let disks = self.disks.into_iter().take(FACT_ITEMS_MAX);
        let hypervisors = self.hypervisors.iter().take(FACT_ITEMS_MAX);
        NodeFacts {
            cpus: self.cpus,
            cpu_model: bounded_text(&self.cpu_model),
            memory_mib: self.memory_mib,
            disks: disks.map(|disk| HostDisk { name: bounded_text(&disk.name), ..disk }).collect(),
            addresses: self
                .addresses
                .into_iter()
                .filter(|address| seen.insert(*address))
                .take(FACT_ITEMS_MAX)
                .collect(),
            os_name: bounded_text(&self.os_name),
            os_version: bounded_text(&self.os_version),
            os_sp: bounded_text(&self.os_sp),
            os_string: bounded_text(&self.os_string),
            kernel: bounded_text(&self.kernel),
            hypervisors: hypervisors.map(|name| bounded_text(name)).collect(),
            qemu_version: bounded_text(&self.qemu_version),
        }
    }
}

/// What scripts of node operations see of the node's facts; always set, empty where nobody knows.
pub fn facts_env(facts: Option<&NodeFacts>) -> Env {
    let nothing = NodeFacts::default();
    let facts = facts.unwrap_or(&nothing);
    Env::new()
        .set("NODE_OS_NAME", facts.os_name.as_str())
        .set("NODE_OS_VERSION", facts.os_version.as_str())
        .set("NODE_OS_SP", facts.os_sp.as_str())
        .set("NODE_OS_STRING", facts.os_string.as_str())
        .list("NODE_IPS", &facts.addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_from_outside_are_cut_and_hold_no_control_characters() {
        let facts = NodeFacts {
            os_name: format!("{}é", "a".repeat(FACT_BYTES_MAX - 1)),
            kernel: "6.1\n\u{1b}[2J\0x ".to_owned(),
            addresses: vec![IpAddr::from([192, 0, 2, 1]); 200],
            hypervisors: vec!["fake\n".to_owned(); 200],
            disks: vec![HostDisk { name: "sd\na".to_owned(), size_mib: u64::MAX }; 200],
            ..NodeFacts::default()
        };
        let bounded = facts.bounded();
        assert_eq!(bounded.os_name, "a".repeat(FACT_BYTES_MAX - 1));
        assert_eq!(bounded.kernel, "6.1  [2J x");
        assert_eq!(bounded.addresses.len(), 1);
        assert_eq!((bounded.hypervisors.len(), bounded.disks.len()), (FACT_ITEMS_MAX, FACT_ITEMS_MAX));
        assert_eq!((bounded.hypervisors[0].as_str(), bounded.disks[0].name.as_str()), ("fake", "sd a"));
        assert_eq!(bounded.clone().bounded(), bounded);
    }

    #[test]
    fn e1_facts_are_always_set() {
        let facts = NodeFacts {
            os_name: "debian".to_owned(),
            addresses: vec![IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap()],
            ..NodeFacts::default()
        };
        let env = facts_env(Some(&facts));
        assert_eq!((env.get("NODE_OS_NAME"), env.get("NODE_OS_SP")), (Some("debian"), Some("")));
        assert_eq!(env.get("NODE_IPS"), Some("192.0.2.1 2001:db8::1"));
        let names = |env: &Env| env.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&facts_env(None)), names(&env));
        assert_eq!(facts_env(None).get("NODE_IPS"), Some(""));
    }

    #[test]
    fn a_record_of_an_older_version_opens() {
        let facts: NodeFacts = serde_json::from_str("{\"os_name\":\"debian\"}").unwrap();
        assert_eq!(facts.os_name, "debian");
    }
}
