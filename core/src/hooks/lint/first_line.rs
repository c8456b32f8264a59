//! The `#!` line, read as the kernel and `env` read it.

use super::{Finding, IsThere, Rule};
use crate::hooks::SCRIPT_PATH;

/// A program that is wanted to run a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter<'a> {
    /// The kernel starts this path.
    Path(&'a [u8]),
    /// `env` looks for this name in the scripts' PATH.
    Searched(&'a [u8]),
}

/// What runs a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Its name without folders.
    pub(super) name: String,
    /// The rest of the line.
    pub(super) arguments: String,
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_blank(byte: &u8) -> bool {
    *byte == b' ' || *byte == b'\t'
}

fn missing(surprise: String, right: impl Into<String>) -> Finding {
    Finding::new(Rule::NoInterpreter, surprise, right).at(1)
}

/// Checks the first line of a script, and tells what runs it.
pub(super) fn check(
    content: &[u8],
    consequence: &str,
    is_there: IsThere<'_>,
) -> (Vec<Finding>, Option<Program>) {
    if !content.starts_with(b"#!") {
        let why = if content.starts_with(b"\xef\xbb\xbf#!") {
            "it begins with a byte order mark, so that its #! is none to the kernel"
        } else {
            "its first line names no interpreter by #!"
        };
        let surprise = format!("{why}: it can't be executed, {consequence}");
        return (vec![missing(surprise, "#!/bin/sh as the first line, with nothing before it")], None);
    }
    let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut found = Vec::new();
    let line = match line.strip_suffix(b"\r") {
        None => line,
        Some(line) => {
            let surprise = format!(
                "the line ends with a carriage return, which becomes part of the interpreter's name or argument: it can't be executed, {consequence}"
            );
            let right = "lines that end with a newline alone: sed -i 's/\\r$//' FILE";
            found.push(Finding::new(Rule::CarriageReturn, surprise, right).at(1));
            line
        }
    };
    let rest = line[2..].trim_ascii();
    let (path, argument) = match rest.iter().position(is_blank) {
        None => (rest, &[][..]),
        Some(end) => (&rest[..end], rest[end..].trim_ascii()),
    };
    if !path.starts_with(b"/") {
        let surprise =
            format!("{:?} after #! is no whole path: it can't be executed, {consequence}", shown(path));
        found.push(missing(surprise, "the interpreter's whole path, such as #!/bin/sh"));
        return (found, None);
    }
    if !is_there(Interpreter::Path(path)) {
        let surprise = format!(
            "there is no interpreter {} on this host: it can't be executed, {consequence}",
            shown(path)
        );
        found.push(missing(surprise, "install it, or name one that is there"));
    }
    if base_name(path) != b"env" {
        return (found, Some(Program { name: shown(base_name(path)), arguments: shown(argument) }));
    }
    let program = through_env(argument, consequence, is_there, &mut found);
    (found, program)
}

/// `env` gets all that stands behind its path as one argument, and takes it apart only after `-S`.
fn through_env(
    argument: &[u8],
    consequence: &str,
    is_there: IsThere<'_>,
    found: &mut Vec<Finding>,
) -> Option<Program> {
    let (words, is_split) = match argument.strip_prefix(b"-S") {
        Some(words) => (words.trim_ascii(), true),
        None => (argument, false),
    };
    let mut parts = words.split(is_blank).filter(|part| !part.is_empty() && !part.contains(&b'='));
    let name = parts.next()?;
    let arguments = parts.map(shown).collect::<Vec<_>>().join(" ");
    if !is_split && !arguments.is_empty() {
        let surprise = format!(
            "env looks for one program named {:?}: it can't be executed, {consequence}",
            shown(words)
        );
        found.push(missing(surprise, format!("#!/usr/bin/env -S {}", shown(words))));
    } else if !is_there(Interpreter::Searched(name)) {
        let surprise = format!(
            "env finds no {} in the PATH of scripts, {SCRIPT_PATH}: it can't be executed, {consequence}",
            shown(name)
        );
        found.push(missing(surprise, "the interpreter's whole path after #!, or one that is installed"));
    }
    Some(Program { name: shown(base_name(name)), arguments })
}
