//! `gnt-hooks run` and `gnt-hooks history`: one script again with a job's environment, for real; and what scripts did for jobs.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::Stream;
use muster_core::{
    engine::{Again, Job, meaning},
    hooks::Phase,
    model::Node,
};
use muster_proto::{
    transport::Peer,
    v1::{self, hook_runs_service_server::HookRunsService, run_again_event::Event},
};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{caller, history, query::nodes_named};
use crate::{
    driver::Command,
    master::Master,
    nodes::{CallError, NodeClient, RunHooks},
};

/// A caller hears of a script at least this often.
const GOING_INTERVAL: Duration = Duration::from_secs(5);
/// A caller that reads nothing for so long is not told of the end.
const TELL_LIMIT: Duration = Duration::from_secs(30);
/// Events on their way to a caller: there are two, and signs of life.
const EVENTS_MAX: usize = 4;
/// Numbers of runs that are no job's begin here: no job is ever given so high a one.
const NOT_A_JOB: u64 = 1 << 62;

type Events = Pin<Box<dyn Stream<Item = Result<v1::RunAgainEvent, Status>> + Send>>;

/// The service.
pub struct HookRuns(pub Arc<Master>);

#[tonic::async_trait]
impl HookRunsService for HookRuns {
    type RunAgainStream = Events;

    async fn run_again(&self, request: Request<v1::RunAgainRequest>) -> Result<Response<Events>, Status> {
        let user = caller::user(Peer::of(&request)?, |uuid| self.0.client_name(uuid));
        let v1::RunAgainRequest { node, directory, script, job_id } = request.into_inner();
        let cluster = self.0.cluster()?;
        if script.is_empty() || script.contains('/') {
            return Err(Status::invalid_argument("a script is named by its file name in its directory"));
        }
        let node: &Node = nodes_named(&cluster, std::slice::from_ref(&node))?.remove(0);
        if node.offline {
            let text = format!("node {} is marked offline: nothing is run there", node.name);
            return Err(Status::failed_precondition(text));
        }
        let job = self.job(job_id).await?;
        let again = job.again(&directory, &self.0.config.name);
        let again = again.map_err(|why| Status::failed_precondition(why.to_string()))?;
        let client = self.0.nodes().node(&node.name).map_err(|error| told(&node.name.to_string(), error))?;
        let permit = self.permit()?;
        tracing::info!(user, node = %node.name, directory, script, job = job_id, "a hook script is run again");
        let begun = v1::RunAgainBegun {
            job_summary: job.summary(),
            phase: v1::HookPhase::from(again.phase).into(),
            notes: notes(&job, &again, node, &directory),
        };
        let (events, stream) = mpsc::channel(EVENTS_MAX);
        let room = |_| Status::internal("a new channel has room");
        events.try_send(Ok(event(Event::Begun(begun)))).map_err(room)?;
        let run = Run { master: self.0.clone(), client, script, again, events, permit };
        tokio::spawn(run.watch());
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn list_hook_runs(
        &self,
        request: Request<v1::ListHookRunsRequest>,
    ) -> Result<Response<v1::ListHookRunsResponse>, Status> {
        self.0.in_office()?;
        let answer = history::search(&self.0, request.into_inner()).await?;
        Ok(Response::new(answer))
    }
}

impl HookRuns {
    fn permit(&self) -> Result<OwnedSemaphorePermit, Status> {
        let permit = self.0.node_commands.clone().try_acquire_owned();
        permit.map_err(|_| {
            Status::resource_exhausted("too many commands are under way on nodes; try again later")
        })
    }

