//! Guests that begin paused, are of the past, move between nodes, and have their disks copied while they run.

use std::{fs, time::Instant};

use muster_proto::v1::{
    CallContext, Guest, GuestDisk, GuestStart, InstanceGeneration, MirrorStatus, MirrorSync, RunState,
    node_call::Call,
};
use rustix::process::Signal;

use crate::{
    data_certificates::new_ca,
    hosts::{Host, signal},
    program::{context, names, uuid, wait_for},
    qemu::{guest, start, stop},
};

/// A guest without disks.
fn moving(generation: u64) -> Guest {
    Guest { disks: Vec::new(), generation, ..guest("small") }
}

/// The context of a master of a later epoch.
fn epoch(epoch: u64) -> Option<CallContext> {
    context().map(|context| CallContext { epoch, ..context })
}

fn present(generation: u64) -> Vec<InstanceGeneration> {
    vec![InstanceGeneration { instance_uuid: uuid(1), generation }]
}

#[tokio::test]
async fn a_guest_moves_with_its_console_and_stays_where_it_is_when_that_fails() {
    let ca = new_ca();
    let (one, mut two) = (Host::start(&ca, 1).await, Host::start(&ca, 2).await);
    one.bench.call(start(moving(0))).await.unwrap();
    one.bench.booted(1).await;
    let mut console = one.bench.console().await.unwrap();
    console.enter("kept=$((6*7)); echo sa$((0))id");
    console.says("sa0id").await;
    let refused = one.receive(moving(1), "node2").await.unwrap_err();
    assert!(refused.contains("it is up on this node already"), "{refused}");

    // Only the node that is expected may send it.
    let port = two.receive(moving(1), "node3").await.unwrap();
    two.bench.is(RunState::Paused).await;
    let refused = one.send(&two, port).await.unwrap_err();
    assert!(refused.contains("sending has failed"), "{refused}");
    one.bench.is(RunState::Running).await;

    // The receiver outlives its daemon.
    let port = two.receive(moving(1), "node1").await.unwrap();
    two.restart().await;
    two.bench.is(RunState::Paused).await;
    assert_eq!(two.receive(moving(1), "node1").await.unwrap(), port);
    one.send(&two, port).await.unwrap();
    one.bench.is(RunState::Paused).await;
    one.send(&two, port).await.unwrap();
    for _ in 0..2 {
        one.cancel().await.unwrap();
    }
    one.bench.is(RunState::Running).await;
    console.enter("echo $((kept+1))");
    console.says("43").await;
    two.bench.call(stop(0)).await.unwrap();
    two.bench.nothing_is_left().await;

    // The receiver dies when all but the last is there.
    let port = two.receive(moving(1), "node1").await.unwrap();
    one.send(&two, port).await.unwrap();
    signal(two.bench.pid().await, Signal::KILL);
    let failed = one.finish().await.unwrap_err();
    assert!(failed.contains("runs on here"), "{failed}");
    one.bench.is(RunState::Running).await;
    console.enter("echo $((kept+2))");
    console.says("44").await;
    let refused = one.finish().await.unwrap_err();
    assert!(refused.contains("runs on here"), "{refused}");

    let port = two.receive(moving(1), "node1").await.unwrap();
    let early = two.resume().await.unwrap_err();
    assert!(early.contains("has not arrived within 10 s"), "{early}");
    one.send(&two, port).await.unwrap();
    let stopped = Instant::now();
    drop(console);
    one.finish().await.unwrap();
    one.finish().await.unwrap();
    one.bench.nothing_is_left().await;
    two.bench.is(RunState::Paused).await;
    for _ in 0..2 {
        two.resume().await.unwrap();
    }
    println!("the guest stood still for {} ms at most", stopped.elapsed().as_millis());
    two.bench.is(RunState::Running).await;
    let mut console = two.bench.console().await.unwrap();
    console.enter("echo $((kept+3))");
    console.says("45").await;

    // A master that lost its office ends nothing; the present one ends what is of the past.
    let pid = two.bench.pid().await;
    two.bench.program.hello(epoch(5), present(1)).await.unwrap();
    let refused = two.bench.program.hello(epoch(4), present(2)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition, "{refused}");
    assert_eq!(two.bench.processes(), [pid]);
    two.bench.program.hello(epoch(5), present(2)).await.unwrap();
    assert_eq!(two.bench.processes(), Vec::<i32>::new());
    assert_eq!(names(&two.bench.program.path("state_dir/node/qemu")), Vec::<String>::new());
}

