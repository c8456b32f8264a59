//! The clients: each submits operations of its own choice on a small set of instances, repeats a submission under the same request id
//! until it is answered, and remembers the answers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use muster_proto::v1;
use muster_proto::v1::job_event::Event;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::operation::Operation as Op;
use muster_proto::v1::operation_service_client::OperationServiceClient;
use muster_proto::v1::query_service_client::QueryServiceClient;
use muster_tests::rpc::{self, RpcError};
use muster_tests::sim::Random;
use tonic::Code;

use crate::cluster::Cluster;

/// Few, so that the clients meet on their locks; one of them is denied most operations.
pub(super) const NAMES: [&str; 6] = ["web0", "web1", "web2", "web3", "web4", "mail-no"];
const NODES: [&str; 3] = ["node1", "node2", "node3"];

/// A master that is killed and started is back long before this, and a job is over that has to begin anew under one master after
/// the other, also on a slow machine; a repetition that goes on longer is a fault.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);
/// One try: a paused or dying master must not hold a client longer.
const TRY_LIMIT: Duration = Duration::from_secs(5);
/// Between two tries while nobody listens.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// What a client submitted and was answered.
#[derive(Debug, Clone)]
pub(super) struct Submitted {
    /// Unlike every other's; it is the job's reason too.
    pub(super) request_id: String,
    pub(super) operation: v1::Operation,
    pub(super) dry_run: bool,
    pub(super) job: u64,
    /// The job as the client saw it when it had ended.
    pub(super) seen: Option<v1::Job>,
    /// Whether the client asked to cancel it.
    pub(super) canceled: bool,
}

/// One client: submits until it is told to stop.
pub(super) fn client(cluster: &Cluster, number: u64, seed: u64, stop: &AtomicBool) -> Vec<Submitted> {
    let socket = &cluster.socket();
    let mut random = Random::new(seed.wrapping_mul(1000) + number);
    let mut all: Vec<Submitted> = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let request_id = format!("seed{seed}-client{number}-{}", all.len());
        let operation = v1::Operation { operation: Some(choose(socket, &mut random)) };
        let dry_run = random.permille(50);
        let job = submit(socket, &request_id, &operation, dry_run);
        let mut submitted =
            Submitted { request_id, operation, dry_run, job, seen: None, canceled: random.permille(40) };
        if submitted.canceled {
            cancel(cluster, job);
        }
        if random.permille(100) {
            let Submitted { request_id, operation, .. } = &submitted;
            assert_eq!(submit(socket, request_id, operation, dry_run), job, "{request_id} is one job");
        }
        if random.permille(700) {
            submitted.seen = Some(follow(socket, job));
        }
        all.push(submitted);
    }
    all
}

/// Submits until there is an answer.
fn submit(socket: &Path, request_id: &str, operation: &v1::Operation, dry_run: bool) -> u64 {
    let mut request = v1::SubmitRequest {
        operation: Some(operation.clone()),
        dry_run,
        request_id: request_id.to_owned(),
        ..Default::default()
    };
    request.reason = request_id.to_owned();
    until_answered(request_id, || {
        let request = request.clone();
        rpc::call(socket, TRY_LIMIT, |channel| async move {
            OperationServiceClient::new(channel).submit(request).await
        })
    })
    .into_inner()
    .job_id
}

/// One try by `gnt`: what became of it shows in the job.
fn cancel(cluster: &Cluster, id: u64) {
    drop(cluster.gnt(&format!("job cancel {id}")));
}

/// Follows a job to its end, across the deaths of masters.
fn follow(socket: &Path, id: u64) -> v1::Job {
    until_answered(&format!("job {id}"), || {
        rpc::call(socket, ANSWER_LIMIT, |channel| async move {
            let request = v1::FollowJobRequest { id, ..Default::default() };
            let mut events = JobServiceClient::new(channel).follow_job(request).await?.into_inner();
            while let Some(event) = events.message().await? {
                if let Some(Event::Done(job)) = event.event {
                    return Ok(job);
                }
            }
            Err(tonic::Status::unavailable("the stream ended before the job"))
        })
    })
}

/// Tries again while the master is away; any other refusal, and a master that stays away, is a fault.
fn until_answered<T>(what: &str, mut attempt: impl FnMut() -> Result<T, RpcError>) -> T {
    let deadline = Instant::now() + ANSWER_LIMIT;
    loop {
        let error = match attempt() {
            Ok(answer) => return answer,
            Err(error) => error,
        };
        if let RpcError::Status(status) = &error {
            let away = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Cancelled);
            assert!(away || status.code() == Code::Internal, "{what}: {error}");
        }
        assert!(Instant::now() < deadline, "{what}: not answered within {ANSWER_LIMIT:?}: {error}");
        std::thread::sleep(TRY_AGAIN);
    }
}

