//! Operations beyond the first version's: instances leave nodes by jobs that a job asks for, move with their disks, get lost
//! disks anew; the cluster gets another name, and the site's own checks are a part of its verification.

use std::fs;

use muster_proto::v1;

use crate::{
    cluster::{Cluster, wait_for},
    dumps::dump_body,
};

/// Primary and secondary nodes of an instance.
fn places(cluster: &Cluster, name: &str) -> (String, Vec<String>) {
    let instance = cluster.instance(name);
    (instance.primary, instance.secondaries)
}

#[track_caller]
fn is_at(cluster: &Cluster, name: &str, primary: &str, secondaries: &[&str]) {
    let secondaries = secondaries.iter().map(|node| (*node).to_owned()).collect();
    assert_eq!(places(cluster, name), (primary.to_owned(), secondaries), "{name}");
}

/// The last job that asked for others, with them.
fn last_asking(cluster: &Cluster) -> (v1::Job, Vec<v1::Job>) {
    let asking = cluster.jobs().into_iter().filter(|job| !job.child_jobs.is_empty()).map(|job| job.id).max();
    let parent = cluster.job(asking.expect("a job asked for others"));
    let children = parent.child_jobs.iter().map(|id| cluster.job(*id)).collect();
    (parent, children)
}

fn summaries(jobs: &[v1::Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.summary.as_str()).collect()
}

#[test]
fn instances_leave_a_node_by_a_job_each() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t mirror -n node2:node3 -s 1M -o none a1");
    cluster.ok("instance add -t mirror -n node2:node3 -s 1M -o none --no-start a2");
    cluster.ok("instance add -t file -n node2 -s 1M --swap-size 1M -o none f1");

    // One that can't leave is named before anything begins.
    let before = cluster.snapshot();
    let words = ["not all instances can leave node2: f1: it has the template file: gnt-instance move"];
    cluster.gnt("node migrate -f node2").exits(1).says(&words);
    cluster.gnt("node migrate -f node2").exits(1).says(&["--ignore-unmovable moves the others"]);
    assert_eq!(cluster.snapshot(), before);

    // What moves guests is asked about, as in Ganeti, and nobody is there to answer.
    for line in
        ["node migrate node2", "node evacuate node2", "instance move -n node3 f1", "cluster rename prod"]
    {
        cluster.gnt(line).exits(2).says(&["There is no terminal to ask on; -f means yes"]);
    }
    assert_eq!(cluster.snapshot(), before);

    cluster.gnt("instance move -f -n node2 f1").exits(1).says(&["f1 is on node node2 already"]);
    cluster.ok("instance move -f -n node3 f1");
    is_at(&cluster, "f1", "node3", &[]);
    wait_for("f1 runs", || cluster.instance("f1").status == "running");
    cluster.gnt("instance move -f -n node1 a1").exits(1).says(&["a1 has the template mirror"]);

    let before = cluster.snapshot();
    cluster.ok("node migrate --dry-run node2").says(&["a job would follow: INSTANCE_FAILOVER(a1)"]);
    assert_eq!(cluster.snapshot(), before);

    // One of two is denied: the other moves, and the command says which and ends with 1.
    cluster.script(1, "instance-failover-pre.d", "50-no", "test \"$GANETI_INSTANCE_NAME\" != a1");
    let words =
        ["INSTANCE_FAILOVER(a1)", "INSTANCE_FAILOVER(a2)", "INSTANCE_FAILOVER(a1) did not succeed", "50-no"];
    cluster.gnt("node migrate -f --reason shift node2").exits(1).says(&words);
    cluster.unscript(1, "instance-failover-pre.d", "50-no");
    is_at(&cluster, "a1", "node2", &["node3"]);
    is_at(&cluster, "a2", "node3", &["node2"]);
    let (parent, children) = last_asking(&cluster);
    assert_eq!((parent.status(), parent.op_id.as_str()), (v1::JobStatus::Success, "OP_NODE_MIGRATE"));
    assert_eq!(summaries(&children), ["INSTANCE_FAILOVER(a1)", "INSTANCE_FAILOVER(a2)"]);
    for child in &children {
        assert_eq!((child.parent_job, child.reason.as_str()), (parent.id, "shift"));
        assert_eq!(child.user, parent.user);
    }
    let numbers = format!("{},{}", children[0].id, children[1].id);
    cluster.ok(&format!("job info {}", parent.id)).says(&[&numbers]);

    cluster.ok("node migrate -f node2");
    is_at(&cluster, "a1", "node3", &["node2"]);
    cluster.ok("node migrate -f node2");

    // Copies go to the node with the least memory in use: node1 is the only one that is neither.
    cluster.ok("node evacuate -f -s node2");
    is_at(&cluster, "a1", "node3", &["node1"]);
    is_at(&cluster, "a2", "node3", &["node1"]);
    cluster.ok("instance move -f -n node2 f1");

    // Wholly away, the second job after the first.
    cluster.gnt("node evacuate -f -p -n node2 node3").exits(2);
    cluster.gnt("node evacuate -f -n node1 node3").exits(1).says(&["node node1 is its primary, or will be"]);
    let ended = cluster.ok("node evacuate -f --json -n node2 node3");
    let jobs: Vec<serde_json::Value> = serde_json::from_str(&ended.stdout).unwrap();
    assert!(jobs.len() == 5 && jobs.iter().all(|job| job["status"] == "success"), "{ended}");
    let (_, children) = last_asking(&cluster);
    let wanted = [
        "INSTANCE_FAILOVER(a1)",
        "INSTANCE_REPLACE_DISKS(a1)",
        "INSTANCE_FAILOVER(a2)",
        "INSTANCE_REPLACE_DISKS(a2)",
    ];
    assert_eq!(summaries(&children), wanted);
    assert_eq!(children[1].depends[0].job, children[0].id);
    is_at(&cluster, "a1", "node1", &["node2"]);
    is_at(&cluster, "a2", "node1", &["node2"]);
    wait_for("a1 runs", || cluster.instance("a1").status == "running");
    cluster.ok("cluster verify");
}

