//! Scripts as sites have them for Ganeti 3, run through the operations that they are for. See `tests/corpus/README.md`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use muster_proto::v1::{Job, script_outcome::Kind};

use crate::{
    cluster::{Cluster, run, wait_for, wait_until},
    guests::{booted, cluster, folder, in_sync, named_cluster},
};

/// A script, the name that it has in directories, and the directories.
type Script = (&'static str, &'static str, &'static [&'static str]);

/// Which scripts stand in which directories. On all nodes.
const INSTALLED: &[Script] = &[
    ("dyndns", "50-dyndns", &["instance-add-post.d", "instance-remove-post.d", "instance-rename-post.d"]),
    ("dhcp-ethers", "40-dhcp", &["instance-add-post.d", "instance-remove-post.d"]),
    ("mac-filter", "20-mac", &["instance-start-post.d", "instance-stop-post.d", "instance-migrate-post.d"]),
    (
        "neigh-proxy",
        "30-neigh",
        &["instance-migrate-post.d", "instance-failover-post.d", "instance-stop-post.d"],
    ),
    (
        "storage-attach",
        "10-storage",
        &["instance-start-pre.d", "instance-migrate-pre.d", "instance-failover-pre.d"],
    ),
    ("who-am-i", "00-who", &["instance-start-post.d", "instance-migrate-post.d", "node-add-post.d"]),
    (
        "audit",
        "60-audit",
        &[
            "instance-add-pre.d",
            "instance-add-post.d",
            "instance-start-post.d",
            "instance-stop-post.d",
            "instance-modify-post.d",
            "instance-remove-pre.d",
            "instance-remove-post.d",
            "instance-reboot-post.d",
        ],
    ),
    ("by-link", "70-link", &["instance-start-pre.d", "instance-start-post.d", "instance-reboot-post.d"]),
    ("strict-report", "80-report", &["instance-add-post.d", "instance-start-pre.d", "instance-remove-pre.d"]),
    ("nic-inventory", "90-nics", &["instance-add-post.d", "instance-modify-post.d"]),
    ("memory-quota", "05-quota", &["instance-add-pre.d"]),
    ("backup-kind", "50-kind", &["instance-export-post.d"]),
    ("know-nodes", "10-nodes", &["instance-reboot-pre.d"]),
    ("tagged", "15-watch", &["instance-start-post.d", "instance-stop-post.d"]),
];
/// Only on the master.
const ON_MASTER: &[Script] = &[
    ("chat-message", "50-chat", &["instance-migrate-post.d"]),
    ("call-back", "95-call", &["instance-reboot-post.d"]),
];
/// Those that compare no host names, so that their nodes may share one.
const ANYWHERE: [&str; 4] = ["by-link", "chat-message", "memory-quota", "strict-report"];
/// The operations of a crowd are brought to their scripts within this, or there are fewer: the scripts wait for the lock for 10 s.
const CROWD_LIMIT: Duration = Duration::from_secs(4);

struct Site {
    cluster: Cluster,
    folder: PathBuf,
}

impl Site {
    /// Some of the scripts on each node.
    fn new(cluster: Cluster, nodes: u32, is_wanted: impl Fn(&str) -> bool) -> Self {
        let folder = cluster.dir().join("site");
        fs::create_dir_all(folder.join("bin")).unwrap();
        let site = Site { cluster, folder };
        let update = format!("#!/bin/sh\ncat >>{}\n", site.folder.join("dns").display());
        write_program(&site.folder.join("bin/nsupdate"), &update);
        for node in 1..=nodes {
            let on_master = if node == 1 { ON_MASTER } else { &[] };
            let scripts = INSTALLED.iter().chain(on_master);
            site.install(node, scripts.filter(|(script, ..)| is_wanted(script)));
        }
        let allow = ["cluster", "modify", "--hooks-version", "2", "--allow-command", "/bin/echo alive"];
        run(site.cluster.gnt_command(&allow)).exits(0);
        site
    }

