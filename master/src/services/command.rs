//! `gnt-cluster command` and `copyfile`: for admins, and only what the cluster's parameters list. This list is the authority:
//! nodes get no command line that it does not hold.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use muster_core::{
    allowed::{AllowedError, FilePath},
    model::{Cluster, Node},
};
use muster_proto::{
    transport::Peer,
    v1::{self, command_service_server::CommandService, copy_file_part::Part},
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{caller, query::nodes_named};
use crate::{master::Master, nodes::SentFile};

/// How long a command may run where nothing is said.
const COMMAND_LIMIT_DEFAULT: Duration = Duration::from_secs(60);
/// How long a command may run at most.
const COMMAND_LIMIT_MAX: Duration = Duration::from_secs(3600);
/// Commands and copies that are under way at once: a copy holds its file in memory.
pub(crate) const AT_ONCE_MAX: usize = 16;
/// The largest file.
const COPY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A client that sends a file says something at least this often.
const PART_LIMIT: Duration = Duration::from_secs(30);
/// A client that sends a file has sent all of it by then: it holds a place of those that there are.
const RECEIVE_LIMIT: Duration = Duration::from_secs(120);
/// Where an offline node is shown.
const OFFLINE: &str = "marked offline";
/// What is told of a node whose answer is not waited for any more.
const STOPPING: &str = "the master stops, and did not wait for the answer";

/// The service.
pub struct Commands(pub Arc<Master>);

type Results = ReceiverStream<Result<v1::NodeCommandResult, Status>>;

impl Commands {
    fn permit(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Status> {
        self.0.node_commands.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(format!(
                "{AT_ONCE_MAX} commands and copies are under way; try again later"
            ))
        })
    }

    fn user(&self, peer: &Peer) -> String {
        caller::user(peer, |uuid| self.0.client_name(uuid))
    }
}

/// The nodes that are meant: those named, or all that are not offline.
fn wanted(cluster: &Cluster, names: &[String]) -> Result<Vec<Node>, Status> {
    let nodes = nodes_named(cluster, names)?.into_iter().filter(|node| !names.is_empty() || !node.offline);
    let mut seen = BTreeSet::new();
    Ok(nodes.filter(|node| seen.insert(node.name.clone())).cloned().collect())
}

fn command_limit(timeout_ms: Option<u64>) -> Result<Duration, Status> {
    let limit = timeout_ms.map_or(COMMAND_LIMIT_DEFAULT, Duration::from_millis);
    if limit.is_zero() || limit > COMMAND_LIMIT_MAX {
        return Err(Status::invalid_argument("a command's time limit is at least 1 ms and at most 1 hour"));
    }
    Ok(limit)
}

/// A command line for people.
fn line(argv: &[String]) -> String {
    argv.join(" ")
}

#[tonic::async_trait]
impl CommandService for Commands {
    type RunCommandStream = Results;

