//! `gnt-cluster backup`: a copy of the store, made beside the driver's work, examined, and sent.

use std::{path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use futures::Stream;
use muster_core::model::Cluster;
use muster_proto::v1::{
    self, BackupChunk, BackupEnd, backup_chunk::Part, backup_service_server::BackupService,
};
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::AsyncReadExt,
    sync::{OwnedMutexGuard, mpsc},
    task::spawn_blocking,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::{
    hex,
    master::Master,
    store::{self, Contents, keys},
};

/// Bytes of a message; far below the limit of one.
const CHUNK_BYTES: usize = 256 * 1024;
/// Messages that wait for the client: a backup holds a megabyte of memory.
const CHUNKS_MAX: usize = 4;
/// A client that takes nothing for so long is given up; another backup may begin then.
const SEND_LIMIT: Duration = Duration::from_secs(60);

/// The backup service.
pub struct Backups(pub Arc<Master>);

type Made = (std::fs::File, Contents, OwnedMutexGuard<()>);
type Chunks = Pin<Box<dyn Stream<Item = Result<BackupChunk, Status>> + Send>>;

#[tonic::async_trait]
impl BackupService for Backups {
    type BackupStream = Chunks;

    async fn backup(&self, _: Request<v1::BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        self.0.cluster()?;
        let turn = self.0.backup.clone().try_lock_owned();
        let turn = turn.map_err(|_| {
            Status::resource_exhausted("another backup is being made; try again when it is done")
        })?;
        let path = self.0.config.store();
        let (file, contents, turn) = spawn_blocking(move || make(path, turn))
            .await
            .map_err(|error| Status::internal(error.to_string()))??;
        let cluster = store::cluster_from(&contents.records).map_err(internal)?;
        let cluster = cluster.ok_or_else(|| Status::failed_precondition("there is no cluster here"))?;
        let end = self.end(&cluster, &contents);
        let (chunks, receiver) = mpsc::channel(CHUNKS_MAX);
        tokio::spawn(async move {
            if let Err(status) = send(file, end, &chunks).await {
                timeout(SEND_LIMIT, chunks.send(Err(status))).await.ok();
            }
            drop(turn);
        });
        tracing::info!(serial = cluster.serial, "a backup is sent");
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl Backups {
    fn end(&self, cluster: &Cluster, contents: &Contents) -> BackupEnd {
        let jobs = contents.records.keys().filter(|key| keys::job_id(key).is_some()).count();
        BackupEnd {
            bytes: 0,
            sha256: String::new(),
            cluster_name: cluster.name.to_string(),
            cluster_uuid: cluster.uuid.to_string(),
            serial: cluster.serial,
            jobs: u64::try_from(jobs).unwrap_or(u64::MAX),
            archived_jobs: contents.archived,
            ca_directory: self.0.config.master_dir().display().to_string(),
        }
    }
}

fn internal(error: impl std::error::Error) -> Status {
    Status::internal(crate::chain(&error))
}

/// Makes the copy and opens it; it has no name any more then, so that nothing of it stays, however this ends. The turn is
/// held here too: a client that goes away does not end the copying.
fn make(store: PathBuf, turn: OwnedMutexGuard<()>) -> Result<Made, Status> {
    let copy = store::snapshot_path(&store);
    let contents = store::snapshot(&store, &copy).map_err(internal)?;
    let opened = std::fs::File::open(&copy);
    std::fs::remove_file(&copy).map_err(internal)?;
    Ok((opened.map_err(internal)?, contents, turn))
}

/// Sends the file and what it is; a client that went away is no error.
async fn send(
    file: std::fs::File,
    mut end: BackupEnd,
    chunks: &mpsc::Sender<Result<BackupChunk, Status>>,
) -> Result<(), Status> {
    let mut file = File::from_std(file);
    let mut digest = Sha256::new();
    loop {
        let mut data = Vec::with_capacity(CHUNK_BYTES);
        let limit = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
        (&mut file).take(limit).read_to_end(&mut data).await.map_err(internal)?;
        digest.update(&data);
        end.bytes += u64::try_from(data.len()).unwrap_or(u64::MAX);
        let last = data.is_empty();
        let part = match last {
            true => {
                end.sha256 = hex::hex_of(&digest.clone().finalize());
                Part::End(end.clone())
            }
            false => Part::Data(data),
        };
        let sent = timeout(SEND_LIMIT, chunks.send(Ok(BackupChunk { part: Some(part) }))).await;
        match sent {
            Ok(Ok(())) if !last => {}
            Ok(Ok(()) | Err(_)) => return Ok(()),
            Err(_) => return Err(Status::deadline_exceeded("the client takes nothing of the backup")),
        }
    }
}
