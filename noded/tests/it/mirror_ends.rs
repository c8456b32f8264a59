//! How mirrors end, and what is known of their copies afterwards: hung peers, late writes, crashes, disks that are written to.

#![expect(
    clippy::unwrap_used,
    reason = "all of this file is test code, helpers outside of test functions too"
)]

use std::time::{Duration, Instant};

use futures::stream;
use muster_proto::v1::{
    Guest, GuestStart, ImageChunk, ImageRef, MirrorStatus, MirrorSync, RunState, WriteImageRequest,
    WriteImageStart, image_ref::Image, node_call::Call, write_image_request::Part,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    data_certificates::new_ca,
    hosts::{Host, signal},
    program::{context, uuid, wait_for},
    qemu::{Console, guest, start, stop},
};

/// The end of a mirror whose peer hangs: the peer is given up after 3 s, and the rest is quick; left alone, TCP would be waited
/// for: minutes.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A guest that boots nothing, so that its disk is written to by nobody.
fn idle_paused() -> Call {
    Call::GuestStart(GuestStart { guest: Some(guest("none")), force: false, paused: true })
}

/// Waits until the guest has written so many more records on stable storage.
async fn writes(host: &Host, console: &mut Console, more: u64) {
    let number = host.records(2) + more;
    console.says(&format!("ACK {number}\r")).await;
}

/// A guest on the first host that writes records all the time; its copy is to be on the second.
async fn writing(one: &Host, boots: usize) -> Console {
    one.bench.call(start(guest("small"))).await.unwrap();
    one.bench.booted(boots).await;
    let mut console = one.bench.console().await.unwrap();
    console.enter("record on");
    console.says("ACK").await;
    writes(one, &mut console, 2).await;
    console
}

async fn two_hosts() -> (Host, Host) {
    let ca = new_ca();
    let (one, two) = (Host::start(&ca, 1).await, Host::start(&ca, 2).await);
    one.disk(2).await;
    two.disk(12).await;
    (one, two)
}

async fn mirrored(one: &Host, two: &Host, sync: MirrorSync) {
    let port = two.serve(12, "node1").await.unwrap();
    one.mirror(2, two, (12, port), sync).await.unwrap();
    one.is(12, MirrorStatus::Ready).await;
}

/// Writes an image on a disk of the host.
async fn write_image(host: &Host, disk: u128) {
    let image = Some(ImageRef { image: Some(Image::DiskUuid(uuid(disk))) });
    let start = Part::Start(WriteImageStart { context: context(), image, job_id: 7 });
    let chunk =
        |length: Option<u64>, data: &[u8]| Part::Chunk(ImageChunk { offset: 0, data: data.to_vec(), length });
    let parts = [start, chunk(Some(512), b""), chunk(None, b"another system")];
    let requests = stream::iter(parts.map(|part| WriteImageRequest { part: Some(part) }));
    host.bench.program.node().await.write_image(requests).await.unwrap();
}

#[tokio::test]
async fn a_mirror_ends_in_time_though_its_peer_hangs_and_no_late_write_reaches_the_copy() {
    let (one, two) = two_hosts().await;
    let mut console = writing(&one, 1).await;
    for is_cut_off_before in [false, true] {
        mirrored(&one, &two, MirrorSync::Full).await;
        writes(&one, &mut console, 3).await;
        let frozen = two.server(12).await;
        // With the guest's writes on their way to it.
        signal(frozen, Signal::STOP);
        if is_cut_off_before {
            one.is(12, MirrorStatus::Broken).await;
        }
        let begun = Instant::now();
        one.end_mirror(12).await.unwrap();
        let took = begun.elapsed();
        println!("the mirror ended after {took:?}");
        assert!(took < END_LIMIT, "{took:?}");
        writes(&one, &mut console, 2).await;
        assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken));

        // As the master does it before it has a copy written over.
        two.release(12).await.unwrap();
        mirrored(&one, &two, MirrorSync::Full).await;
        // What was still on its way there comes, if anybody is left to take it.
        let _gone_is_fine = Pid::from_raw(frozen).map(|pid| kill_process(pid, Signal::CONT));
        writes(&one, &mut console, 3).await;
        one.end_mirror(12).await.unwrap();
        two.release(12).await.unwrap();
    }
    mirrored(&one, &two, MirrorSync::Full).await;
    writes(&one, &mut console, 3).await;
    one.bench.call(stop(120_000)).await.unwrap();
    one.clean(12).await.unwrap();
    two.release(12).await.unwrap();
    one.is_same(2, &two, 12);
}

