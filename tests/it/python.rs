//! A client that was not written here: `tests/python/muster_client.py`, on the gRPC library of another language.
//!
//! `deploy/test.sh` makes its Python environment in `tests/.cache/venv`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::cluster::{Cluster, run};

fn tests_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn python() -> PathBuf {
    let python = tests_dir().join(".cache/venv/bin/python");
    assert!(python.exists(), "{} is missing: deploy/test.sh makes it", python.display());
    python
}

/// How the client finds the master and learns the protocol.
struct Way<'a> {
    target: String,
    stubs: &'a str,
    /// Directory with client.pem, client.key, ca.pem.
    certificate: Option<&'a Path>,
}

#[track_caller]
fn client(way: &Way<'_>, verb: &str, instance: &str) -> Value {
    let mut command = Command::new(python());
    command.arg(tests_dir().join("python/muster_client.py")).args([
        "--target",
        &way.target,
        "--stubs",
        way.stubs,
    ]);
    command.arg("--proto-dir").arg(tests_dir().join("../proto/proto"));
    if let Some(dir) = way.certificate {
        for (flag, file) in [("--cert", "joe.pem"), ("--key", "joe.key"), ("--ca", "ca.pem")] {
            command.arg(flag).arg(dir.join(file));
        }
    }
    command.args([verb, instance, "node2"]);
    let output = run(command).exits(0);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"))
}

/// Adds an instance and has another one denied.
#[track_caller]
fn adds_and_is_denied(cluster: &Cluster, way: &Way<'_>, name: &str) {
    let added = client(way, "add", name);
    assert_eq!(added["status"], "JOB_STATUS_SUCCESS", "{added}");
    assert_eq!(cluster.instance(name).primary, "node2");
    let events: Vec<&str> =
        added["events"].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect();
    assert_eq!(
        events.iter().filter(|kind| **kind == "hooks").count(),
        2,
        "a line for each phase: {events:?}"
    );
    assert_eq!(
        events.iter().position(|kind| *kind == "done"),
        Some(events.len() - 1),
        "done comes last: {events:?}"
    );
    assert_eq!(cluster.last_job().reason, "asked by Python");

    cluster.script(2, "instance-add-pre.d", "50-deny", "echo no room; echo ask the planner >&2; exit 7");
    let denied = client(way, "deny", &format!("{name}-more"));
    assert_eq!(denied["status"], "JOB_STATUS_ERROR");
    assert_eq!(denied["kind"], "ERROR_KIND_DENIED");
    let objection = json!({
        "node": "node2",
        "script": "50-deny",
        "outcome": "failed_code",
        "code": 7,
        "stdout": "no room\n",
        "stderr": "ask the planner\n",
    });
    assert_eq!(denied["objections"], json!([objection]));
    cluster.unscript(2, "instance-add-pre.d", "50-deny");
}

#[test]
fn python_over_the_local_socket() {
    let cluster = Cluster::up(2);
    let target = format!("unix:{}", cluster.socket().display());
    for (stubs, name) in [("generated", "web1"), ("proto", "web2"), ("reflection", "web3")] {
        adds_and_is_denied(&cluster, &Way { target: target.clone(), stubs, certificate: None }, name);
    }
}

#[test]
fn python_over_tcp_with_a_client_certificate() {
    let cluster = Cluster::up(2);
    let dir = cluster.dir();
    cluster.ok(&format!("cluster client-cert sign --role operator --out {} joe", dir.display()));
    let target = format!("{}:1810", cluster.address(1));
    for (stubs, name) in [("generated", "web1"), ("reflection", "web2")] {
        adds_and_is_denied(&cluster, &Way { target: target.clone(), stubs, certificate: Some(dir) }, name);
    }
}
