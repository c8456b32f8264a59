//! `gnt-cluster command` and `gnt-cluster copyfile`: only what is listed, bounded, and logged.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, Output, run, wait_for};

fn gnt(cluster: &Cluster, args: &[&str]) -> Output {
    run(cluster.gnt_command(args))
}

/// Whether a process with these arguments runs.
fn runs(arguments: &str) -> bool {
    let wanted = arguments.replace(' ', "\0") + "\0";
    let entries = fs::read_dir("/proc").unwrap();
    let mut lines = entries.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.any(|line| line == wanted.as_bytes())
}

#[test]
fn commands_run_on_nodes_that_the_parameters_list() {
    let cluster = Cluster::up(3);
    let refused = "is not among those that are allowed";
    cluster.gnt("cluster command /bin/echo hello").exits(1).says(&["/bin/echo hello", refused]);
    for wrong in ["echo *", "/bin/* x", "/bin/../bin/echo"] {
        gnt(&cluster, &["cluster", "modify", "--allow-command", wrong]).exits(2);
    }
    let allow = ["--allow-command", "/bin/echo *", "--allow-command", "/bin/sleep *"];
    gnt(&cluster, &[&["cluster", "modify"][..], &allow].concat()).exits(0);
    cluster.ok("cluster info").says(&["allowed command:", "/bin/echo *"]);

    let all = cluster.ok("cluster command /bin/echo hello").stdout;
    for node in 1..=3 {
        assert!(all.contains(&format!("node: node{node}\nhello\nreturn code = 0\n")), "{all}");
    }
    let folded = cluster.ok("cluster command --fold /bin/echo $HOME").stdout;
    assert!(folded.contains("nodes: node1, node2, node3\n$HOME\n"), "no shell: {folded}");
    cluster.gnt("cluster command /bin/echo one two").exits(1).says(&["/bin/echo one two", refused]);
    cluster.gnt("cluster command -n nodee2 /bin/echo x").exits(1).says(&["node2"]);
    let failed = cluster.ok("cluster command -n node2 /bin/sleep nonsense");
    failed.says(&["node: node2", "nonsense", "return code = 1"]).does_not_say("node1");
    // Who asked stands in the logs, of what was refused too.
    assert!(cluster.log("master").contains("a command is run on nodes"));
    assert!(cluster.log("master").contains("a command was refused"));
    assert!(cluster.log("node2").contains("a command is run") && cluster.log("node2").contains("user="));

    // One that hangs is ended at its limit. The number is that of no other test.
    let ended = cluster.gnt("cluster command -n node2 --timeout 1s /bin/sleep 98641").exits(1);
    ended.says(&["node: node2", "ended at its time limit"]);
    assert!(!runs("/bin/sleep 98641"));
    // So is one whose asker goes away.
    let args = ["cluster", "command", "-n", "node3", "/bin/sleep", "98642"];
    let mut asker = cluster.gnt_command(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
    wait_for("the command runs", || runs("/bin/sleep 98642"));
    asker.kill().unwrap();
    asker.wait().unwrap();
    wait_for("the command is ended", || !runs("/bin/sleep 98642"));
    // A master that stops names the nodes whose answers it did not wait for.
    let asking = cluster.begin("cluster command -n node2 -n node3 /bin/sleep 98643");
    wait_for("the command runs", || runs("/bin/sleep 98643"));
    let pid = fs::read_to_string(cluster.dir().join("master/masterd.pid")).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    asking.finish().exits(1).says(&["node: node2", "node: node3", "no answer: the master stops"]);
    wait_for("the command is ended", || !runs("/bin/sleep 98643"));
    wait_for("the master has ended", || !cluster.master_lives());
    cluster.devcluster(&["start", "master"]).exits(0);

    cluster.devcluster(&["kill", "node3"]).exits(0);
    let some = cluster.gnt("cluster command --json /bin/echo hello").exits(1);
    let rows: Vec<Value> = serde_json::from_str(&some.stdout).unwrap();
    let codes: Vec<&Value> = rows.iter().map(|row| &row["return_code"]).collect();
    assert_eq!(codes, [&Value::from(0), &Value::from(0), &Value::Null], "{some}");
    assert!(rows[2]["failure"].is_string(), "{some}");
    cluster.ok("node modify --offline yes node3");
    cluster.ok("cluster command /bin/echo hello").does_not_say("node3");
    cluster.gnt("cluster command -n node3 /bin/echo hello").exits(1).says(&["marked offline"]);
    gnt(&cluster, &["cluster", "modify", "--disallow-command", "/bin/echo *"]).exits(0);
    cluster.gnt("cluster command /bin/echo hello").exits(1).says(&[refused]);
}

#[test]
fn files_are_copied_to_places_that_the_parameters_list() {
    let cluster = Cluster::up(2);
    let dir = cluster.dir().canonicalize().unwrap();
    let path = |name: &str| dir.join(name).display().to_string();
    fs::create_dir(dir.join("etc")).unwrap();
    fs::write(dir.join("source"), "motto\n".repeat(50_000)).unwrap();
    fs::set_permissions(dir.join("source"), fs::Permissions::from_mode(0o640)).unwrap();
    let copy = |target: &str| {
        gnt(&cluster, &["cluster", "copyfile", "-n", "node2", "--to", &path(target), &path("source")])
    };
    copy("etc/motd").exits(1).says(&["is not among those that are copied"]);
    assert!(!dir.join("etc/motd").exists());

    let hook = "node2/hooks/node-add-pre.d/10-x";
    fs::create_dir_all(dir.join(hook).parent().unwrap()).unwrap();
    let protected =
        [hook, "node2/hooks/x", "node2/state/data/ssconf_node_list", "node2/noded.toml", "node2/run/x"];
    for target in ["etc/motd", "etc/link", "link/motd", "source"].iter().chain(&protected) {
        gnt(&cluster, &["cluster", "modify", "--allow-file", &path(target)]).exits(0);
    }
    copy("etc/motd").exits(0).says(&["node2", "copied"]).does_not_say("node1");
    let copied = |name: &str| {
        let metadata = fs::metadata(dir.join(name)).unwrap();
        (fs::read(dir.join(name)).unwrap(), metadata.permissions().mode(), modified_ms(&metadata))
    };
    assert_eq!(copied("etc/motd"), copied("source"));
    // Without --to a file keeps its path; here all nodes share the file system.
    gnt(&cluster, &["cluster", "copyfile", &path("source")]).exits(0).says(&["node1", "node2"]);
    assert_eq!(copied("source"), copied("etc/motd"));

    // Links are not followed, on the way or at its end, on either host.
    fs::write(dir.join("kept"), "kept").unwrap();
    symlink(dir.join("kept"), dir.join("etc/link")).unwrap();
    symlink(dir.join("etc"), dir.join("link")).unwrap();
    copy("etc/link").exits(1).says(&["is a link"]);
    copy("link/motd").exits(1).says(&["is a link"]);
    gnt(&cluster, &["cluster", "copyfile", &path("etc/link")]).exits(1).says(&["is a link"]);
    assert_eq!(fs::read_to_string(dir.join("kept")).unwrap(), "kept");
    // What is Muster's own and what runs as a hook the node itself refuses, whatever is listed.
    for target in protected {
        copy(target).exits(1).says(&["node2", "is not written by copies"]);
    }
    assert!(!dir.join(hook).exists());
    assert_eq!(left_behind(&dir.join("etc")), ["link", "motd"]);
    fs::File::create(dir.join("source")).unwrap().set_len(17 << 20).unwrap();
    copy("etc/motd").exits(1).says(&["16 MiB"]);
    assert!(cluster.log("node2").contains("a file was copied here"));
}

/// To the millisecond, which is what travels.
fn modified_ms(metadata: &fs::Metadata) -> u128 {
    metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()
}

/// Names in a directory: no part of a copy stays.
fn left_behind(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
