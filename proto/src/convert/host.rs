//! Node facts between wire and core: whatever a node sends is within the bounds afterwards.

use muster_core::facts::{HostDisk, NodeFacts};

use crate::v1;

/// Facts from the wire, bounded; an address that is none is left out.
pub fn node_facts(wire: v1::HostFacts) -> NodeFacts {
    let disks = wire.disks.into_iter();
    NodeFacts {
        cpus: wire.cpus,
        cpu_model: wire.cpu_model,
        memory_mib: wire.memory_mib,
        disks: disks.map(|disk| HostDisk { name: disk.name, size_mib: disk.size_mib }).collect(),
        addresses: wire.addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        os_name: wire.os_name,
        os_version: wire.os_version,
        os_sp: wire.os_sp,
        os_string: wire.os_string,
        kernel: wire.kernel,
        hypervisors: wire.hypervisors,
        qemu_version: wire.qemu_version,
    }
    .bounded()
}

/// Facts for the wire.
pub fn host_facts(facts: &NodeFacts, collected_ms: u64) -> v1::HostFacts {
    let disks = facts.disks.iter();
    v1::HostFacts {
        collected_ms,
        cpus: facts.cpus,
        cpu_model: facts.cpu_model.clone(),
        memory_mib: facts.memory_mib,
        disks: disks.map(|disk| v1::HostDisk { name: disk.name.clone(), size_mib: disk.size_mib }).collect(),
        addresses: facts.addresses.iter().map(ToString::to_string).collect(),
        os_name: facts.os_name.clone(),
        os_version: facts.os_version.clone(),
        os_sp: facts.os_sp.clone(),
        os_string: facts.os_string.clone(),
        kernel: facts.kernel.clone(),
        hypervisors: facts.hypervisors.clone(),
        qemu_version: facts.qemu_version.clone(),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::{facts::FACT_BYTES_MAX, ops::examples};

    use super::*;

    #[test]
    fn facts_come_back_as_they_were_sent() {
        let mut facts = examples::node_facts();
        facts.disks = vec![HostDisk { name: "vda".to_owned(), size_mib: 10 }];
        facts.hypervisors = vec!["fake".to_owned()];
        assert_eq!(node_facts(host_facts(&facts, 5)), facts);
    }

    #[test]
    fn what_is_too_much_is_cut() {
        let wire = v1::HostFacts {
            os_name: "x".repeat(10_000),
            addresses: vec!["192.0.2.1".to_owned(), "no address".to_owned()],
            ..v1::HostFacts::default()
        };
        let facts = node_facts(wire);
        assert_eq!((facts.os_name.len(), facts.addresses.len()), (FACT_BYTES_MAX, 1));
    }
}