/// The file of an instance's first disk on a node.
fn disk_file(cluster: &Cluster, name: &str) -> std::path::PathBuf {
    let uuid = cluster.instance(name).disks.remove(0).uuid;
    let found = cluster.files().into_keys().find(|path| path.contains(&uuid));
    cluster.dir().join(found.expect("the disk has a file"))
}

#[test]
fn a_lost_disk_is_made_anew_and_one_that_is_there_is_left_alone() {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t file -n node2 -s 1M -o none --no-start f1");
    cluster.ok("instance add -t mirror -n node1:node2 -s 1M -o none --no-start m1");
    let before = cluster.snapshot();
    cluster.gnt("instance recreate-disks f1").exits(1).says(&["its file is still there", ".raw"]);
    cluster.gnt("instance recreate-disks --disk sdb f1").exits(1).says(&["f1 has no disk sdb"]);
    cluster.gnt("instance recreate-disks -n node1 m1").exits(1).says(&["so 2 nodes: 1 are named"]);
    assert_eq!(cluster.snapshot(), before);

    fs::remove_file(disk_file(&cluster, "f1")).unwrap();
    wait_for("the loss is seen", || cluster.gnt("cluster verify").status.code() == Some(1));
    cluster.ok("instance recreate-disks f1");
    assert_eq!(fs::metadata(disk_file(&cluster, "f1")).unwrap().len(), 1024 * 1024);
    cluster.ok("instance start f1");
    cluster.gnt("instance recreate-disks f1").exits(1).says(&["instance f1 is up"]);

    // On the other node, with both files of a mirror lost.
    let disk = cluster.instance("m1").disks.remove(0);
    for (path, _) in cluster.files() {
        if path.contains(&disk.uuid) || disk.mirrors.iter().any(|copy| path.contains(&copy.uuid)) {
            fs::remove_file(cluster.dir().join(path)).unwrap();
        }
    }
    cluster.ok("instance recreate-disks -n node2:node1 m1");
    is_at(&cluster, "m1", "node2", &["node1"]);
    cluster.ok("cluster verify");
}

