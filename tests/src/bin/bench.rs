//! muster-bench: how long jobs and lists take on a running cluster. Measures only; decides nothing.
//!
//! ```text
//! muster-devcluster up --dir /tmp/bench --nodes 3
//! muster-bench --socket /tmp/bench/node1/run/master.sock
//! ```
//!
//! Makes instances `bench-0`, `bench-1`, ... without disks, changes them, lists them, removes them; then a chain of jobs,
//! each depending on the one before. `--fill 20000` instead makes so many jobs and archives them, to see what an archive
//! costs a start. Compare figures of one machine and one run only.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use muster_proto::{
    transport::connect_unix,
    v1::{
        self, InstanceAdd, InstanceModify, InstanceRemove, job_event::Event,
        job_service_client::JobServiceClient, operation::Operation,
        operation_service_client::OperationServiceClient, query_service_client::QueryServiceClient,
    },
};
use tonic::transport::Channel;

/// Measures jobs and lists on a running cluster.
#[derive(Parser)]
struct Arguments {
    /// The master's socket
    #[arg(long, env = "MUSTER_SOCKET")]
    socket: PathBuf,
    /// The node that gets the instances
    #[arg(long, default_value = "node2")]
    node: String,
    /// Clients that submit side by side, each with an instance of its own
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// Jobs of each client
    #[arg(long, default_value_t = 25)]
    jobs: u32,
    /// Length of the chain of jobs that wait for each other
    #[arg(long, default_value_t = 200)]
    chain: u64,
    /// Only make so many jobs, and archive them
    #[arg(long)]
    fill: Option<u32>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(measure(&arguments)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "muster-bench: {error}").ok();
            ExitCode::FAILURE
        }
    }
}

async fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let channel = connect_unix(&arguments.socket).await?;
    for client in 0..arguments.clients {
        job(&channel, add(client, &arguments.node)).await?;
    }
    if let Some(count) = arguments.fill {
        return fill(&channel, arguments.clients, count).await;
    }
    let mut alone = Vec::new();
    for round in 0..u64::from(arguments.jobs) {
        alone.push(job(&channel, modify(0, 64 + round)).await?);
    }
    report("a job alone", &mut alone)?;

    let began = Instant::now();
    let clients = (0..arguments.clients).map(|client| {
        let channel = channel.clone();
        async move {
            let mut times = Vec::new();
            for round in 0..u64::from(arguments.jobs) {
                times.push(
                    job(&channel, modify(client, 128 + round)).await.map_err(|error| error.to_string())?,
                );
            }
            Ok::<_, String>(times)
        }
    });
    let together = futures::future::join_all(clients).await;
    let whole = began.elapsed();
    let mut times = together.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    report(&format!("a job beside {} others", arguments.clients.saturating_sub(1)), &mut times)?;
    let count = u32::try_from(times.len())?;
    writeln!(io::stdout(), "{:<28} {:.0} jobs/s", "all clients", f64::from(count) / whole.as_secs_f64())?;

    let mut lists = Vec::new();
    for _ in 0..arguments.jobs {
        let began = Instant::now();
        let request = v1::ListInstancesRequest { names: Vec::new(), live: false };
        QueryServiceClient::new(channel.clone()).list_instances(request).await?;
        lists.push(began.elapsed());
    }
    report("a list of instances", &mut lists)?;
    chain(&channel, arguments.chain).await?;
    for client in 0..arguments.clients {
        job(&channel, Operation::InstanceRemove(InstanceRemove { instance: name(client) })).await?;
    }
    Ok(())
}

