//! Writes `docs/hooks.md` from the operations table: directories, nodes and variables of each operation in both versions
//! of the interface, as the operations' own examples give them; and reads its tables, for tests that compare them with
//! what scripts really see.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{
    hooks::{HooksVersion, Phase},
    names::NodeName,
    ops::AFTER_VARIABLES,
    reference::{
        OperationHooks, PointHooks, PointKind, Presence, Reference, after_in_global, common_variables,
        described_name,
    },
};

const HEAD: &str = "# Hook reference\n\n\
    Generated from the operations table; a test compares it (`MUSTER_UPDATE_DOCS=1` in its environment writes it anew).\n\
    How scripts run and what their results mean stands in [the guide](guide.md).\n\n\
    A cluster has one version of the interface, 1 unless `gnt-cluster modify --hooks-version 2` was said. Version 1 is that\n\
    of this project's specification; version 2 has the codes, directories, variables and nodes that scripts written for\n\
    Ganeti 2 and 3 expect. `gnt-cluster master-failover` runs no hooks of its own in version 2, as in Ganeti 3.\n\n\
    Every variable has the prefix `GANETI_`. \"always\" means in all examples of the operation, which cover its shapes;\n\
    \"when given\" means in some of them; \"for each\" means one variable for each disk, network card or node: `n` counts\n\
    from 0, without gaps, and `name` is the node's name; \"for each in a network\" means one for each network card that is in\n\
    a network, and none for the others. In version 2 post scripts have those marked \"yes\" once more, with the prefix\n\
    `GANETI_POST_`: what the operation is about as it was left (what was removed: as it was last).\n\n\
    ## Every operation, in both versions\n\n";

const AFTER_HEAD: &str = "\n## After every operation\n\n\
    In scripts of `global-post.d` (on the master, at the end of every job) and of `PREFIX-failed.d` (on the nodes that were\n\
    asked, after an operation that was denied or failed), and in version 2 in an operation's own post scripts. In version 1\n\
    those see what the pre scripts saw, but for the phase. Scripts of a failure have all of them.\n\n";

const POINTS_HEAD: &str = "\n## Other hook points\n\n\
    The same in both versions. Each table has all variables of the directory; what is not in it is not there, so that a script\n\
    with `set -u` ends where it reads it. `gnt-hooks lint` knows these tables too.\n";

const POINTS_GLOBAL: &str =
    "Beside these, the operation's own variables, where it has hooks of its own in the cluster's version";
const POINTS_GLOBAL_POST: &str = ", and in version 2 after a success\n\
    those with the prefix `GANETI_POST_`. None of them is there after a job that was refused, or was over before it began";

/// The heading of a version's part.
fn version_heading(version: HooksVersion) -> String {
    format!("## Interface version {version}")
}

/// The whole document.
pub fn hook_reference() -> String {
    let mut text = HEAD.to_owned();
    text += "| variable | set | meaning |\n|---|---|---|\n";
    for (name, presence, meaning) in common_variables() {
        text += &format!("| {name} | {} | {meaning} |\n", presence.words(name));
    }
    text += AFTER_HEAD;
    text += "| variable | in post scripts | in global-post.d | meaning |\n|---|---|---|---|\n";
    for (name, meaning, with_success) in AFTER_VARIABLES {
        let told =
            HooksVersion::ALL.into_iter().filter(|version| with_success && version.tells_of_job(Phase::Post));
        let told: Vec<&str> = told.map(HooksVersion::value).collect();
        let told =
            if told.is_empty() { "no".to_owned() } else { format!("of version {}", told.join(" and ")) };
        text += &format!("| {name} | {told} | {} | {meaning} |\n", after_in_global(name).1);
    }
    text += POINTS_HEAD;
    for point in muster_core::reference::points() {
        text += &point_section(&point);
    }
    for version in HooksVersion::ALL {
        text += &format!("\n{}\n", version_heading(version));
        for operation in Reference::new(version).operations {
            text += &section(&operation);
        }
    }
    text
}

fn names(nodes: &[NodeName]) -> String {
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    if names.is_empty() { "no node".to_owned() } else { names.join(", ") }
}

