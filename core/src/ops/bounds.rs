//! Bounds of what an instance may be given, far above what hosts have: they keep sums from overflowing and typing
//! errors from passing.

use super::Refusal;

/// 16 TiB.
const MEMORY_MIB_MAX: u64 = 16 * 1024 * 1024;
/// As many as any hypervisor offers.
const VCPUS_MAX: u32 = 1024;
/// 1 PiB.
const DISK_MIB_MAX: u64 = 1024 * 1024 * 1024;

/// Refuses a memory size out of bounds.
pub(super) fn memory(mib: u64) -> Result<(), Refusal> {
    if !(1..=MEMORY_MIB_MAX).contains(&mib) {
        return Err(Refusal(format!("a memory of {mib} MiB is not between 1 MiB and 16 TiB")));
    }
    Ok(())
}

/// Refuses a number of processors out of bounds.
pub(super) fn vcpus(count: u32) -> Result<(), Refusal> {
    if !(1..=VCPUS_MAX).contains(&count) {
        return Err(Refusal(format!("{count} virtual processors are not between 1 and {VCPUS_MAX}")));
    }
    Ok(())
}

/// Refuses a disk size out of bounds; `disk` names it in the refusal.
pub(super) fn disk(disk: &str, mib: u64) -> Result<(), Refusal> {
    if !(1..=DISK_MIB_MAX).contains(&mib) {
        return Err(Refusal(format!("a size of {mib} MiB for {disk} is not between 1 MiB and 1 PiB")));
    }
    Ok(())
}
