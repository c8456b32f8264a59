//! The master is killed at every point that `muster-masterd --failpoints` names, and started again: no job is lost, none is half
//! done.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use muster_proto::v1;

use crate::ask::is_ended;
use crate::cluster::{Cluster, STATE_LIMIT, devcluster_program, run, start, wait_until};

/// The names, one a line; a word after the name is its description.
fn names() -> Vec<String> {
    let mut command = Command::new(devcluster_program().with_file_name("muster-masterd"));
    command.arg("--failpoints");
    let text = run(command).exits(0).stdout;
    let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
    text.lines().filter_map(first_word).collect()
}

/// What is submitted while a failpoint is armed: together it passes every point of the engine.
fn workload(round: usize) -> Vec<String> {
    let name = format!("web{round}");
    vec![
        format!("instance add -t mirror -n node1:node2 -s 8M -o none {name}"),
        format!("instance modify -m 96 {name}"),
        format!("backup export -n node2 {name}"),
        format!("instance failover -f {name}"),
        format!("instance shutdown {name}"),
        // Denied by the script that `cluster_for_crashes` has put there.
        format!("instance start {name}"),
        // Fails at its last step, so that all before is undone.
        format!("instance add -t file -n node3 -s 8M -o none broken{round}"),
        format!("instance remove -f {name}"),
    ]
}

fn cluster_for_crashes() -> Cluster {
    let cluster = Cluster::up(3);
    cluster.script(2, "instance-start-pre.d", "10-no", "exit 1");
    cluster.faults(3, "[guest_start]\nfail = \"no such machine\"\n");
    cluster
}

fn master_runs(cluster: &Cluster) -> bool {
    cluster
        .devcluster(&["status"])
        .stdout
        .lines()
        .any(|line| line.starts_with("master\t") && line.ends_with("running"))
}

/// Submits one after the other until the master is gone; gives the ids that were printed.
fn submit_until_death(cluster: &Cluster, lines: &[String]) -> Vec<u64> {
    let mut ids = Vec::new();
    for line in lines {
        let args = format!("{line} --submit");
        let output = start(cluster.gnt_command(&args.split_whitespace().collect::<Vec<_>>()), "").finish();
        match output.stdout.trim().strip_prefix("JobID: ") {
            Some(id) => ids.push(id.parse().unwrap()),
            // The answer to a submission that died with the master is that nobody is there.
            None => assert!(matches!(output.status.code(), Some(1 | 3)), "{output}"),
        }
        let id = ids.last().copied();
        // One job at a time: the next line builds on this one.
        wait_until(STATE_LIMIT, || !master_runs(cluster) || id.is_none_or(|id| ended_or_gone(cluster, id)));
        if !master_runs(cluster) {
            break;
        }
    }
    ids
}

fn ended_or_gone(cluster: &Cluster, id: u64) -> bool {
    use muster_proto::v1::job_service_client::JobServiceClient;
    let answer = muster_tests::rpc::ask(&cluster.socket(), |channel| async move {
        JobServiceClient::new(channel).get_job(v1::GetJobRequest { id }).await
    });
    answer.is_ok_and(|job| is_ended(&job.into_inner()))
}

/// The disks on all nodes are those of the configuration, the guests those of running instances.
#[track_caller]
fn check_whole(cluster: &Cluster, point: &str) {
    let instances = cluster.instances();
    let disks = instances.iter().flat_map(|instance| {
        instance.disks.iter().flat_map(move |disk| {
            let copies = disk.mirrors.iter().map(|mirror| (mirror.node.clone(), mirror.uuid.clone()));
            std::iter::once((instance.primary.clone(), disk.uuid.clone())).chain(copies)
        })
    });
    let configured: BTreeSet<_> = disks.collect();
    let mut real = BTreeSet::new();
    for node in 1..=3 {
        for entry in fs::read_dir(cluster.node_dir(node).join("storage")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            real.insert((format!("node{node}"), name.trim_end_matches(".raw").to_owned()));
        }
    }
    assert_eq!(real, configured, "disk files after a crash at {point}");
    assert!(
        !instances.iter().any(|instance| instance.name.starts_with("broken")),
        "{point}: a failed add is in the configuration"
    );
    cluster.gnt("cluster verify").exits(0);
}

#[test]
fn no_job_is_lost_and_none_is_half_done_at_any_failpoint() {
    let points = names();
    assert!(points.len() >= 8, "submit, transitions, steps, commit, post: {points:?}");
    let cluster = cluster_for_crashes();
    let mut not_passed = Vec::new();
    for (round, point) in points.iter().enumerate() {
        cluster.devcluster(&["kill", "master"]).exits(0);
        let mut armed = cluster.devcluster_command(&["start", "master"]);
        armed.env("MUSTER_FAILPOINT", point);
        // A point on the way to serving kills the master before it can be seen to serve.
        let started = run(armed).status.success();
        let ids = if started { submit_until_death(&cluster, &workload(round)) } else { Vec::new() };
        if started && master_runs(&cluster) {
            not_passed.push(point.clone());
            continue;
        }
        cluster.devcluster(&["start", "master"]).exits(0);
        let known: BTreeSet<u64> = cluster.jobs().iter().map(|job| job.id).collect();
        for id in &ids {
            assert!(known.contains(id), "job {id} was printed and is lost after a crash at {point}");
        }
        for id in known {
            let job = cluster.job_end(id);
            if job.status() == v1::JobStatus::Error {
                let kind = job.error.as_ref().unwrap().kind();
                assert_ne!(kind, v1::ErrorKind::Unspecified, "{point}: {job:#?}");
            }
            assert_eq!(job.failed_undos, [], "{point}");
        }
        check_whole(&cluster, point);
    }
    assert_eq!(not_passed, Vec::<String>::new(), "no operation of the workload passes these points");
}

#[test]
fn a_repeated_submission_after_a_crash_is_one_job() {
    use muster_proto::v1::operation_service_client::OperationServiceClient;
    let cluster = Cluster::up(1);
    let request = || v1::SubmitRequest {
        operation: Some(v1::Operation {
            operation: Some(v1::operation::Operation::InstanceAdd(v1::InstanceAdd {
                name: "web1".to_owned(),
                primary: "node1".to_owned(),
                disk_template: "diskless".to_owned(),
                memory_mib: 64,
                vcpus: 1,
                os: "none".to_owned(),
                no_start: true,
                ..Default::default()
            })),
        }),
        request_id: "drawn-by-the-client".to_owned(),
        ..Default::default()
    };
    let submit = || {
        let request = request();
        let answer = muster_tests::rpc::ask(&cluster.socket(), |channel| async move {
            OperationServiceClient::new(channel).submit(request).await
        });
        answer.unwrap().into_inner().job_id
    };
    let first = submit();
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    assert_eq!(submit(), first);
    assert_eq!(cluster.job_end(first).status(), v1::JobStatus::Success);
    assert_eq!(cluster.instances().len(), 1);
}
