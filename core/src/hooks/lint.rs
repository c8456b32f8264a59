//! What will surprise in a hook directory, found without running anything. Pure: whoever reads the files hands in what was
//! seen of them (`gnt-hooks lint` does, on one host; a set that is to be distributed can be checked in the same way).

mod first_line;
mod place;
mod python;
mod set;
mod shell;
mod variables;

use super::{HooksVersion, SkipReason, skipped_by_name};
use crate::{
    ops::{UnusedDirectory, hook_directories},
    reference::Reference,
};
use place::Place;

pub use first_line::Interpreter;
pub use set::{SetFiles, SetFindings, set_findings};

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The name has a character for which it is skipped.
    BadName,
    /// It may not be executed.
    NotExecutable,
    /// It lies on a filesystem that is mounted noexec.
    NoExecMount,
    /// A carriage return after `#!`.
    CarriageReturn,
    /// No interpreter is named, or the one that is named is not there.
    NoInterpreter,
    /// No operation uses the directory.
    UnusedDirectory,
    /// It reads a variable that the operation does not set.
    UnknownVariable,
    /// It ends where a variable is absent that may be absent.
    MaybeUnset,
    /// A directory, a socket, a device, a fifo.
    NotAFile,
    /// A link to nothing.
    DanglingLink,
    /// A link to a place outside of the hooks directory.
    LinkOutside,
    /// Others can write it.
    Writable,
    /// It belongs to neither root nor the daemon's user.
    Owner,
    /// A time limit that is ignored.
    TimeLimit,
    /// It could not be read.
    Unreadable,
}

impl Rule {
    /// All rules.
    pub const ALL: [Rule; 15] = [
        Rule::BadName,
        Rule::NotExecutable,
        Rule::NoExecMount,
        Rule::CarriageReturn,
        Rule::NoInterpreter,
        Rule::UnusedDirectory,
        Rule::UnknownVariable,
        Rule::MaybeUnset,
        Rule::NotAFile,
        Rule::DanglingLink,
        Rule::LinkOutside,
        Rule::Writable,
        Rule::Owner,
        Rule::TimeLimit,
        Rule::Unreadable,
    ];

    /// Its stable name.
    pub fn code(self) -> &'static str {
        match self {
            Rule::BadName => "bad-name",
            Rule::NotExecutable => "not-executable",
            Rule::NoExecMount => "no-exec-mount",
            Rule::CarriageReturn => "carriage-return",
            Rule::NoInterpreter => "no-interpreter",
            Rule::UnusedDirectory => "unused-directory",
            Rule::UnknownVariable => "unknown-variable",
            Rule::MaybeUnset => "maybe-unset",
            Rule::NotAFile => "not-a-file",
            Rule::DanglingLink => "dangling-link",
            Rule::LinkOutside => "link-outside",
            Rule::Writable => "writable",
            Rule::Owner => "owner",
            Rule::TimeLimit => "time-limit",
            Rule::Unreadable => "unreadable",
        }
    }

    /// Whether it keeps a set from being distributed: what is meant to run would not run, or would always fail.
    pub fn is_error(self) -> bool {
        match self {
            Rule::BadName
            | Rule::NotExecutable
            | Rule::NoExecMount
            | Rule::CarriageReturn
            | Rule::NoInterpreter
            | Rule::NotAFile
            | Rule::DanglingLink
            | Rule::LinkOutside
            | Rule::Unreadable => true,
            Rule::UnusedDirectory
            | Rule::UnknownVariable
            | Rule::MaybeUnset
            | Rule::Writable
            | Rule::Owner
            | Rule::TimeLimit => false,
        }
    }
}

/// Something that will surprise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked for.
    pub rule: Rule,
    /// The line, where it is in one.
    pub line: Option<u32>,
    /// What will happen that is not expected.
    pub surprise: String,
    /// What would be right.
    pub right: String,
}

impl Finding {
    /// A finding that is not in a line.
    pub fn new(rule: Rule, surprise: impl Into<String>, right: impl Into<String>) -> Self {
        Finding { rule, line: None, surprise: surprise.into(), right: right.into() }
    }

    fn at(self, line: u32) -> Self {
        Finding { line: Some(line), ..self }
    }
}

/// Who may change a file or directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// Group or others can write it, or the directory in which a link's target lies.
    pub writable: bool,
    /// Its owner, where that is neither root nor the daemon's user.
    pub foreign_owner: Option<u32>,
}

/// A regular file, links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// It has an execute bit.
    pub executable: bool,
    /// Its filesystem is mounted noexec.
    pub no_exec_mount: bool,
    /// Who may change it.
    pub access: Access,
    /// What it holds; `None` where it is too large to look at.
    pub content: Option<Vec<u8>>,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file, or a link to one.
    File(File),
    /// A directory, or a link to one.
    Directory,
    /// A link to nothing; where it leads.
    Dangling(String),
    /// A socket, device or fifo.
    Special,
    /// It could not be looked at; why.
    Unreadable(String),
}

