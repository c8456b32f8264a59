//! The whole life of groups of nodes, networks and tags, by the commands, with wrong input in every argument.

use muster_proto::v1;
use serde_json::{Value, json};

use crate::cluster::Cluster;

fn value(cluster: &Cluster, line: &str) -> Value {
    serde_json::from_str(&cluster.ok(line).stdout).unwrap_or_else(|why| panic!("{line}: {why}"))
}

/// What must not be done: the exit code and a part of what is said.
#[track_caller]
fn refuse(cluster: &Cluster, cases: &[(&str, i32, &str)]) {
    for (line, code, words) in cases {
        cluster.gnt(line).exits(*code).says(&[words]);
    }
}

fn groups_live(cluster: &Cluster) {
    assert_eq!(
        value(cluster, "node list --json -o name,group")[1],
        json!({ "name": "node2", "group": "default" })
    );
    let group = value(cluster, "group info --json default");
    assert_eq!((&group["node_cnt"], &group["alloc_policy"]), (&json!(2), &json!("preferred")));
    cluster.ok("group add --alloc-policy last_resort rack2");
    refuse(
        cluster,
        &[
            ("group add rack2", 1, "there is a group rack2 already"),
            ("group add Rack", 2, "group name \"Rack\" is not valid"),
            ("group add --alloc-policy never x", 2, "never"),
            ("group modify rack2", 2, "--alloc-policy"),
            (
                "group modify --alloc-policy preferred rack3",
                1,
                "there is no group rack3; the nearest name is rack2",
            ),
            ("group rename rack2 default", 1, "there is a group default already"),
            ("group rename rakc2 x", 1, "there is no group rakc2; the nearest name is rack2"),
            ("group remove default", 1, "group default has the nodes node1, node2"),
            ("group assign-nodes rack2", 2, "NODE"),
            ("group assign-nodes rack2 node3", 1, "there is no node node3"),
            ("group info rack9", 1, "there is no group rack9; the nearest name is rack2"),
            ("group list -o nam", 2, "did you mean \"name\"?"),
        ],
    );
    cluster.ok("group assign-nodes rack2 node2");
    cluster.ok("group rename rack2 room7");
    let groups = value(cluster, "group list --json -o name,node_list,alloc_policy");
    let expected = json!([
        { "name": "default", "node_list": ["node1"], "alloc_policy": "preferred" },
        { "name": "room7", "node_list": ["node2"], "alloc_policy": "last_resort" },
    ]);
    assert_eq!(groups, expected);
    cluster.ok("group modify --alloc-policy unallocable room7");
    let diskless = "instance add -t diskless -o none";
    refuse(cluster, &[(&format!("{diskless} -n node2 a1"), 1, "in group room7, which is unallocable")]);
    cluster.ok("group modify --alloc-policy preferred room7");
}

