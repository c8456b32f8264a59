//! The command line of a storage daemon: a pure function.

use std::{net::IpAddr, path::Path};

use serde_json::json;
use uuid::Uuid;

/// The peer's guest has one connection, and is looked after by another now and then.
const CONNECTIONS_MAX: u32 = 16;

/// What is served.
#[derive(Debug, Clone, Copy)]
pub(super) struct Export<'a> {
    /// Names the export.
    pub(super) copy: Uuid,
    /// Its file.
    pub(super) file: &'a Path,
    /// Who may use it.
    pub(super) peer: &'a str,
    pub(super) listen: IpAddr,
    pub(super) port: u16,
    pub(super) certificates: &'a Path,
    pub(super) control: &'a Path,
    pub(super) pid: &'a Path,
}

/// The arguments, without the program.
pub(super) fn arguments(export: &Export<'_>) -> Vec<String> {
    let file = json!({ "driver": "file", "node-name": "file", "filename": export.file, "discard": "unmap" });
    let disk = json!({ "driver": "raw", "node-name": "disk", "file": "file" });
    let tls = json!({
        "qom-type": "tls-creds-x509", "id": "tls", "dir": export.certificates, "endpoint": "server",
        "verify-peer": true,
    });
    let rule = json!({ "match": format!("CN={}", export.peer), "policy": "allow", "format": "exact" });
    let peers = json!({ "qom-type": "authz-list", "id": "peers", "policy": "deny", "rules": [rule] });
    let server = json!({
        "addr": { "type": "inet", "host": export.listen.to_string(), "port": export.port.to_string() },
        "max-connections": CONNECTIONS_MAX, "tls-creds": "tls", "tls-authz": "peers",
    });
    // What the peer is told is written is on stable storage: its guest's flushes don't come here.
    let served = json!({
        "type": "nbd", "id": "copy", "node-name": "disk", "name": export.copy.to_string(), "writable": true,
        "writethrough": true,
    });
    // A comma in a path is written twice.
    let control = export.control.display().to_string().replace(',', ",,");
    let socket = format!("socket,id=control,path={control},server=on,wait=off");
    let monitor = json!({ "chardev": "control" });
    let mut arguments = vec!["--pidfile".to_owned(), export.pid.display().to_string()];
    // The export first, the control socket last: who reaches that one finds the copy served.
    let options = [
        ("--blockdev", file.to_string()),
        ("--blockdev", disk.to_string()),
        ("--object", tls.to_string()),
        ("--object", peers.to_string()),
        ("--nbd-server", server.to_string()),
        ("--export", served.to_string()),
        ("--chardev", socket),
        ("--monitor", monitor.to_string()),
    ];
    for (option, value) in options {
        arguments.extend([option.to_owned(), value]);
    }
    arguments
}
