//! Calls of the backends: answers, repeats, faults, and what a crash leaves.

use muster_proto::v1::{
    DiskCreate, DiskRemove, EndJobRequest, ExportPublish, ExportRemove, ExportStage, Guest, GuestDisk,
    GuestStart, GuestStop, HelloRequest, RunState, execute_event::Event, node_call::Call,
};

use crate::program::{Program, answer, names, uuid, wait_for};

fn disk_create(size_mib: u64) -> Call {
    Call::DiskCreate(DiskCreate { disk_uuid: uuid(2), size_mib })
}

fn guest_start() -> Call {
    let guest = Guest {
        instance_uuid: uuid(1),
        name: "web1".to_owned(),
        memory_mib: 512,
        vcpus: 2,
        disks: vec![GuestDisk { name: "sda".to_owned(), disk_uuid: uuid(2), size_mib: 64 }],
        ip: None,
        mac: "aa:00:00:00:00:01".to_owned(),
        os: "none".to_owned(),
        hypervisor: "fake".to_owned(),
        accel: "auto".to_owned(),
        nic: "user".to_owned(),
        generation: 0,
    };
    Call::GuestStart(GuestStart { guest: Some(guest), force: false, paused: false })
}

fn guest_stop() -> Call {
    guest_stop_within(1000)
}

fn guest_stop_within(timeout_ms: u64) -> Call {
    Call::GuestStop(GuestStop { instance_uuid: uuid(1), timeout_ms, name: "web1".to_owned() })
}

/// Ends job 1; how many runs there were.
async fn end_job(program: &Program) -> u32 {
    let request = EndJobRequest { context: crate::program::context(), job_id: 1, call_ids: Vec::new() };
    program.agent().await.end_job(request).await.expect("nothing is left of it").into_inner().ended
}