fn networks_live(cluster: &Cluster) {
    let range = "--network 198.51.100.0/28";
    cluster.ok(&format!(
        "network add {range} --gateway 198.51.100.1 --mac-prefix AA:00:55 --add-reserved-ips 198.51.100.2,198.51.100.4 lan"
    ));
    refuse(
        cluster,
        &[
            (&format!("network add {range} lan"), 1, "there is a network lan already"),
            (&format!("network add {range} dmz"), 1, "of network lan have addresses in common"),
            ("network add --network 198.51.100.1/28 x", 2, "begins with 198.51.100.0"),
            ("network add --network 10.0.0.0/8 x", 2, "not from /16 to /30"),
            (&format!("network add {range} none"), 2, "none is the word for no network"),
            (
                "network add --network 203.0.113.0/28 --gateway 192.0.2.1 x",
                1,
                "gateway 192.0.2.1 is no host's",
            ),
            ("network add --network 203.0.113.0/28 --gateway ::1 x", 2, "it must be an IPv4 address"),
            ("network add --network 203.0.113.0/28 --network6 2001:db8::1/64 x", 2, "begins with 2001:db8::"),
            ("network add --network 203.0.113.0/28 --gateway6 2001:db8::1 x", 2, "--network6"),
            ("network add --network 203.0.113.0/28 --mac-prefix 01:02:03 x", 2, "many receivers"),
            ("network add --network 203.0.113.0/28 --add-reserved-ips 192.0.2.1 x", 1, "192.0.2.1 is not in"),
            ("network add --network 203.0.113.0/28 --tags a:b,c%d x", 2, "tag \"c%d\" is not valid"),
            ("network modify lan", 2, "--gateway"),
            (
                "network modify --add-reserved-ips 198.51.100.2 lan",
                1,
                "198.51.100.2 is reserved in network lan",
            ),
            ("network modify --remove-reserved-ips 198.51.100.3 lan", 1, "198.51.100.3 is not reserved"),
            ("network modify --gateway none lam", 1, "there is no network lam; the nearest name is lan"),
            ("network connect lan default", 2, "--nic-parameters"),
            ("network connect -N mode=ovs,link=x lan default", 2, "unknown mode \"ovs\""),
            ("network connect -N mode=bridged lan default", 2, "the link is missing"),
            ("network connect -N link=br0 lan rack2", 1, "there is no group rack2"),
            ("network disconnect lan default", 1, "network lan is not connected to group default"),
            (
                "instance add -t diskless -n node1 -o none --network lan a1",
                1,
                "not connected to group default",
            ),
            ("network remove lax", 1, "there is no network lax; the nearest name is lan"),
        ],
    );
    cluster.ok("network connect -N link=br0 lan default");
    refuse(cluster, &[("network connect -N link=br0 lan default", 1, "connected to group default already")]);
}

fn instances_have_addresses(cluster: &Cluster) {
    let add = "instance add -t diskless -o none --no-start";
    cluster.ok(&format!("{add} -n node1 --network lan --ip pool a1"));
    cluster.ok(&format!("{add} -n node1 --network lan --ip 198.51.100.6 a2"));
    cluster.ok(&format!("{add} -n node1 a3"));
    // .1 is the gateway, .2 reserved.
    let first = value(cluster, "instance info --json a1");
    assert_eq!((&first["ip"], &first["network"]), (&json!("198.51.100.3"), &json!("lan")));
    assert!(first["mac"].as_str().unwrap().starts_with("aa:00:55:"), "{first}");
    refuse(
        cluster,
        &[
            (&format!("{add} -n node1 --ip pool a4"), 1, "an address from the pool is one of a network"),
            (&format!("{add} -n node1 --ip 198.51.100.9 a4"), 1, "198.51.100.9 is one of network lan"),
            (
                &format!("{add} -n node1 --network lan --ip 192.0.2.9 a4"),
                1,
                "192.0.2.9 is not in network lan",
            ),
            (&format!("{add} -n node1 --network lan --ip 198.51.100.3 a4"), 1, "instance a1 has the address"),
            (
                &format!("{add} -n node1 --network lan --ip 198.51.100.4 a4"),
                1,
                "it is reserved in network lan",
            ),
            (&format!("{add} -n node2 --network lan a4"), 1, "network lan is not connected to group room7"),
            (
                &format!("{add} -n node1 --network lam a4"),
                1,
                "there is no network lam; the nearest name is lan",
            ),
            ("instance modify --ip 198.51.100.7 a1", 1, "name it with the address (--network lan)"),
            ("instance modify --ip somewhere a1", 2, "or none or pool"),
            (
                "network modify --add-reserved-ips 198.51.100.6 lan",
                1,
                "instance a2 has the address 198.51.100.6",
            ),
            (
                "network disconnect lan default",
                1,
                "network lan is used by instances on nodes of group default: a1, a2",
            ),
            ("network remove lan", 1, "network lan is used by instances: a1, a2"),
            (
                "group assign-nodes room7 node1",
                1,
                "node node1 has instance a1, whose network lan is not connected",
            ),
        ],
    );
    cluster.ok("instance modify --network lan --ip pool a3");
    let third = value(cluster, "instance list --json -o name,ip,network a3");
    assert_eq!(third, json!([{ "name": "a3", "ip": "198.51.100.5", "network": "lan" }]));
    // Three instances, two reserved addresses, the gateway, and the range's own two.
    let network = value(cluster, "network info --json lan");
    assert_eq!((&network["free_count"], &network["pool_count"]), (&json!(8), &json!(11)));
    assert_eq!(network["instances"][0], json!({ "name": "a1", "ip": "198.51.100.3" }));
    assert_eq!(network["groups"][0]["link"], json!("br0"));
    cluster.ok("instance modify --network none a3");
    let third = value(cluster, "instance list --json -o ip,network a3");
    assert_eq!(third, json!([{ "ip": null, "network": null }]));
    cluster.ok("instance remove -f a1");
    cluster.ok("instance remove -f a2");
    cluster.ok("network disconnect lan default");
}

