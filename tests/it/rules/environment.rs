//! E1-E5: what scripts find in their environment.

use muster_proto::v1;
use muster_proto::v1::operation_service_client::OperationServiceClient;
use muster_tests::rpc;

use super::{PRE, cluster_with_web1, modify};
use crate::cluster::{Cluster, run};
use crate::dumps::Dump;

#[test]
fn e1_names_are_prefixed_and_values_are_plain_text() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify", "instance-export", "instance-add"]);
    modify(&cluster, 96).exits(0);
    cluster.ok("backup export -n node1 web1");
    cluster.ok("instance add -t file -n node2 -s 1G -m 1G -p 1 -o none --no-start web2");
    let dumps = cluster.take_dumps();
    assert!(dumps.len() > 10, "{}", dumps.len());
    for (name, value) in dumps.iter().flat_map(|dump| &dump.env) {
        assert!(name == "PATH" || name.starts_with("GANETI_"), "{name}");
        assert!(
            !["None", "none", "true", "false", "null"].contains(&value.as_str())
                || name == "GANETI_INSTANCE_OS"
        );
    }
    let value = |dump: &Dump, name: &str| dump.env.get(name).cloned();
    let export = dumps.iter().find(|dump| dump.directory.starts_with("instance-export")).unwrap();
    assert_eq!(value(export, "GANETI_EXPORT_DO_SHUTDOWN").as_deref(), Some("True"));
    let add = dumps.iter().find(|dump| dump.directory.starts_with("instance-add")).unwrap();
    assert_eq!(value(add, "GANETI_INSTANCE_SECONDARIES").as_deref(), Some(""), "an empty list");
    assert_eq!(value(add, "GANETI_DISK_SIZE").as_deref(), Some("1024"), "whole MiB");
}

/// Variables that are there only if given or applicable.
const OPTIONAL: [&str; 7] =
    ["FORCE", "IGNORE_CONSISTENCY", "INSTANCE_IP", "SRC_NODE", "SRC_PATH", "SRC_IMAGE", "DRY_RUN"];

fn optional_in(dumps: &[Dump]) -> Vec<&'static str> {
    let has = |name: &str| dumps.iter().any(|dump| dump.env.contains_key(&format!("GANETI_{name}")));
    OPTIONAL.into_iter().filter(|name| has(name)).collect()
}

#[test]
fn e2_optional_variables_are_absent_unless_given() {
    let cluster = Cluster::up(2);
    let prefixes = ["instance-add", "instance-start", "instance-modify"];
    cluster.install_dumps(2, &prefixes);
    // Command, optional variables that its scripts find.
    let table: [(&str, &[&str]); 7] = [
        ("instance add -t file -n node2 -s 8M -o none --no-start --dry-run web1", &["DRY_RUN"]),
        ("instance add -t file -n node2 -s 8M -o none --no-start web1", &[]),
        ("instance start web1", &[]),
        ("instance modify -i 10.0.0.7 web1", &["INSTANCE_IP"]),
        ("instance shutdown web1", &[]),
        ("instance start --force --dry-run web1", &["FORCE", "DRY_RUN"]),
        ("instance start --force web1", &["FORCE"]),
    ];
    for (line, expected) in table {
        cluster.ok(line);
        let dumps = cluster.take_dumps();
        assert_eq!(optional_in(&dumps), expected, "{line}");
        for (name, value) in dumps.iter().flat_map(|dump| &dump.env) {
            let flag = ["GANETI_FORCE", "GANETI_DRY_RUN"].contains(&name.as_str());
            assert!(!flag || value == "True", "{name}={value}");
        }
        if line.contains("--dry-run") {
            assert!(dumps.iter().all(|dump| dump.directory.ends_with("-pre.d")), "a dry run has no post");
            assert!(!dumps.is_empty(), "a dry run runs pre scripts for real");
        }
    }
}

#[test]
fn e3_values_pass_unharmed() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify"]);
    let table = [
        "a=b=c",
        "'single' \"double\" \\back`tick`",
        "two\nlines\n",
        "$(touch /tmp/never) ${HOME} $PATH; exit 1 | & > x",
        "  blanks  ",
        "größer · 日本語 · 🐧",
        "-leading-hyphen",
        "\t\u{1b}[31mcontrol\u{7}",
    ];
    for (at, reason) in table.into_iter().enumerate() {
        let memory = (100 + at).to_string();
        run(cluster.gnt_command(&["instance", "modify", "-m", &memory, "--reason", reason, "web1"])).exits(0);
        let dumps = cluster.take_dumps();
        assert_eq!(dumps.len(), 6, "{reason:?}");
        for dump in dumps {
            assert_eq!(dump.env["GANETI_JOB_REASON"], reason);
        }
    }
}

