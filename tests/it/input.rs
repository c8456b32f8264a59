//! Bad input: a clear error that names the value, exit code 1 or 2, never a panic, nothing changed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use muster_proto::v1;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::operation::Operation;
use muster_proto::v1::operation_service_client::OperationServiceClient;
use muster_tests::rpc;

use crate::cluster::{Cluster, Output, run, start};

/// node1, node2, and web1 (file, with an address) on node2.
fn cluster_with_web1() -> Cluster {
    let cluster = Cluster::up(2);
    cluster.ok("instance add -t file -n node2 -s 16M -m 64M -i 10.0.0.1 -o none --no-start web1");
    cluster
}

#[track_caller]
fn refused(cluster: &Cluster, output: Output, named: &str) {
    let code = output.status.code();
    assert!(code == Some(1) || code == Some(2), "{output}");
    assert!(
        output.stdout.is_empty() || output.stdout.starts_with("JobID"),
        "results only go to stdout: {output}"
    );
    let output = output.does_not_say("panicked").does_not_say("RUST_BACKTRACE");
    output.says(&[named]);
    for daemon in ["master", "node1", "node2"] {
        assert!(!cluster.log(daemon).contains("panicked"), "{daemon} panicked");
    }
}

/// Command line, what the error must name.
const BAD_WORDS: &[(&str, &str)] = &[
    // Names.
    ("instance add -t file -n node2 -s 16M -o none Web_1", "Web_1"),
    ("instance add -t file -n node2 -s 16M -o none .web", ".web"),
    ("instance add -t file -n node2 -s 16M -o none web..1", "web..1"),
    ("instance add -t file -n node2 -s 16M -o none web/../../etc", "web/../../etc"),
    ("instance add -t file -n node2 -s 16M -o none web1", "web1"),
    ("instance add -t file -n node9 -s 16M -o none web2", "node9"),
    ("instance add -t file -n node2:node2:node1 -s 16M -o none web2", "node2:node2:node1"),
    ("instance add -t mirror -n node2:node2 -s 16M -o none web2", "node2"),
    ("instance add -t mirror -n node2 -s 16M -o none web2", "secondary"),
    ("instance add -t file -n node2:node1 -s 16M -o none web2", "secondary"),
    ("instance add -t file -n node2 -s 16M -o ../evil web2", "../evil"),
    ("instance start web2", "web2"),
    ("instance info wbe1", "wbe1"),
    ("instance shutdown nosuch", "nosuch"),
    ("instance failover -f web1", "web1"),
    ("node info nod1", "nod1"),
    ("node remove node2", "web1"),
    ("node remove node1", "node1"),
    ("node remove node7", "node7"),
    ("node add node7", "node7"),
    ("node modify --offline maybe node2", "maybe"),
    ("node add -s 300.1.2.3 node7", "300.1.2.3"),
    ("cluster destroy -f other", "other"),
    ("cluster destroy -f dev", "web1"),
    ("cluster init again", "dev"),
    // Sizes and numbers.
    ("instance add -t file -n node2 -s 0 -o none web2", "0"),
    ("instance add -t file -n node2 -s -5 -o none web2", "-5"),
    ("instance add -t file -n node2 -s 10X -o none web2", "10X"),
    ("instance add -t file -n node2 -s 1.5.2G -o none web2", "1.5.2G"),
    ("instance add -t file -n node2 -s 99999999999999999999 -o none web2", "99999999999999999999"),
    ("instance add -t file -n node2 -s 9999999999T -o none web2", "9999999999T"),
    ("instance add -t file -n node2 -s 16M -m 0 -o none web2", "0"),
    ("instance add -t file -n node2 -s 16M -p 0 -o none web2", "0"),
    ("instance add -t file -n node2 -s 16M -p many -o none web2", "many"),
    ("instance add -t file -n node2 -o none web2", "-s"),
    ("instance add -t tape -n node2 -s 16M -o none web2", "tape"),
    ("instance modify -p 4294967296 web1", "4294967296"),
    ("instance modify web1", "--memory"),
    ("instance add-mirror -b sdc -n node1 web1", "sdc"),
    ("instance remove-mirror -b sda -p x web1", "x"),
    ("instance remove-mirror -b sda -p 77 web1", "web1"),
    // Addresses.
    ("instance add -t file -n node2 -s 16M -i 10.0.0 -o none web2", "10.0.0"),
    ("instance add -t file -n node2 -s 16M -i host.example -o none web2", "host.example"),
    ("instance add -t file -n node2 -s 16M -i 10.0.0.1 -o none web2", "10.0.0.1"),
    ("instance modify -i 10.0.0.256 web1", "10.0.0.256"),
    // Fields, ids, parameters, verbs.
    ("instance list -o name,colour", "colour"),
    ("node list -o shoesize", "shoesize"),
    ("job list -o x", "x"),
    ("job info 999999", "999999"),
    ("job info -- -1", "-1"),
    ("job cancel abc", "abc"),
    ("job wait 999999", "999999"),
    ("backup export -n node2 web9", "web9"),
    ("backup import -t file -n node2 -s 16M -o none --src-node node1 web9", "node1"),
    ("cluster modify --hook-exit-codes lenient", "lenient"),
    ("cluster modify --hook-timeout-max soon", "soon"),
    ("cluster client-cert sign --role king joe", "king"),
    ("cluster client-cert revoke joe", "joe"),
    // Jobs and their queue.
    ("instance start web1 --depend job1", "job1"),
    ("instance start web1 --depend 1:done", "done"),
    ("instance start web1 --depend 1:", "success, error and canceled"),
    ("instance start web1 --depend 0", "from 1"),
    ("instance start web1 --depend -1", "-1"),
    ("instance start web1 --depend 999999", "999999"),
    ("instance start web1 --depend 99999999999999999999", "99999999999999999999"),
    ("instance start web1 --priority hihg", "low, normal, high"),
    ("instance start web1 --priority 20", "-20 (first) to 19 (last)"),
    ("instance start web1 --priority -21 --submit", "-21"),
    ("instance start web1 --priority 1.5", "1.5"),
    ("job cancel --kil 1", "--kill"),
    ("job cancel --kill 999999", "999999"),
    ("job cancel --kill 1", "job 1 is over already"),
    ("job repair x", "x"),
    ("job repair 999999", "999999"),
    ("job repair 1", "job 1 has left nothing undone"),
    ("job archive", "<ID>"),
    ("job archive 0", "from 1"),
    ("job archive 999999", "999999"),
    ("job archive all", "all"),
    ("job autoarchive", "<AGE>"),
    ("job autoarchive 7y", "7y"),
    ("job autoarchive -5", "-5"),
    ("job autoarchive soon", "30m or 7d"),
    ("job autoarchive 99999999999999999999", "99999999999999999999"),
    ("cluster queue drian", "drain"),
    ("cluster queue drain now", "now"),
    ("job list -o kiled", "killed"),
    ("instance list -o bloked", "blocked"),
    ("instance explode web1", "explode"),
    ("planet list", "planet"),
];

