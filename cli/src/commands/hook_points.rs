//! What `gnt-hooks init` writes of hook points beside an operation's own directories.

use muster_core::{
    hooks::Phase,
    ops::AFTER_VARIABLES,
    reference::{OperationHooks, PointKind, PointVariable, Presence, Reference, common_variables},
};

/// A disabled example: it does nothing.
pub(super) const EXAMPLE_TEXT: &str = "\
#!/bin/sh
# An example; rename it to 10-example to have it run. What it prints is kept with its result.
env | grep '^GANETI_' | sort
exit 0
";

/// What a README says below the table of a global directory.
const OF_THE_OPERATION: &str = "
Beside these there are the operation's own variables, where it has hooks of its own. They are absent after a job that was
refused, or was over before it began.
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
        all.push((name.clone(), readme(&name, &when, &after(operation))));
    }
    for point in &reference.points {
        let when = format!("Executables here are run {}.", point.when);
        let mut text = readme(&point.directory, &when, &point.variables);
        if point.kind == PointKind::Global {
            text += OF_THE_OPERATION;
        }
        all.push((point.directory.clone(), text));
    }
    all
}

/// Those of every operation, and those of its end.
fn after(operation: &OperationHooks) -> Vec<PointVariable> {
    let own = operation.own.iter().map(|variable| (variable.name, variable.presence, variable.meaning));
    let after = AFTER_VARIABLES.iter().map(|(name, meaning, _)| (*name, Presence::Always, *meaning));
    own.chain(after).chain(common_variables()).collect()
}

fn readme(name: &str, when: &str, variables: &[PointVariable]) -> String {
    let mut text = format!("# {name}\n\n{when}\n");
    text +=
        "\nVariables, each with GANETI_ before its name:\n\n| variable | set | meaning |\n|---|---|---|\n";
    for (variable, presence, meaning) in variables {
        text += &format!("| {variable} | {} | {meaning} |\n", presence.words(variable));
    }
    text
}