    fn install<'a>(&self, node: u32, scripts: impl Iterator<Item = &'a Script>) {
        let hooks = self.cluster.node_dir(node).join("hooks");
        let library = self.cluster.node_dir(node).join("site-lib");
        fs::create_dir_all(&library).unwrap();
        fs::write(library.join("by-link.conf"), "LABEL=node\n").unwrap();
        let links = self.cluster.dir().join("bin").display().to_string();
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for (script, name, directories) in scripts {
            let text = fs::read_to_string(corpus.join(script)).unwrap();
            let text = text.replace("@SITE@", &self.folder.display().to_string()).replace("@BIN@", &links);
            write_program(&library.join(script), &text);
            for directory in *directories {
                fs::create_dir_all(hooks.join(directory)).unwrap();
                symlink(library.join(script), hooks.join(directory).join(name)).unwrap();
            }
        }
    }

    /// A file of the site; empty where no script made it.
    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Lines of a file.
    fn lines(&self, name: &str) -> Vec<String> {
        self.said(name).lines().map(str::to_owned).collect()
    }

    /// A command for which scripts ran, and after which every one of them has passed.
    #[track_caller]
    fn ok(&self, line: &str) {
        self.cluster.ok(line).does_not_say("warning").does_not_say("failed");
        // The master may have begun a job of its own meanwhile.
        let jobs = self.cluster.jobs();
        let asked = jobs.iter().filter(|job| !job.op_id.starts_with("OP_INSTANCE_MIRRORS_"));
        passed(&self.cluster.job(asked.map(|job| job.id).max().unwrap()));
    }
}