#[test]
fn the_sites_own_checks_are_a_part_of_a_verification() {
    let cluster = Cluster::up(2);
    cluster.script(
        2,
        "cluster-verify-post.d",
        "10-raid",
        "echo md0 is degraded; echo look at it >&2; exit 3",
    );
    // Version 1 has no hooks of it.
    cluster.ok("cluster verify").does_not_say("md0");
    cluster.ok("cluster modify --hooks-version 2");
    let words = [
        "error: node node2: ENODEHOOKS: cluster-verify-post.d/10-raid: exit code 3",
        "md0 is degraded",
        "look at it",
        "1 error",
    ];
    cluster.gnt("cluster verify").exits(1).says(&words);
    let job = cluster.last_job();
    assert_eq!((job.op_id.as_str(), job.status()), ("OP_CLUSTER_VERIFY", v1::JobStatus::Error));
    assert_eq!(job.error.unwrap().objections[0].node, "node2");
    let output = cluster.gnt("cluster verify --json").exits(1);
    let found: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let finding = &found["findings"][0];
    assert_eq!((finding["object"].as_str(), finding["code"].as_str()), (Some("node2"), Some("ENODEHOOKS")));
    assert!(finding["text"].as_str().unwrap().contains("md0 is degraded"), "{finding}");
    let serial = cluster.info().serial;
    cluster.unscript(2, "cluster-verify-post.d", "10-raid");
    for node in [1, 2] {
        cluster.script(node, "cluster-verify-post.d", "00-dump", &dump_body(&cluster.dumps()));
    }
    cluster.ok("cluster verify");
    assert_eq!(cluster.info().serial, serial, "nothing is changed");
    let dumps = cluster.take_dumps();
    let nodes: Vec<&str> = dumps.iter().map(|dump| dump.node.as_str()).collect();
    assert_eq!(nodes, ["node1", "node2"]);
    assert_eq!(dumps[0].env["GANETI_OP_CODE"], "OP_CLUSTER_VERIFY_GROUP");
    assert_eq!(dumps[0].env["GANETI_NODE_TAGS_node2"], "");
}

#[test]
fn a_cluster_under_another_name_is_the_same_cluster() {
    let cluster = Cluster::up(2);
    cluster.ok("cluster modify --hooks-version 2");
    cluster.script(1, "cluster-rename-pre.d", "00-dump", &dump_body(&cluster.dumps()));
    let before = cluster.info();
    cluster.gnt("cluster rename -f dev").exits(1).says(&["the cluster's name is dev already"]);
    cluster.gnt("cluster rename Prod").exits(2).says(&["Prod"]);
    cluster.ok("cluster rename -f prod");
    let dump = cluster.take_dumps().remove(0);
    assert_eq!((dump.env["GANETI_CLUSTER"].as_str(), dump.env["GANETI_NEW_NAME"].as_str()), ("dev", "prod"));
    let after = cluster.info();
    assert_eq!((after.name.as_str(), after.uuid), ("prod", before.uuid));
    let known = |node: u32| {
        let folder = dump.env["GANETI_DATA_DIR"].replace("/node1/", &format!("/node{node}/"));
        fs::read_to_string(format!("{folder}/ssconf_cluster_name")).unwrap()
    };
    wait_for("the nodes know it", || known(1) == "prod\n" && known(2) == "prod\n");
    // Daemons that come back know each other as before.
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.devcluster(&["start", "node2"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    wait_for("all are well", || cluster.gnt("cluster verify").status.success());
    assert_eq!(cluster.info().name, "prod");
}
