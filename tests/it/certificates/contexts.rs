//! A master's certificate is not enough: every call to a node says cluster and epoch, and a wrong one changes nothing.

use std::fs;

use muster_proto::transport::Identity;
use muster_proto::v1;
use tonic::Status;
use tonic::transport::Channel;

use super::doors::{Door, Doors, call, outcome_of};
use crate::cluster::{Cluster, wait_for};

const DISK: &str = "00000000-0000-0000-0000-00000000d15c";

fn other_facts() -> v1::Facts {
    v1::Facts {
        serial: u64::MAX,
        cluster_name: "taken-over".to_owned(),
        master_node: "node3".to_owned(),
        ..Default::default()
    }
}

/// Makes every call that a master makes to a node, each of which would do something.
async fn every_call(channel: &Channel, context: &v1::CallContext) -> Vec<(&'static str, Result<(), Status>)> {
    let context = Some(context.clone());
    let image = || Some(v1::ImageRef { image: Some(v1::image_ref::Image::DiskUuid(DISK.to_owned())) });
    let mut answers = Vec::new();
    macro_rules! ask {
        ($path:literal, $message:expr) => {
            answers.push(($path, call(channel, concat!("/muster.v1.", $path), $message).await));
        };
    }
    ask!(
        "AgentService/Hello",
        v1::HelloRequest {
            context: context.clone(),
            node_name: "taken-over".to_owned(),
            ..Default::default()
        }
    );
    ask!(
        "AgentService/EndJob",
        v1::EndJobRequest { context: context.clone(), job_id: 1, call_ids: Vec::new() }
    );
    let facts = other_facts();
    ask!("AgentService/PutFacts", v1::PutFactsRequest { context: context.clone(), facts: Some(facts) });
    ask!("AgentService/Watch", v1::WatchRequest { context: context.clone(), ..Default::default() });
    ask!("AgentService/MakeSigningRequest", v1::MakeSigningRequestRequest { context: context.clone() });
    ask!(
        "AgentService/InstallCertificate",
        v1::InstallCertificateRequest {
            context: context.clone(),
            node_name: "taken-over".to_owned(),
            ..Default::default()
        }
    );
    ask!("AgentService/Leave", v1::LeaveRequest { context: context.clone() });
    ask!(
        "HookService/RunHooks",
        v1::RunHooksRequest {
            context: context.clone(),
            call_id: "900/pre/1".to_owned(),
            job_id: 900,
            phase: v1::HookPhase::Pre.into(),
            prefix: "node-add".to_owned(),
            ..Default::default()
        }
    );
    ask!("HookService/ListHooks", v1::ListHooksRequest { context: context.clone() });
    let disk = v1::DiskCreate { disk_uuid: DISK.to_owned(), size_mib: 1 };
    ask!(
        "NodeService/Execute",
        v1::ExecuteRequest {
            context: context.clone(),
            call_id: "900/0/1".to_owned(),
            job_id: 900,
            call: Some(v1::NodeCall { call: Some(v1::node_call::Call::DiskCreate(disk)) }),
        }
    );
    ask!(
        "NodeService/ReadImage",
        v1::ReadImageRequest { context: context.clone(), image: image(), job_id: 900 }
    );
    ask!("NodeService/ListOses", v1::ListOsesRequest { context: context.clone() });
    answers.extend(every_command(channel, &context).await);
    let start = v1::WriteImageStart { context, image: image(), job_id: 900 };
    ask!(
        "NodeService/WriteImage",
        v1::WriteImageRequest { part: Some(v1::write_image_request::Part::Start(start)) }
    );
    answers
}

/// The calls that give somebody a guest's console, or run or write something of the site's own.
async fn every_command(
    channel: &Channel,
    context: &Option<v1::CallContext>,
) -> Vec<(&'static str, Result<(), Status>)> {
    let mut answers = Vec::new();
    macro_rules! ask {
        ($path:literal, $message:expr) => {
            answers.push(($path, call(channel, concat!("/muster.v1.", $path), $message).await));
        };
    }
    let start = v1::ConsoleStart { context: context.clone(), instance_uuid: DISK.to_owned() };
    ask!("NodeService/Console", v1::ConsoleInput { input: Some(v1::console_input::Input::Start(start)) });
    ask!(
        "NodeCommandService/Run",
        v1::RunRequest {
            context: context.clone(),
            argv: vec!["/bin/true".to_owned()],
            timeout_ms: 1000,
            user: "root".to_owned(),
        }
    );
    let file = v1::FileStart { path: "/nonexistent/file".to_owned(), ..Default::default() };
    let start = v1::PutFileStart { context: context.clone(), file: Some(file), user: "root".to_owned() };
    ask!("NodeCommandService/PutFile", v1::PutFilePart { part: Some(v1::put_file_part::Part::Start(start)) });
    answers
}

