//! Every rule with what it finds and what it leaves alone.

use super::*;

fn file(content: &str) -> File {
    let access = Access::default();
    File { executable: true, no_exec_mount: false, access, content: Some(content.as_bytes().to_vec()) }
}

fn entry(name: &str, kind: Kind) -> Entry {
    Entry { name: name.as_bytes().to_vec(), kind, leads_outside: None }
}

/// This host has a shell, an env, and python3 in the scripts' PATH.
fn is_there(interpreter: Interpreter<'_>) -> bool {
    match interpreter {
        Interpreter::Path(path) => [&b"/bin/sh"[..], b"/bin/bash", b"/usr/bin/env"].contains(&path),
        Interpreter::Searched(name) => name == b"python3" || name == b"bash",
    }
}

fn found(directory: &str, entry: &Entry) -> Vec<Finding> {
    Linter::new().entry(directory, entry, &is_there)
}

fn codes(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.rule.code()).collect()
}

/// Checks an entry of `instance-start-pre.d`.
#[track_caller]
fn check(entry: &Entry, rules: &[Rule]) -> Vec<Finding> {
    let findings = found("instance-start-pre.d", entry);
    let found: Vec<Rule> = findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(found, rules, "{findings:?}");
    findings
}

/// Checks a script of `instance-start-pre.d` by its content.
#[track_caller]
fn check_content(content: &str, rules: &[Rule]) -> Vec<Finding> {
    check(&entry("10-x", Kind::File(file(content))), rules)
}

#[test]
fn every_rule_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.code()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
}

#[test]
fn names() {
    let script = || Kind::File(file("#!/bin/sh\n"));
    for (name, right) in [
        ("10-x.sh", "10-x"),
        ("check.py", "check"),
        ("a b", "a-b"),
        ("10-x~", "10-x"),
        (".hidden", "hidden"),
        ("...", "10-script"),
    ] {
        let findings = check(&entry(name, script()), &[Rule::BadName]);
        assert!(findings[0].right.starts_with(&format!("{right}, ")), "{name}: {}", findings[0].right);
    }
    let not_executable = File { executable: false, ..file("echo\n") };
    check(
        &entry("10-x.sh", Kind::File(not_executable.clone())),
        &[Rule::BadName, Rule::NotExecutable, Rule::NoInterpreter],
    );
    for good in ["10-x", "A_b-9"] {
        check(&entry(good, script()), &[]);
    }
    check(&entry("10-x.disabled", Kind::File(file("$GANETI_X"))), &[]);
    check(&entry("README.md", Kind::File(not_executable)), &[]);
}

#[test]
fn execute_bits_and_mounts() {
    let file = file("#!/bin/sh\n");
    let not_executable = Kind::File(File { executable: false, ..file.clone() });
    check(&entry("10-x", not_executable), &[Rule::NotExecutable]);
    let text = Kind::File(File { executable: false, content: Some(b"Notes.\n".to_vec()), ..file.clone() });
    check(&entry("README", text), &[]);
    check(&entry("10-x", Kind::File(File { no_exec_mount: true, ..file.clone() })), &[Rule::NoExecMount]);
    check(&entry("10-x", Kind::File(file)), &[]);
}

#[test]
fn first_lines() {
    use Rule::{CarriageReturn, NoInterpreter};
    for (content, rules) in [
        ("#!/bin/sh\r\n", &[CarriageReturn][..]),
        ("#!/bin/sh -e\r\necho\r\n", &[CarriageReturn]),
        ("#!/bin/bsh\r\n", &[CarriageReturn, NoInterpreter]),
        ("#!/bin/bsh\n", &[NoInterpreter]),
        ("#!/usr/bin/env python\n", &[NoInterpreter]),
        ("#!/usr/bin/env python3 -u\n", &[NoInterpreter]),
        ("#!python3\n", &[NoInterpreter]),
        ("#!\n", &[NoInterpreter]),
        ("echo\n", &[NoInterpreter]),
        ("", &[NoInterpreter]),
        ("\u{feff}#!/bin/sh\n", &[NoInterpreter]),
        ("#!/bin/sh\n", &[]),
        ("#! /bin/sh -e", &[]),
        ("#!/usr/bin/env python3\n", &[]),
        ("#!/usr/bin/env -S A=b python3 -u\n", &[]),
        ("\u{7f}ELF...", &[]),
    ] {
        let findings = check_content(content, rules);
        assert!(findings.iter().all(|finding| finding.line == Some(1)), "{findings:?}");
    }
    let findings = check_content("#!/usr/bin/env python3 -u\n", &[NoInterpreter]);
    assert_eq!(findings[0].right, "#!/usr/bin/env -S python3 -u");
    assert!(findings[0].surprise.contains("denies"), "{findings:?}");
}

