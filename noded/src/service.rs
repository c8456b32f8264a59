//! The gRPC service of the backends: journaled calls, and images as streams.

use std::{fs::File, ops::ControlFlow, sync::Arc, time::Duration};

use muster_core::calls::{NodeCall, Output};
use muster_hooksrv::{
    Call, CallContext, CallId, CallItem, CallRegistry, OnLost, RequestDigest,
    agent::{Agent, Context, Events, Purpose, call_status, forward, words},
};
use muster_proto::{
    transport::Peer,
    v1::{self, execute_event, image_ref, node_service_server::NodeService, write_image_request::Part},
};
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use uuid::Uuid;

use crate::{
    calls::{self, Backends, uuid},
    cancel::{Cancel, ENDED},
    console,
    copies::Copy,
    faults::FaultPoint,
    image::{ImageError, ImageWriter, Target, Written, read_data},
    node::Node,
    os::OsReport,
    progress::Progress,
    storage::{ImageName, StorageError},
};

/// Pieces of an image on their way: enough to keep disk and network busy, few enough to be small.
const PIECES_WAITING_MAX: usize = 4;
/// A sender of an image that says nothing for so long is gone. (Its source may have to read much before it finds data.)
const PIECE_LIMIT: Duration = Duration::from_secs(60);

/// How far a call is.
#[derive(Debug, Clone)]
pub(crate) struct NodeProgress(v1::Progress);

/// A call's answer as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeAnswer {
    /// Done, with what is told of it.
    Done(Output),
    /// Why it failed.
    Failed { words: String },
}

/// The calls of the backends.
pub(crate) type NodeCalls = CallRegistry<NodeProgress, NodeAnswer>;

/// Serves a node's backends.
pub(crate) struct NodeGrpc {
    agent: Arc<Agent>,
    node: Arc<Node>,
}

/// Where an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Image {
    Disk(Uuid),
    Export(Uuid, ImageName),
}

impl Image {
    fn parse(wire: Option<v1::ImageRef>) -> Result<Self, Status> {
        let image = wire.and_then(|wire| wire.image);
        match image.ok_or_else(|| Status::invalid_argument("the image is missing"))? {
            image_ref::Image::DiskUuid(disk) => Ok(Image::Disk(uuid("disk", &disk)?)),
            image_ref::Image::Export(export) => {
                let name = ImageName::parse(&export.name);
                let name = name.map_err(|error| Status::invalid_argument(error.to_string()))?;
                Ok(Image::Export(uuid("export", &export.export_uuid)?, name))
            }
        }
    }

    fn open_read(&self, node: &Node) -> Result<File, StorageError> {
        match self {
            Image::Disk(disk) => node.disks.open_read(*disk),
            Image::Export(export, name) => node.exports.open_read(*export, name),
        }
    }

    fn open_write(&self, node: &Node) -> Result<(File, Target), StorageError> {
        match self {
            Image::Disk(disk) => Ok((node.disks.open_write(*disk)?, Target::Disk)),
            Image::Export(export, name) => Ok((node.exports.open_write(*export, name)?, Target::File)),
        }
    }

    /// Makes the image's name durable, where it is new.
    fn sync(&self, node: &Node) -> Result<(), StorageError> {
        match self {
            Image::Disk(_) => Ok(()),
            Image::Export(export, _) => node.exports.sync(*export),
        }
    }
}

fn storage_status(error: &StorageError) -> Status {
    let text = words(error);
    match error {
        StorageError::NoDisk(_) | StorageError::NoExport { .. } | StorageError::NoImage { .. } => {
            Status::not_found(text)
        }
        StorageError::TooLarge { .. } => Status::invalid_argument(text),
        StorageError::OtherSize { .. }
        | StorageError::OtherExport(_)
        | StorageError::HoldsData { .. }
        | StorageError::StillThere(_) => Status::failed_precondition(text),
        StorageError::DamagedImage { .. } | StorageError::Served { .. } => Status::failed_precondition(text),
        StorageError::Cancelled { .. } => Status::aborted(text),
        StorageError::File { .. } => Status::internal(text),
    }
}

fn image_status(error: &ImageError) -> Status {
    let text = words(error);
    match error {
        ImageError::Order { .. } | ImageError::Beyond { .. } | ImageError::TooLong { .. } => {
            Status::invalid_argument(text)
        }
        ImageError::Write(_) => Status::internal(text),
    }
}

fn task_status(error: &tokio::task::JoinError) -> Status {
    Status::internal(format!("a task was given up: {error}"))
}

