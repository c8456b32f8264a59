//! Who computes for guests on this host, where nobody said so.

use muster_hooksrv::agent::kvm_is_usable;

use super::super::Accel;

/// What this host can do.
pub(crate) fn accel() -> Accel {
    if kvm_is_usable() { Accel::Kvm } else { Accel::Tcg }
}
