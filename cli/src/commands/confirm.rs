//! Questions before what can't be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::{args::OperationFlags, exit::Failure};

/// Asks on a terminal; without one the command is refused, because nobody could answer.
///
/// A dry run changes nothing and asks nothing.
pub(super) fn confirm(question: &str, force: bool, flags: &OperationFlags) -> Result<(), Failure> {
    if force || flags.dry_run {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!("{question} There is no terminal to ask on; -f means yes")));
    }
    let mut err = io::stderr().lock();
    let mut line = String::new();
    let asked = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    match asked.and_then(|()| io::stdin().lock().read_line(&mut line)) {
        Ok(_) if is_yes(&line) => Ok(()),
        Ok(_) | Err(_) => Err(Failure::NotConfirmed),
    }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for (line, yes) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("no\n", false), ("yy", false)]
        {
            assert_eq!(is_yes(line), yes, "{line:?}");
        }
    }

    #[test]
    fn force_and_dry_run_ask_nothing() {
        assert!(confirm("?", true, &OperationFlags::default()).is_ok());
        assert!(confirm("?", false, &OperationFlags { dry_run: true, ..OperationFlags::default() }).is_ok());
    }
}
