//! `gnt-hooks lint`: findings, each with its place.

use std::path::{Path, PathBuf};

use muster_core::hooks::lint::Finding;
use serde_json::{Value as Json, json};

use super::text::{counted, visible_line};

/// A finding and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located {
    /// The entry's path below the hooks directory; empty for that directory itself.
    pub(crate) path: PathBuf,
    /// What was found.
    pub(crate) finding: Finding,
}

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// By path.
    pub(crate) findings: Vec<Located>,
    /// How many hook directories there are.
    pub(crate) directories: u32,
    /// How many entries were looked at in them.
    pub(crate) entries: u32,
}

fn path_text(base: &Path, located: &Located) -> String {
    let path = if located.path.as_os_str().is_empty() { base.to_owned() } else { base.join(&located.path) };
    visible_line(&path.to_string_lossy())
}

/// For people.
pub(crate) fn report_text(base: &Path, report: &Report) -> String {
    let mut text = String::new();
    for located in &report.findings {
        let finding = &located.finding;
        let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
        text += &format!(
            "{}{line}: [{}] {}\n    right: {}\n",
            path_text(base, located),
            finding.rule.code(),
            visible_line(&finding.surprise),
            visible_line(&finding.right)
        );
    }
    let found = match report.findings.len() {
        0 => "nothing found".to_owned(),
        count => counted(u64::try_from(count).unwrap_or(u64::MAX), "finding"),
    };
    let noun = if report.directories == 1 { "directory" } else { "directories" };
    let entries = if report.entries == 1 { "entry" } else { "entries" };
    text += &format!("{found} in {} {noun} with {} {entries}\n", report.directories, report.entries);
    text
}

/// The findings, each an object.
pub(crate) fn report_json(base: &Path, report: &Report) -> Vec<Json> {
    let finding = |located: &Located| {
        json!({
            "path": path_text(base, located),
            "line": located.finding.line,
            "rule": located.finding.rule.code(),
            "surprise": located.finding.surprise,
            "right": located.finding.right,
        })
    };
    report.findings.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::lint::Rule;

    use super::*;

    #[test]
    fn a_finding_has_its_place_and_what_is_right() {
        let finding = Finding { line: Some(3), ..Finding::new(Rule::MaybeUnset, "it ends", "a default") };
        let report = Report {
            findings: vec![Located { path: "node-add-pre.d/10-x".into(), finding }],
            directories: 1,
            entries: 2,
        };
        let text = report_text(Path::new("/h"), &report);
        assert_eq!(
            text,
            "/h/node-add-pre.d/10-x:3: [maybe-unset] it ends\n    right: a default\n1 finding in 1 directory with 2 entries\n"
        );
        let json = report_json(Path::new("/h"), &report);
        assert_eq!((&json[0]["line"], &json[0]["rule"]), (&json!(3), &json!("maybe-unset")));
        assert_eq!(
            report_text(Path::new("/h"), &Report { directories: 28, ..Report::default() }),
            "nothing found in 28 directories with 0 entries\n"
        );
    }
}
