//! What `gnt-hooks init` writes of hook points beside an operation's own directories.

use muster_core::{
    hooks::Phase,
    ops::{AFTER_VARIABLES, EVENT_POINTS, GLOBAL_PREFIX, SYNC_PREFIX, SYNC_VARIABLES},
    reference::Reference,
};

/// A disabled example: it does nothing.
pub(super) const EXAMPLE_TEXT: &str = "\
#!/bin/sh
# An example; rename it to 10-example to have it run. What it prints is kept with its result.
env | grep '^GANETI_' | sort
exit 0
";

/// Each directory with its README.
pub(super) fn directories(reference: &Reference) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for operation in &reference.operations {
        let name = Phase::Failed.directory(operation.prefix);
        let when = format!(
            "Executables here are run after {} ({}) was denied or failed, on {}. They change nothing of it.",
            operation.op_id, operation.commands, operation.pre_on
        );
        all.push((name.clone(), readme(&name, &when, &after())));
    }
    let pre = Phase::Pre.directory(GLOBAL_PREFIX);
    let when = "Executables here are run before every operation, on the master, before the operation's own. An error \
                denies the operation.";
    all.push((pre.clone(), readme(&pre, when, &[])));
    let post = Phase::Post.directory(GLOBAL_PREFIX);
    let when = "Executables here are run once at the end of every job, however it ended, on the master. Nobody's locks \
                are held meanwhile.";
    all.push((post.clone(), readme(&post, when, &after())));
    for point in EVENT_POINTS {
        let name = Phase::Post.directory(point.prefix);
        let when = format!("Executables here are run on the master {}. They change nothing.", point.when);
        all.push((name.clone(), readme(&name, &when, point.own)));
    }
    let sync = Phase::Pre.directory(SYNC_PREFIX);
    let when = "Executables here are run on each node before it uses another set of the cluster's own hooks (gnt-hooks \
                sync). An error keeps the set that the node has; on the master's node it keeps the set of all nodes.";
    all.push((sync.clone(), readme(&sync, when, &SYNC_VARIABLES)));
    all
}

fn after() -> Vec<(&'static str, &'static str)> {
    AFTER_VARIABLES.iter().map(|(name, meaning, _)| (*name, *meaning)).collect()
}

fn readme(name: &str, when: &str, variables: &[(&str, &str)]) -> String {
    let mut text = format!("# {name}\n\n{when}\n");
    if !variables.is_empty() {
        text += "\nVariables, each with GANETI_ before its name:\n\n| variable | meaning |\n|---|---|\n";
        for (variable, meaning) in variables {
            text += &format!("| {variable} | {meaning} |\n");
        }
    }
    text
}
