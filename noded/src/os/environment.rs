//! The environment of a definition's scripts, by a pure function. The names are those of Ganeti's OS interface, since
//! existing definitions read them.

use std::path::PathBuf;

use muster_core::{
    calls::Guest,
    hypervisor::{HypervisorKind, NicMode},
};

/// Why a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose<'a> {
    /// A system is to be installed.
    Create,
    /// It is to be installed in place of another.
    Reinstall,
    /// The instance has another name now.
    Rename {
        /// The old one.
        old_name: &'a str,
    },
}

/// All variables but `PATH`.
pub(super) fn environment(
    guest: &Guest,
    disks: &[PathBuf],
    version: u32,
    purpose: Purpose<'_>,
) -> Vec<(String, String)> {
    let mut env = Vec::new();
    let mut set = |name: &str, value: String| env.push((name.to_owned(), value));
    set("OS_API_VERSION", version.to_string());
    set("OS_NAME", guest.os.to_string());
    set("INSTANCE_NAME", guest.name.to_string());
    set("INSTANCE_OS", guest.os.to_string());
    match purpose {
        Purpose::Create => {}
        Purpose::Reinstall => set("INSTANCE_REINSTALL", "1".to_owned()),
        Purpose::Rename { old_name } => set("OLD_INSTANCE_NAME", old_name.to_owned()),
    }
    set("DEBUG_LEVEL", "0".to_owned());
    // By this name scripts know what QEMU's guests need.
    let hypervisor = match guest.hypervisor.kind {
        HypervisorKind::Fake => "fake",
        HypervisorKind::Qemu => "kvm",
    };
    set("HYPERVISOR", hypervisor.to_owned());
    set("DISK_COUNT", disks.len().to_string());
    for (number, path) in disks.iter().enumerate() {
        set(&format!("DISK_{number}_PATH"), path.display().to_string());
        set(&format!("DISK_{number}_ACCESS"), "rw".to_owned());
        set(&format!("DISK_{number}_FRONTEND_TYPE"), "paravirtual".to_owned());
        set(&format!("DISK_{number}_BACKEND_TYPE"), "file:loop".to_owned());
    }
    let bridge = match &guest.hypervisor.nic {
        NicMode::None => {
            set("NIC_COUNT", "0".to_owned());
            return env;
        }
        NicMode::User => None,
        NicMode::Bridge(bridge) => Some(bridge),
    };
    set("NIC_COUNT", "1".to_owned());
    set("NIC_0_MAC", guest.mac.clone());
    set("NIC_0_FRONTEND_TYPE", "paravirtual".to_owned());
    if let Some(ip) = guest.ip {
        set("NIC_0_IP", ip.to_string());
    }
    if let Some(bridge) = bridge {
        set("NIC_0_MODE", "bridged".to_owned());
        set("NIC_0_LINK", bridge.clone());
        set("NIC_0_BRIDGE", bridge.clone());
    }
    env
}

#[cfg(test)]
mod tests {
    use muster_core::{
        hypervisor::{Accel, HypervisorParams},
        names::{InstanceName, OsName},
    };
    use uuid::Uuid;

    use super::*;

    fn guest(kind: HypervisorKind, nic: NicMode) -> Guest {
        Guest {
            uuid: Uuid::from_u128(1),
            name: InstanceName::parse("web1").unwrap(),
            memory_mib: 96,
            vcpus: 1,
            disks: Vec::new(),
            ip: Some("192.0.2.7".parse().unwrap()),
            mac: "aa:00:00:00:00:01".to_owned(),
            os: OsName::parse("debian").unwrap(),
            hypervisor: HypervisorParams { kind, accel: Accel::Auto, nic },
            generation: 0,
        }
    }

    fn check(guest: &Guest, disks: &[&str], purpose: Purpose<'_>, expected: &str) {
        let disks: Vec<PathBuf> = disks.iter().map(PathBuf::from).collect();
        let text: Vec<String> = (environment(guest, &disks, 20, purpose).into_iter())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(text.join("\n"), expected);
    }

    #[test]
    fn a_new_system_on_two_disks_at_a_bridge() {
        let guest = guest(HypervisorKind::Qemu, NicMode::Bridge("br0".to_owned()));
        check(
            &guest,
            &["/srv/a.raw", "/srv/b.raw"],
            Purpose::Create,
            "OS_API_VERSION=20
OS_NAME=debian
INSTANCE_NAME=web1
INSTANCE_OS=debian
DEBUG_LEVEL=0
HYPERVISOR=kvm
DISK_COUNT=2
DISK_0_PATH=/srv/a.raw
DISK_0_ACCESS=rw
DISK_0_FRONTEND_TYPE=paravirtual
DISK_0_BACKEND_TYPE=file:loop
DISK_1_PATH=/srv/b.raw
DISK_1_ACCESS=rw
DISK_1_FRONTEND_TYPE=paravirtual
DISK_1_BACKEND_TYPE=file:loop
NIC_COUNT=1
NIC_0_MAC=aa:00:00:00:00:01
NIC_0_FRONTEND_TYPE=paravirtual
NIC_0_IP=192.0.2.7
NIC_0_MODE=bridged
NIC_0_LINK=br0
NIC_0_BRIDGE=br0",
        );
    }

    #[test]
    fn another_system_and_another_name() {
        let begin = "OS_API_VERSION=20\nOS_NAME=debian\nINSTANCE_NAME=web1\nINSTANCE_OS=debian\n";
        let end = "DEBUG_LEVEL=0\nHYPERVISOR=fake\nDISK_COUNT=0\nNIC_COUNT=0";
        let guest = guest(HypervisorKind::Fake, NicMode::None);
        check(&guest, &[], Purpose::Reinstall, &format!("{begin}INSTANCE_REINSTALL=1\n{end}"));
        let rename = Purpose::Rename { old_name: "web0" };
        check(&guest, &[], rename, &format!("{begin}OLD_INSTANCE_NAME=web0\n{end}"));
    }
}
