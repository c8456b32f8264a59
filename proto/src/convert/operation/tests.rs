//! Operations to the wire and back, and messages that are refused.

use muster_core::{model::DiskTemplate, ops::all_examples};
use v1::operation::Operation as Wire;

use super::*;

fn local() -> NodeName {
    NodeName::parse("node2").unwrap()
}

#[test]
fn every_operation_survives_the_wire() {
    for (_, _, op) in all_examples() {
        let wire = v1::Operation::from(op.clone());
        assert_eq!(operation_from_wire(wire, &local()), Ok(op));
    }
}

fn add() -> v1::InstanceAdd {
    v1::InstanceAdd {
        name: "web1".to_owned(),
        primary: "node1".to_owned(),
        disk_template: "file".to_owned(),
        os: "none".to_owned(),
        ..v1::InstanceAdd::default()
    }
}

fn check(wire: Wire, expected: &str) {
    let error = operation_from_wire(v1::Operation { operation: Some(wire) }, &local()).unwrap_err();
    let status = tonic::Status::from(error);
    assert!(status.message().contains(expected), "{:?} does not hold {expected:?}", status.message());
    assert!(status.message().len() < 500, "too long: {}", status.message().len());
}

#[test]
fn bad_input_is_named() {
    let missing = operation_from_wire(v1::Operation { operation: None }, &local());
    assert_eq!(missing, Err(WireError::Missing { field: "operation" }));
    let long = "a".repeat(1_000_000);
    check(Wire::InstanceAdd(v1::InstanceAdd { name: String::new(), ..add() }), "name is missing");
    check(Wire::InstanceAdd(v1::InstanceAdd { name: long, ..add() }), "longer than 253");
    check(
        Wire::InstanceAdd(v1::InstanceAdd { name: "a\0".into(), ..add() }),
        "name is wrong: instance name \"a\\0\"",
    );
    check(Wire::InstanceAdd(v1::InstanceAdd { primary: "Node1".into(), ..add() }), "primary is wrong");
    check(
        Wire::InstanceAdd(v1::InstanceAdd { secondary: Some(String::new()), ..add() }),
        "secondary is missing",
    );
    check(
        Wire::InstanceAdd(v1::InstanceAdd { disk_template: "lvm".into(), ..add() }),
        "\"lvm\": diskless, file or",
    );
    check(
        Wire::InstanceAdd(v1::InstanceAdd { ip: Some("10.0.0".into()), ..add() }),
        "ip is wrong: \"10.0.0\"",
    );
    check(Wire::InstanceAdd(v1::InstanceAdd { os: "../x".into(), ..add() }), "os is wrong");
    check(Wire::InstanceAdd(v1::InstanceAdd { tags: vec!["a b".into()], ..add() }), "tags is wrong");
    let source = Some(v1::ImportSource { node: "node1".into(), export: "../x".into() });
    check(Wire::InstanceAdd(v1::InstanceAdd { source, ..add() }), "source.export is wrong");
    let mirror = v1::MirrorAdd { instance: "a".into(), disk: "sdc".into(), node: "b".into() };
    check(Wire::MirrorAdd(mirror), "disk is wrong: \"sdc\": sda or sdb");
    let sign = |role: &str, csr_der: Vec<u8>| {
        Wire::ClientCertificateSign(v1::ClientCertificateSign {
            name: "ci".into(),
            role: role.into(),
            csr_der,
        })
    };
    check(sign("root", vec![0]), "role is wrong: \"root\": reader, operator or admin");
    check(sign("admin", Vec::new()), "csr_der is missing");
    check(sign("admin", vec![0; 20_000]), "csr_der is wrong: \"20000 bytes\"");
    let hooks = Some(v1::HookPolicy { on_error: v1::OnError::Stop.into(), ..v1::HookPolicy::default() });
    check(
        Wire::ClusterModify(v1::ClusterModify { hooks, on_error_default: true, ..Default::default() }),
        "give one of both",
    );
    let hooks = Some(v1::HookPolicy { exit_codes: 7, ..v1::HookPolicy::default() });
    check(
        Wire::ClusterModify(v1::ClusterModify { hooks, ..Default::default() }),
        "hooks.exit_codes is wrong: \"7\"",
    );
}

#[test]
fn a_reason_is_bounded_and_holds_no_nul() {
    let request = |reason: &str, request_id: &str| v1::SubmitRequest {
        operation: Some(v1::Operation { operation: Some(Wire::InstanceAdd(add())) }),
        reason: reason.to_owned(),
        dry_run: true,
        request_id: request_id.to_owned(),
        ..v1::SubmitRequest::default()
    };
    let good = submit(request(&"ä".repeat(512), ""), &local()).unwrap();
    assert!(good.dry_run && good.reason.len() == 1024);
    assert!(submit(request(&"ä".repeat(513), ""), &local()).is_err());
    assert!(submit(request("a\0b", ""), &local()).is_err());
    assert!(submit(request("", &"x".repeat(129)), &local()).is_err());
}

#[test]
fn priorities_and_dependencies_are_bounded() {
    let request = |priority, depends| v1::SubmitRequest {
        operation: Some(v1::Operation { operation: Some(Wire::InstanceAdd(add())) }),
        priority,
        depends,
        ..v1::SubmitRequest::default()
    };
    let on = |endings| v1::Dependency { job: 7, endings };
    let good = submit(request(-20, vec![on(Vec::new())]), &local()).unwrap();
    assert_eq!(good.depends[0].endings, BTreeSet::from([Ending::Success]));
    assert_eq!(good.priority, Priority::FIRST);
    let error = submit(request(20, Vec::new()), &local()).unwrap_err().to_string();
    assert!(error.contains("priority") && error.contains("\"20\""), "{error}");
    assert!(submit(request(0, vec![on(vec![9])]), &local()).is_err());
    assert!(submit(request(0, vec![on(Vec::new()); 101]), &local()).is_err());
}

#[test]
fn other_names_of_the_mirror_template_mean_mirror() {
    for name in ["mirror", "remote_raid1", "drbd"] {
        let wire = Wire::InstanceAdd(v1::InstanceAdd { disk_template: name.to_owned(), ..add() });
        let op = operation_from_wire(v1::Operation { operation: Some(wire) }, &local()).unwrap();
        let Op::InstanceAdd(op) = op else { panic!("{op:?}") };
        assert_eq!(op.template, DiskTemplate::Mirror);
    }
}
