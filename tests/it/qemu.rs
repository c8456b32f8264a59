//! Real guests on the nodes of a cluster: the small guest of `tests/guest`, by QEMU's translator.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, Output, run, start, wait_for, wait_until};

/// A boot under the translator takes seconds, and much longer on a busy machine.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// What the guest says when it is up.
const READY: &str = "GUEST READY name=";

/// The small guest's directory, an OS definition; made once.
fn small_guest() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        run(Command::new(tests.join("guest/build.sh"))).exits(0);
        tests.join(".cache/guest")
    })
}

/// A cluster whose nodes have the OS definition `tiny`.
fn cluster(nodes: u32) -> Cluster {
    let guest = small_guest();
    let args = ["--nodes", &nodes.to_string(), "--hypervisor", "qemu"];
    let cluster = Cluster::with_prepared(&args, |cluster| {
        for node in 1..=nodes {
            let folder = cluster.node_dir(node).join("os");
            fs::create_dir_all(&folder).unwrap();
            symlink(guest, folder.join("tiny")).unwrap();
        }
    });
    cluster.ok("cluster modify --accel tcg");
    cluster
}

/// Where a node keeps the files of an instance's guest.
fn folder(cluster: &Cluster, node: u32, instance: &str) -> PathBuf {
    cluster.node_dir(node).join("state/node/qemu").join(cluster.instance(instance).uuid)
}

/// The guest's process on a node.
fn pid(cluster: &Cluster, node: u32, instance: &str) -> Pid {
    let text = fs::read_to_string(folder(cluster, node, instance).join("pid")).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// How often the guest has said on a node that it is up, since its process began.
fn boots(cluster: &Cluster, node: u32, instance: &str) -> usize {
    let said = fs::read(folder(cluster, node, instance).join("console.log")).unwrap_or_default();
    String::from_utf8_lossy(&said).matches(&format!("{READY}{instance} ")).count()
}

#[track_caller]
fn booted(cluster: &Cluster, node: u32, instance: &str, times: usize) {
    let up = wait_until(BOOT_LIMIT, || boots(cluster, node, instance) >= times);
    let said = || fs::read(folder(cluster, node, instance).join("console.log")).unwrap_or_default();
    assert!(
        up,
        "boot {times} of {instance}: not within {BOOT_LIMIT:?}: {}",
        String::from_utf8_lossy(&said())
    );
}

#[track_caller]
fn has_status(cluster: &Cluster, instance: &str, status: &str) {
    let mut last = String::new();
    let so = wait_until(crate::cluster::STATE_LIMIT, || {
        last = cluster.instance(instance).status;
        last == status
    });
    assert!(so, "{instance} is {last}, not {status}");
}

/// QEMU's processes that belong to the cluster.
fn processes(cluster: &Cluster) -> Vec<i32> {
    let inside = format!("{}/", cluster.dir().display());
    let entries = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let numbers = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let is_guest = |number: &i32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.split('\0').next().is_some_and(|program| program.contains("qemu-")) && line.contains(&inside)
    };
    numbers.filter(is_guest).collect()
}

/// Types on an instance's console, by pipes, until the guest has said something; then `gnt` is ended by SIGINT.
#[track_caller]
fn ask(cluster: &Cluster, instance: &str, typed: &str, wanted: &str) -> String {
    let mut command = cluster.gnt_command(&["instance", "console", instance]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(typed.as_bytes()).unwrap();
    // The end of what is typed is not the end of the console.
    drop(stdin);
    let mut said = child.stdout.take().unwrap();
    let reader = std::thread::spawn({
        let wanted = wanted.to_owned();
        move || {
            let mut text = Vec::new();
            let mut buffer = [0; 4096];
            while !String::from_utf8_lossy(&text).contains(&wanted) {
                match said.read(&mut buffer).unwrap() {
                    0 => break,
                    length => text.extend(&buffer[..length]),
                }
            }
            String::from_utf8_lossy(&text).into_owned()
        }
    });
    let heard = wait_until(BOOT_LIMIT, || reader.is_finished());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let text = reader.join().unwrap();
    assert!(heard && text.contains(wanted), "{wanted:?} is not said: {text:?}");
    assert!(status.success(), "{status}");
    text
}

/// Types on an instance's console and waits until the guest's end ends it.
#[track_caller]
fn last_words(cluster: &Cluster, instance: &str, typed: &str) -> Output {
    start(cluster.gnt_command(&["instance", "console", instance]), typed).finish().exits(0)
}

#[test]
fn a_guest_that_ends_says_how_and_one_outlives_its_daemon() {
    let cluster = cluster(2);
    cluster.ok("instance add -t file -n node2 -s 16M -m 96M -o tiny web1");
    booted(&cluster, 2, "web1", 1);
    has_status(&cluster, "web1", "running");
    ask(&cluster, "web1", "record write 3; record count\n", "RECORDS 3");

    last_words(&cluster, "web1", "poweroff -f\n");
    has_status(&cluster, "web1", "USER_down");
    cluster.ok("cluster verify").says(&["warning: instance web1", "USER_down"]);
    cluster.ok("instance start web1");
    has_status(&cluster, "web1", "running");
    booted(&cluster, 2, "web1", 1);

    kill_process(pid(&cluster, 2, "web1"), Signal::KILL).unwrap();
    has_status(&cluster, "web1", "ERROR_crashed");
    cluster.gnt("cluster verify").exits(1).says(&["error: instance web1", "ERROR_crashed"]);
    cluster.ok("instance start web1");
    booted(&cluster, 2, "web1", 1);

    let before = pid(&cluster, 2, "web1");
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.devcluster(&["start", "node2"]).exits(0);
    has_status(&cluster, "web1", "running");
    assert_eq!(pid(&cluster, 2, "web1"), before);
    ask(&cluster, "web1", "record count\n", "RECORDS 3");
    cluster.ok("cluster verify");

    // A guest ends with its cluster.
    assert_eq!(processes(&cluster).len(), 1);
    cluster.devcluster(&["down"]).exits(0);
    assert_eq!(processes(&cluster), Vec::<i32>::new());
}

#[test]
fn a_guest_is_shut_down_started_rebooted_moved_and_removed() {
    let cluster = cluster(2);
    cluster.ok("instance add -t mirror -n node1:node2 -s 16M -m 96M -o tiny web1");
    booted(&cluster, 1, "web1", 1);
    cluster.ok("instance shutdown web1");
    has_status(&cluster, "web1", "ADMIN_down");
    assert_eq!(processes(&cluster), Vec::<i32>::new());

    cluster.ok("instance modify -m 112M web1");
    cluster.ok("instance start web1");
    booted(&cluster, 1, "web1", 1);
    let began = pid(&cluster, 1, "web1");
    cluster.ok("instance reboot -t hard web1");
    booted(&cluster, 1, "web1", 2);
    cluster.ok("instance reboot web1");
    booted(&cluster, 1, "web1", 3);
    assert_eq!(pid(&cluster, 1, "web1"), began, "it is the same process");
    has_status(&cluster, "web1", "running");

    // The other copy is empty as yet; the guest's system is not on the disk.
    cluster.ok("instance failover -f --ignore-consistency web1");
    assert_eq!(cluster.instance("web1").primary, "node2");
    booted(&cluster, 2, "web1", 1);
    wait_for("one process is left", || processes(&cluster).len() == 1);
    cluster.ok("instance remove -f web1");
    assert_eq!(processes(&cluster), Vec::<i32>::new());
    cluster.ok("cluster verify");
}