    /// A job, archived or not.
    async fn job(&self, id: u64) -> Result<Arc<Job>, Status> {
        if let Some(view) = self.0.view().job(id) {
            return Ok(view.job);
        }
        let (reply, answer) = oneshot::channel();
        // Who asked may be gone by then.
        let reply = Box::new(move |found| reply.send(found).unwrap_or_default());
        self.0.send(Command::Archived(id, reply)).await?;
        let found = answer.await.map_err(|_| Status::unavailable("the master is stopping"))?;
        let found = found.map_err(Status::data_loss)?;
        found.map(Arc::from).ok_or_else(|| Status::not_found(format!("there is no job {id}")))
    }
}

/// What the caller should know before the script runs.
fn notes(job: &Job, again: &Again, node: &Node, directory: &str) -> Vec<String> {
    let mut notes = Vec::new();
    if !again.nodes.contains(&node.name) {
        let id = job.id();
        notes.push(format!(
            "{} is none of the nodes on which job {id} runs {directory}; it is run there all the same",
            node.name
        ));
    }
    if !job.done() {
        notes.push(format!("job {} is not over yet", job.id()));
    }
    notes
}

fn event(event: Event) -> v1::RunAgainEvent {
    v1::RunAgainEvent { event: Some(event) }
}

fn told(node: &str, error: CallError) -> Status {
    match error {
        CallError::NotReached(why) => {
            Status::failed_precondition(format!("node {node} could not be reached: {why}"))
        }
        CallError::Refused { code: tonic::Code::Unimplemented, .. } => Status::failed_precondition(format!(
            "node {node} has a daemon of an older version, which can't do this"
        )),
        CallError::Refused { code, message } => Status::new(code, format!("{node}: {message}")),
        CallError::OfficeLost(why) => {
            Status::unavailable(format!("this master is no longer in office: {why}"))
        }
    }
}

/// A script that is run.
struct Run {
    master: Arc<Master>,
    client: NodeClient,
    script: String,
    again: Again,
    events: mpsc::Sender<Result<v1::RunAgainEvent, Status>>,
    permit: OwnedSemaphorePermit,
}

impl Run {
    async fn watch(self) {
        let _permit = self.permit;
        let uuid = Uuid::new_v4();
        let run = call(uuid, &self.again);
        let node = self.client.name().clone();
        let mut signs = interval(GOING_INTERVAL);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let running = self.client.run_script(&run, &self.script);
        tokio::pin!(running);
        let ended = loop {
            tokio::select! {
                ended = &mut running => break Some(ended),
                () = self.events.closed() => break None,
                () = self.master.stop.cancelled() => break None,
                // A caller that does not read misses signs of life only.
                _ = signs.tick() => self.events.try_send(Ok(event(Event::Going(v1::RunAgainGoing {})))).unwrap_or_default(),
            }
        };
        let Some(ended) = ended else {
            // Nobody waits for it any more.
            let call_id = std::slice::from_ref(&run.call_id);
            if let Err(error) = self.master.nodes().end_job(&node, run.job, call_id).await {
                tracing::warn!(%node, script = self.script, %error, "could not end a script that was run again");
            }
            return;
        };
        let done = ended.map_err(|error| told(node.as_str(), error)).map(|script| {
            let (class, meaning) = meaning(self.again.phase, &self.again.policy, &script.outcome);
            let class = v1::ScriptClass::from(class).into();
            event(Event::Done(v1::RunAgainDone { script: Some(script.into()), class, meaning }))
        });
        // Who asked may be gone by now, or does not read.
        drop(self.events.send_timeout(done, TELL_LIMIT).await);
    }
}

/// The call: under an id of its own, so that it neither joins the job's run nor is answered with its answer, and under a
/// number that is no job's, so that nobody who ends a job ends it.
fn call(uuid: Uuid, again: &Again) -> RunHooks {
    let (number, _, _, _) = uuid.as_fields();
    let step = match again.phase {
        Phase::Pre => "pre",
        Phase::Post => "post",
        Phase::Failed => "failed",
    };
    RunHooks {
        call_id: format!("again-{}/{step}/1", uuid.simple()),
        job: NOT_A_JOB + u64::from(number),
        phase: again.phase,
        prefix: again.prefix.clone(),
        env: again.env.clone(),
        policy: again.policy.clone(),
        probe: false,
        global: None,
        files: again.files.clone(),
    }
}

/// Runs what blocks on a thread of its own.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::{Env, HookPolicy};

    use super::*;

    #[test]
    fn a_run_has_an_id_and_a_number_that_no_job_has() {
        let again = Again {
            phase: Phase::Failed,
            prefix: "node-add".to_owned(),
            env: Env::new().set("JOB_ID", "7"),
            files: [("ERROR_MESSAGE_PATH".to_owned(), "why".to_owned())].into(),
            policy: HookPolicy::default(),
            nodes: Vec::new(),
        };
        let (one, other) = (call(Uuid::from_u128(1), &again), call(Uuid::from_u128(1 << 96), &again));
        assert_eq!(one.call_id, "again-00000000000000000000000000000001/failed/1");
        assert_ne!((one.job, &one.call_id), (other.job, &other.call_id));
        assert!(one.job >= NOT_A_JOB && one.job < 1 << 63);
        assert_eq!((&one.env, &one.files, &one.prefix), (&again.env, &again.files, &again.prefix));
    }

    #[test]
    fn a_node_that_says_no_is_told_from_one_that_says_nothing() {
        let refused = |code| CallError::Refused { code, message: "there is no script x".to_owned() };
        let status = told("node2", refused(tonic::Code::NotFound));
        assert_eq!((status.code(), status.message()), (tonic::Code::NotFound, "node2: there is no script x"));
        // Not "unavailable": that is said of a master.
        let silent = told("node2", CallError::NotReached("connection refused".to_owned()));
        assert_eq!(silent.code(), tonic::Code::FailedPrecondition);
        assert_eq!(silent.message(), "node node2 could not be reached: connection refused");
        let older = told("node2", refused(tonic::Code::Unimplemented));
        assert!(older.message().contains("older version"), "{older}");
    }
}
