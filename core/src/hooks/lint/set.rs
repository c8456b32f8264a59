//! Checks a whole set before it is distributed, and on each node before it is used there.

use std::collections::BTreeSet;

use super::{Access, Entry, File, Finding, IsThere, Kind, Linter};
use crate::hooks::{Digest, HookSet, SetTarget};

/// Content that is longer is not looked at: it is a program with data in it.
const CONTENT_BYTES_MAX: usize = 1024 * 1024;
/// The execute bits.
const ANY_EXECUTE: u32 = 0o111;
/// Lines of findings that are kept of each kind: who has more has seen enough.
const LINES_MAX: usize = 50;

/// Where the files of a set are.
pub struct SetFiles<'a> {
    /// A content by its digest; `None` where it can't be read.
    pub content: &'a dyn Fn(&Digest) -> Option<Vec<u8>>,
    /// Their filesystem is mounted noexec.
    pub no_exec_mount: bool,
    /// Whether an interpreter is there and can be executed.
    pub is_there: IsThere<'a>,
    /// Whether the files are on the master's host: what is run nowhere else needs its interpreters there alone.
    pub on_master: bool,
}

/// What was found, in lines for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetFindings {
    /// What keeps the set from being distributed.
    pub errors: Vec<String>,
    /// What is shown.
    pub warnings: Vec<String>,
}

impl SetFindings {
    fn add(&mut self, path: &str, finding: &Finding) {
        let lines = if finding.rule.is_error() { &mut self.errors } else { &mut self.warnings };
        if lines.len() < LINES_MAX {
            let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
            let (code, surprise, right) = (finding.rule.code(), &finding.surprise, &finding.right);
            lines.push(format!("{path}{line}: [{code}] {surprise}; right: {right}"));
        }
    }
}

/// Checks what lies in hook directories; what is below `lib/` is for scripts to use as they like.
pub fn set_findings(linter: &Linter, set: &HookSet, files: &SetFiles<'_>) -> SetFindings {
    let mut findings = SetFindings::default();
    let mut directories = BTreeSet::new();
    for (path, _) in set.entries() {
        let Some((directory, name)) = path.split_once('/').filter(|(directory, _)| directory.ends_with(".d"))
        else {
            continue;
        };
        if directories.insert(directory)
            && let Some(finding) = linter.directory(directory)
        {
            findings.add(directory, &finding);
        }
        let entry =
            Entry { name: name.as_bytes().to_vec(), kind: kind(set, path, files), leads_outside: None };
        let runs_here = files.on_master || !linter.is_for_master(directory);
        let is_there: IsThere<'_> = if runs_here { files.is_there } else { &|_| true };
        for finding in linter.entry(directory, &entry, is_there) {
            findings.add(path, &finding);
        }
    }
    findings
}

fn kind(set: &HookSet, path: &str, files: &SetFiles<'_>) -> Kind {
    match set.target(path) {
        Some(SetTarget::File { digest, mode }) => match (files.content)(&digest) {
            Some(content) => Kind::File(File {
                executable: mode & ANY_EXECUTE != 0,
                no_exec_mount: files.no_exec_mount,
                access: Access::default(),
                content: (content.len() <= CONTENT_BYTES_MAX).then_some(content),
            }),
            None => Kind::Unreadable("its content is missing".to_owned()),
        },
        Some(SetTarget::Directory) => Kind::Directory,
        None => Kind::Dangling("nothing in the set".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::SetEntry;

    fn file(mark: u8, mode: u32) -> SetEntry {
        SetEntry::File { digest: Digest::new([mark; 32]), mode, size: 1 }
    }

    #[test]
    fn what_would_not_run_is_an_error_and_what_surprises_a_warning() {
        let link = |target: &str| SetEntry::Link { target: target.to_owned() };
        let set = HookSet::try_from(vec![
            ("node-add-pre.d/10-good".to_owned(), file(1, 0o755)),
            ("node-add-pre.d/20-crlf".to_owned(), file(2, 0o755)),
            ("node-add-pre.d/30-no-exec".to_owned(), file(1, 0o644)),
            ("node-add-pre.d/40-directory".to_owned(), link("../lib")),
            ("node-add-pre.d/50-gone".to_owned(), file(3, 0o755)),
            ("node-add-pre.d/60-link".to_owned(), link("10-good")),
            ("node-addd-pre.d/10-good".to_owned(), file(1, 0o755)),
            ("lib/crlf".to_owned(), file(2, 0o755)),
        ])
        .unwrap();
        let content = |digest: &Digest| match digest.as_bytes()[0] {
            1 => Some(b"#!/bin/sh\nexit 0\n".to_vec()),
            2 => Some(b"#!/bin/sh\r\nexit 0\r\n".to_vec()),
            _ => None,
        };
        let check = |no_exec_mount, there: bool| {
            let files = SetFiles { content: &content, no_exec_mount, is_there: &|_| there, on_master: true };
            set_findings(&Linter::new(), &set, &files)
        };
        let found = check(false, true);
        let paths = |lines: &[String]| {
            lines.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect::<BTreeSet<_>>()
        };
        let wrong = ["20-crlf", "30-no-exec", "40-directory", "50-gone"];
        let wrong = wrong.map(|name| format!("node-add-pre.d/{name}"));
        assert_eq!(paths(&found.errors), wrong.into(), "{found:?}");
        assert_eq!(paths(&found.warnings), ["node-addd-pre.d".to_owned()].into(), "{found:?}");
        assert!(found.errors[0].contains("[carriage-return]"), "{found:?}");
        let elsewhere = check(true, false).errors.join("\n");
        assert!(elsewhere.contains("10-good: [no-exec-mount]"), "{elsewhere}");
        assert!(elsewhere.contains("60-link:1: [no-interpreter]"), "{elsewhere}");
    }
}