#[tokio::test]
async fn a_guest_begins_paused_and_its_disk_is_copied_as_it_is_at_a_moment() {
    let mut host = Host::start(&new_ca(), 1).await;
    for number in [2, 3] {
        host.disk(number).await;
    }
    let paused = || Call::GuestStart(GuestStart { guest: Some(guest("small")), force: false, paused: true });
    for _ in 0..2 {
        host.bench.call(paused()).await.unwrap();
        host.bench.is(RunState::Paused).await;
    }
    host.resume().await.unwrap();
    host.bench.booted(1).await;
    host.resume().await.unwrap();
    host.bench.is(RunState::Running).await;

    let mut console = host.bench.console().await.unwrap();
    console.enter("record on");
    console.says("ACK 5").await;
    let refused = host.snapshot(2, 4).await.unwrap_err();
    assert!(refused.contains("is not on this node"), "{refused}");
    let refused = host.snapshot(3, 2).await.unwrap_err();
    assert!(refused.contains("runs without disk"), "{refused}");
    // A repeat begins anew.
    for _ in 0..2 {
        host.snapshot(2, 3).await.unwrap();
    }
    let copied = host.records(3);
    console.enter("record off; echo do$((0))ne");
    console.says("do0ne").await;
    let written = host.records(2);
    assert!((5..=written).contains(&copied), "{copied} of {written} records");
    let (disk, copy) = (fs::read(host.file(2)).unwrap(), fs::read(host.file(3)).unwrap());
    let end = usize::try_from((copied + 1) * 512).unwrap();
    assert!(
        disk[512..end] == copy[512..end] && copy[end..].iter().all(|byte| *byte == 0),
        "it is one moment"
    );

    // Nobody has said which guests are of the present.
    host.bench.program.kill();
    host.bench.program.begin_ungreeted().await;
    let early = host.bench.program.execute("900/1/1", stop(0)).await.unwrap_err();
    assert_eq!(early.code(), tonic::Code::Unavailable, "{early}");
    assert!(early.message().contains("has not heard from a master yet"), "{early}");
    let early = host.bench.console().await.map(drop).unwrap_err();
    assert_eq!(early.code(), tonic::Code::Unavailable, "{early}");
    host.bench.program.hello(context(), present(0)).await.unwrap();
    host.resume().await.unwrap();
    let pid = host.bench.pid().await;
    assert_eq!(host.bench.processes(), [pid]);

    // A start of a later generation is another guest, also where this one was not ended.
    let later = Guest { generation: 1, ..guest("none") };
    host.bench.call(start(later)).await.unwrap();
    assert_ne!(host.bench.pid().await, pid);
    assert_eq!(host.bench.program.state().await.guests[0].generation, 1);
    // What does not compute can't follow; it is not waited for.
    host.bench.call(stop(0)).await.unwrap();
    host.bench.call(paused()).await.unwrap();
    host.bench.call(stop(3_600_000)).await.unwrap();
    wait_for(async || host.bench.processes().is_empty().then_some(())).await;
    host.bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_writing_guest_moves_with_its_mirrored_disk_and_no_record_is_lost() {
    let ca = new_ca();
    let (one, two) = (Host::start(&ca, 1).await, Host::start(&ca, 2).await);
    one.disk(2).await;
    two.disk(12).await;
    one.bench.call(start(guest("small"))).await.unwrap();
    one.bench.booted(1).await;
    let mut console = one.bench.console().await.unwrap();
    console.enter("record on");
    console.says("ACK 3").await;
    let there = || Guest {
        generation: 1,
        disks: vec![GuestDisk { name: "sda".to_owned(), disk_uuid: uuid(12), size_mib: 16 }],
        ..guest("small")
    };
    let port = two.receive(there(), "node1").await.unwrap();
    let refused = one.send(&two, port).await.unwrap_err();
    assert!(refused.contains("0 of its 1 disks have a mirror in sync"), "{refused}");
    two.bench.call(stop(0)).await.unwrap();
    let copy = (12, two.serve(12, "node1").await.unwrap());
    one.mirror(2, &two, copy, MirrorSync::Full).await.unwrap();

    // Given up when its mirrors have ended, the guest goes on without them.
    let port = two.receive(there(), "node1").await.unwrap();
    one.send(&two, port).await.unwrap();
    one.cancel().await.unwrap();
    one.is(12, MirrorStatus::Broken).await;
    one.clean(12).await.unwrap_err();
    two.bench.call(stop(0)).await.unwrap();
    one.mirror(2, &two, copy, MirrorSync::Full).await.unwrap();

    let port = two.receive(there(), "node1").await.unwrap();
    one.send(&two, port).await.unwrap();
    let stopped = Instant::now();
    two.release(12).await.unwrap();
    one.finish().await.unwrap();
    one.clean(12).await.unwrap();
    one.is_same(2, &two, 12);
    let before = one.records(2);
    let copy = (2, one.serve(2, "node2").await.unwrap());
    two.mirror(12, &one, copy, MirrorSync::Same).await.unwrap();
    two.resume().await.unwrap();
    println!("the guest stood still for {} ms at most", stopped.elapsed().as_millis());
    drop(console);
    let mut console = two.bench.console().await.unwrap();
    // The console shows what comes after it was opened.
    let next = two.records(12) + 2;
    assert!(next > before);
    console.says(&format!("ACK {next}\r")).await;
    assert_eq!(two.check(2).await, MirrorStatus::Ready);
    console.enter("record off; echo do$((0))ne; record count");
    console.says("do0ne").await;
    two.bench.call(stop(120_000)).await.unwrap();
    two.clean(2).await.unwrap();
    one.release(2).await.unwrap();
    two.is_same(12, &one, 2);
    assert!(two.records(12) >= next);
}
