//! Writes `docs/hooks.md` from the operations table: directories, nodes and variables of each operation, as the
//! operations' own examples give them.

use muster_core::{
    hooks::Phase,
    names::NodeName,
    reference::{OperationHooks, Presence, Reference, common_variables},
};

const HEAD: &str = "# Hook reference\n\n\
    Generated from the operations table; a test compares it (`MUSTER_UPDATE_DOCS=1` in its environment writes it anew).\n\
    How scripts run and what their results mean stands in [the guide](guide.md).\n\n\
    Every variable has the prefix `GANETI_`. \"always\" means in all examples of the operation, which cover its shapes;\n\
    \"when given\" means in some of them.\n\n\
    ## Every operation\n\n";

/// The whole document.
pub fn hook_reference() -> String {
    let mut text = HEAD.to_owned();
    text += "| variable | set | meaning |\n|---|---|---|\n";
    for (name, presence, meaning) in common_variables() {
        text += &format!("| {name} | {} | {meaning} |\n", words(presence));
    }
    for operation in Reference::new().operations {
        text += &section(&operation);
    }
    text
}

fn words(presence: Presence) -> &'static str {
    match presence {
        Presence::Always => "always",
        Presence::Sometimes => "when given",
    }
}

fn names(nodes: &[NodeName]) -> String {
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    names.join(", ")
}

fn section(operation: &OperationHooks) -> String {
    let (pre, post) = (Phase::Pre.directory(operation.prefix), Phase::Post.directory(operation.prefix));
    let mut text = format!("\n## {}\n\n`{pre}`, `{post}`\n\n", operation.op_id);
    text += &format!("{}. ", operation.commands);
    text += &format!("`OP_CODE` {}, `OBJECT_TYPE` {}. ", operation.op_code, operation.object);
    text += &format!("pre on {}; post on {}. ", operation.pre_on, operation.post_on);
    let (env, nodes) = (&operation.example.env, &operation.example.nodes);
    text += &format!("In an example with master {}: ", env.get("MASTER").unwrap_or_default());
    text += &format!("pre on {}; post on {}.\n\n", names(&nodes.pre), names(&nodes.post));
    text += "| variable | set | example | meaning |\n|---|---|---|---|\n";
    for variable in &operation.own {
        let set = words(variable.presence);
        text += &format!("| {} | {set} | `{}` | {} |\n", variable.name, variable.example, variable.meaning);
    }
    text
}
