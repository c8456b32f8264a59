//! `muster-devcluster` itself, as its users see it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cluster::{Cluster, devcluster_program, run, wait_for};
use crate::dumps::dump_body;

fn alive(pid_file: &Path) -> bool {
    let pid = fs::read_to_string(pid_file).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn the_env_file_makes_gnt_work_in_a_shell() {
    let cluster = Cluster::up(2);
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(
        ". \"$1\" && gnt-node list --no-headers -o name && gnt instance list && muster-devcluster status && echo \"$MUSTER_DIR\"",
    );
    shell.arg("sh").arg(cluster.dir().join("env"));
    run(shell).exits(0).says(&["node1", "node2", "master", "running", &cluster.dir().display().to_string()]);
}

#[test]
fn verbs_act_on_one_daemon() {
    let cluster = Cluster::up(2);
    let status = |wanted: &str| {
        let text = cluster.devcluster(&["status"]).exits(0).stdout;
        assert!(text.lines().any(|line| line.starts_with("node2\t") && line.ends_with(wanted)), "{text}");
        assert!(text.lines().any(|line| line.starts_with("node1\t") && line.ends_with("running")), "{text}");
    };
    status("running");
    cluster.devcluster(&["pause", "node2"]).exits(0);
    status("paused");
    cluster.devcluster(&["resume", "node2"]).exits(0);
    status("running");
    cluster.devcluster(&["start", "node2"]).exits(1).says(&["node2 runs already"]);
    cluster.devcluster(&["kill", "node2"]).exits(0);
    status("down");
    cluster.devcluster(&["kill", "node2"]).exits(1).says(&["node2 does not run"]);
    cluster.devcluster(&["start", "node2"]).exits(0);
    status("running");
    cluster.devcluster(&["kill", "node3"]).exits(1).says(&["node3"]);
    cluster.devcluster(&["kill", "web1"]).exits(2).says(&["web1"]);
}

#[test]
fn a_started_master_serves_at_once() {
    let cluster = Cluster::up(2);
    for _ in 0..3 {
        cluster.devcluster(&["kill", "master"]).exits(0);
        cluster.gnt("node list").exits(3);
        cluster.devcluster(&["start", "master"]).exits(0);
        cluster.ok("node list").says(&["node2"]);
    }
}

#[test]
fn down_ends_paused_daemons_and_scripts_that_are_left() {
    let cluster = Cluster::up(2);
    let left = "( trap '' TERM HUP; sleep 1000 ) & ( setsid sleep 1000 ) &";
    cluster.script(2, "instance-add-pre.d", "10-leaves", &format!("{left}\n{}", dump_body(&cluster.dumps())));
    cluster.ok("instance add -t diskless -n node2 -o none web1");
    cluster.devcluster(&["pause", "node2"]).exits(0);
    let data_dir = cluster.take_dumps()[0].env["GANETI_DATA_DIR"].clone();
    let members = || {
        let mark = format!("GANETI_DATA_DIR={data_dir}").into_bytes();
        let entries = fs::read_dir("/proc").unwrap();
        let environs = entries.filter_map(|entry| fs::read(entry.ok()?.path().join("environ")).ok());
        environs.filter(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == mark)).count()
    };
    assert!(members() >= 2, "the script's children are there");
    let pid_files = ["node1/noded.pid", "node2/noded.pid", "master/masterd.pid", "holder.pid"];
    let pid_files = pid_files.map(|name| cluster.dir().join(name));
    assert!(pid_files.iter().all(|file| alive(file)));
    cluster.devcluster(&["down"]).exits(0);
    assert!(!pid_files.iter().any(|file| alive(file)));
    assert_eq!(members(), 0);
    cluster.devcluster(&["down"]).exits(0);
}

#[test]
fn clusters_side_by_side_have_their_own_addresses() {
    let (first, second) = (Cluster::bare(1), Cluster::bare(1));
    assert_ne!(first.net(), second.net());
    assert!(first.net().starts_with("127."));
}

#[test]
fn a_cluster_that_is_up_is_not_made_again_and_one_that_is_down_is() {
    let cluster = Cluster::up(1);
    cluster.devcluster(&["up", "--nodes", "1"]).exits(1).says(&["is up already"]);
    cluster.ok("instance add -t diskless -n node1 -o none --no-start web1");
    cluster.script(1, "instance-add-pre.d", "10-no", "exit 1");
    cluster.devcluster(&["down"]).exits(0);
    cluster.devcluster(&["up", "--nodes", "1"]).exits(0);
    cluster.ok("instance list").does_not_say("web1");
    // Hooks are the operator's own and stay.
    cluster.gnt("instance add -t diskless -n node1 -o none --no-start web1").exits(1).says(&["10-no"]);
}

#[test]
fn what_can_not_be_is_refused_in_words() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let long = dir.path().join("d".repeat(100));
    // Arguments, what is said.
    let table: [(&[&str], &str); 5] = [
        (&["--dir", long.to_str().unwrap(), "up"], "108"),
        (&["up", "--nodes", "0"], "--nodes"),
        (&["up", "--nodes", "2", "--masters", "3"], "--masters"),
        (&["down"], "holds no cluster"),
        (&["start", "node1"], "holds no cluster"),
    ];
    for (args, said) in table {
        let mut command = Command::new(devcluster_program());
        command.current_dir(dir.path()).env_remove("MUSTER_DIR");
        if !args.contains(&"--dir") {
            command.arg("--dir").arg(dir.path());
        }
        command.args(args);
        run(command).exits(1).says(&[said]);
    }
}

#[test]
fn a_cluster_ends_with_the_process_it_was_made_for() {
    let dir = tempfile::Builder::new().prefix("muster-").tempdir_in("/tmp").unwrap();
    let path = dir.path().join("c");
    let mut owner = Command::new("sleep").arg("600").spawn().unwrap();
    let mut command = Command::new(devcluster_program());
    command.arg("--dir").arg(&path).args([
        "up",
        "--nodes",
        "1",
        "--bare",
        "--owner",
        &owner.id().to_string(),
    ]);
    run(command).exits(0);
    let pid: String = fs::read_to_string(path.join("node1/noded.pid")).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_for("the cluster is gone", || {
        !path.exists() && !Path::new(&format!("/proc/{}/exe", pid.trim())).exists()
    });
}
