//! Jobs: shown, followed, canceled, archived; and their queue.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::Stream;
use muster_core::engine::{Job, WaitReason};
use muster_proto::{
    convert::job as convert,
    v1::{self, job_event::Event, job_service_server::JobService},
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::waiting;
use crate::{
    driver::{ArchiveWhich, Command, QueueChange, QueueFacts, Waiting},
    master::Master,
    takeover,
    view::JobView,
};

/// Events a slow follower may lag behind.
const FOLLOW_EVENTS_MAX: usize = 64;
/// How often a script that follows a waiting job is looked at again: it may wait for ever since another job came between.
const CYCLE_PERIOD: Duration = Duration::from_secs(5);
/// Jobs that one request may archive by their numbers.
const ARCHIVE_IDS_MAX: usize = 10_000;

/// The job service.
pub struct Jobs(pub Arc<Master>);

#[tonic::async_trait]
impl JobService for Jobs {
    async fn get_job(&self, request: Request<v1::GetJobRequest>) -> Result<Response<v1::Job>, Status> {
        let id = request.into_inner().id;
        let Some(view) = self.0.view().job(id) else { return self.archived(id).await.map(Response::new) };
        let waiting = if view.job.over() { Waiting::new() } else { waiting::waiting(&self.0).await? };
        Ok(Response::new(convert::job_whole(&view.job, reason(&view.job, &waiting))))
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        let active = request.into_inner().active;
        let waiting = waiting::waiting(&self.0).await?;
        let jobs = self.0.view().jobs().into_iter().filter(|view| !active || !view.job.over());
        let jobs = jobs.map(|view| convert::job_brief(&view.job, reason(&view.job, &waiting)));
        Ok(Response::new(v1::ListJobsResponse { jobs: jobs.collect() }))
    }

    type FollowJobStream = Pin<Box<dyn Stream<Item = Result<v1::JobEvent, Status>> + Send>>;

    async fn follow_job(
        &self,
        request: Request<v1::FollowJobRequest>,
    ) -> Result<Response<Self::FollowJobStream>, Status> {
        let v1::FollowJobRequest { id, parent_job } = request.into_inner();
        let (events, stream) = mpsc::channel(FOLLOW_EVENTS_MAX);
        let Some(views) = self.0.view().follow(id) else {
            let done = event(Event::Done(self.archived(id).await?));
            events.try_send(Ok(done)).map_err(|_| Status::internal("a new channel has room"))?;
            return Ok(Response::new(Box::pin(ReceiverStream::new(stream))));
        };
        let parent = Some(parent_job).filter(|parent| *parent != 0);
        if let Some(parent) = parent {
            may_follow(&self.0, parent, id).await?;
        }
        tokio::spawn(follow(self.0.clone(), views, parent, events));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        let v1::CancelJobRequest { id, kill } = request.into_inner();
        let result = ask(&self.0, |reply| Command::Cancel(id, kill, reply)).await?;
        match result {
            Ok(message) => Ok(Response::new(v1::CancelJobResponse { message })),
            Err(why) if self.0.view().job(id).is_none() => Err(Status::not_found(why)),
            Err(why) => Err(Status::failed_precondition(why)),
        }
    }

    async fn archive_jobs(
        &self,
        request: Request<v1::ArchiveJobsRequest>,
    ) -> Result<Response<v1::ArchiveJobsResponse>, Status> {
        let v1::ArchiveJobsRequest { ids, older_than_ms } = request.into_inner();
        if ids.is_empty() == older_than_ms.is_none() || ids.len() > ARCHIVE_IDS_MAX {
            let right = format!("either 1 to {ARCHIVE_IDS_MAX} ids or older_than_ms is expected");
            return Err(Status::invalid_argument(right));
        }
        let which = older_than_ms.map_or(ArchiveWhich::Ids(ids), ArchiveWhich::OlderThan);
        let answer = ask(&self.0, |reply| Command::Archive(which, reply)).await?;
        let kept = answer.kept.into_iter().map(|(id, reason)| v1::KeptJob { id, reason }).collect();
        Ok(Response::new(v1::ArchiveJobsResponse { archived: answer.archived, kept }))
    }

    async fn get_queue(&self, _: Request<v1::GetQueueRequest>) -> Result<Response<v1::QueueInfo>, Status> {
        let facts = ask(&self.0, |reply| Command::Queue(QueueChange::default(), reply)).await?;
        Ok(Response::new(queue_info(facts)))
    }

    async fn set_queue(
        &self,
        request: Request<v1::SetQueueRequest>,
    ) -> Result<Response<v1::QueueInfo>, Status> {
        let v1::SetQueueRequest { drained, paused } = request.into_inner();
        let change = QueueChange { drained, paused };
        Ok(Response::new(queue_info(ask(&self.0, |reply| Command::Queue(change, reply)).await?)))
    }
}

impl Jobs {
    async fn archived(&self, id: u64) -> Result<v1::Job, Status> {
        let job = ask(&self.0, |reply| Command::Archived(id, reply)).await?;
        let job = job.map_err(Status::data_loss)?.ok_or_else(|| unknown(id))?;
        Ok(v1::Job { archived: true, ..convert::job_whole(&job, None) })
    }
}

/// Asks the driver, and waits for its answer.
async fn ask<T: Send + 'static>(
    master: &Master,
    command: impl FnOnce(Box<dyn FnOnce(T) + Send>) -> Command,
) -> Result<T, Status> {
    let (reply, answer) = oneshot::channel();
    master.send(command(Box::new(move |result| drop(reply.send(result))))).await?;
    answer.await.map_err(|_| Status::unavailable("the master is stopping"))
}

