//! `docs/hooks.md` says what the operations table says, and what scripts see is what it says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use muster_core::{
    hooks::{Env, HooksVersion, Phase},
    ops::{
        AFTER_VARIABLES, EVENT_POINTS, ROWS, SYNC_PREFIX, SYNC_VARIABLES, event_env, examples,
        point_directories, sync_env,
    },
    reference::prepared_examples,
};
use muster_tests::hook_reference::{Document, Said, differences, hook_reference};

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

/// The document as it stands in the repository.
pub(crate) fn documented() -> Document {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/hooks.md");
    Document::read(&fs::read_to_string(path).unwrap())
}

/// What scripts of all examples have in a phase, by `OP_ID`: in a dry run and without.
fn exported(version: HooksVersion, phase: Phase) -> BTreeMap<&'static str, Vec<Vec<String>>> {
    let mut all: BTreeMap<&str, Vec<Vec<String>>> = BTreeMap::new();
    for dry_run in [false, true] {
        for (op_id, prepared) in prepared_examples(version, dry_run) {
            let row = ROWS.iter().find(|row| row.op_id == op_id).unwrap();
            if !row.runs_in(version, phase) {
                continue;
            }
            let env = prepared.env_in(phase).on_node("node1", Some("/d")).for_script(1);
            let mut names: Vec<String> = env.iter().map(|(name, _)| name.to_owned()).collect();
            if version.tells_of_job(phase) {
                let after = AFTER_VARIABLES.iter().filter(|(.., with_success)| *with_success);
                names.extend(after.map(|(name, ..)| (*name).to_owned()));
            }
            all.entry(op_id).or_default().push(names);
        }
    }
    all
}

#[test]
fn e1_what_is_documented_is_what_is_exported_in_both_versions_and_phases() {
    let document = documented();
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for version in HooksVersion::ALL {
        for phase in [Phase::Pre, Phase::Post] {
            for (op_id, lists) in exported(version, phase) {
                let key = (version.value().to_owned(), op_id.to_owned());
                let Some(table) = document.variables(version, op_id, phase) else {
                    found.push(format!("{key:?} is not documented"));
                    continue;
                };
                let row = ROWS.iter().find(|row| row.op_id == op_id).unwrap();
                let documented = &document.operations[&key];
                let directory = phase.directory(row.prefix_in(version).unwrap());
                assert!(documented.directories.contains(&directory), "{directory} in version {version}");
                assert_eq!(documented.op_code, row.code_in(version), "{key:?}");
                let differ = differences(&table, &lists, false);
                found.extend(
                    differ.iter().map(|text| format!("version {version}, {phase:?} of {op_id}: {text}")),
                );
                seen.insert(key);
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    let documented: BTreeSet<_> = document.operations.keys().cloned().collect();
    assert_eq!(documented, seen, "operations that are documented, and that run hooks");
}

/// What is there for the points that a core function makes the environment of.
#[test]
fn what_is_documented_of_other_points_is_what_their_environments_have() {
    let document = documented();
    let directories: BTreeSet<String> = point_directories().collect();
    assert_eq!(document.points.keys().cloned().collect::<BTreeSet<_>>(), directories);
    let cluster = examples::cluster();
    let own = |names: &[(&str, &str)]| names.iter().fold(Env::new(), |env, (name, _)| env.set(name, ""));
    let events = EVENT_POINTS.iter().map(|point| {
        (Phase::Post.directory(point.prefix), event_env(point.prefix, &cluster, own(point.own)))
    });
    let sync = (Phase::Pre.directory(SYNC_PREFIX), sync_env(&cluster, "root").with(own(&SYNC_VARIABLES)));
    for (directory, env) in events.chain([sync]) {
        let env = env.on_node("node1", Some("/d")).for_script(1);
        let names: Vec<String> = env.iter().map(|(name, _)| name.to_owned()).collect();
        let found = differences(&document.points[&directory], &[names], false);
        assert!(found.is_empty(), "{directory}: {found:?}");
    }
}

#[test]
fn differences_are_seen_both_ways() {
    let (always, each, network) = (Said::Always, Said::ForEach, Said::ForEachInNetwork);
    let table = [
        ("A", always),
        ("INSTANCE_NICn_IP", each),
        ("INSTANCE_NICn_MAC", each),
        ("INSTANCE_NICn_NETWORK_NAME", network),
        ("INSTANCE_NICn_NETWORK_UUID", network),
        ("POST_INSTANCE_NICn_IP", each),
        ("B", Said::Sometimes),
    ];
    let table = table.map(|(name, said)| (name.to_owned(), said)).into();
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let card =
        |number: u32| list(&[&format!("INSTANCE_NIC{number}_IP"), &format!("INSTANCE_NIC{number}_MAC")]);
    let networks = list(&["INSTANCE_NIC0_NETWORK_NAME", "INSTANCE_NIC0_NETWORK_UUID"]);
    let full = [list(&["A", "B", "POST_INSTANCE_NIC0_IP"]), card(0), networks, card(1)].concat();
    assert_eq!(differences(&table, std::slice::from_ref(&full), false), Vec::<String>::new());
    assert_eq!(
        differences(&table, &[full, list(&["B", "C"])], false),
        ["A is not always set", "C is not documented"]
    );
    assert_eq!(differences(&table, &[list(&["A"])], true), Vec::<String>::new());
    let some = list(&["A", "INSTANCE_NIC0_IP", "INSTANCE_NIC0_NETWORK_UUID"]);
    assert_eq!(
        differences(&table, &[some], true),
        ["INSTANCE_NICn_MAC is not set for each", "INSTANCE_NICn_NETWORK_NAME is not set for each"]
    );
    let missing = differences(&table, &[list(&["A", "B"])], false);
    assert_eq!(missing.len(), 5, "{missing:?}");
    assert_eq!(missing[0], "INSTANCE_NICn_IP is never set");
}
