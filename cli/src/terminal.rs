//! The terminal as a console needs it: every key is passed on as it is, and the operator's way out is told from what is typed.

use std::io;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// Ctrl-], the key that starts a command to the console itself; few programs use it.
const ESCAPE: u8 = 0x1d;
/// After it: the end.
const QUIT: u8 = b'q';

/// A terminal that passes keys on as they are. It is as it was when the value goes away, however that happens.
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Switches the terminal on stdin.
    pub(crate) fn switch() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(RawTerminal { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that went away in between needs no settings.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Looks for the way out in what is typed; a key may come alone or many at once.
#[derive(Debug, Default)]
pub(crate) struct Escape {
    /// The last key was the escape.
    begun: bool,
}

impl Escape {
    /// What of it is for the guest, and whether the operator wants to leave. The escape twice sends it once.
    pub(crate) fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut passed = Vec::with_capacity(typed.len());
        for key in typed {
            match (std::mem::take(&mut self.begun), *key) {
                (true, QUIT) => return (passed, true),
                (true, ESCAPE) => passed.push(ESCAPE),
                (true, other) => passed.extend([ESCAPE, other]),
                (false, ESCAPE) => self.begun = true,
                (false, other) => passed.push(other),
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_escape_and_q_leave() {
        let check = |typed: &[&[u8]], expected: &[u8], leaves: bool| {
            let mut escape = Escape::default();
            let mut passed = Vec::new();
            let mut left = false;
            for part in typed {
                let (more, leave) = escape.pass(part);
                passed.extend(more);
                left |= leave;
            }
            assert_eq!((passed.as_slice(), left), (expected, leaves), "{typed:?}");
        };
        check(&[b"quit\r\x03"], b"quit\r\x03", false);
        check(&[b"ls\x1dqrest"], b"ls", true);
        check(&[b"\x1d", b"q"], b"", true);
        check(&[b"\x1d", b"\x1d", b"q"], b"\x1dq", false);
        check(&[b"\x1dx"], b"\x1dx", false);
    }
}
