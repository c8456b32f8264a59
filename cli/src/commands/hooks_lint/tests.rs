//! What is seen of real files: each finding provoked in a directory, and what is right left alone.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Hooks {
    temp: tempfile::TempDir,
}

impl Hooks {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("hooks/instance-start-pre.d")).unwrap();
        set_mode(&temp.path().join("hooks"), 0o755);
        set_mode(&temp.path().join("hooks/instance-start-pre.d"), 0o755);
        Hooks { temp }
    }

    fn dir(&self) -> PathBuf {
        self.temp.path().join("hooks")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir().join("instance-start-pre.d").join(path)
    }

    fn file(&self, name: &str, text: &str, mode: u32) {
        fs::write(self.at(name), text).unwrap();
        set_mode(&self.at(name), mode);
    }

    /// `PATH RULE`, a line each.
    fn found(&self) -> Vec<String> {
        let own = rustix::process::geteuid().as_raw();
        let report = lint(&self.dir(), [0, own], HooksVersion::V1).unwrap();
        let line = |found: &Located| format!("{} {}", found.path.display(), found.finding.rule.code());
        report.findings.iter().map(line).collect()
    }

    #[track_caller]
    fn check(&self, right: &[&str]) {
        let right: Vec<String> = right.iter().map(|line| format!("instance-start-pre.d/{line}")).collect();
        assert_eq!(self.found(), right);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn modes_owners_and_interpreters() {
    let hooks = Hooks::new();
    hooks.file("10-good", "#!/bin/sh\n", 0o755);
    hooks.file("20-mode", "#!/bin/sh\n", 0o644);
    hooks.file("30-open", "#!/bin/sh\n", 0o757);
    hooks.file("40-none", "#!/nonexistent/sh\n", 0o755);
    hooks.file("50-env", "#!/usr/bin/env no-such-program\n", 0o755);
    hooks.file("60-env", "#!/usr/bin/env sh\n", 0o755);
    hooks.file("70-large", &"x".repeat(1024 * 1024 + 1), 0o755);
    hooks.check(&[
        "20-mode not-executable",
        "30-open writable",
        "40-none no-interpreter",
        "50-env no-interpreter",
    ]);
    set_mode(&hooks.dir(), 0o777);
    assert_eq!(hooks.found()[0], " writable");
    let report = lint(&hooks.dir(), [4_000_000_000, 4_000_000_001], HooksVersion::V1).unwrap();
    let owners = report.findings.iter().filter(|found| found.finding.rule == Rule::Owner).count();
    assert_eq!(owners, 2 + 7, "both directories and all files belong to somebody else then");
}

#[test]
fn links_and_what_is_no_file() {
    let hooks = Hooks::new();
    fs::create_dir(hooks.dir().join("lib")).unwrap();
    set_mode(&hooks.dir().join("lib"), 0o755);
    fs::write(hooks.dir().join("lib/all"), "#!/bin/sh\n").unwrap();
    set_mode(&hooks.dir().join("lib/all"), 0o755);
    symlink("../lib/all", hooks.at("10-inside")).unwrap();
    symlink("/bin/sh", hooks.at("20-outside")).unwrap();
    symlink("../lib/none", hooks.at("30-dangling")).unwrap();
    symlink("40-loop", hooks.at("40-loop")).unwrap();
    fs::create_dir(hooks.at("50-dir")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(hooks.at("60-socket")).unwrap();
    hooks.check(&[
        "20-outside link-outside",
        "30-dangling dangling-link",
        "40-loop dangling-link",
        "50-dir not-a-file",
        "60-socket not-a-file",
    ]);
    set_mode(&hooks.dir().join("lib"), 0o777);
    assert_eq!(hooks.found()[0], "instance-start-pre.d/10-inside writable", "its target can be exchanged");
}

#[test]
fn directories() {
    let hooks = Hooks::new();
    for name in ["instance-stop-pre.d", "lib"] {
        fs::create_dir(hooks.dir().join(name)).unwrap();
    }
    fs::write(hooks.dir().join("node-add-pre.d"), "").unwrap();
    fs::write(hooks.dir().join("notes"), "").unwrap();
    symlink("nowhere", hooks.dir().join("node-add-post.d")).unwrap();
    let elsewhere = hooks.temp.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    set_mode(&elsewhere, 0o755);
    symlink(&elsewhere, hooks.dir().join("node-remove-pre.d")).unwrap();
    let found = hooks.found();
    let right = [
        "instance-stop-pre.d unused-directory",
        "node-add-post.d dangling-link",
        "node-add-pre.d not-a-file",
        "node-remove-pre.d link-outside",
    ];
    assert_eq!(found, right);
    assert_eq!(lint(&hooks.dir().join("none"), [0, 0], HooksVersion::V1).unwrap_err().code(), 2);
    assert_eq!(lint(&hooks.dir().join("notes"), [0, 0], HooksVersion::V1).unwrap_err().code(), 2);
}
