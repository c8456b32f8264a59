//! Many clients that change the same thing at once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use muster_proto::transport::connect_unix;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::operation_service_client::OperationServiceClient;
use muster_proto::v1::query_service_client::QueryServiceClient;
use muster_proto::v1::{self, job_event::Event, operation::Operation};

use crate::cluster::Cluster;

const CLIENTS: u64 = 100;
const HOUR_MS: u64 = 3_600_000;

/// Changes a parameter of the cluster by a connection of its own, follows the job to its end, and reads the
/// configuration: it holds all changes whose jobs were seen to have ended, counted in `ended`.
async fn change(socket: &Path, client: u64, serial: u64, ended: &AtomicU64) -> v1::Job {
    let channel = connect_unix(socket).await.unwrap();
    let hooks = v1::HookPolicy { timeout_max_ms: Some(HOUR_MS + client), ..v1::HookPolicy::default() };
    let modify = v1::ClusterModify { hooks: Some(hooks), ..v1::ClusterModify::default() };
    let request = v1::SubmitRequest {
        operation: Some(v1::Operation { operation: Some(Operation::ClusterModify(modify)) }),
        request_id: format!("client-{client}"),
        will_wait: true,
        ..v1::SubmitRequest::default()
    };
    let id = OperationServiceClient::new(channel.clone()).submit(request).await.unwrap().into_inner().job_id;
    let follow = v1::FollowJobRequest { id, parent_job: 0 };
    let mut events = JobServiceClient::new(channel.clone()).follow_job(follow).await.unwrap().into_inner();
    while let Some(event) = events.message().await.unwrap() {
        if let Some(Event::Done(job)) = event.event {
            let ended = ended.fetch_add(1, Ordering::SeqCst) + 1;
            let info = QueryServiceClient::new(channel).get_cluster(v1::GetClusterRequest {}).await;
            let now = info.unwrap().into_inner().serial;
            assert!(now >= serial + ended, "{ended} jobs ended, and the serial went from {serial} to {now}");
            return job;
        }
    }
    panic!("the stream of job {id} ended before the job");
}

#[test]
fn a_hundred_clients_change_the_clusters_parameters_at_once_and_none_sees_a_conflict() {
    let cluster = Cluster::up(1);
    let socket = cluster.socket();
    let before = cluster.info().serial;
    let began = Instant::now();
    let ended = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let jobs = runtime.block_on(async {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (socket, ended) = (socket.clone(), ended.clone());
                tokio::spawn(async move { change(&socket, client, before, &ended).await })
            })
            .collect();
        let mut jobs = Vec::new();
        for client in clients {
            jobs.push(client.await.unwrap());
        }
        jobs
    });
    eprintln!("{CLIENTS} clients changed a parameter each within {:?}", began.elapsed());
    let failed: Vec<_> = jobs.iter().filter(|job| job.status() != v1::JobStatus::Success).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let after = cluster.info();
    assert_eq!(after.serial, before + CLIENTS);
    let last = after.hooks.unwrap().timeout_max_ms.unwrap();
    assert!((HOUR_MS..HOUR_MS + CLIENTS).contains(&last), "{last}");
}