#[test]
fn bad_words_on_the_command_line() {
    let cluster = cluster_with_web1();
    let before = cluster.snapshot();
    for (line, named) in BAD_WORDS {
        refused(&cluster, cluster.gnt(line), named);
        assert_eq!(cluster.snapshot(), before, "`gnt {line}` changed something");
    }
}

#[test]
fn the_nearest_known_name_is_offered() {
    let cluster = cluster_with_web1();
    // Command line, the right word.
    let table = [
        ("instance info wbe1", "web1"),
        ("instance start web11", "web1"),
        ("node info nodee2", "node2"),
        ("instance list -o nmae", "name"),
        ("instance strat web1", "start"),
    ];
    for (line, nearest) in table {
        let output = cluster.gnt(line);
        let code = output.status.code();
        assert!(code == Some(1) || code == Some(2), "{output}");
        output.says(&[nearest]);
    }
}

#[test]
fn over_long_values_are_refused() {
    let cluster = cluster_with_web1();
    let before = cluster.snapshot();
    let long = |length: usize| "a".repeat(length);
    let table = [
        vec!["instance".to_owned(), "start".to_owned(), long(254)],
        vec!["instance".to_owned(), "start".to_owned(), long(100_000)],
        ["instance", "modify", "-m", "96", "web1", "--reason"]
            .map(str::to_owned)
            .into_iter()
            .chain([long(1025)])
            .collect(),
        ["instance", "list", "-o"].map(str::to_owned).into_iter().chain([long(100_000)]).collect(),
        ["job", "info"].map(str::to_owned).into_iter().chain(["9".repeat(5000)]).collect(),
    ];
    for args in table {
        let output = run(cluster.gnt_command(&args));
        let bytes = output.stderr.len();
        assert!(bytes < 2_000, "an error repeats no {bytes} bytes");
        refused(&cluster, output, "");
    }
    assert_eq!(cluster.snapshot(), before);
    run(cluster.gnt_command(&["instance", "modify", "-m", "96", "web1", "--reason", &long(1024)])).exits(0);
}

