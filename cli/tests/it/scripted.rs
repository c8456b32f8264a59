//! A master that plays a script: it answers as it is told to, loses answers and dies, so that the program's side of
//! the protocol is seen from outside.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
};

use muster_proto::v1::{
    self, Job, JobEvent, SubmitRequest, SubmitResponse, job_event::Event, job_service_server,
    operation_service_server, query_service_server,
};
use tokio::{net::UnixListener, runtime::Runtime, sync::mpsc};
use tokio_stream::{
    Stream, StreamExt,
    wrappers::{ReceiverStream, UnixListenerStream},
};
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// What the master knows and does; survives its restarts.
#[derive(Default)]
pub(crate) struct Script {
    /// The submissions that arrived, repeats included.
    pub(crate) submissions: Vec<SubmitRequest>,
    /// How many answers to submissions get lost.
    pub(crate) answers_to_lose: u32,
    /// What each job's stream tells, by the order of submission; the first job has the id 1.
    pub(crate) stories: Vec<Vec<Event>>,
    /// Streams stop after this many events and wait for the master's death.
    pub(crate) stop_after: Option<usize>,
    /// How often a job was followed.
    pub(crate) follows: u32,
    /// The job whose script followed last; 0 for none.
    pub(crate) follower: u64,
    /// The requests to archive jobs that arrived.
    pub(crate) archives: Vec<v1::ArchiveJobsRequest>,
    /// What they are answered.
    pub(crate) archived: v1::ArchiveJobsResponse,
    /// The queue.
    pub(crate) queue: v1::QueueInfo,
    /// Instances.
    pub(crate) instances: Vec<v1::InstanceInfo>,
    /// Set on a master that holds the office no more.
    pub(crate) successor: Option<String>,
    /// Jobs by request id.
    pub(crate) ids: BTreeMap<String, u64>,
}

/// The master; ends when dropped.
pub(crate) struct Master {
    script: Arc<Mutex<Script>>,
    socket: PathBuf,
    runtime: Option<Runtime>,
}

impl Master {
    /// Starts in a folder.
    pub(crate) fn start(folder: &Path, script: Script) -> Self {
        let mut master = Master {
            script: Arc::new(Mutex::new(script)),
            socket: folder.join("master.sock"),
            runtime: None,
        };
        master.serve();
        master
    }

    /// The socket's path.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The script, to be read or changed.
    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// Dies with all its connections, and starts again.
    pub(crate) fn restart(&mut self) {
        self.end();
        self.serve();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        std::fs::remove_file(&self.socket).unwrap();
    }

    fn serve(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _guard = runtime.enter();
            UnixListener::bind(&self.socket).unwrap()
        };
        let service = Service(Arc::clone(&self.script));
        runtime.spawn(
            Server::builder()
                .add_service(operation_service_server::OperationServiceServer::new(service.clone()))
                .add_service(job_service_server::JobServiceServer::new(service.clone()))
                .add_service(query_service_server::QueryServiceServer::new(service))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        self.runtime = Some(runtime);
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Clone)]
struct Service(Arc<Mutex<Script>>);

#[tonic::async_trait]
impl operation_service_server::OperationService for Service {
    async fn submit(&self, request: Request<SubmitRequest>) -> Result<Response<SubmitResponse>, Status> {
        let request = request.into_inner();
        let mut script = self.0.lock().unwrap();
        let next = u64::try_from(script.ids.len()).unwrap() + 1;
        let job_id = *script.ids.entry(request.request_id.clone()).or_insert(next);
        script.submissions.push(request);
        if script.answers_to_lose > 0 {
            script.answers_to_lose -= 1;
            return Err(Status::unavailable("the answer got lost"));
        }
        Ok(Response::new(SubmitResponse { job_id }))
    }
}

#[tonic::async_trait]
impl job_service_server::JobService for Service {
    type FollowJobStream = ReceiverStream<Result<JobEvent, Status>>;

