//! Images copied through the master.

use std::sync::{Arc, Mutex};

use muster_core::{
    calls::{CallAnswer, Image},
    names::NodeName,
};
use muster_proto::v1;
use tonic::Status;
use uuid::Uuid;

use super::{
    super::{NodeClient, OnProgress, copy::copy_image},
    fixture::{name, patient, registry, within},
    server::{Serving, TestNode},
};

struct Pair {
    from: TestNode,
    to: TestNode,
    clients: (NodeClient, NodeClient),
    _serving: (Serving, Serving),
    _folder: tempfile::TempDir,
}

fn pair() -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (TestNode::new(), TestNode::new());
    let (from_socket, to_socket) = (folder.path().join("from.sock"), folder.path().join("to.sock"));
    let serving = (from.serve(&from_socket), to.serve(&to_socket));
    let clients = (registry(&from_socket, patient()).0.local(), registry(&to_socket, patient()).0.local());
    Pair { from, to, clients, _serving: serving, _folder: folder }
}

impl Pair {
    async fn copy(&self, on_progress: Option<&OnProgress>) -> CallAnswer {
        let image = Image::Disk { disk: Uuid::nil() };
        let export = Image::Export { export: Uuid::nil(), name: "sda.raw".to_owned() };
        within(copy_image(17, &self.clients.0, &image, &self.clients.1, &export, on_progress)).await
    }
}

fn head(length: u64) -> Result<v1::ImageChunk, Status> {
    Ok(v1::ImageChunk { offset: 0, data: Vec::new(), length: Some(length) })
}

fn chunk(offset: u64, data: &[u8]) -> Result<v1::ImageChunk, Status> {
    Ok(v1::ImageChunk { offset, data: data.to_vec(), length: None })
}

#[tokio::test]
async fn all_pieces_arrive_in_order_and_progress_is_told() {
    let pair = pair();
    let megabyte = vec![1; 1024 * 1024];
    let mut chunks = vec![head(20 * 1024 * 1024)];
    // More than the buffers hold, with a hole at the end.
    chunks.extend((0..16).map(|index| chunk(index * 1024 * 1024, &megabyte)));
    *pair.from.image.lock().unwrap() = chunks.clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let on_progress: OnProgress = {
        let told = told.clone();
        Arc::new(move |progress| told.lock().unwrap().push(progress.percent.unwrap()))
    };
    let answer = pair.copy(Some(&on_progress)).await;
    assert!(matches!(answer, CallAnswer::Done(_)), "{answer:?}");
    let sent: Vec<v1::ImageChunk> = chunks.into_iter().map(Result::unwrap).collect();
    assert!(*pair.to.written.lock().unwrap() == [Ok(sent)], "other pieces were written");
    let told = told.lock().unwrap();
    assert!(told.is_sorted() && told.last() == Some(&100) && told.contains(&50), "{told:?}");
}

#[tokio::test]
async fn a_source_that_breaks_off_leaves_no_image_that_counts_as_whole() {
    let pair = pair();
    for (broken, expected) in [
        (Err(Status::data_loss("the disk has a bad block")), "failed: node1: the disk has a bad block"),
        (Err(Status::unavailable("going down")), "not reached: node1: going down"),
        (
            chunk(9, b"ab"),
            "failed: node1: the image was not copied whole: data from 9 to 11 does not follow 4 within 10 bytes",
        ),
        (
            chunk(3, b"ab"),
            "failed: node1: the image was not copied whole: data from 3 to 5 does not follow 4 within 10 bytes",
        ),
    ] {
        *pair.from.image.lock().unwrap() = vec![head(10), chunk(0, b"abcd"), broken];
        let text = match pair.copy(None).await {
            CallAnswer::Failed(why) => format!("failed: {why}"),
            CallAnswer::NotReached(why) => format!("not reached: {why}"),
            CallAnswer::Done(_) => "done".to_owned(),
        };
        assert_eq!(text, expected);
    }
    assert_eq!(*pair.to.written.lock().unwrap(), vec![Err("given up"); 4]);
}

#[tokio::test]
async fn a_writer_that_refuses_ends_the_copy() {
    let pair = pair();
    *pair.from.image.lock().unwrap() = vec![head(10), chunk(0, b"abcd")];
    pair.to.refuse("write_image", Status::not_found("there is no export"));
    let answer = pair.copy(None).await;
    assert_eq!(answer, CallAnswer::Failed("node1: there is no export".to_owned()));

    let missing: NodeName = name("node7");
    let image = Image::Disk { disk: Uuid::nil() };
    let (registry, _) = registry(&pair._folder.path().join("from.sock"), patient());
    let answer = within(registry.copy_image(17, &name("node1"), &image, &missing, &image, None)).await;
    assert!(matches!(&answer, CallAnswer::NotReached(why) if why.contains("node7")), "{answer:?}");
}
