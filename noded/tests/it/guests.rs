//! Real guests: how they start, end, start anew, and outlive the daemon.

use muster_proto::v1::{DiskCreate, EndJobRequest, RunState, node_call::Call};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    program::{answer, context, uuid, wait_for},
    qemu::{Bench, guest, reboot, start, stop},
};

/// Longer than any test.
const LONG_MS: u64 = 3_600_000;

fn disk_create() -> Call {
    Call::DiskCreate(DiskCreate { disk_uuid: uuid(2), size_mib: 16 })
}

/// A guest that boots nothing: it runs at once, and follows no power button.
fn idle() -> Call {
    start(guest("none"))
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process has a number"), Signal::KILL)
        .expect("a signal can be sent");
}

#[tokio::test]
async fn a_guest_boots_outlives_the_daemon_starts_anew_and_shuts_down() {
    let mut bench = Bench::start().await;
    bench.call(disk_create()).await.unwrap();
    bench.call(start(guest("small"))).await.unwrap();
    let pid = bench.pid().await;
    bench.is(RunState::Running).await;
    bench.call(start(guest("small"))).await.unwrap();
    assert_eq!(bench.processes(), [pid], "started twice it is one guest");
    bench.booted(1).await;

    let mut console = bench.console().await.unwrap();
    console.enter("record write 2; echo $((6*7))");
    console.says("ACK 2").await;
    console.says("42").await;
    let second = bench.console().await.map(drop).unwrap_err();
    assert_eq!(second.code(), tonic::Code::FailedPrecondition, "{second}");
    assert!(second.message().contains("somebody else"), "{second}");

    bench.program.kill();
    bench.program.begin().await;
    let state = bench.program.state().await;
    assert_eq!((state.guests[0].state(), state.guests[0].memory_mib), (RunState::Running, 96));
    drop(console);

    bench.call(reboot(120_000)).await.unwrap();
    bench.booted(2).await;
    assert_eq!((bench.processes(), bench.pid().await), (vec![pid], pid), "it is the same machine");
    let mut console = bench.console().await.unwrap();
    console.enter("record count");
    console.says("RECORDS 2").await;

    bench.call(stop(120_000)).await.unwrap();
    let rest = console.rest().await.unwrap();
    assert!(rest.contains("GUEST DOWN"), "it heard the power button: {rest}");
    bench.nothing_is_left().await;
    let closed = bench.console().await.map(drop).unwrap_err();
    assert_eq!(closed.code(), tonic::Code::FailedPrecondition, "{closed}");
    assert!(closed.message().contains("does not run"), "{closed}");
}

