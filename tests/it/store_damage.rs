//! The master's store cut short, with flipped bytes, empty, gone, or on a full disk; backups, and what a restore brings
//! back. Whatever was done to the files, a start serves the very same state or refuses, and says how to restore.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_proto::v1;

use crate::cluster::{Cluster, Output, devcluster_program, run, wait_for};

/// What a master must serve after a start, or refuse to start. Without what moves by itself.
#[derive(Debug, PartialEq, Eq)]
struct State {
    uuid: String,
    serial: u64,
    nodes: Vec<String>,
    instances: Vec<String>,
    jobs: Vec<String>,
}

fn state(cluster: &Cluster) -> State {
    let info = cluster.info();
    let instances = cluster.instances().into_iter().map(|instance| {
        format!("{:?}", v1::InstanceInfo { state_age_ms: None, status: String::new(), ..instance })
    });
    State {
        uuid: info.uuid,
        serial: info.serial,
        nodes: cluster.nodes().into_iter().map(|node| node.name).collect(),
        instances: instances.collect(),
        jobs: cluster.jobs().iter().map(|job| format!("{job:?}")).collect(),
    }
}

fn master_dir(cluster: &Cluster) -> PathBuf {
    cluster.node_dir(1).join("state/master")
}

fn store(cluster: &Cluster) -> PathBuf {
    master_dir(cluster).join("cluster.db")
}

