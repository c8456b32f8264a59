//! The gRPC service by which a master runs commands on this node and copies files to it. What is allowed is the master's to
//! know; what is never touched, is this node's.

use std::{sync::Arc, time::Duration};

use muster_proto::{
    transport::Peer,
    v1::{self, node_command_service_server::NodeCommandService, put_file_part::Part},
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{
    Agent, Context, Purpose, files,
    node_command::{CommandLine, run},
    put_file::{COPY_BYTES_MAX, NewFile, Protected, put},
};

/// Commands that run at once, and copies that are received: each may hold some memory.
const AT_ONCE_MAX: usize = 16;
/// A master that sends a file says something at least this often.
const PART_LIMIT: Duration = Duration::from_secs(30);

/// Serves commands and copies.
pub(super) struct CommandGrpc {
    agent: Arc<Agent>,
    permits: Arc<Semaphore>,
}

impl CommandGrpc {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        CommandGrpc { agent, permits: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    fn permit(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Status> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|_| {
            Status::resource_exhausted(format!(
                "{AT_ONCE_MAX} commands and copies are under way here already"
            ))
        })
    }
}

/// A file's description, checked.
fn new_file(start: v1::FileStart) -> Result<NewFile, Status> {
    let path = start.path.parse();
    let path = path
        .map_err(|error: muster_core::allowed::AllowedError| Status::invalid_argument(error.to_string()))?;
    match usize::try_from(start.size) {
        Ok(size) if size <= COPY_BYTES_MAX => {
            let content = Vec::with_capacity(size);
            Ok(NewFile { path, mode: start.mode, mtime_ms: start.mtime_ms, content })
        }
        Ok(_) | Err(_) => Err(Status::invalid_argument(format!(
            "the file has {} bytes; the limit is {COPY_BYTES_MAX}",
            start.size
        ))),
    }
}

/// The next part of a file.
async fn next_part(parts: &mut Streaming<v1::PutFilePart>) -> Result<Option<Part>, Status> {
    let next = timeout(PART_LIMIT, parts.message()).await;
    let next = next.map_err(|_| Status::deadline_exceeded("the file's next part did not come"))??;
    match next {
        None => Ok(None),
        Some(v1::PutFilePart { part: Some(part) }) => Ok(Some(part)),
        Some(v1::PutFilePart { part: None }) => Err(Status::invalid_argument("a part is empty")),
    }
}

/// Receives what belongs into the file, as much as was announced.
async fn receive(
    parts: &mut Streaming<v1::PutFilePart>,
    file: &mut NewFile,
    size: u64,
) -> Result<(), Status> {
    while let Some(part) = next_part(parts).await? {
        let Part::Data(data) = part else { return Err(Status::invalid_argument("the file begins twice")) };
        if file.content.len() + data.len() > COPY_BYTES_MAX {
            return Err(Status::invalid_argument("the file is larger than it was said to be"));
        }
        file.content.extend(data);
    }
    match u64::try_from(file.content.len()) {
        Ok(received) if received == size => Ok(()),
        Ok(_) | Err(_) => Err(Status::invalid_argument("the file has another size than it was said to have")),
    }
}

#[tonic::async_trait]
impl NodeCommandService for CommandGrpc {
    async fn run(&self, request: Request<v1::RunRequest>) -> Result<Response<v1::CommandResult>, Status> {
        let peer = Peer::of(&request)?.clone();
        let v1::RunRequest { context, argv, timeout_ms, user } = request.into_inner();
        let context = Context::parse(context)?;
        let line = CommandLine::parse(argv).map_err(Status::invalid_argument)?;
        let _permit = self.permit()?;
        let dir = self.agent.commands_dir();
        // Who goes away drops this call, and with it the guard: the command is ended then.
        let given_up = CancellationToken::new();
        let _guard = given_up.clone().drop_guard();
        let turn = self.agent.admit(&peer, context, Purpose::Act).await?;
        tracing::info!(user, argv = ?line.argv(), %peer, "a command is run");
        let task = tokio::spawn(run(dir, line, Duration::from_millis(timeout_ms), given_up));
        drop(turn);
        let result = task.await.map_err(|error| Status::internal(error.to_string()))?;
        tracing::info!(user, end = ?result.end, output_bytes = result.output_bytes, "a command has ended");
        Ok(Response::new(result))
    }

    async fn put_file(
        &self,
        request: Request<Streaming<v1::PutFilePart>>,
    ) -> Result<Response<v1::PutFileResponse>, Status> {
        let peer = Peer::of(&request)?.clone();
        let _permit = self.permit()?;
        let mut parts = request.into_inner();
        let Some(Part::Start(start)) = next_part(&mut parts).await? else {
            return Err(Status::invalid_argument("the first message describes the file"));
        };
        let v1::PutFileStart { context, file, user } = start;
        let context = Context::parse(context)?;
        let wire = file.ok_or_else(|| Status::invalid_argument("the first message describes the file"))?;
        let size = wire.size;
        let mut file = new_file(wire)?;
        // Nothing is received of a master that is out of office; whether it still is one is asked again before the writing.
        drop(self.agent.admit(&peer, context, Purpose::Ask).await?);
        receive(&mut parts, &mut file, size).await?;
        let _turn = self.agent.admit(&peer, context, Purpose::Act).await?;
        let path = file.path.clone();
        let agent = Arc::clone(&self.agent);
        let written = tokio::task::spawn_blocking(move || put(&Protected::of(agent.config()), &file)).await;
        match written.map_err(|error| Status::internal(error.to_string()))? {
            Ok(()) => {
                tracing::info!(user, %path, size, %peer, "a file was copied here");
                Ok(Response::new(v1::PutFileResponse {}))
            }
            Err(error) => {
                let error = files::words(&error);
                tracing::warn!(user, %path, %peer, error, "a file was not copied here");
                Err(Status::failed_precondition(error))
            }
        }
    }
}