#[test]
fn e3_nul_is_refused_at_the_edge() {
    let cluster = cluster_with_web1();
    let operation = v1::Operation {
        operation: Some(v1::operation::Operation::InstanceModify(v1::InstanceModify {
            instance: "web1".to_owned(),
            memory_mib: Some(96),
            ..Default::default()
        })),
    };
    let request = v1::SubmitRequest {
        operation: Some(operation),
        reason: "cut\0here".to_owned(),
        request_id: "e3".to_owned(),
        ..Default::default()
    };
    let jobs = cluster.jobs().len();
    let answer = rpc::ask(&cluster.socket(), |channel| async move {
        OperationServiceClient::new(channel).submit(request).await
    });
    let Err(rpc::RpcError::Status(status)) = answer else { panic!("NUL passed: {answer:?}") };
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    assert_eq!(cluster.jobs().len(), jobs);
}

#[test]
fn e4_both_phases_get_one_environment() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-failover"]);
    cluster.ok("instance failover -f web1");
    let mut dumps = cluster.take_dumps();
    assert_eq!(dumps.len(), 6);
    for dump in &mut dumps {
        let phase = dump.env.remove("GANETI_HOOKS_PHASE").unwrap();
        assert_eq!(phase == "PRE", dump.directory.ends_with("-pre.d"));
    }
    for node in ["node1", "node2", "node3"] {
        let of_node: Vec<_> = dumps.iter().filter(|dump| dump.node == node).map(|dump| &dump.env).collect();
        assert_eq!(of_node.len(), 2);
        assert_eq!(of_node[0], of_node[1], "post sees the object as it was before, on {node}");
    }
    assert_eq!(cluster.instance("web1").primary, "node3");
    assert_eq!(dumps[0].env["GANETI_INSTANCE_PRIMARY"], "node2");
}

#[test]
fn e4_the_environment_is_kept_with_the_job() {
    let cluster = cluster_with_web1();
    cluster.install_dumps(3, &["instance-modify"]);
    modify(&cluster, 96).exits(0);
    let job = cluster.last_job();
    assert_eq!((job.pre_nodes.len(), job.post_nodes.len()), (3, 3));
    let dumps = cluster.take_dumps();
    let prefixed: Vec<_> = job.env.keys().filter(|name| name.starts_with("GANETI_")).collect();
    assert!(!prefixed.is_empty(), "{:?}", job.env);
    for (name, value) in &job.env {
        if name != "GANETI_HOOKS_PHASE" {
            assert_eq!(dumps[0].env.get(name), Some(value), "{name}");
        }
    }
}

#[test]
fn e5_a_node_that_is_twice_in_a_set_runs_once() {
    let cluster = Cluster::up(2);
    cluster.install_dumps(2, &["instance-add"]);
    cluster.ok("instance add -t mirror -n node1:node2 -s 8M -o none --no-start web1");
    let ran: Vec<_> = cluster.take_dumps().into_iter().map(|dump| (dump.directory, dump.node)).collect();
    let expected = ["instance-add-post.d", "instance-add-pre.d"]
        .into_iter()
        .flat_map(|directory| ["node1", "node2"].map(|node| (directory.to_owned(), node.to_owned())));
    assert_eq!(ran, expected.collect::<Vec<_>>());
}

#[test]
fn e1_the_directory_of_facts_is_there_before_scripts_run() {
    let cluster = cluster_with_web1();
    let names = "cluster_name master_node node_list node_primary_ips node_secondary_ips instance_list";
    let body = format!(
        "for n in {names}; do [ -r \"$GANETI_DATA_DIR/ssconf_$n\" ] || {{ echo no $n; exit 1; }}; done\n\
         [ \"$(cat \"$GANETI_DATA_DIR/ssconf_cluster_name\")\" = dev ] || exit 2\n\
         grep -qx web1 \"$GANETI_DATA_DIR/ssconf_instance_list\" || exit 3"
    );
    for node in 1..=3 {
        cluster.script(node, PRE, "10-facts", &body);
    }
    modify(&cluster, 96).exits(0);
}