#[test]
fn other_bytes_than_utf8_exit_with_2() {
    let cluster = cluster_with_web1();
    let latin1 = || OsString::from_vec(b"caf\xe9".to_vec());
    let word = |text: &str| OsString::from(text);
    for args in [
        vec![word("instance"), word("start"), latin1()],
        vec![
            word("instance"),
            word("modify"),
            word("-m"),
            word("96"),
            word("web1"),
            word("--reason"),
            latin1(),
        ],
        vec![word("instance"), word("list"), word("-o"), latin1()],
        vec![latin1()],
    ] {
        run(cluster.gnt_command(&args)).exits(2).does_not_say("panicked");
    }
}

#[test]
fn dangerous_operations_ask_and_refuse_without_a_terminal() {
    let cluster = cluster_with_web1();
    let before = cluster.snapshot();
    for line in
        ["instance remove web1", "instance failover web1", "cluster destroy dev", "cluster master-failover"]
    {
        let output = start(cluster.gnt_command(&line.split(' ').collect::<Vec<_>>()), "y\n").finish();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{output}");
        output.says(&["-f"]);
    }
    assert_eq!(cluster.snapshot(), before);
}

#[test]
fn no_master_is_exit_3() {
    let cluster = Cluster::up(1);
    cluster.devcluster(&["kill", "master"]).exits(0);
    for line in ["instance list", "cluster info", "job list", "instance start web1"] {
        cluster.gnt(line).exits(3).does_not_say("panicked").says(&["master"]);
    }
}

/// An instance to add that would be fine, for changing one thing.
fn fine() -> v1::InstanceAdd {
    v1::InstanceAdd {
        name: "web2".to_owned(),
        primary: "node2".to_owned(),
        disk_template: "file".to_owned(),
        disk_size_mib: 16,
        memory_mib: 64,
        vcpus: 1,
        os: "none".to_owned(),
        no_start: true,
        ..Default::default()
    }
}