#[tokio::test]
async fn a_guest_that_shuts_itself_down_is_told_from_one_that_crashed() {
    let mut bench = Bench::start().await;
    bench.call(disk_create()).await.unwrap();
    bench.call(start(guest("small"))).await.unwrap();
    bench.booted(1).await;
    let mut console = bench.console().await.unwrap();
    console.enter("poweroff -f");
    bench.is(RunState::ShutDown).await;
    console.rest().await.unwrap();
    assert_eq!(bench.processes(), Vec::<i32>::new());

    // The same while no daemon is there.
    bench.call(start(guest("small"))).await.unwrap();
    bench.booted(1).await;
    let mut console = bench.console().await.unwrap();
    console.enter("(sleep 1; poweroff -f) & echo so$((0))on");
    console.says("so0on").await;
    bench.program.kill();
    bench.program.begin().await;
    bench.is(RunState::ShutDown).await;
    bench.program.kill();
    bench.program.begin().await;
    bench.is(RunState::ShutDown).await;

    bench.call(start(guest("small"))).await.unwrap();
    bench.is(RunState::Running).await;
    kill(bench.pid().await);
    bench.is(RunState::Crashed).await;
    bench.call(stop(0)).await.unwrap();
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_guest_that_does_not_follow_is_left_or_forced() {
    let bench = Bench::start().await;
    bench.call(disk_create()).await.unwrap();
    bench.call(idle()).await.unwrap();
    let pid = bench.pid().await;
    for (job_id, call) in [(101, stop(LONG_MS)), (102, reboot(LONG_MS))] {
        let mut stream = bench.program.execute(&format!("{job_id}/1/1"), call.clone()).await.unwrap();
        stream.message().await.unwrap().unwrap();
        let end = EndJobRequest { context: context(), job_id, call_ids: Vec::new() };
        let ended = bench.program.agent().await.end_job(end).await.unwrap().into_inner().ended;
        assert_eq!(ended, 1, "{call:?}");
        let failed = answer(stream).await.unwrap_err();
        assert!(failed.starts_with("ended at the request of the master"), "{failed}");
        bench.is(RunState::Running).await;
    }
    for limit_ms in [0, 200] {
        bench.call(reboot(limit_ms)).await.unwrap();
        bench.is(RunState::Running).await;
        assert_eq!(bench.processes(), [pid]);
    }
    assert!(!bench.folder().join("rebooting").exists(), "its next shutdown is one");
    bench.call(stop(200)).await.unwrap();
    bench.nothing_is_left().await;
    let refused = bench.call(reboot(0)).await.unwrap_err();
    assert!(refused.contains("does not run"), "{refused}");
}

#[tokio::test]
async fn a_guest_that_hangs_is_ended_and_one_without_a_record_is_found() {
    let mut bench = Bench::start().await;
    bench.call(disk_create()).await.unwrap();
    bench.call(idle()).await.unwrap();
    let pid = bench.pid().await;
    // Whatever the daemon has recorded: the process tells that the guest runs.
    bench.program.kill();
    std::fs::write(bench.folder().join("guest.json"), "{").unwrap();
    bench.program.begin().await;
    bench.is(RunState::Running).await;
    bench.call(idle()).await.unwrap();
    assert_eq!(bench.processes(), [pid]);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    bench.call(stop(0)).await.unwrap();
    bench.nothing_is_left().await;

    // A daemon that died before it had started QEMU leaves a record, and nothing that runs.
    bench.call(idle()).await.unwrap();
    let pid = bench.pid().await;
    bench.program.kill();
    kill(pid);
    wait_for(async || bench.processes().is_empty().then_some(())).await;
    bench.program.begin().await;
    bench.is(RunState::Crashed).await;
    bench.call(idle()).await.unwrap();
    bench.is(RunState::Running).await;
    bench.call(stop(0)).await.unwrap();
    bench.nothing_is_left().await;
}

#[tokio::test]
async fn a_guest_that_can_not_start_is_told_in_qemus_words() {
    let bench = Bench::start().await;
    let refused = bench.call(start(guest("small"))).await.unwrap_err();
    assert!(refused.contains("is not on this node"), "{refused}");
    bench.call(disk_create()).await.unwrap();
    let os = bench.program.path("os_dir/bad");
    std::fs::create_dir(&os).unwrap();
    std::fs::write(os.join("os.toml"), "kernel = \"vmlinuz\"\n").unwrap();
    std::fs::write(os.join("vmlinuz"), "no kernel").unwrap();
    let refused = bench.call(start(guest("bad"))).await.unwrap_err();
    assert!(refused.contains("does not start: ") && refused.contains("invalid kernel header"), "{refused}");
    let refused = bench.call(start(guest("smal"))).await.unwrap_err();
    assert!(refused.contains("did you mean small?"), "{refused}");
    let mut wrong = guest("none");
    wrong.nic = "bridge:nonesuch0".to_owned();
    let refused = bench.call(start(wrong)).await.unwrap_err();
    assert!(refused.contains("bridge"), "{refused}");
    let disk = bench.program.path("storage_dir").join(format!("{}.raw", uuid(2)));
    std::fs::remove_file(&disk).unwrap();
    std::fs::create_dir(&disk).unwrap();
    let refused = bench.call(idle()).await.unwrap_err();
    assert!(refused.contains("does not start") && refused.contains(&uuid(2)), "{refused}");
    bench.nothing_is_left().await;
}
