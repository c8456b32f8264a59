//! Takes the lock of a process that has just ended.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a lock is waited for. What a process was starting when it was killed has its files, the locked ones too, until it is
/// another program: a moment, on a busy host a longer one.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Takes a lock, and tries again for 2 s while another has it. Blocks.
///
/// # Errors
/// What `take` says in the end; at once where the lock is not the reason.
pub fn take_lock<T, E>(
    mut take: impl FnMut() -> Result<T, E>,
    is_in_use: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let began = Instant::now();
    loop {
        match take() {
            Err(error) if is_in_use(&error) && began.elapsed() < LOCK_WAIT => thread::sleep(PAUSE),
            taken => return taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for_and_another_error_is_not() {
        let mut tries = 0;
        let taken = take_lock(
            || {
                tries += 1;
                if tries < 3 { Err("in use") } else { Ok(tries) }
            },
            |error| *error == "in use",
        );
        assert_eq!(taken, Ok(3));
        let mut tries = 0;
        let failed: Result<(), &str> = take_lock(
            || {
                tries += 1;
                Err("no such directory")
            },
            |error| *error == "in use",
        );
        assert_eq!((failed, tries), (Err("no such directory"), 1));
        assert_eq!(take_lock(|| Err::<(), _>("in use"), |error| *error == "in use"), Err("in use"));
    }
}
