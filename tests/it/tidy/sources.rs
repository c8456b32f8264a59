//! What every source file must have and must not have.

use super::files::{Source, nothing_found, sources};

/// Longest file in lines.
const LINES_MAX: usize = 600;
/// Files that may be longer, each with its reason.
const LONGER: [(&str, &str); 0] = [];

#[test]
fn every_file_says_what_it_is_for() {
    let silent = |source: &&Source| !source.text.starts_with("//! ");
    let found: Vec<String> = sources("rs").iter().filter(silent).map(|source| source.path.clone()).collect();
    nothing_found(&found);
}

#[test]
fn no_file_is_over_long() {
    let mut found = Vec::new();
    for source in sources("rs") {
        let lines = source.text.lines().count();
        let excepted = LONGER.iter().any(|(path, _)| *path == source.path);
        if lines > LINES_MAX && !excepted {
            found.push(format!("{}: {lines} lines", source.path));
        }
        assert!(!excepted || lines > LINES_MAX, "{} is short enough: take it off the list", source.path);
    }
    nothing_found(&found);
}

/// Finds words in lines; the words are written in two parts so that this file does not hold them.
fn occurrences(lines: &[(usize, &str)], path: &str, words: &[String]) -> Vec<String> {
    let hits = lines.iter().flat_map(|(at, line)| {
        words
            .iter()
            .filter(|word| line.contains(word.as_str()))
            .map(move |word| format!("{path}:{at}: {word}"))
    });
    hits.collect()
}

#[test]
fn product_code_does_not_give_up_or_print() {
    let stops = [(".unwrap", "()"), ("todo", "!("), ("unimplemented", "!("), ("dbg", "!(")];
    let prints = [("print", "!("), ("println", "!("), ("eprint", "!("), ("eprintln", "!(")];
    let joined = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| format!("{a}{b}")).collect::<Vec<_>>();
    let (stops, prints) = (joined(&stops), joined(&prints));
    let mut found = Vec::new();
    for source in sources("rs") {
        let lines = source.product_lines();
        found.extend(occurrences(&lines, &source.path, &stops));
        // A build script talks to cargo by printing.
        if !source.path.starts_with("cli/") && !source.path.ends_with("build.rs") {
            found.extend(occurrences(&lines, &source.path, &prints));
        }
    }
    nothing_found(&found);
}

#[test]
fn lints_are_expected_with_a_reason_and_tests_are_never_skipped() {
    let words = [("#[al", "low("), ("#![al", "low("), ("#[ig", "nore"), ("#[should", "_panic")];
    let words: Vec<String> = words.iter().map(|(a, b)| format!("{a}{b}")).collect();
    let mut found = Vec::new();
    for source in sources("rs") {
        let lines: Vec<(usize, &str)> =
            source.text.lines().enumerate().map(|(at, line)| (at + 1, line)).collect();
        found.extend(occurrences(&lines, &source.path, &words));
    }
    nothing_found(&found);
}

#[test]
fn core_has_no_clock_no_files_no_threads_and_no_async() {
    let words = [
        "std::fs",
        "std::net::Tcp",
        "std::net::Udp",
        "std::process",
        "std::thread",
        "std::env",
        "SystemTime",
        "Instant::now",
        "tokio",
        "async fn",
        ".await;",
        ".await?",
        "HashMap",
        "new_v4",
    ];
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let mut found = Vec::new();
    for source in sources("rs").iter().filter(|source| source.path.starts_with("core/src/")) {
        found.extend(occurrences(&source.product_lines(), &source.path, &words));
    }
    nothing_found(&found);
}

#[test]
fn scripts_stop_at_the_first_error() {
    for source in sources("sh") {
        assert!(source.text.starts_with("#!/"), "{} names its interpreter", source.path);
        assert!(source.text.contains("\nset -eu"), "{} has `set -eu`", source.path);
    }
}