#[test]
fn bad_messages_from_other_clients() {
    let long = "a".repeat(5000);
    let add = |change: fn(&mut v1::InstanceAdd)| {
        let mut message = fine();
        change(&mut message);
        Some(Operation::InstanceAdd(message))
    };
    // What, the operation, the reason's text.
    let table: Vec<(&str, Option<Operation>, &str)> = vec![
        ("no operation", None, ""),
        ("empty name", add(|m| m.name.clear()), ""),
        ("NUL in a name", add(|m| m.name = "web\0".to_owned()), ""),
        ("newline at a name's end", add(|m| m.name = "web2\n".to_owned()), ""),
        ("path as a name", add(|m| m.name = "../web2".to_owned()), ""),
        ("NUL in an OS", add(|m| m.os = "no\0ne".to_owned()), ""),
        ("empty template", add(|m| m.disk_template.clear()), ""),
        ("no disk", add(|m| m.disk_size_mib = 0), ""),
        ("endless disk", add(|m| m.disk_size_mib = u64::MAX), ""),
        ("endless memory", add(|m| m.memory_mib = u64::MAX), ""),
        ("no memory", add(|m| m.memory_mib = 0), ""),
        ("no processor", add(|m| m.vcpus = 0), ""),
        ("no address", add(|m| m.ip = Some("x".to_owned())), ""),
        ("secondary of a file instance", add(|m| m.secondary = Some("node1".to_owned())), ""),
        ("empty source", add(|m| m.source = Some(v1::ImportSource::default())), ""),
        ("over-long reason", Some(Operation::InstanceAdd(fine())), &long),
        ("NUL in the reason", Some(Operation::InstanceAdd(fine())), "a\0b"),
    ];
    let cluster = cluster_with_web1();
    let before = cluster.snapshot();
    for (at, (what, operation, reason)) in table.into_iter().enumerate() {
        let request = v1::SubmitRequest {
            operation: Some(v1::Operation { operation }),
            reason: reason.to_owned(),
            dry_run: false,
            request_id: format!("bad-{at}"),
            ..v1::SubmitRequest::default()
        };
        let answer = rpc::ask(&cluster.socket(), |channel| async move {
            OperationServiceClient::new(channel).submit(request).await
        });
        match answer {
            // Refused where it arrives, or by the checks of its job.
            Err(rpc::RpcError::Status(status)) => {
                assert_eq!(status.code(), tonic::Code::InvalidArgument, "{what}: {status:?}");
            }
            Ok(response) => {
                let job = cluster.job_end(response.into_inner().job_id);
                let error = job.error.unwrap_or_else(|| panic!("{what} went through"));
                assert_eq!(error.kind(), v1::ErrorKind::Refused, "{what}: {error:?}");
            }
            Err(other) => panic!("{what}: {other}"),
        }
        assert_eq!(cluster.snapshot(), before, "{what} changed something");
    }
    assert!(!cluster.log("master").contains("panicked"));
}

#[test]
fn bad_messages_on_the_queue_from_other_clients() {
    let cluster = cluster_with_web1();
    let before = (cluster.snapshot(), cluster.jobs().len());
    let start = || v1::SubmitRequest {
        operation: Some(v1::Operation {
            operation: Some(Operation::InstanceStart(v1::InstanceStart {
                instance: "web1".to_owned(),
                force: false,
            })),
        }),
        ..v1::SubmitRequest::default()
    };
    let depends = |jobs: usize, endings: &[i32]| v1::SubmitRequest {
        depends: vec![v1::Dependency { job: 1, endings: endings.to_vec() }; jobs],
        ..start()
    };
    // What is named, the request.
    let table = [
        ("20", v1::SubmitRequest { priority: 20, ..start() }),
        ("-2147483648", v1::SubmitRequest { priority: i32::MIN, ..start() }),
        ("101 jobs", depends(101, &[])),
        ("9", depends(1, &[1, 9])),
        ("0", depends(1, &[0])),
    ];
    for (named, request) in table {
        let answer = rpc::ask(&cluster.socket(), |channel| async move {
            OperationServiceClient::new(channel).submit(request).await
        });
        let Err(rpc::RpcError::Status(status)) = answer else { panic!("{named} passed: {answer:?}") };
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(named), "{status:?}");
    }
    for request in [
        v1::ArchiveJobsRequest::default(),
        v1::ArchiveJobsRequest { ids: vec![1], older_than_ms: Some(0) },
        v1::ArchiveJobsRequest { ids: vec![1; 10_001], older_than_ms: None },
    ] {
        let answer = rpc::ask(&cluster.socket(), |channel| async move {
            JobServiceClient::new(channel).archive_jobs(request).await
        });
        let Err(rpc::RpcError::Status(status)) = answer else { panic!("passed: {answer:?}") };
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status:?}");
    }
    assert_eq!((cluster.snapshot(), cluster.jobs().len()), before);
}

#[test]
fn e3_an_environment_string_over_the_kernels_bound_is_refused_at_check() {
    // A reason is bounded far below; a list of nodes or a name can't reach 128 KiB either: the bound is shown at the reason.
    let cluster = cluster_with_web1();
    let args = ["instance", "modify", "-m", "96", "web1", "--reason"].map(str::to_owned);
    let args: Vec<String> = args.into_iter().chain(["r".repeat(100_000)]).collect();
    refused(&cluster, run(cluster.gnt_command(&args)), "reason");
}
