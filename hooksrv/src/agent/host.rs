//! What the kernel tells about this host.

use std::{collections::BTreeMap, fs, thread};

use muster_proto::v1;

/// Memory in MiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Memory {
    total_mib: u64,
    available_mib: u64,
}

/// Reads the kernel's table of memory; what is not in it is 0.
fn memory(table: &str) -> Memory {
    let field = |name: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib: Option<u64> = line.and_then(|value| value.split_whitespace().next()?.parse().ok());
        kib.unwrap_or_default() / 1024
    };
    Memory { total_mib: field("MemTotal"), available_mib: field("MemAvailable") }
}

fn memory_now() -> Result<Memory, std::io::Error> {
    fs::read_to_string("/proc/meminfo").map(|table| memory(&table))
}

fn cpus() -> u32 {
    thread::available_parallelism().map_or(0, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Fills in memory and processors.
pub(super) fn report(state: &mut v1::NodeState) {
    state.cpus = cpus();
    match memory_now() {
        Ok(memory) => {
            state.memory_total_mib = memory.total_mib;
            state.memory_free_mib = memory.available_mib;
        }
        Err(error) => state.problems.push(format!("could not read /proc/meminfo: {error}")),
    }
}

/// What a pending node tells of itself, for `gnt-node pending`.
pub(super) fn facts() -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([("cpus".to_owned(), cpus().to_string())]);
    if let Ok(memory) = memory_now() {
        facts.insert("memory_mib".to_owned(), memory.total_mib.to_string());
    }
    if let Ok(name) = fs::read_to_string("/proc/sys/kernel/hostname") {
        facts.insert("host_name".to_owned(), name.trim().to_owned());
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_table() {
        let table = "MemTotal:        4028440 kB\nMemFree:   1 kB\nMemAvailable:    2048000 kB\n";
        assert_eq!(memory(table), Memory { total_mib: 3934, available_mib: 2000 });
        assert_eq!(memory(""), Memory::default());
        assert!(memory_now().unwrap().total_mib > 0);
    }
}