/// A chain of jobs, submitted at once; measured by the master's clock, in whole milliseconds: from the moment at which a
/// job may start, the end of the one before, to its start.
async fn chain(channel: &Channel, length: u64) -> Result<(), Failure> {
    let mut ids: Vec<u64> = Vec::new();
    for round in 0..length {
        let depends = ids.last().map(|job| v1::Dependency { job: *job, endings: Vec::new() });
        let request = v1::SubmitRequest {
            operation: Some(v1::Operation { operation: Some(modify(0, 512 + round)) }),
            depends: depends.into_iter().collect(),
            ..v1::SubmitRequest::default()
        };
        let answer = OperationServiceClient::new(channel.clone()).submit(request).await?;
        ids.push(answer.into_inner().job_id);
    }
    let mut times = Vec::new();
    let mut may_start = None;
    for id in ids {
        let job = follow(channel, id).await?;
        if let (Some(may_start), Some(started)) = (may_start, job.started_ms) {
            times.push(Duration::from_millis(started.saturating_sub(may_start)));
        }
        may_start = job.ended_ms;
    }
    report(&format!("{length} jobs in a chain, start"), &mut times)
}

/// Makes jobs and archives them.
async fn fill(channel: &Channel, clients: u32, count: u32) -> Result<(), Failure> {
    for round in 0..u64::from(count.div_ceil(clients)) {
        let jobs = (0..clients).map(|client| {
            let channel = channel.clone();
            async move {
                let done = job(&channel, modify(client, 64 + round)).await;
                done.map(drop).map_err(|error| error.to_string())
            }
        });
        futures::future::join_all(jobs).await.into_iter().collect::<Result<(), _>>()?;
    }
    for client in 0..clients {
        job(channel, Operation::InstanceRemove(InstanceRemove { instance: name(client) })).await?;
    }
    let request = v1::ArchiveJobsRequest { ids: Vec::new(), older_than_ms: Some(0) };
    let answer = JobServiceClient::new(channel.clone()).archive_jobs(request).await?.into_inner();
    writeln!(io::stdout(), "{} jobs are archived", answer.archived.len())?;
    Ok(())
}

fn name(client: u32) -> String {
    format!("bench-{client}")
}

fn add(client: u32, node: &str) -> Operation {
    Operation::InstanceAdd(InstanceAdd {
        name: name(client),
        primary: node.to_owned(),
        disk_template: "diskless".to_owned(),
        memory_mib: 64,
        vcpus: 1,
        os: "none".to_owned(),
        no_start: true,
        ..InstanceAdd::default()
    })
}

fn modify(client: u32, memory_mib: u64) -> Operation {
    Operation::InstanceModify(InstanceModify {
        instance: name(client),
        memory_mib: Some(memory_mib),
        ..InstanceModify::default()
    })
}

/// Submits an operation and follows its job to the end; the time from submission to the end's arrival.
async fn job(channel: &Channel, operation: Operation) -> Result<Duration, Failure> {
    let began = Instant::now();
    let request = v1::SubmitRequest {
        operation: Some(v1::Operation { operation: Some(operation) }),
        ..v1::SubmitRequest::default()
    };
    let id = OperationServiceClient::new(channel.clone()).submit(request).await?.into_inner().job_id;
    follow(channel, id).await?;
    Ok(began.elapsed())
}

/// Follows a job to its end, which must be a success.
async fn follow(channel: &Channel, id: u64) -> Result<v1::Job, Failure> {
    let follow = v1::FollowJobRequest { id, parent_job: 0 };
    let mut events = JobServiceClient::new(channel.clone()).follow_job(follow).await?.into_inner();
    while let Some(event) = events.message().await? {
        if let Some(Event::Done(done)) = event.event {
            // Read to its end: a stream that is dropped is reset, and many resets end the connection.
            while events.message().await?.is_some() {}
            if done.status() == v1::JobStatus::Success {
                return Ok(done);
            }
            return Err(format!("job {id} ended as {:?}: {:?}", done.status(), done.error).into());
        }
    }
    Err(format!("the master stopped telling of job {id}").into())
}

fn report(what: &str, times: &mut [Duration]) -> Result<(), Failure> {
    times.sort();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
    writeln!(io::stdout(), "{what:<28} p50 {:.1} ms, p99 {:.1} ms", at(50), at(99))?;
    Ok(())
}