    async fn run_command(
        &self,
        request: Request<v1::RunCommandRequest>,
    ) -> Result<Response<Results>, Status> {
        let user = self.user(Peer::of(&request)?);
        let v1::RunCommandRequest { nodes, argv, timeout_ms } = request.into_inner();
        let cluster = self.0.cluster()?;
        let limit = command_limit(timeout_ms)?;
        if argv.is_empty() {
            return Err(Status::invalid_argument("there is no program"));
        }
        if !cluster.allowed.command(&argv) {
            tracing::warn!(user, ?argv, "a command was refused: it is not among those that are allowed");
            return Err(Status::failed_precondition(format!(
                "the command \"{}\" is not among those that are allowed on nodes; an admin adds it: gnt-cluster modify --allow-command",
                line(&argv)
            )));
        }
        let nodes = wanted(&cluster, &nodes)?;
        let permit = self.permit()?;
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        tracing::info!(user, ?argv, ?names, "a command is run on nodes");
        // With room for all: a client that does not read holds no place for longer than its command takes.
        let (results, stream) = mpsc::channel(nodes.len().max(1));
        let master = self.0.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let asked = nodes.iter().map(|node| {
                let asked = run_on(&master, node, &argv, limit, &user);
                unless_stopped(&master.stop, node, asked)
            });
            let mut asked: FuturesUnordered<_> = asked.collect();
            let telling = async {
                while let Some(result) = asked.next().await {
                    // Who asked may be gone.
                    drop(results.try_send(Ok(result)));
                }
            };
            tokio::select! {
                () = telling => {}
                // Drops the calls to the nodes, which end their commands then.
                () = results.closed() => {}
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn copy_file(
        &self,
        request: Request<Streaming<v1::CopyFilePart>>,
    ) -> Result<Response<v1::CopyFileResponse>, Status> {
        let user = self.user(Peer::of(&request)?);
        let mut parts = request.into_inner();
        let no_start = || Status::invalid_argument("the first message describes the file");
        let Some(Part::Start(start)) = next_part(&mut parts).await? else { return Err(no_start()) };
        let file = start.file.ok_or_else(no_start)?;
        let cluster = self.0.cluster()?;
        let path = file.path.parse::<FilePath>();
        let path = path.map_err(|error: AllowedError| Status::invalid_argument(error.to_string()))?;
        if !cluster.allowed.file(&path) {
            tracing::warn!(user, %path, "a copy was refused: the file is not among those that are allowed");
            return Err(Status::failed_precondition(format!(
                "the file {path} is not among those that are copied to nodes; an admin adds it: gnt-cluster modify --allow-file"
            )));
        }
        let nodes = wanted(&cluster, &start.nodes)?;
        let _permit = self.permit()?;
        let content = timeout(RECEIVE_LIMIT, receive(&mut parts, file.size)).await;
        let content = content.map_err(|_| Status::deadline_exceeded("the file did not come in time"))??;
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        tracing::info!(user, %path, size = file.size, ?names, "a file is copied to nodes");
        let sent = Arc::new(SentFile { start: file, content, user });
        let copied = join_all(nodes.iter().map(|node| copy_to(&self.0, node, &sent))).await;
        Ok(Response::new(v1::CopyFileResponse { nodes: copied }))
    }
}

async fn run_on(
    master: &Master,
    node: &Node,
    argv: &[String],
    limit: Duration,
    user: &str,
) -> v1::NodeCommandResult {
    use v1::node_command_result::Result as End;
    let result = if node.offline {
        Err(OFFLINE.to_owned())
    } else {
        match master.nodes().node(&node.name) {
            Ok(client) => client.run_command(argv, limit, user).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    };
    if let Err(why) = &result {
        tracing::warn!(user, node = %node.name, why, "a node did not answer to a command");
    }
    let result = result.map_or_else(End::Failure, End::Done);
    v1::NodeCommandResult { node: node.name.to_string(), result: Some(result) }
}

/// A node's answer; when the daemon is told to stop, that it did not come: no node is missing in the list.
async fn unless_stopped(
    stop: &CancellationToken,
    node: &Node,
    asked: impl Future<Output = v1::NodeCommandResult>,
) -> v1::NodeCommandResult {
    tokio::select! {
        biased;
        result = asked => result,
        () = stop.cancelled() => {
            let failure = v1::node_command_result::Result::Failure(STOPPING.to_owned());
            v1::NodeCommandResult { node: node.name.to_string(), result: Some(failure) }
        }
    }
}

async fn copy_to(master: &Master, node: &Node, file: &Arc<SentFile>) -> v1::CopyFileResult {
    let copied = if node.offline {
        Err(OFFLINE.to_owned())
    } else {
        match master.nodes().node(&node.name) {
            Ok(client) => client.put_file(file).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    };
    if let Err(why) = &copied {
        tracing::warn!(user = file.user, node = %node.name, why, "a node has not got the file");
    }
    v1::CopyFileResult { node: node.name.to_string(), failure: copied.err() }
}

/// The next part of a file.
async fn next_part(parts: &mut Streaming<v1::CopyFilePart>) -> Result<Option<Part>, Status> {
    let next = timeout(PART_LIMIT, parts.message()).await;
    let next = next.map_err(|_| Status::invalid_argument("the file's next part did not come in time"))??;
    match next {
        None => Ok(None),
        Some(v1::CopyFilePart { part: Some(part) }) => Ok(Some(part)),
        Some(v1::CopyFilePart { part: None }) => Err(Status::invalid_argument("a part is empty")),
    }
}

/// All of a file, as much as was announced.
async fn receive(parts: &mut Streaming<v1::CopyFilePart>, size: u64) -> Result<Vec<u8>, Status> {
    let size = usize::try_from(size).ok().filter(|size| *size <= COPY_BYTES_MAX);
    let size = size.ok_or_else(|| Status::invalid_argument("the file is larger than 16 MiB"))?;
    let mut content = Vec::with_capacity(size);
    while let Some(part) = next_part(parts).await? {
        let Part::Data(data) = part else { return Err(Status::invalid_argument("the file begins twice")) };
        if content.len() + data.len() > size {
            return Err(Status::invalid_argument("the file is larger than it was said to be"));
        }
        content.extend(data);
    }
    if content.len() != size {
        return Err(Status::invalid_argument("the file is smaller than it was said to be"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use muster_core::ops::examples;

    use super::*;

    #[test]
    fn without_names_all_nodes_are_meant_that_are_not_offline() {
        let cluster = examples::offline("node3");
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            let nodes = super::wanted(&cluster, &wanted);
            nodes.map(|nodes| nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names(&[]).unwrap(), "node1 node2");
        assert_eq!(names(&["node3", "node2", "node3"]).unwrap(), "node3 node2");
        assert!(names(&["nodee2"]).unwrap_err().message().contains("node2"));
    }

    #[tokio::test]
    async fn a_master_that_stops_says_of_each_node_that_it_did_not_wait() {
        let node = &examples::offline("node3").nodes.into_values().next().unwrap();
        let stop = CancellationToken::new();
        let done = v1::NodeCommandResult { node: node.name.to_string(), result: None };
        assert_eq!(unless_stopped(&stop, node, async { done.clone() }).await, done);
        stop.cancel();
        let told = unless_stopped(&stop, node, std::future::pending()).await;
        let failure = v1::node_command_result::Result::Failure(STOPPING.to_owned());
        assert_eq!(told, v1::NodeCommandResult { result: Some(failure), ..done });
    }

    #[test]
    fn a_commands_limit_has_a_bound() {
        assert_eq!(command_limit(None).unwrap(), COMMAND_LIMIT_DEFAULT);
        assert_eq!(command_limit(Some(3_600_000)).unwrap(), COMMAND_LIMIT_MAX);
        for wrong in [0, 3_600_001, u64::MAX] {
            assert!(command_limit(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
