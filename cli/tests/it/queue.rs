//! What the program says of the queue, and what it does when a hook script calls it.

use std::process::{Command, Stdio};

use muster_proto::v1::{self, job_event::Event};

use crate::{
    gnt, run,
    scripted::{Master, Script},
};

/// The scripted master's jobs, each of which ends so.
fn ends(jobs: &[v1::Job]) -> Script {
    let stories = jobs.iter().map(|job| vec![Event::Done(job.clone())]).collect();
    Script { stories, ..Script::default() }
}

fn done(id: u64) -> v1::Job {
    v1::Job { id, status: v1::JobStatus::Success.into(), ..v1::Job::default() }
}

#[test]
fn a_submission_carries_its_dependencies_its_priority_and_the_job_of_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), ends(&[done(1), done(2)]));
    let line = "instance start web1 --depend 7 --depend 8:error,canceled --priority -3";
    let output = gnt(master.socket(), line).env("GANETI_JOB_ID", "41").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(run(master.socket(), "instance start web1 --submit --priority high").0, 0);
    let script = master.script();
    let [first, second] = &script.submissions[..] else { panic!("{:?}", script.submissions) };
    let depends = [
        v1::Dependency { job: 7, endings: vec![v1::JobEnding::Success.into()] },
        v1::Dependency { job: 8, endings: vec![v1::JobEnding::Error.into(), v1::JobEnding::Canceled.into()] },
    ];
    assert_eq!(first.depends, depends);
    assert_eq!((first.priority, first.parent_job, first.will_wait), (-3, 41, true));
    assert_eq!((second.priority, second.parent_job, second.will_wait), (-10, 0, false));
    assert_eq!(script.follower, 41);
}

#[test]
fn a_scripts_job_that_is_no_number_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let master = Master::start(folder.path(), ends(&[done(1)]));
    for line in ["instance start web1", "instance start web1 --submit", "job wait 1"] {
        let output = gnt(master.socket(), line).env("GANETI_JOB_ID", "4x").output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {err}");
        assert!(err.contains("GANETI_JOB_ID is \"4x\""), "{line}: {err}");
    }
    assert!(master.script().submissions.is_empty());
    let output = gnt(master.socket(), "instance list").env("GANETI_JOB_ID", "4x").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "a list has no need of it");
}

#[test]
fn where_there_is_no_master_the_facts_name_it() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path().join("nowhere"), folder.path().join("master_socket")).unwrap();
    std::fs::write(folder.path().join("ssconf_master_node"), "node7\n").unwrap();
    let off_master = |line: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gnt"));
        command.args(line.split_whitespace()).env_clear().env("GANETI_DATA_DIR", folder.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(off_master("cluster getmaster"), (0, "node7\n".to_owned(), String::new()));
    let (code, out, _) = off_master("cluster getmaster --json");
    assert_eq!(
        (code, serde_json::from_str::<serde_json::Value>(&out).unwrap()["master"].as_str()),
        (0, Some("node7"))
    );
    for line in
        ["instance list", "cluster info", "instance start web1", "instance start web1 --submit", "job list"]
    {
        let (code, out, err) = off_master(line);
        assert_eq!((code, out.as_str()), (3, ""), "{line}: {err}");
        assert!(err.contains("not the master: node7 is"), "{line}: {err}");
    }
    // A socket that nobody listens at.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("nowhere")).unwrap());
    assert_eq!(off_master("cluster getmaster"), (0, "node7\n".to_owned(), String::new()));
    let (code, _, err) = off_master("instance list");
    assert!(
        code == 3 && err.contains("by the facts of this host's node the master is node7"),
        "{code}: {err}"
    );
    std::fs::remove_file(folder.path().join("nowhere")).unwrap();
    std::fs::remove_file(folder.path().join("ssconf_master_node")).unwrap();
    let (code, _, err) = off_master("cluster getmaster");
    assert!(code == 3 && err.contains("names no master"), "{code}: {err}");
}

#[test]
fn a_killed_job_ends_with_1_and_says_what_stays() {
    let folder = tempfile::tempdir().unwrap();
    let killed = v1::Job { status: v1::JobStatus::Canceled.into(), killed: true, ..done(1) };
    let master = Master::start(folder.path(), ends(&[v1::Job { committed: true, ..killed }]));
    for line in ["job wait 1", "job watch 1"] {
        let (code, out, err) = run(master.socket(), line);
        assert_eq!((code, out.as_str()), (1, ""), "{line}: {err}");
        assert!(err.contains("job 1 was killed; what the operation did stays"), "{line}: {err}");
    }
    let (code, out, _) = run(master.socket(), "job wait 1 --json");
    let job: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &job["killed"], &job["status"]), (1, &true.into(), &"canceled".into()));
}

#[test]
fn archiving_tells_what_was_kept_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let kept = v1::KeptJob { id: 8, reason: "job 8 is not over".to_owned() };
    let archived = v1::ArchiveJobsResponse { archived: vec![7], kept: vec![kept] };
    let master = Master::start(folder.path(), Script { archived, ..Script::default() });
    let (code, out, err) = run(master.socket(), "job archive 7 8");
    assert_eq!((code, out.as_str()), (1, "job 7 is archived\n"), "{err}");
    assert_eq!(err, "error: job 8 is kept: job 8 is not over\n");
    let (code, out, err) = run(master.socket(), "job autoarchive 2h");
    assert_eq!((code, out.as_str()), (0, "1 job archived: 7\n"), "{err}");
    assert_eq!(err, "warning: job 8 is kept: job 8 is not over\n");
    let (code, out, _) = run(master.socket(), "job autoarchive all --json");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    let expected = serde_json::json!({"archived": [7], "kept": [{"id": 8, "reason": "job 8 is not over"}]});
    assert_eq!(document, expected);
    let ages: Vec<_> = master.script().archives.iter().map(|request| request.older_than_ms).collect();
    assert_eq!(ages, [None, Some(7_200_000), Some(0)]);
}

#[test]
fn the_queue_is_drained_and_paused_each_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let queue = v1::QueueInfo { waiting: 3, waiting_max: 10_000, archived: 5, ..v1::QueueInfo::default() };
    let master = Master::start(folder.path(), Script { queue, ..Script::default() });
    for (verb, drained, paused) in [
        ("info", false, false),
        ("drain", true, false),
        ("pause", true, true),
        ("undrain", false, true),
        ("resume", false, false),
    ] {
        let (code, out, err) = run(master.socket(), &format!("cluster queue {verb} --json"));
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(code, 0, "{err}");
        assert_eq!((&document["drained"], &document["paused"]), (&drained.into(), &paused.into()), "{verb}");
        assert_eq!((&document["waiting"], &document["archived"]), (&3.into(), &5.into()));
    }
    let (_, out, _) = run(master.socket(), "cluster queue drain");
    assert!(out.contains("waiting:     3\n") && out.contains("gnt-cluster queue undrain"), "{out}");
}
