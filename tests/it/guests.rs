//! Real guests on the nodes of a cluster: the small guest of `tests/guest`, by QEMU's translator, and what it says.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::cluster::{Cluster, Output, run, start, wait_until};

/// A boot under the translator takes seconds, and much longer on a busy machine.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// A copy is in sync again within this: a keeper pauses for 10, 20, 40 and 80 s after attempts that did not help.
const SYNC_LIMIT: Duration = Duration::from_secs(300);
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
pub(crate) fn cluster(nodes: u32) -> Cluster {
    let cluster =
        Cluster::with_prepared(&["--nodes", &nodes.to_string(), "--hypervisor", "qemu"], |cluster| {
            give_guest(cluster, nodes)
        });
    cluster.ok("cluster modify --accel tcg");
    cluster
}

/// The same, its daemons with the host names of their nodes; for root.
pub(crate) fn named_cluster(nodes: u32) -> Cluster {
    let args = ["--nodes", &nodes.to_string(), "--hypervisor", "qemu", "--isolate"];
    let cluster = Cluster::with_prepared(&args, |cluster| give_guest(cluster, nodes));
    cluster.ok("cluster modify --accel tcg");
    cluster
}

/// The same, in a network of its own that shell commands set up; for root.
pub(crate) fn isolated_cluster(nodes: u32, setup: &str) -> Cluster {
    let cluster =
        Cluster::isolated(&["--nodes", &nodes.to_string(), "--hypervisor", "qemu"], setup, |cluster| {
            give_guest(cluster, nodes)
        });
    cluster.ok("cluster modify --accel tcg");
    cluster
}

fn give_guest(cluster: &Cluster, nodes: u32) {
    for node in 1..=nodes {
        let folder = cluster.node_dir(node).join("os");
        fs::create_dir_all(&folder).unwrap();
        symlink(small_guest(), folder.join("tiny")).unwrap();
    }
}

/// Where a node keeps the files of an instance's guest.
pub(crate) fn folder(cluster: &Cluster, node: u32, instance: &str) -> PathBuf {
    cluster.node_dir(node).join("state/node/qemu").join(cluster.instance(instance).uuid)
}

/// The guest's process on a node.
pub(crate) fn pid(cluster: &Cluster, node: u32, instance: &str) -> Pid {
    let text = fs::read_to_string(folder(cluster, node, instance).join("pid")).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// How often the guest has said on a node that it is up, since its process began.
pub(crate) fn boots(cluster: &Cluster, node: u32, instance: &str) -> usize {
    let said = fs::read(folder(cluster, node, instance).join("console.log")).unwrap_or_default();
    String::from_utf8_lossy(&said).matches(&format!("{READY}{instance} ")).count()
}

#[track_caller]
pub(crate) fn booted(cluster: &Cluster, node: u32, instance: &str, times: usize) {
    let up = wait_until(BOOT_LIMIT, || boots(cluster, node, instance) >= times);
    let said = || fs::read(folder(cluster, node, instance).join("console.log")).unwrap_or_default();
    assert!(
        up,
        "boot {times} of {instance}: not within {BOOT_LIMIT:?}: {}",
        String::from_utf8_lossy(&said())
    );
}

#[track_caller]
pub(crate) fn has_status(cluster: &Cluster, instance: &str, status: &str) {
    let mut last = String::new();
    let so = wait_until(crate::cluster::STATE_LIMIT, || {
        last = cluster.instance(instance).status;
        last == status
    });
    assert!(so, "{instance} is {last}, not {status}");
}

/// QEMU's processes that belong to the cluster.
pub(crate) fn processes(cluster: &Cluster) -> Vec<i32> {
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

/// The guests among them.
pub(crate) fn machines(cluster: &Cluster) -> usize {
    let is_machine = |number: &&i32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line)
            .split('\0')
            .next()
            .is_some_and(|program| program.contains("qemu-system-"))
    };
    processes(cluster).iter().filter(is_machine).count()
}

