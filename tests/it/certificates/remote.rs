//! What remote users may do with `gnt` over TCP.

use std::process::Command;

use crate::cluster::{Cluster, devcluster_program, run, start, wait_for};

/// `gnt` over TCP as the client whose files are in the cluster's directory.
fn remote(cluster: &Cluster, client: &str, line: &str) -> Command {
    let mut command = Command::new(devcluster_program().with_file_name("gnt"));
    command.args(line.split_whitespace()).env_remove("MUSTER_SOCKET");
    command.arg("--master").arg(format!("{}:1810", cluster.address(1)));
    for (flag, file) in [
        ("--cert", format!("{client}.pem")),
        ("--key", format!("{client}.key")),
        ("--ca", "ca.pem".to_owned()),
    ] {
        command.arg(flag).arg(cluster.dir().join(file));
    }
    command
}

#[test]
fn a_remote_client_does_what_its_role_allows_until_it_is_revoked() {
    let cluster = Cluster::up(1);
    let out = cluster.dir().display().to_string();
    for role in ["reader", "operator", "admin"] {
        cluster.ok(&format!("cluster client-cert sign --role {role} --out {out} {role}"));
    }
    // Client, command, exit code.
    let table = [
        ("reader", "node list", 0),
        ("reader", "instance add -t diskless -n node1 -o none --no-start web1", 1),
        ("reader", "node token create", 1),
        ("operator", "instance add -t diskless -n node1 -o none --no-start web1", 0),
        ("operator", "node token create", 1),
        ("operator", "cluster modify --hook-timeout deny", 1),
        ("admin", "node token create", 0),
        ("admin", "cluster modify --hook-timeout deny", 0),
    ];
    for (client, line, code) in table {
        run(remote(&cluster, client, line)).exits(code);
    }
    cluster.ok("cluster client-cert revoke reader");
    let output = run(remote(&cluster, "reader", "node list"));
    assert_ne!(output.status.code(), Some(0), "{output}");
    run(remote(&cluster, "operator", "node list")).exits(0);
}

#[test]
fn a_remote_admin_who_destroys_the_cluster_is_told_how_that_ended() {
    let cluster = Cluster::up(1);
    let out = cluster.dir().display().to_string();
    cluster.ok(&format!("cluster client-cert sign --role admin --out {out} boss"));
    // The job goes on for long behind its commit.
    let gate = cluster.dir().join("gate");
    let wait = format!("while [ ! -e {} ]; do sleep 0.05; done", gate.display());
    cluster.script(1, "global-post.d", "10-wait", &wait);
    let destroy = start(remote(&cluster, "boss", "cluster destroy -f dev"), "");
    wait_for("the cluster is gone", || cluster.gnt("cluster info").status.code() == Some(1));
    std::fs::write(&gate, "").unwrap();
    destroy.finish().exits(0).does_not_say("lost");

    // A new cluster, made at once, accepts nobody of the one before, and serves its own.
    cluster.ok("cluster init dev");
    assert_ne!(run(remote(&cluster, "boss", "node list")).status.code(), Some(0));
    cluster.ok(&format!("cluster client-cert sign --role admin --out {out} new-boss"));
    run(remote(&cluster, "new-boss", "node list")).exits(0).says(&["node1"]);
}

#[test]
fn after_a_cluster_is_destroyed_its_doors_are_shut() {
    let cluster = Cluster::up(1);
    let out = cluster.dir().display().to_string();
    cluster.ok(&format!("cluster client-cert sign --role admin --out {out} boss"));
    run(remote(&cluster, "boss", "cluster destroy -f dev")).exits(0);
    let address: std::net::SocketAddr = format!("{}:1810", cluster.address(1)).parse().unwrap();
    wait_for("nobody listens", || std::net::TcpStream::connect(address).is_err());
    cluster.ok("cluster init dev");
    cluster.ok(&format!("cluster client-cert sign --role admin --out {out} new-boss"));
    run(remote(&cluster, "new-boss", "node list")).exits(0).says(&["node1"]);
}
