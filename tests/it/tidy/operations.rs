//! One operation is one file in `core/src/ops/`, one `mod` line, one message on the wire.

use std::collections::BTreeSet;

use super::files::{read, sources};

/// Files beside the operations that are none.
const HELPERS: [&str; 15] = [
    "mod",
    "common",
    "plan",
    "addresses",
    "bounds",
    "parts",
    "mirroring",
    "examples",
    "fencing",
    "groups",
    "networks",
    "hook_limits",
    "points",
    "relied",
    "relocate",
];

/// The operations on the wire, as their field names.
fn on_the_wire() -> Vec<(String, String)> {
    let text = read("proto/proto/muster/v1/operation.proto");
    let body = text.split("oneof operation {").nth(1).unwrap().split('}').next().unwrap();
    let fields = body.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    fields.collect()
}

#[test]
fn every_operation_is_one_file_and_one_message() {
    let wire = on_the_wire();
    assert!(wire.len() >= 20, "{wire:?}");
    let files: BTreeSet<String> = sources("rs")
        .iter()
        .filter(|source| !source.is_test)
        .filter_map(|source| {
            source.path.strip_prefix("core/src/ops/")?.strip_suffix(".rs").map(str::to_owned)
        })
        .filter(|name| !HELPERS.contains(&name.as_str()) && !name.contains('/'))
        .collect();
    let fields: BTreeSet<String> = wire.iter().map(|(_, field)| field.clone()).collect();
    assert_eq!(files, fields, "files of core/src/ops on the left, messages on the right");
    let table = read("core/src/ops/mod.rs");
    for (message, field) in &wire {
        assert_eq!(table.matches(&format!("\nmod {field};")).count(), 1, "one mod line for {field}");
        assert!(table.contains(message.as_str()), "{message} has a row");
    }
}
