//! `muster-hooksrv`: a host that is asked and told, and runs no instances.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use crate::cluster::{Cluster, devcluster_program, run, start, wait_for};

/// The daemon as a process of its own; ended when the value goes away.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A fourth host beside the cluster's three, with its configuration and its daemon.
fn fourth_host(cluster: &Cluster) -> Daemon {
    let dir = cluster.node_dir(4);
    fs::create_dir_all(dir.join("hooks")).unwrap();
    let config = format!(
        "name = \"node4\"\nlisten = \"{}:1811\"\nstate_dir = \"{dir}/state\"\nrun_dir = \"{dir}/run\"\nhooks_dir = \"{dir}/hooks\"\n",
        cluster.address(4),
        dir = dir.display(),
    );
    fs::write(dir.join("hooksrv.toml"), config).unwrap();
    let log = fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(devcluster_program().with_file_name("muster-hooksrv"));
    command.arg("--config").arg(dir.join("hooksrv.toml"));
    Daemon(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

#[test]
fn an_authorisation_host_denies_and_runs_no_instance() {
    let cluster = Cluster::up(3);
    let _daemon = fourth_host(&cluster);
    let dir = cluster.node_dir(4);
    wait_for("the daemon serves", || dir.join("run/node.sock").exists());
    let token = cluster.ok("node token create --node node4").stdout;
    let mut join = Command::new(devcluster_program().with_file_name("muster-hooksrv"));
    join.arg("join").arg("--config").arg(dir.join("hooksrv.toml")).args(["--token-file", "-"]);
    start(join, &token).finish().exits(0).says(&["node4"]);
    cluster.ok("node pending").says(&["node4"]);
    cluster.ok("node add node4");
    cluster.ok("node list").says(&["node4"]);

    // Its scripts are asked and its words are shown.
    cluster.script(4, "node-remove-pre.d", "10-no", "echo not without a ticket; exit 3");
    cluster.gnt("node remove node3").exits(1).says(&["node4", "10-no", "not without a ticket"]);
    cluster.ok("hooks list node4").says(&["node-remove-pre.d", "10-no"]);
    cluster.unscript(4, "node-remove-pre.d", "10-no");

    // It takes the cluster's own set like any other node.
    let source = cluster.dir().join("hooks-source/node-remove-pre.d");
    fs::create_dir_all(&source).unwrap();
    fs::write(
        source.join("20-set"),
        "#!/bin/sh\n[ \"$GANETI_HOST_NAME\" != node4 ] || { echo the set says no; exit 1; }\n",
    )
    .unwrap();
    fs::set_permissions(source.join("20-set"), fs::Permissions::from_mode(0o755)).unwrap();
    cluster.ok("hooks sync").says(&["node4: uses it now"]);
    cluster.ok("hooks diff").says(&["node4", "same"]);
    cluster.gnt("node remove node3").exits(1).says(&["node4", "20-set", "the set says no"]);
    fs::write(source.join("20-set"), "#!/bin/sh\nexit 0\n").unwrap();
    cluster.ok("hooks sync");

    // It can't hold an instance; what was begun is undone.
    let before = cluster.snapshot();
    cluster
        .gnt("instance add -t file -n node4 -s 16M -m 64M -p 1 -o none web4")
        .exits(1)
        .says(&["node node4 runs hooks only"]);
    assert_eq!(cluster.snapshot(), before);
    cluster.ok("cluster verify");
    cluster.ok("node remove node4");
    cluster.ok("node list").does_not_say("node4");
}

#[test]
fn its_command_line_is_that_of_the_node_daemon() {
    for wrong in [vec!["--config", "/nonexistent.toml"], vec!["join"], vec!["--listen", "1.2.3.4"]] {
        let mut command = Command::new(devcluster_program().with_file_name("muster-hooksrv"));
        let output = run({
            command.args(&wrong);
            command
        });
        assert!(matches!(output.status.code(), Some(1 | 2)), "{wrong:?}: {output}");
    }
}
