//! Commands on a node and files copied to it. Neither is asked for again when the connection is lost: a command could run
//! twice.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use muster_proto::v1::{self, put_file_part::Part};
use tokio::time::timeout;
use tonic::Status;

use super::{
    client::{NodeClient, Tries},
    limits::words,
    link::Link,
    trouble::CallError,
};

/// What a node may take beyond the command's own limit: 2 s of grace, 5 s after the kill, and the reading of the output.
const COMMAND_END_LIMIT: Duration = Duration::from_secs(20);
/// What a file of the largest size may take on a slow line.
const COPY_LIMIT: Duration = Duration::from_secs(120);
/// Bytes of a file in one message.
const PART_BYTES: usize = 64 * 1024;

/// A file that is sent to nodes.
#[derive(Debug)]
pub struct SentFile {
    /// Where it goes, and what it is like.
    pub start: v1::FileStart,
    /// What it holds.
    pub content: Vec<u8>,
    /// Who asks.
    pub user: String,
}

impl NodeClient {
    /// Runs a command and waits for its end.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn run_command(
        &self,
        argv: &[String],
        limit: Duration,
        user: &str,
    ) -> Result<v1::CommandResult, CallError> {
        let link = self.ready(&mut Tries::new(false)).await?;
        let request = v1::RunRequest {
            context: Some(self.inner.shared.context()),
            argv: argv.to_vec(),
            timeout_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            user: user.to_owned(),
        };
        let mut client = link.commands();
        let answer = timeout(limit + COMMAND_END_LIMIT, client.run(request)).await;
        let silent =
            |_| CallError::NotReached(format!("no answer within {}", words(limit + COMMAND_END_LIMIT)));
        self.answered_once(&link, answer.map_err(silent)?.map(tonic::Response::into_inner))
    }

    /// Copies a file to the node.
    ///
    /// # Errors
    /// When the node is not reached or refuses.
    pub async fn put_file(&self, file: &Arc<SentFile>) -> Result<(), CallError> {
        let link = self.ready(&mut Tries::new(false)).await?;
        let start = v1::PutFileStart {
            context: Some(self.inner.shared.context()),
            file: Some(file.start.clone()),
            user: file.user.clone(),
        };
        let sent = Arc::clone(file);
        let parts = (0..file.content.len()).step_by(PART_BYTES).map(move |begin| {
            let end = sent.content.len().min(begin + PART_BYTES);
            Part::Data(sent.content[begin..end].to_vec())
        });
        let parts = stream::iter([Part::Start(start)]).chain(stream::iter(parts));
        let mut client = link.commands();
        let answer = client.put_file(parts.map(|part| v1::PutFilePart { part: Some(part) }));
        let silent = |_| CallError::NotReached(format!("no answer within {}", words(COPY_LIMIT)));
        let answer = timeout(COPY_LIMIT, answer).await.map_err(silent)?;
        self.answered_once(&link, answer.map(|_| ()))
    }

    fn answered_once<T>(&self, link: &Arc<Link>, answer: Result<T, Status>) -> Result<T, CallError> {
        match answer {
            Ok(answer) => {
                link.answered();
                Ok(answer)
            }
            Err(status) => {
                let error = self.inner.shared.error(&status);
                if let CallError::NotReached(reason) = &error {
                    self.lost(link, reason);
                }
                Err(error)
            }
        }
    }
}