impl NodeGrpc {
    pub(crate) fn new(agent: Arc<Agent>, node: Arc<Node>) -> Self {
        NodeGrpc { agent, node }
    }

    /// Lets an injected fault of an image call happen.
    async fn image_fault(&self, point: FaultPoint, copy: &Copy) -> Result<(), Status> {
        let fault = self.node.faults.at(point);
        tokio::select! {
            biased;
            status = copy.told_to_end() => Err(status),
            () = sleep(fault.delay) => fault.fail.map_or(Ok(()), |words| Err(Status::internal(words))),
        }
    }
}

/// The work of a call: by the registry's own task, so that a lost connection does not end it.
async fn work(
    agent: Arc<Agent>,
    node: Arc<Node>,
    job: u64,
    call: NodeCall,
    context: CallContext<NodeProgress>,
) -> NodeAnswer {
    let context = Arc::new(context);
    let answer = carry_out(&node, job, call, &context).await;
    agent.changed();
    match answer {
        Ok(output) => NodeAnswer::Done(output),
        Err(words) => {
            tracing::warn!(call = %context.id(), words, "a call failed");
            NodeAnswer::Failed { words }
        }
    }
}

/// Carries a call out when it is its turn. Once it is cancelled nothing of it is begun, and what was begun ends soon.
async fn carry_out(
    node: &Arc<Node>,
    job: u64,
    call: NodeCall,
    context: &Arc<CallContext<NodeProgress>>,
) -> Result<Output, String> {
    let cancelled = context.cancel();
    // Until the end, however that comes.
    let _turn = tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(ENDED.to_owned()),
        turn = node.turns.wait(job) => turn,
    };
    let fault = node.faults.at(calls::fault_point(&call));
    tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(ENDED.to_owned()),
        () = sleep(fault.delay) => {}
    }
    if let Some(words) = fault.fail {
        return Err(words);
    }
    let cancel = Cancel::default();
    let mut performed = spawn_blocking({
        let (node, cancel, context) = (Arc::clone(node), cancel.clone(), Arc::clone(context));
        move || {
            let (disks, exports, serving) = (&*node.disks, &*node.exports, &*node.serving);
            let on = Backends { hypervisors: &node.hypervisors, oses: &node.oses, disks, exports, serving };
            let tell = |progress: Progress| {
                let Progress { text, percent } = progress;
                context.progress(NodeProgress(v1::Progress { text, percent }));
            };
            calls::perform(&call, &on, &tell, &cancel)
        }
    });
    let performed = tokio::select! {
        performed = &mut performed => performed,
        () = cancelled.cancelled() => {
            cancel.cancel();
            // It may also have succeeded just now; its own word is the truth.
            performed.await
        }
    };
    performed.unwrap_or_else(|error| Err(format!("its task was given up: {error}")))
}

fn execute_event(item: CallItem<NodeProgress, NodeAnswer>) -> v1::ExecuteEvent {
    use v1::answer::Answer;
    let answer = |answer| execute_event::Event::Answer(v1::Answer { answer: Some(answer) });
    let event = match item {
        CallItem::Event(NodeProgress(progress)) => execute_event::Event::Progress(progress),
        CallItem::Answer(NodeAnswer::Done(output)) => answer(Answer::Done(output.into())),
        CallItem::Answer(NodeAnswer::Failed { words }) => answer(Answer::Failed(words)),
        CallItem::Lost => answer(Answer::Lost(v1::ExecuteGoing {})),
    };
    v1::ExecuteEvent { event: Some(event) }
}

fn going() -> v1::ExecuteEvent {
    v1::ExecuteEvent { event: Some(execute_event::Event::Going(v1::ExecuteGoing {})) }
}

#[tonic::async_trait]
impl NodeService for NodeGrpc {
    type ExecuteStream = Events<v1::ExecuteEvent>;
    type ReadImageStream = Events<v1::ImageChunk>;
    type ConsoleStream = Events<v1::ConsoleOutput>;

    async fn execute(
        &self,
        request: Request<v1::ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let mut request = request.into_inner();
        let context = Context::parse(request.context.take())?;
        let id =
            CallId::parse(&request.call_id).map_err(|error| Status::invalid_argument(error.to_string()))?;
        // Without the context, which differs when the call is repeated after a restart of the master.
        let digest = RequestDigest::of(&request.encode_to_vec());
        let node_call = calls::parse(request.call)?;
        let _turn = self.agent.admit_greeted(&peer, context, Purpose::Act).await?;
        // A call that was begun and not answered before a crash is carried out again: each may come twice.
        let call = Call { id, digest, job: request.job_id, output_dir: None, on_lost: OnLost::Repeat };
        let (agent, node, job) = (Arc::clone(&self.agent), Arc::clone(&self.node), request.job_id);
        let started = self
            .node
            .calls
            .start_or_join(call, move |context| work(agent, node, job, node_call, context))
            .await;
        let stream = started.map_err(|error| call_status(&error))?;
        Ok(Response::new(forward(stream, self.agent.stopping().clone(), going, execute_event)))
    }

