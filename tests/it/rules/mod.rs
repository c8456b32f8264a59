//! The hook rules R1-R10 and E1-E5 of HOOKS.md, each shown on real daemons. (D and X are shown where scripts are run, in hooksrv.)
//!
//! The operation is mostly `instance modify` of a mirrored instance: its set is master, primary and secondary, and it asks nothing
//! of the nodes themselves, so that what is seen comes from hooks alone.

mod denials;
mod environment;
mod graded;
mod office;
mod post;
mod reach;
mod restart;

use crate::cluster::{Cluster, Output};

/// node1 to node3 and web1 on node2 with node3 as secondary, down.
fn cluster_with_web1() -> Cluster {
    let cluster = Cluster::up(3);
    cluster.ok("instance add -t mirror -n node2:node3 -s 16M -m 64M -p 1 -o none --no-start web1");
    cluster
}

const PRE: &str = "instance-modify-pre.d";
const POST: &str = "instance-modify-post.d";

/// Changes web1's memory; the set is node1, node2, node3.
#[track_caller]
fn modify(cluster: &Cluster, memory: u64) -> Output {
    cluster.gnt(&format!("instance modify -m {memory} web1"))
}

/// A script that says that it runs, then waits until the gate is opened.
fn waiting_script(cluster: &Cluster, mark: &str) -> String {
    let dir = cluster.dir().display();
    format!(": > '{dir}/{mark}.runs'; while [ ! -e '{dir}/{mark}.gate' ]; do sleep 0.02; done")
}

/// Waits until the script of [`waiting_script`] runs.
#[track_caller]
fn runs(cluster: &Cluster, mark: &str) {
    let path = cluster.dir().join(format!("{mark}.runs"));
    crate::cluster::wait_for("the script runs", || path.exists());
}

/// Lets the scripts of [`waiting_script`] end.
fn open_gate(cluster: &Cluster, mark: &str) {
    std::fs::write(cluster.dir().join(format!("{mark}.gate")), "").unwrap();
}