/// The epoch that node2 has on disk.
fn epoch_seen(cluster: &Cluster) -> u64 {
    let text = fs::read_to_string(cluster.node_dir(2).join("state/node/node.json")).unwrap();
    let membership: serde_json::Value = serde_json::from_str(&text).unwrap();
    membership["epoch_seen"].as_u64().unwrap()
}

/// Membership, certificate and hook output of node2, beside what a snapshot has.
fn node2_state(cluster: &Cluster) -> Vec<Option<Vec<u8>>> {
    let node = cluster.node_dir(2).join("state/node");
    ["node.json", "node.pem", "next.key", "next-data.key", "ca.pem", "facts.json"]
        .map(|name| fs::read(node.join(name)).ok())
        .to_vec()
}

#[test]
fn a_master_of_the_past_of_the_future_or_of_another_cluster_changes_nothing_on_a_node() {
    let cluster = Cluster::up(3);
    // Now there is an epoch that is over.
    cluster.devcluster(&["kill", "master"]).exits(0);
    cluster.devcluster(&["start", "master"]).exits(0);
    let epoch = cluster.info().epoch;
    wait_for("node2 knows the new epoch", || epoch_seen(&cluster) == epoch);
    // Runs where a context lets it.
    let ran = cluster.dumps().join("ran");
    cluster.script(2, "node-add-pre.d", "10-ran", &format!("touch {}", ran.display()));
    wait_for("facts are the newest", || {
        let state = cluster.nodes().into_iter().find(|node| node.name == "node2").unwrap().state;
        state.is_some_and(|state| state.facts_serial == cluster.info().serial)
    });

    let doors = Doors::new(&cluster);
    let own = doors.uuid.to_string();
    let (before, state) = (cluster.snapshot(), node2_state(&cluster));
    let other = "00000000-0000-0000-0000-0000000000c2";
    // The epoch in the certificate, cluster and epoch of the call, code and words of the refusal.
    let over = format!("epoch: {} is over", epoch - 1);
    let above = format!("epoch: {} is above the {epoch}", epoch + 1);
    let table = [
        (epoch - 1, own.as_str(), epoch - 1, "FailedPrecondition", over.as_str()),
        (epoch, &own, epoch - 1, "FailedPrecondition", &over),
        (epoch, &own, epoch + 1, "FailedPrecondition", &above),
        (epoch, other, epoch, "FailedPrecondition", "this node belongs to cluster"),
        (epoch + 1, other, epoch + 1, "FailedPrecondition", "this node belongs to cluster"),
        (epoch, &own, 0, "InvalidArgument", "the context has no epoch"),
        (epoch, "", epoch, "InvalidArgument", "the cluster's uuid in the context is none"),
    ];
    let mut wrong = Vec::new();
    for (certificate, cluster_uuid, called, code, words) in table {
        let identity = Identity::master(doors.uuid, doors.node_uuid(1), certificate);
        let channel = doors.connect(Door::Node(2), &doors.signed(&identity)).unwrap();
        let context = v1::CallContext { cluster_uuid: cluster_uuid.to_owned(), epoch: called, serial: 1 };
        for (path, answer) in doors.wait(every_call(&channel, &context)) {
            let outcome = outcome_of(&answer);
            if !outcome.starts_with(code) || !outcome.contains(words) {
                wrong.push(format!("{path}, certificate {certificate}, {context:?}: {outcome}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(node2_state(&cluster), state);
    assert_eq!(cluster.snapshot(), before);
    assert!(!ran.exists(), "a script ran for a master that is none");

    // The same certificate with the right context is heard: it was the context.
    let identity = Identity::master(doors.uuid, doors.node_uuid(1), epoch);
    let channel = doors.connect(Door::Node(2), &doors.signed(&identity)).unwrap();
    let context = v1::CallContext { cluster_uuid: own, epoch, serial: 1 };
    let list = v1::ListHooksRequest { context: Some(context) };
    let answer = doors.wait(call(&channel, "/muster.v1.HookService/ListHooks", list));
    assert_eq!(outcome_of(&answer), "answered");
}
