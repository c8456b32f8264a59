//! Copies an image from a node to a node through this master, piece by piece with a bounded buffer.

use muster_core::calls::{CallAnswer, Image, Output};
use muster_proto::v1::{self, write_image_request::Part};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

use super::{
    client::{NodeClient, Tries},
    execute::{OnProgress, Progress},
    trouble::CallError,
};

/// Pieces, of at most 1 MiB each, that wait for the writing node.
const PIECES_WAITING_MAX: usize = 4;
const MIB: u64 = 1024 * 1024;

/// Which node a copy failed on.
struct CopyError {
    client: NodeClient,
    error: CallError,
}

impl CopyError {
    fn into_answer(self) -> CallAnswer {
        let node = self.client.name();
        match self.error.into_answer() {
            CallAnswer::Failed(reason) => CallAnswer::Failed(format!("{node}: {reason}")),
            CallAnswer::NotReached(reason) => CallAnswer::NotReached(format!("{node}: {reason}")),
            done @ CallAnswer::Done(_) => done,
        }
    }
}

/// Lengths of what was read, in bytes.
#[derive(Default)]
struct Read {
    /// The whole image, holes included.
    length: u64,
    /// The end of the last piece.
    position: u64,
    /// Data sent.
    sent: u64,
    /// Data sent in pieces that are not all zeros; a writer may leave the others out.
    not_zero: u64,
}

/// Copies an image for a job; each step is repeated from the start when the copy is.
pub(super) async fn copy_image(
    job: u64,
    from: &NodeClient,
    from_image: &Image,
    to: &NodeClient,
    to_image: &Image,
    on_progress: Option<&OnProgress>,
) -> CallAnswer {
    match copy(job, from, from_image, to, to_image, on_progress).await {
        Ok(()) => CallAnswer::Done(Output::default()),
        Err(error) => error.into_answer(),
    }
}

async fn copy(
    job: u64,
    from: &NodeClient,
    from_image: &Image,
    to: &NodeClient,
    to_image: &Image,
    on_progress: Option<&OnProgress>,
) -> Result<(), CopyError> {
    let of_from = |error| CopyError { client: from.clone(), error };
    let of_to = |error| CopyError { client: to.clone(), error };
    let (from_link, to_link) = {
        let (mut from_tries, mut to_tries) = (Tries::new(false), Tries::new(false));
        let (from_link, to_link) = tokio::join!(from.ready(&mut from_tries), to.ready(&mut to_tries));
        (from_link.map_err(of_from)?, to_link.map_err(of_to)?)
    };
    let request = v1::ReadImageRequest {
        context: Some(from.inner.shared.context()),
        image: Some(from_image.clone().into()),
        job_id: job,
    };
    let chunks = from_link.node().read_image(request).await;
    let chunks = chunks.map_err(|status| of_from(from.inner.shared.error(&status)))?.into_inner();

    let (pieces, waiting) = mpsc::channel(PIECES_WAITING_MAX);
    let start = v1::WriteImageStart {
        context: Some(to.inner.shared.context()),
        image: Some(to_image.clone().into()),
        job_id: job,
    };
    pieces.try_send(part(Part::Start(start))).expect("the channel is empty and its receiver is held here");
    let mut node = to_link.node();
    let writing = node.write_image(ReceiverStream::new(waiting));
    tokio::pin!(writing);
    let mut read = Read::default();
    let pumped = tokio::select! {
        // Before all was sent, an answer is an error.
        early = &mut writing => {
            let error = match early {
                Ok(_) => broken("the node answered before it had the whole image"),
                Err(status) => to.inner.shared.error(&status),
            };
            return Err(of_to(error));
        }
        pumped = pump(from, chunks, &pieces, &mut read, on_progress) => pumped,
    };
    if let Err(error) = pumped {
        // The end of the stream would look like the end of the image: an empty message makes the writer give up.
        let give_up = async { tokio::join!(pieces.send(v1::WriteImageRequest { part: None }), &mut writing) };
        if timeout(to.inner.shared.limits().probe, give_up).await.is_err() {
            tracing::warn!(node = %to.name(), "no answer to the end of a failed copy");
        }
        return Err(of_from(error));
    }
    drop(pieces);
    let written =
        writing.await.map_err(|status| of_to(to.inner.shared.error(&status)))?.into_inner().bytes_written;
    if (read.not_zero..=read.sent).contains(&written) {
        return Ok(());
    }
    Err(of_to(broken(&format!("{} bytes of data were sent, {written} written", read.sent))))
}

/// Moves all pieces from the reading node into the channel.
async fn pump(
    from: &NodeClient,
    mut chunks: Streaming<v1::ImageChunk>,
    pieces: &mpsc::Sender<v1::WriteImageRequest>,
    read: &mut Read,
    on_progress: Option<&OnProgress>,
) -> Result<(), CallError> {
    let mut first = true;
    let mut percent_told = None;
    while let Some(chunk) = chunks.message().await.map_err(|status| from.inner.shared.error(&status))? {
        if std::mem::take(&mut first) {
            read.length = chunk.length.ok_or_else(|| broken("the image's length is missing"))?;
        }
        read.take(&chunk)?;
        // The receiver is gone only once the writer has answered, which ends this future too.
        if pieces.send(part(Part::Chunk(chunk))).await.is_err() {
            std::future::pending::<()>().await;
        }
        let percent = percent(read.position, read.length);
        if percent_told.replace(percent) != Some(percent)
            && let Some(on_progress) = on_progress
        {
            let text = format!("{} of {} MiB copied", read.position / MIB, read.length / MIB);
            on_progress(Progress { text, percent: Some(percent) });
        }
    }
    if first {
        return Err(broken("the image's length is missing"));
    }
    if let Some(on_progress) = on_progress
        && percent_told != Some(100)
    {
        // A hole at the end has no piece of its own.
        let text = format!("{0} of {0} MiB copied", read.length / MIB);
        on_progress(Progress { text, percent: Some(100) });
    }
    Ok(())
}

impl Read {
    fn take(&mut self, chunk: &v1::ImageChunk) -> Result<(), CallError> {
        if chunk.data.is_empty() {
            return Ok(());
        }
        let bytes = u64::try_from(chunk.data.len()).unwrap_or(u64::MAX);
        let end = chunk.offset.saturating_add(bytes);
        if chunk.offset < self.position || end > self.length {
            let (offset, position, length) = (chunk.offset, self.position, self.length);
            let text =
                format!("data from {offset} to {end} does not follow {position} within {length} bytes");
            return Err(broken(&text));
        }
        self.position = end;
        self.sent += bytes;
        if chunk.data.iter().any(|byte| *byte != 0) {
            self.not_zero += bytes;
        }
        Ok(())
    }
}

fn part(part: Part) -> v1::WriteImageRequest {
    v1::WriteImageRequest { part: Some(part) }
}

fn percent(position: u64, length: u64) -> u32 {
    let part = u128::from(position) * 100 / u128::from(length.max(1));
    u32::try_from(part).unwrap_or(100).min(100)
}

fn broken(text: &str) -> CallError {
    CallError::Refused { code: Code::DataLoss, message: format!("the image was not copied whole: {text}") }
}
