//! `gnt-cluster verify` on a cluster at work.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cluster::Cluster;

/// How often each of the instances goes through its life.
const LIVES: usize = 6;

#[test]
fn what_jobs_are_doing_is_no_finding() {
    let cluster = Cluster::up(3);
    let (cluster, done) = (&cluster, &AtomicBool::new(false));
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
        let verifying = scope.spawn(move || {
            let mut times = 0;
            while !done.load(Ordering::SeqCst) {
                cluster.ok("cluster verify");
                times += 1;
            }
            times
        });
        for life in lives {
            life.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        verifying.join().unwrap()
    });
    assert!(verifications > 0, "it verified nothing");
    cluster.ok("cluster verify");
}
