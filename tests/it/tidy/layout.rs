//! Which crate may use which, and the pages that describe it.

use std::collections::BTreeSet;

use super::files::{read, top};

/// Crate, what it may use of this workspace, in the order of the layers.
const USES: [(&str, &[&str]); 8] = [
    ("core", &[]),
    ("proto", &["core"]),
    ("hooksrv", &["core", "proto"]),
    ("noded", &["core", "proto", "hooksrv"]),
    ("master", &["core", "proto"]),
    ("cli", &["core", "proto"]),
    ("tests/sim", &["core", "hooksrv", "master"]),
    ("tests", &["core", "proto", "hooksrv", "noded", "master", "cli", "sim"]),
];

/// All that `core` depends on.
const CORE_DEPENDENCIES: [&str; 3] = ["serde", "thiserror", "uuid"];

fn manifest(name: &str) -> toml::Table {
    read(&format!("{name}/Cargo.toml")).parse().unwrap()
}

fn dependencies(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    manifest
        .get(section)
        .and_then(|table| table.as_table())
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn dependencies_run_one_way() {
    for (name, allowed) in USES {
        let manifest = manifest(name);
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for used in dependencies(&manifest, section) {
                if let Some(used) = used.strip_prefix("muster-") {
                    assert!(allowed.contains(&used), "{name} must not use {used} ({section})");
                }
            }
        }
    }
}

#[test]
fn core_depends_on_next_to_nothing() {
    let manifest = manifest("core");
    let allowed: BTreeSet<String> = CORE_DEPENDENCIES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(dependencies(&manifest, "dependencies"), allowed);
    let uuid = manifest["dependencies"]["uuid"].to_string();
    assert!(!uuid.contains("\"v4\"") && !uuid.contains("\"v7\""), "core draws no random numbers: {uuid}");
}

#[test]
fn every_crate_is_listed_and_takes_versions_and_lints_from_the_workspace() {
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let members: BTreeSet<&str> = members.iter().map(|member| member.as_str().unwrap()).collect();
    assert_eq!(members, USES.iter().map(|(name, _)| *name).collect());
    for (name, _) in USES {
        let manifest = manifest(name);
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{name} has the workspace's lints");
        assert_eq!(
            manifest["package"]["name"].as_str(),
            Some(format!("muster-{}", name.trim_start_matches("tests/")).as_str())
        );
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let Some(table) = manifest.get(section).and_then(|table| table.as_table()) else { continue };
            for (used, how) in table {
                let inherited = how.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                assert!(inherited, "{name}: the version of {used} stands in the workspace");
            }
        }
    }
}

/// One page: what fits on two screens.
const ARCHITECTURE_LINES_MAX: usize = 120;

#[test]
fn the_architecture_is_one_page_and_names_every_crate() {
    let text = read("ARCHITECTURE.md");
    assert!(text.lines().count() <= ARCHITECTURE_LINES_MAX, "{} lines", text.lines().count());
    for (name, _) in USES {
        assert!(text.contains(&format!("`{name}")), "{name} is not in it");
    }
}

#[test]
fn pages_name_files_that_are_there() {
    for page in ["README.md", "ARCHITECTURE.md", "docs/guide.md", "deploy/examples/hooks/README.md"] {
        let text = read(page);
        let dir = top().join(page).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            assert!(file.is_empty() || dir.join(file).exists(), "{page} names {link}");
        }
    }
}