    async fn follow_job(
        &self,
        request: Request<v1::FollowJobRequest>,
    ) -> Result<Response<Self::FollowJobStream>, Status> {
        let (story, stop_after) = {
            let mut script = self.0.lock().unwrap();
            script.follows += 1;
            let v1::FollowJobRequest { id, parent_job } = request.into_inner();
            script.follower = parent_job;
            let index = usize::try_from(id).unwrap() - 1;
            let story = script
                .stories
                .get(index)
                .cloned()
                .ok_or_else(|| Status::not_found("there is no such job"))?;
            (story, script.stop_after)
        };
        let (sender, receiver) = mpsc::channel(100);
        tokio::spawn(async move {
            for event in story.into_iter().take(stop_after.unwrap_or(usize::MAX)) {
                if sender.send(Ok(JobEvent { event: Some(event) })).await.is_err() {
                    return;
                }
            }
            if stop_after.is_some() {
                sender.closed().await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn get_job(&self, request: Request<v1::GetJobRequest>) -> Result<Response<Job>, Status> {
        let index = usize::try_from(request.into_inner().id).unwrap() - 1;
        let script = self.0.lock().unwrap();
        if let Some(Event::Done(job)) = script.stories.get(index).and_then(|story| story.last()) {
            return Ok(Response::new(job.clone()));
        }
        Err(Status::not_found("there is no such job"))
    }

    async fn list_jobs(
        &self,
        _: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        Ok(Response::new(v1::ListJobsResponse::default()))
    }

    async fn cancel_job(
        &self,
        _: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        Err(Status::not_found("there is no such job"))
    }

    async fn archive_jobs(
        &self,
        request: Request<v1::ArchiveJobsRequest>,
    ) -> Result<Response<v1::ArchiveJobsResponse>, Status> {
        let mut script = self.0.lock().unwrap();
        script.archives.push(request.into_inner());
        Ok(Response::new(script.archived.clone()))
    }

    async fn get_queue(&self, _: Request<v1::GetQueueRequest>) -> Result<Response<v1::QueueInfo>, Status> {
        Ok(Response::new(self.0.lock().unwrap().queue))
    }

    async fn set_queue(
        &self,
        request: Request<v1::SetQueueRequest>,
    ) -> Result<Response<v1::QueueInfo>, Status> {
        let v1::SetQueueRequest { drained, paused } = request.into_inner();
        let mut script = self.0.lock().unwrap();
        script.queue.drained = drained.unwrap_or(script.queue.drained);
        script.queue.paused = paused.unwrap_or(script.queue.paused);
        Ok(Response::new(script.queue))
    }
}

#[tonic::async_trait]
impl query_service_server::QueryService for Service {
    async fn get_cluster(
        &self,
        _: Request<v1::GetClusterRequest>,
    ) -> Result<Response<v1::ClusterInfo>, Status> {
        match &self.0.lock().unwrap().successor {
            Some(node) => Err(Status::failed_precondition(format!("not the master: {node} is"))),
            None => Ok(Response::new(v1::ClusterInfo {
                master: "node1".to_owned(),
                ..v1::ClusterInfo::default()
            })),
        }
    }

    async fn list_nodes(
        &self,
        _: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        Ok(Response::new(v1::ListNodesResponse::default()))
    }

    async fn list_instances(
        &self,
        _: Request<v1::ListInstancesRequest>,
    ) -> Result<Response<v1::ListInstancesResponse>, Status> {
        let instances = self.0.lock().unwrap().instances.clone();
        Ok(Response::new(v1::ListInstancesResponse { instances }))
    }

    async fn list_exports(
        &self,
        _: Request<v1::ListExportsRequest>,
    ) -> Result<Response<v1::ListExportsResponse>, Status> {
        Ok(Response::new(v1::ListExportsResponse::default()))
    }

    async fn list_groups(
        &self,
        _: Request<v1::ListGroupsRequest>,
    ) -> Result<Response<v1::ListGroupsResponse>, Status> {
        Ok(Response::new(v1::ListGroupsResponse::default()))
    }

    async fn list_networks(
        &self,
        _: Request<v1::ListNetworksRequest>,
    ) -> Result<Response<v1::ListNetworksResponse>, Status> {
        Ok(Response::new(v1::ListNetworksResponse::default()))
    }

    async fn list_tags(
        &self,
        _: Request<v1::ListTagsRequest>,
    ) -> Result<Response<v1::ListTagsResponse>, Status> {
        Ok(Response::new(v1::ListTagsResponse::default()))
    }

    async fn list_node_hooks(
        &self,
        _: Request<v1::ListNodeHooksRequest>,
    ) -> Result<Response<v1::ListNodeHooksResponse>, Status> {
        Ok(Response::new(v1::ListNodeHooksResponse::default()))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let operation = request.into_inner().operation.and_then(|operation| operation.operation);
        match operation {
            Some(v1::operation::Operation::InstanceStart(start)) => {
                Ok(Response::new(v1::ExplainResponse { target: start.instance, ..Default::default() }))
            }
            _ => Err(Status::failed_precondition("refused: not in this play")),
        }
    }

    async fn list_node_oses(
        &self,
        _: Request<v1::ListNodeOsesRequest>,
    ) -> Result<Response<v1::ListNodeOsesResponse>, Status> {
        Ok(Response::new(v1::ListNodeOsesResponse::default()))
    }

    type InstanceConsoleStream = Pin<Box<dyn Stream<Item = Result<v1::ConsoleOutput, Status>> + Send>>;

    /// Says what it hears until it hears `exit`.
    async fn instance_console(
        &self,
        request: Request<Streaming<v1::InstanceConsoleInput>>,
    ) -> Result<Response<Self::InstanceConsoleStream>, Status> {
        use v1::instance_console_input::Input;
        let mut inputs = request.into_inner();
        let Some(Input::Instance(name)) = inputs.message().await?.and_then(|first| first.input) else {
            return Err(Status::invalid_argument("the first message names the instance"));
        };
        if name != "web1" {
            return Err(Status::not_found(format!("there is no instance {name}")));
        }
        let said = inputs.map_while(|input| match input {
            Ok(v1::InstanceConsoleInput { input: Some(Input::Data(data)) }) if data != b"exit" => {
                Some(Ok(v1::ConsoleOutput { data }))
            }
            Ok(_) | Err(_) => None,
        });
        Ok(Response::new(Box::pin(said)))
    }

    async fn verify(&self, _: Request<v1::VerifyRequest>) -> Result<Response<v1::VerifyResponse>, Status> {
        let finding =
            v1::VerifyFinding { error: true, code: "ENODEREACH".to_owned(), ..v1::VerifyFinding::default() };
        Ok(Response::new(v1::VerifyResponse { findings: vec![finding], ..v1::VerifyResponse::default() }))
    }
}
