//! Guests that move: live, to another secondary, back.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use muster_proto::v1::JobStatus;
use rustix::process::{Signal, kill_process};

use super::{number, rounds, went_on, with_writer};
use crate::{
    ask::is_ended,
    cluster::{Cluster, wait_for, wait_until},
    guests::{
        BOOT_LIMIT, acknowledged_at, boots, copies_are_identical, has_status, in_sync, last_ack, pid,
        writes_past,
    },
};

#[test]
fn a_migration_loses_nothing() {
    let cluster = with_writer();
    // That is for its next start: until then it takes along what it has.
    cluster.ok("instance modify -m 112M -p 2 web1");
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
        moving.finish().exits(0).does_not_say("left out");
        assert!(resumed, "the guest writes on its new node");
        let took = began.elapsed();
        let (first, _) = crate::guests::acknowledged(&cluster, new, "web1").unwrap();
        assert_eq!(boots(&cluster, new, "web1"), 0, "the guest was not started anew");
        // What it wrote between the last look and the standstill is not counted.
        assert!(first <= before + 20, "{before}, then {first}");
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

/// The guest's QEMU, by the control socket that is for people.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn of(cluster: &Cluster, node: u32, instance: &str) -> Self {
        let socket = format!("run/{}.o", cluster.instance(instance).uuid);
        let stream = UnixStream::connect(cluster.node_dir(node).join(socket)).unwrap();
        let mut monitor = Monitor(BufReader::new(stream));
        monitor.execute("qmp_capabilities");
        monitor
    }

    fn execute(&mut self, command: &str) -> serde_json::Value {
        writeln!(self.0.get_mut(), r#"{{"execute":"{command}"}}"#).unwrap();
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "it has ended");
            let mut said: serde_json::Value = serde_json::from_str(&line).unwrap();
            // All else is the greeting, and what happens.
            if let Some(answer) = said.get_mut("return") {
                return answer.take();
            }
        }
    }

    /// How many copies follow its disks.
    fn mirrors(&mut self) -> usize {
        self.execute("query-jobs").as_array().unwrap().iter().filter(|job| job["type"] == "mirror").count()
    }
}

/// When a guest dies whose copy is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// The new copy is being made, and the old one follows.
    WithBoth,
    /// The new one has taken its place: it is not mirrored to any more, and is still there.
    WithoutOld,
    /// All is over.
    Later,
}

/// Waits until the replacement is as far as that.
fn comes_to(death: Death, cluster: &Cluster, job: u64) {
    let mut monitor = Monitor::of(cluster, 1, "web1");
    match death {
        Death::WithBoth => wait_for("both are mirrored to", || {
            let mirrors = monitor.mirrors();
            assert!(mirrors == 2 || !is_ended(&cluster.job(job)), "it was not seen");
            mirrors == 2
        }),
        Death::WithoutOld => {
            let copies =
                || cluster.job(job).log.iter().any(|line| line.text.starts_with("copy the disks of"));
            wait_for("the new copy is made", copies);
            // What is done on the old node waits.
            cluster.devcluster(&["pause", "node2"]).exits(0);
            wait_for("the first thing is cleaned up", || {
                cluster.instance("web1").secondaries == ["node3"] && monitor.mirrors() == 1
            });
            assert!(!is_ended(&cluster.job(job)), "the old copy is still there");
        }
        Death::Later => {
            assert_eq!(cluster.job_end(job).status(), JobStatus::Success);
            assert_eq!(cluster.instance("web1").secondaries, ["node3"]);
            in_sync(cluster, "web1");
        }
    }
}

#[test]
fn a_new_secondary_leaves_no_gap() {
    for death in [Death::WithBoth, Death::WithoutOld, Death::Later] {
        let cluster = with_writer();
        let job = cluster.submit("instance replace-disks -n node3 web1");
        comes_to(death, &cluster, job);
        kill_process(pid(&cluster, 1, "web1"), Signal::KILL).unwrap();
        if death == Death::WithoutOld {
            cluster.devcluster(&["resume", "node2"]).exits(0);
        }
        let ended = cluster.job_end(job).status();
        has_status(&cluster, "web1", "ERROR_crashed");
        let secondary = number(&cluster.instance("web1").secondaries[0]);
        assert!(death == Death::WithBoth || secondary == 3, "{ended:?}");
        let promised = last_ack(&cluster, 1, "web1");
        cluster.ok("instance failover -f web1");
        let last = went_on(&cluster, secondary, promised);
        println!("{death:?}, {ended:?}: {promised} records, and on to {last} on node{secondary}");
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
