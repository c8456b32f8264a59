//! Guests at a bridge: they have the addresses that the cluster gave them, reach each other, and leave no device behind.

use std::process::Command;

use crate::{
    cluster::{Cluster, run, wait_for},
    guests::{ask, booted, isolated_cluster, pid},
};

/// A bridge, and the leave to use it that QEMU's helper asks for. The host's own `/etc` is not touched: the daemons see a
/// copy of it.
const BRIDGE: &str = "ip link add br0 type bridge; ip link set br0 up; mount -t tmpfs tmpfs /mnt; \
                      cp -a /etc /mnt/etc; mkdir -p /mnt/etc/qemu; echo 'allow br0' >/mnt/etc/qemu/bridge.conf; \
                      mount --bind /mnt/etc /etc";

/// Whether this user may make networks.
fn may_make_networks() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", "ip link add br0 type bridge && test -c /dev/net/tun"]);
    command.output().is_ok_and(|output| output.status.success())
}

/// How many devices are at the bridge, in the network of this process.
fn devices(of: rustix::process::Pid) -> usize {
    let mut command = Command::new("nsenter");
    command.args(["--target", &of.as_raw_nonzero().to_string(), "--net"]);
    command.args(["ip", "-oneline", "link", "show", "master", "br0"]);
    run(command).exits(0).stdout.lines().count()
}

#[test]
fn guests_at_a_bridge_reach_each_other_and_leave_no_device() {
    if !may_make_networks() {
        println!("not run: guests at a bridge want root, `ip`, network namespaces and /dev/net/tun");
        return;
    }
    let cluster = isolated_cluster(2, BRIDGE);
    cluster.ok("cluster modify --nic bridge:br0");
    for (node, name) in [(1, "web1"), (2, "web2")] {
        cluster.ok(&format!("instance add -t file -n node{node} -s 16M -m 96M -o tiny {name}"));
    }
    for (node, name) in [(1, "web1"), (2, "web2")] {
        booted(&cluster, node, name, 1);
        let mac = cluster.instance(name).mac;
        ask(&cluster, name, "cat /sys/class/net/eth0/address\n", &mac);
        let up = format!("ifconfig eth0 10.9.8.{node} netmask 255.255.255.0 up && echo network $?\n");
        ask(&cluster, name, &up, "network 0");
    }
    // The first packet may wait too long for the other's address.
    ask(&cluster, "web1", "until ping -c 1 -W 5 10.9.8.2; do sleep 1; done\n", " 0% packet loss");
    let kept = pid(&cluster, 2, "web2");
    assert_eq!(devices(kept), 2);

    cluster.ok("instance shutdown --timeout 1 web1");
    wait_for("the device of a guest goes with it", || devices(kept) == 1);
    a_bridge_that_is_not_there_is_named(&cluster);
}

fn a_bridge_that_is_not_there_is_named(cluster: &Cluster) {
    cluster.ok("cluster modify --nic bridge:br7");
    cluster.gnt("instance start web1").exits(1).says(&["br7"]);
    cluster.ok("cluster modify --nic bridge:br0");
    cluster.ok("instance start web1");
    cluster.ok("cluster verify");
}
