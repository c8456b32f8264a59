//! Whether this host can run guests by KVM.
//!
//! A device that opens is not enough: some hosts without hardware virtualisation have one, and guests hang on it. So the
//! processor must say that it can, too.

use std::{fs, path::Path};

use super::super::Accel;

/// The device of KVM.
const DEVICE: &str = "/dev/kvm";

/// What this host can do.
pub(crate) fn accel() -> Accel {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let opens = fs::OpenOptions::new().read(true).write(true).open(Path::new(DEVICE)).is_ok();
    decide(&processor, opens)
}

fn decide(processor: &str, device_opens: bool) -> Accel {
    let flags = processor.lines().find(|line| line.starts_with("flags"));
    let virtualises =
        flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| matches!(flag, "vmx" | "svm")));
    if virtualises && device_opens { Accel::Kvm } else { Accel::Tcg }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_needs_the_processor_and_the_device() {
        let with = "processor : 0\nflags\t\t: fpu vme svm nx\n";
        let without = "processor : 0\nflags\t\t: fpu vme svm_lock nx\n";
        assert_eq!(decide(with, true), Accel::Kvm);
        for (processor, opens) in [(with, false), (without, true), ("", true)] {
            assert_eq!(decide(processor, opens), Accel::Tcg, "{processor:?} {opens}");
        }
    }
}
