//! Guests that move: live, to another secondary, back.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::{number, rounds, went_on, with_writer};
use crate::{
    cluster::{wait_for, wait_until},
    guests::{
        BOOT_LIMIT, acknowledged_at, copies_are_identical, has_status, in_sync, last_ack, pid, writes_past,
    },
};

#[test]
fn a_migration_loses_nothing() {
    let cluster = with_writer();
    for round in 1..=rounds(2, 10) {
        let instance = cluster.instance("web1");
        let (old, new) = (number(&instance.primary), number(&instance.secondaries[0]));
        let began = Instant::now();
        let moving = cluster.begin("instance migrate -f web1");
        // The old process is seen until it is gone, then the new one.
        let mut before = 0;
        let mut clock_before = 0.0;
        let mut quiet_since = Instant::now();
        let mut quiet = Duration::ZERO;
        let resumed = wait_until(BOOT_LIMIT, || {
            let now = last_ack(&cluster, old, "web1").max(before);
            let there = last_ack(&cluster, new, "web1");
            if now > before {
                before = now;
                clock_before =
                    acknowledged_at(&cluster, old, "web1").last().map_or(clock_before, |(_, at)| *at);
                quiet_since = Instant::now();
            }
            quiet = quiet_since.elapsed();
            there > 0
        });
        moving.finish().exits(0);
        assert!(resumed, "the guest writes on its new node");
        let took = began.elapsed();
        let (first, _) = crate::guests::acknowledged(&cluster, new, "web1").unwrap();
        assert!(first <= before + 2, "the guest was not started anew: {before}, then {first}");
        let clock_after = acknowledged_at(&cluster, new, "web1").first().map(|(_, at)| *at).unwrap();
        // Under the translator the guest's clock stands still with the guest.
        println!(
            "round {round}: node{old} to node{new} in {took:?}; no record for {:.2} s by the guest's clock, {:.2} s by the \
             host's",
            clock_after - clock_before,
            quiet.as_secs_f64()
        );
        assert_eq!(cluster.instance("web1").primary, format!("node{new}"));
        in_sync(&cluster, "web1");
    }
    has_status(&cluster, "web1", "running");
    cluster.ok("instance shutdown web1");
    copies_are_identical(&cluster, "web1");
    let promised = 1;
    cluster.ok("instance start web1");
    let primary = number(&cluster.instance("web1").primary);
    went_on(&cluster, primary, promised);
    cluster.ok("cluster verify");
}

#[test]
fn a_new_secondary_leaves_no_gap() {
    for kill in [None, Some(Duration::from_millis(150)), Some(Duration::from_millis(600))] {
        let cluster = with_writer();
        let job = cluster.submit("instance replace-disks -n node3 web1");
        if let Some(after) = kill {
            // In the middle of it, wherever that is.
            let begun = Instant::now();
            wait_until(after, || begun.elapsed() >= after);
            kill_process(pid(&cluster, 1, "web1"), Signal::KILL).unwrap();
        }
        wait_for("the job is over", || {
            let status = cluster.job(job).status();
            !matches!(
                status,
                muster_proto::v1::JobStatus::Queued
                    | muster_proto::v1::JobStatus::Waiting
                    | muster_proto::v1::JobStatus::Running
            )
        });
        let secondary = number(&cluster.instance("web1").secondaries[0]);
        if kill.is_none() {
            assert_eq!(secondary, 3);
            in_sync(&cluster, "web1");
            kill_process(pid(&cluster, 1, "web1"), Signal::KILL).unwrap();
        }
        has_status(&cluster, "web1", "ERROR_crashed");
        let promised = last_ack(&cluster, 1, "web1");
        cluster.ok("instance failover -f web1");
        let last = went_on(&cluster, secondary, promised);
        println!("killed after {kill:?}: {promised} records, and on to {last} on node{secondary}");
        in_sync(&cluster, "web1");
        cluster.ok("cluster verify");
    }
}

#[test]
fn copies_come_go_and_are_made_anew() {
    let cluster = with_writer();
    cluster.ok("instance replace-disks -s web1");
    in_sync(&cluster, "web1");
    let id = cluster.instance("web1").disks[0].mirrors[0].disk_id;
    cluster.ok(&format!("instance remove-mirror -b sda -p {id} web1"));
    let wrote = last_ack(&cluster, 1, "web1");
    writes_past(&cluster, 1, "web1", wrote + 3);
    cluster.ok("instance add-mirror -b sda -n node3 web1");
    in_sync(&cluster, "web1");
    assert_eq!(cluster.instance("web1").secondaries, ["node3"]);
    cluster.gnt("instance replace-disks -p web1").exits(1).says(&["web1 is up"]);
    let wrote = last_ack(&cluster, 1, "web1");
    cluster.ok("instance shutdown web1");
    cluster.ok("instance replace-disks -p web1");
    copies_are_identical(&cluster, "web1");
    cluster.ok("instance start web1");
    went_on(&cluster, 1, wrote);
    cluster.ok("instance remove -f web1");
    cluster.ok("cluster verify");
}
