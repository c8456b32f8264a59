//! A node daemon's services, steered by a test: hook runs follow one list of events, every call is noted.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{StreamExt, stream::BoxStream};
use muster_proto::{
    transport::{
        Admission, Connections, Fingerprint, Identity, Role, SocketPolicy, TlsState, bind_unix,
        common_services, serve_tls, serve_unix,
    },
    v1::{
        self,
        agent_service_server::{AgentService, AgentServiceServer},
        console_input::Input,
        hook_service_server::{HookService, HookServiceServer},
        node_service_server::{NodeService, NodeServiceServer},
        run_hooks_event::Event,
        write_image_request::Part,
    },
};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming, service::Routes};
use uuid::Uuid;

use super::fixture::within;

type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// A node's daemon; clones are the same daemon, which also survives its servers.
#[derive(Clone)]
pub(super) struct TestNode(Arc<State>);

pub(super) struct State {
    calls: watch::Sender<Vec<String>>,
    /// What a hook run does; every call gets all of it.
    pub(super) hooks: watch::Sender<Vec<v1::RunHooksEvent>>,
    pub(super) execution: watch::Sender<Vec<v1::ExecuteEvent>>,
    /// What every call but the ping gets, by method; `*` is all.
    pub(super) refusals: Mutex<BTreeMap<&'static str, Status>>,
    /// Methods that never answer.
    pub(super) hangs: Mutex<Vec<&'static str>>,
    /// Calls of such methods that their caller gave up.
    given_up: watch::Sender<Vec<&'static str>>,
    pub(super) pushed: watch::Sender<v1::NodeState>,
    pub(super) image: Mutex<Vec<Result<v1::ImageChunk, Status>>>,
    pub(super) written: Mutex<Vec<Result<Vec<v1::ImageChunk>, &'static str>>>,
    pub(super) contexts: Mutex<Vec<v1::CallContext>>,
}

impl std::ops::Deref for TestNode {
    type Target = State;
    fn deref(&self) -> &State {
        &self.0
    }
}

/// A running server of a node.
pub(super) struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// Ends the server at once, its connections too.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.task.abort();
        let _ = self.task.await;
    }
}

struct Anyone;

impl Admission for Anyone {
    fn admit(&self, _: &Identity, _: &Fingerprint) -> Result<Role, String> {
        Ok(Role::Master)
    }
}

impl TestNode {
    pub(super) fn new() -> Self {
        TestNode(Arc::new(State {
            calls: watch::Sender::new(Vec::new()),
            hooks: watch::Sender::new(Vec::new()),
            execution: watch::Sender::new(Vec::new()),
            refusals: Mutex::default(),
            hangs: Mutex::default(),
            given_up: watch::Sender::new(Vec::new()),
            pushed: watch::Sender::new(v1::NodeState::default()),
            image: Mutex::default(),
            written: Mutex::default(),
            contexts: Mutex::default(),
        }))
    }

    pub(super) fn serve(&self, socket: &Path) -> Serving {
        let listener = bind_unix(socket, 0o600).unwrap();
        let (stop, routes) = (CancellationToken::new(), self.routes());
        let serving = serve_unix(listener, SocketPolicy::Node, routes, stop.clone());
        Serving { stop, task: tokio::spawn(async move { serving.await.unwrap() }) }
    }

    pub(super) fn serve_tls(&self, listener: TcpListener, tls: TlsState) -> Serving {
        let (stop, routes) = (CancellationToken::new(), self.routes());
        let admission = Arc::new(Anyone);
        let serving = serve_tls(listener, tls, routes, admission, Connections::default(), stop.clone());
        Serving { stop, task: tokio::spawn(async move { serving.await.unwrap() }) }
    }

    fn routes(&self) -> Routes {
        let (routes, _health) = common_services().unwrap();
        routes
            .add_service(AgentServiceServer::new(self.clone()))
            .add_service(HookServiceServer::new(self.clone()))
            .add_service(NodeServiceServer::new(self.clone()))
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.borrow().clone()
    }

    /// Waits until the call was made at least so many times.
    pub(super) async fn called(&self, call: &str, times: usize) {
        let mut calls = self.calls.subscribe();
        let enough = |calls: &Vec<String>| calls.iter().filter(|made| *made == call).count() >= times;
        within(calls.wait_for(enough)).await.unwrap();
    }

