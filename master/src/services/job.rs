//! Jobs: shown, followed, canceled.

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use futures::Stream;
use muster_core::{engine::Job, locks::Blocked};
use muster_proto::{
    convert::job as convert,
    v1::{self, job_event::Event, job_service_server::JobService},
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::waiting;
use crate::{driver::Command, master::Master, takeover, view::JobView};

/// Events a slow follower may lag behind.
const FOLLOW_EVENTS_MAX: usize = 64;

/// The job service.
pub struct Jobs(pub Arc<Master>);

#[tonic::async_trait]
impl JobService for Jobs {
    async fn get_job(&self, request: Request<v1::GetJobRequest>) -> Result<Response<v1::Job>, Status> {
        let id = request.into_inner().id;
        let view = self.0.view().job(id).ok_or_else(|| unknown(id))?;
        let blocked = if view.job.done() { BTreeMap::new() } else { waiting::waiting(&self.0).await? };
        Ok(Response::new(convert::job_whole(&view.job, blocker(&view.job, &blocked))))
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        let active = request.into_inner().active;
        let blocked = waiting::waiting(&self.0).await?;
        let jobs = self.0.view().jobs().into_iter().filter(|view| !active || !view.job.done());
        let jobs = jobs.map(|view| convert::job_brief(&view.job, blocker(&view.job, &blocked)));
        Ok(Response::new(v1::ListJobsResponse { jobs: jobs.collect() }))
    }

    type FollowJobStream = Pin<Box<dyn Stream<Item = Result<v1::JobEvent, Status>> + Send>>;

    async fn follow_job(
        &self,
        request: Request<v1::FollowJobRequest>,
    ) -> Result<Response<Self::FollowJobStream>, Status> {
        let id = request.into_inner().id;
        let views = self.0.view().follow(id).ok_or_else(|| unknown(id))?;
        let (events, stream) = mpsc::channel(FOLLOW_EVENTS_MAX);
        tokio::spawn(follow(self.0.clone(), views, events));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        let id = request.into_inner().id;
        let (reply, answer) = oneshot::channel();
        let reply = Box::new(move |result| drop(reply.send(result)));
        self.0.send(Command::Cancel(id, reply)).await?;
        let result = answer.await.map_err(|_| Status::unavailable("the master is stopping"))?;
        match result {
            Ok(message) => Ok(Response::new(v1::CancelJobResponse { message })),
            Err(why) if self.0.view().job(id).is_none() => Err(Status::not_found(why)),
            Err(why) => Err(Status::failed_precondition(why)),
        }
    }
}

fn unknown(id: u64) -> Status {
    Status::not_found(format!("there is no job {id}"))
}

/// What holds a waiting job up.
fn blocker<'a>(job: &Job, blocked: &'a BTreeMap<u64, Option<Blocked>>) -> Option<&'a Blocked> {
    blocked.get(&job.id()).and_then(Option::as_ref)
}

fn event(event: Event) -> v1::JobEvent {
    v1::JobEvent { event: Some(event) }
}

/// Sends what is new at each change of the job, to its end.
async fn follow(
    master: Arc<Master>,
    mut views: watch::Receiver<JobView>,
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
        let blocked = match waiting_now(&master, job).await {
            Some(blocked) => blocked,
            None => return,
        };
        let blocker = blocker(job, &blocked);
        let now = v1::JobStatus::from(job.status(blocker.is_some()));
        if status != Some(now) {
            status = Some(now);
            news.push(event(Event::Status(now.into())));
        }
        if job.done() {
            takeover::settled(&master, job).await;
            news.push(event(Event::Done(convert::job_whole(job, blocker))));
        }
        for event in news {
            if events.send(Ok(event)).await.is_err() {
                return;
            }
        }
        if job.done() || views.changed().await.is_err() {
            return;
        }
    }
}

async fn waiting_now(master: &Master, job: &Job) -> Option<BTreeMap<u64, Option<Blocked>>> {
    if job.started_ms.is_some() || job.done() {
        return Some(BTreeMap::new());
    }
    waiting::waiting(master).await.ok()
}
