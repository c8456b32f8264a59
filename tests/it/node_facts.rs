//! Node facts: found by the daemons, kept by the master over its restart, shown, filtered by, and told to scripts.

use std::fs;

use serde_json::Value;

use crate::cluster::{Cluster, wait_for};

/// A host for a node's daemon to look at, which says that its system is of this version.
fn host_says(cluster: &Cluster, node: u32, version: &str) {
    let etc = cluster.node_dir(node).join("host/etc");
    fs::create_dir_all(&etc).unwrap();
    let new = etc.join("os-release.new");
    let text =
        format!("ID=testos\nVERSION_ID=\"{version}\"\nVERSION=\"{version}-SP3\"\nPRETTY_NAME='Test OS $x'\n");
    fs::write(&new, text).unwrap();
    fs::rename(new, etc.join("os-release")).unwrap();
}

/// The node's daemon looks there from its next start on.
fn looks_at_its_own_host(cluster: &Cluster, node: u32) {
    let config = cluster.node_dir(node).join("noded.toml");
    let root = cluster.node_dir(node).join("host");
    let text = fs::read_to_string(&config).unwrap() + &format!("host_root = \"{}\"\n", root.display());
    fs::write(config, text).unwrap();
    let name = format!("node{node}");
    cluster.devcluster(&["kill", &name]).exits(0);
    cluster.devcluster(&["start", &name]).exits(0);
}

/// Names of the nodes that pass a filter.
fn passing(cluster: &Cluster, filter: &str) -> String {
    let args = ["node", "list", "--no-headers", "-o", "name", "-F", filter];
    let listed = crate::cluster::run(cluster.gnt_command(&args)).exits(0).stdout;
    listed.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn info(cluster: &Cluster, flags: &str) -> Value {
    serde_json::from_str(&cluster.ok(&format!("node info --json {flags} node2")).stdout).unwrap()
}

#[test]
fn facts_are_kept_shown_and_told_to_scripts() {
    let cluster = Cluster::up(2);
    // Of this machine, whatever it is: what it says of itself is not known here.
    wait_for("both nodes have told", || passing(&cluster, "facts_age >= 0") == "node1 node2");
    cluster.ok("node list -o name,cpus,os_string,kernel,hypervisors,facts_age").says(&["fake"]);
    assert_eq!(passing(&cluster, "hypervisors == fake and name == node2"), "node2");
    cluster.gnt("node list -F os_nmae==x").exits(2).says(&["os_name"]);

    host_says(&cluster, 2, "1");
    looks_at_its_own_host(&cluster, 2);
    wait_for("the change is known", || passing(&cluster, "os_name == testos and os_version < 2") == "node2");

    // A change that is looked for at once, and told to scripts on the master.
    let told = cluster.dir().join("told");
    let body = format!(
        "(echo $GANETI_NODE_NAME $GANETI_NODE_OS_NAME $GANETI_NODE_OS_VERSION; cat \"$GANETI_FACTS_PATH\") >{0}.new && mv {0}.new {0}",
        told.display()
    );
    cluster.script(1, "node-facts-post.d", "10-tell", &body);
    host_says(&cluster, 2, "2");
    assert_eq!(info(&cluster, "--live")["os_version"], "2");
    wait_for("the script was run", || told.exists());
    let text = fs::read_to_string(&told).unwrap();
    let (line, facts) = text.split_once('\n').unwrap();
    assert_eq!(line, "node2 testos 2");
    let facts: Value = serde_json::from_str(facts).unwrap();
    assert_eq!((&facts["node"], &facts["os_sp"]), (&Value::from("node2"), &Value::from("3")));

    restarted_master_knows_a_silent_node(&cluster);
    scripts_of_node_operations_see_them(&cluster);
}

/// The facts are there with their age, while the node is down.
fn restarted_master_knows_a_silent_node(cluster: &Cluster) {
    cluster.devcluster(&["kill", "node2"]).exits(0);
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    let node = info(cluster, "");
    assert_eq!((&node["os_version"], &node["mtotal"]), (&Value::from("2"), &Value::Null));
    assert!(node["facts_age"].as_f64().unwrap() > 0.0, "{node}");
    cluster.devcluster(&["start", "node2"]).exits(0);
}

/// Those of a node that goes, and those of a host that asks to join.
fn scripts_of_node_operations_see_them(cluster: &Cluster) {
    cluster.install_dumps(1, &["node-remove", "node-add"]);
    let seen = |name: &str| {
        let dumps = cluster.take_dumps();
        assert_eq!(dumps.len(), 2, "pre and post");
        let value = |dump: &crate::dumps::Dump| dump.env[&format!("GANETI_{name}")].clone();
        assert_eq!(value(&dumps[0]), value(&dumps[1]));
        (value(&dumps[0]), dumps[0].env["GANETI_NODE_OS_STRING"].clone())
    };
    cluster.ok("node remove node2");
    assert_eq!(seen("NODE_OS_VERSION"), ("2".to_owned(), "Test OS $x".to_owned()));
    cluster.ok("node list").does_not_say("node2");
    host_says(cluster, 2, "3");
    wait_for("the daemon has left", || !cluster.node_dir(2).join("state/node/node.json").exists());
    cluster.join(2);
    cluster.ok("node pending -o name,os_name,os_version,os_sp --no-headers").says(&["node2 testos 3 3"]);
    cluster.ok("hooks explain node add node2").says(&["GANETI_NODE_OS_SP"]);
    cluster.ok("node add node2");
    assert_eq!(seen("NODE_OS_VERSION"), ("3".to_owned(), "Test OS $x".to_owned()));
}