fn section(operation: &OperationHooks) -> String {
    let directories: Vec<String> = operation
        .phases()
        .into_iter()
        .map(|phase| format!("`{}`", phase.directory(operation.prefix)))
        .collect();
    let mut text = format!("\n### {}\n\n{}\n\n", operation.op_id, directories.join(", "));
    text += &format!("{}. ", operation.commands);
    text += &format!("`OP_CODE` {}, `OBJECT_TYPE` {}. ", operation.op_code, operation.object);
    text += &format!("pre on {}; post on {}. ", operation.pre_on, operation.post_on);
    let (env, nodes) = (&operation.example.env, &operation.example.nodes);
    text += &format!("In an example with master {}: ", env.get("MASTER").unwrap_or_default());
    text += &format!("pre on {}; post on {}.\n\n", names(&nodes.pre), names(&nodes.post));
    text += "| variable | set | POST_ | example | meaning |\n|---|---|---|---|---|\n";
    for variable in &operation.own {
        let set = variable.presence.words(variable.name);
        let restated = if variable.restated { "yes" } else { "" };
        text += &format!(
            "| {} | {set} | {restated} | `{}` | {} |\n",
            variable.name, variable.example, variable.meaning
        );
    }
    text
}

fn point_section(point: &PointHooks) -> String {
    let mut text = format!("\n### {}\n\nRun {}.\n\n", point.directory, point.when);
    text += "| variable | set | meaning |\n|---|---|---|\n";
    for (name, presence, meaning) in &point.variables {
        let set = match (point.kind, presence) {
            (PointKind::Global, Presence::Sometimes)
                if AFTER_VARIABLES.iter().any(|(after, ..)| after == name) =>
            {
                after_in_global(name).1
            }
            (PointKind::Global | PointKind::Event | PointKind::Sync, _) => presence.words(name),
        };
        text += &format!("| {name} | {set} | {meaning} |\n");
    }
    if point.kind == PointKind::Global {
        let more = if point.phase == Phase::Post { POINTS_GLOBAL_POST } else { "" };
        text += &format!("\n{POINTS_GLOBAL}{more}.\n");
    }
    text
}

/// When a variable is there, as the document says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// In every run.
    Always,
    /// For each disk, network card or node.
    ForEach,
    /// For each network card that is in a network.
    ForEachInNetwork,
    /// In some runs.
    Sometimes,
}

impl Said {
    fn of(words: &str) -> Self {
        match words {
            "always" => Said::Always,
            "for each" => Said::ForEach,
            "for each in a network" => Said::ForEachInNetwork,
            _ => Said::Sometimes,
        }
    }
}

/// One table of the document: names as they are described, with when they are set.
pub type Table = BTreeMap<String, Said>;

/// What the document says of one operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Documented {
    /// `GANETI_OP_CODE`.
    pub op_code: String,
    /// The names of its directories.
    pub directories: BTreeSet<String>,
    /// Before, without what every operation has.
    pub pre: Table,
    /// After, without what every operation has.
    pub post: Table,
}

/// The document's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// Of every operation.
    pub common: Table,
    /// Of every operation, after it, with the versions whose post scripts have it; scripts of a failure have it in all.
    pub after: BTreeMap<String, String>,
    /// By the directory: of points beside those of operations, for global ones without the operation's own.
    pub points: BTreeMap<String, Table>,
    /// By the version's number and `GANETI_OP_ID`.
    pub operations: BTreeMap<(String, String), Documented>,
}

impl Document {
    /// Reads the text of `docs/hooks.md`; it must have the form that [`hook_reference`] gives it.
    pub fn read(text: &str) -> Self {
        let mut document = Document::default();
        let (mut part, mut heading) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("## ") {
                name.clone_into(&mut part);
                heading.clear();
            } else if let Some(name) = line.strip_prefix("### ") {
                name.clone_into(&mut heading);
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let version = part.strip_prefix("Interface version ");
            match (version, &cells[..]) {
                (Some(version), _) if !heading.is_empty() => {
                    let key = (version.to_owned(), heading.clone());
                    document.operations.entry(key).or_default().read(line, &cells);
                }
                (None, ["", name, set, _, _, ""]) if part.starts_with("After ") && is_variable(name) => {
                    document.after.insert((*name).to_owned(), (*set).to_owned());
                }
                (None, ["", name, set, _, ""]) if is_variable(name) => {
                    let table = if heading.is_empty() {
                        &mut document.common
                    } else {
                        document.points.entry(heading.clone()).or_default()
                    };
                    table.insert((*name).to_owned(), Said::of(set));
                }
                _ => {}
            }
        }
        document
    }

