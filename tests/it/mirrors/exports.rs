//! Exports of running and of stopped guests, and what becomes of them.

use std::fs;

use super::with_writer;
use crate::{
    cluster::Cluster,
    guests::{acknowledged, booted, has_status, in_sync, last_ack, writes_past},
};

/// Imports the newest export on node3 as another instance on node3, whose guest goes on from what was saved.
#[track_caller]
fn imported(cluster: &Cluster, name: &str) -> u64 {
    cluster.ok(&format!("backup import -t file -n node3 --src-node node3 --src-dir web1 {name}"));
    booted(cluster, 3, name, 1);
    writes_past(cluster, 3, name, 0);
    let (first, _) = acknowledged(cluster, 3, name).unwrap();
    first - 1
}

#[test]
fn an_export_holds_a_prefix_of_what_was_written() {
    let cluster = with_writer();
    let before = last_ack(&cluster, 1, "web1");
    cluster.ok("backup export --noshutdown -n node3 web1");
    let after = last_ack(&cluster, 1, "web1");
    has_status(&cluster, "web1", "running");
    let saved = imported(&cluster, "copy1");
    println!("an export of a running guest: {saved} records, between {before} and {after}");
    assert!(before <= saved && saved <= after + 1, "{before} <= {saved} <= {after}");
    in_sync(&cluster, "web1");

    cluster.ok("backup export -n node3 web1");
    has_status(&cluster, "web1", "running");
    writes_past(&cluster, 1, "web1", 0);
    let (first, _) = acknowledged(&cluster, 1, "web1").unwrap();
    let saved = imported(&cluster, "copy2");
    assert_eq!(saved, first - 1, "the guest went on from what was saved");
    in_sync(&cluster, "web1");

    // A damaged export makes no instance.
    let folder = fs::read_dir(cluster.node_dir(3).join("export")).unwrap().next().unwrap().unwrap().path();
    let image = folder.join("sda.raw");
    let mut bytes = fs::read(&image).unwrap();
    bytes[1000] ^= 1;
    fs::write(&image, bytes).unwrap();
    cluster
        .gnt("backup import -t file -n node3 --src-node node3 --src-dir web1 copy3")
        .exits(1)
        .says(&["check export", "sda.raw"]);
    let names: Vec<String> = cluster.instances().into_iter().map(|instance| instance.name).collect();
    assert_eq!(names, ["copy1", "copy2", "web1"]);
    cluster.ok("instance remove -f copy1");
    cluster.ok("instance remove -f copy2");
    cluster.ok("cluster verify");
}