#[test]
fn directories_beside_the_hook_directories() {
    let linter = Linter::new();
    for (name, right) in [
        ("instance-stop-pre.d", "probably instance-shutdown-pre.d"),
        ("instnace-add-pre.d", "probably instance-add-pre.d"),
        ("node-add-pre", "probably node-add-pre.d"),
        ("instance-failover.d", "probably instance-failover-pre.d or instance-failover-post.d"),
        ("watcher.d", "a name of the hook reference"),
    ] {
        let finding = linter.directory(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(finding.rule, Rule::UnusedDirectory);
        assert!(finding.right.starts_with(right), "{name}: {}", finding.right);
    }
    for good in ["instance-add-pre.d", "cluster-init-post.d", "lib", ".git"] {
        assert_eq!(linter.directory(good), None, "{good}");
    }
    assert_eq!(found("instance-stop-pre.d", &entry("a.sh", Kind::Special)), [], "its name is said once");
}

#[test]
fn e2_variables_that_the_operation_does_not_set() {
    let findings = check_content("#!/bin/sh\n\necho $GANETI_NODE_NAME\n", &[Rule::UnknownVariable]);
    assert_eq!(findings[0].line, Some(3));
    assert!(findings[0].surprise.contains("OP_INSTANCE_START does not set GANETI_NODE_NAME"), "{findings:?}");
    assert!(findings[0].right.contains("OP_ADD_NODE and 1 more"), "{findings:?}");
    let findings = check_content("#!/bin/sh\necho $GANETI_INSTANCE_NMAE\n", &[Rule::UnknownVariable]);
    assert!(findings[0].right.contains("GANETI_INSTANCE_NAME"), "{findings:?}");
    let python = "#!/usr/bin/env python3\nimport os\nprint(os.environ['GANETI_VCPUS'])\n";
    assert_eq!(check_content(python, &[Rule::UnknownVariable])[0].line, Some(3));
    for good in [
        "echo $GANETI_INSTANCE_NAME $GANETI_HOST_NAME $GANETI_HOOK_KILL_TIMEOUT_S $GANETI_FORCE",
        "echo ${GANETI_NODE_NAME-}",
        "[ -n \"${GANETI_NODE_NAME:-}\" ] && echo $GANETI_NODE_NAME",
        "GANETI_NODE_NAME=x; echo $GANETI_NODE_NAME",
        // One script for several operations, linked into their directories.
        "case $GANETI_OP_CODE in OP_NODE_ADD) echo $GANETI_NODE_NAME;; esac",
    ] {
        check_content(&format!("#!/bin/sh\n{good}\n"), &[]);
    }
    check_content("#!/bin/sh\n[ $GANETI_OP_ID = x ]; echo $GANETI_INSTANCE_MAC\n", &[Rule::UnknownVariable]);
    check_content("#!/bin/sh\necho $GANETI_NODE_NAME\necho $GANETI_NODE_NAME\n", &[Rule::UnknownVariable]);
}

#[test]
fn e2_set_u_with_a_variable_that_may_be_absent() {
    let findings = check_content("#!/bin/sh\nset -eu\necho $GANETI_FORCE\n", &[Rule::MaybeUnset]);
    assert_eq!(findings[0].line, Some(3));
    assert!(findings[0].right.contains("${GANETI_FORCE-}"), "{findings:?}");
    check_content("#!/bin/bash -u\necho $GANETI_DRY_RUN\n", &[Rule::MaybeUnset]);
    check_content("#!/bin/sh\n: ${GANETI_FORCE:?}\n", &[Rule::MaybeUnset]);
    check_content("#!/usr/bin/env python3\nos.environ[\"GANETI_FORCE\"]\n", &[Rule::MaybeUnset]);
    let findings = check_content("#!/bin/sh\nset -u\necho $GANETI_VCPUS\n", &[Rule::UnknownVariable]);
    assert!(findings[0].surprise.contains("ends here"), "{findings:?}");
    check_content("#!/bin/sh\nset -u\necho ${GANETI_FORCE-} $GANETI_INSTANCE_NAME\n", &[]);
    check_content("#!/bin/sh\necho $GANETI_FORCE\n", &[]);
    check_content("#!/usr/bin/env python3\nos.environ.get(\"GANETI_FORCE\")\n", &[]);
    let post = found("instance-start-post.d", &entry("x", Kind::File(file("#!/bin/sh -u\n$GANETI_FORCE"))));
    assert!(post[0].surprise.contains("warning in the job's log"), "{post:?}");
}

#[test]
fn d3_what_is_no_file() {
    check(&entry("10-x", Kind::Directory), &[Rule::NotAFile]);
    check(&entry("10-x", Kind::Special), &[Rule::NotAFile]);
    check(&entry("10-x", Kind::Dangling("../x".to_owned())), &[Rule::DanglingLink]);
    check(&entry("10-x", Kind::Unreadable("no".to_owned())), &[Rule::Unreadable]);
    let outside = Some("/opt/x".to_owned());
    let script = Kind::File(file("#!/bin/sh\n"));
    check(&Entry { leads_outside: outside, ..entry("10-x", script.clone()) }, &[Rule::LinkOutside]);
    check(&entry("10-x", script), &[]);
}

#[test]
fn d7_who_may_change_a_script() {
    let with = |access| entry("10-x", Kind::File(File { access, ..file("#!/bin/sh\n") }));
    let findings = check(&with(Access { writable: true, foreign_owner: None }), &[Rule::Writable]);
    assert!(findings[0].surprise.contains("which operations go ahead"), "{findings:?}");
    check(&with(Access { writable: false, foreign_owner: Some(1000) }), &[Rule::Owner]);
    check(&with(Access::default()), &[]);
    let findings = Linter::directory_access(Access { writable: true, foreign_owner: Some(7) });
    assert_eq!(codes(&findings), ["writable", "owner"]);
    assert_eq!(Linter::directory_access(Access::default()), []);
}

#[test]
fn x8_time_limits_that_are_ignored() {
    let findings = check_content("#!/bin/sh\n# HOOK_KILL_TIMEOUT = 5 fortnights\n", &[Rule::TimeLimit]);
    assert!(findings[0].surprise.contains("fortnights"), "{findings:?}");
    check_content("#!/bin/sh\n# HOOK_KILL_TIMEOUT = 5 minutes\n", &[]);
}

#[test]
fn what_is_too_large_to_be_looked_at_has_the_other_findings() {
    let large = File { content: None, executable: false, ..file("") };
    check(&entry("10-x", Kind::File(large)), &[Rule::NotExecutable]);
}

#[test]
fn scripts_of_every_directory_that_is_used_are_looked_at_in_both_versions() {
    for version in HooksVersion::ALL {
        let linter = Linter::of(version);
        let rules = |directory: &str, name: &str, file: File| {
            let findings = linter.entry(directory, &entry(name, Kind::File(file)), &is_there);
            findings.into_iter().map(|finding| finding.rule).collect::<Vec<_>>()
        };
        for directory in hook_directories(version) {
            let no_execute = File { executable: false, ..file("#!/bin/sh\nexit 1\n") };
            assert_eq!(rules(&directory, "10-x", no_execute), [Rule::NotExecutable], "{directory}");
            assert_eq!(
                rules(&directory, "10-x", file("#!/bin/sh\r\n")),
                [Rule::CarriageReturn],
                "{directory}"
            );
            assert_eq!(rules(&directory, "10-x.sh", file("#!/bin/sh\n")), [Rule::BadName], "{directory}");
            let common = file("#!/bin/sh\nset -eu\necho \"$GANETI_CLUSTER $GANETI_HOST_NAME\"\n");
            assert_eq!(rules(&directory, "10-x", common), [], "{directory}");
        }
        let other =
            if version == HooksVersion::V1 { "instance-stop-pre.d" } else { "instance-shutdown-pre.d" };
        assert_eq!(rules(other, "10-x", file("#!/bin/sh\r\n")), [], "nothing in it is ever run");
    }
}

#[test]
fn variables_of_global_scripts_events_and_syncs() {
    let strict = |body: &str| entry("10-x", Kind::File(file(&format!("#!/bin/sh\nset -u\n{body}\n"))));
    for (directory, body, rules) in [
        ("global-pre.d", "echo \"$GANETI_OP_ID $GANETI_JOB_ID\"", &[][..]),
        ("global-pre.d", "echo \"$GANETI_INSTANCE_NAME\"", &[Rule::MaybeUnset]),
        ("global-pre.d", "case $GANETI_OP_ID in OP_INSTANCE_*) echo \"$GANETI_INSTANCE_NAME\";; esac", &[]),
        ("global-pre.d", "echo \"$GANETI_JOB_ENDED\"", &[Rule::UnknownVariable]),
        ("global-post.d", "echo \"$GANETI_POST_STATUS $GANETI_JOB_ENDED\"", &[]),
        ("global-post.d", "cat \"$GANETI_ERROR_MESSAGE_PATH\"", &[Rule::MaybeUnset]),
        ("config-update-post.d", "echo \"$GANETI_CONFIG_SERIAL\"", &[]),
        ("config-update-post.d", "echo \"$GANETI_NODE_NAMES\"", &[Rule::UnknownVariable]),
        ("config-update-post.d", "echo \"$GANETI_OP_ID\"", &[Rule::UnknownVariable]),
        ("node-pending-post.d", "echo \"$GANETI_NODE_IPS\"", &[]),
        ("hooks-sync-pre.d", "ls \"$GANETI_HOOK_SET_PATH\"", &[]),
        ("hooks-sync-pre.d", "ls \"$GANETI_HOOK_SET_PAHT\"", &[Rule::UnknownVariable]),
        ("instance-start-pre.d", "[ $GANETI_HOOKS_PATH = x ] && echo $GANETI_CONFIG_SERIAL", &[]),
    ] {
        let findings = found(directory, &strict(body));
        let found: Vec<Rule> = findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(found, rules, "{directory}: {body}: {findings:?}");
    }
    let findings = found("hooks-sync-pre.d", &strict("ls \"$GANETI_HOOK_SET_PAHT\""));
    assert!(
        findings[0].surprise.contains("hooks-sync-pre.d does not set GANETI_HOOK_SET_PAHT"),
        "{findings:?}"
    );
    assert!(findings[0].surprise.contains("refuses every set after this one"), "{findings:?}");
    assert!(findings[0].right.ends_with("GANETI_HOOK_SET_PATH"), "{findings:?}");
}
