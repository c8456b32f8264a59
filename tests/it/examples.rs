//! The example hooks in `deploy/examples/hooks`, each run as a node daemon runs it, and installed in a cluster.

use std::fs;
use std::path::Path;
use std::process::Command;

use muster_core::{hooks::HooksVersion, ops::used_directories};

use crate::cluster::{Cluster, Output, run};

fn install(hooks: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples/hooks/install.sh");
    let mut command = Command::new(script);
    command.arg(hooks);
    run(command).exits(0);
}

/// Runs an installed script with a cleared environment.
fn hook(hooks: &Path, entry: &str, version: &str, more: &[(&str, &str)]) -> Output {
    let mut command = Command::new(hooks.join(entry));
    command.env_clear().env("PATH", "/sbin:/bin:/usr/sbin:/usr/bin").current_dir("/");
    command.env("GANETI_HOOKS_VERSION", version).env("GANETI_HOST_NAME", "node1");
    for (name, value) in more {
        command.env(format!("GANETI_{name}"), value);
    }
    run(command)
}

#[test]
fn the_allow_list_allows_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    let entry = "instance-add-pre.d/10-allow-list";
    // List, instance, exit code.
    let table = [
        (None, "db1", 0),
        (Some(""), "db1", 1),
        (Some("web1\ndb1\n"), "db1", 0),
        (Some("web1\ndb1"), "db1", 0),
        (Some("# db1\n\nweb*\n"), "db1", 1),
        (Some("# db1\n\nweb*\n"), "web17", 0),
        (Some("web\n"), "web17", 1),
    ];
    for (list, instance, code) in table {
        let file = dir.path().join("allowed-instances");
        match list {
            Some(text) => fs::write(file, text).unwrap(),
            None => assert!(!file.exists()),
        }
        let output = hook(dir.path(), entry, "1", &[("INSTANCE_NAME", instance)]);
        assert_eq!(output.status.code(), Some(code), "{list:?} {instance}: {output}");
        assert!(code == 0 || output.stdout.contains(instance), "{output}");
    }
    // A guard guards in both versions, and doesn't guess in one that it doesn't know.
    hook(dir.path(), entry, "2", &[("INSTANCE_NAME", "db1")]).exits(1).says(&["db1 is not on the list"]);
    hook(dir.path(), entry, "3", &[("INSTANCE_NAME", "web")]).exits(1).says(&["version 3"]);
}

#[test]
fn the_maintenance_window_opens_and_closes() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    // Windows, exit code whatever the time is.
    let table = [
        (None, 0),
        (Some("# none\n"), 1),
        (Some("1-7 0000-2400\n"), 0),
        (Some("1-3 0000-2400\n4-7 0000-2400"), 0),
        (Some("1-7 0000-0000\n"), 1),
        (Some("1-7 0000-0815\n1-7 0815-2400\n"), 0),
    ];
    for (windows, code) in table {
        let file = dir.path().join("maintenance-windows");
        match windows {
            Some(text) => fs::write(file, text).unwrap(),
            None => assert!(!file.exists()),
        }
        for (version, directory) in [
            ("1", "instance-shutdown"),
            ("1", "instance-failover"),
            ("1", "instance-remove"),
            ("1", "mirror-replace"),
            ("2", "instance-stop"),
            ("2", "instance-failover"),
            ("2", "instance-remove"),
            ("2", "instance-reboot"),
            ("2", "instance-reinstall"),
            ("2", "instance-move"),
            ("2", "mirrors-replace"),
        ] {
            let about = [("OP_ID", "OP_INSTANCE_SHUTDOWN"), ("OP_TARGET", "web1")];
            let output =
                hook(dir.path(), &format!("{directory}-pre.d/20-maintenance-window"), version, &about);
            assert_eq!(output.status.code(), Some(code), "{windows:?}: {output}");
        }
    }
}

#[test]
fn they_stand_in_the_directories_of_both_versions() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    for version in HooksVersion::ALL {
        for name in used_directories(version).filter(|name| name.ends_with("-post.d")) {
            assert!(dir.path().join(&name).join("90-audit-log").exists(), "{name} of version {version}");
        }
    }
}

#[test]
fn the_audit_log_is_one_line_for_each_operation() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    let about = [
        ("JOB_ID", "12"),
        ("OP_ID", "OP_NODE_ADD"),
        ("OP_TARGET", "node4"),
        ("JOB_USER", "root"),
        ("JOB_REASON", "two\nlines"),
    ];
    for _ in 0..2 {
        hook(dir.path(), "node-add-post.d/90-audit-log", "1", &about).exits(0);
    }
    let log = fs::read_to_string(dir.path().join("audit.log")).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    let end = " job=12 op=OP_NODE_ADD target=node4 by=root reason=\"two lines\"";
    assert!(lines.iter().all(|line| line.ends_with(end)), "{log}");
}

#[test]
fn a_cluster_runs_them() {
    let cluster = Cluster::up(2);
    for node in 1..=2 {
        install(&cluster.node_dir(node).join("hooks"));
    }
    fs::write(cluster.node_dir(1).join("hooks/allowed-instances"), "web*\n").unwrap();
    cluster.gnt("instance add -t diskless -n node2 -o none db1").exits(1).says(&[
        "10-allow-list",
        "db1",
        "node1",
    ]);
    cluster.ok("instance add -t diskless -n node2 -o none --reason first web1");
    for node in 1..=2 {
        let log = fs::read_to_string(cluster.node_dir(node).join("hooks/audit.log")).unwrap();
        assert!(log.contains("op=OP_INSTANCE_ADD target=web1") && log.contains("reason=\"first\""), "{log}");
    }
    cluster.ok("cluster modify --hooks-version 2");
    cluster.gnt("instance add -t diskless -n node2 -o none db1").exits(1).says(&["10-allow-list", "db1"]);
    fs::write(cluster.node_dir(1).join("hooks/maintenance-windows"), "# none\n").unwrap();
    cluster.gnt("instance stop web1").exits(1).says(&["20-maintenance-window"]);
    let hooks = cluster.ok("hooks list");
    hooks.says(&["10-allow-list", "20-maintenance-window", "90-audit-log", "node2"]);
}
