//! Variables that a script reads against those that its operation sets.

use std::collections::BTreeSet;

use super::{Finding, Rule, first_line::Program, place::Place, python, shell};
use crate::{
    hooks::VARIABLE_PREFIX,
    reference::{Presence, common_variables},
};

/// What a script does with `GANETI_*` variables. Names are without prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Reads {
    /// Read as if they were there, in the order of their lines.
    pub(super) plain: Vec<Read>,
    /// Read with a default, or tested: the script knows that they may be absent.
    pub(super) guarded: BTreeSet<String>,
    /// Set by the script itself.
    pub(super) assigned: BTreeSet<String>,
    /// An absent variable ends the script (`set -u`).
    pub(super) ends_at_unset: bool,
}

/// One reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) name: String,
    pub(super) line: u32,
    /// This reading ends the script where the variable is absent, whatever else is set.
    pub(super) is_strict: bool,
}

/// Variables by which one script for several operations decides what it is run for.
const DECIDING: [&str; 4] = ["OP_CODE", "OP_ID", "OBJECT_TYPE", "HOOKS_PATH"];

fn reads(content: &[u8], program: &Program) -> Option<Reads> {
    let text = String::from_utf8_lossy(content);
    let name = program.name.as_str();
    if ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"].contains(&name) {
        Some(shell::reads(&text, &program.arguments))
    } else if name.starts_with("python") {
        Some(python::reads(&text))
    } else {
        None
    }
}

pub(super) fn check(place: &Place<'_>, content: &[u8], program: &Program) -> Vec<Finding> {
    let Some(reads) = reads(content, program) else { return Vec::new() };
    let all_names =
        || reads.plain.iter().map(|read| read.name.as_str()).chain(reads.guarded.iter().map(String::as_str));
    let decides = all_names().any(|name| DECIDING.contains(&name));
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for read in &reads.plain {
        let name = read.name.as_str();
        if reads.guarded.contains(name) || reads.assigned.contains(name) || !seen.insert(name) {
            continue;
        }
        let is_strict = read.is_strict || reads.ends_at_unset;
        let finding = match place.presence(name) {
            Some(Presence::Always) => None,
            Some(Presence::Sometimes) if decides && place.is_of_an_operation(name) => None,
            Some(Presence::Sometimes) if is_strict => Some(maybe_unset(place, read)),
            Some(Presence::Sometimes) => None,
            None if decides && !DECIDING.contains(&name) && place.reference.is_set_somewhere(name) => None,
            None => Some(unknown(place, read, is_strict)),
        };
        found.extend(finding);
    }
    found
}

fn maybe_unset(place: &Place<'_>, read: &Read) -> Finding {
    let name = format!("{VARIABLE_PREFIX}{}", read.name);
    let surprise = format!(
        "{name} is absent unless it was given or applies, and the script ends here then, {}",
        place.consequence()
    );
    let right = format!("${{{name}-}} in a shell, os.environ.get(\"{name}\", \"\") in Python");
    Finding::new(Rule::MaybeUnset, surprise, right).at(read.line)
}

fn unknown(place: &Place<'_>, read: &Read, is_strict: bool) -> Finding {
    let name = format!("{VARIABLE_PREFIX}{}", read.name);
    let who = place.name();
    let surprise = if is_strict {
        format!("{who} does not set {name}: the script ends here, {}", place.consequence())
    } else {
        format!("{who} does not set {name}: it is empty")
    };
    let near = place.nearest_variable(&read.name);
    let setters = place.reference.setters(&read.name);
    let is_common = common_variables().any(|(common, ..)| common == read.name);
    let right = match (near, setters.as_slice()) {
        (_, [first, rest @ ..]) => {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            format!("it is set for {first}{more}; `gnt-hooks explain` shows what an operation has")
        }
        (_, []) if is_common => "it is set for operations; this is none".to_owned(),
        (Some(near), []) => format!("the nearest name that it sets is {VARIABLE_PREFIX}{near}"),
        (None, []) => format!("no operation of interface version {} sets it", place.reference.version),
    };
    Finding::new(Rule::UnknownVariable, surprise, right).at(read.line)
}