    async fn read_image(
        &self,
        request: Request<v1::ReadImageRequest>,
    ) -> Result<Response<Self::ReadImageStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let context = Context::parse(request.context)?;
        let image = Image::parse(request.image)?;
        let turn = self.agent.admit_greeted(&peer, context, Purpose::Act).await?;
        let copy = self.node.copies.begin(request.job_id);
        drop(turn);
        self.image_fault(FaultPoint::ReadImage, &copy).await?;
        let node = Arc::clone(&self.node);
        let opened = spawn_blocking(move || {
            let file = image.open_read(&node).map_err(|error| storage_status(&error))?;
            let length = file.metadata().map_err(|error| Status::internal(error.to_string()))?.len();
            Ok::<_, Status>((file, length))
        });
        let (file, length) = opened.await.map_err(|error| task_status(&error))??;
        let (sender, receiver) = mpsc::channel(PIECES_WAITING_MAX);
        let agent = Arc::clone(&self.agent);
        spawn_blocking(move || send_image(&agent, &context, copy, &file, length, &sender));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn write_image(
        &self,
        request: Request<Streaming<v1::WriteImageRequest>>,
    ) -> Result<Response<v1::WriteImageResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let mut parts = request.into_inner();
        let Some(Part::Start(start)) = next_part(&self.agent, &mut parts).await? else {
            return Err(Status::invalid_argument("the first message must name the image"));
        };
        let context = Context::parse(start.context)?;
        let image = Image::parse(start.image)?;
        let turn = self.agent.admit_greeted(&peer, context, Purpose::Act).await?;
        // Shared with the writing thread, which a caller that goes away leaves behind.
        let copy = Arc::new(self.node.copies.begin(start.job_id));
        drop(turn);
        self.image_fault(FaultPoint::WriteImage, &copy).await?;
        let first = tokio::select! {
            biased;
            status = copy.told_to_end() => return Err(status),
            first = next_part(&self.agent, &mut parts) => first?,
        };
        let Some(Part::Chunk(v1::ImageChunk { length: Some(length), data, .. })) = first else {
            return Err(Status::invalid_argument("the first chunk must have the image's length"));
        };
        if !data.is_empty() {
            return Err(Status::invalid_argument("the first chunk must have no data"));
        }
        let (sender, receiver) = mpsc::channel(PIECES_WAITING_MAX);
        let (node, of_writer) = (Arc::clone(&self.node), Arc::clone(&copy));
        let writing = spawn_blocking(move || write_image(&node, &of_writer, &image, length, receiver));
        // A caller that goes away, or the copy's end, drops the sender here, which ends the writer.
        let received = tokio::select! {
            biased;
            status = copy.told_to_end() => Err(status),
            received = receive_image(&self.agent, &context, &mut parts, sender) => received,
        };
        let written = writing.await.map_err(|error| task_status(&error))?;
        self.agent.changed();
        // What ended the receiving is the cause where both failed.
        received?;
        let Written { bytes } = written?;
        Ok(Response::new(v1::WriteImageResponse { bytes_written: bytes }))
    }

    async fn list_oses(
        &self,
        request: Request<v1::ListOsesRequest>,
    ) -> Result<Response<v1::ListOsesResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let context = Context::parse(request.into_inner().context)?;
        let _turn = self.agent.admit(&peer, context, Purpose::Ask).await?;
        let node = Arc::clone(&self.node);
        let listed = spawn_blocking(move || node.oses.list()).await.map_err(|error| task_status(&error))?;
        let listed = listed.map_err(|error| Status::internal(words(&error)))?;
        let info = |os: OsReport| v1::OsInfo {
            name: os.name,
            path: os.path.display().to_string(),
            kind: os.kind.to_owned(),
            problem: os.problem,
        };
        Ok(Response::new(v1::ListOsesResponse { oses: listed.into_iter().map(info).collect() }))
    }

    async fn console(
        &self,
        request: Request<Streaming<v1::ConsoleInput>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        console::open(&self.agent, &self.node, request).await.map(Response::new)
    }
}