fn choose(socket: &Path, random: &mut Random) -> Op {
    let instance = (*random.pick(&NAMES)).to_owned();
    let node = (*random.pick(&NODES)).to_owned();
    match random.below(100) {
        0..22 => Op::InstanceAdd(add(random, instance)),
        22..31 => Op::InstanceStart(v1::InstanceStart { instance, force: random.permille(100) }),
        31..33 => {
            let kind = (*random.pick(&["soft", "hard", "full"])).to_owned();
            Op::InstanceReboot(v1::InstanceReboot { instance, kind })
        }
        33..40 => Op::InstanceShutdown(v1::InstanceShutdown { instance, timeout_s: Some(1), fenced: false }),
        40..42 => {
            let new_name = (*random.pick(&NAMES)).to_owned();
            Op::InstanceRename(v1::InstanceRename { instance, new_name })
        }
        42..44 => Op::DiskGrow(v1::DiskGrow { instance, disk: "sda".to_owned(), by_mib: 1 }),
        44..56 => Op::InstanceModify(v1::InstanceModify {
            instance,
            memory_mib: Some(random.range(64, 512)),
            vcpus: random.permille(500).then(|| u32::try_from(random.range(1, 8)).unwrap()),
            ..v1::InstanceModify::default()
        }),
        56..66 => {
            Op::InstanceFailover(v1::InstanceFailover { instance, ignore_consistency: true, fenced: false })
        }
        66..72 => Op::BackupExport(v1::BackupExport { instance, node, no_shutdown: random.permille(300) }),
        72..78 => Op::MirrorAdd(v1::MirrorAdd { instance, disk: "sda".to_owned(), node }),
        78..82 => mirror_remove(socket, random, instance),
        82..87 => Op::DisksReplace(v1::DisksReplace {
            instance,
            new_secondary: random.permille(500).then_some(node),
            on_primary: false,
        }),
        87..92 => Op::InstanceRemove(v1::InstanceRemove { instance }),
        92..95 => Op::NodeModify(v1::NodeModify {
            name: "node3".to_owned(),
            drained: Some(random.permille(300)),
            ..Default::default()
        }),
        _ => Op::ClusterModify(v1::ClusterModify {
            hooks: Some(v1::HookPolicy {
                timeout_max_ms: Some(random.range(3_600, 7_200) * 1000),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

fn add(random: &mut Random, name: String) -> v1::InstanceAdd {
    let first = random.index(NODES.len());
    let template = *random.pick(&["mirror", "mirror", "mirror", "file", "diskless"]);
    let with_disks = template != "diskless";
    v1::InstanceAdd {
        name,
        primary: NODES[first].to_owned(),
        secondary: (template == "mirror").then(|| NODES[(first + 1) % NODES.len()].to_owned()),
        disk_template: template.to_owned(),
        disk_size_mib: if with_disks { 2 } else { 0 },
        swap_size_mib: if with_disks && random.permille(300) { 1 } else { 0 },
        memory_mib: 64,
        vcpus: 1,
        os: "none".to_owned(),
        no_start: random.permille(300),
        ..Default::default()
    }
}

/// Takes a copy that is there, if the master says so; else one that may not be.
fn mirror_remove(socket: &Path, random: &mut Random, name: String) -> Op {
    let answer = rpc::call(socket, TRY_LIMIT, |channel| async move {
        QueryServiceClient::new(channel).list_instances(v1::ListInstancesRequest::default()).await
    });
    let instances = answer.map(|answer| answer.into_inner().instances).unwrap_or_default();
    let copies = instances.iter().flat_map(|instance| {
        instance.disks.iter().flat_map(|disk| {
            let of_disk = disk.mirrors.iter();
            of_disk.map(|copy| (instance.name.clone(), disk.name.clone(), copy.disk_id))
        })
    });
    let copies: Vec<_> = copies.collect();
    let nothing = (name, "sda".to_owned(), 1);
    let (instance, disk, disk_id) = if copies.is_empty() { nothing } else { random.pick(&copies).clone() };
    Op::MirrorRemove(v1::MirrorRemove { instance, disk, disk_id })
}
