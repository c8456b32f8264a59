//! How guests are run: parameters of the cluster, told to a node with each start.

use serde::{Deserialize, Serialize};

/// Longest name of a network interface (Linux' IFNAMSIZ without its NUL).
const BRIDGE_BYTES_MAX: usize = 15;

/// What runs guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HypervisorKind {
    /// Guests are files that say "running": for tests and demonstrations.
    #[default]
    Fake,
    /// Virtual machines.
    Qemu,
}

impl HypervisorKind {
    /// `fake` or `qemu`.
    pub fn as_str(self) -> &'static str {
        match self {
            HypervisorKind::Fake => "fake",
            HypervisorKind::Qemu => "qemu",
        }
    }

    /// Parses a hypervisor's name.
    pub fn parse(text: &str) -> Option<Self> {
        [HypervisorKind::Fake, HypervisorKind::Qemu].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Who computes for a guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accel {
    /// KVM where the node's processor and device allow it, else QEMU's translator.
    #[default]
    Auto,
    /// KVM; a guest does not start without it.
    Kvm,
    /// QEMU's translator.
    Tcg,
}

impl Accel {
    /// `auto`, `kvm` or `tcg`.
    pub fn as_str(self) -> &'static str {
        match self {
            Accel::Auto => "auto",
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        }
    }

    /// Parses one of these words.
    pub fn parse(text: &str) -> Option<Self> {
        [Accel::Auto, Accel::Kvm, Accel::Tcg].into_iter().find(|accel| accel.as_str() == text)
    }
}

/// How the network cards of guests are connected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NicMode {
    /// Guests have none.
    None,
    /// A network of the guest's own behind the node's address: it reaches others, and nobody reaches it.
    #[default]
    User,
    /// A port of this bridge, on each node.
    Bridge(String),
}

impl NicMode {
    /// `none`, `user` or `bridge:NAME`.
    pub fn to_text(&self) -> String {
        match self {
            NicMode::None => "none".to_owned(),
            NicMode::User => "user".to_owned(),
            NicMode::Bridge(name) => format!("bridge:{name}"),
        }
    }

    /// Parses that; a bridge has a name that an interface can have.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            None if text == "none" => Some(NicMode::None),
            None if text == "user" => Some(NicMode::User),
            Some(("bridge", name)) if is_interface(name) => Some(NicMode::Bridge(name.to_owned())),
            None | Some(_) => None,
        }
    }
}

/// Whether a network interface can have this name.
pub fn is_interface(name: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=BRIDGE_BYTES_MAX).contains(&name.len()) && name.bytes().all(fine) && !name.starts_with(['-', '.'])
}

/// How guests are run on all nodes; a change counts from each guest's next start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HypervisorParams {
    /// Chosen at init.
    pub kind: HypervisorKind,
    /// Who computes.
    pub accel: Accel,
    /// How guests are connected.
    pub nic: NicMode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for mode in [NicMode::None, NicMode::User, NicMode::Bridge("br-0".to_owned())] {
            assert_eq!(NicMode::parse(&mode.to_text()), Some(mode));
        }
        for wrong in ["", "bridge", "bridge:", "bridge:a b", "bridge:0123456789abcdef", "bridge:-x", "user:x"]
        {
            assert_eq!(NicMode::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Accel::parse("kvm"), Some(Accel::Kvm));
        assert_eq!(HypervisorKind::parse("qemu"), Some(HypervisorKind::Qemu));
        assert_eq!(HypervisorKind::parse("xen"), None);
    }
}
