//! `gnt-job`.

use muster_proto::v1::{
    ArchiveJobsRequest, CancelJobRequest, GetJobRequest, Job, JobRepair, JobStatus, ListJobsRequest,
    operation::Operation,
};
use serde_json::json;

use super::operation;
use crate::{
    args::{Age, ConnectionFlags, JobStateFlags, JobVerb, ListFlags, OperationFlags},
    client::{Master, answer},
    exit::Failure,
    follow::follow,
    output::{
        denial::{end_text, succeeded},
        fields::select,
        job_info,
        jobs::{DEFAULT, FIELDS, job_json, place_text},
        note, one_or_array, print, print_json,
        text::{counted, visible_line},
    },
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: JobVerb) -> Result<(), Failure> {
    match verb {
        JobVerb::List { ids, states, list: flags } => list(connection, &ids, states, &flags).await,
        JobVerb::Info { ids, verbose, json } => info(connection, &ids, verbose, json.json).await,
        JobVerb::Cancel { ids, kill, json } => cancel(connection, &ids, kill, json.json).await,
        JobVerb::Repair { id, operation } => {
            repair(&Master::connect(connection).await?, id, &operation).await
        }
        JobVerb::Archive { ids, json } => {
            let request = ArchiveJobsRequest { ids, older_than_ms: None };
            archive(&Master::connect(connection).await?, request, json.json).await
        }
        JobVerb::Autoarchive { age: Age(age), json } => {
            let older_than_ms = u64::try_from(age.as_millis()).expect("an age was parsed so that it fits");
            let request = ArchiveJobsRequest { ids: Vec::new(), older_than_ms: Some(older_than_ms) };
            archive(&Master::connect(connection).await?, request, json.json).await
        }
        JobVerb::Watch { id, json } => watch(connection, id, json.json).await,
        JobVerb::Wait { id, json } => wait(&Master::connect(connection).await?, id, json.json).await,
    }
}

async fn list(
    connection: &ConnectionFlags,
    ids: &[u64],
    states: JobStateFlags,
    flags: &ListFlags,
) -> Result<(), Failure> {
    let selection = select(FIELDS, DEFAULT, flags)?;
    let master = Master::connect(connection).await?;
    let active = (states.pending || states.running) && !states.error && !states.finished && ids.is_empty();
    let mut jobs = answer(master.jobs().list_jobs(ListJobsRequest { active })).await?.jobs;
    if let Some(unknown) = ids.iter().find(|id| !jobs.iter().any(|job| job.id == **id)) {
        return Err(Failure::Refused(format!(
            "there is no job {unknown} in the list; one that is archived is shown by gnt-job info {unknown}"
        )));
    }
    jobs.retain(|job| (ids.is_empty() || ids.contains(&job.id)) && wanted(job, states));
    print(&selection.render(&jobs)?)
}

fn wanted(job: &Job, states: JobStateFlags) -> bool {
    let any = states.pending || states.running || states.error || states.finished;
    !any || match job.status() {
        JobStatus::Queued | JobStatus::Waiting => states.pending,
        JobStatus::Running | JobStatus::Canceling => states.running,
        JobStatus::Error => states.error || states.finished,
        JobStatus::Success | JobStatus::Canceled => states.finished,
        JobStatus::Unspecified => false,
    }
}

async fn info(
    connection: &ConnectionFlags,
    ids: &[u64],
    verbose: bool,
    as_json: bool,
) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let mut jobs = Vec::new();
    for id in ids {
        jobs.push(answer(master.jobs().get_job(GetJobRequest { id: *id })).await?);
    }
    if as_json {
        print_json(&one_or_array(jobs.iter().map(job_json).collect(), ids.len()))
    } else {
        print(&jobs.iter().map(|job| job_info::render(job, verbose)).collect::<Vec<_>>().join("\n"))
    }
}

async fn cancel(connection: &ConnectionFlags, ids: &[u64], kill: bool, as_json: bool) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let mut done = Vec::new();
    let mut failure = None;
    for id in ids {
        match answer(master.jobs().cancel_job(CancelJobRequest { id: *id, kill })).await {
            Ok(answer) => done.push((*id, answer.message)),
            Err(status) => {
                // The others are canceled all the same.
                if let Some(earlier) =
                    failure.replace(Failure::from(status)).and_then(|earlier| earlier.text())
                {
                    note(&earlier);
                }
            }
        }
    }
    let printed = if as_json {
        let values = done.iter().map(|(id, message)| json!({ "id": id, "message": message })).collect();
        print_json(&one_or_array(values, ids.len()))
    } else {
        print(&done.iter().map(|(_, message)| format!("{message}\n")).collect::<String>())
    };
    failure.map_or(printed, Err)
}

