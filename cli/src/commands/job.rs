//! `gnt-job`.

use muster_proto::v1::{CancelJobRequest, GetJobRequest, Job, JobStatus, ListJobsRequest};
use serde_json::json;

use super::operation;
use crate::{
    args::{ConnectionFlags, JobStateFlags, JobVerb, ListFlags},
    client::{Master, answer},
    exit::Failure,
    follow::follow,
    output::{
        denial::{end_text, succeeded},
        fields::select,
        job_info,
        jobs::{DEFAULT, FIELDS, job_json},
        note, one_or_array, print, print_json,
    },
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: JobVerb) -> Result<(), Failure> {
    match verb {
        JobVerb::List { ids, states, list: flags } => list(connection, &ids, states, &flags).await,
        JobVerb::Info { ids, verbose, json } => info(connection, &ids, verbose, json.json).await,
        JobVerb::Cancel { ids, json } => cancel(connection, &ids, json.json).await,
        JobVerb::Watch { id, json } => watch(connection, id, json.json).await,
        JobVerb::Wait { id, json } => {
            let master = Master::connect(connection).await?;
            // Without a word: not even about a master that is away for a moment.
            let job = follow(&master, id, |_| Ok(())).await?;
            let printed = if json.json { print_json(&job_json(&job)) } else { Ok(()) };
            if succeeded(&job) { printed } else { Err(Failure::Told) }
        }
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
        return Err(Failure::Refused(format!("there is no job {unknown}; gnt-job list shows all")));
    }
    jobs.retain(|job| (ids.is_empty() || ids.contains(&job.id)) && wanted(job, states));
    print(&selection.render(&jobs))
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

async fn cancel(connection: &ConnectionFlags, ids: &[u64], as_json: bool) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let mut done = Vec::new();
    let mut failure = None;
    for id in ids {
        match answer(master.jobs().cancel_job(CancelJobRequest { id: *id })).await {
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
        print(&done.iter().map(|(id, message)| format!("job {id}: {message}\n")).collect::<String>())
    };
    failure.map_or(printed, Err)
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
