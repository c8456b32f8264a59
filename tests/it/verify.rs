//! What is told of a cluster at work: `gnt-cluster verify`, and lists with `--live`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::cluster::{Cluster, Output};

/// How often each of the instances goes through its life.
const LIVES: usize = 6;
/// How often a failover must end while a list waits for a silent node, and tries for that.
const LISTS: usize = 3;
const LISTS_TRIED_MAX: usize = 12;

/// The master's `hooks_source` with a set of one script, which is another one for each number.
fn hook_source(cluster: &Cluster, number: usize) {
    let dir = cluster.dir().join("hooks-source/instance-add-post.d");
    fs::create_dir_all(&dir).unwrap();
    // Whole at each moment: it is read meanwhile.
    let (path, new) = (dir.join("10-a"), cluster.dir().join("script.new"));
    fs::write(&new, format!("#!/bin/sh\n# {number}\nexit 0\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, &path).unwrap();
}

#[test]
fn what_jobs_are_doing_is_no_finding() {
    let cluster = Cluster::up(3);
    hook_source(&cluster, 0);
    cluster.ok("hooks sync");
    let (cluster, done) = (&cluster, &AtomicBool::new(false));
    let at_work = || !done.load(Ordering::SeqCst);
    let verifications = std::thread::scope(|scope| {
        let lives: Vec<_> = ["web1", "web2"]
            .map(|name| {
                scope.spawn(move || {
                    for _ in 0..LIVES {
                        cluster.ok(&format!("instance add -t mirror -n node2:node3 -s 1M -o none {name}"));
                        cluster.ok(&format!("instance failover -f {name}"));
                        cluster.ok(&format!("instance reboot {name}"));
                        cluster.ok(&format!("instance shutdown {name}"));
                        cluster.ok(&format!("backup export -n node1 {name}"));
                        cluster.ok(&format!("instance remove -f {name}"));
                    }
                })
            })
            .into();
        let syncing = scope.spawn(move || {
            let mut times = 0;
            while at_work() {
                times += 1;
                hook_source(cluster, times);
                cluster.ok("hooks sync");
                cluster.ok("hooks sync --full --node node3");
            }
            times
        });
        let verifying = scope.spawn(move || {
            let mut times = 0;
            while at_work() {
                cluster.ok("cluster verify");
                times += 1;
            }
            times
        });
        let lived: Vec<_> = lives.into_iter().map(|life| life.join()).collect();
        done.store(true, Ordering::SeqCst);
        lived.into_iter().for_each(|life| life.unwrap());
        [syncing.join().unwrap(), verifying.join().unwrap()]
    });
    assert!(verifications.iter().all(|times| *times > 0), "{verifications:?}");
    cluster.ok("cluster verify");
}

#[test]
fn what_jobs_did_before_is_a_finding() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t file -n node2 -s 1M -o none --no-start web1");
    let storage = cluster.node_dir(2).join("storage");
    let disk = fs::read_dir(&storage).unwrap().map(|entry| entry.unwrap().path());
    let disk = disk.into_iter().find(|path| path.extension().is_some_and(|end| end == "raw")).unwrap();
    let aside = cluster.dir().join("aside");
    fs::rename(&disk, &aside).unwrap();
    cluster.gnt("cluster verify").exits(1).says(&["ENODEDISK", "web1"]);
    fs::rename(&aside, &disk).unwrap();
    cluster.ok("cluster verify");
}

#[test]
fn a_node_that_lastingly_has_another_hook_set_is_a_finding() {
    let cluster = Cluster::up(3);
    hook_source(&cluster, 0);
    cluster.ok("hooks sync");
    cluster.script(3, "hooks-sync-pre.d", "10-no", "exit 1");
    hook_source(&cluster, 1);
    cluster.gnt("hooks sync");
    cluster.gnt("cluster verify").exits(1).says(&["ENODEHOOKSET", "node3"]).does_not_say("node2");
    cluster.unscript(3, "hooks-sync-pre.d", "10-no");
    cluster.ok("hooks sync");
    cluster.ok("cluster verify");
}

/// Primary and status of the only instance.
fn listed(list: &Output) -> (String, String) {
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    let text = |key: &str| list[0][key].as_str().unwrap().to_owned();
    (text("pnode"), text("status"))
}

#[test]
fn a_live_list_tells_of_what_was_done_while_it_waited() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t mirror -n node1:node2 -s 1M -o none web1");
    cluster.devcluster(&["pause", "node3"]).exits(0);
    let mut seen = 0;
    for tried in 0..LISTS_TRIED_MAX {
        let mut list = cluster.begin("instance list --live --json -o name,pnode,status");
        cluster.ok("instance failover -f web1");
        // On a slow machine the wait for the silent node may be over before; then the list ends while this is asked.
        cluster.ok("instance list");
        let waited = !list.is_over();
        let told = listed(&list.finish().exits(0));
        if waited {
            let primary = if tried % 2 == 0 { "node2" } else { "node1" };
            assert_eq!(told, (primary.to_owned(), "running".to_owned()));
            seen += 1;
        }
        if seen == LISTS {
            return;
        }
    }
    panic!("only {seen} of {LISTS_TRIED_MAX} lists waited for as long as a failover takes");
}
