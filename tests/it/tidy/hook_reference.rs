//! `docs/hooks.md` says what the operations table says.

use std::{fs, path::Path};

use muster_tests::hook_reference::hook_reference;

#[test]
fn the_hook_reference_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/hooks.md");
    let right = hook_reference();
    if std::env::var_os("MUSTER_UPDATE_DOCS").is_some() {
        fs::write(&path, &right).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == right, "docs/hooks.md is out of date: run this test once with MUSTER_UPDATE_DOCS=1");
}