#[tokio::test]
async fn what_a_mirror_was_when_its_guest_died_is_known_at_once() {
    let (mut one, two) = two_hosts().await;
    drop(writing(&one, 1).await);
    mirrored(&one, &two, MirrorSync::Full).await;
    signal(one.bench.pid().await, Signal::KILL);
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Ready));
    one.bench.is(RunState::Crashed).await;
    one.is(12, MirrorStatus::Ready).await;
    one.restart().await;
    one.is(12, MirrorStatus::Ready).await;
    // It has all that was acknowledged, and is not the same.
    one.clean(12).await.unwrap_err();
    one.bench.call(stop(0)).await.unwrap();
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Ready));
    one.clean(12).await.unwrap_err();

    // One that missed the guest's last write has broken off, however soon the guest dies after it.
    let mut console = writing(&one, 1).await;
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken), "it writes, and nothing follows");
    mirrored(&one, &two, MirrorSync::Full).await;
    let guest = one.bench.pid().await;
    signal(two.server(12).await, Signal::KILL);
    writes(&one, &mut console, 1).await;
    signal(guest, Signal::KILL);
    drop(console);
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken));
    one.bench.is(RunState::Crashed).await;
    one.is(12, MirrorStatus::Broken).await;
    one.bench.call(stop(0)).await.unwrap();
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken));

    // Nobody can say what a mirror did that nobody watched.
    let served_none = async || two.bench.program.state().await.served_copies.is_empty().then_some(());
    wait_for(served_none).await;
    drop(writing(&one, 1).await);
    mirrored(&one, &two, MirrorSync::Full).await;
    let guest = one.bench.pid().await;
    one.bench.program.kill();
    signal(guest, Signal::KILL);
    wait_for(async || one.bench.processes().is_empty().then_some(())).await;
    one.bench.program.begin().await;
    one.bench.is(RunState::Crashed).await;
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken));
}