/// Types on an instance's console, by pipes, until the guest has said something; then `gnt` is ended by SIGINT.
#[track_caller]
pub(crate) fn ask(cluster: &Cluster, instance: &str, typed: &str, wanted: &str) -> String {
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
pub(crate) fn last_words(cluster: &Cluster, instance: &str, typed: &str) -> Output {
    start(cluster.gnt_command(&["instance", "console", instance]), typed).finish().exits(0)
}

/// What a guest has said on its console on a node, since its process began.
pub(crate) fn said(cluster: &Cluster, node: u32, instance: &str) -> String {
    let said = fs::read(folder(cluster, node, instance).join("console.log")).unwrap_or_default();
    String::from_utf8_lossy(&said).into_owned()
}

/// The records that a guest has acknowledged on a node: the first and the last, since its process began.
pub(crate) fn acknowledged(cluster: &Cluster, node: u32, instance: &str) -> Option<(u64, u64)> {
    let text = said(cluster, node, instance);
    // The last line may not be whole yet.
    let whole = &text[..text.rfind('\n').unwrap_or(0)];
    let numbers: Vec<u64> =
        whole.lines().filter_map(|line| line.rsplit_once("ACK ")?.1.trim().parse().ok()).collect();
    Some((*numbers.first()?, *numbers.last()?))
}

/// When a guest acknowledged each record on a node, in seconds of its own clock: record, time.
pub(crate) fn acknowledged_at(cluster: &Cluster, node: u32, instance: &str) -> Vec<(u64, f64)> {
    let text = said(cluster, node, instance);
    let whole = &text[..text.rfind('\n').unwrap_or(0)];
    let one = |line: &str| {
        let (at, record) = line.rsplit_once(" ACK ")?;
        Some((record.trim().parse().ok()?, at.rsplit_once("AT ")?.1.parse().ok()?))
    };
    whole.lines().filter_map(one).collect()
}

/// The last record that a guest has acknowledged on a node; 0 for none.
pub(crate) fn last_ack(cluster: &Cluster, node: u32, instance: &str) -> u64 {
    acknowledged(cluster, node, instance).map_or(0, |(_, last)| last)
}

/// Waits until a guest has acknowledged more records than so many on a node.
#[track_caller]
pub(crate) fn writes_past(cluster: &Cluster, node: u32, instance: &str, past: u64) {
    let writes = wait_until(BOOT_LIMIT, || last_ack(cluster, node, instance) > past);
    assert!(writes, "{instance} does not write past {past}: {}", said(cluster, node, instance));
}

/// Waits until every copy of an instance is said to be in this state, with its mirror in sync where it runs.
#[track_caller]
pub(crate) fn in_sync(cluster: &Cluster, instance: &str) {
    let mut last = String::new();
    let so = wait_until(SYNC_LIMIT, || {
        last = cluster.ok(&format!("instance info {instance}")).stdout;
        let copies: Vec<&str> = last.lines().filter(|line| line.contains("mirror component")).collect();
        !copies.is_empty() && copies.iter().all(|line| line.contains(" consistent (in sync)"))
    });
    assert!(so, "{instance} is not in sync: {last}");
}

/// The files of an instance's disks and of their copies, in pairs.
pub(crate) fn pairs(cluster: &Cluster, instance: &str) -> Vec<(PathBuf, PathBuf)> {
    let info = cluster.instance(instance);
    let file = |node: &str, uuid: &str| {
        let number: u32 = node.trim_start_matches("node").parse().unwrap();
        let mut entries = fs::read_dir(cluster.node_dir(number).join("storage")).unwrap();
        let found =
            entries.find(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(uuid));
        found.unwrap_or_else(|| panic!("{node} has no file {uuid}")).unwrap().path()
    };
    let disks = info.disks.iter().flat_map(|disk| disk.mirrors.iter().map(move |mirror| (disk, mirror)));
    disks.map(|(disk, mirror)| (file(&info.primary, &disk.uuid), file(&mirror.node, &mirror.uuid))).collect()
}

/// Nothing differs between an instance's disks and their copies; the guest is down.
#[track_caller]
pub(crate) fn copies_are_identical(cluster: &Cluster, instance: &str) {
    let pairs = pairs(cluster, instance);
    assert!(!pairs.is_empty());
    for (disk, copy) in pairs {
        assert!(fs::read(&disk).unwrap() == fs::read(&copy).unwrap(), "{disk:?} and {copy:?} differ");
    }
}

/// QEMU's processes on one node: guests and what serves copies.
pub(crate) fn processes_on(cluster: &Cluster, node: u32) -> Vec<Pid> {
    let inside = format!("{}/", cluster.node_dir(node).display());
    let numbers = processes(cluster).into_iter().filter(|number| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&inside)
    });
    numbers.filter_map(Pid::from_raw).collect()
}
