//! The master is killed at every point that `muster-masterd --failpoints` names, and started again: no job is lost, none is half
//! done.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use muster_proto::v1;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::operation_service_client::OperationServiceClient;
use muster_tests::rpc;

use crate::ask::is_ended;
use crate::cluster::{Cluster, devcluster_program, run, wait_for};

/// The names, one a line; a word after the name is its description.
fn names() -> Vec<String> {
    let mut command = Command::new(devcluster_program().with_file_name("muster-masterd"));
    command.arg("--failpoints");
    let text = run(command).exits(0).stdout;
    let first_word = |line: &str| line.split_whitespace().next().map(str::to_owned);
    text.lines().filter_map(first_word).collect()
}

/// What is submitted while a failpoint is armed; together it passes every point of the engine. The jobs of one line are submitted one
/// after the other without waiting, and the next line builds on the last one.
fn workload(round: usize) -> Vec<Vec<String>> {
    let name = format!("web{round}");
    vec![
        vec![format!("instance add -t mirror -n node1:node2 -s 8M -o none {name}")],
        // The second one has to wait for the first one's locks.
        vec![format!("instance modify -m 96 {name}"), format!("instance modify -p 2 {name}")],
        vec![format!("backup export -n node2 {name}")],
        vec![format!("instance failover -f --ignore-consistency {name}")],
        vec![format!("instance shutdown {name}")],
        // Denied by a script.
        vec![format!("instance start {name}")],
        // Fails at its last step, so that all before is undone.
        vec![format!("instance add -t file -n node3 -s 8M -o none broken{round}")],
        vec![format!("instance remove -f {name}")],
    ]
}

fn cluster_for_crashes() -> Cluster {
    let cluster = Cluster::up(3);
    cluster.script(2, "instance-start-pre.d", "10-no", "exit 1");
    // Long enough for the next submission to come in between.
    cluster.script(1, "instance-modify-pre.d", "10-takes-a-while", "sleep 0.5");
    cluster.faults(3, "[guest_start]\nfail = \"no such machine\"\n");
    cluster
}

/// Starts the master if it is dead; whether it was.
fn revived(cluster: &Cluster) -> bool {
    let dead = !cluster.master_lives();
    if dead {
        cluster.devcluster(&["start", "master"]).exits(0);
    }
    dead
}

/// Submits until the master has died or all is done; whether it died, and the ids that were printed. It is started again while the
/// client whose submission it died on tries on: every client gets its answer.
fn submit_until_death(cluster: &Cluster, lines: &[Vec<String>]) -> (bool, Vec<u64>) {
    let (mut died, mut ids) = (false, Vec::new());
    for line in lines {
        for command in line {
            let mut client = cluster.begin(&format!("{command} --submit"));
            wait_for("an answer or the master's end", || client.is_over() || !cluster.master_lives());
            died |= revived(cluster);
            let output = client.finish().exits(0);
            ids.push(output.stdout.trim().strip_prefix("JobID: ").unwrap().parse().unwrap());
        }
        wait_for("jobs end or the master does", || {
            !cluster.master_lives() || ids.iter().all(|id| ended(cluster, *id))
        });
        died |= revived(cluster);
        if died {
            break;
        }
    }
    (died, ids)
}

/// Whether the master says that the job has ended; a master that dies while it is asked says nothing.
fn ended(cluster: &Cluster, id: u64) -> bool {
    let answer = rpc::ask(&cluster.socket(), |channel| async move {
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

/// How often a point is passed before it kills: once, or with full counts up to three times.
fn passes() -> std::ops::RangeInclusive<u32> {
    1..=if std::env::var_os("MUSTER_TEST_LONG").is_some() { 3 } else { 1 }
}

/// How many tests share the points.
const PARTS: usize = 4;

/// Every point of this part kills the master once, and what is left is looked at after a restart.
#[expect(clippy::print_stdout, reason = "what was counted is part of the result")]
fn die_at_each_point_of_part(part: usize) {
    let points = names();
    assert!(points.len() >= 8, "submit, transitions, steps, commit, post: {points:?}");
    let cluster = cluster_for_crashes();
    let (mut kills, mut not_passed) = (0, Vec::new());
    for (round, point) in points.iter().enumerate().filter(|(round, _)| round % PARTS == part) {
        for pass in passes() {
            let died =
                die_at(&cluster, &format!("{point}:{pass}"), round * 10 + usize::try_from(pass).unwrap());
            kills += u32::from(died);
            if !died && pass == 1 {
                not_passed.push(point.clone());
            }
        }
    }
    println!("{kills} kills at part {part} of {} failpoints", points.len());
    assert_eq!(not_passed, Vec::<String>::new(), "no operation of the workload passes these points");
}

/// Whether the master died at the point.
fn die_at(cluster: &Cluster, point: &str, round: usize) -> bool {
    let before: BTreeSet<u64> = cluster.jobs().iter().map(|job| job.id).collect();
    cluster.devcluster(&["kill", "master"]).exits(0);
    let mut armed = cluster.devcluster_command(&["start", "master"]);
    armed.env("MUSTER_FAILPOINT", point);
    // A point on the way to serving kills the master before it can be seen to serve.
    let (died, ids) = if run(armed).status.success() {
        submit_until_death(cluster, &workload(round))
    } else {
        (revived(cluster), Vec::new())
    };
    if !died {
        return false;
    }
    let submitted = cluster.jobs().into_iter().filter(|job| !job.op_id.starts_with("OP_INSTANCE_MIRRORS_"));
    let mut new: Vec<u64> = submitted.map(|job| job.id).filter(|id| !before.contains(id)).collect();
    new.sort_unstable();
    assert_eq!(
        new, ids,
        "{point}: each submission is one job: those that are there, those that were printed"
    );
    for id in cluster.jobs().iter().map(|job| job.id) {
        let job = cluster.job_end(id);
        if job.status() == v1::JobStatus::Error {
            let kind = job.error.as_ref().unwrap().kind();
            assert_ne!(kind, v1::ErrorKind::Unspecified, "{point}: {job:#?}");
        }
        assert_eq!(job.failed_undos, [], "{point}");
    }
    check_whole(cluster, point);
    true
}

#[test]
fn no_job_is_lost_at_a_failpoint_of_the_first_part() {
    die_at_each_point_of_part(0);
}

#[test]
fn no_job_is_lost_at_a_failpoint_of_the_second_part() {
    die_at_each_point_of_part(1);
}

#[test]
fn no_job_is_lost_at_a_failpoint_of_the_third_part() {
    die_at_each_point_of_part(2);
}

#[test]
fn no_job_is_lost_at_a_failpoint_of_the_fourth_part() {
    die_at_each_point_of_part(3);
}

#[test]
fn a_repeated_submission_after_a_crash_is_one_job() {
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
        let answer = rpc::ask(&cluster.socket(), |channel| async move {
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
