//! The repository's files, as the checks see them.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's top directory.
pub(super) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A source file.
pub(super) struct Source {
    /// From the top directory.
    pub(super) path: String,
    pub(super) text: String,
    /// Whether the whole file is test code.
    pub(super) is_test: bool,
}

/// Directories without sources of ours.
const SKIPPED: [&str; 4] = ["target", ".git", ".cache", "__pycache__"];

/// All files with the extension.
pub(super) fn sources(extension: &str) -> Vec<Source> {
    let mut found = Vec::new();
    collect(&top(), extension, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no .{extension} file was found");
    let test_files: Vec<String> = found.iter().flat_map(test_modules).collect();
    for source in &mut found {
        let module = source.path.trim_end_matches(".rs");
        let declared =
            test_files.iter().any(|test| module == test || module.starts_with(&format!("{test}/")));
        let in_test_folder =
            source.path.starts_with("tests/it/") || source.path.split('/').nth(1) == Some("tests");
        source.is_test = declared || in_test_folder || module.ends_with("_tests");
    }
    found
}

/// Paths, without `.rs`, of the modules that a file declares for tests only.
fn test_modules(source: &Source) -> Vec<String> {
    let (dir, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let base = match file {
        "mod.rs" | "lib.rs" | "main.rs" => dir.to_owned(),
        _ => source.path.trim_end_matches(".rs").to_owned(),
    };
    let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
    let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
        let name = pair[1].trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        Some(format!("{base}/{}", name.strip_prefix("mod ")?.strip_suffix(';')?))
    });
    declared.collect()
}

fn collect(dir: &Path, extension: &str, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !SKIPPED.contains(&name) {
            collect(&path, extension, found);
        } else if path.is_file() && path.extension().is_some_and(|ext| ext == extension) {
            let text = fs::read_to_string(&path).unwrap();
            let path = path.strip_prefix(top()).unwrap().to_str().unwrap().to_owned();
            found.push(Source { path, text, is_test: false });
        }
    }
}

impl Source {
    /// The text up to the file's own tests, without comments.
    pub(super) fn product_lines(&self) -> Vec<(usize, &str)> {
        if self.is_test {
            return Vec::new();
        }
        let lines: Vec<(usize, &str)> =
            self.text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        // The file's own tests stand at its end, in a module with a body.
        let opens = |pair: &[(usize, &str)]| {
            pair[0].1.trim() == "#[cfg(test)]" && pair[1].1.trim_end().ends_with('{')
        };
        let end = lines.windows(2).position(opens).unwrap_or(lines.len());
        lines[..end].iter().filter(|(_, line)| !line.trim_start().starts_with("//")).copied().collect()
    }
}

/// Reads a file of the repository.
pub(super) fn read(path: &str) -> String {
    fs::read_to_string(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails with one line for each finding.
#[track_caller]
pub(super) fn nothing_found(findings: &[String]) {
    assert!(findings.is_empty(), "{} found:\n{}", findings.len(), findings.join("\n"));
}