fn tags_live(cluster: &Cluster) {
    for (group, name) in [("node", "node1"), ("instance", "a3"), ("group", "room7"), ("network", "lan")] {
        cluster.ok(&format!("{group} add-tags {name} prod site:north"));
        cluster.ok(&format!("{group} list-tags {name}")).says(&["prod\nsite:north\n"]);
        cluster.ok(&format!("{group} remove-tags {name} prod"));
        refuse(
            cluster,
            &[
                (&format!("{group} remove-tags {name} site:nort"), 1, "the nearest one is site:north"),
                (&format!("{group} add-tags {name}"), 2, "TAG"),
                (&format!("{group} add-tags {name} a%b"), 2, "tag \"a%b\" is not valid"),
                (&format!("{group} add-tags zzz x"), 1, "there is no"),
                (&format!("{group} list-tags zzz"), 1, "there is no"),
                (&format!("{group} list-tags Z"), 2, "is not valid"),
            ],
        );
        let listed = value(cluster, &format!("{group} list --json -o tags {name}"));
        assert_eq!(listed, json!([{ "tags": ["site:north"] }]), "{group}");
    }
    cluster.ok("cluster add-tags site:south");
    cluster.ok("cluster list-tags").says(&["site:south"]);
    assert_eq!(value(cluster, "cluster info --json")["tags"], json!(["site:south"]));
    let found = cluster.ok("cluster search-tags site:*").stdout;
    let expected = "/cluster site:south\n/nodes/node1 site:north\n/instances/a3 site:north\n/nodegroup/room7 site:north\n\
                    /networks/lan site:north\n";
    assert_eq!(found, expected);
    assert_eq!(value(cluster, "cluster search-tags --json south")[0]["kind"], json!("cluster"));
    cluster.ok("cluster remove-tags site:south");
    refuse(cluster, &[("cluster remove-tags site:south", 1, "the cluster has no tag site:south")]);
}

#[test]
fn groups_networks_and_tags_live_through_their_commands() {
    let cluster = Cluster::up(2);
    groups_live(&cluster);
    networks_live(&cluster);
    instances_have_addresses(&cluster);
    tags_live(&cluster);
    let before = cluster.snapshot();
    // What is stored is what a restarted master has.
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    let after = cluster.snapshot();
    assert_eq!(after, before);
    assert_eq!(
        value(&cluster, "node list --json -o group,tags node2"),
        json!([{ "group": "room7", "tags": [] }])
    );
    // And away again.
    cluster.ok("network remove lan");
    cluster.ok("group assign-nodes default node2");
    cluster.ok("group remove room7");
    refuse(&cluster, &[("group remove room7", 1, "there is no group room7")]);
    assert_eq!(value(&cluster, "network list --json"), json!([]));
    let job: Vec<v1::Job> =
        cluster.jobs().into_iter().filter(|job| job.summary.contains("GROUP_REMOVE")).collect();
    assert!(!job.is_empty(), "removals are jobs");
}