/// Sends an image's length and data until the caller goes away, the copy is told to end, or a newer master has called.
/// Blocks.
fn send_image(
    agent: &Agent,
    context: &Context,
    copy: Copy,
    file: &File,
    length: u64,
    sender: &mpsc::Sender<Result<v1::ImageChunk, Status>>,
) {
    let runtime = Handle::current();
    // An error where the image ends before its time; the caller hears it, if there is still one.
    let send = |chunk: v1::ImageChunk| {
        may_go_on(agent, context)?;
        runtime.block_on(async {
            tokio::select! {
                biased;
                status = copy.told_to_end() => Err(status),
                sent = sender.send(Ok(chunk)) => sent.map_err(|_| Status::cancelled("the caller is gone")),
            }
        })
    };
    let first = v1::ImageChunk { offset: 0, data: Vec::new(), length: Some(length) };
    let mut stopped = send(first).err();
    if stopped.is_none() {
        let read = read_data(file, length, |offset, data| {
            match send(v1::ImageChunk { offset, data, length: None }) {
                Ok(()) => ControlFlow::Continue(()),
                Err(status) => {
                    stopped = Some(status);
                    ControlFlow::Break(())
                }
            }
        });
        if let Err(error) = read {
            stopped = Some(Status::internal(format!("could not read the image: {error}")));
        }
    }
    // Nothing is read any more. The caller may take long to hear of it, but it must: without an error the image would
    // seem to be whole.
    drop(copy);
    if let Some(status) = stopped {
        drop(sender.blocking_send(Err(status)));
    }
}

/// Whether a long call goes on.
pub(crate) fn may_go_on(agent: &Agent, context: &Context) -> Result<(), Status> {
    if !agent.is_current(context) {
        return Err(Status::failed_precondition("epoch: a newer master has called"));
    }
    if agent.stopping().is_cancelled() {
        return Err(Status::unavailable("the node daemon is stopping"));
    }
    Ok(())
}

async fn next_part(
    agent: &Agent,
    parts: &mut Streaming<v1::WriteImageRequest>,
) -> Result<Option<Part>, Status> {
    let message = tokio::select! {
        message = timeout(PIECE_LIMIT, parts.message()) => message,
        () = agent.stopping().cancelled() => return Err(Status::unavailable("the node daemon is stopping")),
    };
    let message =
        message.map_err(|_| Status::deadline_exceeded("the sender of the image says nothing"))??;
    Ok(message.and_then(|message| message.part))
}

/// A piece of an image, or its end: without an end the image is not whole.
enum Piece {
    Data { offset: u64, data: Vec<u8> },
    End,
}

/// Receives an image to its end.
async fn receive_image(
    agent: &Agent,
    context: &Context,
    parts: &mut Streaming<v1::WriteImageRequest>,
    sender: mpsc::Sender<Piece>,
) -> Result<(), Status> {
    loop {
        let piece = match next_part(agent, parts).await? {
            Some(Part::Chunk(v1::ImageChunk { offset, data, length: None })) => Piece::Data { offset, data },
            Some(Part::Chunk(_) | Part::Start(_)) => {
                return Err(Status::invalid_argument("an image begins once"));
            }
            None => Piece::End,
        };
        may_go_on(agent, context)?;
        let is_end = matches!(piece, Piece::End);
        // The writer ends early only when it has failed, and then says why.
        if sender.send(piece).await.is_err() || is_end {
            return Ok(());
        }
    }
}

/// Writes an image from its pieces; all is on stable storage when this returns. Blocks.
fn write_image(
    node: &Node,
    copy: &Copy,
    image: &Image,
    length: u64,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Written, Status> {
    if let Image::Disk(disk) = image {
        let replaced = node.hypervisors.replaced(&[*disk]);
        replaced.map_err(|error| Status::internal(words(&error)))?;
    }
    let (file, target) = image.open_write(node).map_err(|error| storage_status(&error))?;
    let begun = ImageWriter::begin(file, target, length);
    let mut writer = begun.map_err(|error| image_status(&error))?;
    loop {
        match pieces.blocking_recv() {
            Some(Piece::Data { offset, data }) => {
                copy.may_go_on()?;
                writer.piece(offset, &data).map_err(|error| image_status(&error))?;
            }
            Some(Piece::End) => break,
            None => return Err(Status::cancelled("the image broke off")),
        }
    }
    let written = writer.end().map_err(|error| image_status(&error))?;
    image.sync(node).map_err(|error| storage_status(&error))?;
    Ok(written)
}
