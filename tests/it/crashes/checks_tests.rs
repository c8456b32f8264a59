//! Each check finds the fault it is for.

use super::super::witness::Run;
use super::*;

const REQUEST: &str = "seed0-client0-0";
const INSTANCE: &str = "web0";

fn run(job: u64, script: &str, begin_us: u64) -> Run {
    let phase = if script.contains("-pre.d/") { "PRE" } else { "POST" };
    let env = [("HOOKS_PHASE", phase), ("HOST_NAME", "node1"), ("INSTANCE_NAME", INSTANCE), ("JOB_ID", "7")];
    Run {
        node: "node1".to_owned(),
        job,
        script: script.to_owned(),
        pid: 1,
        begin_us,
        end_us: Some(begin_us + 1_000),
        whole: true,
        beside: false,
        env: env.into_iter().map(|(name, value)| (format!("GANETI_{name}"), value.to_owned())).collect(),
    }
}

fn job(id: u64, reason: &str, ended_ms: u64) -> v1::Job {
    let start = v1::InstanceStart { instance: INSTANCE.to_owned(), force: false };
    let operation = v1::operation::Operation::InstanceStart(start);
    let report = v1::NodeReport { node: "node1".to_owned(), ..Default::default() };
    v1::Job {
        id,
        op_id: "OP_INSTANCE_START".to_owned(),
        reason: reason.to_owned(),
        status: v1::JobStatus::Success.into(),
        ended_ms: Some(ended_ms),
        pre: vec![report.clone()],
        post: vec![report],
        pre_nodes: vec!["node1".to_owned()],
        post_nodes: vec!["node1".to_owned()],
        env: [("GANETI_INSTANCE_NAME".to_owned(), INSTANCE.to_owned())].into(),
        operation: Some(v1::Operation { operation: Some(operation) }),
        ..Default::default()
    }
}

/// One job as it should be: submitted, seen, ended at 40 ms, its scripts at 10, 20 and 30 ms.
fn sound() -> Seen {
    let job = job(7, REQUEST, 40);
    let submitted = Submitted {
        request_id: REQUEST.to_owned(),
        operation: job.operation.clone().unwrap(),
        dry_run: false,
        job: 7,
        seen: Some(job.clone()),
        canceled: false,
    };
    let scripts = [
        "instance-start-pre.d/10-witness",
        "instance-start-pre.d/20-witness",
        "instance-start-post.d/10-witness",
    ];
    let runs = scripts.iter().zip([10_000, 20_000, 30_000]).map(|(script, at)| run(7, script, at)).collect();
    Seen { submitted: vec![submitted], jobs: [(7, job)].into(), runs, nodes_died: false }
}

/// A change of the sound history, the words of the finding that it must bring.
fn finds(words: &str, change: impl FnOnce(&mut Seen)) {
    let mut seen = sound();
    change(&mut seen);
    let findings = all(&seen);
    assert!(findings.iter().any(|finding| finding.contains(words)), "{words:?} is not in {findings:#?}");
}

fn the_job(seen: &mut Seen) -> &mut v1::Job {
    seen.jobs.get_mut(&7).unwrap()
}

fn ends_as(seen: &mut Seen, kind: v1::ErrorKind) {
    let job = the_job(seen);
    job.set_status(v1::JobStatus::Error);
    job.error = Some(v1::JobError { kind: kind.into(), ..Default::default() });
}

#[test]
fn a_sound_history_has_no_findings() {
    assert_eq!(all(&sound()), Vec::<String>::new());
}

#[test]
fn lost_and_doubled_and_changed_jobs_are_found() {
    finds("is lost", |seen| seen.jobs.clear());
    finds("made the jobs [7, 8]", |seen| drop(seen.jobs.insert(8, job(8, REQUEST, 50))));
    finds("nobody was answered for", |seen| drop(seen.jobs.insert(8, job(8, "stranger", 50))));
    finds("was seen as", |seen| the_job(seen).ended_ms = Some(41));
    finds("is not what", |seen| the_job(seen).operation = None);
    finds("not over", |seen| the_job(seen).set_status(v1::JobStatus::Running));
}

#[test]
fn outcomes_without_a_reason_are_found() {
    finds("was canceled by nobody", |seen| the_job(seen).set_status(v1::JobStatus::Canceled));
    finds("was denied by no rule", |seen| ends_as(seen, v1::ErrorKind::Denied));
    finds("failed though nothing", |seen| ends_as(seen, v1::ErrorKind::Failed));
    finds("an error of no kind", |seen| ends_as(seen, v1::ErrorKind::Unspecified));
    finds("succeeded though its scripts deny", |seen| {
        the_job(seen).env.insert("GANETI_INSTANCE_NAME".to_owned(), "mail-no".to_owned());
    });
}

#[test]
fn success_without_scripts_and_scripts_without_success_are_found() {
    finds("without pre 20-witness on node1", |seen| drop(seen.runs.remove(1)));
    finds("without pre 10-witness on node1", |seen| seen.runs[0].whole = false);
    finds("without pre 20-witness on node1", |seen| seen.runs[1].end_us = Some(30_500));
    finds("without post 10-witness on node1", |seen| drop(seen.runs.remove(2)));
    finds("did not succeed", |seen| ends_as(seen, v1::ErrorKind::Interrupted));
    finds("was refused", |seen| ends_as(seen, v1::ErrorKind::Refused));
    finds("no such job", |seen| seen.jobs.clear());
}

#[test]
fn scripts_beyond_their_job_and_beside_others_are_found() {
    finds("the job was over at", |seen| seen.runs[2].begin_us = 50_000);
    finds("the job was over at", |seen| seen.runs[2].end_us = Some(50_000));
    finds("the job was over at", |seen| {
        the_job(seen).post.clear();
        seen.runs[2].end_us = Some(60_000_000);
    });
    finds("on web0, scripts of job 7", |seen| {
        seen.jobs.insert(8, job(8, "other", 60));
        seen.runs.push(run(8, "instance-start-pre.d/10-witness", 30_500));
    });
    let again = |seen: &mut Seen, at: usize, begin_us: u64| {
        let script = seen.runs[at].script.clone();
        seen.runs.insert(at + 1, run(7, &script, begin_us));
    };
    finds("though the node's daemon lived", |seen| again(seen, 0, 12_000));
    finds("ran beside its repetition", |seen| {
        seen.nodes_died = true;
        again(seen, 0, 10_500);
    });
    finds("ran beside its repetition", |seen| {
        seen.nodes_died = true;
        again(seen, 0, 12_000);
        seen.runs[1].beside = true;
    });
    finds("is post and was repeated", |seen| {
        seen.nodes_died = true;
        again(seen, 2, 32_000);
    });
}

#[test]
fn another_environment_is_found() {
    finds("has another environment", |seen| {
        seen.runs[1].env.insert("GANETI_FORCE".to_owned(), "True".to_owned());
    });
    finds("a wrong phase or node", |seen| {
        seen.runs[1].env.insert("GANETI_HOOKS_PHASE".to_owned(), "POST".to_owned());
    });
}