/// The master's files, to be put back.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files(cluster: &Cluster) -> Files {
    let entries = fs::read_dir(master_dir(cluster)).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn put_back(cluster: &Cluster, files: &Files) {
    let folder = master_dir(cluster);
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    for (path, content) in files {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[track_caller]
fn kill(cluster: &Cluster) {
    cluster.devcluster(&["kill", "master"]).exits(0);
}

fn start(cluster: &Cluster, arguments: &[&str]) -> Output {
    let all: Vec<&str> = ["start", "master", "--"].iter().chain(arguments).copied().collect();
    cluster.devcluster(&all)
}

fn restore(cluster: &Cluster, file: &Path) -> Output {
    let mut command = Command::new(devcluster_program().with_file_name("muster-masterd"));
    command.arg("--config").arg(cluster.dir().join("node1/masterd.toml")).arg("--restore").arg(file);
    run(command)
}

fn backup(cluster: &Cluster, name: &str) -> PathBuf {
    let file = cluster.dir().join(name);
    cluster.ok(&format!("cluster backup {}", file.display()));
    file
}

/// A cluster with a history in main file and log, a backup from its middle, and a master that was killed.
fn killed(nodes: u32) -> (Cluster, PathBuf, State) {
    let cluster = Cluster::up(nodes);
    for name in ["web1", "web2", "web3"] {
        cluster.ok(&format!("instance add -t diskless -n node1 -o none --no-start -m 64M {name}"));
    }
    let file = backup(&cluster, "dev.backup");
    cluster.ok("instance modify -m 96M web1");
    cluster.ok("instance remove -f web2");
    cluster.gnt("instance start web2").exits(1);
    cluster.ok("instance modify -m 128M web1");
    let before = state(&cluster);
    kill(&cluster);
    (cluster, file, before)
}

/// Puts the killed master's files back with one damage done to them, and starts: the same state, or a refusal that helps.
/// Gives whether it was refused.
#[track_caller]
fn same_or_refused(
    cluster: &Cluster,
    whole: &Files,
    before: &State,
    what: &str,
    damage: impl FnOnce(&mut Files),
) -> bool {
    let mut damaged = whole.clone();
    damage(&mut damaged);
    put_back(cluster, &damaged);
    let started = start(cluster, &[]);
    if started.status.success() {
        assert_eq!(state(cluster), *before, "served after {what}");
        kill(cluster);
        return false;
    }
    let path = store(cluster).display().to_string();
    started.exits(1).says(&[&path, "muster-masterd --restore FILE"]);
    true
}

/// After whatever damage: a restore keeps what is there, and the master goes on from the backup.
#[track_caller]
fn restored(cluster: &Cluster, file: &Path) {
    restore(cluster, file).exits(0).says(&["restored cluster dev", "--accept-loss"]);
    start(cluster, &[]).exits(1).says(&["--accept-loss"]);
    start(cluster, &["--accept-loss"]).exits(0);
    assert_eq!(cluster.instance("web1").memory_mib, 64);
    cluster.instance("web2");
    cluster.ok("instance modify -m 80M web1");
    assert_eq!(cluster.instance("web1").memory_mib, 80);
}

#[test]
fn a_flipped_byte_in_the_store_is_never_served() {
    let (cluster, file, before) = killed(2);
    let path = store(&cluster);
    let log = path.with_extension("db-wal");
    let with_log = files(&cluster);
    // The log holds newer copies of most pages. A restore of the store itself merges it into the file, where all counts.
    restore(&cluster, &path).exits(0);
    let whole: Files = files(&cluster)
        .into_iter()
        .filter(|(path, _)| !path.display().to_string().contains("before"))
        .collect();
    assert!(!whole.contains_key(&log));
    let length = whole[&path].len();
    // The header's fields that decide how the rest is read, the schema, and places all over.
    let header = [0, 16, 18, 19, 20, 21, 27, 31, 35, 47, 56, 59, 63, 95, 100, 103, 105, 108];
    let places = header.into_iter().chain((1..24).map(|part| length * part / 24));
    let mut refused = 0;
    for at in places {
        let flip = |files: &mut Files| files.get_mut(&path).unwrap()[at] ^= 0x10;
        refused += u32::from(same_or_refused(&cluster, &whole, &before, &format!("a flip at {at}"), flip));
    }
    assert!(refused >= 8, "only {refused} flips were noticed");
    // The record of an instance, where it stands last: in the log.
    let record = b"\"name\":\"web1\"";
    let at = with_log[&log].windows(record.len()).rposition(|window| window == record).unwrap();
    let flip = |files: &mut Files| files.get_mut(&log).unwrap()[at + 9] ^= 1;
    assert!(same_or_refused(&cluster, &with_log, &before, "a flip in a record", flip));
    restored(&cluster, &file);
}

#[test]
fn a_flipped_byte_in_the_log_or_its_loss_is_never_served() {
    let (cluster, file, before) = killed(2);
    let whole = files(&cluster);
    let log = store(&cluster).with_extension("db-wal");
    let length = whole[&log].len();
    assert!(length > 20_000, "the last commits are in the log: {length} bytes");
    let places = [0, 3, 11, 15, 19, 31, 35, 40, length - 1].into_iter();
    for at in places.chain((1..16).map(|part| length * part / 16)) {
        let flip = |files: &mut Files| files.get_mut(&log).unwrap()[at] ^= 0x10;
        same_or_refused(&cluster, &whole, &before, &format!("a flip at {at} of the log"), flip);
    }
    for left in [0, 1, 32, length / 2, length - 4096, length - 1] {
        let cut = |files: &mut Files| files.get_mut(&log).unwrap().truncate(left);
        assert!(same_or_refused(&cluster, &whole, &before, &format!("a log cut to {left}"), cut));
    }
    let remove = |files: &mut Files| drop(files.remove(&log));
    assert!(same_or_refused(&cluster, &whole, &before, "a removed log", remove));
    // What SQLite keeps for its processes only can go.
    let remove = |files: &mut Files| drop(files.remove(&log.with_extension("db-shm")));
    assert!(!same_or_refused(&cluster, &whole, &before, "a removed index of the log", remove));
    assert!(!same_or_refused(&cluster, &whole, &before, "nothing", |_| {}));
    put_back(&cluster, &whole);
    restored(&cluster, &file);
}

#[test]
fn a_store_that_is_cut_short_empty_or_gone_is_never_served() {
    let (cluster, file, before) = killed(2);
    let whole = files(&cluster);
    let path = store(&cluster);
    let length = whole[&path].len();
    for left in [0, 1, 100, 512, 4095, 4096, 8192, length / 2, length - 4096, length - 1] {
        let cut = |files: &mut Files| files.get_mut(&path).unwrap().truncate(left);
        let refused = same_or_refused(&cluster, &whole, &before, &format!("a store cut to {left}"), cut);
        assert!(refused || left > 4096, "{left} bytes can't hold the state");
    }
    let is_store = |file: &Path| file.file_name().unwrap().to_str().unwrap().starts_with("cluster.db");
    assert!(same_or_refused(&cluster, &whole, &before, "a removed file", |files| drop(files.remove(&path))));
    let remove = |files: &mut Files| files.retain(|file, _| !is_store(file));
    assert!(same_or_refused(&cluster, &whole, &before, "a removed store", remove));
    for name in ["ca.key", "ca.pem"] {
        let ca = master_dir(&cluster).join(name);
        assert_eq!(fs::read(&ca).unwrap(), whole[&ca], "{name} is not lost with the store");
    }
    assert!(same_or_refused(&cluster, &whole, &before, "an empty directory", BTreeMap::clear));
    // The node's state is lost too, and only the authority is left.
    let remove = |files: &mut Files| files.retain(|file, _| !is_store(file));
    let node = cluster.node_dir(1).join("state/node/node.json");
    let kept = fs::read(&node).unwrap();
    fs::remove_file(&node).unwrap();
    assert!(same_or_refused(&cluster, &whole, &before, "a removed store and node", remove));
    fs::write(&node, kept).unwrap();
    restored(&cluster, &file);
}

#[test]
fn a_backup_is_whole_and_private_and_made_while_jobs_go_on() {
    let cluster = Cluster::up(2);
    let target = cluster.dir().join("dev.backup");
    let going: Vec<_> = (1..=12)
        .map(|number| {
            cluster.begin(&format!("instance add -t diskless -n node2 -o none --no-start web{number}"))
        })
        .collect();
    for number in 1..=5 {
        let line = format!("cluster backup -f --json {}", target.display());
        let output = cluster.ok(&line).says(&["the backup holds no keys"]);
        let told: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(told["bytes"], fs::metadata(&target).unwrap().len(), "backup {number}");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for add in going {
        add.finish().exits(0);
    }
    cluster.gnt(&format!("cluster backup {}", target.display())).exits(1).says(&["exists already", "-f"]);
    cluster.gnt("cluster backup /nowhere/dev.backup").exits(1).says(&["/nowhere/dev.backup"]);
    let left: BTreeSet<String> = files(&cluster).keys().map(|path| path.display().to_string()).collect();
    assert!(!left.iter().any(|name| name.contains("snapshot")), "{left:?}");
    // Not while the master runs, and not a word of it is changed then.
    restore(&cluster, &target).exits(1).says(&["a master daemon runs on", "stop it"]);
    let before = state(&cluster);
    assert_eq!(before.instances.len(), 12);
    backup(&cluster, "last.backup");
    kill(&cluster);
    restore(&cluster, &cluster.dir().join("last.backup")).exits(0).says(&["12 instances"]);
    start(&cluster, &[]).exits(0);
    assert_eq!(state(&cluster), before, "nothing came after the backup");
}

#[test]
fn a_restored_master_passes_the_epochs_that_the_nodes_have_seen() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t diskless -n node3 -o none --no-start -m 64M web1");
    let file = backup(&cluster, "dev.backup");
    let then = cluster.info();
    cluster.ok("instance modify -m 96M web1");
    cluster.ok("instance add -t diskless -n node2 -o none --no-start web2");
    for _ in 0..4 {
        kill(&cluster);
        start(&cluster, &[]).exits(0);
        cluster.ok("instance modify -m 96M web1");
    }
    let seen = cluster.info().epoch;
    assert!(seen >= then.epoch + 4);
    kill(&cluster);
    restore(&cluster, &file).exits(0).says(&["1 instances", "cluster.db.before-restore-"]);
    start(&cluster, &[]).exits(1).says(&["refuses this master", "epoch:", "cluster.db", "--accept-loss"]);
    start(&cluster, &["--accept-loss"]).exits(0);
    let info = cluster.info();
    assert!(info.epoch > seen && info.serial == then.serial, "{info:?}");
    // All nodes take it: their scripts run, their facts are those of the older configuration.
    cluster.script(
        3,
        "instance-modify-pre.d",
        "10-seen",
        &format!("touch {}", cluster.dir().join("seen").display()),
    );
    cluster.ok("instance modify -m 72M web1").does_not_say("warning");
    assert!(cluster.dir().join("seen").exists());
    cluster.ok("instance add -t diskless -n node2 -o none --no-start web3").does_not_say("warning");
    let facts = cluster.node_dir(2).join("state/data/ssconf_instance_list");
    wait_for("node2 has the facts", || fs::read_to_string(&facts).is_ok_and(|text| text == "web1\nweb3\n"));
    // And the next start needs no flag.
    kill(&cluster);
    start(&cluster, &[]).exits(0);
    assert_eq!(cluster.instance("web1").memory_mib, 72);
}

/// A file system of a few megabytes in the place of a directory; gone with its value.
struct Small(PathBuf);

impl Small {
    /// `None` where nobody may mount.
    fn mount(path: &Path, kept: &Files) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=3m,mode=0700", "none"]).arg(path);
        let mounted = run(command).status.success();
        mounted.then(|| {
            for (file, content) in kept {
                fs::write(file, content).unwrap();
                fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
            }
            Small(path.to_owned())
        })
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        let mut size = 1 << 16;
        while size > 0 {
            if file.write(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let mut command = Command::new("umount");
        let _ = command.arg("-l").arg(&self.0).status();
    }
}

/// Starts the master so that none of its files may grow by more than a little: what can be had without root.
fn start_limited(cluster: &Cluster) {
    let largest = files(cluster).values().map(Vec::len).max().unwrap();
    let blocks = (largest + 64 * 1024) / 512;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""));
    command.arg(devcluster_program()).arg("--dir").arg(cluster.dir()).args(["start", "master"]);
    run(command).exits(0);
}

/// The job that a submission was answered with; `None` where it was refused, or nobody answered.
#[track_caller]
fn job_id(submission: &Output) -> Option<u64> {
    let id = submission.stdout.trim().strip_prefix("JobID: ").map(|id| id.parse().unwrap());
    assert!(id.is_some() || matches!(submission.status.code(), Some(1 | 3)), "{submission}");
    id
}

#[test]
fn a_full_disk_ends_the_master_and_loses_nothing() {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t diskless -n node2 -o none --no-start -m 64M web1");
    kill(&cluster);
    let small = Small::mount(&master_dir(&cluster), &files(&cluster));
    match &small {
        Some(_) => drop(start(&cluster, &[]).exits(0)),
        None => start_limited(&cluster),
    }
    let mut answered = vec![cluster.submit("instance modify -m 80M web1")];
    if let Some(small) = &small {
        small.fill();
    }
    // The client that the end of the master leaves without an answer tries on.
    let mut unanswered = None;
    wait_for("the disk is full", || {
        let mut client = cluster.begin("instance modify -m 96M web1 --submit");
        wait_for("an answer or the master's end", || client.is_over() || !cluster.master_lives());
        if client.is_over() {
            job_id(&client.finish()).map(|id| answered.push(id)).is_none()
        } else {
            unanswered = Some(client);
            true
        }
    });
    wait_for("the master has ended", || !cluster.master_lives());
    let log = cluster.log("master");
    let path = store(&cluster).display().to_string();
    let told = log.lines().any(|line| line.contains("the store failed") && line.contains(&path));
    assert!(told, "{log}");
    if let Some(small) = &small {
        let again = start(&cluster, &[]);
        if !again.status.success() {
            again.exits(1).says(&["full", &path]);
        }
        small.make_room();
    }
    if cluster.gnt("cluster getmaster").status.code() != Some(0) {
        start(&cluster, &[]).exits(0);
    }
    answered.extend(unanswered.and_then(|client| job_id(&client.finish())));
    let known: BTreeSet<u64> = cluster.jobs().iter().map(|job| job.id).collect();
    for id in answered {
        assert!(known.contains(&id), "job {id} was answered and is lost");
        assert_eq!(cluster.job_end(id).status(), v1::JobStatus::Success, "job {id}");
    }
    cluster.ok("instance modify -m 112M web1");
    assert_eq!(cluster.instance("web1").memory_mib, 112);
}
