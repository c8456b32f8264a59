//! Submitting operations and following their jobs to the end; the same for all of them.

use std::collections::VecDeque;

use muster_proto::v1::{self, Job, SubmitRequest, operation::Operation};
use serde_json::json;

use super::confirm::confirm;
use crate::{
    args::{ConnectionFlags, OperationFlags},
    callback::parent_job,
    client::{Master, answer},
    exit::Failure,
    follow::{Away, Patience, connection_lost, follow},
    output::{denial, jobs, note, one_or_array, print, print_json},
};

/// What a verb asks for: operations that are submitted together.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// One for each object that was named.
    pub(super) operations: Vec<Operation>,
    /// How.
    pub(super) flags: OperationFlags,
    /// What the operator must confirm before, and whether that was done by a flag.
    question: Option<(String, bool)>,
}

impl Asked {
    /// Several operations.
    pub(super) fn all(operations: Vec<Operation>, flags: OperationFlags) -> Self {
        Asked { operations, flags, question: None }
    }

    /// One operation.
    pub(super) fn one(operation: Operation, flags: OperationFlags) -> Self {
        Asked::all(vec![operation], flags)
    }

    /// The same after a question, unless `force` answers it.
    pub(super) fn after(self, question: impl Into<String>, force: bool) -> Self {
        Asked { question: Some((question.into(), force)), ..self }
    }
}

/// Asks what is to be confirmed, submits, and tells the end.
pub(super) async fn carry_out(connection: &ConnectionFlags, asked: Asked) -> Result<(), Failure> {
    if let Some((question, force)) = &asked.question {
        confirm(question, *force, &asked.flags)?;
    }
    let master = Master::connect(connection).await?;
    run_all(&master, asked.operations, &asked.flags).await
}

/// Submits one operation and, unless `--submit` is given, tells its progress and its end.
pub(super) async fn run(
    master: &Master,
    operation: Operation,
    flags: &OperationFlags,
) -> Result<(), Failure> {
    run_all(master, vec![operation], flags).await
}

/// The same for several operations, which the master may run side by side; one that fails stops no other.
async fn run_all(master: &Master, operations: Vec<Operation>, flags: &OperationFlags) -> Result<(), Failure> {
    let several = operations.len() > 1;
    let mut failure = None;
    let mut ids = Vec::new();
    for operation in operations {
        match submit(master, operation, flags).await {
            Ok(id) => ids.push(id),
            Err(error) => keep(&mut failure, error, several),
        }
    }
    if flags.submit {
        let printed = print_ids(&ids, flags.json);
        return failure.map_or(printed, Err);
    }
    let mut ended = Vec::new();
    let (mut several, mut ids) = (several, VecDeque::from(ids));
    while let Some(id) = ids.pop_front() {
        if several {
            note(&format!("job {id}:"));
        }
        match follow_or_leave(master, id).await {
            Ok(job) => {
                // What a job asks for is a part of what was asked for.
                several |= !job.child_jobs.is_empty();
                ids.extend(&job.child_jobs);
                ended.push(job);
            }
            Err(error) => keep(&mut failure, error, several),
        }
    }
    let told = tell_ends(&ended, several, flags);
    failure.map_or(told, Err)
}

/// Keeps the first failure for the exit code; one of several is told at once, as others follow.
fn keep(first: &mut Option<Failure>, failure: Failure, several: bool) {
    if several && let Some(text) = failure.text() {
        note(&text);
    }
    match (&first, several) {
        (Some(_), _) => {}
        (None, false) => *first = Some(failure),
        (None, true) => *first = Some(if failure.code() == 1 { Failure::Told } else { failure }),
    }
}

/// Submits an operation; the id of its job, which is durable.
///
/// The request id makes a repeat harmless, so a lost answer is asked for again.
pub(super) async fn submit(
    master: &Master,
    operation: Operation,
    flags: &OperationFlags,
) -> Result<u64, Failure> {
    let request = SubmitRequest {
        operation: Some(v1::Operation { operation: Some(operation) }),
        reason: flags.reason.clone().unwrap_or_default(),
        dry_run: flags.dry_run,
        request_id: uuid::Uuid::new_v4().to_string(),
        depends: flags.depend.iter().map(Into::into).collect(),
        priority: flags.priority.map_or(0, |priority| i32::from(priority.value())),
        parent_job: parent_job()?.unwrap_or_default(),
        will_wait: !flags.submit,
    };
    let mut away = Away::default();
    loop {
        match answer(master.operations().submit(request.clone())).await {
            Ok(submitted) => return Ok(submitted.job_id),
            Err(status) if !connection_lost(&status) => return Err(status.into()),
            Err(status) => {
                if away.pause().await == Patience::Ended {
                    return Err(perhaps_submitted(status.into()));
                }
                if let Some(notice) = away.notice() {
                    note(&notice);
                }
            }
        }
    }
}

/// The master may have died between taking a job and saying so.
fn perhaps_submitted(failure: Failure) -> Failure {
    let Failure::Unreachable(why) = failure else { return failure };
    Failure::Unreachable(format!("{why}; it may have the job all the same: see gnt-job list when it is back"))
}

/// Follows a job, its progress on stderr; at Ctrl-C the command ends and the job goes on.
pub(super) async fn follow_or_leave(master: &Master, id: u64) -> Result<Job, Failure> {
    tokio::select! {
        job = follow(master, id, |line| {
            note(line);
            Ok(())
        }) => job,
        Ok(()) = tokio::signal::ctrl_c() => Err(Failure::Refused(format!(
            "left; job {id} goes on: gnt-job watch {id} follows it, gnt-job cancel {id} stops it"
        ))),
    }
}

/// Tells how jobs ended: the reason of each failure on stderr, results on stdout.
pub(super) fn tell_ends(jobs: &[Job], several: bool, flags: &OperationFlags) -> Result<(), Failure> {
    let mut failed = false;
    for job in jobs {
        let text = denial::end_text(job);
        if !text.is_empty() {
            if jobs.iter().any(|other| other.child_jobs.contains(&job.id)) {
                note(&format!("error: {} did not succeed:", job.summary));
            }
            note(text.trim_end());
        }
        failed |= !denial::succeeded(job);
    }
    let printed = if flags.json {
        let named = if several { jobs.len().max(2) } else { 1 };
        print_json(&one_or_array(jobs.iter().map(jobs::job_json).collect(), named))
    } else {
        print(&jobs.iter().filter(|job| denial::succeeded(job)).map(jobs::result_text).collect::<String>())
    };
    if failed { Err(Failure::Told) } else { printed }
}

fn print_ids(ids: &[u64], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(&one_or_array(ids.iter().map(|id| json!({ "id": id })).collect(), ids.len()));
    }
    print(&ids.iter().map(|id| format!("JobID: {id}\n")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_gives_the_exit_code() {
        let mut first = None;
        keep(&mut first, Failure::Unreachable("x".to_owned()), false);
        keep(&mut first, Failure::Refused("y".to_owned()), false);
        assert_eq!(first.map(|failure| failure.code()), Some(3));
        let mut first = None;
        keep(&mut first, Failure::Refused("told".to_owned()), true);
        assert_eq!(first.map(|failure| (failure.code(), failure.text())), Some((1, None)));
    }
}