    pub(super) fn refuse(&self, method: &'static str, status: Status) {
        self.refusals.lock().unwrap().insert(method, status);
    }

    pub(super) fn hang(&self, method: &'static str) {
        self.hangs.lock().unwrap().push(method);
    }

    /// Waits until a call that hangs was given up by its caller.
    pub(super) async fn given_up(&self, method: &'static str) {
        within(self.0.given_up.subscribe().wait_for(|methods| methods.contains(&method))).await.unwrap();
    }

    /// A script of the run ends.
    pub(super) fn script(&self, name: &str, exit_code: u32) {
        use v1::script_outcome::{Kind, Passed};
        let kind = if exit_code == 0 { Kind::Passed(Passed {}) } else { Kind::FailedCode(exit_code) };
        let script = v1::ScriptResult {
            name: name.to_owned(),
            outcome: Some(v1::ScriptOutcome { kind: Some(kind) }),
            ..v1::ScriptResult::default()
        };
        self.hook_event(Event::Script(script));
    }

    /// The run ends, its result being all scripts so far.
    pub(super) fn finish(&self) {
        let events = self.hooks.borrow().clone();
        let scripts = events.into_iter().filter_map(|event| match event.event {
            Some(Event::Script(script)) => Some(script),
            Some(Event::Result(_) | Event::Lost(_) | Event::Going(_)) | None => None,
        });
        let result = v1::HookResult { scripts: scripts.collect(), ..v1::HookResult::default() };
        self.hook_event(Event::Result(result));
    }

    pub(super) fn hook_event(&self, event: Event) {
        self.hooks.send_modify(|events| events.push(v1::RunHooksEvent { event: Some(event) }));
    }

    async fn note(
        &self,
        method: &'static str,
        call: String,
        context: Option<v1::CallContext>,
    ) -> Result<(), Status> {
        self.contexts.lock().unwrap().push(context.expect("every call has a context"));
        self.calls.send_modify(|calls| calls.push(call));
        if self.hangs.lock().unwrap().contains(&method) {
            let _given_up = GivenUp { node: self.clone(), method };
            std::future::pending::<()>().await;
        }
        let refusals = self.refusals.lock().unwrap();
        match refusals.get(method).or_else(|| refusals.get("*")) {
            Some(status) => Err(status.clone()),
            None => Ok(()),
        }
    }
}

/// Notes the end of a call that never answers.
struct GivenUp {
    node: TestNode,
    method: &'static str,
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.node.0.given_up.send_modify(|methods| methods.push(self.method));
    }
}

/// Streams that were ended.
static ENDS: AtomicUsize = AtomicUsize::new(0);

/// Sends a list's items as they come, until one is the last.
fn follow<T: Clone + Send + Sync + 'static>(
    mut list: watch::Receiver<Vec<T>>,
    first: Option<T>,
    is_last: fn(&T) -> bool,
) -> Answers<T> {
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        let mut sent = 0;
        if let Some(first) = first
            && sender.send(Ok(first)).await.is_err()
        {
            return;
        }
        loop {
            let items: Vec<T> = list.borrow_and_update().get(sent..).unwrap_or_default().to_vec();
            sent += items.len();
            for item in items {
                let last = is_last(&item);
                if sender.send(Ok(item)).await.is_err() {
                    return;
                }
                if last {
                    // As of a real daemon, the end comes a moment after the last event, now sooner, now later.
                    let moment = ENDS.fetch_add(1, Ordering::Relaxed) % 8;
                    for _ in 0..moment {
                        tokio::task::yield_now().await;
                    }
                    return;
                }
            }
            tokio::select! {
                changed = list.changed() => if changed.is_err() { return },
                () = sender.closed() => return,
            }
        }
    });
    ReceiverStream::new(receiver).boxed()
}

#[tonic::async_trait]
impl AgentService for TestNode {
    type WatchStream = Answers<v1::NodeState>;