    /// What scripts of an operation have in a phase: all names as they are described, with when they are set.
    pub fn variables(&self, version: HooksVersion, op_id: &str, phase: Phase) -> Option<Table> {
        let operation = self.operations.get(&(version.value().to_owned(), op_id.to_owned()))?;
        let own = match phase {
            Phase::Pre | Phase::Failed => &operation.pre,
            Phase::Post => &operation.post,
        };
        let after = self.after.iter().filter(|(_, post)| match phase {
            Phase::Pre => false,
            Phase::Post => post.split_whitespace().any(|word| word == version.value()),
            Phase::Failed => true,
        });
        let after = after.map(|(name, _)| (name.clone(), Said::Always));
        let all = self.common.iter().chain(own).map(|(name, said)| (name.clone(), *said));
        Some(all.chain(after).collect())
    }
}

fn is_variable(cell: &str) -> bool {
    !cell.is_empty() && cell != "variable" && !cell.starts_with('-')
}

impl Documented {
    fn read(&mut self, line: &str, cells: &[&str]) {
        if line.starts_with('`') {
            self.directories = line.split(", ").map(|name| name.trim_matches('`').to_owned()).collect();
        } else if let Some((_, rest)) = line.split_once("`OP_CODE` ") {
            self.op_code = rest.split(',').next().unwrap_or_default().to_owned();
        } else if let ["", name, set, restated, _, _, ""] = cells[..]
            && is_variable(name)
        {
            for table in [&mut self.pre, &mut self.post] {
                table.insert(name.to_owned(), Said::of(set));
            }
            if restated == "yes" {
                self.post.insert(format!("POST_{name}"), Said::of(set));
            }
        }
    }
}

/// A described name's parts around the number, `POST_INSTANCE_NIC` and `_IP`.
fn around_number(described: &str) -> Option<(&str, &str)> {
    ["NICn_", "DISKn_"].iter().find_map(|middle| {
        let number = described.find(middle)? + middle.len() - 2;
        Some((&described[..number], &described[number + 1..]))
    })
}

/// Of one of many: variables that are there for one disk or network card, and those of it that are not there although they
/// are documented for each. Of those of a network all are there, or none.
fn holes(documented: &Table, names: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let parts = || documented.iter().filter_map(|(name, said)| Some((around_number(name)?, *said)));
    let has = |stem: &str, number: usize, rest: &str| {
        let name = format!("{stem}{number}{rest}");
        names.contains(&name)
    };
    for number in 0.. {
        let there: BTreeSet<(&str, bool)> = parts()
            .filter(|((stem, rest), _)| has(stem, number, rest))
            .map(|((stem, _), said)| (stem, said == Said::ForEachInNetwork))
            .collect();
        if there.is_empty() {
            return found;
        }
        for ((stem, rest), said) in parts() {
            let is_due = match said {
                Said::ForEach => there.iter().any(|(other, _)| *other == stem),
                Said::ForEachInNetwork => there.contains(&(stem, true)),
                Said::Always | Said::Sometimes => false,
            };
            if is_due && !has(stem, number, rest) {
                found.push(format!("{stem}n{rest} is not set for each"));
            }
        }
    }
    found
}

/// Compares what scripts of an operation saw with what is documented, both ways; the names are without prefix. Every
/// list is one script's variables, and together they must show all that is documented unless `some` is enough.
pub fn differences(documented: &Table, exported: &[Vec<String>], some: bool) -> Vec<String> {
    let described = |name: &String| match name.strip_prefix("POST_") {
        Some(rest) if documented.contains_key(&format!("POST_{}", described_name(rest))) => {
            format!("POST_{}", described_name(rest))
        }
        Some(_) | None => described_name(name).into_owned(),
    };
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for names in exported {
        found.extend(holes(documented, names));
        let names: BTreeSet<String> = names.iter().map(described).collect();
        found.extend(
            names
                .iter()
                .filter(|name| !documented.contains_key(*name))
                .map(|name| format!("{name} is not documented")),
        );
        let always = documented.iter().filter(|(_, said)| **said == Said::Always);
        found.extend(
            always
                .filter(|(name, _)| !names.contains(*name))
                .map(|(name, _)| format!("{name} is not always set")),
        );
        seen.extend(names);
    }
    if !some {
        let missing = documented.keys().filter(|name| !seen.contains(*name));
        found.extend(missing.map(|name| format!("{name} is never set")));
    }
    found.sort();
    found.dedup();
    found
}