/// Refuses a script that would wait for ever.
async fn may_follow(master: &Master, parent: u64, job: u64) -> Result<(), Status> {
    let answer = ask(master, |reply| Command::Follow { parent, job, reply }).await?;
    answer.map_err(Status::failed_precondition)
}

fn queue_info(facts: QueueFacts) -> v1::QueueInfo {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    v1::QueueInfo {
        drained: facts.state.drained,
        paused: facts.state.paused,
        waiting: count(facts.waiting),
        running: count(facts.running),
        blocked: count(facts.blocked),
        ended: count(facts.ended),
        archived: facts.archived,
        waiting_max: count(facts.waiting_max),
        running_max: count(facts.running_max),
    }
}

fn unknown(id: u64) -> Status {
    Status::not_found(format!("there is no job {id}"))
}

/// What a waiting job waits for.
fn reason<'a>(job: &Job, waiting: &'a Waiting) -> Option<&'a WaitReason> {
    waiting.get(&job.id()).and_then(Option::as_ref)
}

fn event(event: Event) -> v1::JobEvent {
    v1::JobEvent { event: Some(event) }
}

/// Sends what is new at each change of the job, to its end.
async fn follow(
    master: Arc<Master>,
    mut views: watch::Receiver<JobView>,
    parent: Option<u64>,
    events: mpsc::Sender<Result<v1::JobEvent, Status>>,
) {
    let mut lines = 0;
    let mut status = None;
    let mut progress = None;
    loop {
        let view = views.borrow_and_update().clone();
        let job = &view.job;
        let mut news = Vec::new();
        news.extend(job.log[lines.min(job.log.len())..].iter().map(convert::log_event));
        lines = job.log.len();
        if view.progress != progress {
            progress = view.progress;
            news.extend(progress.as_ref().map(|p| {
                event(Event::Progress(v1::StepProgress {
                    step: p.step.clone(),
                    node: p.node.as_ref().map(ToString::to_string).unwrap_or_default(),
                    percent: p.percent,
                }))
            }));
        }
        let waiting = match waiting_now(&master, job).await {
            Some(waiting) => waiting,
            None => return,
        };
        let reason = reason(job, &waiting);
        let now = v1::JobStatus::from(job.status(reason.is_some()));
        if status != Some(now) {
            status = Some(now);
            news.push(event(Event::Status(now.into())));
        }
        if job.over() {
            takeover::settled(&master, job).await;
            news.push(event(Event::Done(convert::job_whole(job, reason))));
        }
        for event in news {
            if events.send(Ok(event)).await.is_err() {
                return;
            }
        }
        if job.over() || !changed(&master, &mut views, job, parent, &events).await {
            return;
        }
    }
}

/// Waits for the job's next change; false when there will be none, or the script that follows it would wait for ever.
async fn changed(
    master: &Master,
    views: &mut watch::Receiver<JobView>,
    job: &Job,
    parent: Option<u64>,
    events: &mpsc::Sender<Result<v1::JobEvent, Status>>,
) -> bool {
    let Some(parent) = parent.filter(|_| job.started_ms.is_none()) else {
        return changed_or_left(views, events).await;
    };
    loop {
        tokio::select! {
            goes_on = changed_or_left(views, events) => return goes_on,
            () = tokio::time::sleep(CYCLE_PERIOD) => {}
        }
        if let Err(why) = may_follow(master, parent, job.id()).await {
            drop(events.send(Err(why)).await);
            return false;
        }
    }
}

/// Waits for a change; false when there will be none, or the client has gone. A job may wait for days, and clients that come
/// and go meanwhile leave nothing behind.
async fn changed_or_left<T, E>(views: &mut watch::Receiver<T>, events: &mpsc::Sender<E>) -> bool {
    tokio::select! {
        changed = views.changed() => changed.is_ok(),
        () = events.closed() => false,
    }
}

async fn waiting_now(master: &Master, job: &Job) -> Option<Waiting> {
    if job.started_ms.is_some() || job.over() {
        return Some(Waiting::new());
    }
    waiting::waiting(master).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_follower_of_a_job_that_waits_ends_with_its_client() {
        let (view, mut views) = watch::channel(0);
        let (events, client) = mpsc::channel::<()>(1);
        view.send_replace(1);
        assert!(changed_or_left(&mut views, &events).await);
        drop(client);
        assert!(!changed_or_left(&mut views, &events).await, "the client has gone");
        let (events, _client) = mpsc::channel::<()>(1);
        drop(view);
        assert!(!changed_or_left(&mut views, &events).await, "there is no such job any more");
    }
}