    async fn hello(&self, request: Request<v1::HelloRequest>) -> Result<Response<v1::HelloResponse>, Status> {
        let request = request.into_inner();
        assert_eq!((request.alive_jobs, request.ending_jobs), (vec![17, 18], vec![18]));
        let guests =
            request.guests.iter().map(|guest| (guest.instance_uuid.parse().unwrap(), guest.generation));
        let expected = [(Uuid::from_u128(101), 3), (Uuid::from_u128(102), 0)];
        assert_eq!(guests.collect::<Vec<_>>(), expected);
        self.note("hello", "hello".to_owned(), request.context).await?;
        Ok(Response::new(v1::HelloResponse {
            version: "0.9.0".to_owned(),
            // Ten seconds ahead.
            now_ms: request.now_ms + 10_000,
            serial_seen: 6,
            epoch_seen: 2,
            facts_serial: 5,
            hooks_only: true,
            hook_set: None,
        }))
    }

    async fn end_job(
        &self,
        request: Request<v1::EndJobRequest>,
    ) -> Result<Response<v1::EndJobResponse>, Status> {
        let request = request.into_inner();
        self.note("end_job", format!("end_job {}", request.job_id), request.context).await?;
        Ok(Response::new(v1::EndJobResponse { ended: 2 }))
    }

    async fn put_facts(
        &self,
        request: Request<v1::PutFactsRequest>,
    ) -> Result<Response<v1::PutFactsResponse>, Status> {
        let request = request.into_inner();
        let facts_serial = request.facts.unwrap().serial;
        self.note("put_facts", format!("put_facts {facts_serial}"), request.context).await?;
        Ok(Response::new(v1::PutFactsResponse { facts_serial }))
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.note("watch", "watch".to_owned(), request.into_inner().context).await?;
        let states = tokio_stream::wrappers::WatchStream::new(self.pushed.subscribe());
        Ok(Response::new(states.map(Ok).boxed()))
    }

    async fn make_signing_request(
        &self,
        request: Request<v1::MakeSigningRequestRequest>,
    ) -> Result<Response<v1::MakeSigningRequestResponse>, Status> {
        self.note("make_signing_request", "make_signing_request".to_owned(), request.into_inner().context)
            .await?;
        Ok(Response::new(v1::MakeSigningRequestResponse {
            csr_der: vec![1, 2],
            data_csr_der: Some(vec![3, 4]),
        }))
    }

    async fn install_certificate(
        &self,
        request: Request<v1::InstallCertificateRequest>,
    ) -> Result<Response<v1::InstallCertificateResponse>, Status> {
        let request = request.into_inner();
        let installed = format!("install {} {}", request.node_name, request.data_certificate_pem());
        self.note("install", installed, request.context).await?;
        Ok(Response::new(v1::InstallCertificateResponse { fingerprint: request.certificate_pem }))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        self.note("leave", "leave".to_owned(), request.into_inner().context).await?;
        Ok(Response::new(v1::LeaveResponse {}))
    }
}

#[tonic::async_trait]
impl HookService for TestNode {
    type RunHooksStream = Answers<v1::RunHooksEvent>;

    async fn run_hooks(
        &self,
        request: Request<v1::RunHooksRequest>,
    ) -> Result<Response<Self::RunHooksStream>, Status> {
        let request = request.into_inner();
        assert!(request.env.iter().all(|variable| variable.name.starts_with("GANETI_")), "{request:?}");
        self.note("run_hooks", format!("run_hooks {}", request.call_id), request.context).await?;
        let going = v1::RunHooksEvent { event: Some(Event::Going(v1::RunGoing {})) };
        let last = |event: &v1::RunHooksEvent| matches!(event.event, Some(Event::Result(_) | Event::Lost(_)));
        Ok(Response::new(follow(self.hooks.subscribe(), Some(going), last)))
    }

    type RunScriptStream = Answers<v1::RunHooksEvent>;

    async fn run_script(
        &self,
        request: Request<v1::RunScriptRequest>,
    ) -> Result<Response<Self::RunScriptStream>, Status> {
        let v1::RunScriptRequest { run, script } = request.into_inner();
        let run = run.unwrap_or_default();
        self.note("run_script", format!("run_script {} {script}", run.call_id), run.context).await?;
        let going = v1::RunHooksEvent { event: Some(Event::Going(v1::RunGoing {})) };
        let last = |event: &v1::RunHooksEvent| matches!(event.event, Some(Event::Result(_) | Event::Lost(_)));
        Ok(Response::new(follow(self.hooks.subscribe(), Some(going), last)))
    }

