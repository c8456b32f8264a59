//! The directory that an entry is in, and what is wrong with a file there.

use super::{File, Finding, IsThere, Rule, access_findings, first_line, variables};
use crate::{
    hooks::{KILL_DEFAULT_MS, LimitBounds, Phase, SkipReason, is_good_byte, script_limits, skipped_by_name},
    names::nearest,
    reference::{OperationHooks, PointHooks, PointKind, Presence, Reference},
};

/// What follows where the operation is over.
const AFTERWARDS: &str = "which is a warning in the job's log, and the rest of it is not done";

/// What a directory's scripts are run for.
#[derive(Debug, Clone, Copy)]
enum RunFor<'a> {
    Operation(&'a OperationHooks, Phase),
    Point(&'a PointHooks),
}

/// A directory that is used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) reference: &'a Reference,
    run_for: RunFor<'a>,
}

/// Endings that names of scripts have elsewhere.
const SCRIPT_ENDINGS: [&[u8]; 7] = [b".sh", b".bash", b".py", b".pl", b".rb", b".ksh", b".exe"];

/// A name without what is wrong with it.
fn right_name(name: &[u8]) -> String {
    let ending = SCRIPT_ENDINGS.iter().find(|ending| name.ends_with(ending) && name.len() > ending.len());
    let stem = ending.map_or(name, |ending| &name[..name.len() - ending.len()]);
    let right: String =
        stem.iter().map(|byte| if is_good_byte(*byte) { char::from(*byte) } else { '-' }).collect();
    let trimmed = right.trim_matches('-');
    if trimmed.is_empty() { "10-script".to_owned() } else { trimmed.to_owned() }
}

impl<'a> Place<'a> {
    /// `None` for a directory in which nothing is ever run.
    pub(super) fn find(reference: &'a Reference, directory: &str) -> Option<Self> {
        let operation = reference.of_directory(directory);
        let operation = operation.map(|(operation, phase)| RunFor::Operation(operation, phase));
        let run_for = operation.or_else(|| reference.point(directory).map(RunFor::Point))?;
        Some(Place { reference, run_for })
    }

    /// Whether only the master runs what is there.
    pub(super) fn is_for_master(&self) -> bool {
        match self.run_for {
            RunFor::Operation(..) => false,
            RunFor::Point(point) => match point.kind {
                PointKind::Global | PointKind::Event => true,
                PointKind::Sync => false,
            },
        }
    }

    /// What follows when the script ends early or can't be executed.
    pub(super) fn consequence(&self) -> &'static str {
        match self.run_for {
            RunFor::Operation(_, Phase::Pre) => "which denies the operation",
            RunFor::Point(point) => match (point.kind, point.phase) {
                (PointKind::Global, Phase::Pre) => "which denies every operation",
                (PointKind::Sync, _) => "which refuses every set after this one",
                (PointKind::Event, _) => {
                    "which is a line in the master's log, and the rest of it is not done"
                }
                (PointKind::Global, Phase::Post | Phase::Failed) => AFTERWARDS,
            },
            RunFor::Operation(_, Phase::Post | Phase::Failed) => AFTERWARDS,
        }
    }

    fn decides(&self) -> &'static str {
        match self.run_for {
            RunFor::Operation(_, Phase::Pre) => "decides which operations go ahead",
            RunFor::Point(PointHooks { kind: PointKind::Global, phase: Phase::Pre, .. }) => {
                "decides which operations go ahead"
            }
            RunFor::Point(PointHooks { kind: PointKind::Sync, .. }) => "decides which hooks are used",
            RunFor::Operation(_, Phase::Post | Phase::Failed) | RunFor::Point(_) => {
                "decides what is run as the daemon's user"
            }
        }
    }

    /// Who sets variables here: the operation, or the directory's name.
    pub(super) fn name(&self) -> &str {
        match self.run_for {
            RunFor::Operation(operation, _) => operation.op_id,
            RunFor::Point(point) => &point.directory,
        }
    }

    /// Whether a variable is there, its name without prefix.
    pub(super) fn presence(&self, name: &str) -> Option<Presence> {
        match self.run_for {
            RunFor::Operation(operation, phase) => operation.presence(phase, name),
            RunFor::Point(point) => point.presence(self.reference, name),
        }
    }

    /// Whether a variable is there for some of the operations that the directory's scripts are run for.
    pub(super) fn is_of_an_operation(&self, name: &str) -> bool {
        match self.run_for {
            RunFor::Operation(..) => false,
            RunFor::Point(point) => point.is_of_an_operation(self.reference, name),
        }
    }

    /// The variable that was probably meant by a name that is not there.
    pub(super) fn nearest_variable(&self, name: &str) -> Option<&'static str> {
        match self.run_for {
            RunFor::Operation(operation, _) => operation.nearest_variable(name),
            RunFor::Point(point) => nearest(name, point.variables.iter().map(|(own, ..)| *own)),
        }
    }

    pub(super) fn file(&self, name: &[u8], file: &File, is_there: IsThere<'_>) -> Vec<Finding> {
        let content = file.content.as_deref();
        let is_program =
            content.is_some_and(|bytes| bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF"));
        let mut found = Vec::new();
        if skipped_by_name(name) == Some(SkipReason::BadName) {
            let is_meant =
                file.executable || is_program || SCRIPT_ENDINGS.iter().any(|end| name.ends_with(end));
            if !is_meant {
                // A README, notes: nobody expects them to run.
                return found;
            }
            let right = right_name(name);
            found.push(Finding::new(
                Rule::BadName,
                "it is skipped for its name, which may have letters, digits, _ and - only",
                format!("{right}, or {right}.disabled if it is not to run"),
            ));
        }
        if !file.executable {
            if name == b"README" && !is_program {
                return found;
            }
            let surprise = "it is skipped, as it has no execute bit";
            found.push(Finding::new(Rule::NotExecutable, surprise, "chmod +x"));
        } else if file.no_exec_mount {
            found.push(Finding::new(
                Rule::NoExecMount,
                "it is skipped, as its filesystem is mounted noexec",
                "mount it without noexec, or put the script elsewhere",
            ));
        }
        found.extend(access_findings(file.access, "whoever can write it", "chmod go-w", self.decides()));
        if let Some(content) = content {
            found.extend(self.content(content, is_there));
        }
        found
    }

    fn content(&self, content: &[u8], is_there: IsThere<'_>) -> Vec<Finding> {
        if content.starts_with(b"\x7fELF") {
            return Vec::new();
        }
        let (mut found, program) = first_line::check(content, self.consequence(), is_there);
        for note in script_limits(content, LimitBounds::default()).notes {
            found.push(Finding::new(
                Rule::TimeLimit,
                format!("{note}; the limit stays {} s or what another line says", KILL_DEFAULT_MS / 1000),
                "for example # HOOK_KILL_TIMEOUT = 2 minutes",
            ));
        }
        if let Some(program) = program {
            found.extend(variables::check(self, content, &program));
        }
        found
    }
}
