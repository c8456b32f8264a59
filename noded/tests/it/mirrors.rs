//! Copies that follow the disk of a running guest on another node, and what becomes of them when a part dies or hangs.

use std::time::{Duration, Instant};

use muster_proto::v1::{GuestStart, MirrorStatus, MirrorSync, RunState, node_call::Call};
use rustix::process::Signal;

use crate::{
    data_certificates::new_ca,
    hosts::{Host, signal},
    program::{uuid, wait_for},
    qemu::{Console, guest, start, stop},
};

/// Longest silence of a guest whose copy's node hangs: some seconds; left alone, TCP would be waited for: minutes.
const CUT_OFF_LIMIT: Duration = Duration::from_secs(30);

fn start_paused() -> Call {
    Call::GuestStart(GuestStart { guest: Some(guest("small")), force: false, paused: true })
}

/// Waits until the guest has written so many more records on stable storage.
async fn writes(host: &Host, console: &mut Console, more: u64) {
    let number = host.records(2) + more;
    console.says(&format!("ACK {number}\r")).await;
}

/// The last record that the guest said was written.
fn acknowledged(said: &str) -> u64 {
    let numbers = said.split("ACK ").skip(1).filter_map(|rest| rest.split_once('\r')?.0.parse().ok());
    numbers.last().expect("it has written")
}

#[tokio::test]
async fn copies_follow_a_writing_guest_and_are_the_same_after_a_good_end() {
    let ca = new_ca();
    let (mut one, mut two, three) =
        (Host::start(&ca, 1).await, Host::start(&ca, 2).await, Host::start(&ca, 3).await);
    for (host, disk) in [(&one, 2), (&one, 3), (&two, 12), (&three, 22)] {
        host.disk(disk).await;
    }
    one.bench.call(start_paused()).await.unwrap();
    one.bench.is(RunState::Paused).await;
    // Only the node that is expected may write the copy, and none is taken for the same that nobody says is.
    let port = two.serve(12, "node3").await.unwrap();
    one.mirror(2, &two, (12, port), MirrorSync::Same).await.unwrap_err();
    let port = two.serve(12, "node1").await.unwrap();
    one.mirror(2, &two, (12, port), MirrorSync::Unproven).await.unwrap_err();
    let size = two.serve(22, "node1").await.unwrap_err();
    assert!(size.contains("is not on this node"), "{size}");
    one.mirror(2, &two, (12, port), MirrorSync::Same).await.unwrap();
    one.is(12, MirrorStatus::Ready).await;
    one.resume().await.unwrap();
    one.bench.booted(1).await;
    let mut console = one.bench.console().await.unwrap();
    console.enter("record on");
    console.says("ACK 5").await;

    // Both outlive their daemons.
    drop(console);
    one.restart().await;
    two.restart().await;
    assert_eq!(two.bench.program.state().await.served_copies, [uuid(12)]);
    assert_eq!(two.serve(12, "node1").await.unwrap(), port);
    one.is(12, MirrorStatus::Ready).await;
    one.mirror(2, &two, (12, port), MirrorSync::Full).await.unwrap();
    let mut console = one.bench.console().await.unwrap();

    // A second copy takes the place of the first.
    let second = (22, three.serve(22, "node1").await.unwrap());
    one.mirror(2, &three, second, MirrorSync::Full).await.unwrap();
    writes(&one, &mut console, 3).await;
    assert_eq!((one.check(12).await, one.check(22).await), (MirrorStatus::Ready, MirrorStatus::Ready));
    for _ in 0..2 {
        one.end_mirror(12).await.unwrap();
    }
    two.release(12).await.unwrap();
    writes(&one, &mut console, 3).await;
    assert_eq!((one.check(12).await, one.check(22).await), (MirrorStatus::Broken, MirrorStatus::Ready));
    let left = two.records(12);

    // The disk is copied as it is at a moment while the other one follows.
    one.snapshot(2, 3).await.unwrap();
    writes(&one, &mut console, 3).await;
    assert_eq!(one.check(22).await, MirrorStatus::Ready);
    let copied = one.records(3);
    assert!(left < copied && copied < one.records(2), "{left} {copied}");
    one.clean(22).await.unwrap();
    one.bench.call(stop(120_000)).await.unwrap();
    for _ in 0..2 {
        one.clean(22).await.unwrap();
        one.clean(12).await.unwrap_err();
    }
    for _ in 0..2 {
        three.release(22).await.unwrap();
    }
    one.is_same(2, &three, 22);
    assert!(one.records(2) > copied);
    assert_eq!(three.bench.program.state().await.served_copies, Vec::<String>::new());
}

#[tokio::test]
async fn a_guest_goes_on_when_its_copy_hangs_or_dies_and_no_record_is_lost_when_it_dies_itself() {
    let ca = new_ca();
    let (one, two) = (Host::start(&ca, 1).await, Host::start(&ca, 2).await);
    one.disk(2).await;
    two.disk(12).await;
    one.bench.call(start(guest("small"))).await.unwrap();
    one.bench.booted(1).await;
    let mut console = one.bench.console().await.unwrap();
    console.enter("record on");
    console.says("ACK 3").await;
    let copy = (12, two.serve(12, "node1").await.unwrap());
    one.mirror(2, &two, copy, MirrorSync::Full).await.unwrap();
    writes(&one, &mut console, 3).await;

    signal(two.server(12).await, Signal::STOP);
    let hung = Instant::now();
    one.is(12, MirrorStatus::Broken).await;
    writes(&one, &mut console, 2).await;
    assert!(hung.elapsed() < CUT_OFF_LIMIT, "it wrote again after {:?}", hung.elapsed());
    signal(two.server(12).await, Signal::KILL);
    let served_none = async || two.bench.program.state().await.served_copies.is_empty().then_some(());
    wait_for(served_none).await;

    let copy = (12, two.serve(12, "node1").await.unwrap());
    one.mirror(2, &two, copy, MirrorSync::Full).await.unwrap();
    one.is(12, MirrorStatus::Ready).await;
    signal(two.server(12).await, Signal::KILL);
    one.is(12, MirrorStatus::Broken).await;
    writes(&one, &mut console, 2).await;

    let copy = (12, two.serve(12, "node1").await.unwrap());
    one.mirror(2, &two, copy, MirrorSync::Full).await.unwrap();
    writes(&one, &mut console, 5).await;
    signal(one.bench.pid().await, Signal::KILL);
    let said = console.rest().await.unwrap();
    one.bench.is(RunState::Crashed).await;
    two.release(12).await.unwrap();
    let (kept, said) = (two.records(12), acknowledged(&format!("ACK 0\r{said}")));
    assert!(kept >= said, "record {said} was acknowledged, and the copy has {kept}");
    one.clean(12).await.unwrap_err();
    one.bench.call(stop(0)).await.unwrap();
    one.clean(12).await.unwrap_err();
}