/// Repeats what a job's undo could not do, and tells what is left.
async fn repair(master: &Master, id: u64, flags: &OperationFlags) -> Result<(), Failure> {
    let done = operation::run(master, Operation::JobRepair(JobRepair { job: id }), flags).await;
    if let Err(Failure::Told) = done {
        let job = answer(master.jobs().get_job(GetJobRequest { id })).await?;
        for undo in job.failed_undos.iter().filter(|undo| !undo.made_good) {
            let what = place_text(&undo.step, &undo.node);
            note(&format!("left of job {id}: {}: {}", visible_line(&what), visible_line(&undo.error)));
        }
    }
    done
}

/// Archives jobs; one that was named and is kept is a failure.
async fn archive(master: &Master, request: ArchiveJobsRequest, as_json: bool) -> Result<(), Failure> {
    let named = !request.ids.is_empty();
    let archived = answer(master.jobs().archive_jobs(request)).await?;
    for kept in &archived.kept {
        let level = if named { "error" } else { "warning" };
        note(&format!("{level}: job {} is kept: {}", kept.id, visible_line(&kept.reason)));
    }
    let printed = if as_json {
        let kept = archived.kept.iter().map(|kept| json!({ "id": kept.id, "reason": kept.reason }));
        print_json(&json!({ "archived": archived.archived, "kept": kept.collect::<Vec<_>>() }))
    } else if named {
        print(&archived.archived.iter().map(|id| format!("job {id} is archived\n")).collect::<String>())
    } else {
        print(&archive_summary(&archived.archived))
    };
    if named && !archived.kept.is_empty() { Err(Failure::Told) } else { printed }
}

/// How many jobs were archived, and which.
fn archive_summary(ids: &[u64]) -> String {
    let count = counted(u64::try_from(ids.len()).unwrap_or(u64::MAX), "job");
    match (ids.iter().min(), ids.iter().max()) {
        (Some(first), Some(last)) if first == last => format!("{count} archived: {first}"),
        (Some(first), Some(last)) => format!("{count} archived, from {first} to {last}"),
        (None, _) | (_, None) => format!("{count} archived"),
    }
}

async fn wait(master: &Master, id: u64, as_json: bool) -> Result<(), Failure> {
    // Without a word: not even about a master that is away for a moment.
    let job = follow(master, id, |_| Ok(())).await?;
    // But its status alone would not tell what a kill left.
    if job.killed {
        note_end(&job);
    }
    let printed = if as_json { print_json(&job_json(&job)) } else { Ok(()) };
    if succeeded(&job) { printed } else { Err(Failure::Told) }
}

async fn watch(connection: &ConnectionFlags, id: u64, as_json: bool) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    if as_json {
        let job = operation::follow_or_leave(&master, id).await?;
        note_end(&job);
        let printed = print_json(&job_json(&job));
        return if succeeded(&job) { printed } else { Err(Failure::Told) };
    }
    // The log is this command's result, so it goes to stdout.
    let job = follow(&master, id, print).await?;
    note_end(&job);
    if !succeeded(&job) {
        return Err(Failure::Told);
    }
    note(&format!("job {id}: success"));
    Ok(())
}

fn note_end(job: &Job) {
    let text = end_text(job);
    if !text.is_empty() {
        note(text.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archived_are_summed_up() {
        assert_eq!(archive_summary(&[]), "0 jobs archived");
        assert_eq!(archive_summary(&[7]), "1 job archived: 7");
        assert_eq!(archive_summary(&[9, 7, 8]), "3 jobs archived, from 7 to 9");
    }

    #[test]
    fn jobs_are_chosen_by_state() {
        let all: Vec<Job> = (1..=7).map(|status| Job { status, ..Job::default() }).collect();
        let chosen = |states: JobStateFlags| -> Vec<i32> {
            all.iter().filter(|job| wanted(job, states)).map(|job| job.status).collect()
        };
        let none = JobStateFlags::default();
        assert_eq!(chosen(none), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(chosen(JobStateFlags { pending: true, ..none }), [1, 2]);
        assert_eq!(chosen(JobStateFlags { running: true, ..none }), [3, 4]);
        assert_eq!(chosen(JobStateFlags { error: true, ..none }), [7]);
        assert_eq!(chosen(JobStateFlags { finished: true, ..none }), [5, 6, 7]);
        assert_eq!(chosen(JobStateFlags { pending: true, error: true, ..none }), [1, 2, 7]);
    }
}