/// By the job's own records: scripts ran, and all passed.
#[track_caller]
fn passed(job: &Job) {
    let results = job.pre.iter().chain(&job.post).filter_map(|report| report.result.as_ref());
    let scripts: Vec<_> = results.flat_map(|result| &result.scripts).collect();
    assert!(!scripts.is_empty(), "no script ran for {}", job.summary);
    for script in scripts {
        let kind = script.outcome.as_ref().and_then(|outcome| outcome.kind.as_ref());
        assert!(matches!(kind, Some(Kind::Passed(_))), "{}: {script:?}", job.summary);
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn scripts_written_for_ganeti_3_do_here_what_they_are_for() {
    if !rustix::process::geteuid().is_root() {
        let all = INSTALLED.iter().chain(ON_MASTER).map(|(script, ..)| *script);
        let left_out: Vec<&str> = all.filter(|script| !ANYWHERE.contains(script)).collect();
        println!(
            "not run: these compare host names, which wants `muster-devcluster up --isolate`, which is for root: {}",
            left_out.join(", ")
        );
        return;
    }
    let site = Site::new(named_cluster(3), 3, |_| true);
    made(&site);
    started_and_stopped(&site);
    moved(&site);
    changed(&site);
    removed(&site);
    crowded(&site);
    joined(&site);
}

#[test]
fn scripts_that_compare_no_host_names_do_it_without_root_too() {
    let site = Site::new(cluster(2), 2, |script| ANYWHERE.contains(&script));
    site.ok(ADD);
    let web1 = site.cluster.instance("web1.example.org");
    let report = format!("web1.example.org down 16 MiB tiny {}/198.51.100.7", web1.mac);
    let host = run(Command::new("hostname")).exits(0).stdout;
    assert_eq!(site.lines(&format!("report.{}", host.trim())), [report.clone(), report], "of both nodes");
    quota_denies(&site);

    site.ok("instance start web1.example.org");
    linked(&site);
    booted(&site.cluster, 1, "web1.example.org", 1);
    in_sync(&site.cluster, "web1.example.org");
    site.ok("instance migrate -f web1.example.org");
    chatted(&site);
}

const ADD: &str = "instance add -t mirror -n node1:node2 -s 16M -m 96M --ip 198.51.100.7 -o tiny --no-start \
    web1.example.org";

/// `memory-quota`.
fn quota_denies(site: &Site) {
    let big = "instance add -t diskless -n node1 -m 2G -o none --no-start big1";
    let words = ["node1", "05-quota", "big1 wants 2048 MiB; the limit is 1024"];
    site.cluster.gnt(big).exits(1).says(&words);
    site.cluster.ok("instance list").does_not_say("big1");
}

/// `by-link`, after a start.
fn linked(site: &Site) {
    let log = site.said("by-link.log");
    assert_eq!(log.lines().count(), 4, "each phase on the primary and the secondary: {log}");
    assert!(log.contains("node: instance-start-pre 70-link web1.example.org\n"), "{log}");
}

/// `chat-message`, after the migration.
fn chatted(site: &Site) {
    let chat: serde_json::Value = serde_json::from_str(&site.said("chat")).unwrap();
    assert_eq!(chat["text"], "web1.example.org moved from node1 to node2 in dev");
}

/// `storage-attach`: the instance's volumes were announced on the node before its guest was begun there.
#[track_caller]
fn attached_before_the_guest(site: &Site, node: u32) {
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).unwrap();
    let announced = fs::read_dir(site.folder.join(format!("attached/node{node}"))).unwrap();
    let last: SystemTime = announced.map(|entry| changed(&entry.unwrap().path())).max().unwrap();
    let begun = changed(&folder(&site.cluster, node, "web1.example.org").join("pid"));
    assert!(last <= begun, "{last:?}, the guest: {begun:?}");
}

fn made(site: &Site) {
    site.ok(ADD);
    let web1 = site.cluster.instance("web1.example.org");
    let update = "zone guests.example.org\nupdate add web1.guests.example.org 300 A 198.51.100.7\nsend\n";
    assert_eq!(site.said("dns"), update);
    assert_eq!(site.said("ethers"), format!("{} web1.example.org\n", web1.mac));
    assert_eq!(
        site.lines("audit"),
        ["want web1.example.org (96 MiB, disks 16)", "made web1.example.org by create"]
    );
    let report = format!("web1.example.org down 16 MiB tiny {}/198.51.100.7\n", web1.mac);
    assert_eq!((site.said("report.node1"), site.said("report.node2")), (report.clone(), report));
    let inventory: serde_json::Value = serde_json::from_str(&site.said("inventory")).unwrap();
    assert_eq!(inventory["nics"][0]["mac"], web1.mac.as_str());
    assert_eq!(inventory["nics"][0]["ip"], "198.51.100.7");
    quota_denies(site);
}

fn started_and_stopped(site: &Site) {
    site.cluster.ok("instance add-tags web1.example.org monitor");
    site.ok("instance start web1.example.org");
    let web1 = site.cluster.instance("web1.example.org");
    let rule = format!("-A FORWARD -s {} -j ACCEPT # web1.example.org\n", web1.mac);
    assert_eq!((site.said("ebtables.node1"), site.said("ebtables.node2")), (rule, String::new()));
    let attached =
        |node: &str| fs::read_dir(site.folder.join("attached").join(node)).map_or(0, Iterator::count);
    assert_eq!((attached("node1"), attached("node2")), (1, 0));
    attached_before_the_guest(site, 1);
    assert_eq!(site.lines("roles.node1"), ["OP_INSTANCE_STARTUP post web1.example.org: master primary"]);
    assert_eq!(site.lines("roles.node2"), ["OP_INSTANCE_STARTUP post web1.example.org: secondary"]);
    assert_eq!(site.said("roles.node3"), "", "node3 has no part in it");
    linked(site);

    booted(&site.cluster, 1, "web1.example.org", 1);
    site.ok("instance shutdown web1.example.org");
    assert_eq!(site.said("ebtables.node1"), "");
    assert_eq!(site.said("proxy.node1"), "ip neigh del proxy 198.51.100.7 dev eth0\n");
    assert_eq!(site.lines("watched"), ["instance-start web1.example.org", "instance-stop web1.example.org"]);
    let audit = site.lines("audit");
    assert_eq!(
        audit[2..],
        ["want big1 (2048 MiB, disks )", "up web1.example.org forced=False", "down web1.example.org"]
    );
    site.ok("instance start web1.example.org");
}

fn moved(site: &Site) {
    let web1 = site.cluster.instance("web1.example.org");
    booted(&site.cluster, 1, "web1.example.org", 1);
    in_sync(&site.cluster, "web1.example.org");
    site.ok("instance migrate -f web1.example.org");
    let rule = format!("-A FORWARD -s {} -j ACCEPT # web1.example.org\n", web1.mac);
    assert_eq!((site.said("ebtables.node1"), site.said("ebtables.node2")), (String::new(), rule));
    attached_before_the_guest(site, 2);
    chatted(site);
    assert_eq!(site.lines("proxy.node1").len(), 2);
    assert_eq!(site.said("proxy.node2"), "");
    // INSTANCE_PRIMARY is the one before, in post too.
    let last = |node: &str| site.lines(&format!("roles.{node}")).pop().unwrap();
    assert_eq!(last("node1"), "OP_INSTANCE_MIGRATE post web1.example.org: master primary");
    assert_eq!(last("node2"), "OP_INSTANCE_MIGRATE post web1.example.org: secondary new-primary");

    in_sync(&site.cluster, "web1.example.org");
    site.ok("instance failover -f web1.example.org");
    booted(&site.cluster, 1, "web1.example.org", 1);
    attached_before_the_guest(site, 1);
    assert_eq!(site.cluster.instance("web1.example.org").primary, "node1");
    assert_eq!(site.lines("proxy.node2"), ["ip neigh del proxy 198.51.100.7 dev eth0"]);
}

fn changed(site: &Site) {
    site.ok("instance modify --vcpus 2 web1.example.org");
    // What is asked for stands in both phases, as Ganeti has it: a guard could not see it otherwise.
    assert_eq!(site.lines("audit").pop().unwrap(), "changed web1.example.org: 2 to 2");
    let record: serde_json::Value = serde_json::from_str(&site.lines("inventory")[1]).unwrap();
    assert_eq!(record["nics"], record["after"]);

    site.ok("instance reboot -t hard web1.example.org");
    assert_eq!(site.lines("audit").pop().unwrap(), "rebooted web1.example.org (hard)");
    assert_eq!(site.said("nodes"), "node1 node2 node3 ");
    assert_eq!(site.said("instances").split_whitespace().collect::<Vec<_>>(), ["web1.example.org", "node1"]);
    assert_eq!(site.said("alive").matches("return code = 0").count(), 3, "{}", site.said("alive"));

    booted(&site.cluster, 1, "web1.example.org", 2);
    site.ok("backup export -n node1 web1.example.org");
    booted(&site.cluster, 1, "web1.example.org", 1);
    site.ok("backup export --noshutdown -n node2 web1.example.org");
    assert_eq!(
        site.lines("backups"),
        ["web1.example.org on node1: clean", "web1.example.org on node2: wants a check"]
    );
}

fn removed(site: &Site) {
    in_sync(&site.cluster, "web1.example.org");
    site.ok("instance shutdown web1.example.org");
    site.ok("instance rename web1.example.org www1.example.org");
    let dns = site.said("dns");
    assert!(
        dns.ends_with(
            "zone guests.example.org\nupdate delete web1.guests.example.org A\n\
             update add www1.guests.example.org 300 A 198.51.100.7\nsend\n"
        ),
        "{dns}"
    );
    site.ok("instance remove -f www1.example.org");
    assert!(site.said("dns").ends_with("update delete www1.guests.example.org A\nsend\n"));
    let audit = site.lines("audit");
    assert_eq!(audit[audit.len() - 2..], ["would remove www1.example.org", "removed www1.example.org"]);
}

/// Several operations end at once: the DHCP server's file is changed by one script after the other, and nothing is lost.
fn crowded(site: &Site) {
    let names = ["c1", "c2", "c3", "c4"].map(|name| format!("{name}.example.org"));
    // Lines of an instance that was renamed meanwhile stay: the script is not installed for that.
    let others = site.said("ethers");
    for (verb, is_there) in
        [("add -t file -n node1 -s 1M -m 32M -o none --no-start", true), ("remove -f", false)]
    {
        let before = site.said("ethers");
        // Begun together, so that the lock need not be held for long.
        site.cluster.ok("cluster queue pause");
        let jobs = names.each_ref().map(|name| site.cluster.submit(&format!("instance {verb} {name}")));
        let lock = fs::File::open(site.folder.join("ethers.lock")).unwrap();
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        site.cluster.ok("cluster queue resume");
        let at_post =
            || site.cluster.jobs().iter().filter(|job| jobs.contains(&job.id) && job.committed).count();
        wait_for("the first one to be at its post scripts", || at_post() > 0);
        wait_until(CROWD_LIMIT, || at_post() == jobs.len());
        assert_eq!(site.said("ethers"), before, "whoever has not the lock changes nothing");
        drop(lock);
        for id in jobs {
            passed(&site.cluster.job_end(id));
        }
        let mut lines = site.lines("ethers");
        lines.retain(|line| !others.contains(line.as_str()));
        lines.sort_by_key(|line| line.split_once(' ').map(|(_, name)| name.to_owned()));
        let right = |name: &String| format!("{} {name}", site.cluster.instance(name).mac);
        let right: Vec<String> = names.iter().filter(|_| is_there).map(right).collect();
        assert_eq!(lines, right);
    }
}

fn joined(site: &Site) {
    site.cluster.ok("node remove node3");
    site.cluster.join(3);
    site.ok("node add node3");
    assert_eq!(site.lines("roles.node3"), ["OP_NODE_ADD post node3: target"]);
    assert_eq!(site.lines("roles.node1").pop().unwrap(), "OP_NODE_ADD post node3: master");
    site.cluster.ok("cluster verify");
}
