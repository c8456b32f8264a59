//! A clock for ages on this host.
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since this host was started, the time that it was suspended included (`CLOCK_BOOTTIME`): it is never behind
/// the monotonic clock, which stands still while the host sleeps, and nobody sets it.
pub fn boot_clock() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).expect("a host was not started in the future");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("nanoseconds of one second");
    Duration::new(seconds, nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_with_the_monotonic_clock() {
        let before = boot_clock();
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(boot_clock() - before >= Duration::from_millis(2));
    }
}