#[tokio::test]
async fn an_instances_life() {
    let program = Program::start().await;
    let before = program.state().await;
    assert!(!before.hooks_only && before.disk_total_mib > 0 && before.memory_total_mib > 0);
    program.call("1/1/1", disk_create(64)).await.unwrap();
    program.call("1/2/1", guest_start()).await.unwrap();
    let state = program.state().await;
    assert_eq!((state.disks[0].uuid.as_str(), state.disks[0].size_mib), (uuid(2).as_str(), 64));
    assert_eq!((state.guests[0].state(), state.guests[0].memory_mib), (RunState::Running, 512));
    program.call("2/1/1", guest_stop()).await.unwrap();
    program.call("2/2/1", Call::DiskRemove(DiskRemove { disk_uuid: uuid(2) })).await.unwrap();
    let after = program.state().await;
    assert!(after.disks.is_empty() && after.guests.is_empty());

    let export = || uuid(9);
    program.call("3/1/1", Call::ExportStage(ExportStage { export_uuid: export() })).await.unwrap();
    assert_eq!(program.state().await.exports, [export()]);
    let publish = Call::ExportPublish(ExportPublish { export_uuid: export(), manifest: "{}".to_owned() });
    let path = program.call("3/2/1", publish).await.unwrap();
    assert_eq!(path, program.path("export_dir").join(export()).display().to_string());
    program.call("4/clean-0/1", Call::ExportRemove(ExportRemove { export_uuid: export() })).await.unwrap();
    assert_eq!(names(&program.path("export_dir")), Vec::<String>::new());
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_other_content_is_refused() {
    let program = Program::start().await;
    program.call("1/1/1", disk_create(64)).await.unwrap();
    std::fs::remove_file(program.path("storage_dir").join(format!("{}.raw", uuid(2)))).unwrap();
    program.call("1/1/1", disk_create(64)).await.unwrap();
    assert_eq!(names(&program.path("storage_dir")), Vec::<String>::new(), "it was not done again");
    let refused = program.execute("1/1/1", disk_create(65)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    // A failure is an answer too.
    let failed = program.call("1/2/1", guest_start()).await.unwrap_err();
    assert!(failed.contains(&uuid(2)), "{failed}");
    program.call("1/1/2", disk_create(64)).await.unwrap();
    assert_eq!(program.call("1/2/1", guest_start()).await.unwrap_err(), failed);
    program.call("1/2/2", guest_start()).await.unwrap();
}

#[tokio::test]
async fn faults_fail_the_calls_they_name() {
    let program = Program::start().await;
    program.faults("[disk_create]\nfail = \"no space left\"\n");
    assert_eq!(program.call("1/1/1", disk_create(64)).await.unwrap_err(), "no space left");
    assert_eq!(names(&program.path("storage_dir")), Vec::<String>::new());
    program.call("1/2/1", guest_stop()).await.unwrap();
    std::fs::remove_file(program.path("state_dir/node/faults.toml")).unwrap();
    program.call("1/1/2", disk_create(64)).await.unwrap();
}

#[tokio::test]
async fn guests_and_answers_outlive_a_crash() {
    let mut program = Program::start().await;
    program.call("1/1/1", disk_create(64)).await.unwrap();
    program.call("1/2/1", guest_start()).await.unwrap();
    program.kill();
    program.begin().await;
    assert_eq!(program.state().await.guests.len(), 1);
    std::fs::remove_file(program.path("storage_dir").join(format!("{}.raw", uuid(2)))).unwrap();
    program.call("1/1/1", disk_create(64)).await.unwrap();
    assert_eq!(names(&program.path("storage_dir")), Vec::<String>::new(), "the journal has the answer");
}

#[tokio::test]
async fn a_call_that_a_crash_broke_off_is_carried_out_when_it_is_repeated() {
    let mut program = Program::start().await;
    program.faults("[disk_create]\ndelay_ms = 600000\n");
    let mut stream = program.execute("1/1/1", disk_create(64)).await.unwrap();
    let event = stream.message().await.unwrap().unwrap();
    assert!(matches!(event.event, Some(Event::Going(_))));
    program.kill();
    std::fs::remove_file(program.path("state_dir/node/faults.toml")).unwrap();
    program.begin().await;
    assert_eq!(names(&program.path("storage_dir")), Vec::<String>::new());
    let refused = program.execute("1/1/1", disk_create(65)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    program.call("1/1/1", disk_create(64)).await.unwrap();
    assert_eq!(program.state().await.disks.len(), 1);
}

#[tokio::test]
async fn a_call_of_a_job_that_ended_is_not_begun() {
    let program = Program::start().await;
    program.faults("[disk_create]\ndelay_ms = 600000\n");
    let stream = program.execute("1/1/1", disk_create(64)).await.unwrap();
    assert_eq!(end_job(&program).await, 1);
    assert_eq!(answer(stream).await.unwrap_err(), "ended at the request of the master");
    assert_eq!(names(&program.path("storage_dir")), Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_connection_does_not_end_a_call() {
    let program = Program::start().await;
    program.faults("[disk_create]\ndelay_ms = 300\n");
    let mut stream = program.execute("1/1/1", disk_create(64)).await.unwrap();
    stream.message().await.unwrap().unwrap();
    drop(stream);
    wait_for(async || program.state().await.disks.pop()).await;
}

#[tokio::test]
async fn what_is_nobodys_is_reported() {
    let program = Program::start().await;
    std::fs::write(program.path("storage_dir/notes.txt"), "").unwrap();
    std::fs::create_dir(program.path("export_dir/old")).unwrap();
    let state = program.state().await;
    assert_eq!(state.unknown_files, ["notes.txt", "old"]);
    assert_eq!(state.problems, Vec::<String>::new());
    std::fs::write(program.path("state_dir/node/guests").join(format!("{}.json", uuid(1))), "{").unwrap();
    assert!(program.state().await.problems[0].contains("damaged"));
}

#[tokio::test]
async fn an_undo_waits_for_the_step_that_it_undoes() {
    let program = Program::start().await;
    program.call("1/1/1", disk_create(64)).await.unwrap();
    program.faults("[guest_start]\ndelay_ms = 300\n");
    // The master gave this connection up and undoes, while the step is still going here.
    let step = program.execute("1/2/1", guest_start()).await.unwrap();
    program.call("1/undo-2/1", guest_stop()).await.unwrap();
    answer(step).await.unwrap();
    assert!(program.state().await.guests.is_empty(), "the undo came after the step");
}

#[tokio::test]
async fn a_shutdown_ends_with_its_job_and_leaves_the_guest_as_it_is() {
    let mut program = Program::start().await;
    program.call("1/1/1", disk_create(64)).await.unwrap();
    program.call("1/2/1", guest_start()).await.unwrap();
    let path = program.path("state_dir/node/guests").join(format!("{}.json", uuid(1)));
    let slow =
        std::fs::read_to_string(&path).unwrap().replace("\"shutdown_ms\": 0", "\"shutdown_ms\": 3600000");
    std::fs::write(&path, slow).unwrap();
    let stop = || guest_stop_within(3_600_000);
    let mut stream = program.execute("1/3/1", stop()).await.unwrap();
    stream.message().await.unwrap().unwrap();
    let start = std::time::Instant::now();
    assert_eq!(end_job(&program).await, 1);
    assert!(start.elapsed() < std::time::Duration::from_secs(5), "{:?}", start.elapsed());
    let failed = answer(stream).await.unwrap_err();
    assert!(failed.starts_with("ended at the request of the master"), "{failed}");
    assert_eq!(program.state().await.guests[0].state(), RunState::Running);
    assert_eq!(end_job(&program).await, 0, "nothing of it goes on");

    // The answer is journaled: a repeat stops nothing, whenever it comes.
    program.kill();
    program.begin().await;
    assert_eq!(program.call("1/3/1", stop()).await.unwrap_err(), failed);
    // An undo is a call of the same job, and is carried out.
    program.call("1/undo-2/1", guest_stop_within(1)).await.unwrap();
    assert!(program.state().await.guests.is_empty());
}

#[tokio::test]
async fn calls_that_wait_for_their_turn_end_without_having_begun() {
    let program = Program::start().await;
    program.faults("[guest_stop]\ndelay_ms = 600000\n");
    let first = program.execute("1/1/1", guest_stop()).await.unwrap();
    let mut waiting = Vec::new();
    for step in 2..=5 {
        waiting.push(program.execute(&format!("1/{step}/1"), disk_create(64)).await.unwrap());
    }
    let other = program.execute("2/1/1", guest_stop()).await.unwrap();
    assert_eq!(end_job(&program).await, 5);
    for stream in waiting.into_iter().chain([first]) {
        assert_eq!(answer(stream).await.unwrap_err(), "ended at the request of the master");
    }
    assert_eq!(names(&program.path("storage_dir")), Vec::<String>::new());
    // The other job's call goes on until it, too, is not alive.
    let hello = |alive_jobs| HelloRequest {
        context: crate::program::context(),
        version: "0".to_owned(),
        alive_jobs,
        now_ms: 0,
        node_name: "node1".to_owned(),
        guests: Vec::new(),
        ending_jobs: Vec::new(),
    };
    program.agent().await.hello(hello(vec![2])).await.unwrap();
    let repeated = program.execute("2/1/1", guest_stop()).await.unwrap();
    program.agent().await.hello(hello(vec![])).await.unwrap();
    for stream in [other, repeated] {
        assert_eq!(answer(stream).await.unwrap_err(), "ended at the request of the master");
    }
}
