//! OS definitions: what their scripts are told, what becomes of an instance when they fail, and how they are listed.

use std::fs;

use serde_json::{Value, json};

use crate::cluster::Cluster;

/// The body of a script that writes down what it was told.
fn tell(cluster: &Cluster) -> String {
    let said = cluster.dir().join("said");
    format!(
        "echo \"$0: $INSTANCE_NAME $OLD_INSTANCE_NAME $OS_NAME $DISK_COUNT $INSTANCE_REINSTALL\" >>{}",
        said.display()
    )
}

/// What scripts were told since the last time, their names without directory.
fn told(cluster: &Cluster) -> Vec<String> {
    let said = cluster.dir().join("said");
    let text = fs::read_to_string(&said).unwrap_or_default();
    fs::write(&said, "").unwrap();
    text.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn scripts_install_reinstall_and_rename() {
    let cluster = Cluster::up(2);
    for name in ["debian", "alpine"] {
        cluster.os(2, name, &tell(&cluster));
        cluster.os_script(2, name, "rename", &tell(&cluster));
    }
    cluster.ok("instance add -t file -n node2 -s 1M --swap-size 1M -o debian web1");
    assert_eq!(told(&cluster), ["create: web1  debian 2 "]);
    cluster.gnt("instance reinstall web1").exits(2).says(&["-f means yes"]);
    cluster.gnt("instance reinstall -f web1").exits(1).says(&["instance web1 is up"]);
    cluster.ok("instance shutdown web1");
    cluster.ok("instance reinstall -f web1");
    assert_eq!(told(&cluster), ["create: web1  debian 2 1"]);
    cluster.ok("instance reinstall -f -o alpine web1");
    assert_eq!(told(&cluster), ["create: web1  alpine 2 1"]);
    assert_eq!(cluster.instance("web1").os, "alpine");
    cluster.ok("instance rename web1 web9");
    assert_eq!(told(&cluster), ["rename: web9 web1 alpine 2 "]);
    // Without disks there is nothing to install on; with `none` nothing to install.
    cluster.ok("instance add -t diskless -n node2 -o debian --no-start web2");
    cluster.gnt("instance reinstall -f web2").exits(1).says(&["no disks"]);
    cluster.ok("instance add -t file -n node2 -s 1M -o none --no-start web3");
    cluster.gnt("instance reinstall -f web3").exits(1).says(&["no OS definition"]);
    assert_eq!(told(&cluster), Vec::<String>::new());
}

#[test]
fn an_unknown_definition_is_named_and_nothing_is_left() {
    let cluster = Cluster::up(2);
    cluster.os(2, "debian", "exit 0");
    let before = cluster.snapshot();
    let refused = cluster.gnt("instance add -t file -n node2 -s 1M -o debain web1").exits(1);
    refused.says(&["node2", "OS definition debain", "debian"]);
    cluster
        .gnt("instance add -t mirror -n node1:node2 -s 1M -o debian web1")
        .exits(1)
        .says(&["node1", "debian"]);
    assert_eq!(cluster.snapshot(), before);
    cluster.ok("cluster verify");
}

#[test]
fn a_create_script_that_fails_is_shown_and_its_disks_are_removed() {
    let cluster = Cluster::up(3);
    cluster.os(2, "debian", "echo formatting; echo no mirror answers >&2; exit 9");
    let before = cluster.snapshot();
    let failed = cluster.gnt("instance add -t mirror -n node2:node3 -s 1M -o debian web1").exits(1);
    failed.says(&[
        "create of OS definition debian failed with exit status 9",
        "formatting",
        "no mirror answers",
    ]);
    assert_eq!(cluster.snapshot(), before);
    cluster.ok("cluster verify");
    cluster.os(2, "debian", "exit 0");
    cluster.ok("instance add -t mirror -n node2:node3 -s 1M -o debian web1");
    // A system that could not be installed again is no reason to forget the instance.
    cluster.ok("instance shutdown web1");
    cluster.os(2, "debian", "echo still no mirror; exit 1");
    cluster.gnt("instance reinstall -f web1").exits(1).says(&["still no mirror"]);
    assert_eq!(cluster.instance("web1").os, "debian");
}

#[test]
fn definitions_are_listed_for_each_node() {
    let cluster = Cluster::up(3);
    for node in 1..=3 {
        cluster.os(node, "debian", "exit 0");
    }
    cluster.os(1, "half", "exit 0");
    cluster.os(1, "bad", "exit 0");
    fs::remove_file(cluster.os_dir(1, "bad").join("rename")).unwrap();
    fs::create_dir_all(cluster.os_dir(2, "disk")).unwrap();
    fs::write(cluster.os_dir(2, "disk").join("os.toml"), "image = \"disk.raw\"\n").unwrap();
    fs::write(cluster.os_dir(2, "disk").join("disk.raw"), "system").unwrap();

    let list = cluster.ok("os list --no-headers --separator | -o name,status,kind,nodes").stdout;
    let expected = "bad|broken|scripts|\ndebian|valid|scripts|node1,node2,node3\ndisk|partial|image|node2\nhalf|partial|scripts|node1\n";
    assert_eq!(list, expected);
    let rows: Vec<Value> = serde_json::from_str(&cluster.ok("os diagnose --json bad").stdout).unwrap();
    let states: Vec<&Value> = rows.iter().map(|row| &row["state"]).collect();
    assert_eq!(states, [&json!("broken"), &json!("missing"), &json!("missing")]);
    assert!(rows[0]["detail"].as_str().unwrap().contains("rename"), "{rows:?}");
    let info: Value = serde_json::from_str(&cluster.ok("os info --json debian").stdout).unwrap();
    assert_eq!((&info["name"], &info["valid"]), (&json!("debian"), &json!(true)));
    assert_eq!(info["places"][2]["path"], json!(cluster.os_dir(3, "debian")));
    cluster.gnt("os info ubuntu").exits(1).says(&["no node has an OS definition ubuntu"]);

    // One node is silent: it is named, and costs one wait.
    cluster.devcluster(&["kill", "node3"]).exits(0);
    cluster.ok("os list").says(&["debian", "valid", "warning: node3"]);
    cluster.ok("os diagnose debian").says(&["not reached"]);
    cluster.ok("node modify --offline yes node3");
    cluster.ok("os diagnose debian").says(&["marked offline"]);
}
