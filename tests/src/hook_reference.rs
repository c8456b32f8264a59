//! Writes `docs/hooks.md` from the operations table: directories, nodes and variables of each operation, as the
//! operations' own examples give them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use muster_core::{
    hooks::Phase,
    names::NodeName,
    ops::{Given, JobFacts, Op, Prepared, ROWS, all_examples},
};

const HEAD: &str = "# Hook reference\n\n\
    Generated from the operations table; a test compares it (`MUSTER_UPDATE_DOCS=1` in its environment writes it anew).\n\
    How scripts run and what their results mean stands in [the guide](guide.md).\n\n\
    Every variable has the prefix `GANETI_`. The node daemon adds `DATA_DIR`, `HOST_NAME`, `HOST_TYPE` and\n\
    `HOOK_KILL_TIMEOUT_S`; `HOOKS_PHASE` is `PRE` or `POST`. \"always\" means in all examples of the operation, which\n\
    cover its shapes; \"when given\" means in some of them.\n";

/// Variables that every operation has, with the same meaning.
const COMMON: [&str; 13] = [
    "CLUSTER",
    "DRY_RUN",
    "HOOKS_PATH",
    "HOOKS_VERSION",
    "JOB_ID",
    "JOB_REASON",
    "JOB_USER",
    "MASTER",
    "OBJECT_TYPE",
    "OP_CODE",
    "OP_ID",
    "OP_TARGET",
    "HOOKS_PHASE",
];

/// The whole document.
pub fn hook_reference() -> String {
    let mut examples: BTreeMap<&str, Vec<Prepared>> = BTreeMap::new();
    for (cluster, fresh, op) in all_examples() {
        let local =
            if let Op::MasterFailover(failover) = &op { &failover.new_master } else { &cluster.master };
        let given = Given { cluster: &cluster, fresh: &fresh, local, undone: &[] };
        let job = JobFacts { id: 17, user: "root", reason: "", dry_run: false };
        let prepared = op.prepare(given, &job).expect("an operation's own examples pass its check");
        examples.entry(op.row().op_id).or_default().push(prepared);
    }
    let mut text = HEAD.to_owned();
    for row in ROWS {
        let Some(hooks) = row.hooks else { continue };
        let prepared = &examples[row.op_id];
        let (pre, post) = (Phase::Pre.directory(hooks.prefix), Phase::Post.directory(hooks.prefix));
        write!(text, "\n## {}\n\n`{pre}`, `{post}`\n\n", row.op_id).expect("a String takes all");
        text += &format!("`OP_CODE` {}, `OBJECT_TYPE` {}. ", hooks.op_code, row.object.as_str());
        let nodes = &prepared[0].nodes;
        text += &format!("In an example with master {}: ", prepared[0].env.get("MASTER").unwrap_or_default());
        text += &format!("pre on {}; post on {}.\n\n", names(&nodes.pre), names(&nodes.post));
        text += &variables(prepared);
    }
    text
}

fn names(nodes: &[NodeName]) -> String {
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    names.join(", ")
}

fn variables(examples: &[Prepared]) -> String {
    let all: BTreeSet<&str> = examples.iter().flat_map(|p| p.env.iter().map(|(name, _)| name)).collect();
    let mut text = "| variable | set | example |\n|---|---|---|\n".to_owned();
    for name in all.into_iter().filter(|name| !COMMON.contains(name)) {
        let values: Vec<&str> = examples.iter().filter_map(|p| p.env.get(name)).collect();
        let set = if values.len() == examples.len() { "always" } else { "when given" };
        let value = values.iter().find(|value| !value.is_empty()).unwrap_or(&"");
        text += &format!("| {name} | {set} | `{value}` |\n");
    }
    text
}
