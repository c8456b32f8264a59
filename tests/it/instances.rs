//! What is done with instances beyond the operations that have hooks: reboot, rename, larger disks; and parameters of guests.

use crate::cluster::{Cluster, wait_for};
use crate::dumps::dump_body;

/// The sizes of a disk's files on all nodes, in MiB, by the node's directory.
fn sizes(cluster: &Cluster, instance: &str) -> Vec<(String, u64)> {
    let disk = cluster.instance(instance).disks.remove(0);
    let uuids: Vec<&str> = std::iter::once(disk.uuid.as_str())
        .chain(disk.mirrors.iter().map(|copy| copy.uuid.as_str()))
        .collect();
    let files = cluster.files().into_iter().filter(|(path, _)| uuids.iter().any(|uuid| path.contains(uuid)));
    files
        .map(|(path, (length, _))| (path.split('/').next().unwrap().to_owned(), length / 1024 / 1024))
        .collect()
}

#[test]
fn an_instance_that_is_up_reboots_in_three_ways() {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t file -n node2 -s 1M -o none web1");
    for way in ["", "-t soft", "-t hard", "--type full"] {
        cluster.ok(&format!("instance reboot {way} web1"));
        wait_for("it runs", || cluster.instance("web1").status == "running");
    }
    cluster.ok("instance reboot web1 --dry-run");
    cluster.gnt("instance reboot -t warm web1").exits(2).says(&["warm", "soft"]);
    cluster.ok("instance shutdown web1");
    let before = cluster.snapshot();
    cluster.gnt("instance reboot web1").exits(1).says(&["instance web1 is down"]);
    assert_eq!(cluster.snapshot(), before);
    cluster.gnt("instance reboot web2").exits(1).says(&["there is no instance web2"]);
}

#[test]
fn a_reboot_that_fails_is_told_and_changes_nothing() {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t file -n node2 -s 1M -o none web1");
    let before = cluster.snapshot();
    cluster.faults(2, "[guest_reboot]\nfail = \"the button is stuck\"\n");
    cluster.gnt("instance reboot web1").exits(1).says(&["the button is stuck"]);
    cluster.faults(2, "[guest_stop]\nfail = \"it does not stop\"\n");
    cluster.gnt("instance reboot -t full web1").exits(1).says(&["it does not stop"]);
    cluster.faults(2, "");
    assert_eq!(cluster.snapshot(), before);
    cluster.ok("instance list --live").says(&["running"]);
}

#[test]
fn an_instance_under_another_name_is_the_same_instance() {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t mirror -n node2:node1 -s 1M -o none --no-start web1");
    cluster.ok("instance add -t diskless -n node1 -o none --no-start web2");
    let (web1, files) = (cluster.instance("web1"), cluster.files());
    cluster.gnt("instance rename web1 web2").exits(1).says(&["there is an instance web2 already"]);
    cluster.gnt("instance rename web1 Web9").exits(2).says(&["Web9"]);
    cluster.ok("instance rename web1 web9");
    let names: Vec<String> = cluster.instances().into_iter().map(|instance| instance.name).collect();
    assert_eq!(names, ["web2", "web9"]);
    let web9 = cluster.instance("web9");
    assert_eq!((web9.uuid, web9.mac, web9.disks), (web1.uuid, web1.mac, web1.disks));
    let disks = |files: &std::collections::BTreeMap<String, (u64, u64)>| {
        files
            .iter()
            .filter(|(path, _)| path.contains("/storage/"))
            .map(|(path, kept)| (path.clone(), *kept))
            .collect::<Vec<_>>()
    };
    assert_eq!(disks(&cluster.files()), disks(&files));
    // Scripts hear the new name from now on, and the old one is free.
    cluster.script(1, "instance-start-pre.d", "10-dump", &dump_body(&cluster.dumps()));
    cluster.ok("instance start web9");
    let dumps = cluster.take_dumps();
    assert_eq!(dumps[0].env["GANETI_INSTANCE_NAME"], "web9");
    assert_eq!(dumps[0].env["GANETI_OP_TARGET"], "web9");
    cluster.gnt("instance rename web9 web8").exits(1).says(&["instance web9 is up"]);
    cluster.ok("instance add -t diskless -n node2 -o none web1");
    cluster.ok("cluster verify");
}

#[test]
fn a_disk_grows_on_all_nodes_that_have_a_copy() {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t mirror -n node2:node3 -s 8M -o none web1");
    cluster.gnt("instance grow-disk web1 sda 1M").exits(1).says(&["instance web1 is up"]);
    cluster.ok("instance shutdown web1");
    let grown = |mib| vec![("node2".to_owned(), mib), ("node3".to_owned(), mib)];
    assert_eq!(sizes(&cluster, "web1"), grown(8));
    cluster.ok("instance grow-disk web1 sda 24M");
    assert_eq!((sizes(&cluster, "web1"), cluster.instance("web1").disks[0].size_mib), (grown(32), 32));
    cluster.gnt("instance grow-disk web1 sdb 1M").exits(1).says(&["no disk sdb"]);
    cluster.gnt("instance grow-disk web1 sda -1M").exits(2).says(&["-1M"]);
    // One of both can't: the other goes back. Whether that one has changed its file nobody knows, until it answers again.
    cluster.faults(3, "[disk_resize]\nfail = \"no space left\"\n");
    cluster.gnt("instance grow-disk web1 sda 8M").exits(1).says(&["no space left", "node3"]);
    let id = cluster.last_job().id;
    cluster.gnt("cluster verify").exits(1).says(&["EUNDO", "no space left"]);
    cluster.faults(3, "");
    cluster.ok(&format!("job repair {id}"));
    cluster.ok("cluster verify");
    assert_eq!((sizes(&cluster, "web1"), cluster.instance("web1").disks[0].size_mib), (grown(32), 32));
    cluster.ok("instance start web1");
}

#[test]
fn parameters_of_guests_are_kept_and_shown() {
    let cluster = Cluster::up(1);
    cluster.ok("cluster info").says(&["hypervisor:           fake", "fence_command:        none"]);
    cluster.ok("cluster modify --accel tcg --nic bridge:br0 --fence-command /usr/sbin/fence");
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    let info: serde_json::Value = serde_json::from_str(&cluster.ok("cluster info --json").stdout).unwrap();
    let shown = ["hypervisor", "accel", "nic", "fence_command"].map(|key| info[key].as_str().unwrap());
    assert_eq!(shown, ["fake", "tcg", "bridge:br0", "/usr/sbin/fence"]);
    cluster.gnt("cluster modify --nic bridge:").exits(2).says(&["bridge:NAME"]);
    cluster.gnt("cluster modify --accel fast").exits(2).says(&["fast"]);
    cluster.gnt("cluster modify --fence-command fence").exits(1).says(&["absolute path"]);
    cluster.ok("cluster modify --nic none --fence-command none");
    let info = cluster.info();
    assert_eq!((info.nic.as_str(), info.accel.as_str(), info.fence_command), ("none", "tcg", None));
}

#[test]
fn a_fake_guest_has_no_console() {
    let cluster = Cluster::up(1);
    cluster.ok("instance add -t diskless -n node1 -o none web1");
    cluster.gnt("instance console web1").exits(1).says(&["web1 on node1", "console"]);
    cluster.gnt("instance console web2").exits(1).says(&["there is no instance web2", "web1"]);
}