#[tokio::test]
async fn a_copy_is_not_the_same_any_more_when_its_disk_is_written_to() {
    let (one, two) = two_hosts().await;
    assert_eq!(one.checked(12).await, None, "nothing is known of it");
    // A good end, once more after each of what follows.
    for _ in 0..2 {
        one.trust(2, 12).await.unwrap();
        one.clean(12).await.unwrap();
        assert_eq!(one.checked(12).await, Some(MirrorStatus::Ready));
        one.bench.call(idle_paused()).await.unwrap();
        one.trust(2, 12).await.unwrap_err();
        mirrored(&one, &two, MirrorSync::Same).await;
        one.resume().await.unwrap();
        one.bench.call(stop(0)).await.unwrap();
        one.clean(12).await.unwrap();
        assert_eq!(one.checked(12).await, Some(MirrorStatus::Ready));
    }

    // Served to another node, it is that node's copy.
    one.serve(2, "node2").await.unwrap();
    one.clean(12).await.unwrap_err();
    assert_eq!(one.checked(12).await, None);
    one.release(2).await.unwrap();

    // The same where somebody only said that it is the same.
    one.trust(2, 12).await.unwrap();
    one.serve(2, "node2").await.unwrap();
    one.clean(12).await.unwrap_err();
    one.release(2).await.unwrap();

    // An image takes the place of what it held.
    one.trust(2, 12).await.unwrap();
    write_image(&one, 2).await;
    one.clean(12).await.unwrap_err();
    assert_eq!(one.checked(12).await, None);

    // The guest goes on without its copy.
    one.trust(2, 12).await.unwrap();
    one.bench.call(idle_paused()).await.unwrap();
    one.resume().await.unwrap();
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken));
    one.bench.call(stop(0)).await.unwrap();
    one.clean(12).await.unwrap_err();
    assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken));

    // A mirror that could not begin, or might not.
    let port = two.serve(12, "node3").await.unwrap();
    for (sync, is_trusted) in
        [(MirrorSync::Same, true), (MirrorSync::Same, false), (MirrorSync::Unproven, false)]
    {
        one.end_mirror(12).await.unwrap();
        if is_trusted {
            one.trust(2, 12).await.unwrap();
        }
        one.bench.call(idle_paused()).await.unwrap();
        one.mirror(2, &two, (12, port), sync).await.unwrap_err();
        one.resume().await.unwrap();
        one.bench.call(stop(0)).await.unwrap();
        assert_eq!(one.checked(12).await, Some(MirrorStatus::Broken), "{sync:?}, trusted: {is_trusted}");
    }

    // The end of a mirror that never was: it is forgotten.
    for is_up in [false, true] {
        one.trust(2, 12).await.unwrap();
        if is_up {
            one.bench.call(idle_paused()).await.unwrap();
        }
        for _ in 0..2 {
            one.end_mirror(12).await.unwrap();
        }
        one.bench.call(stop(0)).await.unwrap();
        assert_eq!(one.checked(12).await, None);
        one.clean(12).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_copy_that_was_handed_over_can_be_gone_on_from_once_more_when_the_guest_could_not_be_started() {
    use MirrorStatus::{Broken, Ready};
    let (mut one, two) = two_hosts().await;
    let without_bridge = || start(Guest { nic: "bridge:no-such".to_owned(), ..guest("none") });
    let serves_none = async |host: &Host| host.bench.program.state().await.served_copies.is_empty();

    one.serve(2, "node9").await.unwrap();
    for _ in 0..2 {
        one.bench.call(without_bridge()).await.unwrap_err();
        assert!(serves_none(&one).await, "nobody may write to what is a guest's disk");
        assert_eq!(one.served(2, "node9").await, Ready, "this node itself ended it");
        assert_eq!(one.served(2, "node8").await, Broken, "it was never served to that one");
        one.restart().await;
    }
    // The same where the guest was started, and its job failed later.
    one.bench.call(start(guest("none"))).await.unwrap();
    one.bench.call(stop(0)).await.unwrap();
    assert_eq!(one.served(2, "node9").await, Ready);
    one.release(2).await.unwrap();
    assert_eq!(one.served(2, "node9").await, Broken);

    // It is remembered of that time alone: served once more, the copy is one that was cut off.
    one.serve(2, "node9").await.unwrap();
    one.bench.call(without_bridge()).await.unwrap_err();
    one.serve(2, "node9").await.unwrap();
    assert_eq!(one.served(2, "node9").await, Ready);
    signal(one.server(2).await, Signal::KILL);
    wait_for(async || serves_none(&one).await.then_some(())).await;
    assert_eq!(one.served(2, "node9").await, Broken);
    one.bench.call(without_bridge()).await.unwrap_err();
    assert_eq!(one.served(2, "node9").await, Broken, "what had ended before misses writes");

    // A disk that is mirrored from here is nobody's copy.
    one.serve(2, "node2").await.unwrap();
    one.bench.call(idle_paused()).await.unwrap();
    assert_eq!(one.served(2, "node2").await, Ready);
    mirrored(&one, &two, MirrorSync::Full).await;
    assert_eq!(one.served(2, "node2").await, Broken);
    assert_eq!(two.served(12, "node1").await, Ready);
}