/// An entry of a hook directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Where it leads, if it is a link to a place outside of the hooks directory.
    pub leads_outside: Option<String>,
}

/// Whether an interpreter is there and can be executed.
pub type IsThere<'a> = &'a dyn Fn(Interpreter<'_>) -> bool;

/// Checks hook directories as one version of the interface has them; version 1 where none is named.
#[derive(Debug, Clone, Default)]
pub struct Linter {
    reference: Reference,
}

impl Linter {
    /// Reads the operations table.
    pub fn new() -> Self {
        Linter::default()
    }

    /// Reads the operations table as a version has it.
    pub fn of(version: HooksVersion) -> Self {
        Linter { reference: Reference::new(version) }
    }

    /// Whether anything in the directory is ever run.
    pub fn is_used(&self, directory: &str) -> bool {
        hook_directories(self.reference.version).any(|used| used == directory)
    }

    /// A directory beside the hook directories. One whose name is like nothing that is used holds what scripts need.
    pub fn directory(&self, name: &str) -> Option<Finding> {
        if hook_directories(self.reference.version).any(|used| used == name) {
            return None;
        }
        let without_phase = name.trim_end_matches(".d");
        let operation = self.reference.operations.iter().find(|operation| operation.prefix == without_phase);
        let version = self.reference.version;
        let both = operation.map(|operation| {
            let names: Vec<String> =
                operation.phases().into_iter().map(|phase| phase.directory(operation.prefix)).collect();
            names.join(" or ")
        });
        let right = match (both, UnusedDirectory::find(version, name)) {
            (Some(name), _) | (None, UnusedDirectory::Nearest(name)) => format!("probably {name}"),
            (None, UnusedDirectory::OtherVersion(other)) => {
                format!("version {other} of the interface has it: gnt-cluster modify --hooks-version {other}")
            }
            (None, UnusedDirectory::Unlike) if !name.ends_with(".d") => return None,
            (None, UnusedDirectory::Unlike) => {
                "a name of the hook reference, such as instance-add-pre.d; gnt-hooks init makes them all"
                    .to_owned()
            }
        };
        Some(Finding::new(
            Rule::UnusedDirectory,
            "no operation uses this directory: nothing in it is ever run",
            right,
        ))
    }

    /// Who may change a hook directory.
    pub fn directory_access(access: Access) -> Vec<Finding> {
        access_findings(access, "whoever can write the directory", "chmod go-w", "decides what is run")
    }

    /// Whether scripts of a directory are run on the master's host alone, whatever the operation.
    pub fn is_for_master(&self, directory: &str) -> bool {
        Place::find(&self.reference, directory).is_some_and(|place| place.is_for_master())
    }

    /// An entry of a directory that is used, by an operation or else; nothing for other directories.
    pub fn entry(&self, directory: &str, entry: &Entry, is_there: IsThere<'_>) -> Vec<Finding> {
        let Some(place) = Place::find(&self.reference, directory) else { return Vec::new() };
        if skipped_by_name(&entry.name) == Some(SkipReason::Disabled) {
            return Vec::new();
        }
        let mut found = match &entry.kind {
            Kind::File(file) => place.file(&entry.name, file, is_there),
            Kind::Directory => vec![Finding::new(
                Rule::NotAFile,
                "a directory is skipped, and so is what is in it",
                "scripts lie in the hook directory itself",
            )],
            Kind::Special => vec![Finding::new(
                Rule::NotAFile,
                "it is no regular file and is skipped",
                "a regular file, or a link to one",
            )],
            Kind::Dangling(target) => vec![Finding::new(
                Rule::DanglingLink,
                format!("it is a link to {target}, which is not there, and is skipped: nothing is run"),
                "make what it leads to, or remove the link",
            )],
            Kind::Unreadable(why) => vec![Finding::new(
                Rule::Unreadable,
                format!("it could not be looked at: {why}"),
                "let root read it",
            )],
        };
        if let Some(target) = &entry.leads_outside {
            found.push(Finding::new(
                Rule::LinkOutside,
                format!("it leads out of the hooks directory, to {target}: what is run is kept elsewhere"),
                "keep the file in the hooks directory and link to it there",
            ));
        }
        found
    }
}

fn access_findings(access: Access, who: &str, command: &str, what: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if access.writable {
        let surprise = format!("{who} {what}, and others than root and the daemon's user can");
        found.push(Finding::new(Rule::Writable, surprise, command));
    }
    if let Some(owner) = access.foreign_owner {
        let surprise = format!(
            "it belongs to user {owner}, who thereby {what}: that is neither root nor the daemon's user"
        );
        found.push(Finding::new(Rule::Owner, surprise, "chown root"));
    }
    found
}

#[cfg(test)]
mod tests;