    async fn list_hooks(
        &self,
        request: Request<v1::ListHooksRequest>,
    ) -> Result<Response<v1::ListHooksResponse>, Status> {
        self.note("list_hooks", "list_hooks".to_owned(), request.into_inner().context).await?;
        let hooks_dir = "/etc/ganeti/hooks".to_owned();
        Ok(Response::new(v1::ListHooksResponse { hooks_dir, ..v1::ListHooksResponse::default() }))
    }

    type SyncHooksStream = Answers<v1::SyncHooksEvent>;

    async fn sync_hooks(
        &self,
        _: Request<Streaming<v1::SyncHooksInput>>,
    ) -> Result<Response<Self::SyncHooksStream>, Status> {
        Err(Status::unimplemented("sets are for the daemons' own tests"))
    }

    async fn check_hook_set(
        &self,
        _: Request<v1::CheckHookSetRequest>,
    ) -> Result<Response<v1::CheckHookSetResponse>, Status> {
        Err(Status::unimplemented("sets are for the daemons' own tests"))
    }
}

#[tonic::async_trait]
impl NodeService for TestNode {
    type ExecuteStream = Answers<v1::ExecuteEvent>;
    type ReadImageStream = Answers<v1::ImageChunk>;
    type ConsoleStream = Answers<v1::ConsoleOutput>;

    async fn execute(
        &self,
        request: Request<v1::ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let request = request.into_inner();
        self.note("execute", format!("execute {}", request.call_id), request.context).await?;
        let last =
            |event: &v1::ExecuteEvent| matches!(event.event, Some(v1::execute_event::Event::Answer(_)));
        Ok(Response::new(follow(self.execution.subscribe(), None, last)))
    }

    async fn read_image(
        &self,
        request: Request<v1::ReadImageRequest>,
    ) -> Result<Response<Self::ReadImageStream>, Status> {
        self.note("read_image", "read_image".to_owned(), request.into_inner().context).await?;
        let chunks = self.image.lock().unwrap().clone();
        Ok(Response::new(futures::stream::iter(chunks).boxed()))
    }

    async fn write_image(
        &self,
        request: Request<Streaming<v1::WriteImageRequest>>,
    ) -> Result<Response<v1::WriteImageResponse>, Status> {
        let mut parts = request.into_inner();
        let Some(v1::WriteImageRequest { part: Some(Part::Start(start)) }) = parts.message().await? else {
            return Err(Status::invalid_argument("the start is missing"));
        };
        self.note("write_image", "write_image".to_owned(), start.context).await?;
        let mut chunks = Vec::new();
        let taken = loop {
            match parts.message().await? {
                Some(v1::WriteImageRequest { part: Some(Part::Chunk(chunk)) }) => chunks.push(chunk),
                Some(_) => break Err("given up"),
                None => break Ok(()),
            }
        };
        let bytes_written = chunks.iter().map(|chunk| u64::try_from(chunk.data.len()).unwrap()).sum();
        self.written.lock().unwrap().push(taken.map(|()| chunks));
        taken.map_err(Status::invalid_argument)?;
        Ok(Response::new(v1::WriteImageResponse { bytes_written }))
    }

    async fn list_oses(
        &self,
        request: Request<v1::ListOsesRequest>,
    ) -> Result<Response<v1::ListOsesResponse>, Status> {
        self.note("list_oses", "list_oses".to_owned(), request.into_inner().context).await?;
        Ok(Response::new(v1::ListOsesResponse::default()))
    }

    /// Says again what it hears, until the caller's side ends.
    async fn console(
        &self,
        request: Request<Streaming<v1::ConsoleInput>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        let mut inputs = request.into_inner();
        let Some(v1::ConsoleInput { input: Some(Input::Start(start)) }) = inputs.message().await? else {
            return Err(Status::invalid_argument("the start is missing"));
        };
        self.note("console", format!("console {}", start.instance_uuid), start.context).await?;
        let said = inputs.map(|input| match input?.input {
            Some(Input::Data(data)) => Ok(v1::ConsoleOutput { data }),
            Some(Input::Start(_)) | None => Err(Status::invalid_argument("no data")),
        });
        Ok(Response::new(said.boxed()))
    }
}
